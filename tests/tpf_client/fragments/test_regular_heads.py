"""Heads of responses say what they say to `http.client`."""

import http.client
import io
import socket
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tpf_client.fragments.exchange import Exchange
from tpf_client.fragments.library_requests import _Response, running
from tpf_client.fragments.regular_heads import regular_head

REGULAR = ("HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 \r\n", "HTTP/1.1 200 Fine  by me \r\n")
STATUSES = (
    *REGULAR, "HTTP/1.1 200\r\n", "HTTP/1.0 200 OK\r\n", "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 204 No Content\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/2 200 OK\r\n", "HTTP/1.1 200 OK\n", "nothing\r\n", "", "HTTP/1.1 2000 OK\r\n",
)  # fmt: skip
LENGTHS = ("Content-Length: 3\r\n", "content-length:3\r\n", "CONTENT-LENGTH: \t3\r\n")
FIELDS = (
    *LENGTHS, "Date: x\r\n", "ETag:\"a\"\r\n", "X:  a b \t\r\n", "x: \u00e9\x0b\x85\r\n", "Y:\r\n",
    "Content-Type: multipart/mixed; boundary=b\r\n", "Content-Type: text/plain\r\n", "A: b:c\r\n",
    "Content-Length: 4\r\n", "Content-Length: -3\r\n", "Content-Length: many\r\n", " more\r\n",
    "Content-Length: 3 \r\n", "Transfer-Encoding: chunked\r\n", "Connection: close\r\n",
    "connection: keep-alive\r\n", "no field\r\n", "A : b\r\n", "A: b\n", "A: b\rB: c\r\n",
    ": x\r\n", "Link: <a>\r\n", "Link: <b>\r\n", "From me\r\n", "Content-Length: \u0663\r\n",
)  # fmt: skip


class _Socket:
    def __init__(self, said: bytes) -> None:
        self._said = said

    def makefile(self, *_: object) -> io.BufferedReader:
        """What comes."""
        return io.BufferedReader(io.BytesIO(self._said))

    def gettimeout(self) -> float:
        """As it was set."""
        return 60.0

    def settimeout(self, _: float) -> None:
        """Nothing is waited for."""


def _seen(response: Any) -> object:
    try:
        response.begin()
    except http.client.HTTPException as error:
        return type(error)
    fields = list(response.headers.items())
    rest = response.headers.get_payload() or None
    said = response.version, response.status, response.code, response.reason, response.chunked
    ends = response.length, response.will_close, response.msg is response.headers
    try:
        return said, ends, fields, rest, response.read()
    except http.client.HTTPException as error:
        return said, ends, fields, rest, type(error)


@given(
    st.one_of(st.sampled_from(REGULAR), st.sampled_from(STATUSES)),
    st.lists(st.sampled_from(FIELDS), max_size=5),
    st.sampled_from(LENGTHS),
    st.sampled_from((b"\r\n", b"\n", b"")),
    st.sampled_from((b"", b"abc", b"abcdef", b"3\r\nabc\r\n0\r\n\r\n")),
)
@example(REGULAR[0], [f"A{n}: x\r\n" for n in range(98)], LENGTHS[0], b"\r\n", b"abc")
@example(REGULAR[0], [f"A{n}: x\r\n" for n in range(99)], LENGTHS[0], b"\r\n", b"abc")
def test_a_head_says_what_it_says_to_the_library(
    status: str, fields: list[str], length: str, end: bytes, body: bytes
) -> None:
    said = "".join([status, *fields, length]).encode("iso-8859-1", "replace") + end + body
    theirs: Any = http.client.HTTPResponse(_Socket(said), method="GET")  # type: ignore[arg-type]
    token = running.set(Exchange(60.0, 60.0, 2**20, 60.0))
    try:
        mine = _Response(_Socket(said), method="GET")  # type: ignore[arg-type]
    finally:
        running.reset(token)
    assert _seen(mine) == _seen(theirs)


def test_usual_heads_are_not_parsed_as_mails(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> object:
        raise AssertionError("parsed")

    monkeypatch.setattr(http.client, "parse_headers", never)
    head = b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 3\r\n\r\n"
    mine, theirs = socket.socketpair()
    with mine, theirs:
        theirs.sendall(head + b"abc")
        token = running.set(Exchange(60.0, 60.0, 2**20, 60.0))
        try:
            response = _Response(mine, method="GET")
        finally:
            running.reset(token)
        response.begin()
        assert response.read() == b"abc"
    # Only where all of it is there.
    assert [regular_head(head[:place]) for place in range(len(head))] == [None] * len(head)
