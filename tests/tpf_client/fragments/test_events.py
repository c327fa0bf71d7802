"""Server-sent events over HTTP, resumed by their ids."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from annotations.clock import SystemClock
from annotations.event_reader import ServerEvent
from tests.support.threaded import in_thread
from tpf_client.errors import SourceError
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher


class Events(BaseHTTPRequestHandler):
    """Sends a text, and remembers what each reader had seen."""

    body: ClassVar[bytes]
    seen: ClassVar[list[str | None]]

    def do_GET(self) -> None:
        said = self.headers.get("Last-Event-ID")
        self.seen.append(None if said is None else said.encode("latin-1").decode())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


Read = Callable[..., list[ServerEvent]]


@pytest.fixture
def read() -> Iterator[Read]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Events)
    Events.seen = []
    url = f"http://127.0.0.1:{server.server_port}/"

    def events(body: str, last: str | None = None, most: int = 1000) -> list[ServerEvent]:
        Events.body = body.encode()
        with closing(ThreadedFetcher(clock=SystemClock())) as fetcher:
            return list(fetcher.events(url, last, 10.0, threading.Event(), most))

    with in_thread(server):
        yield events


def test_an_event_is_what_the_standard_says(read: Read) -> None:
    body = ": hello\r\n\r\ndata: one\r\ndata: two\r\nid: 7\r\n\r\nevent: x\ndata:three\n\ndata: cut"
    assert read(body) == [ServerEvent("message", "7", "one\ntwo"), ServerEvent("x", None, "three")]


@pytest.mark.parametrize("last", ["7", "Ångström ☃", " 8"])
def test_whatever_identifier_a_server_gave_it_gets_back(read: Read, last: str) -> None:
    read("", last)
    assert Events.seen == [last.strip()]


class Endless(Events):
    """Sends a chunk that does not end."""

    def do_GET(self) -> None:
        """Send a part of it, and wait until the reader goes."""
        self.protocol_version = "HTTP/1.1"
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\ndata: %b" % (2**40, b"x" * 2**18))
        self.rfile.read(1)


def test_a_chunk_without_an_end_is_an_event_that_is_too_long() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    url = f"http://127.0.0.1:{server.server_port}/"
    with in_thread(server), closing(ThreadedFetcher(clock=SystemClock())) as fetcher:
        events = fetcher.events(url, None, 1.0, threading.Event(), 1000)
        with pytest.raises(SourceError, match="more than 1000 characters"):
            next(iter(events))
