"""Counts the bytes that a process receives from its peers, headers included."""

import socket
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakSet


class WireBytes:
    """Counts what all sockets that are opened from now on receive.

    Bodies are what libraries tell of, decompressed as a rule; what a network carries is more or
    less than that. Sockets of Python read by `recv` and `recv_into`, which are replaced.
    """

    def __init__(self) -> None:
        self.received = 0
        self._lock = threading.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def install(self) -> None:
        """Count from now on, in this process."""
        counts = self

        class CountingSocket(socket.socket):
            def connect(self, address: Any) -> None:
                super().connect(address)
                counts.opened(self)

            def recv(self, *arguments: Any, **named: Any) -> bytes:
                content = super().recv(*arguments, **named)
                counts.add(len(content))
                return content

            def recv_into(self, *arguments: Any, **named: Any) -> int:
                size = super().recv_into(*arguments, **named)
                counts.add(size)
                return size

        socket.socket = CountingSocket  # type: ignore[misc]

    def add(self, size: int) -> None:
        """So many bytes came."""
        with self._lock:
            self.received += size

    def opened(self, connected: socket.socket) -> None:
        """A connection was made."""
        with self._lock:
            self._sockets.add(connected)

    def shut(self) -> None:
        """End all connections; whoever reads from one meets its end."""
        with self._lock:
            for each in tuple(self._sockets):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
