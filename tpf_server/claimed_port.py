"""Claim the port that a server listens on.

Workers bind it with ``SO_REUSEPORT``, as a second server could; abstract Unix sockets of Linux mark
who has it.
"""

import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tpf_server.errors import ListenError

_ORPHAN_SECONDS: Final = 20.0
"""Workers of a server that was killed end within five; a busy machine may take longer."""
_LOOK_SECONDS: Final = 0.05
_NAMES: Final = Path("/proc/net/unix")
_marks: list[socket.socket] = []
"""What this process holds until it ends."""


def address_of(host: str) -> str:
    """Resolve the name of a host, or raise `ListenError`."""
    if not host:
        raise ListenError("cannot listen: host is empty")
    try:
        return host if ":" in host else socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:
        raise ListenError(f"cannot listen on {host}: {error}") from None


@contextmanager
def claimed_port(
    host: str, port: int, wait: Callable[[], object] = lambda: time.sleep(_LOOK_SECONDS)
) -> Iterator[int]:
    """Claim a port, or raise `ListenError`; wait for the workers of a server that was killed."""
    with ExitStack() as held:
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while True:
            try:
                free = _free_port(host, port)
                if sys.platform == "linux":
                    # Another server may claim the port before the workers of this one listen.
                    claim = held.enter_context(socket.socket(socket.AF_UNIX))
                    claim.bind(f"\0{_name(host, free)}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not _has_orphans(host, port):
                    raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from None
                if time.monotonic() > deadline:
                    raise ListenError(
                        f"cannot listen on {host}:{port}: workers of a server that was killed "
                        "do not end"
                    ) from None
            wait()
        yield free


def mark_worker(host: str, port: int) -> None:
    """Mark the port as a worker's until this process ends."""
    if sys.platform == "linux":
        mark = socket.socket(socket.AF_UNIX)
        mark.bind(f"\0{_name(host, port)}/{os.getpid()}")
        _marks.append(mark)


def _free_port(host: str, port: int) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # Connections that have just ended do not count, those who listen do.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        result: int = probe.getsockname()[1]
    return result


def _has_orphans(host: str, port: int) -> bool:
    try:
        names = {line.rpartition(" ")[2] for line in _NAMES.read_text().splitlines()}
    except OSError:
        return False
    own = f"@{_name(host, port)}"
    return own not in names and any(name.startswith(f"{own}/") for name in names)


def _name(host: str, port: int) -> str:
    return f"tpf-server/{host}/{port}"
