"""Thousands of distorted pages: an answer or our error, soon, in bounds.

Bytes, numbers, instants, IRIs, links and header fields are distorted at random. Queries and streams
end with an answer or a `ClientError`, and no request goes to another host.
"""

import os
import random
import re
import resource
from collections.abc import Iterator
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
import requests

from annotations.labels import Expiration, Fact, Interval
from annotations.terms import Quad, iri, literal
from tests.support.live_server import BASE, START, LiveServer
from tests.support.wsgi_adapter import WholeAnswer, WsgiAdapter, changing
from tpf_client import Client, Solutions
from tpf_client.errors import ClientError
from tpf_client.fragments.responses import Limits

PAGES = int(os.environ.get("TPF_HOSTILE_PAGES", "150"))
"""How many distorted pages there are at least."""

EX = "http://example.org/"
LIMITS = Limits(
    retries=1,
    backoff=0.01,
    max_page_bytes=2**20,
    max_query_requests=2_000,
    max_query_seconds=20,
    max_query_bytes=2**25,
)
QUERIES = [
    f"SELECT * {{ ?s <{EX}name> ?n ; <{EX}size> ?z }}",
    f"SELECT * {{ ?s ?p ?o OPTIONAL {{ ?o <{EX}name> ?x }} }} LIMIT 50",
    f"SELECT (COUNT(*) AS ?n) {{ ?s <{EX}delay> ?d }}",
    f"SELECT * {{ ?s <{EX}delay> ?d MINUS {{ ?s <{EX}size> 1 }} }}",
]
HUGE = "9" * 5_000
NUMBERS = ["0", "-1", "1", HUGE, "1e400", "NaN", "٣", "99999999999999999999", "0" * 5_000, ""]
INSTANTS = [
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00", "-0001-01-01T00:00:00Z", f"{HUGE}-01-01T00:00:00Z",
    f"2015-12-08T10:20:00.{HUGE}Z", "now", "2015-12-08T10:20:00Z", "2015-12-08T10:19:00Z",
    "2015-12-08T10:20:00.000001Z", "2038-01-19T03:14:08Z", "",
]  # fmt: skip
DATES = [
    "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT",
    "Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 01 Jan 0001 00:00:00 +2359",
    "Tue, 08 Dec 2015 10:20:00 GMT", f"Tue, 08 Dec {HUGE} 10:20:00",
    "Tue, 08 Dec 2015 10:20:00 +999999999999", "x", "0", "Tue, 08 Dec 1970 10:20:00 GMT",
    "Tue, 08 Dec 2015 10:19:00 GMT", "(" * 10_000,
]  # fmt: skip
IRIS = [
    "http://inside.test/", BASE + "trains?page=1", BASE + "trains?page=2&x=",
    "http://inside.test:1\\@server.test/", "http://server.test@inside.test/", "//inside.test/",
    "http://server.test:99999/", "", "#", "?", "a:b", BASE + "trains?" + "page" * 2_000,
    BASE + "trains" + "?page=" * 2_000, BASE + "x" * 300_000, "http://[", "\\u0000",
    "file:///etc/passwd", BASE + ".well-known/genid/x", BASE + "trains?page=" + "9" * 400,
]  # fmt: skip
TEMPLATES = [
    BASE + "trains{?subject,predicate,object", "{+subject}", BASE + "{subject:99999999999999}",
    HUGE, "http://server.test{subject}", BASE + "trains" + "{subject}" * 1_000,
    "{?" + "x," * 100_000 + "}", "http://inside.test/{?subject,predicate,object}",
    BASE + "trains{?subject:x}", "{}", "}{", "",
]  # fmt: skip
BODIES = [
    b"", b"\xff\xfe", b"<<(" * 10_000, b'"' * 50_000, b"[" * 50_000, b"(" * 50_000, b"{" * 50_000,
    b"@prefix a: <a:" + b"a" * 10_000 + b"> . " + b"a:a a:a a:a . " * 50_000,
    b"<a:s> <a:p> " + b"<<( <a:s> <a:p> " * 5_000 + b"<a:o>" + b" )>>" * 5_000 + b" .",
]  # fmt: skip
FIELDS: dict[str, list[str]] = {
    "Date": DATES,
    "Expires": DATES,
    "Last-Modified": DATES,
    "Retry-After": [*DATES, *NUMBERS],
    "Cache-Control": [f"max-age={each}" for each in NUMBERS]
    + ["no-store", "max-age", ",,,=", "=" * 9_999],
    "Age": NUMBERS,
    "ETag": ['"a\r\n b"', "x" * 100_000, "é", '"1"', ""],
    "Location": IRIS,
    "Content-Type": [
        "application/ld+json",
        "application/rdf+xml",
        "text/html",
        "",
        ";",
        "text/turtle",
        "application/trig;charset=utf-16",
        "é/" + "x" * 10_000,
    ],
    "Content-Encoding": ["gzip", "gzip, gzip", "br", "deflate", "nothing"],
    "Memento-Datetime": DATES,
    "Link": ["<" * 1_000, "\x1b[2J"],
}
STATUSES = [
    "200 OK", "206 \x1b[2J", "304 Not Modified", "301 Moved", "302 Found", "303 See", "400 No",
    "404 No", "410 Gone", "429 Slow", "500 Oops", "503 Busy", "200 " + "x" * 10_000,
]  # fmt: skip


