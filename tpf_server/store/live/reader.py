"""Answers over the index: counts, pages and the next instants of change.

Three ways, by what is cheapest: few slots are looked at one by one; many have a view, which answers
for the present in the time of a page; any other instant or state of many slots is computed from the
view's timeline and kept, because whoever asks for one page of it asks for the next.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from annotations.instants import to_micros
from annotations.labels import Fact
from annotations.methods.base import FactPattern
from tpf_server.store.live.index import FactIndex, NumberPattern
from tpf_server.store.live.log import FOREVER, Floor, Record
from tpf_server.store.live.pattern_view import PatternView
from tpf_server.store.live.pattern_views import PatternViews
from tpf_server.store.live.rows import ANY, Array
from tpf_server.store.live.timeline import with_label
from tpf_server.store.protocols import Snapshot

_FEW = 64
_LONG = 1024
_KEPT = 4_000_000


class RowsFound(NamedTuple):
    """The rows of a snapshot, and what retention had let go of when they were found."""

    rows: Array
    floor: Floor


class Labelled(NamedTuple):
    """The matches whose label has a given start or end."""

    valid: Array
    """Rows, in the order of their slots."""
    next_start: int
    """When the next of those that come starts, or FOREVER."""


class Reader:
    """Answers patterns over an index. Not thread-safe: the store holds a lock around it.

    Args:
        index: the index, which changes through `apply` alone.
    """

    def __init__(self, index: FactIndex) -> None:
        self._index = index
        self._views = PatternViews(index)
        self._answers: OrderedDict[tuple[NumberPattern, Snapshot], RowsFound] = OrderedDict()
        self._kept = 0
        self.ways: Counter[str] = Counter()
        """How often each way was taken: for tests."""

    def apply(self, record: Record) -> None:
        """Follow the log by one record."""
        self._index.apply(record, self._views.touch)
        self._views.refresh()

    def count(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """How many matching facts are valid."""
        if _has_instants(pattern):
            return len(self._labelled(pattern, snapshot).valid)
        numbers = self._many(pattern)
        if numbers is None:
            return sum(1 for _ in self._rows(pattern, snapshot))
        view, touched = self._view(numbers, snapshot)
        if touched is None:
            return len(self._answer(numbers, snapshot))
        return view.count(snapshot, touched)

    def facts(
        self, pattern: FactPattern, snapshot: Snapshot, offset: int, limit: int
    ) -> Sequence[Fact]:
        """A page of the matching facts that are valid, in the order of their slots."""
        rows: Sequence[int]
        if _has_instants(pattern):
            rows = self._labelled(pattern, snapshot).valid[offset : offset + limit].tolist()
            return self._index.facts(rows)
        numbers = self._many(pattern)
        if numbers is None:
            ordered = sorted(self._rows(pattern, snapshot), key=self._index.rows.slot.__getitem__)
            rows = ordered[offset : offset + limit]
        else:
            view, touched = self._view(numbers, snapshot)
            if touched is None:
                rows = self._answer(numbers, snapshot)[offset : offset + limit].tolist()
            else:
                rows = view.page(snapshot, touched, offset, limit)
        return self._index.facts(rows)

    def earliest_end(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """The earliest end of the matching facts that are valid, or FOREVER."""
        if _has_instants(pattern):
            return self._end_of(self._labelled(pattern, snapshot).valid)
        numbers = self._many(pattern)
        if numbers is None:
            ends = map(self._index.rows.end.__getitem__, self._rows(pattern, snapshot))
            return min(ends, default=FOREVER)
        view, touched = self._view(numbers, snapshot)
        if touched is None:
            return self._end_of(self._answer(numbers, snapshot))
        return view.earliest_end(snapshot, touched)

    def next_change(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """The earliest end of valid matches or start of matches that come, or FOREVER."""
        if _has_instants(pattern):
            labelled = self._labelled(pattern, snapshot)
            return min(self._end_of(labelled.valid), labelled.next_start)
        numbers = self._many(pattern)
        if numbers is None:
            return min(self.earliest_end(pattern, snapshot), *self._starts(pattern, snapshot))
        view, touched = self._view(numbers, snapshot)
        if touched is None:
            end = self._end_of(self._answer(numbers, snapshot))
            return min(end, self._views.timeline(view).next_start(*snapshot))
        return view.next_change(snapshot, touched)

    # Many slots

    def _many(self, pattern: FactPattern) -> NumberPattern | None:
        """The pattern in numbers where it has so many candidates that a view pays."""
        if pattern.identity is not None or pattern.repeats:
            return None
        numbers = self._index.numbers(pattern)
        if numbers is None:
            return None
        candidates = self._index.candidates(numbers)
        if len(candidates) > _FEW:
            return numbers
        # In a long history the versions with one object lie far apart: a timeline has them alone.
        rows = self._index.rows
        if numbers.object != ANY and any(len(rows.rows(slot)) > _LONG for slot in candidates):
            return numbers
        return None

    def _view(
        self, numbers: NumberPattern, snapshot: Snapshot
    ) -> tuple[PatternView, set[int] | None]:
        """The view of a pattern, and the slots to look at one by one; ``None``: too far away."""
        view = self._views.get(numbers, snapshot)
        touched = view.behind(snapshot)
        if touched is None:
            self._views.missed(view, snapshot)
        else:
            self.ways["view"] += 1
        return view, touched

    def _answer(self, numbers: NumberPattern, snapshot: Snapshot) -> Array:
        """The rows of a snapshot that the view is too far away to answer, in order."""
        floor = self._index.floor
        known = self._answers.get((numbers, snapshot))
        # Rows that were valid at instants before the floor may be retired, and used for others.
        if known is not None and (
            known.floor == floor or snapshot.instant >= max(floor.expired, floor.history)
        ):
            self._answers.move_to_end((numbers, snapshot))
            self.ways["kept"] += 1
            return known.rows
        self.ways["timeline"] += 1
        rows = self._views.timeline(self._views.get(numbers, snapshot)).valid(*snapshot)
        self._answers[numbers, snapshot] = RowsFound(rows, floor)
        self._kept += len(rows) - (0 if known is None else len(known.rows))
        while self._kept > _KEPT and len(self._answers) > 1:
            self._kept -= len(self._answers.popitem(last=False)[1].rows)
        return rows

    def _end_of(self, rows: Array) -> int:
        return int(np.min(self._index.rows.numpy("end")[rows], initial=FOREVER))

    # Labels with a given start or end

    def _labelled(self, pattern: FactPattern, snapshot: Snapshot) -> Labelled:
        """The matches of a pattern that says when the label starts or ends."""
        self.ways["labelled"] += 1
        rows, (instant, sequence) = self._index.rows, snapshot
        start = None if pattern.start is None else to_micros(pattern.start)
        end = None if pattern.end is None else to_micros(pattern.end)
        numbers = self._many(pattern)
        if numbers is not None:
            timeline = self._views.timeline(self._views.get(numbers, snapshot))
            found = timeline.labelled(start, end, sequence)
        else:
            found = with_label(rows, np.array(self._of_all_times(pattern), np.int32), start, end)
            states = rows.numpy("added")[found], rows.numpy("removed")[found]
            found = found[(states[0] <= sequence) & (states[1] > sequence)]
        starts = rows.numpy("start")[found]
        valid = found[(starts <= instant) & (rows.numpy("end")[found] > instant)]
        valid = valid[np.argsort(rows.numpy("slot")[valid], kind="stable")]
        coming = starts[starts > instant]
        return Labelled(valid, int(coming.min()) if len(coming) else FOREVER)

    def _of_all_times(self, pattern: FactPattern) -> list[int]:
        """The rows that match, of every instant and state."""
        rows, numbers = self._index.rows, self._index.numbers(pattern)
        if numbers is None:
            return []
        if pattern.identity is not None:
            return list(self._identified(pattern.identity, numbers))
        return [
            row
            for slot in self._index.candidates(numbers)
            if self._index.matches_slot(slot, numbers)
            for row in rows.rows(slot)
            if self._index.matches_row(row, numbers)
        ]

    # Few slots

    def _rows(self, pattern: FactPattern, snapshot: Snapshot) -> Iterator[int]:
        """The rows that match and are valid, one by one."""
        self.ways["slots"] += 1
        rows = self._index.rows
        numbers = self._index.numbers(pattern)
        if numbers is None:
            return
        if pattern.identity is not None:
            for row in self._identified(pattern.identity, numbers):
                if rows.row_at(rows.slot[row], *snapshot) == row:
                    yield row
            return
        for slot in self._index.candidates(numbers):
            if self._index.matches_slot(slot, numbers):
                row = rows.row_at(slot, *snapshot)
                if row >= 0 and self._index.matches_row(row, numbers):
                    yield row

    def _starts(self, pattern: FactPattern, snapshot: Snapshot) -> list[int]:
        """The next starts of the matches, slot by slot; FOREVER among them."""
        rows = self._index.rows
        instant, sequence = snapshot
        numbers = self._index.numbers(pattern)
        if numbers is None:
            return [FOREVER]
        if pattern.identity is not None or pattern.repeats:
            existing = (row for row in self._of_all_times(pattern) if rows.exists(row, sequence))
            starts = (rows.start[row] for row in existing if rows.start[row] > instant)
        else:
            starts = (
                rows.next_start(slot, instant, sequence, numbers.object)
                for slot in self._index.candidates(numbers)
                if self._index.matches_slot(slot, numbers)
            )
        return [FOREVER, *starts]

    def _identified(self, token: str, numbers: NumberPattern) -> Iterator[int]:
        """The rows whose fact has the identity and matches the rest of the pattern."""
        for slot, found in self._index.slots_of_identity(token).items():
            if self._index.matches_slot(slot, numbers):
                yield from (row for row in found if self._index.matches_row(row, numbers))


def _has_instants(pattern: FactPattern) -> bool:
    return pattern.start is not None or pattern.end is not None
