"""Requests that are made again, because they may go well the next time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

Asked = TypeVar("Asked")
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.2
"""Seconds before the second attempt; each further one waits twice as long."""


class AgainError(OSError):
    """What may go well the next time."""


def asked_again(ask: Callable[[], Asked]) -> Asked:
    """What is answered at last, after five attempts at most.

    Raises:
        AgainError: of the last attempt.
        OSError: of the first one that is none of these.
    """
    for attempt in range(1, _ATTEMPTS):
        try:
            return ask()
        except AgainError:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
    return ask()
