"""Puts what comes out of order into the order of time, as long as it is not too late."""

import heapq
import itertools
from collections.abc import Iterator
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class ReorderBuffer(Generic[ItemT]):
    """Holds items back until no older one may come any more.

    Args:
        lateness: how much older than the newest one an item may be, in milliseconds.

    Attributes:
        lateness: see above.
    """

    def __init__(self, lateness: int) -> None:
        self.lateness = lateness
        self._waiting: list[tuple[int, int, ItemT]] = []
        self._order = itertools.count()
        self._newest: int | None = None

    def add(self, at: int, item: ItemT) -> Iterator[tuple[int, ItemT]]:
        """Take an item; gives those that thereby need not wait any longer."""
        heapq.heappush(self._waiting, (at, next(self._order), item))
        if self._newest is None or at > self._newest:
            self._newest = at
        return self.until(self._newest - self.lateness)

    def until(self, at: int) -> Iterator[tuple[int, ItemT]]:
        """Let go those up to an instant, in the order of time; of equal times, as they came."""
        while self._waiting and self._waiting[0][0] <= at:
            time, _, item = heapq.heappop(self._waiting)
            yield time, item

    def rest(self) -> Iterator[tuple[int, ItemT]]:
        """Let go all of them, likewise."""
        return iter(()) if self._newest is None else self.until(self._newest)
