"""Count the functions that some work calls, for tests of work."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def counted_calls(work: Callable[[], object]) -> int:
    """Count the functions that are called, including builtins."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    # Somebody may have asked to be called by the garbage collector.
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls
