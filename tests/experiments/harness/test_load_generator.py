"""The load generator with a real server; its reading of responses."""

import http.server
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from experiments.errors import MeasurementError
from experiments.harness.load_generator import generate, read_response
from tests.support.threaded import in_thread

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n1a\r\nabcdefghijklmnopqrst0\r\n\r\nyz\r\n0\r\n\r\n"
)
SIZED = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nX: y\r\n\r\n\r\n\r\n"


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (CHUNKED, (200, 31)),
        (SIZED, (404, 4)),
        (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 99\r\n\r\n", (304, 0)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", (200, 0)),
    ],
)
def test_a_response_counts_when_it_is_whole_and_not_before(
    whole: bytes, expected: tuple[int, int]
) -> None:
    for size in range(len(whole)):
        assert read_response(whole[:size]) is None, whole[:size]
    assert read_response(whole) == expected


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", b"SMTP 220\r\n\r\n"])
def test_what_has_no_end_or_is_not_http_is_no_response(head: bytes) -> None:
    with pytest.raises(MeasurementError):
        read_response(head)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, int]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.client_address[1]))
        self.send_response(500 if self.path == "/broken" else 200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 1000)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    Handler.seen = []
    with in_thread(server := http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)):
        yield server.server_address[1]


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_every_request_is_counted_once_over_connections_that_stay_open(port: int) -> None:
    answer = generate(port, [request("/a"), request("/b")], connections=3, seconds=0.3)
    assert len(answer["latencies"]) == len(Handler.seen) > 3
    assert len({port for _, port in Handler.seen}) == 3
    assert answer["bytes"] == 1000 * len(Handler.seen)
    paths = [path for path, _ in Handler.seen]
    assert abs(paths.count("/a") - paths.count("/b")) <= 1
    assert all(0 < latency < answer["seconds"] for latency in answer["latencies"])


def test_another_status_is_a_failure(port: int) -> None:
    with pytest.raises(MeasurementError, match="status 500 instead of 200"):
        generate(port, [request("/a"), request("/broken")], connections=1, seconds=60)
    with pytest.raises(MeasurementError, match="status 200 instead of 304"):
        generate(port, [request("/a")], connections=1, seconds=60, status=304)
