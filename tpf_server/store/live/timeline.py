"""All versions that match a pattern, laid out for any instant of any retained state.

The versions are sorted by their starts; over their ends lies a tree of maxima. Those that are
valid at an instant are found by descending into the branches of the prefix that started, where
something has not ended: O(k log n) for k results, however long the history is (a static interval
tree: Cormen et al., *Introduction to Algorithms*, section 14.3, with 16 children per node).
New versions wait in a list and are merged when they are a quarter of the whole.
"""

import numpy as np

from tpf_server.store.live.index import FactIndex, NumberPattern
from tpf_server.store.live.log import FOREVER
from tpf_server.store.live.rows import Array, Rows

_CHILDREN = 16
_STEP = 64
_FEW = 1024


class Timeline:
    """The versions that match a pattern.

    Args:
        index: the index.
        pattern: what matches.
    """

    def __init__(self, index: FactIndex, pattern: NumberPattern) -> None:
        self._index = index
        self._pattern = pattern
        self.probes = 0
        """How many nodes and versions were looked at: the measure of work in tests."""
        self._build()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def add(self, row: int) -> None:
        """A new version that matches."""
        self._recent.append(row)
        self._recent_added.append(self._index.rows.added[row])
        if len(self._recent) > max(_FEW, len(self._sorted) // 4):
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
        self._by_end: tuple[Array, Array] | None = None
        self._recent: list[int] = []
        self._recent_added: list[int] = []
        self.stale = False
        """Whether so many versions are new that it is built again when it is needed."""

    def valid(self, instant: int, sequence: int) -> Array:
        """The rows that are valid at an instant of a state, in the order of their slots."""
        if self.stale:
            self._build()
        rows = self._index.rows
        started = int(np.searchsorted(self._starts, np.int64(instant), side="right"))
        found = self._exists(self._sorted[self._not_ended(started, instant)], sequence)
        recent = self._recent_rows(sequence)
        valid = (rows.numpy("start")[recent] <= instant) & (rows.numpy("end")[recent] > instant)
        found = np.concatenate((found, recent[valid]))
        ordered: Array = found[np.argsort(rows.numpy("slot")[found], kind="stable")]
        return ordered

    def coming(self, instant: int, sequence: int) -> Array:
        """The rows that start after an instant of a state, by start."""
        if self.stale or self._recent:
            self._build()
        place = int(np.searchsorted(self._starts, np.int64(instant), side="right"))
        return self._exists(self._sorted[place:], sequence)

    def next_start(self, instant: int, sequence: int) -> int:
        """The earliest start after an instant of a state, or FOREVER."""
        if self.stale:
            self._build()
        starts = self._index.rows.numpy("start")[self._recent_rows(sequence)]
        starts = starts[starts > instant]
        best = int(starts.min()) if len(starts) else FOREVER
        place = int(np.searchsorted(self._starts, np.int64(instant), side="right"))
        while place < len(self._sorted):
            rows = self._exists(self._sorted[place : place + _STEP], sequence)
            if len(rows):
                return min(best, self._index.rows.start[int(rows[0])])
            place += _STEP
        return best

    def labelled(self, start: int | None, end: int | None, sequence: int) -> Array:
        """The rows of a state whose label has this start and this end (``None``: any)."""
        if self.stale:
            self._build()
        rows = self._index.rows
        if start is not None:
            found = self._sorted[_equal(self._starts, start)]
        else:
            assert end is not None
            if self._by_end is None:
                order = np.argsort(self._levels[0], kind="stable")
                self._by_end = self._levels[0][order], self._sorted[order]
            ends, by_end = self._by_end
            found = by_end[_equal(ends, end)]
        found = np.concatenate((self._exists(found, sequence), self._recent_rows(sequence)))
        return with_label(rows, found, start, end)

    def _not_ended(self, started: int, instant: int) -> Array:
        """The places among the first `started` whose version ends after the instant."""
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

    def _exists(self, found: Array, sequence: int) -> Array:
        rows = self._index.rows
        # A row that was retired and used again was added after this was built.
        there = rows.numpy("added")[found] <= min(sequence, self._built)
        existing: Array = found[there & (rows.numpy("removed")[found] > sequence)]
        return existing

    def _recent_rows(self, sequence: int) -> Array:
        rows = self._index.rows
        recent = np.array(self._recent, dtype=np.int32)
        added = rows.numpy("added")[recent]
        there = (added <= sequence) & (added == np.array(self._recent_added, dtype=np.int64))
        existing: Array = recent[there & (rows.numpy("removed")[recent] > sequence)]
        return existing


def with_label(rows: Rows, found: Array, start: int | None, end: int | None) -> Array:
    """Those of some rows whose label has this start and this end (``None``: any)."""
    if start is not None:
        found = found[rows.numpy("start")[found] == start]
    if end is not None:
        found = found[rows.numpy("end")[found] == end]
    return found


def _equal(ordered: Array, instant: int) -> slice:
    low = np.searchsorted(ordered, np.int64(instant), side="left")
    high = np.searchsorted(ordered, np.int64(instant), side="right")
    return slice(int(low), int(high))
