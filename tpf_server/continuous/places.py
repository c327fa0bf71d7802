"""Places for those who follow results: each holds a thread of the server."""

import threading


class Places:
    """So many may follow at the same time. Thread-safe.

    Args:
        limit: how many places there are.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._changed = threading.Condition()

    def take(self) -> bool:
        """Take a place, if one is free."""
        with self._changed:
            if self._taken >= self.limit:
                return False
            self._taken += 1
            return True

    def leave(self) -> None:
        """Give a place back."""
        with self._changed:
            self._taken -= 1
            self._changed.notify_all()

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait until nobody follows; whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._taken, seconds)
