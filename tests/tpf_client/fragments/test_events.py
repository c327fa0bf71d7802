"""Server-sent events over HTTP, resumed by their ids."""

import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler

import pytest

from annotations.clock import SystemClock
from annotations.event_reader import ServerEvent
from tests.support.threaded import http_server
from tpf_client.errors import SourceError
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher


def read(body: str, last: str | None = None) -> tuple[list[ServerEvent], str | None]:
    """The events that a text has, and what its server is told to have been seen."""
    seen: list[str | None] = []

    def answer(asked: BaseHTTPRequestHandler) -> None:
        seen.append(asked.headers.get("Last-Event-ID"))
        asked.send_response(200)
        asked.send_header("Content-Type", "text/event-stream")
        asked.end_headers()
        asked.wfile.write(body.encode())

    with http_server(answer) as port, closing(ThreadedFetcher(clock=SystemClock())) as fetcher:
        url = f"http://127.0.0.1:{port}/"
        events = list(fetcher.events(url, last, 10.0, threading.Event(), 1000))
    return events, seen[0]


def test_an_event_is_what_the_standard_says() -> None:
    body = ": hello\r\n\r\ndata: one\r\ndata: two\r\nid: 7\r\n\r\nevent: x\ndata:three\n\ndata: cut"
    events = [ServerEvent("message", "7", "one\ntwo"), ServerEvent("x", None, "three")]
    assert read(body) == (events, None)


@pytest.mark.parametrize("last", ["7", "Ångström ☃", " 8"])
def test_whatever_identifier_a_server_gave_it_gets_back(last: str) -> None:
    _, seen = read("", last)
    assert seen is not None
    assert seen.encode("latin-1").decode() == last.strip()


def test_a_chunk_without_an_end_is_an_event_that_is_too_long() -> None:
    def endless(asked: BaseHTTPRequestHandler) -> None:
        asked.send_response(200)
        asked.send_header("Transfer-Encoding", "chunked")
        asked.end_headers()
        asked.wfile.write(b"%x\r\ndata: %b" % (2**40, b"x" * 2**18))
        asked.rfile.read(1)  # until the reader goes

    fetcher = ThreadedFetcher(clock=SystemClock())
    with http_server(endless, "HTTP/1.1") as port, closing(fetcher):
        events = fetcher.events(f"http://127.0.0.1:{port}/", None, 1.0, threading.Event(), 1000)
        with pytest.raises(SourceError, match="more than 1000 characters"):
            next(iter(events))
