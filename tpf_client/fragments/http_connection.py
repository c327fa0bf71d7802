"""A connection of HTTP/1.1 on which one request after the other is sent.

It does what pages of fragments need, GET and the framing of responses, in a fraction of the time
that a library for everything takes. Source: RFC 9112.
"""

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Self

from tpf_client.fragments.codings import decoded
from tpf_client.fragments.exchange import MOST_HEAD, Exchange, TooLongError
from tpf_client.fragments.freshness import whole_number

_PIECE: Final = 2**16
_MOST_FIELDS: Final = 100
_MOST_LINE: Final = 2**13
"""Bytes of a line that begins a chunk at most."""
_STATUS: Final = re.compile(r"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: .*)?", re.DOTALL)
_END: Final = re.compile(rb"\r?\n\r?\n")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_SWITCHING: Final = 101
_FIRST_FINAL: Final = 200
_NO_BODY: Final = frozenset({204, 304})


class Fields(Mapping[str, str]):
    """The fields of a response, by name in whatever case; what comes several times is joined."""

    __slots__ = ("_said",)

    def __init__(self, lines: list[str]) -> None:
        said: dict[str, str] = {}
        last = ""
        for line in lines:
            if line[:1] in (" ", "\t") and last:
                said[last] += f" {line.strip()}"
                continue
            name, colon, value = line.partition(":")
            if colon:
                last, value = name.strip().lower(), value.strip()
                said[last] = f"{said[last]}, {value}" if last in said else value
        self._said = said

    def __getitem__(self, name: str) -> str:
        return self._said[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)


class ComingResponse:
    """A response whose body is still to be read; see `tpf_client.fragments.exchange.OpenResponse`.

    Args:
        status: the status code.
        headers: its fields.
        body: what comes of its body.
        leave: what to do in the end; gets whether all of the body came.
    """

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        body: Iterator[bytes] | None,
        leave: Callable[[bool], object],
    ) -> None:
        self.status = status
        self.headers = headers
        self._body = body
        self._leave = leave
        self._whole = body is None

    def pieces(self, *, eager: bool = False) -> Iterator[bytes]:  # noqa: ARG002
        """The body, decompressed, as it comes, `eager` or not.

        Raises:
            OSError: it does not come.
            ValueError: it is not what it says that it is, or too long.
        """
        return decoded(self._coming(), self.headers.get("content-encoding", ""))

    def _coming(self) -> Iterator[bytes]:
        if self._body is not None:
            yield from self._body
            self._whole = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(self._whole)


