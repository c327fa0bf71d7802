"""ORDER BY with OFFSET and LIMIT, under deletions too."""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from heapq import nsmallest
from typing import Any

from tpf_client.dataflow.changes import Multiset, Solution, add_copies
from tpf_client.dataflow.node import Key, Node

# Slice: OFFSET and LIMIT of solutions whose order does not matter (see `order` where it does).


def window(rows: Iterator[tuple[Solution, int]], offset: int, limit: int | None) -> Multiset:
    """Return at most `limit` copies from position `offset` on."""
    result: Multiset = Multiset()
    room = limit
    for row, count in rows:
        if room == 0:
            break
        if count <= 0:
            continue
        skipped = min(offset, count)
        offset -= skipped
        taken = count - skipped if room is None else min(count - skipped, room)
        if taken > 0:
            result[row] += taken
            if room is not None:
                room -= taken
    return result


class Slice(Node):
    """`limit` solutions after `offset` others, in the order of arrival.

    Arrivals pass at once and stay; a retracted solution is replaced at the next flush.
    """

    def __init__(self, upstream: Node, offset: int = 0, limit: int | None = None) -> None:
        super().__init__(upstream.schema, upstream.certain, monotone=upstream.monotone)
        self._offset = offset
        self._limit = limit
        self._rows: dict[Solution, int] = {}
        self._total = 0
        self._shown: Multiset = Multiset()
        self._stale = False
        upstream.connect(self._push)

    @property
    def missing(self) -> int | None:
        """The number of solutions that make further arrivals irrelevant, without retractions."""
        if self._limit is None:
            return None
        return max(self._offset + self._limit - self._total, 0)

    @property
    def empty(self) -> bool:
        return not self._rows

    @property
    def pending(self) -> bool:
        """True if the output must be computed again."""
        return self._stale

    def _push(self, solution: Solution, count: int) -> None:
        total = add_copies(self._rows, solution, count)
        before = self._total
        self._total += count
        # Which copies are shown is free (section 15.5), only their number is not: a further copy of
        # an earlier solution moves nothing, so that what has come out need not be taken back.
        if count < 0 or total < count:
            self._stale = True
        if not self._stale:
            low = max(before, self._offset)
            high = self._total
            if self._limit is not None:
                high = min(high, self._offset + self._limit)
            if high > low:
                self._shown[solution] += high - low
                self.emit(solution, high - low)

    def flush(self) -> None:
        if not self._stale:
            return
        self._stale = False
        now = window(iter(self._rows.items()), self._offset, self._limit)
        before, self._shown = self._shown, now
        for row in before.keys() | now.keys():
            change = now[row] - before[row]
            if change:
                self.emit(row, change)


SortKeyOf = Callable[[Solution], Any]
Entry = tuple[Any, Solution, Key]
SeenAs = Callable[[Solution], Solution]


class _Rows:
    def __init__(self, upstream: Node) -> None:
        self._copies: dict[Solution, int] = {}
        self._changes: dict[Solution, int] = {}
        upstream.connect(self._push)

    @property
    def pending(self) -> bool:
        return bool(self._changes)

    def _push(self, solution: Solution, count: int) -> None:
        self._changes[solution] = self._changes.get(solution, 0) + count

    def row(self, key: Key) -> Solution | None:
        return key if self._copies.get(key, 0) > 0 else None

    def copies(self, key: Key) -> int:
        return self._copies[key]

    def all_keys(self) -> Collection[Key]:
        return self._copies

    def changed(self) -> Collection[Key]:
        changes, self._changes = self._changes, {}
        for solution, count in changes.items():
            add_copies(self._copies, solution, count)
        return [solution for solution, count in changes.items() if count]


def _once(_key: Key) -> int:
    return 1


SHARE = 8
"""Of all rows, the part that is kept in order once the best few have run out, as they do again and
again where the first rows leave first."""


