"""Ends a service when its process is told to stop.

Who follows results keeps a request under way for ever, and a server that stops gracefully waits for
requests under way. The server has signal handlers of its own; what Python writes to the wakeup file
descriptor it writes whoever handles the signal.
"""

import atexit
import signal
import socket
import threading
import time
from typing import Final

from tpf_server.continuous.service import ContinuousService

_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})


_PATIENCE: Final = 5.0
_SETTLING: Final = 0.1


def close_on_signals(service: ContinuousService) -> None:
    """Close a service at SIGTERM or SIGINT, from a thread; called in the main thread."""
    atexit.register(_wait_for_followers, service)
    here, there = socket.socketpair()
    there.setblocking(False)
    signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        with here, there:
            while received := here.recv(64):
                if _STOPPING.intersection(received):
                    service.close()

    threading.Thread(target=wait, name="signals", daemon=True).start()


def _wait_for_followers(service: ContinuousService) -> None:
    """Let the threads of followers end: they must not wake up in an interpreter that is gone."""
    service.close()
    if service.slots.wait_until_empty(_PATIENCE):
        # What the server does with a thread after its last word is out of our sight.
        time.sleep(_SETTLING)
