"""Malformed requests from a seed, and the raw call that sends them.

The environment is made by hand: a client library would refuse or repair most of these requests.
"""

import gzip
import io
import json
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import quote, quote_from_bytes

import brotli
from backports import zstd

Wsgi = Callable[..., Iterable[bytes]]

DOCUMENTED = frozenset(
    {200, 201, 204, 303, 304, 400, 401, 403, 404, 405, 406, 410, 411, 413, 415, 422}
)
"""The statuses that the documentation of the interface lists."""


class Shot(NamedTuple):
    """A raw request."""

    method: str
    path: bytes
    query: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    values: tuple[str, ...] = ()
    """What the parameters say, decoded: an error quotes one of them."""


def request_bytes(shot: Shot) -> bytes:
    """Return the request as sent, valid HTTP or not."""
    target = quote_from_bytes(shot.path, safe="/%;").encode() + (b"?" + shot.query)[: 1 << 20]
    head = b"%b %b HTTP/1.1\r\nConnection: close\r\n" % (shot.method.encode(), target)
    if "Host" not in dict(shot.headers):
        head += b"Host: server.test\r\n"
    for name, value in shot.headers:
        head += b"%b: %b\r\n" % (name.encode(), value.encode("latin-1"))
    return head + b"\r\n" + shot.body


