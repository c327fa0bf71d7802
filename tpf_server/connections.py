"""The connections of a worker, seen from outside: how many there are, and which of them hold it up.

What reads HTTP closes connections that are idle or send no whole head of a request. It knows no
limit per address, and waits for a body for ever. So a thread looks at all connections once a second
through the system's own table of what is open: requests pay nothing for it.
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
    """Watches the connections of this process to a port.

    Args:
        port: where the server listens.
        most: how many an address may have; 0: any number.
        body_seconds: how long the body of a request may take to arrive, and what is sent to a
            follower to be taken.
        say: called with a line that the operator should read.
    """

    def __init__(
        self, port: int, most: int, body_seconds: float, say: Callable[[str], object]
    ) -> None:
        self._port = port
        self._most = most
        self._body_seconds = body_seconds
        self._say = say
        self._known: set[_Connection] = set()
        self._bodies: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._numbers = iter(range(2**62))
        self._warned = False

    @contextmanager
    def exchange_with(self, address: str) -> Iterator[None]:
        """While a body is read that comes from an address, or something is sent to it."""
        with self._lock:
            number = next(self._numbers)
            self._bodies[number] = address, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._bodies[number]

    def follow(self) -> None:
        """Look again and again, in a thread that ends with the process."""
        threading.Thread(target=self._follow, name="connections", daemon=True).start()

    def _follow(self) -> None:
        while os.path.isdir(_DESCRIPTORS):
            time.sleep(_LOOK_SECONDS)
            # To look takes a descriptor, and there may be none left just now.
            with suppress(OSError):
                self.look()

    def look(self) -> None:
        """Look once: close what is too many or too slow."""
        names = os.listdir(_DESCRIPTORS)
        self._warn(len(names))
        now = time.monotonic()
        with self._lock:
            late = [each for each in self._bodies.values() if now - each[1] > self._body_seconds]
        if not (self._most or late):
            return  # there may be thousands
        found = {each for name in names if (each := self._connection(int(name))) is not None}
        if self._most:
            self._close_excess(found)
        self._known = found
        for address, since in late:
            for each in found:
                # Nothing was sent to it since: it is not one that was answered meanwhile.
                if each.address == address and _silent_seconds(each) >= now - since - 1:
                    _end(each)

    def _connection(self, descriptor: int) -> _Connection | None:
        with suppress(OSError), _borrowed(descriptor) as found:
            if found.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            if found.getsockname()[1] == self._port:
                address, port = found.getpeername()[:2]
                return _Connection(descriptor, address.removeprefix("::ffff:"), port)
        return None

    def _close_excess(self, found: set[_Connection]) -> None:
        by_address: dict[str, list[_Connection]] = {}
        # Those that were there before stay.
        for each in sorted(found, key=lambda each: each not in self._known):
            by_address.setdefault(each.address, []).append(each)
        for address, connections in by_address.items():
            excess = connections[self._most :]
            for each in excess:
                _end(each)
            if excess:
                self._say(
                    f"{len(excess)} connections of {address} are closed: it has more than "
                    f"{self._most} (max_connections_per_address)"
                )

    def _warn(self, used: int) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        much = limit != resource.RLIM_INFINITY and used > _WARN_AT * limit
        if much != self._warned:
            self._warned = much
            again = "" if much else " again"
            self._say(f"{used} of {limit} file descriptors are in use{again}")


_DESCRIPTORS: Final = "/proc/self/fd"


def allow_many_descriptors() -> None:
    """Let this process, and those that it starts, have as many descriptors as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections() -> int:
    """How many connections a worker may hold: what is left of the descriptors that it may have.

    More wait until others end; whoever accepted them all would have none left for its files.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(max(limit - _OTHER_DESCRIPTORS, limit // 2), _MOST_CONNECTIONS)


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """The socket behind a descriptor, which stays as it is.

    No copy is made, because none may be closed: of a file that is locked, closing any descriptor
    gives up all locks of this process (POSIX, ``fcntl``). SQLite would lose its locks so, and
    others would remove the ``-wal`` file that it writes to.

    Raises:
        OSError: it is no socket.
    """
    found = socket.socket(fileno=descriptor)
    try:
        yield found
    finally:
        found.detach()


def _silent_seconds(connection: _Connection) -> float:
    with suppress(OSError), _borrowed(connection.descriptor) as found:
        if found.getpeername()[:2][1] == connection.port:
            info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_SENT + 4)
            (milliseconds,) = struct.unpack_from("I", info, _LAST_DATA_SENT)
            return float(milliseconds) / 1000
    return 0.0


def _end(connection: _Connection) -> None:
    # What reads HTTP owns the socket and closes it: it finds that nothing more comes.
    with suppress(OSError), _borrowed(connection.descriptor) as found:
        if found.getpeername()[:2][1] == connection.port:
            found.shutdown(socket.SHUT_RDWR)