class TopK(Node):
    """The window of a sorted sequence; equal keys are ordered by identifiers.

    Only the best few (`reserve`) are kept in order; when those run out, all others are read.
    `distinct`: of solutions with the same value only the first counts. `rebuilt` counts for tests.
    """

    def __init__(
        self,
        upstream: Node,
        key: SortKeyOf,
        offset: int = 0,
        limit: int | None = None,
        distinct: SeenAs | None = None,
        *,
        asks: bool = False,
    ) -> None:
        super().__init__(upstream.schema, upstream.certain, monotone=False)
        self.rebuilt = 0
        self.upstream = upstream
        self.sorts_by = key
        self._source: Node | _Rows
        if asks:
            self._source, self._copies = upstream.claimed(), None
        else:
            self._source = rows = _Rows(upstream)
            self._copies = rows.copies
        self._offset = offset
        self._limit = limit
        self._distinct = distinct
        self._end = None if limit is None or distinct is not None else offset + limit
        self.reserve = None if self._end is None else max(32, 3 * self._end)
        self._sorted: list[Entry] = []
        self._entries: dict[Key, Entry] = {}
        self._all = True
        """Whether `_sorted` has every row."""
        self._shown: Multiset = Multiset()

    @property
    def empty(self) -> bool:
        return not any(True for _ in self._source.all_keys())

    @property
    def pending(self) -> bool:
        return self._source.pending

    @property
    def limits(self) -> tuple[int, int] | None:
        """The first row shown and the first behind the window."""
        if self._end is None or self._copies is not None:
            return None
        return self._offset, self._end

    def flush(self) -> None:
        changed = self._source.changed()
        if not changed:
            return
        row_of, entries, ordered = self._source.row, self._entries, self._sorted
        key_of, copies = self.sorts_by, self._copies
        end = self._end
        # Rows behind the last one that is kept in order cost no more than to see that.
        last = None if self._all else ordered[-1]
        # Rows behind the last one that is shown do not matter to the window.
        last_shown = ordered[end - 1] if end and len(ordered) >= end else None
        matters = False
        new: list[Entry] = []
        for key in changed:
            row = row_of(key)
            before = entries.get(key)
            if before is not None and before[1] == row:
                # There may be another number of copies.
                if copies is not None:
                    matters = matters or last_shown is None or before <= last_shown
                continue
            if before is not None:
                del ordered[bisect_left(ordered, before)]
                del entries[key]
                matters = matters or last_shown is None or before <= last_shown
            if row is None:
                continue
            entry = (key_of(row), row, key)
            if last is None or entry <= last:
                entries[key] = entry
                new.append(entry)
                matters = matters or last_shown is None or entry <= last_shown
        # Sorting merges runs, so that a first load of many costs n log n; few are put in place.
        if len(new) * 8 > len(ordered):
            ordered.extend(new)
            ordered.sort()
        else:
            for entry in new:
                insort(ordered, entry)
        size = len(ordered)
        if end is not None and self.reserve is not None:
            if size > 2 * self.reserve:
                self._shorten(self.reserve)
            elif size < (end or 1) and not self._all:
                self._choose_anew()
        if matters:
            self._show()

    def _shorten(self, reserve: int) -> None:
        ordered = self._sorted
        for entry in ordered[reserve:]:
            del self._entries[entry[2]]
        del ordered[reserve:]
        self._all = False

    def _choose_anew(self) -> None:
        assert self.reserve is not None
        self.rebuilt += 1
        ordered, row_of, key_of = self._sorted, self._source.row, self.sorts_by
        rows = [(key, row_of(key)) for key in self._source.all_keys()]
        entries = [(key_of(row), row, key) for key, row in rows if row is not None]
        self.reserve = max(self.reserve, len(entries) // SHARE)
        ordered[:] = nsmallest(self.reserve, entries)
        self._all = len(ordered) == len(entries)
        self._entries = {entry[2]: entry for entry in ordered}

    def _show(self) -> None:
        if self._copies is None and self._end is not None:
            now = Multiset([row for _, row, _ in self._sorted[self._offset : self._end]])
        else:
            now = window(self._in_order(), self._offset, self._limit)
        self.show(now)

    def show(self, now: Multiset) -> None:
        """Send how the new window differs from what was shown."""
        before, self._shown = self._shown, now
        for row, count in now.items():
            change = count - before.get(row, 0)
            if change:
                self.emit(row, change)
        for row, count in before.items():
            if row not in now:
                self.emit(row, -count)

    def _in_order(self) -> Iterator[tuple[Solution, int]]:
        copies = self._copies or _once
        if self._distinct is None:
            for _, row, key in self._sorted:
                yield row, copies(key)
            return
        seen: set[Solution] = set()
        for _, row, _ in self._sorted:
            visible = self._distinct(row)
            if visible not in seen:
                seen.add(visible)
                yield row, 1
