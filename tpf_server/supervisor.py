"""Supervise the workers of a server, with granian."""

import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from granian.server.mp import MPServer

# When workers have ended, and those that die soon after they were replaced.

_SOON_SECONDS: Final = 5.5
_LONGEST_START_SECONDS: Final = 120.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
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
    """Wake the loop that supervises the workers, which clears it after it has looked why.

    A signal to end or the death of a worker since that look keeps it raised.
    """

    def __init__(self, is_needed: Callable[[], bool]) -> None:
        super().__init__()
        self._is_needed = is_needed

    def clear(self) -> None:
        super().clear()
        if self._is_needed():
            self.set()


class RespawnBackoff(dict[int, float]):
    """When each worker was replaced last, for granian, which ends where one dies again soon.

    That is right while no worker has ever answered. Later one bad request would end those that do
    well, so the next one is delayed instead, longer each time.
    """

    def __init__(
        self,
        is_ready: Callable[[], bool],
        is_stopping: Callable[[], bool],
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__()
        self._is_ready = is_ready
        self._is_stopping = is_stopping
        self._sleep = sleep
        self._replaced: dict[int, float] = {}
        self._pauses: dict[int, float] = {}

    def __setitem__(self, worker: int, at: float) -> None:
        self._replaced[worker] = at
        super().__setitem__(worker, at)

    def get(self, worker: int, default: float | None = None) -> float | None:  # type: ignore[override]
        """Return when a dead worker was replaced, if that should end the server."""
        if not self._is_ready():
            # However long its start took: one that dies later has done well.
            since = time.monotonic() - self._replaced.get(worker, -_LONGEST_START_SECONDS)
            return time.monotonic() if since < _LONGEST_START_SECONDS else default
        pause = 0.0
        if time.monotonic() - self._replaced.get(worker, -_SOON_SECONDS) < _SOON_SECONDS:
            pause = min(
                2 * self._pauses.get(worker, _FIRST_PAUSE_SECONDS / 2), _LONGEST_PAUSE_SECONDS
            )
            self._pauses[worker] = pause
        else:
            self._pauses.pop(worker, None)
        while pause > 0 and not self._is_stopping():
            self._sleep(min(pause, _STEP_SECONDS))
            pause -= _STEP_SECONDS
        return default


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
    """A server of granian that takes up no settings by replacing workers, and waits for them.

    Args:
        ready: set once a worker has answered.
        reloads: set where the settings are to be read again.
        options: of granian.
    """

    def __init__(self, ready: threading.Event, reloads: SignalFlag, **options: Any) -> None:
        super().__init__("tpf_server.app:factory", factory=True, **options)
        self._reloads = reloads
        self.wrks = _JoinedWorkers()
        self.main_loop_interrupt = _Wakeup(
            lambda: bool(self.interrupt_signal or self.interrupt_children)
        )
        self.respawned_wrks = RespawnBackoff(ready.is_set, lambda: bool(self.interrupt_signal))

    def signal_handler_reload(self, *_: object, **__: object) -> None:
        """Read the settings again; connections would be lost if workers were replaced."""
        self._reloads.set()
