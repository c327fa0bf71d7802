"""The kernel of ranked groups in plain Python, to compare the compiled one with."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import Any, Final

from tpf_client.dataflow.state.ranked_groups import (
    LEAST,
    MEDIAN,
    MOST_PLACES,
    NONE,
    PARTS,
    SUM,
    WITH_ROW,
    Branch,
    Cells,
    IntegerColumn,
    Ranking,
)
from tpf_client.sparql.expressions.inlined import (
    DATE_TIME,
    INTEGER,
    SCALE_BITS,
    TAG,
    TAG_BITS,
)

_SCALE: Final = (1 << SCALE_BITS) - 1
_LEAST: Final = -(1 << 63)
_HALF: Final = 1 << 63
# Instants are behind all numbers.
_INSTANTS: Final[int] = 10 ** (2 * MOST_PLACES + 1)


class _Ordered:
    """Numbers in order with multiplicities, and their shown values."""

    __slots__ = ("_cells", "_kind")

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._cells: list[tuple[int, int]] = []

    def change(self, cell: int, sign: int) -> None:
        """Add or remove one."""
        entry = _value_of(cell), cell
        if sign > 0:
            insort(self._cells, entry)
        else:
            del self._cells[bisect_left(self._cells, entry)]

    def _ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        cells = self._cells
        if self._kind == MEDIAN:
            return cells[(len(cells) - 1) // 2], cells[len(cells) // 2]
        end = cells[0 if self._kind == LEAST else -1]
        return end, end

    @property
    def value(self) -> int:
        """The value that groups are ordered by."""
        low, high = self._ends()
        return (low[0] + high[0]) // 2

    @property
    def parts(self) -> Cells:
        """The shown values."""
        if not self._cells:
            return (0,) * PARTS
        low, high = self._ends()
        return low[1], high[1] if self._kind == MEDIAN else 0, 0


class _Total:
    """The sum of numbers, and how many of them are decimals."""

    __slots__ = ("_decimals", "value")

    def __init__(self) -> None:
        self.value = self._decimals = 0

    def change(self, cell: int, sign: int) -> None:
        """One more or one less."""
        self.value += sign * _value_of(cell)
        if cell & TAG != INTEGER:
            self._decimals += sign

    @property
    def parts(self) -> Cells:
        """What is shown."""
        low = (self.value + _HALF) % (2 * _HALF) - _HALF
        return low, self.value >> 64, self._decimals


class _Group:
    """A group: how many of its rows count and their numbers, for each branch."""

    __slots__ = ("held", "key", "numbers", "sizes")

    def __init__(self, key: Cells, branches: Sequence[Branch]) -> None:
        self.key = key
        self.held = 0
        self.sizes = [0] * len(branches)
        self.numbers: list[list[_Ordered | _Total]] = [
            [_Total() if kind == SUM else _Ordered(kind) for kind in branch.numbers]
            for branch in branches
        ]


class _Entry:
    """A row in a branch."""

    __slots__ = ("at", "group", "keys", "mine", "numbers", "passes", "theirs")

    def __init__(self, at: int) -> None:
        self.at = at
        self.group: _Group | None = None
        self.numbers: Cells = ()
        self.keys = (0, 0)
        self.mine = self.theirs = 0
        self.passes = True


class _Partner:
    """Rows that meet: those on the left, the values on the right, and the most of these."""

    __slots__ = ("left", "most", "right")

    def __init__(self) -> None:
        self.left: deque[_Entry] = deque()
        self.right: deque[int] = deque()
        self.most = _LEAST


class RankedGroups:
    """The window, its groups and the best of them.

    Attributes:
        changed: true if the last row of `run` may have changed the shown groups.
        refused: true if `run` stopped before a row whose subject is in the window.
        passed: the instant before the next row at which the shown groups may have changed (see
            `Ranking.ticks`); `WITH_ROW` where that came with the last one.
    """

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._branches = list(enumerate(ranking.branches))
        # Of which branch the cells of a row are, and where among its own.
        self._places = [
            (number, behind) for number, each in self._branches for behind in range(each.shown)
        ]
        self._width = max(max(each.width, each.other_width) for each in ranking.branches)
        # The subjects, and the entries of each branch that are not gone: there, and beyond a gate.
        self._log: deque[tuple[int, int]] = deque()
        self._subjects: set[int] = set()
        self._entries: list[deque[_Entry]] = [deque() for _ in ranking.branches]
        self._others: list[deque[_Entry]] = [deque() for _ in ranking.branches]
        self._partners: list[dict[int, _Partner]] = [{} for _ in ranking.branches]
        self._groups: dict[Cells, _Group] = {}
        self._touched: dict[_Group, None] = {}
        # The best groups in their order, those that are among them, and whether these are all.
        self._best: list[tuple[Any, ...]] = []
        self._ranks: dict[_Group, tuple[Any, ...]] = {}
        self._all = True
        self._reserve = max(32, 3 * ranking.wanted)
        self._before: list[Cells] | None = None
        self.changed = False
        self.refused = False
        self.passed = WITH_ROW

    def __len__(self) -> int:
        """Return the number of rows in the window."""
        return len(self._log)

    @property
    def groups(self) -> int:
        """Return the number of groups that have rows."""
        return len(self._groups)

    def batch(self, columns: Sequence[IntegerColumn], /) -> list[Any]:
        """Prepare rows for `run`.

        Args:
            columns: ascending times; subjects, unique in the window; then for each branch the keys,
                column by column, and a flag for wanted rows; its numbers (integers
                or decimals; for the
                least and the most instants, too), column by column; with another
                window its key here and
                there, and the values here and there.
        """
        rest = iter([column.tolist() for column in columns])
        found: list[Any] = [next(rest), next(rest)]
        for _, branch in self._branches:
            keys = list(zip(*[next(rest) for _ in range(self._ranking.keys)], strict=True))
            wanted = next(rest)
            cells = [key if flag else None for key, flag in zip(keys, wanted, strict=True)]
            nothing: list[Any] = [()] * len(cells)
            numbers = [next(rest) for _ in branch.numbers]
            gate = [next(rest) for _ in range(4 * (branch.other_width != NONE))]
            met = zip(*gate, strict=True) if gate else [None] * len(cells)
            given = zip(*numbers, strict=True) if numbers else nothing
            found.append(list(zip(cells, given, met, strict=True)))
        return found

    def run(self, batch: Any, start: int, stop: int, quiet: bool = False, /) -> int:
        """Take rows until one may have changed the shown groups.

        Args:
            batch: the rows.
            start: the first of them.
            stop: the first that is not taken.
            quiet: go on after changes.

        Returns:
            The first row that was not taken; see `changed` and `refused`.
        """
        times, rows, *parts = batch
        subjects, touched, apart = self._subjects, self._touched, self._ranking.apart
        self.changed = self.refused = False
        self.passed = WITH_ROW
        self._before = None
        for number in range(start, stop):
            at, subject = times[number], rows[number]
            if subject in subjects:
                self.refused = True
                return number
            if self._ranking.ticks and not quiet and self._pass(at):
                self.changed = True
                return number
            self._let_go(at)
            matters = False
            if apart and touched and self._place():
                matters = True
                self._before = self.shown()
            self._log.append((at, subject))
            subjects.add(subject)
            for (place, branch), part in zip(self._branches, parts, strict=True):
                self._enter(place, branch, at, *part[number])
            if touched:
                matters |= self._place()
            if matters and not quiet:
                self.changed = True
                return number + 1
            self._before = None
        return stop

    def shown(self) -> list[Cells]:
        """Return the rows of the shown groups."""
        best = self._best[self._ranking.offset : self._ranking.wanted]
        return [self._row(self._groups[key]) for *_, key in best]

    def before(self) -> list[Cells] | None:
        """Return the groups shown before the last row came, and after others had gone
        (`Ranking.apart`).

        ``None``: the same as before they went.
        """
        return self._before

    # --------------------------------------------------------------------------------- rows

    def _pass(self, until: int) -> bool:
        """Let time pass until a row comes, or shown groups may have changed; return True then."""
        while True:
            at = until
            for place, branch in self._branches:
                entries, others = self._entries[place], self._others[place]
                if entries:
                    at = min(at, entries[0].at + branch.width + 1)
                if others:
                    at = min(at, others[0].at + branch.other_width + 1)
            if at >= until:
                return False
            self._let_go(at)
            if self._touched and self._place():
                self.passed = at
                return True

    def _let_go(self, at: int) -> None:
        """Remove rows that are too old."""
        log = self._log
        for place, branch in self._branches:
            entries, others = self._entries[place], self._others[place]
            while entries and entries[0].at < at - branch.width:
                self._leave(place, entries.popleft())
            while others and others[0].at < at - branch.other_width:
                self._leave_other(place, branch, others.popleft())
        while log and log[0][0] < at - self._width:
            self._subjects.discard(log.popleft()[1])

    def _enter(
        self, place: int, branch: Branch, at: int, key: Cells | None, numbers: Cells, gate: Any
    ) -> None:
        if key is None and gate is None:
            return
        entry = _Entry(at)
        if gate is not None:
            entry.keys, entry.mine, entry.theirs = gate[:2], gate[2], gate[3]
            self._others[place].append(entry)
            right = self._partner(place, entry.keys[1])
            right.right.append(entry.theirs)
            if entry.theirs > right.most:
                right.most = entry.theirs
                self._look_again(place, branch, right)
            if key is None:
                return
            left = self._partner(place, entry.keys[0])
            left.left.append(entry)
            entry.passes = (left.most > entry.mine) != branch.negated
        assert key is not None
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(key, self._ranking.branches)
        group.held += 1
        entry.group, entry.numbers = group, numbers
        self._entries[place].append(entry)
        if entry.passes:
            self._count(place, group, numbers, 1)

    def _leave(self, place: int, entry: _Entry) -> None:
        group = entry.group
        assert group is not None
        if entry.passes:
            self._count(place, group, entry.numbers, -1)
        group.held -= 1
        if not group.held:
            self._touched[group] = None
        partner = self._partners[place].get(entry.keys[0])
        if partner is not None:
            partner.left.popleft()
            self._forget(place, entry.keys[0], partner)

    def _leave_other(self, place: int, branch: Branch, entry: _Entry) -> None:
        partner = self._partners[place][entry.keys[1]]
        partner.right.popleft()
        if entry.theirs == partner.most and entry.theirs not in partner.right:
            partner.most = max(partner.right, default=_LEAST)
            self._look_again(place, branch, partner)
        self._forget(place, entry.keys[1], partner)

    def _partner(self, place: int, key: int) -> _Partner:
        found = self._partners[place].get(key)
        if found is None:
            found = self._partners[place][key] = _Partner()
        return found

    def _forget(self, place: int, key: int, partner: _Partner) -> None:
        if not partner.left and not partner.right:
            del self._partners[place][key]

    def _look_again(self, place: int, branch: Branch, partner: _Partner) -> None:
        for entry in partner.left:
            passes = (partner.most > entry.mine) != branch.negated
            if passes != entry.passes:
                entry.passes = passes
                assert entry.group is not None
                self._count(place, entry.group, entry.numbers, 1 if passes else -1)

    def _count(self, place: int, group: _Group, numbers: Cells, sign: int) -> None:
        group.sizes[place] += sign
        self._touched[group] = None
        for kept, cell in zip(group.numbers[place], numbers, strict=True):
            kept.change(cell, sign)

    # -------------------------------------------------------------------------------- order

    def _place(self) -> bool:
        """Put groups in order; return True if shown groups may have changed."""
        best, ranks, wanted = self._best, self._ranks, self._ranking.wanted
        touched = list(self._touched)
        self._touched.clear()
        matters = False
        for group in touched:
            if group in ranks:
                place = bisect_left(best, ranks.pop(group))
                del best[place]
                matters = matters or place < wanted
        for group in touched:
            if not group.held:
                del self._groups[group.key]
            if not self._is_whole(group):
                continue
            # Most are behind by what decides first.
            if not self._all and (not best or self._amount(group, 0) > best[-1][0]):
                continue
            rank = self._rank(group)
            if not self._all and rank > best[-1]:
                continue
            ranks[group] = rank
            insort(best, rank)
            matters = matters or len(best) <= wanted or rank <= best[wanted - 1]
        if len(best) > 2 * self._reserve:
            for *_, key in best[self._reserve :]:
                del ranks[self._groups[key]]
            del best[self._reserve :]
            self._all = False
        elif len(best) < wanted and not self._all:
            every = [self._rank(each) for each in self._groups.values() if self._is_whole(each)]
            best[:] = nsmallest(self._reserve, every)
            self._all = len(best) == len(every)
            self._ranks = {self._groups[rank[-1]]: rank for rank in best}
            matters = True
        return matters

    def _is_whole(self, group: _Group) -> bool:
        return all(
            branch.least <= size <= branch.most
            for (_, branch), size in zip(self._branches, group.sizes, strict=True)
        )

    def _row(self, group: _Group) -> Cells:
        row = list(group.key)
        for size, numbers in zip(group.sizes, group.numbers, strict=True):
            row.append(size)
            for each in numbers:
                row += each.parts
        return tuple(row)

    def _rank(self, group: _Group) -> tuple[Any, ...]:
        """Return the sort value of a group, and its key."""
        row: Iterable[int] = ()
        if self._ranking.ties:
            whole = self._row(group)
            row = [whole[place] for place in self._ranking.ties]
        by = [self._amount(group, number) for number in range(len(self._ranking.order))]
        return (*by, *row, group.key)

    def _amount(self, group: _Group, number: int) -> int:
        """Return a number of a condition, in one scale for all."""
        place, over, descending = self._ranking.order[number]
        if place < self._ranking.keys:
            found = _value_of(group.key[place])
        else:
            branch, behind = self._places[place - self._ranking.keys]
            if behind:
                found = group.numbers[branch][(behind - 1) // PARTS].value
            else:
                found = group.sizes[branch] * 10**MOST_PLACES
        if over != NONE:
            size = group.sizes[self._places[over - self._ranking.keys][0]]
            # Towards zero.
            found = found // size if found >= 0 else -(-found // size)
        return -found if descending else found


def _value_of(cell: int) -> int:
    """Return the value of a cell, in one scale for all."""
    if cell & TAG == INTEGER:
        return (cell >> TAG_BITS) * 10**MOST_PLACES
    if cell & TAG == DATE_TIME:
        return (cell >> TAG_BITS) * 10**MOST_PLACES + _INSTANTS
    rest = cell >> TAG_BITS
    factor: int = 10 ** (MOST_PLACES - (rest & _SCALE))
    return (rest >> SCALE_BITS) * factor
