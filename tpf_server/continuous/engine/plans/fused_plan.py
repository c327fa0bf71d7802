"""A plan whose window, groups and order are one state, as long as records come in batches.

It is for queries that count the records of a window by groups and show the first of these: no row
then becomes a solution, and operators are asked only where what is shown may have changed. As soon
as anything else happens (an element by itself, another query, a look at the plan), the operators
get the rows of the window, and go on as if they had had them all the time.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.kernels import Kernel, ranked_groups
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.group import Group
from tpf_client.dataflow.operators.multiway_join import MultiwayJoin
from tpf_client.dataflow.operators.order import TopK
from tpf_client.dataflow.operators.project import Project
from tpf_client.dataflow.state.groups import Groups
from tpf_client.dataflow.state.ranked_groups import MOST_PLACES, Cells, RankedState, Ranking
from tpf_client.sparql.expressions.inlined import DECIMAL, INTEGER, MOST_SCALE, TAG, TAG_BITS
from tpf_client.sparql.ordering import SortKey
from tpf_server.continuous.engine.delivery import Phase
from tpf_server.continuous.engine.plans.column_expressions import (
    Column,
    ColumnExpressions,
    Rows,
)
from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.windows.star_window import StarWindow

_PATIENCE: Final = 8
"""So many times the rows that went back to the operators must come before they are taken again."""


class FusedRows(NamedTuple):
    """Rows of a window as columns.

    Args:
        times: when they come.
        subjects: of the records.
        cells: the columns of the rows.
    """

    times: Column
    subjects: Column
    cells: Sequence[Column]


class _Taken:
    """Rows, and how many of them were taken."""

    __slots__ = ("rows", "taken")

    def __init__(self, rows: FusedRows) -> None:
        self.rows = rows
        self.taken = 0


class FusedPlan:
    """The state of a plan, and how it is taken from its operators and given back.

    Args:
        plan: the plan.
        window: its only window.
        columns: which columns of it the groups take, and what they call them.
        groups: which it fills.
        order: of these.
        ranking: what they come to.
        places: where each value of a row of `order` is in a key and its size.
        kernel: what keeps the state.
        phase: of the engine.

    Attributes:
        active: whether the state is here, and not with the operators.
    """

    def __init__(
        self,
        plan: Plan,
        window: StarWindow,
        columns: Mapping[Variable, int],
        groups: Groups,
        order: TopK,
        ranking: Ranking,
        places: tuple[int, ...],
        kernel: Kernel,
        phase: Phase,
    ) -> None:
        self.window = window
        self.active = False
        self._plan = plan
        self._groups = groups
        self._order = order
        self._ranking = ranking
        self._places = places
        self._kernel: Kernel = kernel
        self._phase = phase
        self._columns = columns
        self._expressions = ColumnExpressions(plan.flow.dictionary.encode)
        self._state: RankedState = ranked_groups(kernel, ranking)
        self._taken: deque[_Taken] = deque()
        self._owed = 0

    def run(self, rows: FusedRows, passed: Callable[[int, int], None]) -> int:
        """Let rows come, one after the other, as far as that can be done here.

        Args:
            rows: at least one; none is older than the one before it, nor than the engine.
            passed: is told of rows that came: the time of the last one, and how many. What they
                changed is to be emitted before the next one comes.

        Returns:
            How many came.
        """
        count = len(rows.times)
        if not self.active and self._owed > 0:
            self._owed -= count
            return 0
        keys, wanted, count = self._keys(rows, count)
        if not count or (not self.active and not self._adopt()):
            return 0
        state = self._state
        batch = state.batch(rows.times[:count], rows.subjects[:count], keys, wanted)
        last = _Taken(rows)
        self._taken.append(last)
        done = 0
        while done < count and self.active:
            before, done = done, state.run(batch, done)
            last.taken = done
            if done > before:
                self.window.used = 1
                self.window.elsewhere = len(state)
                if state.changed:
                    self._show()
                self._trim()
                passed(int(rows.times[done - 1]), done - before)
            if self.active and state.refused:
                self.settle()
        return done

    def settle(self) -> None:
        """The operators get the rows of the window."""
        if not self.active:
            return
        self.active = False
        entries = self._entries()
        self._taken.clear()
        self._state = ranked_groups(self._kernel, self._ranking)
        self._owed = _PATIENCE * len(entries)
        self.window.elsewhere = 0
        for at, subject, row in entries:
            self.window.arrive_star(at, subject, row)
        # What comes out of it is what was shown already.
        self._plan.flush()

    def _entries(self) -> list[tuple[int, int, Solution]]:
        """The rows of the window, with their times and subjects."""
        found: list[tuple[int, int, Solution]] = []
        missing = len(self._state)
        for each in reversed(self._taken):
            part = slice(max(0, each.taken - missing), each.taken)
            missing -= part.stop - part.start
            times, subjects, cells = each.rows
            solutions = zip(*[column[part].tolist() for column in cells], strict=True)
            some = zip(times[part].tolist(), subjects[part].tolist(), solutions, strict=True)
            found[:0] = some
        assert not missing
        return found

    def _trim(self) -> None:
        taken = self._taken
        held = sum(each.taken for each in taken) - len(self._state)
        while len(taken) > 1 and held >= taken[0].taken:
            held -= taken.popleft().taken

    def _adopt(self) -> bool:
        """Take the rows of the window from the operators; whether that could be done."""
        entries = self.window.entries()
        if entries is None or self._groups.touched:
            return False
        if entries:
            try:
                times, subjects = (np.array([e[n] for e in entries], np.int64) for n in (0, 1))
                columns = zip(*[row for _, _, row in entries], strict=True)
                rows = FusedRows(times, subjects, [np.array(each, np.int64) for each in columns])
            except OverflowError:
                return False
            keys, wanted, count = self._keys(rows, len(entries))
            if count < len(entries):
                return False
            state = self._state
            state.run(state.batch(times, subjects, keys, wanted), 0, True)
            last = _Taken(rows)
            last.taken = count
            self._taken.append(last)
        self.window.clear()
        self.window.elsewhere = len(entries)
        self._groups.clear()
        self._order.clear()
        self.active = True
        return True

    def _show(self) -> None:
        before = self._state.before()
        if before is not None:
            self._order.show(Counter(map(self._row, before)))
        self._phase.inserting = True
        self._order.show(Counter(map(self._row, self._state.shown())))
        self._phase.inserting = False

    def _row(self, group: Cells) -> Solution:
        *key, size = group
        values = (*key, size << TAG_BITS | INTEGER)
        return tuple([values[place] for place in self._places])

    # -------------------------------------------------------------------------------- keys

    def _keys(self, rows: FusedRows, count: int) -> tuple[list[Column], Column, int]:
        """The keys of rows, whether their groups count, and how many of the rows have them."""
        how = self._groups.how
        columns = {name: rows.cells[place] for name, place in self._columns.items()}
        keys: list[Column] = []
        exact: Rows = np.ones(count, np.bool_)
        for expression in how.expressions:
            assert expression is not None
            found = self._expressions.cells(expression, columns)
            if found is None:
                exact = np.zeros(count, np.bool_)
                keys = [np.zeros(count, np.int64) for _ in how.keys]
                break
            keys.append(np.array(found[0]))
            exact = exact & found[1]
        for row in np.flatnonzero(~exact).tolist():
            values = how.values_of(tuple([int(column[row]) for column in columns.values()]))
            for column, value in zip(keys, values, strict=True):
                if not -(1 << 63) <= value < 1 << 63:
                    count = row
                    break
                column[row] = value
            else:
                continue
            break
        keys = [column[:count] for column in keys]
        wanted = self._wanted(keys, count)
        for place, _ in self._ranking.order:
            if place < len(keys):
                column = keys[place]
                scale = column >> TAG_BITS & MOST_SCALE
                numbers = ((column & TAG) == INTEGER) | (
                    ((column & TAG) == DECIMAL) & (scale <= MOST_PLACES)
                )
                others = np.flatnonzero(~numbers & (wanted != 0))
                if len(others):
                    count = min(count, int(others[0]))
        return [column[:count] for column in keys], wanted[:count], count

    def _wanted(self, keys: Sequence[Column], count: int) -> Column:
        how = self._groups.how
        if how.condition is None or not count:
            return np.ones(count, np.int64)
        found = self._expressions.cells(how.condition, dict(zip(how.keys, keys, strict=True)))
        if found is None:
            truth, exact = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        else:
            truth, exact = found[0] >> TAG_BITS != 0, found[1]
        wanted = truth.astype(np.int64)
        for row in np.flatnonzero(~exact).tolist():
            wanted[row] = how.passes(tuple([int(column[row]) for column in keys]))
        return wanted


def fused_plan(plan: Plan, kernel: Kernel, phase: Phase) -> FusedPlan | None:
    """The state of a plan that counts the records of one window by groups, and orders these.

    ``None``: it does something else.
    """
    leaves = plan.leaves
    nodes = plan.flow.nodes
    if kernel == "off" or plan.lifted or leaves.caches or leaves.unions or leaves.instance_bags:
        return None
    if len(leaves.subscriptions) != 1 or len(nodes) < 3:
        return None
    join, group, *projects, order = nodes
    window, entry = leaves.subscriptions[0]
    plain = type(window) is StarWindow and window.moves and not window.slides
    columns = join.columns_of(entry) if plain and isinstance(join, MultiwayJoin) else None
    if columns is None:
        return None
    assert isinstance(window, StarWindow)
    if type(group) is not Group or any(type(each) is not Project for each in projects):
        return None
    how = group.groups.how
    counts = len(how.aggregates) > 0 and all(factory is None for _, factory in how.aggregates)
    if not how.keys or not counts or len(how.expressions) != len(how.keys):
        return None
    if window.watermark is not None or type(order) is not TopK or order.limits is None:
        return None
    places = _places(order, group, len(how.keys))
    by = order.sorts_by.columns if isinstance(order.sorts_by, SortKey) else None
    if places is None or by is None:
        return None
    offset, wanted = order.limits
    if offset >= wanted or {*range(len(how.keys))} - {*places}:
        return None
    ranking = Ranking(
        keys=len(how.keys),
        order=tuple([(places[place], descending) for place, descending in by]),
        ties=places,
        offset=offset,
        wanted=wanted,
        width=window.width,
        apart=plan.flushes_early,
    )
    taken = dict(zip(join.schema, columns, strict=True))
    return FusedPlan(plan, window, taken, group.groups, order, ranking, places, kernel, phase)


def _places(order: TopK, group: Group, keys: int) -> tuple[int, ...] | None:
    """Where the values of what is ordered are in a key and the size of its group."""
    node: Node = order.upstream
    places = tuple(range(len(node.schema)))
    while isinstance(node, Project):
        node, taken = node.taken
        places = tuple([taken[place] if place >= 0 else -1 for place in places])
    if node is not group or -1 in places:
        return None
    # All that it counts is the same.
    return tuple([min(place, keys) for place in places])
