"""Put items that come out of order into the order of time, as long as they are not too late."""

import heapq
import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class ReorderBuffer(Generic[ItemT]):
    """Hold items back until no older one may come.

    Items of all streams share one order. Those of a stream that is behind the others by more than
    the lateness (milliseconds) get their own, until it has caught up.
    """

    def __init__(self, lateness: int) -> None:
        self.lateness = lateness
        self._waiting: list[tuple[int, int, ItemT]] = []
        self._behind: dict[Hashable, list[tuple[int, int, ItemT]]] = {}
        self._order = itertools.count()
        self._newest: int | None = None
        self._newest_of: dict[Hashable, int] = {}

    def add(self, stream: Hashable, at: int, item: ItemT) -> Iterator[tuple[int, ItemT]]:
        """Add an item of a stream; yield those that need not wait any longer."""
        newest = at if self._newest is None else max(self._newest, at)
        own = self._newest_of[stream] = max(self._newest_of.get(stream, at), at)
        if own < newest - self.lateness:
            waiting = self._behind.setdefault(stream, [])
            heapq.heappush(waiting, (at, next(self._order), item))
            return _until(waiting, own - self.lateness)
        self._newest = newest
        for each in (*self._behind.pop(stream, ()), (at, next(self._order), item)):
            heapq.heappush(self._waiting, each)
        return _until(self._waiting, newest - self.lateness)

    def until(self, at: int) -> Iterator[tuple[int, ItemT]]:
        """Yield those up to an instant, in the order of time; of equal times, as they came."""
        for waiting in self._behind.values():
            for each in waiting:
                heapq.heappush(self._waiting, each)
        self._behind.clear()
        return _until(self._waiting, at)

    def rest(self) -> Iterator[tuple[int, ItemT]]:
        """Yield all of them, likewise."""
        return iter(()) if self._newest is None else self.until(self._newest)


def _until(waiting: list[tuple[int, int, ItemT]], at: int) -> Iterator[tuple[int, ItemT]]:
    while waiting and waiting[0][0] <= at:
        time, _, item = heapq.heappop(waiting)
        yield time, item
