"""A plan whose windows, groups and order are one state, as long as records come in batches.

It is for queries that aggregate the records of windows by groups and show the first of these (see
`plan_shape`): no row then becomes a solution, and operators are asked only where what is shown may
have changed.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

import numpy as np

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Solution, TermId
from tpf_client.dataflow.kernels import ranked_groups
from tpf_client.dataflow.operators.basic import Distinct
from tpf_client.dataflow.operators.group import Group
from tpf_client.dataflow.operators.matching import SemiJoin
from tpf_client.dataflow.operators.order import TopK
from tpf_client.dataflow.state.aggregates import Accumulator, Sum
from tpf_client.dataflow.state.ranked_groups import (
    DECIMALS,
    HIGH,
    LEAST,
    LOW,
    MEDIAN,
    MOST,
    MOST_PLACES,
    MOST_SUMMED,
    NONE,
    PARTS,
    SUM,
    WITH_ROW,
    Cells,
    RankedState,
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
from tpf_server.continuous.engine.plans.column_expressions import (
    Column,
    ColumnExpressions,
    RowMask,
)
from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.windows.star_window import StarWindow

# What a plan comes to that can be one state (see `FusedPlan`): windows, groups, EXISTS, order.

RowOf = Callable[[Sequence[Solution]], Solution]
"""A row of a node, of the rows of its groups."""


class RowSource(NamedTuple):
    """Where rows come from.

    Args:
        window: a window.
        columns: of its rows, by the names that others have for them.
    """

    window: StarWindow
    columns: Mapping[Variable, int]


class GateShape(NamedTuple):
    """What EXISTS looks at; rows meet that have the same value of `key`.

    Args:
        other: where the others come from.
        key: a variable of both.
        mine: what of a row is compared, and with what of the others; ``None``: nothing is.
        theirs: see above.
        comparison: how the others compare: ``>``, ``<``, ``>=`` or ``<=``.
        node: the operator.
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
        source: where the rows come from.
        group: the operator.
        keys: where each key of the whole is among its own.
        numbers: for each of the numbers that are kept, which of the aggregates' arguments it is.
        shown: for each of its aggregates, where what is shown of it begins among what is shown of
            the branch; 0: it is how many rows count.
        gate: which rows count; ``None``: all.
    """

    source: RowSource
    group: Group
    keys: tuple[int, ...]
    numbers: tuple[int, ...]
    shown: tuple[int, ...]
    gate: GateShape | None


class PlanShape(NamedTuple):
    """What a plan comes to.

    Args:
        groups: how rows come to groups.
        ranking: what is kept of them.
        order: the operator at the end.
        row: makes a row of what is shown.
        distinct: operators that keep rows, too.
    """

    groups: tuple[GroupShape, ...]
    ranking: Ranking
    order: TopK
    row: RowOf
    distinct: tuple[Distinct, ...]


# The numbers of groups that are one state: which are exact there, and what comes of them.

_LOW_BITS: Final = (1 << 64) - 1
_POWERS: Final = np.array([10**power for power in range(MOST_PLACES + 1)], np.int64)


def are_numbers(column: Column, most: int) -> RowMask:
    """Which cells are numbers, with so many digits behind the point at most."""
    tag, scale = column & TAG, column >> TAG_BITS & MOST_SCALE
    found: RowMask = (tag == INTEGER) | ((tag == DECIMAL) & (scale <= most))
    return found


def _is_ordered(column: Column) -> RowMask:
    """Which cells are what the least and the most are found of: numbers and instants."""
    found: RowMask = are_numbers(column, MOST_PLACES) | (column & TAG == DATE_TIME)
    return found


def _is_middle(column: Column) -> RowMask:
    """Which cells are numbers that medians are made of: the mean of two has one more digit."""
    return are_numbers(column, MOST_PLACES - 1)


def _is_summed(column: Column) -> RowMask:
    """Which cells are numbers that are added up here."""
    decimal = column & TAG == DECIMAL
    scale = np.where(decimal, np.minimum(column >> TAG_BITS & MOST_SCALE, MOST_PLACES), 0)
    whole = np.abs(column >> TAG_BITS + SCALE_BITS * decimal) // _POWERS[scale]
    found: RowMask = are_numbers(column, MOST_PLACES) & (whole < MOST_SUMMED)
    return found


FITS: Final[dict[int, Callable[[Column], RowMask]]] = {
    LEAST: _is_ordered,
    MOST: _is_ordered,
    MEDIAN: _is_middle,
    SUM: _is_summed,
}
"""Which cells are exact, for each of what is kept of numbers."""


def result_of(kind: int, size: int, parts: Cells, factory: Callable[[], Accumulator]) -> TermId:
    """What an aggregate gives.

    Args:
        kind: what is kept of its numbers.
        size: how many there are.
        parts: what is shown of them.
        factory: makes what would keep them in the operators.
    """
    low, high = parts[LOW], parts[HIGH]
    if kind in (LEAST, MOST) or (kind == MEDIAN and low == high):
        return low
    found = factory()
    if kind == MEDIAN:
        found.add(low, 1)
        found.add(high, 1)
    else:
        total = (high << 64) + (low & _LOW_BITS)
        return cast("Sum", found).result_of(size, total, parts[DECIMALS])
    return found.result()


_REMEMBERED: Final = 1000
"""So many rows that were shown are kept, made of the same groups."""
_NEVER: Final = -(1 << 63)
_KIND: Final = (1 << TAG_BITS + SCALE_BITS) - 1


class FusedRows(NamedTuple):
    """Rows of windows as columns.

    Args:
        times: when they come.
        subjects: of the records.
        cells: for each window the columns of its rows.
        absent: for each window how many of the first rows are not in it.
    """

    times: Column
    subjects: Column
    cells: Mapping[StarWindow, Sequence[Column]]
    absent: Mapping[StarWindow, int]


class FusedPlan:
    """The state of a plan.

    Args:
        plan: the plan.
        shape: what it comes to.

    Attributes:
        windows: those that it is about.
        reached: the first row of a batch that it did not take, and the instant before this row to
            which time has passed, or `WITH_ROW`.
        changed: whether what it shows may have changed then, or with the row before that.
        refused: whether it cannot take that row.
        unfit: whether the last batch, or what the windows held, had values that it cannot
            compute with exactly.
        made: rows that were shown, so that they need not be made again.
        makes_terms: whether keys were computed that are terms of the table, which nothing holds
            but the state.
    """

    def __init__(self, plan: Plan, shape: PlanShape) -> None:
        self.plan = plan
        self.windows: set[StarWindow] = {group.source.window for group in shape.groups}
        self.windows |= {each.gate.other.window for each in shape.groups if each.gate is not None}
        self.reached: tuple[int, int] = (0, WITH_ROW)
        self.changed = self.refused = self.makes_terms = self.unfit = False
        self._shape = shape
        # Where what is shown of each branch begins.
        shown = [each.shown for each in shape.ranking.branches]
        self._first = list(accumulate(shown, initial=shape.ranking.keys))
        self._expressions = ColumnExpressions(plan.flow.dictionary.encode)
        self._state: RankedState = ranked_groups(shape.ranking)
        # What numbers a gate compares: a tag and a scale.
        self._kinds: dict[int, int] = {}
        self.made: dict[Cells, Solution] = {}
        # Where all of the result is emitted, the state says what that is; `None`: the operators do.
        self._answers = plan.delivery.answers and _is_total(plan, shape)
        self._answered: list[tuple[Solution, int]] | None = None
        self._key_tags: dict[int, int] = {}
        self._alike = True

    @property
    def operators(self) -> list[str]:
        """What is one state."""
        groups = self._shape.groups
        found = ["window", "groups"]
        if any(each.gate is not None for each in groups):
            found.append("exists")
        for each in groups:
            for written, place in zip(each.group.groups.how.written, each.shown, strict=True):
                if place and written.name.lower() not in found:
                    found.append(written.name.lower())
        return [*found, *(["join"] if len(groups) > 1 else []), "order"]

    @property
    def waits(self) -> bool:
        """Whether an operator holds something back."""
        return any(node.pending for node in self.plan.flow.nodes)

    def forget(self) -> None:
        """The operators get back what is theirs."""
        self._leave_answers()
        self._key_tags.clear()
        self._alike = True
        self._state = ranked_groups(self._shape.ranking)
        self._kinds.clear()
        # Terms that operators computed for them are held by nothing else.
        self.made.clear()
        self.changed = self.refused = self.makes_terms = False

    def clear_operators(self) -> None:
        """The operators forget what is kept here."""
        for group in self._shape.groups:
            group.group.groups.clear()
            if group.gate is not None:
                group.gate.node.clear()
        for each in self._shape.distinct:
            each.clear()
        self._shape.order.clear()

    def answer(self) -> None:
        """From now on the state says what is emitted, where it can; it was emitted so far."""
        if self._answers:
            answered = [(self._row(each), 1) for each in self._state.shown()]
            # Else the operators know what was emitted, and in which order.
            self._answered = answered if self._alike else None

    # --------------------------------------------------------------------------------- rows

    def prepared(self, rows: FusedRows, count: int) -> tuple[list[Column], int]:
        """Rows as the state takes them, and how many of the first ones can be.

        Args:
            rows: the rows.
            count: so many at most.
        """
        columns = [rows.times, rows.subjects]
        for number, group in enumerate(self._shape.groups):
            some, count = self._group_columns(rows, number, group, count)
            columns += some
            if not count:
                break
        return columns, count

    def take(self, columns: Sequence[Column], count: int) -> None:
        """Take rows that were in the windows already."""
        batch = self._state.batch([column[:count] for column in columns])
        self._state.run(batch, 0, count, True)

    def batch(self, columns: Sequence[Column], count: int) -> Any:
        """Rows for `go_on`."""
        self.reached = (0, WITH_ROW)
        self.changed = self.refused = False
        return self._state.batch([column[:count] for column in columns])

    def go_on(self, batch: Any, stop: int) -> None:
        """Take rows until what is shown may have changed; see `reached`."""
        state = self._state
        self.reached = state.run(batch, self.reached[0], stop), state.passed
        self.changed, self.refused = state.changed, state.refused

    def show_before(self) -> None:
        """Show what there was when the last row came."""
        before = self._state.before()
        if before is not None:
            self._shape.order.show(Counter(map(self._row, before)))

    def show(self) -> None:
        """Show what there is."""
        self.changed = False
        shown = self._state.shown()
        if self._answered is not None:
            answer = [(self._row(each), 1) for each in shown]
            if self._answers_as_they_are():
                if answer != self._answered:
                    self._answered = answer
                    self.plan.delivery.answer(answer)
                return
        self._shape.order.show(Counter(map(self._row, shown)))

    def _answers_as_they_are(self) -> bool:
        """Whether groups are shown in the order of the query; else the operators find it.

        So it is as long as there are no two keys of the same value, which are shown in the order
        in which they came to be.
        """
        if not self._alike:
            self._leave_answers()
        return self._answered is not None

    def _leave_answers(self) -> None:
        """The operators hear what was emitted."""
        answered, self._answered = self._answered, None
        if answered is not None:
            self._shape.order.shows([row for row, _ in answered])
            self.plan.delivery.hold(answered)

    def _row(self, shown: Cells) -> Solution:
        found = self.made.get(shown)
        if found is None:
            if len(self.made) >= _REMEMBERED:
                self.made.clear()
            keys = shown[: self._shape.ranking.keys]
            if self._answers:
                self._look_at_keys(keys)
            parts = [
                self._part(number, group, keys, shown[self._first[number] :])
                for number, group in enumerate(self._shape.groups)
            ]
            found = self.made[shown] = self._shape.row(parts)
        return found

    def _look_at_keys(self, keys: Cells) -> None:
        """See whether equal keys are the same: numbers of one type, without zeros at their end."""
        for place, cell in enumerate(keys):
            tag = self._key_tags.setdefault(place, cell & TAG)
            zero = not (cell >> TAG_BITS + SCALE_BITS) % 10
            long = tag == DECIMAL and cell & _KIND != tag and zero
            if long or cell & TAG != tag:
                self._alike = False

    def _part(self, number: int, group: GroupShape, keys: Cells, shown: Cells) -> Solution:
        """The row of a group as its operator would make it."""
        own = [UNBOUND] * len(keys)
        for cell, place in zip(keys, group.keys, strict=True):
            own[place] = cell
        kinds, size = self._shape.ranking.branches[number].numbers, shown[0]
        values: list[TermId] = []
        aggregates = group.group.groups.how.aggregates
        for (_, factory), place in zip(aggregates, group.shown, strict=True):
            if factory is None:
                values.append(size << TAG_BITS | INTEGER)
            else:
                kind = kinds[(place - 1) // PARTS]
                values.append(result_of(kind, size, shown[place : place + PARTS], factory))
        return (*own, *values)

    # ------------------------------------------------------------------------------ columns

    def _group_columns(
        self, rows: FusedRows, number: int, group: GroupShape, count: int
    ) -> tuple[list[Column], int]:
        window, places = group.source
        how = group.group.groups.how
        width, absent = len(how.keys), min(count, rows.absent.get(window, 0))
        cells = rows.cells[window]
        columns = {name: cells[place][absent:count] for name, place in places.items()}
        # In the order of the operator's input, as `values_of` takes them.
        columns = {name: columns[name] for name in group.group.upstream.schema}
        expressions = [each for each in how.expressions if each is not None]
        found, few = self._cells(expressions, columns, how.values_of, count - absent)
        keys, numbers = found[:width], [found[width + place] for place in group.numbers]
        wanted = self._wanted(group, keys, few)
        few = self._numbers_only(number, keys, numbers, wanted, few)
        count = absent + few
        result = [_padded(keys[place], absent, few) for place in group.keys]
        result.append(_padded(wanted, absent, few))
        result += [_padded(each, absent, few) for each in numbers]
        if group.gate is not None:
            some, count = self._gate_columns(rows, number, group, group.gate, count)
            result += some
        return result, count

    def _cells(
        self,
        expressions: Sequence[Expression],
        columns: Mapping[Any, Column],
        values_of: Any,
        count: int,
    ) -> tuple[list[Column], int]:
        """The values of expressions, and how many of the first rows have them."""
        if not count:
            return [np.zeros(0, np.int64) for _ in expressions], 0
        values: list[Column] = []
        exact: RowMask = np.ones(count, np.bool_)
        for expression in expressions:
            found = self._expressions.cells(expression, columns)
            if found is None:
                exact = np.zeros(count, np.bool_)
                values = [np.zeros(count, np.int64) for _ in expressions]
                break
            values.append(found[0])
            exact = exact & found[1]
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
        wanted: Column,
        count: int,
    ) -> int:
        """How many of the first rows have numbers where these are needed, and keys for a join."""
        wrong = np.zeros(count, np.bool_)
        own = self._shape.groups[number].keys
        for place, _, _ in self._shape.ranking.order:
            if place < len(keys):
                wrong |= ~are_numbers(keys[own[place]][:count], MOST_PLACES)
        kinds = self._shape.ranking.branches[number].numbers
        for kind, each in zip(kinds, numbers, strict=True):
            wrong |= ~FITS[kind](each[:count])
        if len(self._shape.groups) > 1:
            for each in keys:
                wrong |= each[:count] == UNBOUND
        found = np.flatnonzero(wrong & (wanted[:count] != 0))
        return int(found[0]) if len(found) else count

    def _wanted(self, group: GroupShape, keys: Sequence[Column], count: int) -> Column:
        how = group.group.groups.how
        if how.condition is None or not count:
            return np.ones(count, np.int64)
        columns = {name: key[:count] for name, key in zip(how.keys, keys, strict=True)}
        found = self._expressions.cells(how.condition, columns)
        if found is None:
            truth, exact = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        else:
            truth, exact = found[0] >> TAG_BITS != 0, found[1]
        wanted = truth.astype(np.int64)
        if not exact.all():
            for row in np.flatnonzero(~exact).tolist():
                wanted[row] = how.passes(tuple([int(column[row]) for column in keys]))
        return wanted

    def _gate_columns(
        self, rows: FusedRows, number: int, group: GroupShape, gate: GateShape, count: int
    ) -> tuple[list[Column], int]:
        """The keys of rows, here and there, and the values that are compared."""
        window, others = group.source.window, gate.other.window
        here, there = group.source.columns, gate.other.columns
        here_cells, there_cells = rows.cells[window], rows.cells[others]
        own, other = here_cells[here[gate.key]][:count], there_cells[there[gate.key]][:count]
        absent = min(count, rows.absent.get(window, 0))
        other_absent = min(count, rows.absent.get(others, 0))
        theirs = np.ones(count, np.int64)
        mine = np.zeros(count, np.int64)
        if gate.mine is not None and gate.theirs is not None:
            mine = here_cells[here[gate.mine]][:count]
            theirs = there_cells[there[gate.theirs]][:count]
            mine, theirs, count = self._compared(
                number, (mine, absent), (theirs, other_absent), gate.comparison, count
            )
        if other_absent:
            theirs = theirs.copy()
            theirs[:other_absent] = _NEVER
        return [each[:count] for each in (own, other, mine, theirs)], count

    def _compared(
        self,
        number: int,
        one: tuple[Column, int],
        other: tuple[Column, int],
        comparison: str,
        count: int,
    ) -> tuple[Column, Column, int]:
        """Values that compare as ``theirs > mine``, and how many of the first rows have them."""
        (mine, _), (theirs, _) = one, other
        wrong = np.zeros(count, np.bool_)
        for column, first in (one, other):
            if first == count:
                continue
            kinds = np.where(column & TAG == DECIMAL, column & _KIND, column & TAG)
            kind = self._kinds.setdefault(number, int(kinds[first]))
            if kind & TAG not in (INTEGER, DECIMAL, DATE_TIME):
                wrong[:] = True
            wrong[first:] |= kinds[first:] != kind
        found = np.flatnonzero(wrong)
        if len(found):
            count = int(found[0])
        shift = TAG_BITS
        if self._kinds.get(number, INTEGER) & TAG == DECIMAL:
            shift += SCALE_BITS
        mine, theirs = mine >> shift, theirs >> shift
        if comparison[0] == "<":
            mine, theirs = -mine, -theirs
        return mine - comparison.endswith("="), theirs, count


def _is_total(plan: Plan, shape: PlanShape) -> bool:
    """Whether the order of the query is that of the state, and has all keys of groups."""
    keys = {by.place for by in shape.ranking.order if by.over == NONE}
    return plan.order is shape.order.sorts_by and keys >= {*range(shape.ranking.keys)}


def _padded(column: Column, absent: int, count: int) -> Column:
    """A column behind as many zeros as rows are absent."""
    column = column[:count]
    return np.concatenate([np.zeros(absent, np.int64), column]) if absent else column