class Answer(NamedTuple):
    """A parsed answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        """Return the error as the client sees it."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class Raw(NamedTuple):
    """An answer as the application gave it."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


def fire_raw(app: Wsgi, shot: Shot) -> Raw:
    """Send a request to an application, and keep everything of its answer."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": shot.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": shot.path.decode("latin-1"),
        "QUERY_STRING": shot.query.decode("latin-1"),
        "SERVER_NAME": "server.test",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "server.test",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(shot.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in shot.headers:
        key = name.upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
        started[:] = [(status, headers)]

    chunks = app(environ, start_response)
    try:
        body = b"".join(chunks)
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
    return Raw(*started[0], body)


def fire(app: Wsgi, shot: Shot) -> Answer:
    """Send a request to an application."""
    status, headers, body = fire_raw(app, shot)
    for name, value in headers:
        if name.lower() == "content-encoding":
            body = {"gzip": gzip, "br": brotli, "zstd": zstd}[value].decompress(body)
    for name, value in headers:
        assert "\n" not in name + value, (name, value)
        assert "\r" not in name + value, (name, value)
    return Answer(int(status[:3]), {name.lower(): value for name, value in headers}, body)


EX = "http://example.org/"
PIECES = (
    "<", ">", '"', "'", "<<(", ")>>", "<<", ">>", "_:", "_:b", "^^", "@", "@en", "@en--ltr", "?",
    "?x", "?.subject", "$x", "\\", "\\u0041", "\\", "\n", "\r\n", "\t", "\x00", "\x7f", "\ufffe",
    "\u202e", "é", "🚂", "%", "%41", "%zz", "{", "}", "|", "`", " ", "+", "#", "&", "=", ";", ",",
    EX, f"{EX}t1", f"<{EX}t1>", f'"1"^^<{EX}d>', '"x"@en', "urn:ldf:defaultGraph", "urn:x:y",
    "javascript:alert(1)", "rdf:type", "xsd:", "a:b", ":", "://", "http://", "//", "..", "../..",
    "http://server.test/.well-known/genid/trains/", "http://server.test/.well-known/genid/trains/b",
    f"http://server.test/trains/facts/property/{'0' * 32}",
    f"http://server.test/trains/facts/graph/{'f' * 32}",
    "http://server.test/trains/implicit-graph?subject=x&predicate=y&object=z",
    "<script>", "</script><img src=x onerror=alert(1)>", "' OR 1=1 --", "0", "-1", "1e9", "NaN",
    "2015-12-08T12:00:00Z", "𝟙", "١", "a" * 300, "<" * 50, '"' * 50, "(" * 50,
    "<<( <x:s> <x:p> " * 150 + "<x:o>" + " )>>" * 150, "<<x:s x:p " * 150 + "x:o" + ">>" * 150,
)  # fmt: skip
NUMBERS = (
    "0", "1", "2", "-1", "+1", "01", "1.0", "1e3", "", " ", "١٢", "²", "x", "999999999", "10" * 20,
    "1_000", "0x10", "NaN", "1&page=2", "%31", "\x00", "9" * 5000,
)  # fmt: skip
PATHS = (
    "/", "//", "/trains", "/trains/", "/trains/plain", "/trains/named-graph", "/trains/facts",
    "/trains/facts/", "/trains/plain/facts", "/trains.trig", "/trains.html", "/trains.x", "/.trig",
    "/trains.", "/trains/plain.jsonld", "/nothing", "/nothing/facts", "/api-doc", "/healthz",
    "/readyz", "/metrics", "/.well-known/genid/trains/b", "/timegate/trains", "/trains/timegate",
    "/..", "/../etc/passwd", "/%2e%2e/", "/trains%00", "/trains\x00", "/é", "/trains;x", "/facts",
    "/static/x", "/favicon.ico", "/trains/facts/graph/" + "0" * 32, "/" + "a" * 3000,
    "/" + "a/" * 500,
)  # fmt: skip
METHODS = (
    "GET", "GET", "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT",
    "PROPFIND", "get", "X", "FOO-BAR",
)  # fmt: skip
HEADERS = {
    "Accept": (
        "*/*", "text/html", "application/trig", "application/trig;q=0", "x", "x/y", "", ",", ";",
        "application/ld+json;profile=x", "text/html;q=2", "text/html;q=-1", "text/html;q=x",
        "*/*;q=0", "text/*", "a" * 3000, ",".join(["text/html;q=0.1"] * 200),
        "text/turtle, */*;q=.1",
    ),
    "Accept-Encoding": (
        "gzip", "br", "identity;q=0", "*;q=0", "gzip;q=0", "zstd", "", "x" * 1000, "gzip;q=x", "*",
    ),
    "Accept-Datetime": (
        "Tue, 08 Dec 2015 12:00:00 GMT", "x", "", "0", "Tue, 08 Dec 0000 12:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT", "Tue, 08 Dec 2015 25:00:00 GMT", "2015-12-08T12:00:00Z",
        "Thu, 01 Jan 1970 00:00:00 GMT", "Tue, 08 Dec 2015 12:00:00 +9999", "é",
    ),
    "If-None-Match": ("*", '"x"', "W/\"x\"", "x", "", '"' * 99, ",,,"),
    "If-Modified-Since": (
        "x", "", "Tue, 08 Dec 2015 12:00:00 GMT", "0", "Fri, 31 Dec 9999 23:59:59 GMT",
    ),
    "Range": ("bytes=0-1", "bytes=x", "lines=1-2", "bytes=-1", ""),
    "Host": ("evil.test", "", "[", "a b", "x:99999", "<script>", "é"),
    "Forwarded": ("host=evil.test;proto=https", ";", "for=\"_x", "é"),
    "X-Forwarded-Host": ("evil.test", "", "<", "a,b,c"),
    "X-Forwarded-Proto": ("https", "javascript", "", "<"),
    "Authorization": ("Bearer", "Bearer x", "Basic x", "", "Bearer open sesame", "é", "Bearer é"),
    "Content-Length": ("0", "5", "-1", "x", "", "99999999999999999999", "1_0", "١"),
    "Transfer-Encoding": ("chunked", "x", ""),
    "Content-Type": ("", "x", "text/turtle", "text/turtle; charset=x", "/", "a/b", "é"),
    "Origin": ("http://evil.test", "null", "é"),
    "Access-Control-Request-Method": ("POST", "x", ""),
    "Cookie": ("a=b", "=;;", "é" * 50),
    "X-Http-Method-Override": ("DELETE",),
    "Expect": ("100-continue", "x"),
}  # fmt: skip
VIEWS = (
    "", "/plain", "/singleton-property", "/named-graph", "/implicit-graph", "/reification",
    "/rdf-1.2", ".nq", ".trig", ".ttl", ".nt", ".jsonld", ".html", "/plain.html",
)  # fmt: skip
BODIES = (
    b"", b"<http://example.org/a> <http://example.org/p> <http://example.org/o> .", b"<", b"\x00",
    b"\xff\xfe", b"[]", b"{", b'{"@context": "http://evil.test/context"}', b"[" * 2000,
    b'{"@id": "x:a", "x:p": ' * 200, b"@prefix", b"<a> <b> <c> .", b"_:a <x:p> _:a .",
    b'<x:s> <x:p> "\\uD800" .', b'<x:s> <x:p> "\\q" .', b"<x:s> <x:p> <<( <x:a> <x:b> <x:c> )>> .",
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>',
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>',
    b"<x:s> <x:p> \"" + b"x" * 5000 + b"\" .", b"<x:g> { <x:s> <x:p> 1e400 }",
    b"<x:s> <x:p> " + b"<<( <x:s> <x:p> " * 30_000 + b"<x:o>" + b" )>>" * 30_000 + b" .",
    b'{"x:p":' * 5_000 + b'"x"' + b"}" * 5_000, b"<x:x>" * 5_000,
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "'
    + b"&a;" * 99 + b'"><!ENTITY c "' + b"&b;" * 99 + b'">]><x>' + b"&c;" * 999 + b"</x>",
    b'<x:s> <http://example.org/temporal#expiration> "x" .',
    b'PA "p" <x:> .\nTX .\nA p:s p:p "o" .\nD p:s <x:p> "q" <x:g> .\nTC .', b"TX .\nTX .", b"A x:y",
    b"PA p <x:" + b"y" * 3_000 + b">\n" + b"A p:s p:p p:o .\nD p:s p:p p:q .\n" * 3_000,
    b'<x:s> <x:p> <x:o> <x:g> . <x:g> <http://example.org/temporal#expiration> "2015-12-08" .',
    b'<x:s> <x:p> <x:o> <x:g> . <x:g> <http://example.org/temporal#expiration> '
    b'"2015-12-08T13:00:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime> .',
    b"<x:x> <http://www.w3.org/1999/02/22-rdf-syntax-ns#object> <x:o> .",
    b"<x:x> <http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies> <x:o> .",
)  # fmt: skip
MEDIA_TYPES = (
    "application/n-quads", "application/trig", "text/turtle", "application/n-triples", "text/n3",
    "application/ld+json", "application/rdf+xml", "application/json", "text/html", "", "x",
    "text/turtle; charset=latin-1", "text/turtle; charset=x;;;", "application/n-quads;version=1.2",
    "application/rdf-patch", "application/rdf-patch", "text/rdf-patch; x=y",
)  # fmt: skip
LABELS = (
    "", "expiration=2015-12-08T13:00:00Z", "expiration=x", "expiration=", "expiration=2015-12-08",
    "expiration=2015-12-08T11:00:00Z", "expiration=99999-01-01T00:00:00Z", "initial=x",
    "initial=2015-12-08T12:00:00Z&final=2015-12-08T13:00:00Z", "final=2015-12-08T13:00:00Z",
    "initial=2015-12-08T13:00:00Z&final=2015-12-08T12:00:00Z", "annotation=named-graph",
    "annotation=x", "annotation=", "batch=", "batch=1&expiration=2015-12-08T13:00:00Z", "x=y",
    "expiration=2015-12-08T13:00:00Z&expiration=2015-12-08T13:00:00Z", "batch=" + "b" * 500,
    "%ff=%ff",
    "expiration=2015-12-08T13:00:00%2B99:00", "expiration=2015-12-08T13:00:00", "batch=%00", "&&==",
)  # fmt: skip


class Gun:
    """Makes requests from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _text(self) -> str:
        pick = self._random
        if pick.random() < 0.1:
            return "".join(chr(pick.randrange(0xD7FF)) for _ in range(pick.randrange(12)))
        return "".join(pick.choices(PIECES, k=pick.choice((1, 1, 1, 2, 3, 4, 6))))

    def _query(self, pairs: list[tuple[str, str]]) -> bytes:
        """Encode the pairs, mostly correctly."""
        style = self._random.random()
        if style < 0.8:
            return "&".join(f"{name}={quote(value, safe='')}" for name, value in pairs).encode()
        if style < 0.9:
            return "&".join(f"{name}={value}" for name, value in pairs).encode()
        raw = bytearray("&".join(f"{n}={quote(v, safe='')}" for n, v in pairs).encode())
        for _ in range(self._random.randrange(1, 4)):
            place = self._random.randrange(len(raw) + 1)
            raw[place:place] = bytes([self._random.randrange(256)])
        return bytes(raw)

    def _headers(self, most: int) -> tuple[tuple[str, str], ...]:
        names = self._random.sample(tuple(HEADERS), self._random.randrange(most + 1))
        # A server hands over what it received as Latin-1.
        return tuple(
            (name, self._random.choice(HEADERS[name]).encode().decode("latin-1")) for name in names
        )

    def term(self) -> Shot:
        """Return a pattern of mostly malformed terms."""
        names = self._random.sample(("subject", "predicate", "object", "graph"), k=4)
        pairs = [(name, self._text()) for name in names[: self._random.randrange(1, 4)]]
        path = f"/trains{self._random.choice(VIEWS)}".encode()
        return Shot("GET", path, self._query(pairs), values=tuple(value for _, value in pairs))

    def control(self) -> Shot:
        """Return pages, snapshots, limits, bindings and instants."""
        pick = self._random
        pairs = [("predicate", f"{EX}stop")] if pick.random() < 0.5 else []
        for name in pick.sample(("page", "limit", "snapshot", "values", "at", "x"), k=2):
            if name in ("page", "limit"):
                value = pick.choice(NUMBERS)
            elif name == "snapshot":
                value = f"{pick.choice(NUMBERS)}.{pick.choice(NUMBERS)}"
                value = pick.choice((value, "1449576000000000.0", "1449576000000000.1", value[1:]))
            else:
                value = pick.choice(
                    (
                        self._text(),
                        f"(?s) {{ ({self._text()}) }}",
                        f"(?s ?o) {{ (<{EX}t1> UNDEF) ({self._text()} {self._text()}) }}",
                        "(?s) { " + "(<x:y>) " * pick.choice((0, 1, 30, 51, 500)) + "}",
                        f"VALUES (?x) {{ ({EX}) }}",
                        "2015-12-08T12:00:00Z",
                        "(" * 500,
                    )
                )
            pairs.append((name, value))
        pairs += pairs[:1] if pick.random() < 0.05 else []
        path = f"/trains{pick.choice(VIEWS)}".encode()
        return Shot("GET", path, self._query(pairs), values=tuple(value for _, value in pairs))

    def frame(self) -> Shot:
        """Return methods, paths and header fields."""
        pick = self._random
        path = pick.choice(PATHS).encode()
        if pick.random() < 0.2:
            path = b"/" + bytes(pick.randrange(256) for _ in range(pick.randrange(12)))
        query = b"" if pick.random() < 0.7 else quote_from_bytes(self._text().encode()).encode()
        return Shot(pick.choice(METHODS), path, query, self._headers(4))

    def body(self) -> Shot:
        """Return publications."""
        pick = self._random
        data = bytearray(pick.choice(BODIES))
        for _ in range(pick.choice((0, 0, 1, 3))):
            place = pick.randrange(len(data) + 1)
            data[place : place + pick.randrange(2)] = bytes([pick.randrange(256)])
        headers = {
            "Content-Type": pick.choice(MEDIA_TYPES),
            "Authorization": pick.choice(("Bearer open sesame",) * 9 + ("Bearer x",)),
            "Content-Length": str(len(data) + pick.choice((0,) * 20 + (1, -1, 10**9))),
        }
        if pick.random() < 0.1:
            headers |= dict(self._headers(2))
        path = b"/trains/facts" if pick.random() < 0.95 else b"/stops/facts"
        label = pick.choice(LABELS).encode()
        return Shot(
            pick.choice(("POST", "POST", "DELETE")),
            path,
            label,
            tuple(headers.items()),
            bytes(data),
        )
