"""Ports for servers that are started in a moment."""

import os
import socket
from contextlib import suppress
from itertools import count

_FIRST, _PORTS = 20_000, 12_000
_numbers = count(7417 * os.getpid())


def free_port() -> int:
    """A port of the loopback interface that nobody listens on, and soon nobody else will.

    The system gives the ports from 32,768 on to whoever asks for any (ip(7)); processes that call
    this begin far apart in those below.

    Raises:
        OSError: there is none.
    """
    for _ in range(_PORTS):
        port = _FIRST + next(_numbers) % _PORTS
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("every port is taken")
