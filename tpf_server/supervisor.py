"""Supervise the workers of a server, with granian."""

import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from granian.server.mp import MPServer

_STEP_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 0.001


class SignalFlag(threading.Event):
    """An event that signal handlers may set: without locks, which could be held just then.

    A waiting thread looks five times a second, so that no signal is missed.
    """

    _raised = False

    def is_set(self) -> bool:
        return self._raised

    def set(self) -> None:
        self._raised = True

    def clear(self) -> None:
        self._raised = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is raised; return False on timeout."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._raised and (until is None or time.monotonic() < until):
            time.sleep(_STEP_SECONDS)
        return self._raised


class _Wakeup(SignalFlag):
    """Wake the loop that supervises the workers, which clears it after it has looked why."""

    def __init__(self, is_needed: Callable[[], bool]) -> None:
        super().__init__()
        self._is_needed = is_needed

    def clear(self) -> None:
        super().clear()
        if self._is_needed():
            self.set()


def join_surely(process: BaseProcess, timeout: float | None = None) -> None:
    """Wait until a process has ended and is known to have.

    Where another thread waits for it, `Process.join` may return while it still counts as alive.
    """
    process.join(timeout)
    while wait([process.sentinel], 0) and process.is_alive():
        time.sleep(_LOOK_SECONDS)


class _JoinedWorker:
    """A worker of granian that is joined by `join_surely`.

    The server could else signal the number of a worker that has ended, which may be another
    process's.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    def join(self, timeout: float | None = None) -> None:
        join_surely(self._worker.inner, timeout)


class _JoinedWorkers(list[Any]):
    """The workers of a server, in the list that it keeps."""

    def append(self, worker: Any) -> None:
        super().append(_JoinedWorker(worker))

    def insert(self, position: Any, worker: Any) -> None:
        super().insert(position, _JoinedWorker(worker))


class Supervisor(MPServer):
    """A server of granian that waits for its workers; a reload replaces none.

    `reloads` is set where the settings are to be read again.
    """

    def __init__(self, reloads: SignalFlag, **options: Any) -> None:
        super().__init__("tpf_server.app:factory", factory=True, **options)
        self._reloads = reloads
        self.wrks = _JoinedWorkers()
        self.main_loop_interrupt = _Wakeup(
            lambda: bool(self.interrupt_signal or self.interrupt_children)
        )

    def signal_handler_reload(self, *_: object, **__: object) -> None:
        """Read the settings again; connections would be lost if workers were replaced."""
        self._reloads.set()

    def replace_failed_workers(self) -> None:
        """Replace workers that fail, from now on; at the start, a new one would fail again."""
        self.respawn_failed_workers = True
