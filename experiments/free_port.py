"""Ports for servers that are about to start."""

import os
import socket
from contextlib import suppress
from itertools import count

_FIRST, _PORTS = 20_000, 12_000
_numbers = count(7417 * os.getpid())


def free_port() -> int:
    """Return an unused loopback port, far below those of the system (32,768 up, ip(7))."""
    for _ in range(_PORTS):
        port = _FIRST + next(_numbers) % _PORTS
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("every port is taken")
