"""A timer heap: windows that expire, queries that are to be evaluated."""

import heapq
from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)

_SPARE: Final = 64


class DueInstants(Generic[ItemT]):
    """Items by the next instant at which each is due.

    The next one costs the logarithm of their number. A cancelled instant stays in the heap until it
    is first, or most of the heap are cancelled.
    """

    def __init__(self) -> None:
        self.heap: list[tuple[int, Any, ItemT]] = []
        self.next: dict[ItemT, int] = {}

    def plan(self, at: int, order: Any, item: ItemT) -> None:
        """Set the only instant of an item.

        `order` sorts items of the same instant, without ties.
        """
        self.next[item] = at
        heapq.heappush(self.heap, (at, order, item))
        if len(self.heap) > 2 * len(self.next) + _SPARE:
            self._tidy()

    def give_up(self, item: ItemT) -> None:
        """Cancel an item, if it is due."""
        if self.next.pop(item, None) is not None and len(self.heap) > 2 * len(self.next):
            self._tidy()

    def _tidy(self) -> None:
        self.heap[:] = [each for each in self.heap if self.next.get(each[2]) == each[0]]
        heapq.heapify(self.heap)

    def first(self, before: int) -> tuple[int, ItemT] | None:
        """Return the first item that is due before an instant."""
        heap, planned = self.heap, self.next
        while heap and heap[0][0] < before:
            at, _, item = heap[0]
            if planned.get(item) == at:
                return at, item
            heapq.heappop(heap)
        return None

    def drop(self) -> None:
        del self.next[heapq.heappop(self.heap)[2]]

    def put_off(self, at: int) -> None:
        """Move the item that `first` gave to another instant."""
        _, order, item = self.heap[0]
        self.next[item] = at
        heapq.heapreplace(self.heap, (at, order, item))

    def clear(self) -> None:
        self.heap.clear()
        self.next.clear()
