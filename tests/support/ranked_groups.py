"""Ranked groups in Python: what those in C are compared with, and do where there is no compiler."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from itertools import repeat
from typing import Any, Final

from tpf_client.dataflow.state.ranked_groups import (
    MIDDLES,
    MOST_PLACES,
    NONE,
    WITH_ROW,
    Branch,
    By,
    Cells,
    Ranking,
)
from tpf_client.sparql.expressions.inlined import INTEGER, MOST_SCALE, SCALE_BITS, TAG, TAG_BITS

_ONE: Final = 10**MOST_PLACES
_CELL_BITS: Final = 64
_CELL_MASK: Final = (1 << _CELL_BITS) - 1
_CELL_ZERO: Final = 1 << 63
_REMEMBERED: Final = 50_000


class _Group:
    """A group: how many rows hold it, and of each branch how many count and their numbers."""

    __slots__ = ("held", "key", "numbers", "rank", "sizes", "tail")

    def __init__(self, key: Cells, branches: Sequence[Branch]) -> None:
        self.key = key
        self.held = 0
        self.sizes = [0] * len(branches)
        # In order; see `_packed`.
        self.numbers: list[list[list[int]]] = [[[] for _ in range(b.medians)] for b in branches]
        # Its place among the best, if it is one of them.
        self.rank: tuple[Any, ...] | None = None
        self.tail: tuple[int, ...] | None = None


class _Entry:
    """A row behind an EXISTS."""

    __slots__ = ("group", "left", "mine", "passes", "right", "theirs")

    def __init__(self, group: _Group | None, left: int, right: int, mine: int, theirs: int) -> None:
        self.group = group
        self.left = left
        self.right = right
        self.mine = mine
        self.theirs = theirs
        self.passes = False


class _Partner:
    """Rows of both windows with the same key, and the largest value of the right ones."""

    __slots__ = ("left", "most", "right")

    def __init__(self) -> None:
        self.left: deque[_Entry] = deque()
        self.right: deque[int] = deque()
        self.most = WITH_ROW


class _Rows:
    """The rows of a branch in its window.

    Attributes:
        entries: the time of each, and its group with its numbers, or an `_Entry`.
        others: likewise in the other window.
        partners: what meets there.
    """

    __slots__ = ("branch", "entries", "gated", "negated", "number", "other_width", "others",
                 "partners", "width")  # fmt: skip

    def __init__(self, number: int, branch: Branch) -> None:
        self.number = number
        self.branch = branch
        self.width = branch.width
        self.other_width = branch.other_width
        self.gated = branch.other_width != NONE
        self.negated = branch.negated
        self.entries: deque[tuple[int, Any, Cells]] = deque()
        self.others: deque[tuple[int, _Entry]] = deque()
        self.partners: dict[int, _Partner] = {}


class RankedGroups:
    """The rows of windows, their groups and the best of them.

    Attributes:
        changed: whether the last row that `run` took may have changed what is shown.
        passed: the instant before the next row at which what is shown may have changed (see
            `Ranking.ticks`); `WITH_ROW` where that came with the last one.
    """

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._rows = [_Rows(number, each) for number, each in enumerate(ranking.branches)]
        # For each place behind the keys: of which branch it is, and what of it.
        self._places = [
            (number, behind)
            for number, each in enumerate(ranking.branches)
            for behind in range(each.shown)
        ]
        self._groups: dict[Cells, _Group] = {}
        self._touched: dict[_Group, None] = {}
        self._best: list[tuple[Any, ...]] = []
        self._all = True
        self._reserve = max(32, 3 * ranking.limit)
        self._amounts = [self._amount_of(each) for each in ranking.order]
        self._keys_only = all(
            each.place < ranking.keys and each.over == NONE for each in ranking.order[1:]
        ) and all(place < ranking.keys for place in ranking.ties)
        self._packed: dict[int, int] = {}
        self._at = WITH_ROW
        self.changed = False
        self.passed = WITH_ROW

    @property
    def groups(self) -> int:
        """How many groups have rows, even if none counts."""
        return len(self._groups)

    def batch(self, columns: Sequence[Any], /) -> list[Any]:
        """Rows as `run` takes them.

        Args:
            columns: when rows come, none before the one before it; then for each branch the keys,
                column by column, and whether the row is wanted; its numbers (integers or decimals),
                column by column; with another window its key as it is here, as it is there, and the
                values here and there.
        """
        rest = iter([column.tolist() for column in columns])
        found: list[Any] = [next(rest)]
        for rows in self._rows:
            keys: Any = zip(*[next(rest) for _ in range(self._ranking.keys)], strict=True)
            wanted = next(rest)
            keys = [key if flag else None for key, flag in zip(keys, wanted, strict=True)]
            if rows.gated:
                keys = list(zip(keys, *[next(rest) for _ in range(4)], strict=True))
            elif rows.branch.medians:
                numbers = [self._packs(next(rest)) for _ in range(rows.branch.medians)]
                keys = list(zip(keys, zip(*numbers, strict=True), strict=True))
            else:
                keys = list(zip(keys, repeat(())))
            found.append(keys)
        return found

    def run(self, batch: Any, start: int, stop: int, /) -> int:
        """Take rows one after the other, until one may have changed what is shown.

        Args:
            batch: the rows.
            start: the first of them.
            stop: the first that is not taken.

        Returns:
            The number of the first row that was not taken; see `changed`.
        """
        times, *parts = batch
        touched = self._touched
        enter = [
            (part, self._enter_gated(rows) if rows.gated else self._enter(rows))
            for rows, part in zip(self._rows, parts, strict=True)
        ]
        ticks, apart = self._ranking.ticks, self._ranking.apart
        self.changed = False
        self.passed = WITH_ROW
        now = self._at
        for number in range(start, stop):
            at = times[number]
            if at != now:
                if (ticks or apart) and self.pass_to(at - (not apart)):
                    return number
                self._let_go(at)
                now = self._at = at
            for part, take in enter:
                take(at, part[number])
            if touched and self._place():
                self.changed = True
                return number + 1
        return stop

    def pass_to(self, until: int) -> bool:
        """Let time pass until an instant; whether what is shown may have changed at `passed`.

        With `Ranking.ticks` it stops at the first instant at which that is so.
        """
        self.changed = False
        while True:
            at = until + 1
            for rows in self._rows:
                if rows.entries:
                    at = min(at, rows.entries[0][0] + rows.width + 1)
                if rows.others:
                    at = min(at, rows.others[0][0] + rows.other_width + 1)
            if at > until:
                return False
            if not self._ranking.ticks:
                at = until
            self._let_go(at)
            self._at = at
            if self._touched and self._place():
                self.passed = at
                self.changed = True
                return True

    def shown(self) -> list[Cells]:
        """The rows of the groups that are shown."""
        best = self._best[self._ranking.offset : self._ranking.limit]
        return [self._row(self._groups[rank[-1]]) for rank in best]

    # --------------------------------------------------------------------------------- rows

    def _let_go(self, at: int) -> None:
        """Drop what is too old."""
        for rows in self._rows:
            entries, others = rows.entries, rows.others
            first = at - rows.width
            while entries and entries[0][0] < first:
                _, entry, numbers = entries.popleft()
                if rows.gated:
                    self._leave_gated(rows, entry)
                else:
                    self._count(rows.number, entry, numbers, -1)
                    entry.held -= 1
            first = at - rows.other_width
            while others and others[0][0] < first:
                self._leave_other(rows, others.popleft()[1])

    def _enter(self, rows: _Rows) -> Callable[[int, Any], None]:
        groups, touched, append = self._groups, self._touched, rows.entries.append
        number, branches, medians = rows.number, self._ranking.branches, rows.branch.medians

        def take(at: int, part: Any) -> None:
            key, numbers = part
            if key is None:
                return
            group = groups.get(key)
            if group is None:
                group = groups[key] = _Group(key, branches)
            group.held += 1
            group.sizes[number] += 1
            if medians:
                for ordered, value in zip(group.numbers[number], numbers):  # noqa: B905 (hot)
                    insort(ordered, value)
            touched[group] = None
            append((at, group, numbers))

        return take

    def _enter_gated(self, rows: _Rows) -> Callable[[int, Any], None]:
        groups, touched, partners = self._groups, self._touched, rows.partners
        number, branches, negated = rows.number, self._ranking.branches, rows.negated
        append, append_other = rows.entries.append, rows.others.append

        def take(at: int, part: Any) -> None:
            key, left, right, mine, theirs = part
            group = None
            if key is not None:
                group = groups.get(key)
                if group is None:
                    group = groups[key] = _Group(key, branches)
                group.held += 1
            entry = _Entry(group, left, right, mine, theirs)
            append_other((at, entry))
            partner = partners.get(right)
            if partner is None:
                partner = partners[right] = _Partner()
            partner.right.append(theirs)
            if theirs > partner.most:
                partner.most = theirs
                self._look_again(rows, partner)
            if group is None:
                return
            if left != right:
                partner = partners.get(left)
                if partner is None:
                    partner = partners[left] = _Partner()
            partner.left.append(entry)
            append((at, entry, ()))
            if (partner.most > mine) != negated:
                entry.passes = True
                group.sizes[number] += 1
                touched[group] = None

        return take

    def _leave_gated(self, rows: _Rows, entry: _Entry) -> None:
        group = entry.group
        assert group is not None
        if entry.passes:
            self._count(rows.number, group, (), -1)
        group.held -= 1
        if not group.held:
            self._touched[group] = None
        partner = rows.partners[entry.left]
        partner.left.popleft()
        if not partner.left and not partner.right:
            del rows.partners[entry.left]

    def _leave_other(self, rows: _Rows, entry: _Entry) -> None:
        partner = rows.partners[entry.right]
        right = partner.right
        theirs = right.popleft()
        if theirs == partner.most and theirs not in right:
            partner.most = max(right, default=WITH_ROW)
            self._look_again(rows, partner)
        if not partner.left and not right:
            del rows.partners[entry.right]

    def _look_again(self, rows: _Rows, partner: _Partner) -> None:
        for entry in partner.left:
            passes = (partner.most > entry.mine) != rows.negated
            if passes != entry.passes:
                entry.passes = passes
                assert entry.group is not None
                self._count(rows.number, entry.group, (), 1 if passes else -1)

    def _count(self, branch: int, group: _Group, numbers: Cells, sign: int) -> None:
        group.sizes[branch] += sign
        self._touched[group] = None
        if numbers:
            for ordered, value in zip(group.numbers[branch], numbers):  # noqa: B905 (hot)
                del ordered[bisect_left(ordered, value)]

    def _packs(self, cells: list[int]) -> list[int]:
        packed = self._packed
        if len(packed) > _REMEMBERED:
            packed.clear()
        for cell in {*cells}.difference(packed):
            packed[cell] = _value_of(cell) << _CELL_BITS | (cell + _CELL_ZERO)
        return [packed[cell] for cell in cells]

    # -------------------------------------------------------------------------------- order

    def _place(self) -> bool:
        """Put groups where they belong now; whether that may matter to what is shown."""
        best, wanted = self._best, self._ranking.limit
        touched, matters = self._touched, False
        for group in touched:
            if group.rank is not None:
                place = bisect_left(best, group.rank)
                del best[place]
                group.rank = None
                matters = matters or place < wanted
        lead, whole = self._amounts[0], self._is_whole
        for group in touched:
            if not group.held:
                del self._groups[group.key]
            if not whole(group):
                continue
            amount = lead(group)
            if not self._all and (not best or amount > best[-1][0]):
                continue
            rank = self._rank(group, amount)
            if not self._all and rank > best[-1]:
                continue
            group.rank = rank
            insort(best, rank)
            matters = matters or len(best) <= wanted or rank <= best[wanted - 1]
        touched.clear()
        if len(best) > 2 * self._reserve:
            for rank in best[self._reserve :]:
                self._groups[rank[-1]].rank = None
            del best[self._reserve :]
            self._all = False
        elif len(best) < wanted and not self._all:
            self._choose_anew()
            matters = True
        return matters

    def _choose_anew(self) -> None:
        best, groups, lead = self._best, self._groups, self._amounts[0]
        for rank in best:
            groups[rank[-1]].rank = None
        every = [self._rank(each, lead(each)) for each in groups.values() if self._is_whole(each)]
        best[:] = nsmallest(self._reserve, every)
        self._all = len(best) == len(every)
        for rank in best:
            groups[rank[-1]].rank = rank

    def _is_whole(self, group: _Group) -> bool:
        for size, branch in zip(group.sizes, self._ranking.branches):  # noqa: B905 (hot)
            if not branch[1] <= size <= branch[2]:
                return False
        return True

    def _row(self, group: _Group) -> Cells:
        row = list(group.key)
        for size, numbers in zip(group.sizes, group.numbers, strict=True):
            row.append(size)
            for each in numbers:
                row += _middles(each)
        return tuple(row)

    def _rank(self, group: _Group, lead: int) -> tuple[Any, ...]:
        """What a group is sorted by, and its key."""
        tail = group.tail
        if tail is None:
            whole: Iterable[int] = group.key if self._keys_only else self._row(group)
            cells = tuple(whole)
            tail = (
                *[amount(group) for amount in self._amounts[1:]],
                *[cells[place] for place in self._ranking.ties],
            )
            if self._keys_only:
                group.tail = tail
        return (lead, *tail, group.key)

    def _amount_of(self, by: By) -> Callable[[_Group], int]:
        """A function for the number that a condition looks at, of one scale for all groups."""
        place, over, descending = by
        keys, sign = self._ranking.keys, -1 if descending else 1
        if place < keys:
            return self._divided(lambda group: _value_of(group.key[place]), over, sign)
        branch, behind = self._places[place - keys]
        if behind:
            number = (behind - 1) // MIDDLES
            return self._divided(lambda group: _middle(group.numbers[branch][number]), over, sign)
        if over == NONE:
            return lambda group: sign * group.sizes[branch]
        return self._divided(lambda group: group.sizes[branch] * _ONE, over, sign)

    def _divided(
        self, number: Callable[[_Group], int], over: int, sign: int
    ) -> Callable[[_Group], int]:
        if over == NONE:
            return lambda group: sign * number(group)
        divisor = self._places[over - self._ranking.keys][0]

        def quotient(group: _Group) -> int:
            # Towards zero.
            found, size = number(group), group.sizes[divisor]
            return sign * (found // size if found >= 0 else -(-found // size))

        return quotient


def _value_of(cell: int) -> int:
    """The value of a cell, of one scale for all."""
    if cell & TAG == INTEGER:
        return (cell >> TAG_BITS) * _ONE
    rest = cell >> TAG_BITS
    factor: int = 10 ** (MOST_PLACES - (rest & MOST_SCALE))
    return (rest >> SCALE_BITS) * factor


def _middle(ordered: list[int]) -> int:
    count = len(ordered)
    return (ordered[count - 1 >> 1] >> _CELL_BITS) + (ordered[count >> 1] >> _CELL_BITS) >> 1


def _middles(ordered: list[int]) -> Cells:
    count = len(ordered)
    if not count:
        return 0, 0
    low, high = ordered[count - 1 >> 1], ordered[count >> 1]
    return (low & _CELL_MASK) - _CELL_ZERO, (high & _CELL_MASK) - _CELL_ZERO