class HttpConnection:
    """A connection.

    Args:
        sock: leads to the server.

    Attributes:
        answered: whether anything came for the last request.
        usable: whether the last response left it so that another request can be sent.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.answered = False
        self.usable = True
        self._exchange: Exchange
        self._held = b""
        self._at = 0

    def close(self) -> None:
        """Let go of it."""
        self.usable = False
        self.sock.close()

    def ask(
        self, request: bytes, exchange: Exchange, leave: Callable[["HttpConnection"], object]
    ) -> ComingResponse:
        """Send a request whose method is GET, and read the head of the response.

        Args:
            request: all of it.
            exchange: what it may take.
            leave: called when the response was left, to close the connection or to keep it.

        Raises:
            OSError: the connection is lost, or time is up.
            ValueError: what comes is no response of HTTP, or too long.
        """
        self._exchange = exchange
        self.answered, self.usable = False, False
        exchange.attach(self.sock)
        exchange.before_read(self.sock)
        self.sock.sendall(request)
        minor, status, fields = self._head()
        body, counted = self._body(status, fields)
        tokens = fields.get("connection", "").lower()
        lasting = counted and "close" not in tokens and (minor > 0 or "keep-alive" in tokens)

        def end(whole: bool) -> None:
            # What came beyond its end belongs to no request.
            self.usable = whole and lasting and self._at == len(self._held)
            leave(self)

        return ComingResponse(status, fields, body, end)

    def _head(self) -> tuple[int, int, Fields]:
        """The minor version, the status and the fields of the response, of the last one of 1xx."""
        room = MOST_HEAD
        while True:
            held, begin = bytearray(self._held[self._at :]), 0
            while (end := _END.search(held, begin)) is None:
                if len(held) > room:
                    raise TooLongError("the head of the response is too long")
                begin = max(len(held) - 3, 0)
                held += self._coming()
            self._held, self._at = bytes(held), end.end()
            room -= self._at
            status_line, *lines = held[: end.start()].decode("latin-1").split("\n")
            found = _STATUS.fullmatch(status_line.rstrip("\r"))
            if found is None:
                raise ValueError(f"what answers speaks no HTTP: {status_line[:100]!r}")
            if len(lines) > _MOST_FIELDS or room < 0:
                raise TooLongError("the head of the response is too long")
            status = int(found[2])
            if status >= _FIRST_FINAL:
                return int(found[1]), status, Fields(lines)
            if status == _SWITCHING:
                raise ValueError("the server switches to another protocol")

    def _body(self, status: int, fields: Fields) -> tuple[Iterator[bytes] | None, bool]:
        """What comes of the body, if there is one; and whether its end is told."""
        if status in _NO_BODY:
            return None, True
        transfer = fields.get("transfer-encoding", "").strip().lower()
        if transfer not in ("", "identity"):
            if transfer != "chunked":
                raise ValueError(f"the response is transferred as {transfer[:100]}")
            return self._chunks(), "content-length" not in fields
        lengths = {each.strip() for each in fields.get("content-length", "").split(",")} - {""}
        if not lengths:
            return self._rest(), False
        size = whole_number(lengths.pop())
        if size is None or lengths:
            raise ValueError("the response has no length, or several")
        return (self._counted(size) if size else None), True

    def _chunks(self) -> Iterator[bytes]:
        while True:
            found = _CHUNK.fullmatch(self._line(_MOST_LINE))
            if found is None:
                raise ValueError("a chunk of the response has no length")
            size = int(found[1], 16)
            if not size:
                break
            yield from self._counted(size)
            if self._line(2):
                raise ValueError("a chunk of the response is longer than it says")
        room = MOST_HEAD
        while line := self._line(room):
            room -= len(line) + 2

    def _counted(self, left: int) -> Iterator[bytes]:
        while left:
            piece = self._take(left)
            if not piece:
                raise ConnectionResetError(f"the response ends {left} bytes too early")
            left -= len(piece)
            yield piece

    def _rest(self) -> Iterator[bytes]:
        while piece := self._take(_PIECE):
            yield piece

    def _take(self, most: int) -> bytes:
        """What is there or comes next, so many bytes at most; empty: nothing comes any more."""
        if self._at == len(self._held):
            self._held, self._at = self._more(), 0
        begin = self._at
        end = self._at = min(begin + most, len(self._held))
        return self._held if end - begin == len(self._held) else self._held[begin:end]

    def _line(self, most: int) -> bytes:
        """The next line, without its end.

        Raises:
            TooLongError: it has more bytes than that.
        """
        parts: list[bytes] = []
        size = 0
        while True:
            if self._at == len(self._held):
                self._held, self._at = self._coming(), 0
            begin = self._at
            end = self._held.find(b"\n", begin) + 1
            self._at = end or len(self._held)
            parts.append(self._held[begin : self._at])
            size += len(parts[-1])
            if size > most + 2:
                raise TooLongError("a line of the response is too long")
            if end:
                return b"".join(parts)[:-1].removesuffix(b"\r")

    def _coming(self) -> bytes:
        """What comes next.

        Raises:
            ConnectionResetError: nothing comes any more.
        """
        came = self._more()
        if not came:
            raise ConnectionResetError("the connection was closed in the middle of a response")
        return came

    def _more(self) -> bytes:
        self._exchange.before_read(self.sock)
        came = self.sock.recv(_PIECE)
        self._exchange.after_read(len(came))
        self.answered = self.answered or bool(came)
        return came
