"""A plan whose windows, groups and order are one state while records come in batches.

It is for queries that show the first groups of windows' records (see `plan_shape`). No row becomes
a solution; operators are asked where the answer may have changed.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Solution, TermId
from tpf_client.dataflow.operators.group import Group
from tpf_client.dataflow.operators.matching import SemiJoin
from tpf_client.dataflow.operators.order import TopK
from tpf_client.dataflow.state.ranked_groups import (
    MIDDLES,
    MOST_PLACES,
    WITH_ROW,
    Cells,
    RankedGroups,
    Ranking,
)
from tpf_client.sparql.algebra import Expression
from tpf_client.sparql.expressions.inlined import (
    DATE_TIME,
    DECIMAL,
    INTEGER,
    MOST_SCALE,
    SCALE_BITS,
    TAG,
    TAG_BITS,
)
from tpf_server.continuous.runtime.plans.column_expressions import (
    Column,
    ColumnExpressions,
    RowMask,
)
from tpf_server.continuous.runtime.plans.plan import Plan
from tpf_server.continuous.runtime.windows.star_window import StarWindow

RowOf = Callable[[Sequence[Solution]], Solution]
"""A row of a node, of the rows of its groups."""
_REMEMBERED: Final = 1000
"""Rows that were shown and are kept."""
_KIND: Final = (1 << TAG_BITS + SCALE_BITS) - 1


class RowSource(NamedTuple):
    """A window, and the columns of its rows by the names that others have for them."""

    window: StarWindow
    columns: Mapping[Variable, int]


class GateShape(NamedTuple):
    """An EXISTS; rows meet that have the same value of `key`.

    Args:
        other: the source of the rows of the other window.
        mine: the compared value of a row; ``None``: nothing is compared.
        comparison: how the others compare: ``>``, ``<``, ``>=`` or ``<=``.
    """

    other: RowSource
    key: Variable
    mine: Variable | None
    theirs: Variable | None
    comparison: str
    node: SemiJoin


class GroupShape(NamedTuple):
    """The groups of rows.

    Args:
        keys: the position of each key of the whole among its own.
        shown: for each of its aggregates, the position of its median in the branch; 0: the count of
            rows.
        gate: selects the rows that count; ``None``: all.
    """

    source: RowSource
    group: Group
    keys: tuple[int, ...]
    shown: tuple[int, ...]
    gate: GateShape | None


class PlanShape(NamedTuple):
    """The groups and the order that a plan computes."""

    groups: tuple[GroupShape, ...]
    ranking: Ranking
    order: TopK
    row: RowOf


def are_numbers(column: Column, most: int) -> RowMask:
    """Mark the numbers with at most so many decimal digits."""
    tag, scale = column & TAG, column >> TAG_BITS & MOST_SCALE
    marked: RowMask = (tag == INTEGER) | ((tag == DECIMAL) & (scale <= most))
    return marked


class FusedRows(NamedTuple):
    """Rows of windows as columns.

    Args:
        cells: for each window the columns of its rows.
    """

    times: Column
    subjects: Column
    cells: Mapping[StarWindow, Sequence[Column]]


class FusedPlan:
    """The state of a plan.

    Attributes:
        apart: changes by expiries are emitted before a row comes.
        reached: the first row of a batch that it did not take, and the instant before this row to
            which time has passed, or `WITH_ROW`.
        changed: the answer may have changed then, or with the row before that.
        unfit: the last batch had values that it cannot compute with exactly.
        makes_terms: keys were computed that are terms of the table, held by the state alone.
    """

    def __init__(self, plan: Plan, shape: PlanShape) -> None:
        self.plan = plan
        self.windows: set[StarWindow] = {group.source.window for group in shape.groups}
        self.windows |= {each.gate.other.window for each in shape.groups if each.gate is not None}
        self.apart = shape.ranking.apart
        self.reached: tuple[int, int] = (0, WITH_ROW)
        self.changed = self.makes_terms = self.unfit = False
        self._shape = shape
        # Where what is shown of each branch begins.
        shown = [each.shown for each in shape.ranking.branches]
        self._first = list(accumulate(shown, initial=shape.ranking.keys))
        self._expressions = ColumnExpressions(plan.flow.dictionary.encode)
        self._state = RankedGroups(shape.ranking)
        # The tags and scales of the numbers that an EXISTS compares.
        self._kinds: dict[int, int] = {}
        self.made: dict[Cells, Solution] = {}

    @property
    def operators(self) -> list[str]:
        groups = self._shape.groups
        names = ["window", "groups"]
        if any(each.gate is not None for each in groups):
            names.append("exists")
        if any(each.medians for each in self._shape.ranking.branches):
            names.append("median")
        return [*names, *(["join"] if len(groups) > 1 else []), "order"]

    @property
    def is_empty(self) -> bool:
        """True if its windows hold nothing, and no operator holds something back."""
        held = any(each.held for each in self.windows)
        return not held and not any(node.pending for node in self.plan.flow.nodes)

    def forget(self) -> None:
        """Give up: the operators have the rows."""
        self._state = RankedGroups(self._shape.ranking)
        self._kinds.clear()
        # Terms that operators computed for them are held by nothing else.
        self.made.clear()
        self.changed = self.makes_terms = False

    # --------------------------------------------------------------------------------- rows

    def prepared(self, rows: FusedRows, count: int) -> tuple[list[Column], int]:
        """Return the columns for the state, and how many of the first rows can be taken."""
        columns = [rows.times]
        for number, group in enumerate(self._shape.groups):
            some, count = self._group_columns(rows, number, group, count)
            columns += some
            if not count:
                break
        return columns, count

    def batch(self, columns: Sequence[Column], count: int) -> Any:
        """Return rows for `go_on`."""
        self.reached = (0, WITH_ROW)
        self.changed = False
        return self._state.batch([column[:count] for column in columns])

    def go_on(self, batch: Any, stop: int) -> None:
        """Take rows until the answer may have changed; see `reached`."""
        state, (row, instant) = self._state, self.reached
        if self.apart and instant != WITH_ROW:
            # What went before this row is emitted with it.
            stop = row + 1
        self.reached = state.run(batch, row, stop), state.passed
        self.changed = state.changed

    def pass_to(self, until: int) -> int:
        """Let time pass until an instant, or until the answer may have changed; return when."""
        self.changed = self._state.pass_to(until)
        return self._state.passed if self.changed else until

    def show(self) -> None:
        self.changed = False
        self._shape.order.show(Counter(map(self._row, self._state.shown())))

    def _row(self, shown: Cells) -> Solution:
        row = self.made.get(shown)
        if row is None:
            if len(self.made) >= _REMEMBERED:
                self.made.clear()
            keys = shown[: self._shape.ranking.keys]
            parts = [
                self._part(group, keys, shown[first:])
                for first, group in zip(self._first, self._shape.groups, strict=False)
            ]
            row = self.made[shown] = self._shape.row(parts)
        return row

    def _part(self, group: GroupShape, keys: Cells, shown: Cells) -> Solution:
        own = [UNBOUND] * len(keys)
        for cell, position in zip(keys, group.keys, strict=True):
            own[position] = cell
        values: list[TermId] = []
        aggregates = group.group.groups.how.aggregates
        for (_, factory), position in zip(aggregates, group.shown, strict=True):
            if factory is None:
                values.append(shown[0] << TAG_BITS | INTEGER)
                continue
            low, high = shown[position : position + MIDDLES]
            if low != high:
                mean = factory()
                mean.add(low, 1)
                mean.add(high, 1)
                low = mean.result()
            values.append(low)
        return (*own, *values)

    # ------------------------------------------------------------------------------ columns

    def _group_columns(
        self, rows: FusedRows, number: int, group: GroupShape, count: int
    ) -> tuple[list[Column], int]:
        window, positions = group.source
        how = group.group.groups.how
        width = len(how.keys)
        cells = rows.cells[window]
        columns = {name: cells[position][:count] for name, position in positions.items()}
        # In the order of the operator's input, as `values_of` takes them.
        columns = {name: columns[name] for name in group.group.upstream.schema}
        expressions = [each for each in how.expressions if each is not None]
        values, count = self._cells(expressions, columns, how.values_of, count)
        keys, numbers = values[:width], values[width:]
        counted = self._counted(group, keys, count)
        count = self._numbers_only(number, keys, numbers, counted, count)
        result = [*[keys[position] for position in group.keys], counted, *numbers]
        if group.gate is not None:
            some, count = self._gate_columns(rows, number, group, group.gate, count)
            result += some
        return [each[:count] for each in result], count

    def _cells(
        self,
        expressions: Sequence[Expression],
        columns: Mapping[Any, Column],
        values_of: Any,
        count: int,
    ) -> tuple[list[Column], int]:
        """Return the values of expressions, and how many of the first rows have them."""
        values: list[Column] = []
        exact: RowMask = np.ones(count, np.bool_)
        for expression in expressions:
            computed = self._expressions.cells(expression, columns)
            if computed is None:
                exact = np.zeros(count, np.bool_)
                values = [np.zeros(count, np.int64) for _ in expressions]
                break
            values.append(computed[0])
            exact = exact & computed[1]
        if exact.all():
            return values, count
        values = [np.array(each) for each in values]
        for row in np.flatnonzero(~exact).tolist():
            here = values_of(tuple([int(column[row]) for column in columns.values()]))
            if not all(-(1 << 63) <= value < 1 << 63 for value in here):
                return [each[:row] for each in values], row
            for column, value in zip(values, here, strict=True):
                column[row] = value
                self.makes_terms = self.makes_terms or not value & TAG
        return values, count

    def _numbers_only(
        self,
        number: int,
        keys: Sequence[Column],
        numbers: Sequence[Column],
        counted: Column,
        count: int,
    ) -> int:
        wrong = np.zeros(count, np.bool_)
        own = self._shape.groups[number].keys
        for position, _, _ in self._shape.ranking.order:
            if position < len(keys):
                wrong |= ~are_numbers(keys[own[position]][:count], MOST_PLACES)
        for each in numbers:
            # The mean of two has one more digit.
            wrong |= ~are_numbers(each[:count], MOST_PLACES - 1)
        if len(self._shape.groups) > 1:
            for each in keys:
                wrong |= each[:count] == UNBOUND
        return _first_of(wrong & (counted[:count] != 0), count)

    def _counted(self, group: GroupShape, keys: Sequence[Column], count: int) -> Column:
        how = group.group.groups.how
        if how.condition is None or not count:
            return np.ones(count, np.int64)
        columns = {name: key[:count] for name, key in zip(how.keys, keys, strict=True)}
        computed = self._expressions.cells(how.condition, columns)
        if computed is None:
            truth, exact = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        else:
            truth, exact = computed[0] >> TAG_BITS != 0, computed[1]
        counted = truth.astype(np.int64)
        for row in np.flatnonzero(~exact).tolist():
            counted[row] = how.passes(tuple([int(column[row]) for column in keys]))
        return counted

    def _gate_columns(
        self, rows: FusedRows, number: int, group: GroupShape, gate: GateShape, count: int
    ) -> tuple[list[Column], int]:
        here, there = group.source.columns, gate.other.columns
        here_cells, there_cells = rows.cells[group.source.window], rows.cells[gate.other.window]
        own, other = here_cells[here[gate.key]][:count], there_cells[there[gate.key]][:count]
        if gate.mine is None or gate.theirs is None:
            return [own, other, np.zeros(count, np.int64), np.ones(count, np.int64)], count
        mine, theirs = here_cells[here[gate.mine]], there_cells[there[gate.theirs]]
        mine, theirs, count = self._compared(
            number, mine[:count], theirs[:count], gate.comparison, count
        )
        return [each[:count] for each in (own, other, mine, theirs)], count

    def _compared(
        self, number: int, mine: Column, theirs: Column, comparison: str, count: int
    ) -> tuple[Column, Column, int]:
        """Return values that compare as ``theirs > mine``, and how many first rows have them."""
        wrong = np.zeros(count, np.bool_)
        for column in (mine, theirs) if count else ():
            kinds = np.where(column & TAG == DECIMAL, column & _KIND, column & TAG)
            kind = self._kinds.setdefault(number, int(kinds[0]))
            wrong |= kinds != kind
            if kind & TAG not in (INTEGER, DECIMAL, DATE_TIME):
                wrong[:] = True
        shift = TAG_BITS
        if self._kinds.get(number, INTEGER) & TAG == DECIMAL:
            shift += SCALE_BITS
        mine, theirs = mine >> shift, theirs >> shift
        if comparison[0] == "<":
            mine, theirs = -mine, -theirs
        return mine - comparison.endswith("="), theirs, _first_of(wrong, count)


def _first_of(marks: RowMask, count: int) -> int:
    rows = np.flatnonzero(marks)
    return int(rows[0]) if len(rows) else count
