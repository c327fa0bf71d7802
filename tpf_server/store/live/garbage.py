"""Keeps a large index out of the sight of the cyclic garbage collector.

A full collection looks at every element of every list and dictionary that might be part of a
cycle: a quarter of a second for a million facts, in the midst of some request, and again whenever
the number of objects has grown by a quarter. Nothing in an index is ever part of a cycle.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 50_000


class Unwatched:
    """Takes an index out of sight as it grows: each time it has doubled.

    ``gc.freeze`` takes all objects of the process; those that die are freed as ever, unless they
    are part of a cycle by then. Young cycles are collected first, so that hardly any are kept.
    """

    def __init__(self) -> None:
        self._next = _MANY

    def grown(self, size: int) -> None:
        """The index, or what was derived from it, has this many elements now."""
        if size >= self._next:
            self._next = 2 * size
            gc.collect(1)
            gc.freeze()


@contextmanager
def no_garbage() -> Iterator[None]:
    """Within, nothing is collected: a million new objects that all stay are looked at in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
