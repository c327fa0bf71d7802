"""How a client asks: as `requests` does, over connections that are kept."""

import gzip
import random
import socket
import string
import threading
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from tpf_client.fragments import connections
from tpf_client.fragments.codings import PIECE, decoded
from tpf_client.fragments.connections import KeptConnections
from tpf_client.fragments.exchange import BadUrlError, Exchange
from tpf_client.fragments.http_connection import HttpConnection

TEXT = {"Accept": "text/plain"}
OF_LIBRARIES = ("connection", "user-agent", "accept-encoding")
"""Fields that say who asks and what it can do."""


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with what was asked."""
        heads = sorted((name.lower(), value) for name, value in self.headers.items())
        told = [f"{name}: {value}" for name, value in heads if name not in OF_LIBRARIES]
        body = "\n".join([self.path, *told]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody wants to know."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def asker() -> Iterator[KeptConnections]:
    made = KeptConnections(2)
    yield made
    made.close()


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: KeptConnections) -> None:
        raise AssertionError("the library is asked")

    monkeypatch.setattr(KeptConnections, "_by_library", refuse)


def exchange(seconds: float = 60.0) -> Exchange:
    return Exchange(seconds, seconds, 10**7, seconds)


def asked(asker: KeptConnections, url: str) -> str:
    with asker.ask(url, TEXT, exchange()) as answer:
        assert answer.status == 200
        return b"".join(answer.pieces()).decode()


@pytest.mark.parametrize("place", ["127.0.0.1", "user:secret@127.0.0.1", "LOCALHOST"])
@pytest.mark.parametrize(
    "path",
    ["", "/", "?q", "/?", "/a b?x=<y>&z=%C3%A9#there", "/ä?q=ö", "/a/../b/./c", "/%7e%41%3a"],
)
def test_requests_are_those_of_the_library(
    asker: KeptConnections, port: int, place: str, path: str
) -> None:
    url = f"http://{place}:{port}{path}"
    with requests.Session() as usual:
        expected = usual.get(url, headers=TEXT, timeout=60).text
    assert asked(asker, url) == expected
    assert asked(asker, url) == expected


PIECES = [
    *"/?#%[]@:&=+,;~.-_!$'()* ^|{}<>\\\"`ä", *string.hexdigits, "/.", "/..", "/./", "%41", "%7E",
    "%3A", "%3a", "%C3%A9", "%25", "%5B", "http", "page", "Q",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_what_is_sent_as_it_is_the_library_would_send_as_it_is(path: str) -> None:
    url = f"http://h.example/{path}"
    found = connections._PLAIN.fullmatch(url)
    if found is None:
        return
    prepared = requests.Request("GET", url).prepare()
    with requests.Session() as session:
        adapter: Any = session.get_adapter(url)
        target = adapter.request_url(prepared, {})
        pool = adapter.get_connection_with_tls_context(prepared, True)
        # What urllib3 does with it at last.
        from urllib3.util.url import _encode_target

        assert (found["path"] or "/") + (found["query"] or "") == _encode_target(target)
        assert pool.host == found["host"]


def test_usual_urls_need_no_library() -> None:
    for url in (
        "http://127.0.0.1:8000/trains",
        "https://data.example.org/trains?predicate=http%3A%2F%2Fexample.org%2Ftrain%23delay&page=2",
        "http://[::1]:80/a/b.ttl?object=%22a%20b%22%40en&values=(%3Fs)%20%7B%20%7D#x",
        "http://h.example",
    ):
        assert connections._PLAIN.fullmatch(url), url
    for url in ("http://u@h/", "HTTP://h/", "http://h:a/", "ftp://h/", "http://h/a/../b", "//h/"):
        assert connections._PLAIN.fullmatch(url) is None, url


def test_a_proxy_of_the_environment_is_asked(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    asker = KeptConnections(2)
    assert asked(asker, "http://far.example/a?b").startswith("http://far.example/a?b\n")
    asker.close()


def test_what_is_no_url_is_refused_as_by_the_library(asker: KeptConnections) -> None:
    for url in ("nothing", "http://", "http://h:99999/"):
        with pytest.raises(BadUrlError):
            asker.ask(url, {}, exchange())


def test_a_field_that_would_be_several_is_not_sent(asker: KeptConnections, port: int) -> None:
    with pytest.raises(ValueError, match="Last-Event-ID"):
        asker.ask(f"http://127.0.0.1:{port}/", {"Last-Event-ID": "1\r\nX: y"}, exchange())


# --------------------------------------------------------------------------- on sockets

Behaviour = Callable[[socket.socket, int], None]


@pytest.fixture
def sockets(no_library: None) -> Iterator[Callable[[Behaviour], str]]:
    """Serves each connection, with its number from 0, by a function; gives the URL."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(behave: Behaviour) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            number = 0
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    behave(connection, number)
                number += 1

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/d"

    yield serve
    for listener in listeners:
        listener.close()


OK = b"HTTP/1.1 200 OK\r\n"


def always(response: bytes) -> Behaviour:
    """Answers each request alike, as long as they come."""

    def behave(connection: socket.socket, _: int) -> None:
        while connection.recv(65536):
            connection.sendall(response)

    return behave


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", b"abc"),
        (OK + b"content-length:3 \r\n\r\nabc", b"abc"),
        (OK + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200\nContent-Length: 3\n\nabc", b"abc"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 None\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not\r\nContent-Length: 9\r\n\r\n", b""),
        (b"HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 103 Hm\r\nLink: <x>\r\n\r\n"
         + OK + b"Content-Length: 1\r\n\r\na", b"a"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
         b"abc0123456789"),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\n1 \r\na\r\n00\r\nX: y\r\nY: z\r\n\r\n", b"a"),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", b"a"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_responses_of_every_shape(
    sockets: Any, asker: KeptConnections, response: bytes, body: bytes, step: int
) -> None:
    """However they are cut, and the connection is good for the next one."""
    opened: list[int] = []

    def behave(connection: socket.socket, number: int) -> None:
        opened.append(number)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while connection.recv(65536):
            for start in range(0, len(response), step):
                connection.sendall(response[start : start + step])

    url = sockets(behave)
    for _ in range(3):
        with asker.ask(url, {}, exchange()) as answer:
            assert b"".join(answer.pieces()) == body
    assert opened == [0]


@pytest.mark.parametrize(
    "response",
    [
        OK + b"\r\nabc",
        b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        OK + b"Connection: Close\r\nContent-Length: 3\r\n\r\nabc",
        OK + b"Content-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine",
        OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ],
)
def test_connections_that_are_not_used_again(
    sockets: Any, asker: KeptConnections, response: bytes
) -> None:
    opened: list[int] = []

    def behave(connection: socket.socket, number: int) -> None:
        opened.append(number)
        connection.recv(65536)
        connection.sendall(response)

    url = sockets(behave)
    for _ in range(3):
        assert asked(asker, url) == "abc"
    assert opened == [0, 1, 2]


def test_a_body_that_was_left_is_not_taken_for_the_next_response(
    sockets: Any, asker: KeptConnections
) -> None:
    url = sockets(always(OK + b"Content-Length: 3\r\n\r\nabc"))
    with asker.ask(url, {}, exchange()):
        pass
    assert asked(asker, url) == "abc"


@pytest.mark.parametrize(
    "response",
    [
        OK + b"Content-Length: 5\r\nContent-Length: 4\r\n\r\nabcde",
        OK + b"Content-Length: -5\r\n\r\nabcde",
        OK + b"Content-Length: 5\r\n\r\nabc",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        OK + b"Content-Encoding: zip\r\nContent-Length: 1\r\n\r\na",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\na",
        OK + b"X: y\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 99 Odd\r\n\r\n",
        b"\r\n\r\n",
        b"",
    ],
)
def test_responses_that_are_none(sockets: Any, asker: KeptConnections, response: bytes) -> None:
    def behave(connection: socket.socket, _: int) -> None:
        connection.recv(65536)
        connection.sendall(response)

    url = sockets(behave)
    with pytest.raises((OSError, ValueError)), asker.ask(url, {}, exchange()) as answer:
        b"".join(answer.pieces())


@pytest.mark.parametrize("parting", [b"", b"HTTP/1.1 408 Too late\r\nContent-Length: 0\r\n\r\n"])
def test_connections_that_were_closed_are_opened_again(
    sockets: Any, asker: KeptConnections, parting: bytes
) -> None:
    closed = threading.Semaphore(0)

    def behave(connection: socket.socket, _: int) -> None:
        connection.recv(65536)
        connection.sendall(OK + b"Content-Length: 3\r\n\r\nabc" + parting[:0])
        connection.sendall(parting)
        connection.shutdown(socket.SHUT_RDWR)
        closed.release()

    url = sockets(behave)
    for _ in range(3):
        assert asked(asker, url) == "abc"
        assert closed.acquire(timeout=20)


