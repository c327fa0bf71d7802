"""Malformed requests get a documented answer and leave nothing behind, in process and over HTTP.

TPF_SHOTS=10: ten times as many.
"""

import contextlib
import ctypes
import gc
import os
import re
import socket
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote_to_bytes

import psutil
import pytest

from annotations.labels import Expiration, Interval
from tests.faults.shots import DOCUMENTED, Answer, Gun, Shot, fire, request_bytes
from tests.support.served import NOON, Served, parse, quad
from tpf_server.store.live.log import LiveSettings

STATIC = [
    *(quad(f"t{n}", "stop", f"s{n % 3}") for n in range(9)),
    quad("t1", "name", '"IC 1"'),
    quad("t1", "name", '"IC eins"@de'),
    quad("_:b", "knows", "t1"),
    quad("t1", "stop", "bruges", "history"),
]
TIMES = int(os.environ.get("TPF_SHOTS", "1"))
KINDS: dict[str, tuple[int, Callable[[Gun], Shot], set[int]]] = {
    "terms": (1_500 * TIMES, Gun.term, {200, 400}),
    "controls": (1_500 * TIMES, Gun.control, {200, 400}),
    "frames": (1_500 * TIMES, Gun.frame, {200, 204, 304, 401, 404, 405, 406}),
    "bodies": (4_000 * TIMES, Gun.body, {200, 201, 400, 401, 404, 413, 415, 422}),
}
OVER_HTTP = 1_000 * TIMES
AGAIN = 100
"""Requests of a status that are sent again."""
_WARM = 0.4
_MOST_BYTES = 24 * 2**20


_TERM = re.compile(r'<[^<>\s]*>|"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^<>\s]*>)?', re.DOTALL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    keeping = LiveSettings(retention=timedelta(seconds=5), history=timedelta(seconds=5))
    with Served(tmp_path, STATIC, settings={"page_size": 4}, keeping=keeping) as served:
        served.publish(
            (quad("t1", "delay", '"60"'), Expiration(NOON + timedelta(days=1))),
            (quad("t2", "delay", '"0"'), Interval(NOON, NOON + timedelta(days=2))),
        )
        yield served


def check(shot: Shot, answer: Answer) -> None:
    """Check for a documented status; an error quotes the fault in JSON."""
    about = (shot, answer.status, answer.body[:500])
    assert answer.status in DOCUMENTED, about
    assert "date" in answer.headers, about
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if answer.status < 400:
        if answer.body and kind in ("application/trig", "application/n-quads", "text/turtle"):
            parse(answer.body, kind)
        return
    assert answer.headers["cache-control"] == "no-store", about
    if shot.method == "HEAD":
        assert not answer.body, about
        return
    if "Accept" in dict(shot.headers):
        return
    assert kind == "application/problem+json", about
    problem = answer.problem
    assert problem["status"] == answer.status, about
    assert problem["detail"], about
    if problem["title"] == "Malformed term" and shot.values:
        assert any(f"{value!r}" in problem["detail"] for value in _as_received(shot)), about


def _as_received(shot: Shot) -> Iterator[str]:
    """Return possible readings of the parameters: a raw query holds more or fewer of them."""
    for pair in shot.query.split(b"&"):
        value = unquote_to_bytes(pair.partition(b"=")[2].replace(b"+", b" "))
        text = value.decode("utf-8", "replace")
        yield text
        if pair.startswith(b"values="):
            # There a term is one of many.
            yield from _TERM.findall(text)
            for start in re.finditer(r"<<\(", text):
                ends = re.finditer(r"\)>>", text[start.start() :])
                yield from (text[start.start() :][: each.end()] for each in ends)


def _resident() -> int:
    """Return the bytes of the process, without what the C library holds of freed bodies."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return psutil.Process().memory_info().rss


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_sent_is_answered_as_documented_and_leaves_nothing(
    server: Served, kind: str
) -> None:
    count, make, reached = KINDS[kind]
    gun = Gun(20151208)
    seen: defaultdict[int, list[Shot]] = defaultdict(list)
    before = 0
    for number in range(count):
        shot = make(gun)
        if number % 100 == 0:
            server.clock.advance_to(server.clock.now() + timedelta(seconds=1))
        answer = fire(server.app, shot)
        check(shot, answer)
        if len(seen[answer.status]) < AGAIN:
            seen[answer.status].append(shot)
        if number == int(count * _WARM):
            before = _resident()
    assert _resident() - before < _MOST_BYTES
    # The requests are mixed enough to reach what they aim at.
    assert reached <= seen.keys(), seen.keys()
    # What is sent again leaves nothing: neither fragments that are read, nor refusals.
    for again in (seen[200], seen[400], seen[404]):
        held = []
        for _ in range(3):
            for shot in again:
                fire(server.app, shot)
            gc.collect()
            held.append(sum(not isinstance(each, weakref.ref) for each in gc.get_objects()))
        assert held[2] - held[1] < 6


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_sent_over_http_is_answered(server: Served, kind: str) -> None:
    _, make, reached = KINDS[kind]
    gun = Gun(20161208)
    seen: Counter[int] = Counter()
    for number in range(OVER_HTTP):
        shot = make(gun)
        if number % 100 == 0:
            server.clock.advance_to(server.clock.now() + timedelta(seconds=1))
        status = _sent(server.port, shot)
        assert status is None or status in DOCUMENTED | BEFORE_US, (shot, status)
        seen[status or 0] += 1
    # Most of them are HTTP, and reach the application.
    assert seen[0] < OVER_HTTP / 10, seen
    assert reached <= seen.keys(), seen


BEFORE_US = {414, 431, 501, 505}
"""Statuses of the program that reads HTTP."""


def _sent(port: int, shot: Shot) -> int | None:
    """Return the status; ``None`` where the connection ends, because the request ends too early."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(request_bytes(shot))
        named = dict(shot.headers)
        length = named.get("Content-Length", "0")
        ends_early = "Transfer-Encoding" in named or length != str(len(shot.body))
        if ends_early:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while b"\r\n" not in answer and (piece := connection.recv(4096)):
                answer = (answer + piece).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not answer:
            assert ends_early, shot
            return None
        return int(answer.split(b" ", 2)[1])
