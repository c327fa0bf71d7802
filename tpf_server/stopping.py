"""Ends what is followed when its process is told to stop.

Who follows keeps a request under way for ever, and a server that stops gracefully waits for
requests under way. The server has signal handlers of its own; what Python writes to the wakeup file
descriptor it writes whoever handles the signal.
"""

import atexit
import signal
import socket
import threading
import time
from typing import Final, Protocol

from annotations.follower_slots import FollowerSlots

_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})


_PATIENCE: Final = 5.0
_SETTLING: Final = 0.1


class Followed(Protocol):
    """Something that requests follow for as long as it goes on.

    Attributes:
        slots: of those that follow.
    """

    slots: FollowerSlots

    def close(self) -> None:
        """Let all who follow come to their end."""


def close_on_signals(*services: Followed) -> None:
    """Close services at SIGTERM or SIGINT, from a thread; called in the main thread, once."""
    for service in services:
        atexit.register(_wait_for_followers, service)
    here, there = socket.socketpair()
    there.setblocking(False)
    signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        with here, there:
            while received := here.recv(64):
                if _STOPPING.intersection(received):
                    for service in services:
                        service.close()

    threading.Thread(target=wait, name="signals", daemon=True).start()


def _wait_for_followers(service: Followed) -> None:
    """Let the threads of followers end: they must not wake up in an interpreter that is gone."""
    service.close()
    if service.slots.wait_until_empty(_PATIENCE):
        # What the server does with a thread after its last word is out of our sight.
        time.sleep(_SETTLING)