def distorted(
    chance: random.Random, status: str, fields: list[tuple[str, str]], body: bytes
) -> WholeAnswer:
    """The response with something wrong."""
    kind = chance.choice(["bytes", "terms", "terms", "terms", "fields", "fields", "body", "status"])
    if kind == "status":
        status = chance.choice(STATUSES)
        fields.append(("Location", chance.choice(IRIS)))
    elif kind == "body":
        body = chance.choice([*BODIES, body * 3, body[: chance.randrange(len(body) + 1)]])
    elif kind == "fields":
        for name in chance.sample(list(FIELDS), chance.randint(1, 4)):
            fields = [field for field in fields if field[0] != name]
            fields.append((name, chance.choice(FIELDS[name])))
    elif kind == "bytes":
        changed = bytearray(body)
        for _ in range(chance.randint(1, 5)):
            if changed:
                place = chance.randrange(len(changed))
                changed[place : place + chance.randint(0, 3)] = chance.randbytes(
                    chance.randint(0, 3)
                )
        body = bytes(changed)
    else:
        text = body.decode()
        for _ in range(chance.randint(1, 4)):
            text = exchanged(chance, text)
        body = text.encode()
    return status, fields, body


def exchanged(chance: random.Random, text: str) -> str:
    """Return the page with one term, or all equal ones, exchanged."""
    pattern, others = chance.choice(
        [
            (r'(?<=")\d{4}-[^"]*Z(?=")', INSTANTS),
            (r'(?<=[ "])\d+(?=[ ";])', NUMBERS),
            (r"(?<=<)http[^>]*(?=>)", IRIS),
            (r'(?<=")http[^"]*\{[^"]*(?=")', TEMPLATES),
            (r"(?<=tmp:)\w+|(?<=hydra:)\w+|(?<=temporal#)\w+|(?<=core#)\w+", [
                "next", "totalItems", "template", "expiration", "initial", "final", "predicate",
                "subject", "object", "plainView", "nextChange", "evaluatedAt", "search", "mapping",
                "variable", "property", "itemsPerPage", "dynamicTriples", "interval",
            ]),
        ]
    )  # fmt: skip
    found = [match.span() for match in re.finditer(pattern, text)]
    if not found:
        return text
    other = chance.choice(others)
    if chance.random() < 0.3 and len(other) < 10_000:
        return re.sub(pattern, lambda _: other, text)
    start, end = chance.choice(found)
    return text[:start] + other + text[end:]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    data = [Quad(iri(f"{EX}n{n}"), iri(EX + "name"), literal(f"n{n}")) for n in range(15)]
    data += [Quad(iri(f"{EX}n{n}"), iri(EX + "size"), literal(str(n % 3))) for n in range(15)]
    server = LiveServer(tmp_path_factory.mktemp("hostile"), data, page_size=6)
    server.clock.advance_to(START)
    until = START + timedelta(days=10_000)
    facts = [
        Fact(
            Quad(iri(f"{EX}n{n}"), iri(EX + "delay"), literal(str(n))),
            Expiration(until) if n % 2 else Interval(START, until),
        )
        for n in range(12)
    ]
    server.publish(facts)
    yield server
    server.close()


def ask(server: LiveServer, seed: int) -> int:
    """Ask a query, once or continuously; return the number of distorted pages."""
    chance = random.Random(seed)
    kind = chance.choice(["application/trig", "application/n-quads", "text/turtle"])
    part = chance.choice([0.1, 0.5, 1.0])
    hosts: list[str] = []
    count = 0

    def in_kind(environ: dict[str, Any], start: Any) -> Any:
        return server.app(environ | {"HTTP_ACCEPT": kind}, start)

    def perhaps(environ: dict[str, Any], answer: WholeAnswer) -> WholeAnswer:
        nonlocal count
        hosts.append(environ["HTTP_HOST"])
        if chance.random() >= part:
            return answer
        count += 1
        return distorted(chance, *answer)

    session = requests.Session()
    for prefix in ("http://", "https://"):
        session.mount(prefix, WsgiAdapter(changing(in_kind, perhaps)))
    view = chance.choice(["", "/plain", "/named-graph", "/rdf-1.2", "/reification"])
    query = chance.choice(QUERIES)
    told = ""
    with Client(server.url + view, session=session, clock=server.clock, parallelism=0,
                limits=LIMITS) as client:  # fmt: skip
        try:
            if chance.random() < 0.5:
                answer = client.query(query)
                assert isinstance(answer, Solutions)
                answer.serialize("json")
            else:
                now = server.clock.now()
                updates = client.stream(
                    query, until=now + timedelta(seconds=30), quiet=True, static_recheck=1,
                    keep_checking=1,
                )  # fmt: skip
                for update, _ in zip(updates, range(8), strict=False):
                    assert update.error is None or isinstance(update.error, ClientError)
                    update.to_json()
        except ClientError as error:
            told = str(error)
    assert told.isprintable()
    assert set(hosts) <= {"server.test"}, seed
    return count


@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::urllib3.exceptions.HTTPWarning")
def test_no_page_does_harm(server: LiveServer) -> None:
    pages = seed = 0
    longest = 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while pages < PAGES:
        started = monotonic()
        pages += ask(server, seed)
        longest = max(longest, monotonic() - started)
        seed += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{pages} pages, {seed} queries, the longest {longest:.1f} s, {grown:.0f} MB more")  # noqa: T201
    assert longest < 30
    assert grown < 300