def test_a_connection_that_is_lost_when_it_is_used_again_is_opened_again_once(
    sockets: Any, asker: KeptConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_has_news", lambda _: False)
    opened: list[int] = []

    def behave(connection: socket.socket, number: int) -> None:
        opened.append(number)
        connection.recv(65536)
        if number < 2:
            connection.sendall(OK + b"Content-Length: 3\r\n\r\nabc")
            connection.recv(65536)

    url = sockets(behave)
    assert asked(asker, url) == "abc"
    assert asked(asker, url) == "abc"
    with pytest.raises(ConnectionError):
        asked(asker, url)
    assert opened == [0, 1, 2]


def test_no_more_connections_are_kept_than_wanted(sockets: Any, asker: KeptConnections) -> None:
    url = sockets(always(OK + b"Content-Length: 3\r\n\r\nabc"))
    urls = [sockets(always(OK + b"Content-Length: 0\r\n\r\n")) for _ in range(connections._ORIGINS)]
    assert asked(asker, url) == "abc"
    for each in urls:
        asked(asker, each)
    kept = [each for several in asker._idle.values() for each in several]
    assert len(kept) == connections._ORIGINS
    asker.close()
    assert all(each.sock.fileno() < 0 for each in kept)


def test_a_request_that_is_ended_is_not_sent_again(sockets: Any, asker: KeptConnections) -> None:
    asks = threading.Event()

    def behave(connection: socket.socket, number: int) -> None:
        assert not number
        connection.recv(65536)
        connection.sendall(OK + b"Content-Length: 0\r\n\r\n")
        connection.recv(65536)
        asks.set()
        connection.recv(65536)

    url = sockets(behave)
    assert asked(asker, url) == ""
    ended = exchange()

    def end() -> None:
        assert asks.wait(20)
        ended.end()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(OSError):
        asker.ask(url, {}, ended)
    thread.join()


# ------------------------------------------------------------------------------- codings


def cut(data: bytes, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    while data:
        size = chance.choice([1, 2, 3, 100, 10**6])
        yield data[:size]
        data = data[size:]


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def compressors() -> dict[str, Callable[[bytes], bytes]]:
    brotli = pytest.importorskip("brotli")
    return {
        "gzip": gzip.compress,
        "X-GZIP": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
        "deflate": zlib.compress,
        "Deflate ": raw_deflate,
        "br": brotli.compress,
        "identity": bytes,
        "": bytes,
        "deflate, gzip": lambda data: gzip.compress(zlib.compress(data)),
    }


def page(count: int) -> bytes:
    """What is neither the same again and again nor without any order."""
    return b"".join(
        b"<urn:a%d> <urn:p> <urn:b%d> .\n" % (n, n * 7919 % 100_000) for n in range(count)
    )


BODIES = st.one_of(
    st.integers(1, 6_000).map(page),
    st.binary(max_size=1000),
    st.integers(1, 300_000).map(lambda size: b"a" * size),
    st.integers(1, 300_000).map(lambda size: random.Random(size).randbytes(size)),
)


@given(body=BODIES, seed=st.integers(0, 100), name=st.sampled_from(sorted(compressors())))
def test_bodies_come_as_they_were(body: bytes, seed: int, name: str) -> None:
    sent = compressors()[name](body)
    pieces = list(decoded(cut(sent, seed), name))
    assert b"".join(pieces) == body
    assert not name.strip() or all(len(each) <= 4 * PIECE for each in pieces) or name == "identity"


@pytest.mark.parametrize("name", ["gzip", "deflate", "Deflate ", "br"])
def test_a_body_that_is_cut_or_wrong_is_an_error(name: str) -> None:
    sent = compressors()[name](b"abc" * 1000)
    for end in range(1, len(sent)):
        with pytest.raises(ValueError):
            list(decoded(cut(sent[:end], end), name))
    with pytest.raises(ValueError):
        list(decoded(iter([b"\xff" * 100]), name))
    assert list(decoded(iter([]), name)) == []


def test_few_bytes_that_stand_for_many_are_decompressed_as_they_are_wanted() -> None:
    for name, compress in compressors().items():
        if name.strip() and name != "identity":
            first = next(each for each in decoded(iter([compress(bytes(10**7))]), name) if each)
            assert len(first) <= 4 * PIECE


def test_what_follows_the_end_of_gzip_is_no_part_of_it() -> None:
    sent = gzip.compress(b"abc") + b"garbage" * 9
    assert b"".join(decoded(cut(sent, 1), "gzip")) == b"abc"


def test_a_connection_says_whether_it_was_answered() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(OK + b"Content-Length: 0\r\n\r\n")
        connection = HttpConnection(ours)
        with connection.ask(b"GET", exchange(), lambda _: None) as answer:
            assert list(answer.pieces()) == []
        assert connection.answered
        assert connection.usable
