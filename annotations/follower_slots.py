"""Slots for followers of results: each holds a thread of the server."""

import threading
from collections import Counter


class FollowerSlots:
    """Limit followers, in all and per address (0: any number). Thread-safe."""

    def __init__(self, limit: int, per_address: int = 0) -> None:
        self.limit = limit
        self.per_address = per_address or limit
        self._taken: Counter[str] = Counter()
        self._changed = threading.Condition()

    def take(self, address: str) -> bool:
        """Take a slot, if one is free for this address."""
        with self._changed:
            if self._taken.total() >= self.limit or self._taken[address] >= self.per_address:
                return False
            self._taken[address] += 1
            return True

    def leave(self, address: str) -> None:
        with self._changed:
            self._taken[address] -= 1
            self._taken += Counter()  # forget who has none
            self._changed.notify_all()

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no slot is taken; return false on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._taken.total(), seconds)
