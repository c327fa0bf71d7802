"""How much was published lately, minute by minute, as the log tells it."""

from collections import deque
from typing import Final

from tpf_server.store.live.log import Record

MINUTES: Final = 60
"""For how long it is told."""
_MINUTE: Final = 60_000_000
"""In microseconds."""


class UpdateCounts:
    """Counts of the facts that came, changed or went."""

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int]] = deque()

    def note(self, record: Record) -> None:
        """Count a batch."""
        changed = max(len(record.added), len(record.removed))
        if not changed:
            return
        minute = record.published // _MINUTE
        if self._counts and self._counts[-1][0] >= minute:
            # A clock that was set back: what it says comes to the last minute that was told.
            minute, before = self._counts.pop()
            changed += before
        self._counts.append((minute, changed))
        while self._counts[0][0] <= minute - MINUTES:
            self._counts.popleft()

    def until(self, now: int) -> list[int]:
        """How many in each of the last minutes, the present one last.

        Args:
            now: the present, in microseconds.
        """
        found = [0] * MINUTES
        last = now // _MINUTE
        for minute, count in self._counts:
            place = MINUTES - 1 - (last - minute)
            if 0 <= place < MINUTES:
                found[place] = count
        return found
