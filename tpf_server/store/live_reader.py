"""Answers over the index: counts, pages and the next instants of change."""

from collections.abc import Iterator, Sequence
from itertools import islice

from annotations.labels import Fact
from annotations.methods.base import FactPattern
from tpf_server.store.live_index import FactIndex, NumberPattern
from tpf_server.store.live_log import FOREVER, Record
from tpf_server.store.live_rows import ANY
from tpf_server.store.protocols import Snapshot


class Reader:
    """Answers patterns over an index. Not thread-safe: the store holds a lock around it.

    Args:
        index: the index, which changes through `apply` alone.
    """

    def __init__(self, index: FactIndex) -> None:
        self._index = index

    def apply(self, record: Record) -> None:
        """Follow the log by one record."""
        self._index.apply(record)

    def count(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """How many matching facts are valid."""
        return sum(1 for _ in self._rows(pattern, snapshot))

    def facts(
        self, pattern: FactPattern, snapshot: Snapshot, offset: int, limit: int
    ) -> Sequence[Fact]:
        """A page of the matching facts that are valid, in the order of their slots."""
        rows = self._index.rows
        found = sorted(self._rows(pattern, snapshot), key=rows.slot.__getitem__)
        return [self._index.fact(row) for row in islice(found, offset, offset + limit)]

    def earliest_end(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """The earliest end of the matching facts that are valid, or FOREVER."""
        ends = map(self._index.rows.end.__getitem__, self._rows(pattern, snapshot))
        return min(ends, default=FOREVER)

    def next_change(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """The earliest end of valid matches or start of matches that come, or FOREVER."""
        best = self.earliest_end(pattern, snapshot)
        rows = self._index.rows
        instant, sequence = snapshot
        if pattern.identity is not None:
            for row in self._identified(pattern):
                start = rows.start[row]
                if rows.added[row] <= sequence < rows.removed[row] and start > instant:
                    best = min(best, start)
            return best
        numbers = self._index.numbers(pattern)
        if numbers is not None:
            for slot in self._slots(numbers):
                best = min(best, rows.next_start(slot, instant, sequence, numbers.object))
        return best

    def _slots(self, numbers: NumberPattern) -> Iterator[int]:
        index = self._index
        for slot in index.candidates(numbers):
            if index.matches_slot(slot, numbers):
                yield slot

    def _rows(self, pattern: FactPattern, snapshot: Snapshot) -> Iterator[int]:
        """The rows that match and are valid."""
        rows = self._index.rows
        instant, sequence = snapshot
        if pattern.identity is not None:
            for row in self._identified(pattern):
                if rows.row_at(rows.slot[row], instant, sequence) == row:
                    yield row
            return
        numbers = self._index.numbers(pattern)
        if numbers is None:
            return
        for slot in self._slots(numbers):
            row = rows.row_at(slot, instant, sequence)
            if row >= 0 and numbers.object in (ANY, rows.object[row]):
                yield row

    def _identified(self, pattern: FactPattern) -> Iterator[int]:
        """The rows whose fact has the identity and matches the rest of the pattern."""
        assert pattern.identity is not None
        rows = self._index.rows
        numbers = self._index.numbers(pattern)
        if numbers is None:
            return
        for slot, found in self._index.slots_of_identity(pattern.identity).items():
            if self._index.matches_slot(slot, numbers):
                yield from (row for row in found if numbers.object in (ANY, rows.object[row]))
