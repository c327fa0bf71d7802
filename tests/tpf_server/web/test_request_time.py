"""Request time grows in proportion to length."""

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.faults.shots import Answer, Shot, fire
from tests.support.served import TOKEN, Served
from tests.support.served import quad as quad_of

LONGEST = 60_000
"""Bytes of a query string that the program which reads HTTP lets through."""
MOST_SECONDS = 2.0
"""Of the processor: what grew with the square of the length took three times as long and more."""
GENID = "http://server.test/.well-known/genid/trains/"
BEGINNINGS = ("", "<<( <a:s> <a:p> ", f"<<( <{GENID}", '"a"^^', '"a"@', "(?object) { (", "_:")
PIECES = (
    '"', '\\"', '"\\', "<", ">", "<<(", "<<( ", " ", "(", "?a ", "@a-", "_:a", "a:", "//", "%", "a",
    "<a:b>", '("" ', '"a"@en ', "<<a:b a:c ", f"<{GENID}", "\n", "٣",
)  # fmt: skip
FIELDS = ("Accept", "If-None-Match", "If-Modified-Since", "Accept-Datetime", "Accept-Encoding",
          "X-Forwarded-Host", "Authorization", "Content-Type", "Cookie", "Range")  # fmt: skip
FIELD_PIECES = ('"', "W/", "a/b,", "*/*;q=", ";", ",", " ", "=", "gzip;q=0,", "Mon, ", '"0123abcd.')
BODIES = {
    "an unclosed text": ("application/ld+json", '{"@id":"' + '\\"' * 40_000),
    "escapes": ("application/ld+json", '"\\' * 40_000),
    "contexts in each other": (
        "application/ld+json",
        '{"@context":{' + ",".join(f'"t{n}":"a:{n}"' for n in range(8_000)) + '},"@graph":['
        + ",".join(['{"@context":{},"t1":"x"}'] * 8_000) + "]}",
    ),
    "a context of its own for a name": (
        "application/ld+json",
        '{"@context":{' + ",".join(f'"t{n}":"a:{n}"' for n in range(8_000))
        + ',"t":{"@id":"a:t","\\u0040context":{}}},"@graph":['
        + ",".join(['{"t":{}}'] * 8_000) + "]}",
    ),
    "a long vocabulary": (
        "application/ld+json",
        '{"@context":{"@vocab":"a:' + "v" * 80_000 + '"},"@graph":['
        + ",".join(['{"t":null}'] * 8_000) + "]}",
    ),
    "a long base": (
        "application/ld+json",
        '{"@context":{"@base":"a://' + "v" * 80_000 + '"},"@graph":['
        + ",".join(['{"@id":"x"}'] * 8_000) + "]}",
    ),
    "attributes": (
        "application/rdf+xml",
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:a="a:"><rdf:Seq '
        + " ".join(f'a:p{n}="x"' for n in range(50_000)) + "/></rdf:RDF>",
    ),
    "quotes beside triple terms": ("text/turtle", "<<(" * 101 + ")>>" * 101 + '"\\' * 40_000),
    "unclosed long texts": ("text/turtle", ("<<( )>> " * 101 + '"""') + '\\" """\\"' * 20_000),
    "bases": ("text/turtle", f"@base <http://a/{'v' * 80_000}/> .\n" + "@base <x> .\n" * 20_000),
    "a long prefix": (
        "text/turtle", f"@prefix p: <a:{'v' * 80_000}> .\n" + "p:a p:b p:c .\n" * 8_000,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("served")
    with Served(folder, [quad_of("_:b", "p", "o")], settings={"trust_forwarded": True}) as served:
        yield served


def fire_in_time(server: Served, shot: Shot) -> Answer:
    started = time.process_time()
    answer = fire(server.app, shot)
    seconds = time.process_time() - started
    about = (shot.path, shot.query[:80], [(n, v[:40]) for n, v in shot.headers], shot.body[:80])
    assert seconds < MOST_SECONDS, about
    assert answer.status < 500, about
    return answer


@pytest.mark.parametrize("piece", PIECES)
def test_of_a_query(server: Served, piece: str) -> None:
    encoded = len(quote(piece, safe=""))
    for beginning, name in product(BEGINNINGS, ("object", "values")):
        text = beginning + piece * (LONGEST // encoded)
        fire_in_time(server, Shot("GET", b"/trains", f"{name}={quote(text, safe='')}".encode()))


@pytest.mark.parametrize("field", FIELDS)
def test_of_a_header_field(server: Served, field: str) -> None:
    for piece in FIELD_PIECES:
        text = piece * (4 * LONGEST // len(piece))
        for path in (b"/trains", b"/nothing"):
            fire_in_time(server, Shot("GET", path, b"", ((field, text),)))


@pytest.mark.parametrize("body", BODIES)
def test_of_a_body(server: Served, body: str) -> None:
    media_type, text = BODIES[body]
    headers = (
        ("Content-Type", media_type),
        ("Authorization", f"Bearer {TOKEN}"),
        ("Content-Length", str(len(text))),
    )
    shot = Shot(
        "POST", b"/trains/facts", b"expiration=2999-01-01T00:00:00Z", headers, text.encode()
    )
    assert fire_in_time(server, shot).status == 400
