"""Bad servers: an error that names the URL, or the right answer; never a part."""

import contextlib
import itertools
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from annotations.terms import Quad, iri, literal
from tests.support.live_server import BASE, LiveServer
from tests.support.wsgi_adapter import WholeAnswer, changing
from tpf_client import Client
from tpf_client.errors import (
    ClientError,
    ConnectionFailedError,
    HttpError,
    LimitError,
    OriginError,
    PageError,
    PageTooLargeError,
    ParseError,
    SourceError,
)
from tpf_client.fragments.responses import Limits

EX = "http://example.org/"
QUERY = f"SELECT * {{ ?s <{EX}name> ?n ; <{EX}size> ?z }}"
HASTY = Limits(retries=1, backoff=0.0, connect_timeout=1, read_timeout=0.3, total_timeout=0.6)
"""For what never answers; what does needs more where the machine is busy."""
PATIENT = Limits(retries=1, backoff=0.0)

Distort = Callable[[str, bytes], WholeAnswer | bytes | None]
Behaviour = Callable[[socket.socket], object]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    data = [Quad(iri(f"{EX}n{n}"), iri(EX + "name"), literal(f"n{n}")) for n in range(35)]
    data += [Quad(iri(f"{EX}n{n}"), iri(EX + "size"), literal(str(n % 3))) for n in range(35)]
    with LiveServer(
        tmp_path_factory.mktemp("bad"), data, live=False, page_size=10,
        server={"max_values": 0, "max_page_size": 10},
    ) as server:  # fmt: skip
        yield server


def ask(server: LiveServer, distort: Distort, limits: Limits = PATIENT) -> Counter[Any]:
    """Return the answer when responses are distorted by URL and body (``None``: unchanged)."""

    def changed(environ: dict[str, Any], answer: WholeAnswer) -> WholeAnswer:
        status, headers, body = answer
        distorted = distort(f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}", body)
        if isinstance(distorted, tuple):
            return distorted
        return status, headers, body if distorted is None else distorted

    with server.client(app=changing(server.app, changed), limits=limits) as client:
        return Counter(row.row for row in client.select(QUERY))


@pytest.fixture(scope="module")
def right(server: LiveServer) -> Counter[Any]:
    found = ask(server, lambda _url, _body: None)
    assert len(found) == 35
    return found


def status(line: str, body: bytes = b"no", **headers: str) -> WholeAnswer:
    fields = {"Content_Type": "text/plain", **headers}
    return line, [(name.replace("_", "-"), value) for name, value in fields.items()], body


