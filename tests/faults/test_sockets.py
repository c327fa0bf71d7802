"""Raw sockets: endless bodies, requests that never finish, odd methods."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPResponse

import pytest
import requests

from tests.support.eventually import eventually
from tests.support.running_server import TOKEN, RunningServer
from tpf_server.workers import MOST_AT_ONCE

CONFIG = """
max_body = 100_000
[datasets.stops]
source = "stops.nt"
live = false
[datasets.trains]
live = true
"""
STATIC = "".join(f"<http://example.org/s{n}> <http://example.org/p> <x:o> .\n" for n in range(300))
BROKEN_OFF = '"broken off"'
LINE = b"<http://example.org/s> <http://example.org/p> <http://example.org/o> .\n"
_KEPT = {"content-type", "etag", "vary", "link", "last-modified", "access-control-allow-origin"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "stops.nt").write_text(STATIC)
    with RunningServer(folder, CONFIG) as running:
        yield running


def connect(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def read_answer(connection: socket.socket, method: str = "GET") -> HTTPResponse:
    response = HTTPResponse(connection, method=method)
    response.begin()
    return response


def head_of_publication(length: str) -> bytes:
    return (
        "POST /trains/facts?expiration=2999-01-01T00:00:00Z HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/n-quads\r\n{length}\r\n\r\n"
    ).encode()


def check_alive(server: RunningServer) -> None:
    for path in ("stops", "trains"):
        assert requests.get(server.origin + path, timeout=60).status_code == 200


def test_a_body_without_length_is_refused_before_it_comes(server: RunningServer) -> None:
    chunk = b"%x\r\n%s\r\n" % (len(LINE), LINE) * 100
    most = 200_000_000
    statuses: list[int] = []
    with closing(connect(server)) as connection:
        connection.sendall(head_of_publication("Transfer-Encoding: chunked"))

        def listen() -> None:
            with closing(read_answer(connection, "POST")) as answer:
                statuses.append(answer.status)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        sent = 0
        try:
            while not statuses and sent < most:
                connection.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass  # the server has had enough, which is as good as the answer
        listener.join(20)
    assert statuses == [411]
    assert sent < most / 10, "the whole body was taken"
    check_alive(server)


def test_a_body_that_says_that_it_is_too_large_is_refused_before_it_comes(
    server: RunningServer,
) -> None:
    with closing(connect(server)) as connection:
        connection.sendall(head_of_publication("Content-Length: 100000000000"))
        assert read_answer(connection, "POST").status == 413
    check_alive(server)


def test_a_body_of_just_the_limit_is_read_whole(server: RunningServer) -> None:
    body = (LINE * (100_000 // len(LINE))).ljust(100_000, b"\n")
    for data, status in ((body, 201), (body + b"\n", 413)):
        response = requests.post(
            f"{server.origin}trains/facts?expiration=2999-01-01T00:00:00Z",
            data=data,
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-quads"},
            timeout=20,
        )
        assert response.status_code == status, response.text


def test_a_body_that_breaks_off_changes_nothing(server: RunningServer) -> None:
    def count() -> int:
        return requests.get(f"{server.origin}trains/plain.nq", timeout=60).text.count(BROKEN_OFF)

    line = f"<x:s> <x:p> {BROKEN_OFF} .\n".encode()
    for length, body in (
        (f"Content-Length: {len(line) + 5}", line),
        ("Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (len(line), line)),
    ):
        with closing(connect(server)) as connection:
            connection.sendall(head_of_publication(length) + body)
    check_alive(server)
    assert count() == 0
    # The same body, whole, is taken: the count sees what it should not have seen above.
    with closing(connect(server)) as connection:
        connection.sendall(head_of_publication(f"Content-Length: {len(line)}") + line)
        with closing(read_answer(connection, "POST")) as answer:
            assert answer.status == 201
    assert count() >= 1


SLOW = [
    b"GET /stops HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    b"GET /st",
    b"",
    b"POST /trains/facts HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc",
    b"GET /stops HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc",
    head_of_publication("Transfer-Encoding: chunked") + b"ff\r\nabc",
]


def test_requests_that_never_finish_do_not_hold_up_others(server: RunningServer) -> None:
    with ExitStack() as held:
        for number in range(60):
            connection = held.enter_context(closing(connect(server)))
            connection.sendall(SLOW[number % len(SLOW)])
        # Others are served, more of them than the server has threads.
        for _ in range(12):
            check_alive(server)
    check_alive(server)


def test_publishers_that_never_finish_leave_threads_for_others(server: RunningServer) -> None:
    def publish() -> int:
        return requests.post(
            f"{server.origin}trains/facts?expiration=2999-01-01T00:00:00Z",
            data=LINE,
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-quads"},
            timeout=10,
        ).status_code

    with ExitStack() as held:
        connections = [held.enter_context(closing(connect(server))) for _ in range(8)]
        for connection in connections:
            connection.sendall(head_of_publication("Content-Length: 50") + b"abc")
        answered: set[socket.socket] = set()
        while len(answered) < len(connections) - MOST_AT_ONCE:
            waiting = [connection for connection in connections if connection not in answered]
            ready = select.select(waiting, [], [], 10)[0]
            assert ready, "too few are refused"
            answered.update(ready)
        for connection in answered:
            with closing(read_answer(connection, "POST")) as answer:
                assert (answer.status, answer.getheader("Retry-After")) == (503, "1")
        for _ in range(6):
            check_alive(server)
        assert publish() == 503
    # The server notices the end of those connections by and by.
    eventually(lambda: publish() == 201)


@pytest.mark.parametrize("path", ["/stops", "/trains/plain?page=1", "/", "/api-doc"])
def test_head_has_the_fields_of_get_and_no_body(server: RunningServer, path: str) -> None:
    seen: list[dict[str, str]] = []
    with closing(connect(server)) as connection:
        for method in ("GET", "HEAD", "GET"):
            connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            response = read_answer(connection, method)
            body = response.read()
            assert response.status == 200
            assert bool(body) == (method == "GET")
            fields = {name.lower(): value for name, value in response.getheaders()}
            assert fields["date"]
            # HEAD does not make the page, so it cannot tell its length.
            kept = {name: value for name, value in fields.items() if name in _KEPT}
            if "etag" in kept:
                # A live page says when it was evaluated, and so does the end of its tag.
                kept["etag"] = kept["etag"].partition(".")[0]
            seen.append(kept)
    assert seen[0] == seen[1] == seen[2]
    assert "content-type" in seen[1]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /stops HTTP/9.9\r\n\r\n",
        b"GET /stops HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /stops HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2_000_000 + b"\r\n\r\n",
        b"POST /trains/facts HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST /trains/facts HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: [\r\n\r\n",
        b"GET /stops?subject=%ff HTTP/1.1\r\nHost: \xff\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_by_an_error_or_the_end(
    server: RunningServer, raw: bytes
) -> None:
    with closing(connect(server)) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
        except OSError:
            answer = b""
    assert not answer or 400 <= int(answer.split(b" ")[1]) < 500, answer[:300]
    check_alive(server)
