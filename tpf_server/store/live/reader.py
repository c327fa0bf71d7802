"""Answer patterns over the index: counts, pages and the next instants of change.

Few slots are read one by one; many have a view, which answers for the present in a page's time.
"""

from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from sortedcontainers import SortedList

from annotations.instants import from_micros, to_micros
from annotations.labels import Fact, Interval
from annotations.methods.base import FactPattern
from tpf_server.store.live.index import NAMED, FactIndex, NumberPattern, Unwatched
from tpf_server.store.live.log import FOREVER, NO_START, Floor, Record
from tpf_server.store.live.rows import ANY, Array, Rows
from tpf_server.store.protocols import Snapshot

_FEW = 64


# All versions that match a pattern, laid out for any instant of any retained state.
#
# The versions are sorted by their starts; over their ends lies a tree of maxima. Those that are
# valid at an instant are found by descending into the branches of the prefix that started, where
# something has not ended: O(k log n) for k results, however long the history is (a static interval
# tree: Cormen et al., *Introduction to Algorithms*, section 14.3, with 16 children per node). New
# versions wait in a list and are merged when they are a quarter of the whole.

_CHILDREN = 16
_STEP = 64
_FEW_INSTANTS = 1024


class Timeline:
    """The versions that match a pattern."""

    def __init__(self, index: FactIndex, pattern: NumberPattern) -> None:
        self._index = index
        self._pattern = pattern
        self.probes = 0
        """How many nodes and versions were looked at: the measure of work in tests."""
        self._build()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def add(self, row: int) -> None:
        self._recent.append(row)
        self._recent_added.append(self._index.rows.added[row])
        if len(self._recent) > max(_FEW_INSTANTS, len(self._sorted) // 4):
            self.stale = True

    def _build(self) -> None:
        rows = self._index.rows
        matching = self._index.matching_rows(self._pattern)
        starts = rows.numpy("start")[matching]
        order = np.argsort(starts, kind="stable")
        self._sorted: Array = matching[order].astype(np.int32)
        self._starts: Array = starts[order]
        self._built = self._index.last
        level = rows.numpy("end")[self._sorted]
        self._levels = [level]
        while len(level) > _CHILDREN:
            padded = np.full(-(-len(level) // _CHILDREN) * _CHILDREN, np.iinfo(np.int64).min)
            padded[: len(level)] = level
            level = padded.reshape(-1, _CHILDREN).max(axis=1)
            self._levels.append(level)
        self._recent: list[int] = []
        self._recent_added: list[int] = []
        self.stale = False
        """Whether so many versions are new that it is built again when it is needed."""

    def valid(self, instant: int, sequence: int) -> Array:
        """Return the rows valid at an instant of a state, by slot."""
        if self.stale:
            self._build()
        rows = self._index.rows
        started = int(np.searchsorted(self._starts, np.int64(instant), side="right"))
        result = self._exists(self._sorted[self._not_ended(started, instant)], sequence)
        recent = self._recent_rows(sequence)
        valid = (rows.numpy("start")[recent] <= instant) & (rows.numpy("end")[recent] > instant)
        result = np.concatenate((result, recent[valid]))
        ordered: Array = result[np.argsort(rows.numpy("slot")[result], kind="stable")]
        return ordered

    def coming(self, instant: int, sequence: int) -> Array:
        """Return the rows that start after an instant of a state, by start."""
        if self.stale or self._recent:
            self._build()
        first = int(np.searchsorted(self._starts, np.int64(instant), side="right"))
        return self._exists(self._sorted[first:], sequence)

    def next_start(self, instant: int, sequence: int) -> int:
        """Return the earliest start after an instant of a state, or FOREVER."""
        if self.stale:
            self._build()
        starts = self._index.rows.numpy("start")[self._recent_rows(sequence)]
        starts = starts[starts > instant]
        best = int(starts.min()) if len(starts) else FOREVER
        first = int(np.searchsorted(self._starts, np.int64(instant), side="right"))
        while first < len(self._sorted):
            rows = self._exists(self._sorted[first : first + _STEP], sequence)
            if len(rows):
                return min(best, self._index.rows.start[int(rows[0])])
            first += _STEP
        return best

    def labelled(self, start: int | None, end: int | None, sequence: int) -> Array:
        """Return the rows of a state with this label (``None``: any start or end)."""
        if self.stale:
            self._build()
        rows = self._index.rows
        labelled = np.ones(len(self._sorted), dtype=bool)
        if start is not None:
            labelled &= self._starts == start
        if end is not None:
            labelled &= self._levels[0] == end
        result = self._sorted[labelled]
        result = np.concatenate((self._exists(result, sequence), self._recent_rows(sequence)))
        return _with_label(rows, result, start, end)

    def _not_ended(self, started: int, instant: int) -> Array:
        below = np.arange(_CHILDREN)
        nodes: Array = np.arange(len(self._levels[-1]))
        for height in range(len(self._levels) - 1, -1, -1):
            level = self._levels[height]
            nodes = nodes[(nodes * _CHILDREN**height < started) & (nodes < len(level))]
            self.probes += len(nodes)
            nodes = nodes[level[nodes] > instant]
            if height:
                nodes = (nodes[:, None] * _CHILDREN + below).ravel()
        return nodes

    def _exists(self, candidates: Array, sequence: int) -> Array:
        rows = self._index.rows
        # A row that was retired and used again was added after this was built.
        there = rows.numpy("added")[candidates] <= min(sequence, self._built)
        existing: Array = candidates[there & (rows.numpy("removed")[candidates] > sequence)]
        return existing

    def _recent_rows(self, sequence: int) -> Array:
        rows = self._index.rows
        recent = np.array(self._recent, dtype=np.int32)
        added = rows.numpy("added")[recent]
        there = (added <= sequence) & (added == np.array(self._recent_added, dtype=np.int64))
        existing: Array = recent[there & (rows.numpy("removed")[recent] > sequence)]
        return existing


def _with_label(rows: Rows, candidates: Array, start: int | None, end: int | None) -> Array:
    if start is not None:
        candidates = candidates[rows.numpy("start")[candidates] == start]
    if end is not None:
        candidates = candidates[rows.numpy("end")[candidates] == end]
    return candidates


# The matches of one pattern at the present: kept in order, so that a page costs a page.
#
# A view stands at one instant of the newest state and moves forward with both. What changed lately
# is remembered, so that a reader who is a little behind (another thread moved the clock, a batch
# came in between) gets his own snapshot: the slots that were touched since are looked at one by
# one.

_REMEMBERED = 4096
_LEAP = 300_000_000
"""A view does not move further ahead at once, so that a question about the far future does not
take it away from the present (microseconds)."""
_SLOT = 0xFFFFFFFF


class _PatternView:
    def __init__(
        self,
        index: FactIndex,
        pattern: NumberPattern,
        instant: int,
        timeline: Timeline,
    ) -> None:
        self._index = index
        self.pattern = pattern
        self.instant = instant
        self._made = (index.last, instant)
        self._journal: deque[tuple[int, int, int]] = deque(maxlen=_REMEMBERED)
        rows = index.rows
        valid = timeline.valid(instant, index.last)
        slots, ends = rows.numpy("slot")[valid], rows.numpy("end")[valid]
        self._end_of: dict[int, int] = dict(zip(slots.tolist(), ends.tolist(), strict=True))
        coming = timeline.coming(instant, index.last)
        # From the last to the first, so that the first start of a slot is the one that stays.
        slots, starts = rows.numpy("slot")[coming][::-1], rows.numpy("start")[coming][::-1]
        self._start_of: dict[int, int] = dict(zip(slots.tolist(), starts.tolist(), strict=True))
        self._slots = SortedList(self._end_of)
        self._ends = SortedList(end << 32 | slot for slot, end in self._end_of.items())
        self._starts = SortedList(start << 32 | slot for slot, start in self._start_of.items())

    def __len__(self) -> int:
        return len(self._slots)

    # Moving forward

    def refresh(self, slots: Iterator[int] | Sequence[int] | set[int]) -> None:
        for slot in slots:
            self._refresh(slot)

    def _advance(self, instant: int) -> None:
        self.instant = instant
        for events in (self._ends, self._starts):
            while events and events[0] >> 32 <= instant:
                self._refresh(events[0] & _SLOT)

    def _refresh(self, slot: int) -> None:
        index, sequence = self._index, self._index.last
        row, start = -1, FOREVER
        if index.rows.slot_in_use(slot) and index.matches_slot(slot, self.pattern):
            row = self._row(slot, self.instant, sequence)
            start = self._next_start(slot, self.instant, sequence)
        end = index.rows.end[row] if row >= 0 else None
        old_end = self._end_of.get(slot)
        if end != old_end:
            if old_end is not None:
                self._ends.remove(old_end << 32 | slot)
            if end is None:
                del self._end_of[slot]
                self._slots.remove(slot)
            else:
                if old_end is None:
                    self._slots.add(slot)
                self._end_of[slot] = end
                self._ends.add(end << 32 | slot)
        coming = self._start_of.get(slot, FOREVER)
        if start != coming:
            if coming != FOREVER:
                self._starts.remove(coming << 32 | slot)
                del self._start_of[slot]
            if start != FOREVER:
                self._starts.add(start << 32 | slot)
                self._start_of[slot] = start
        self._journal.append((sequence, self.instant, slot))

    # Answering

    def behind(self, snapshot: Snapshot) -> set[int] | None:
        """Return the slots to read one by one, unless they are too many."""
        instant, sequence = snapshot
        if instant > self.instant:
            if instant - self.instant > _LEAP:
                return None
            self._advance(instant)
        touched: set[int] = set()
        most = max(_FEW, len(self._slots) // 8)
        for state, moment, slot in reversed(self._journal):
            if state <= sequence and moment <= instant:
                return touched
            touched.add(slot)
            if len(touched) > most:
                return None
        state, moment = self._made
        if len(self._journal) < _REMEMBERED and state <= sequence and moment <= instant:
            return touched
        return None

    def count(self, snapshot: Snapshot, touched: set[int]) -> int:
        extra, missing = self._differences(snapshot, touched)
        return len(self._slots) + len(extra) - len(missing)

    def page(self, snapshot: Snapshot, touched: set[int], offset: int, limit: int) -> list[int]:
        extra, missing = self._differences(snapshot, touched)
        low = max(0, offset - len(extra))
        part = list(islice(self._slots.islice(low), offset - low + limit + len(missing)))
        if extra or missing:
            # The part begins at a place that lies before the page whatever was touched.
            first = part[0] if part and low else -1
            ended = low + len(part) >= len(self._slots)
            last = part[-1] if part and not ended else FOREVER
            rank = low + sum(slot < first for slot in extra) - sum(slot < first for slot in missing)
            merged = set(part) - missing | {slot for slot in extra if first <= slot <= last}
            part = sorted(merged)[offset - rank :]
        slots = part[:limit] if extra or missing else part[offset - low :][:limit]
        return [self._row(slot, *snapshot) for slot in slots]

    def earliest_end(self, snapshot: Snapshot, touched: set[int]) -> int:
        best = next((one >> 32 for one in self._ends if one & _SLOT not in touched), FOREVER)
        for slot in touched:
            row = self._touched_row(slot, snapshot)
            if row >= 0:
                best = min(best, self._index.rows.end[row])
        return best

    def next_change(self, snapshot: Snapshot, touched: set[int]) -> int:
        best = next((one >> 32 for one in self._starts if one & _SLOT not in touched), FOREVER)
        index = self._index
        for slot in touched:
            if index.rows.slot_in_use(slot) and index.matches_slot(slot, self.pattern):
                best = min(best, self._next_start(slot, *snapshot))
        return min(best, self.earliest_end(snapshot, touched))

    def _differences(self, snapshot: Snapshot, touched: set[int]) -> tuple[set[int], set[int]]:
        """Return the slots that only the snapshot, and that only the view shows."""
        valid = {slot for slot in touched if self._touched_row(slot, snapshot) >= 0}
        here = {slot for slot in touched if slot in self._end_of}
        return valid - here, here - valid

    def _touched_row(self, slot: int, snapshot: Snapshot) -> int:
        index = self._index
        if index.rows.slot_in_use(slot) and index.matches_slot(slot, self.pattern):
            return self._row(slot, *snapshot)
        return -1

    def _row(self, slot: int, instant: int, sequence: int) -> int:
        rows = self._index.rows
        row = rows.row_at(slot, instant, sequence)
        return row if row >= 0 and self.pattern.object in (ANY, rows.object[row]) else -1

    def _next_start(self, slot: int, instant: int, sequence: int) -> int:
        return self._index.rows.next_start(slot, instant, sequence, self.pattern.object)


# The views that are in use, and which of them a change concerns.
#
# A view is made when a pattern with many matches is asked. The one that was not asked for longest
# is dropped when all together are large beside the index itself.

_MISSES = 3
_SLACK = 1_000_000
_OVERHEAD = 100
"""What an empty view, or answer, takes, in slots."""

_Shape = tuple[bool, bool, bool, int, bool]


class _PatternViews:
    def __init__(self, index: FactIndex) -> None:
        self._index = index
        self._views: OrderedDict[NumberPattern, _PatternView] = OrderedDict()
        self._timelines: dict[NumberPattern, Timeline] = {}
        self._misses: Counter[NumberPattern] = Counter()
        """Snapshots of the newest state, one after the other, that a view was too far away from."""
        self._shapes: Counter[_Shape] = Counter()
        self._touched: dict[NumberPattern, set[int]] = {}
        self._unwatched = Unwatched()

    def get(self, pattern: NumberPattern, snapshot: Snapshot) -> _PatternView:
        """Return the view of a pattern; a new one stands at the instant of the snapshot."""
        view = self._views.get(pattern)
        if view is None:
            # The timeline serves to make the view; most views need it no more.
            timeline = Timeline(self._index, pattern)
            view = _PatternView(self._index, pattern, snapshot.instant, timeline)
            self._views[pattern] = view
            self._shapes[_shape(pattern)] += 1
            self._make_room()
        else:
            self._views.move_to_end(pattern)
        return view

    def timeline(self, view: _PatternView) -> Timeline:
        timeline = self._timelines.get(view.pattern)
        if timeline is None:
            timeline = self._timelines[view.pattern] = Timeline(self._index, view.pattern)
            self._make_room()
        return timeline

    def answered(self, view: _PatternView) -> None:
        del self._misses[view.pattern]  # a counter need not have it

    def missed(self, view: _PatternView, snapshot: Snapshot) -> None:
        """Restart a view that repeatedly could not answer for the newest state."""
        if snapshot.sequence == self._index.last:
            pattern = view.pattern
            self._misses[pattern] += 1
            if self._misses[pattern] > _MISSES:
                del self._misses[pattern]
                self._views[pattern] = _PatternView(
                    self._index, pattern, snapshot.instant, self.timeline(view)
                )

    def _make_room(self) -> None:
        room = 4 * self._index.rows.live_rows + _SLACK
        size = sum(len(view) + _OVERHEAD for view in self._views.values())
        size += sum(map(len, self._timelines.values()))
        self._unwatched.grown(size)
        while size > room and len(self._views) > 1:
            pattern, view = self._views.popitem(last=False)
            size -= len(view) + _OVERHEAD + len(self._timelines.pop(pattern, ()))
            del self._misses[pattern]
            shape = _shape(pattern)
            self._shapes[shape] -= 1
            if not self._shapes[shape]:
                del self._shapes[shape]

    # Following changes

    def touch(self, slot: int, obj: int, row: int) -> None:
        rows = self._index.rows
        subject, predicate = rows.subject_of[slot], rows.predicate_of[slot]
        graph, kind = rows.graph_of[slot], rows.kind_of[slot]
        for by_subject, by_predicate, by_object, by_graph, by_kind in self._shapes:
            pattern = NumberPattern(
                subject if by_subject else ANY,
                predicate if by_predicate else ANY,
                obj if by_object else ANY,
                ANY if by_graph == ANY else graph if by_graph != NAMED else NAMED,
                kind if by_kind else ANY,
            )
            view = self._views.get(pattern)
            if view is not None and (by_graph != NAMED or self._index.matches_slot(slot, pattern)):
                self._touched.setdefault(pattern, set()).add(slot)
                timeline = self._timelines.get(pattern)
                if row >= 0 and timeline is not None:
                    timeline.add(row)
                    if timeline.stale:
                        del self._timelines[pattern]  # made again when needed

    def refresh(self) -> None:
        for pattern, slots in self._touched.items():
            self._views[pattern].refresh(slots)
        self._touched.clear()


def _shape(pattern: NumberPattern) -> _Shape:
    subject, predicate, obj, graph, kind, _ = pattern
    by_graph = graph if graph in (ANY, NAMED) else 0
    return subject != ANY, predicate != ANY, obj != ANY, by_graph, kind != ANY


_LONG = 1024
_KEPT = 4_000_000


class _StateRows(NamedTuple):
    """The rows of a snapshot, and the retention limits at that time."""

    rows: Array
    floor: Floor


class Labelled(NamedTuple):
    """The matches whose label has a given start or end."""

    valid: Array
    """Rows, in the order of their slots."""
    next_start: int
    """When the next of those that come starts, or FOREVER."""


class Reader:
    """Answer patterns over an index. Not thread-safe."""

    def __init__(self, index: FactIndex) -> None:
        self._index = index
        self._views = _PatternViews(index)
        self._answers: OrderedDict[tuple[NumberPattern, Snapshot], _StateRows] = OrderedDict()
        self._kept = 0
        self.ways: Counter[str] = Counter()
        """How often each way was taken: for tests."""

    def apply(self, record: Record) -> None:
        self._index.apply(record, self._views.touch)
        self._views.refresh()

    def count(self, pattern: FactPattern, snapshot: Snapshot) -> int:
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
        """Return a page of the valid matching facts, by slot."""
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
        """Return the earliest end of the valid matching facts, or FOREVER."""
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
        """Return the earliest end of valid matches or start of later ones, or FOREVER."""
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

    def history(self, pattern: FactPattern, snapshot: Snapshot, most: int) -> Sequence[Fact]:
        """Return the last versions that began by then with when they held, by slot and start.

        An expiring one held from its publication, if that is retained; else it is left out.
        """
        rows, numbers = self._index.rows, self._index.numbers(pattern)
        results: list[tuple[int, int, int, int]] = []
        for slot in () if numbers is None else self._index.candidates(numbers):
            if numbers is not None and self._index.matches_slot(slot, numbers):
                end = bisect_right(rows.rows(slot), snapshot.instant, key=rows.start.__getitem__)
                for row in rows.rows(slot)[max(0, end - most) : end]:
                    start, until = self._held(row, snapshot)
                    if start < until and start <= snapshot.instant:
                        results.append((slot, start, until, row))
            if len(results) >= most:
                break
        results = sorted(results)[:most]
        quads = self._index.quads([row for *_, row in results])
        spans = [Interval(from_micros(start), from_micros(end)) for _, start, end, _ in results]
        return [Fact(quad, span) for quad, span in zip(quads, spans, strict=True)]

    def _held(self, row: int, snapshot: Snapshot) -> tuple[int, int]:
        rows, sequence = self._index.rows, snapshot.sequence
        start, end = rows.start[row], rows.end[row]
        if start != NO_START:
            return (start, end) if rows.exists(row, sequence) else (FOREVER, FOREVER)
        published = None
        if rows.added[row] <= sequence:
            published = self._index.published(rows.added[row])
        if rows.removed[row] <= sequence:
            end = min(end, self._index.published(rows.removed[row]) or NO_START)
        return FOREVER if published is None else published, end

    # Many slots

    def _many(self, pattern: FactPattern) -> NumberPattern | None:
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
    ) -> tuple[_PatternView, set[int] | None]:
        """The view and the slots to read, unless that is too far away."""
        view = self._views.get(numbers, snapshot)
        touched = view.behind(snapshot)
        if touched is None:
            self._views.missed(view, snapshot)
        else:
            self.ways["view"] += 1
            self._views.answered(view)
        return view, touched

    def _answer(self, numbers: NumberPattern, snapshot: Snapshot) -> Array:
        """Return the rows of a snapshot that is too far from the view."""
        floor = self._index.floor
        cached = self._answers.get((numbers, snapshot))
        # Rows that were valid at instants before the floor may be retired, and used for others.
        if cached is not None and (
            cached.floor == floor or snapshot.instant >= max(floor.expired, floor.history)
        ):
            self._answers.move_to_end((numbers, snapshot))
            self.ways["kept"] += 1
            return cached.rows
        self.ways["timeline"] += 1
        rows = self._views.timeline(self._views.get(numbers, snapshot)).valid(*snapshot)
        self._answers[numbers, snapshot] = _StateRows(rows, floor)
        self._kept += len(rows) - (0 if cached is None else len(cached.rows))
        while self._kept + _OVERHEAD * len(self._answers) > _KEPT and len(self._answers) > 1:
            self._kept -= len(self._answers.popitem(last=False)[1].rows)
        return rows

    def _end_of(self, rows: Array) -> int:
        return int(np.min(self._index.rows.numpy("end")[rows], initial=FOREVER))

    # Labels with a given start or end

    def _labelled(self, pattern: FactPattern, snapshot: Snapshot) -> Labelled:
        self.ways["labelled"] += 1
        rows, (instant, sequence) = self._index.rows, snapshot
        start = None if pattern.start is None else to_micros(pattern.start)
        end = None if pattern.end is None else to_micros(pattern.end)
        numbers = self._many(pattern)
        if numbers is not None:
            timeline = self._views.timeline(self._views.get(numbers, snapshot))
            result = timeline.labelled(start, end, sequence)
        else:
            result = _with_label(rows, np.array(self._of_all_times(pattern), np.int32), start, end)
            states = rows.numpy("added")[result], rows.numpy("removed")[result]
            result = result[(states[0] <= sequence) & (states[1] > sequence)]
        starts = rows.numpy("start")[result]
        valid = result[(starts <= instant) & (rows.numpy("end")[result] > instant)]
        valid = valid[np.argsort(rows.numpy("slot")[valid], kind="stable")]
        coming = starts[starts > instant]
        return Labelled(valid, int(coming.min()) if len(coming) else FOREVER)

    def _of_all_times(self, pattern: FactPattern) -> list[int]:
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
        for slot, result in self._index.slots_of_identity(token).items():
            if self._index.matches_slot(slot, numbers):
                yield from (row for row in result if self._index.matches_row(row, numbers))


def _has_instants(pattern: FactPattern) -> bool:
    return pattern.start is not None or pattern.end is not None
