"""Watch the connections of a worker from outside, and close those that hold it up.

The HTTP server waits for a body for ever. A thread looks once a second.
"""

import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

_LOOK_SECONDS: Final = 1.0
_WARN_AT: Final = 0.8
_MOST_CONNECTIONS: Final = 2**20
_OTHER_DESCRIPTORS: Final = 512
"""What files, stores and pipes may take of a worker's descriptors."""
_LAST_DATA_SENT: Final = 44
"""Where the kernel's ``struct tcp_info`` holds the milliseconds since something was last sent."""


class _Connection(NamedTuple):
    descriptor: int
    address: str
    port: int


class Connections:
    """Watch the connections of this process to a port.

    `body_seconds` is how long a request body, or what is sent to a follower, may take.
    """

    def __init__(self, port: int, body_seconds: float, say: Callable[[str], object]) -> None:
        self._port = port
        self._body_seconds = body_seconds
        self._say = say
        self._bodies: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._numbers = iter(range(2**62))
        self._warned = False

    @contextmanager
    def exchange_with(self, address: str) -> Iterator[None]:
        """Mark that a body comes from an address, or goes to it."""
        with self._lock:
            number = next(self._numbers)
            self._bodies[number] = address, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._bodies[number]

    def follow(self) -> None:
        threading.Thread(target=self._follow, name="connections", daemon=True).start()

    def _follow(self) -> None:
        while os.path.isdir(_DESCRIPTORS):
            time.sleep(_LOOK_SECONDS)
            # To look takes a descriptor, and there may be none left just now.
            with suppress(OSError):
                self.look()

    def look(self) -> None:
        """Close connections on which a body takes too long."""
        names = os.listdir(_DESCRIPTORS)
        self._warn(len(names))
        now = time.monotonic()
        with self._lock:
            late = [each for each in self._bodies.values() if now - each[1] > self._body_seconds]
        if not late:
            return  # there may be thousands
        connections = {each for name in names if (each := self._connection(int(name))) is not None}
        for address, since in late:
            for each in connections:
                # Nothing was sent to it since: it is not one that was answered meanwhile.
                if each.address == address and _silent_seconds(each) >= now - since - 1:
                    _end(each)

    def _connection(self, descriptor: int) -> _Connection | None:
        with suppress(OSError), _borrowed(descriptor) as connected:
            if connected.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            if connected.getsockname()[1] == self._port:
                address, port = connected.getpeername()[:2]
                return _Connection(descriptor, address.removeprefix("::ffff:"), port)
        return None

    def _warn(self, used: int) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        much = limit != resource.RLIM_INFINITY and used > _WARN_AT * limit
        if much != self._warned:
            self._warned = much
            again = "" if much else " again"
            self._say(f"{used} of {limit} file descriptors are in use{again}")


_DESCRIPTORS: Final = "/proc/self/fd"


def allow_many_descriptors() -> None:
    """Raise the limit of descriptors, also for child processes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections() -> int:
    """Return how many connections leave descriptors for a worker's files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(max(limit - _OTHER_DESCRIPTORS, limit // 2), _MOST_CONNECTIONS)


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Return the socket of a descriptor, or raise `OSError`, without a copy.

    Closing a copy of a locked file's descriptor would give up SQLite's locks (POSIX, ``fcntl``).
    """
    borrowed = socket.socket(fileno=descriptor)
    try:
        yield borrowed
    finally:
        borrowed.detach()


def _silent_seconds(connection: _Connection) -> float:
    with suppress(OSError), _borrowed(connection.descriptor) as borrowed:
        if borrowed.getpeername()[:2][1] == connection.port:
            info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_SENT + 4)
            (milliseconds,) = struct.unpack_from("I", info, _LAST_DATA_SENT)
            return float(milliseconds) / 1000
    return 0.0


def _end(connection: _Connection) -> None:
    # What reads HTTP owns the socket and closes it: it finds that nothing more comes.
    with suppress(OSError), _borrowed(connection.descriptor) as borrowed:
        if borrowed.getpeername()[:2][1] == connection.port:
            borrowed.shutdown(socket.SHUT_RDWR)
