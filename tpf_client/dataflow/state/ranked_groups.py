"""A sliding window, the sizes of its groups, and the best of these: one state for all three.

It is what a window, `Groups` and `TopK` keep together, for a query that counts and orders, without
a solution being made of any row: rows are columns of integers. There are two of it, which do the
same: this class, and `_ranked_groups` in C, which is built with the package where there is a
compiler (see `kernels`).
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from operator import neg
from typing import Any, Final, NamedTuple, Protocol

from tpf_client.sparql.expressions.inlined import (
    INTEGER,
    SCALE_BITS,
    TAG,
    TAG_BITS,
)

Cells = tuple[int, ...]

MOST_PLACES: Final = 18
"""Of decimals with more digits behind the point keys are not ordered here."""
_SCALE: Final = (1 << SCALE_BITS) - 1


class Ranking(NamedTuple):
    """What is counted and ordered.

    Args:
        keys: how many columns the keys of groups have.
        order: by what groups are ordered: the number of a key column, or `keys` for the size of
            the group; and whether the largest is first. Cells are integers or decimals.
        ties: the columns by whose cells, as they are, groups are ordered that are equal so far; all
            of them.
        offset: how many of the first groups are not shown.
        wanted: how many groups are shown, with those.
        width: how long a row stays.
        apart: whether what goes before a row comes is looked at by itself.
    """

    keys: int
    order: tuple[tuple[int, bool], ...]
    ties: tuple[int, ...]
    offset: int
    wanted: int
    width: int
    apart: bool


class IntegerColumn(Protocol):
    """A column of integers of 64 bits."""

    def tolist(self) -> list[int]:
        """All of them."""


class RankedState(Protocol):
    """What both have; see `RankedGroups`."""

    changed: bool
    refused: bool

    def __len__(self) -> int: ...

    @property
    def groups(self) -> int:
        """See `RankedGroups`."""

    def batch(
        self,
        times: IntegerColumn,
        subjects: IntegerColumn,
        keys: Sequence[IntegerColumn],
        wanted: IntegerColumn,
    ) -> Any:
        """See `RankedGroups`."""

    def run(self, batch: Any, start: int, quiet: bool = False, /) -> int:
        """See `RankedGroups`."""

    def shown(self) -> list[Cells]:
        """See `RankedGroups`."""

    def before(self) -> list[Cells] | None:
        """See `RankedGroups`."""


class _Batch(NamedTuple):
    """Rows: their times, their subjects, and their keys (``None``: of no group that counts)."""

    times: list[int]
    subjects: list[int]
    keys: list[Cells | None]


class RankedGroups:
    """The window, its groups and the best of them.

    Args:
        ranking: what is counted and ordered.

    Attributes:
        changed: whether the last row that `run` took may have changed what is shown.
        refused: whether `run` stopped before a row that it cannot take, because its subject was
            there when it came; nothing has gone for it yet.
    """

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._log: deque[tuple[int, int, Cells | None]] = deque()
        self._subjects: set[int] = set()
        self._sizes: dict[Cells, int] = {}
        # The best groups in their order, those that are among them, and whether these are all.
        self._best: list[tuple[Any, ...]] = []
        self._entries: dict[Cells, tuple[Any, ...]] = {}
        self._all = True
        self._reserve = max(32, 3 * ranking.wanted)
        # Whether sizes decide first, and how.
        place, descending = ranking.order[0]
        self._by_size = place == ranking.keys, -1 if descending else 1
        self._before: list[Cells] | None = None
        self.changed = False
        self.refused = False

    def __len__(self) -> int:
        """How many rows the window has."""
        return len(self._log)

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self._sizes)

    def batch(
        self,
        times: IntegerColumn,
        subjects: IntegerColumn,
        keys: Sequence[IntegerColumn],
        wanted: IntegerColumn,
    ) -> _Batch:
        """Rows as `run` takes them.

        Args:
            times: when they come, none before the one before it.
            subjects: each is in the window at most once.
            keys: of their groups, column by column.
            wanted: 1 where the group counts, else 0.
        """
        cells = zip(*[column.tolist() for column in keys], strict=True)
        return _Batch(
            times.tolist(),
            subjects.tolist(),
            [k if w else None for k, w in zip(cells, wanted.tolist(), strict=True)],
        )

    def run(self, batch: _Batch, start: int, quiet: bool = False) -> int:
        """Take rows one after the other, until one may have changed what is shown.

        Args:
            batch: the rows.
            start: the first of them.
            quiet: go on where that happens.

        Returns:
            The number of the first row that was not taken; see `changed` and `refused`.
        """
        times, rows, keys = batch
        log, subjects, sizes, width = self._log, self._subjects, self._sizes, self._ranking.width
        apart = self._ranking.apart
        self.changed = self.refused = False
        self._before = None
        touched: list[Cells] = []
        for number in range(start, len(times)):
            at, subject, key = times[number], rows[number], keys[number]
            if subject in subjects:
                self.refused = True
                return number
            first = at - width
            while log and log[0][0] < first:
                _, gone, old = log.popleft()
                subjects.discard(gone)
                if old is not None:
                    left = sizes[old] - 1
                    if left:
                        sizes[old] = left
                    else:
                        del sizes[old]
                    touched.append(old)
            matters = False
            if apart and touched:
                if self._place(touched):
                    matters = True
                    self._before = self.shown()
                touched.clear()
            log.append((at, subject, key))
            subjects.add(subject)
            if key is not None:
                sizes[key] = sizes.get(key, 0) + 1
                touched.append(key)
            if touched:
                matters |= self._place(touched)
                touched.clear()
            if matters and not quiet:
                self.changed = True
                return number + 1
            self._before = None
        return len(times)

    def shown(self) -> list[Cells]:
        """The keys and sizes of the groups that are shown."""
        best = self._best[self._ranking.offset : self._ranking.wanted]
        return [(*key, self._sizes[key]) for *_, key in best]

    def before(self) -> list[Cells] | None:
        """What was shown before the last row came, and after others had gone (`Ranking.apart`).

        ``None``: the same as before they went.
        """
        return self._before

    def _place(self, touched: list[Cells]) -> bool:
        """Put groups where they belong now; whether that may matter to what is shown."""
        best, entries, sizes, wanted = self._best, self._entries, self._sizes, self._ranking.wanted
        matters = False
        different: Iterable[Cells] = touched if len(touched) == 1 else dict.fromkeys(touched)
        for key in different:
            if key in entries:
                place = bisect_left(best, entries.pop(key))
                del best[place]
                matters = matters or place < wanted
        by_size, sign = self._by_size
        for key in different:
            size = sizes.get(key)
            if size is None:
                continue
            # Most are behind by what decides first.
            if not self._all and (not best or (by_size and sign * size > best[-1][0])):
                continue
            entry = self._entry(key, size)
            if not self._all and entry > best[-1]:
                continue
            entries[key] = entry
            insort(best, entry)
            matters = matters or len(best) <= wanted or entry <= best[wanted - 1]
        if len(best) > 2 * self._reserve:
            for *_, key in best[self._reserve :]:
                del entries[key]
            del best[self._reserve :]
            self._all = False
        elif len(best) < wanted and not self._all:
            every = [self._entry(key, size) for key, size in sizes.items()]
            best[:] = nsmallest(self._reserve, every)
            self._all = len(best) == len(every)
            self._entries = {entry[-1]: entry for entry in best}
            matters = True
        return matters

    def _entry(self, key: Cells, size: int) -> tuple[Any, ...]:
        """What a group is sorted by, and its key."""
        row = (*key, size)
        by = [
            neg(self._value(row, place)) if descending else self._value(row, place)
            for place, descending in self._ranking.order
        ]
        return (*by, *[row[place] for place in self._ranking.ties], key)

    def _value(self, row: Cells, place: int) -> int:
        """A number that stands for that of a cell, of one scale for all."""
        cell = row[place]
        if place == self._ranking.keys:
            return cell
        if cell & TAG == INTEGER:
            return (cell >> TAG_BITS) * 10**MOST_PLACES
        rest = cell >> TAG_BITS
        factor: int = 10 ** (MOST_PLACES - (rest & _SCALE))
        return (rest >> SCALE_BITS) * factor