DEEP = b"<a:s> <a:p> " + b"<<( <a:s> <a:p> " * 30_000 + b"<a:o>" + b" )>>" * 30_000 + b" ."
BOMB = b'<!DOCTYPE r [<!ENTITY e0 "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY e%d "%s">' % (n, b"&e%d;" % (n - 1) * 10) for n in range(1, 10)
)
BOMB += b']><r xmlns="a:"><p>&e9;</p></r>'
FAULTS: dict[str, tuple[Any, type[SourceError]]] = {
    "500": (status("500 Oops"), HttpError),
    "404": (status("404 Gone"), HttpError),
    "429": (status("429 Slow down", Retry_After="100000"), HttpError),
    "html": (status("200 OK", b"<html>", Content_Type="text/html"), ParseError),
    "no type": (status("200 OK", b"x", Content_Type=""), ParseError),
    "garbage": (status("200 OK", b"\x00\xff<<", Content_Type="application/trig"), ParseError),
    "nested": (
        status("200 OK", DEEP, Content_Type="application/trig"), ParseError,
    ),
    "nested objects": (
        status("200 OK", b'{"a:p":' * 30_000, Content_Type="application/ld+json"), ParseError,
    ),
    "an entity that grows": (
        status("200 OK", BOMB, Content_Type="application/rdf+xml"), ParseError,
    ),
    "no fragment": (
        status("200 OK", b"<u:a> <u:b> <u:c> .", Content_Type="text/turtle"), PageError,
    ),
    "redirect": (status("302 Found", Location="http://elsewhere.test/"), OriginError),
    "redirects": (status("302 Found", Location="#again"), SourceError),
    "gigantic": (
        status("200 OK", b"#" * 3_000_000, Content_Type="application/trig"), PageTooLargeError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("where", ["/trains?", "page=3", "size"])
@pytest.mark.parametrize("fault", FAULTS)
def test_failures(server: LiveServer, fault: str, where: str) -> None:
    """The form, a first page, or a page in the middle fails."""
    answer, kind = FAULTS[fault]

    def distort(url: str, _body: bytes) -> Any:
        return answer if where in url and (where != "/trains?" or url.endswith("?")) else None

    limits = Limits(retries=1, backoff=0.0, max_page_bytes=2_000_000)
    with pytest.raises(kind) as error:
        ask(server, distort, limits)
    assert error.value.url.startswith(server.url)
    assert server.url in str(error.value)


def replaced(pattern: str, by: str) -> Distort:
    def distort(_url: str, body: bytes) -> bytes:
        return re.sub(pattern, by, body.decode()).encode()

    return distort


COUNTS = r'((?:v:triples|h:totalItems|<[^>]*#(?:triples|totalItems)>) )"?\d+"?(\^\^[^\s;]+)?'


@pytest.mark.parametrize("count", ["0", "1", "7", "350000000", '"many"'])
def test_counts_that_lie(server: LiveServer, right: Counter[Any], count: str) -> None:
    assert ask(server, replaced(COUNTS, rf"\g<1>{count}")) == right


def _cut(part: float, _url: str, body: bytes) -> bytes:
    return body[: int(len(body) * part)]


def test_truncated_bodies(server: LiveServer) -> None:
    for part in (0.3, 0.6, 0.9):
        with pytest.raises(SourceError) as error:
            ask(server, partial(_cut, part))
        assert error.value.url.startswith(server.url)


def test_next_pages_that_loop_or_lead_away(server: LiveServer) -> None:
    loop = r"((?:h:next|<[^>]*#next>) <[^>]*page=)\d+"
    with pytest.raises(PageError, match="read already"):
        ask(server, replaced(loop, r"\g<1>2"))
    away = r"((?:h:next|<[^>]*#next>) )<[^>]*>"
    with pytest.raises(OriginError, match=r"evil\.test"):
        ask(server, replaced(away, r"\g<1><http://evil.test/>"))


def ask_app(server: LiveServer, url: str) -> bytes:
    """Return the server's own answer."""
    response = server.session().get(BASE + url.lstrip("/"), headers={"Accept": "application/trig"})
    return response.content


@pytest.fixture
def rude() -> Iterator[Callable[[Behaviour], str]]:
    """A socket server with a given handler for each connection; returns its URL."""
    listeners: list[socket.socket] = []

    def serve(behave: Behaviour) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65536)
                        behave(connection)
                    except OSError:
                        continue

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/d"

    yield serve
    for listener in listeners:
        listener.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/trig\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def sending(start: bytes, piece: bytes = b"", pause: float = 0.0) -> Behaviour:
    """Send a beginning, and a piece again and again; with pauses for 20 seconds at most."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(start)
        waiting = threading.Event()
        for _ in range(int(20 / pause)) if pause else itertools.count():
            connection.sendall(piece)
            waiting.wait(pause)

    return behave if piece else lambda connection: connection.sendall(start)


# Faster than the read timeout.
DRIPPING = {
    "chunks": sending(HEAD + CHUNKED, b"1\r\n#\r\n", 0.05),
    "body": sending(HEAD + b"Content-Length: 100000\r\n\r\n", b"#", 0.05),
    "head": sending(HEAD + b"X-Slow: ", b"x", 0.05),
    "status": sending(b"HTTP/1.1 2", b"0", 0.05),
}
SOCKETS: dict[str, Behaviour] = {
    "never": lambda connection: connection.recv(1),
    "drop": lambda connection: connection.close(),
    "short": sending(HEAD + b"Content-Length: 1000\r\n\r\n<a:> <b:> <c:> .\n"),
    "broken chunks": sending(HEAD + CHUNKED + b"5\r\nab"),
    "no HTTP": sending(b"SSH-2.0-OpenSSH\r\n"),
    "continuing": sending(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "continuing slowly": sending(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
    "endless fields": sending(HEAD, b"X: y\r\n" * 1000),
    "endless chunk": sending(HEAD + CHUNKED, b"0" * 10_000),
    "endless trailer": sending(HEAD + CHUNKED + b"0\r\n", b"X: y\r\n" * 1000),
    **DRIPPING,
}


@pytest.mark.parametrize("name", SOCKETS)
def test_sockets(rude: Any, name: str) -> None:
    url = rude(SOCKETS[name])
    with Client(url, limits=HASTY) as client, pytest.raises(ConnectionFailedError) as error:
        client.query("ASK { ?s ?p ?o }")
    assert error.value.url == url


@pytest.mark.parametrize("name", DRIPPING)
def test_what_comes_too_slowly_is_not_asked_for_again(rude: Any, name: str) -> None:
    """Retries share `total_timeout`."""
    asked: list[None] = []

    def count(connection: socket.socket) -> None:
        asked.append(None)
        DRIPPING[name](connection)

    limits = Limits(retries=3, backoff=0.0, read_timeout=10, total_timeout=0.5)
    with Client(rude(count), limits=limits) as client, pytest.raises(ConnectionFailedError):
        client.query("ASK { ?s ?p ?o }")
    assert len(asked) == 1


def test_a_client_that_is_closed_waits_for_nobody(rude: Any) -> None:
    """Nor does the interpreter when it ends."""
    dripped = threading.Event()

    def behave(connection: socket.socket) -> None:
        dripped.set()
        DRIPPING["body"](connection)

    client = Client(rude(behave), limits=Limits(total_timeout=30))
    ended = threading.Event()

    def ask() -> None:
        with contextlib.suppress(ClientError):
            client.query("ASK { ?s ?p ?o }")
        ended.set()

    threading.Thread(target=ask, daemon=True).start()
    assert dripped.wait(10)
    threads = [each for each in threading.enumerate() if each.name.startswith("tpf_")]
    client.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


INSIDE = "http://127.0.0.1:{inside}"
ASTRAY = [
    INSIDE + "/",
    INSIDE + "\\@127.0.0.1:{own}/",
    INSIDE + "#@127.0.0.1:{own}/",
    "http://127.0.0.1:{own}@127.0.0.1:{inside}/",
    "http://127.0.0.1:{own}\\@127.0.0.1:{inside}/",
    "//127.0.0.1:{inside}/",
    "\\\\127.0.0.1:{inside}/",
    "http:\\\\127.0.0.1:{inside}/",
    "http:/\\127.0.0.1:{inside}/",
    "http:///127.0.0.1:{inside}/",
    "http://127.0.0.1:{own}\t@127.0.0.1:{inside}/",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:-1/",
    "http://[::1/",
    "http://127.0.0.1:{own}%40127.0.0.1:{inside}/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{inside}/",
]


@pytest.mark.parametrize("place", ["redirect", "next", "template", "plain view"])
@pytest.mark.parametrize("astray", ASTRAY)
def test_no_request_leads_astray(rude: Any, astray: str, place: str) -> None:
    hits: list[bool] = []
    inside = rude(lambda _connection: hits.append(True)).split(":")[2].split("/")[0]

    def behave(connection: socket.socket) -> None:
        own = str(connection.getsockname()[1])
        said = astray.replace("{own}", own).replace("{inside}", inside)
        if place == "redirect":
            # The server may be there under any name: the redirect to itself would be an error, too.
            field = f"Location: {said}\r\n".encode()
            connection.sendall(b"HTTP/1.1 302 Found\r\n" + field + b"Content-Length: 0\r\n\r\n")
            return
        body = page(f"http://127.0.0.1:{own}/d", place, said)
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    url = rude(behave)
    with Client(url, limits=PATIENT) as client:
        for ask in (lambda: client.query("ASK { ?s ?p ?o }"),
                    lambda: next(iter(client.stream("SELECT * { ?s ?p ?o }")))):  # fmt: skip
            # What leads back to the server itself is no error.
            back = astray.startswith("http:///")
            with contextlib.suppress(SourceError) if back else pytest.raises(SourceError):
                ask()
    assert not hits


def page(url: str, place: str, said: str) -> bytes:
    said = said.replace("\\", "\\\\").replace("\t", "\\t")
    template = said + "{?s,p,o}" if place == "template" else url + "{?s,p,o}"
    iri_of = "<" + said.replace("\\", "\\u005C").replace("\\u005C\\u005C", "\\u005C") + ">"
    links = {
        "next": f"<{url}> hydra:next {iri_of} .",
        "plain view": f"<{url}> t:plainView {iri_of} .",
    }
    return f"""
        @prefix hydra: <http://www.w3.org/ns/hydra/core#> .
        @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
        @prefix t: <http://example.org/temporal#> .
        <{url}#metadata> {{
            <{url}#metadata> <http://xmlns.com/foaf/0.1/primaryTopic> <{url}> .
            <{url}> hydra:totalItems 5 ; hydra:search [ hydra:template "{template}" ; hydra:mapping
                [ hydra:variable "s" ; hydra:property rdf:subject ],
                [ hydra:variable "p" ; hydra:property rdf:predicate ],
                [ hydra:variable "o" ; hydra:property rdf:object ] ] .
            {links.get(place, "")}
        }}""".encode()


def test_data_lead_to_no_private_address(rude: Any, server: LiveServer) -> None:
    """A SERVICE from data, unless the dataset is at such an address itself."""
    hits: list[bool] = []
    inside = rude(lambda _connection: hits.append(True))
    query = f"SELECT * {{ VALUES ?e {{ <{inside}> <{inside}2> }} SERVICE ?e {{ ?s ?p ?o }} }}"
    for url, allowed, asked in (
        ("http://93.184.215.14/d", [], False),
        ("http://93.184.215.14/d", [inside], True),
        ("http://127.0.0.1:9/d", [], True),
    ):
        hits.clear()
        with Client(url, limits=PATIENT, allowed_origins=allowed) as client, \
                pytest.raises(SourceError) as error:  # fmt: skip
            list(client.select(query))
        assert bool(hits) == asked
        assert isinstance(error.value, OriginError) != asked


def test_two_pages_that_lead_to_each_other(server: LiveServer) -> None:
    """Under a new name each time."""
    numbers = iter(range(1, 10**6))

    def distort(url: str, _body: bytes) -> bytes:
        page = 2 + ("page=2" in url)
        first = ask_app(server, f"/trains?predicate={EX}name&page={page}").decode()
        to = f"{BASE}trains?predicate={EX}name&page={5 - page}&n={next(numbers)}"
        away = r"((?:h:next|<[^>]*#next>) )<[^>]*>"
        return re.sub(away, rf"\g<1><{to}>", first).encode()

    with pytest.raises(PageError, match="no end"):
        ask(server, distort)


@pytest.mark.parametrize(
    ("limit", "most"),
    [("max_query_requests", 3), ("max_query_bytes", 10_000), ("max_query_seconds", 0.0)],
)
def test_one_query_has_limits(server: LiveServer, limit: str, most: float) -> None:
    limits = Limits(retries=0, **{limit: most})  # type: ignore[arg-type]
    with pytest.raises(LimitError, match=limit):
        ask(server, lambda _url, _body: None, limits)
    # In threads, too, where somebody waits.
    with Client(server.url, session=server.session(), clock=server.clock,
                limits=limits) as client, pytest.raises(LimitError, match=limit):  # fmt: skip
        list(client.select(QUERY))


def test_each_evaluation_of_a_stream_has_limits_of_its_own(server: LiveServer) -> None:
    options = Limits(max_query_requests=12)
    with server.client(limits=options) as client:
        updates = client.stream(
            f"SELECT * {{ ?s <{EX}name> ?n }}",
            every=100,
            static_recheck=1,
            keep_checking=1,
            quiet=True,
        )
        seen = [update.error for update, _ in zip(updates, range(5), strict=False)]
        assert client.statistics.requests + client.statistics.cache_hits > 12
        updates.close()
    assert seen == [None] * 5


def test_cookies_are_not_kept(rude: Any) -> None:
    seen: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        connection.sendall(
            b"HTTP/1.1 500 No\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
        )
        seen.append(connection.recv(65536))

    with Client(rude(behave), limits=PATIENT) as client, pytest.raises(SourceError):
        client.query("ASK { ?s ?p ?o }")
    assert b"GET" in b"".join(seen)
    assert b"ookie" not in b"".join(seen)


def test_a_server_does_not_write_to_the_terminal() -> None:
    assert str(SourceError("u:", "\x1b[2J no")) == "u:: \ufffd[2J no"
