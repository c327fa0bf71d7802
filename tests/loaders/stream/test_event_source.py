"""Server-sent events: resumed where they broke, each landed once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from annotations.clock import ManualClock
from experiments.free_port import free_port
from loaders.errors import InputError, SettingError
from loaders.stream.event_source import EventFollower
from loaders.stream.spool import Spool
from tests.support.threaded import in_thread

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Events(BaseHTTPRequestHandler):
    """Answers with one text per connection; the last one stays open."""

    protocol_version = "HTTP/1.1"
    answers: ClassVar[list[tuple[int, str, bytes]]]
    resumed: ClassVar[list[str | None]]
    ended: ClassVar[threading.Event]

    def do_GET(self) -> None:
        self.resumed.append(self.headers.get("Last-Event-ID"))
        status, kind, body = self.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        if not self.answers:
            self.ended.wait(60)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def sse(text: str) -> tuple[int, str, bytes]:
    return 200, "text/event-stream; charset=utf-8", text.encode()


@pytest.fixture
def serve() -> Iterator[Callable[[list[tuple[int, str, bytes]]], str]]:
    ending = ExitStack()

    def start(answers: list[tuple[int, str, bytes]]) -> str:
        Events.answers, Events.resumed, Events.ended = answers, [], threading.Event()
        server = ThreadingHTTPServer(("127.0.0.1", 0), Events)
        ending.enter_context(in_thread(server))
        ending.callback(Events.ended.set)
        return f"sse+http://127.0.0.1:{server.server_port}/events"

    with ending:
        yield start


class CountingSpool(Spool):
    """Tells when so many messages have landed."""

    landed: int
    wanted: int

    def await_messages(self, count: int) -> None:
        self.landed, self.wanted, self.there = 0, count, threading.Event()

    def land(self, topic: str, payload: bytes | bytearray, again: bool) -> Path | None:
        path = super().land(topic, payload, again)
        self.landed += path is not None
        if self.landed == self.wanted:
            self.there.set()
        return path


def contents(spool: Spool) -> list[str]:
    return [path.read_text() for path in sorted(spool.directory.iterdir())]


def test_a_stream_that_breaks_is_resumed(
    tmp_path: Path, serve: Callable[[list[tuple[int, str, bytes]]], str]
) -> None:
    url = serve(
        [
            sse("retry: 1\nid: 1\ndata: one\n\nid: 2\nevent: other\ndata: no\n\ndata: cut"),
            (503, "text/plain", b"not now"),
            # What has its identifier and content is the same event, whatever is resumed.
            sse("id: 1\ndata: one\n\nid: 3\ndata: three\n\n: end\n\ndata: three\n\n"),
        ]
    )
    spool = CountingSpool(tmp_path, "nt", ManualClock(NOON))
    spool.await_messages(3)
    said: list[str] = []
    with EventFollower(url, "message", spool, tmp_path, said.append) as follower:
        assert spool.there.wait(60)
        follower.check()
    assert contents(spool) == ["one", "three", "three"]
    assert Events.resumed == [None, "2", "2"]
    assert len(said) == 1
    assert "connecting again" in said[0]
    # Another process goes on where this one was.
    url = serve([sse("data: x\n\n")])
    spool.await_messages(1)
    with EventFollower(url, None, spool, tmp_path):
        assert spool.there.wait(60)
    assert Events.resumed == ["3"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, "text/plain", b""), "HTTP 404"),
        ((204, "text/event-stream", b""), "no more events"),
        ((200, "text/html", b"<p>"), "no server-sent events, but text/html"),
    ],
)
def test_what_are_no_events(
    tmp_path: Path, serve: Callable[[list[tuple[int, str, bytes]]], str],
    answer: tuple[int, str, bytes], reason: str,
) -> None:  # fmt: skip
    spool = Spool(tmp_path, "nt", ManualClock(NOON))
    url = serve([answer, answer])
    with (
        pytest.raises(InputError, match=reason) as caught,
        EventFollower(url.replace("//", "//user:secret@"), None, spool, tmp_path),
    ):
        pass
    assert "secret" not in str(caught.value)
    for wrong in ("sse+ftp://h/", "sse+http://[h/", "sse+http://h:x/", "sse+http:///"):
        with pytest.raises(SettingError, match="not the URL of events"):
            EventFollower(wrong, None, spool, tmp_path)
    with (
        pytest.raises(InputError, match="connection refused"),
        EventFollower(f"sse+http://127.0.0.1:{free_port()}/", None, spool, tmp_path),
    ):
        pass
