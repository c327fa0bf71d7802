"""The matches of one pattern at the present: kept in order, so that a page costs a page.

A view stands at one instant of the newest state and moves forward with both. What changed lately
is remembered, so that a reader who is a little behind (another thread moved the clock, a batch
came in between) gets his own snapshot: the slots that were touched since are looked at one by one.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from sortedcontainers import SortedList

from tpf_server.store.live.index import FactIndex, NumberPattern
from tpf_server.store.live.log import FOREVER
from tpf_server.store.live.rows import ANY
from tpf_server.store.live.timeline import Timeline
from tpf_server.store.protocols import Snapshot

_REMEMBERED = 4096
_FEW = 64
_LEAP = 300_000_000
"""A view does not move further ahead at once, so that a question about the far future does not
take it away from the present (microseconds)."""
_SLOT = 0xFFFFFFFF


class PatternView:
    """The matches of a pattern at an instant of the newest state.

    Args:
        index: the index.
        pattern: what matches.
        instant: where the view stands at first, in microseconds.
        timeline: all versions of the pattern, where they are laid out: faster for many slots.
    """

    def __init__(
        self,
        index: FactIndex,
        pattern: NumberPattern,
        instant: int,
        timeline: Timeline | None = None,
    ) -> None:
        self._index = index
        self.pattern = pattern
        self.instant = instant
        self.misses = 0
        """Snapshots of the newest state that this view was too far away to answer."""
        self._made = (index.last, instant)
        self._journal: deque[tuple[int, int, int]] = deque(maxlen=_REMEMBERED)
        self.timeline = timeline
        self._end_of: dict[int, int] = {}
        self._start_of: dict[int, int] = {}
        if timeline is None:
            self._look_at_slots()
        else:
            self._look_at_timeline(timeline)
        self._slots = SortedList(self._end_of)
        self._ends = SortedList(end << 32 | slot for slot, end in self._end_of.items())
        self._starts = SortedList(start << 32 | slot for slot, start in self._start_of.items())

    def _look_at_slots(self) -> None:
        index = self._index
        for slot in index.candidates(self.pattern):
            if index.matches_slot(slot, self.pattern):
                row = self._row(slot, self.instant, index.last)
                if row >= 0:
                    self._end_of[slot] = index.rows.end[row]
                start = self._next_start(slot, self.instant, index.last)
                if start != FOREVER:
                    self._start_of[slot] = start

    def _look_at_timeline(self, timeline: Timeline) -> None:
        rows = self._index.rows
        valid = timeline.valid(self.instant, self._index.last)
        slots, ends = rows.numpy("slot")[valid], rows.numpy("end")[valid]
        self._end_of = dict(zip(slots.tolist(), ends.tolist(), strict=True))
        coming = timeline.coming(self.instant, self._index.last)
        # From the last to the first, so that the first start of a slot is the one that stays.
        slots, starts = rows.numpy("slot")[coming][::-1], rows.numpy("start")[coming][::-1]
        self._start_of = dict(zip(slots.tolist(), starts.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._slots) + (0 if self.timeline is None else len(self.timeline))

    # Moving forward

    def refresh(self, slots: Iterator[int] | Sequence[int] | set[int]) -> None:
        """Look again at slots that changed in the newest state."""
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
        known = self._end_of.get(slot)
        if end != known:
            if known is not None:
                self._ends.remove(known << 32 | slot)
            if end is None:
                del self._end_of[slot]
                self._slots.remove(slot)
            else:
                if known is None:
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
        """The slots to look at one by one for this snapshot; ``None``: it is too far away."""
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
        """How many matches are valid."""
        extra, missing = self._differences(snapshot, touched)
        return len(self._slots) + len(extra) - len(missing)

    def page(self, snapshot: Snapshot, touched: set[int], offset: int, limit: int) -> list[int]:
        """Rows of a page, in the order of their slots."""
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
        """The earliest end of a valid match, or FOREVER."""
        best = next((one >> 32 for one in self._ends if one & _SLOT not in touched), FOREVER)
        for slot in touched:
            row = self._touched_row(slot, snapshot)
            if row >= 0:
                best = min(best, self._index.rows.end[row])
        return best

    def next_change(self, snapshot: Snapshot, touched: set[int]) -> int:
        """The earliest end of a valid match or start of one that comes, or FOREVER."""
        best = next((one >> 32 for one in self._starts if one & _SLOT not in touched), FOREVER)
        index = self._index
        for slot in touched:
            if index.rows.slot_in_use(slot) and index.matches_slot(slot, self.pattern):
                best = min(best, self._next_start(slot, *snapshot))
        return min(best, self.earliest_end(snapshot, touched))

    def _differences(self, snapshot: Snapshot, touched: set[int]) -> tuple[set[int], set[int]]:
        """The slots that are valid in the snapshot and not in the view, and the reverse."""
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
