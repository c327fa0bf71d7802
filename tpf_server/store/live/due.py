"""The versions that wait until retention lets go of them.

Those that were replaced wait in the order in which that happened. Those that stand wait in heaps
by the ends of their labels, where an entry is left behind when its version is replaced. Once those
could be half of a heap, all entries are looked at again, a few with each batch, so that no batch
takes long: the old heap loses one leaf after the other, and is a heap all the time.
"""

import heapq
from collections import deque
from collections.abc import Iterable

from tpf_server.store.live.log import FOREVER, NO_START
from tpf_server.store.live.rows import EXPIRING, INTERVALS, Rows

_ROW = 0xFFFFFFFF
_SLACK = 1024


class Due:
    """Rows that retention will ask for. An entry is an instant or a batch, then a row.

    Args:
        rows: the versions.
        keep_history: whether intervals are never retired, so that their ends need not be known.
    """

    def __init__(self, rows: Rows, keep_history: bool) -> None:
        self._rows = rows
        self._keep_history = keep_history
        self._superseded: deque[int] = deque()
        self._ends = _Ends(rows), _Ends(rows)

    def __len__(self) -> int:
        return len(self._superseded) + sum(map(len, self._ends))

    def add(self, row: int) -> None:
        """A row that stands, or was removed."""
        rows = self._rows
        if rows.removed[row] != FOREVER:
            self._superseded.append(rows.removed[row] << 32 | row)
        elif rows.start[row] == NO_START or not self._keep_history:
            self._ends[rows.kind_of[rows.slot[row]]].add(row)

    def add_again(self, rows: Iterable[int]) -> None:
        """Rows that were taken and not retired."""
        for row in rows:
            if self._rows.removed[row] != FOREVER:
                self._superseded.appendleft(self._rows.removed[row] << 32 | row)
            else:
                self.add(row)

    def take(self, sequence: int, expired: int, history: int, limit: int) -> list[int]:
        """Rows that no snapshot can show any more; whoever takes them retires them.

        Args:
            sequence: the oldest sequence number that stays readable.
            expired: expiring versions that ended until this instant may go.
            history: intervals that ended until this instant may go.
            limit: how many at most.
        """
        found: list[int] = []
        while len(found) < limit and self.superseded_until(sequence):
            entry = self._superseded.popleft()
            if self._is_superseded(entry):
                found.append(entry & _ROW)
        found += self._ends[EXPIRING].take(expired, limit - len(found))
        found += self._ends[INTERVALS].take(history, limit - len(found))
        return found

    def superseded_until(self, sequence: int) -> bool:
        """Whether rows wait that were removed until this batch."""
        return bool(self._superseded) and self._superseded[0] >> 32 <= sequence

    def ended_until(self, expired: int, history: int) -> bool:
        """Whether an expiring version, or an interval, might have ended until these instants."""
        return self._ends[EXPIRING].is_due(expired) or self._ends[INTERVALS].is_due(history)

    def tidy(self, work: int) -> None:
        """Let go of what needs not wait any more: it was replaced, or retired by another process.

        Args:
            work: how many ends may be looked at.
        """
        while self._superseded and not self._is_superseded(self._superseded[0]):
            self._superseded.popleft()
        standing = self._rows.live_rows - len(self._superseded)
        for ends in self._ends:
            ends.tidy(standing, work)

    def _is_superseded(self, entry: int) -> bool:
        row = entry & _ROW
        return self._rows.row_in_use(row) and self._rows.removed[row] == entry >> 32


class _Ends:
    """The ends of the versions that stand, and of some that do not any more."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._new: list[int] = []
        self._old: list[int] = []
        """What is still to be looked at again."""

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def add(self, row: int) -> None:
        heapq.heappush(self._new, self._rows.end[row] << 32 | row)

    def is_due(self, instant: int) -> bool:
        return any(heap and heap[0] >> 32 <= instant for heap in (self._new, self._old))

    def take(self, instant: int, limit: int) -> list[int]:
        found: list[int] = []
        for heap in (self._new, self._old):
            while heap and len(found) < limit and heap[0] >> 32 <= instant:
                entry = heapq.heappop(heap)
                if self._stands(entry):
                    found.append(entry & _ROW)
        return found

    def tidy(self, standing: int, work: int) -> None:
        if not self._old and len(self._new) > 2 * standing + _SLACK:
            self._old, self._new = self._new, self._old
        for _ in range(min(work, len(self._old))):
            entry = self._old.pop()
            if self._stands(entry):
                heapq.heappush(self._new, entry)

    def _stands(self, entry: int) -> bool:
        rows, row = self._rows, entry & _ROW
        return (
            rows.row_in_use(row) and rows.end[row] == entry >> 32 and rows.removed[row] == FOREVER
        )
