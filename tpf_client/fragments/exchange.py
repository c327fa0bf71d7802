"""What one request may take, and what asks: whichever way it goes.

The time limits of sockets are those between two bytes: a server that sends one byte per second, or
"100 Continue" again and again, could hold up a request for ever. Here a response has a deadline, a
number of bytes, and somebody who can end it.
"""

import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol, Self

MOST_HEAD: Final = 2**18
"""Bytes of the head of a response at most."""


class TooLongError(ValueError):
    """A response with more bytes than are wanted."""


class BadUrlError(ValueError):
    """A URL that nobody can ask."""


class Exchange:
    """What a request may take, with all its redirects; can be ended by another thread.

    Args:
        seconds: how long it may last.
        pause: how long nothing may come, in seconds.
        size: how many bytes may come, as they are sent.
        connect: seconds until a connection stands.
    """

    def __init__(self, seconds: float, pause: float, size: float, connect: float) -> None:
        self._deadline = monotonic() + seconds
        self._pause = pause
        self._left = size
        self._connect = connect
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.ended = False

    @property
    def over(self) -> bool:
        """Whether its time is up."""
        return monotonic() >= self._deadline

    @property
    def timeouts(self) -> tuple[float, float]:
        """Seconds until a connection stands, and between two bytes."""
        return self._connect, self._pause

    def attach(self, sock: socket.socket) -> None:
        """A response comes through this socket."""
        with self._lock:
            self._sockets.append(sock)
        if self.ended:
            self.end()

    def end(self) -> None:
        """Let it fail at once."""
        with self._lock:
            self.ended = True
            for sock in self._sockets:
                # Not that of TLS, which would take away from the other thread what it reads with.
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def before_read(self, sock: socket.socket) -> None:
        """Wait no longer than is left.

        Raises:
            TimeoutError: nothing is left.
            TooLongError: enough has come.
        """
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError("the response takes too long")
        if self._left <= 0:
            raise TooLongError("the response is too long")
        wait = min(self._pause, left)
        if sock.gettimeout() != wait:
            sock.settimeout(wait)

    def after_read(self, count: int) -> None:
        """Take note of what came."""
        self._left -= count


class OpenResponse(Protocol):
    """A response whose body is still to be read; lets go of its connection when it is left."""

    @property
    def status(self) -> int:
        """The status code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The fields, by name in whatever case."""

    def pieces(self, *, eager: bool = False) -> Iterator[bytes]:
        """The body, decompressed, in pieces of a few kB at most.

        Args:
            eager: whether each piece is wanted as soon as it came.

        Raises:
            OSError: it does not come.
            ValueError: it is not what it says that it is, or too long.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Asker(Protocol):
    """What sends requests. Thread-safe, as far as what it was made of is."""

    def ask(self, url: str, headers: Mapping[str, str], exchange: Exchange) -> OpenResponse:
        """The response to a GET request, as it begins to come; redirects are not followed.

        Raises:
            BadUrlError: the URL is none that can be asked.
            OSError: there is no response.
            ValueError: there is none of HTTP, or it is too long.
        """

    def close(self) -> None:
        """Let go of all connections that are its own."""


_CONNECTION: Final = re.compile(r"\b\w++\(host=[^()]{0,300}\): ")


def cause(error: BaseException) -> str:
    """What lies at the bottom of an error, in one line."""
    while True:
        inside = [getattr(error, "reason", None), *reversed(error.args)]
        deeper = next((each for each in inside if isinstance(each, BaseException)), None)
        if deeper is None:
            break
        error = deeper
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    # urllib3 puts the representation of its connection object in front.
    text = _CONNECTION.sub("", text.rpartition(">: ")[2] or text)
    return " ".join(text.split())[:300] or type(error).__name__
