"""Workers that die soon after they were replaced."""

import time
from collections.abc import Callable
from typing import Final

_SOON_SECONDS: Final = 5.5
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
_STEP_SECONDS: Final = 0.2


class Deaths(dict[int, float]):
    """When each worker was replaced last, for granian, which ends where one dies again soon.

    That is right while no worker has ever answered: the next one would not either. Later it would
    let one bad request end those that do well. So then the next one is waited for instead, longer
    each time.

    Args:
        is_ready: whether a worker has answered.
        is_stopping: whether the server is about to end.
        sleep: waits for so many seconds.
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
        """A worker was replaced."""
        self._replaced[worker] = at
        super().__setitem__(worker, at)

    def get(self, worker: int, default: float | None = None) -> float | None:  # type: ignore[override]
        """When a worker that has just died was replaced, as far as that should end the server."""
        if not self._is_ready():
            return super().get(worker, default)
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
