"""Who is served next: everybody who waits, by turns."""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


URGENT = -1
"""The queue that is always served first."""


class Turns(Generic[T]):
    """Queues that are served one after the other, an item at a time.

    What a query joins is read side by side so: its first solutions need a little of everything.
    """

    def __init__(self) -> None:
        self._queues: dict[int, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, queue: int, item: T) -> None:
        """Let an item wait in a queue."""
        self._queues.setdefault(queue, deque()).append(item)

    def take(self) -> T:
        """The first item of the queue whose turn it is; that one comes last then."""
        name = URGENT if URGENT in self._queues else next(iter(self._queues))
        queue = self._queues[name]
        del self._queues[name]
        item = queue.popleft()
        if queue:
            self._queues[name] = queue
        return item

    def clear(self) -> None:
        """Forget everything that waits."""
        self._queues.clear()
