"""Wait for what other threads and processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_PATIENCE = 180
"""Seconds; nobody waits for so long where all is well."""


def eventually(look: Callable[[], _T | None]) -> _T:
    """Look until there is something, or until it is true; return it."""
    end = time.monotonic() + _PATIENCE
    while not (result := look()):
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.02)
    return result
