"""A timer heap: windows that something leaves, queries that are to be evaluated."""

import heapq
from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)

_SPARE: Final = 64


class DueInstants(Generic[ItemT]):
    """Items, each with the instant at which it is due next, in the order of instants.

    Finding the next one costs the logarithm of how many there are. An instant that was given up
    stays in the heap until it would be the next one, or most of the heap are such.

    Attributes:
        heap: instants, each with what puts equal ones in order, and whose it is; also such as were
            given up.
        next: of each item the instant that counts.
    """

    def __init__(self) -> None:
        self.heap: list[tuple[int, Any, ItemT]] = []
        self.next: dict[ItemT, int] = {}

    def plan(self, at: int, order: Any, item: ItemT) -> None:
        """An item is due at an instant, and at no other.

        Args:
            at: the instant.
            order: where it stands among those of the same instant; no two have the same.
            item: it.
        """
        self.next[item] = at
        heapq.heappush(self.heap, (at, order, item))
        if len(self.heap) > 2 * len(self.next) + _SPARE:
            self._tidy()

    def give_up(self, item: ItemT) -> None:
        """It is due no more; nothing happens where it was not."""
        if self.next.pop(item, None) is not None and len(self.heap) > 2 * len(self.next):
            self._tidy()

    def _tidy(self) -> None:
        self.heap[:] = [each for each in self.heap if self.next.get(each[2]) == each[0]]
        heapq.heapify(self.heap)

    def first(self, before: int) -> tuple[int, ItemT] | None:
        """The first of those that are due before an instant."""
        heap, planned = self.heap, self.next
        while heap and heap[0][0] < before:
            at, _, item = heap[0]
            if planned.get(item) == at:
                return at, item
            heapq.heappop(heap)
        return None

    def drop(self) -> None:
        """Drop the item that `first` gave."""
        del self.next[heapq.heappop(self.heap)[2]]

    def put_off(self, at: int) -> None:
        """Move the item that `first` gave to another instant."""
        _, order, item = self.heap[0]
        self.next[item] = at
        heapq.heapreplace(self.heap, (at, order, item))

    def clear(self) -> None:
        """Nothing is due."""
        self.heap.clear()
        self.next.clear()
