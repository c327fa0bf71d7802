"""Wait for what other threads and processes do."""

import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
_PATIENCE = 240
"""Seconds; nobody waits for so long where all is well."""


def eventually(look: Callable[[], _T | None], worker: "subprocess.Popen[Any] | None" = None) -> _T:
    """Look until there is something, or until it is true; return it. `worker` must not end."""
    end = time.monotonic() + _PATIENCE
    while not (result := look()):
        assert worker is None or worker.poll() is None, "the process has ended"
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.02)
    return result


def listens(port: int) -> bool:
    """True where somebody listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except OSError:
        return False
    return True
