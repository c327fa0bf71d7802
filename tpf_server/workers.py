"""Share constants and the supervision of workers, without loading any of the workers' code."""

import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

# When workers have ended, and those that die soon after they were replaced.

_SOON_SECONDS: Final = 5.5
_LONGEST_START_SECONDS: Final = 120.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
_STEP_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 0.001


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


def join_workers_surely(server: Any) -> None:
    """Let a server of granian wait for its workers by `join_surely`.

    It could else signal the number of a worker that has ended, which may be another process's.
    """
    spawn = server._spawn_worker

    def spawned(**options: Any) -> Any:
        worker = spawn(**options)
        worker.join = partial(join_surely, worker.inner)
        return worker

    server._spawn_worker = spawned


WORKER_VARIABLE: Final = "TPF_WORKER_CONFIGURATION"
"""Environment variable that names the file of settings that `tpf-server` hands to its workers. They
heed it when they start, and whenever it is replaced by another one."""

ADDRESS_VARIABLE: Final = "TPF_WORKER_ADDRESS"
"""Environment variable with host and port that the workers listen on, and a slash between them."""

MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the directory where the workers add up their counts."""

MOST_AT_ONCE: Final = 3
"""How many bodies a worker receives at the same time. A client that is slow, or that vanished
without a word, holds a thread until its connection ends; so others must have threads left."""

_KEPT_BYTES = str(4 << 20)

MEMORY: Final = {
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_TRIM_THRESHOLD_": _KEPT_BYTES,
    "MALLOC_MMAP_THRESHOLD_": _KEPT_BYTES,
}
"""Environment of the workers, unless set.

One heap for all threads is a tenth less memory: threads that share one interpreter lock hardly ever
allocate at the same time. What lies free at its end is kept up to 4 MiB: given back after each
large page, it costs as much as the page when the next one takes it again.
"""

THREADS: Final = MOST_AT_ONCE + 1
"""Threads of a worker: one at least is left for readers. They share one interpreter lock, so more
of them would only hand it over more often."""
