"""The base of left join, minus and exists: count the partners of every left solution.

Absence is final only when the inputs of a tick are complete, so it is sent at `flush`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Condition, Sink, Solution, TermId
from tpf_client.dataflow.node import Node, Work
from tpf_client.dataflow.operators.hash_join import put
from tpf_client.dataflow.operators.layout import Layout, layout
from tpf_client.sparql.algebra import Expression

Pair = Callable[[Solution, Solution], bool]

_LOOK_AT = 32
"""Left solutions that are asked about one by one, again and again: those that came first."""


class LeftState:
    """The state of one left solution.

    `shown` are the copies for which something was sent, `had_partners` how.
    """

    __slots__ = ("count", "had_partners", "key", "partners", "shown")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.count = 0
        self.partners = 0
        self.shown = 0
        self.had_partners = False


class Matching(Node):
    """Count the partners of left solutions; subclasses send what follows."""

    def __init__(
        self,
        left: Node,
        right: Node,
        how: Layout,
        schema: tuple[Any, ...],
        certain: frozenset[Any],
        pair: Pair,
    ) -> None:
        super().__init__(schema, certain, monotone=False)
        self._left: dict[Any, dict[Solution, LeftState]] = {}
        self._right: dict[Any, dict[Solution, int]] = {}
        self._touched: dict[Solution, LeftState] = {}
        self._work: Work | None = None
        self._knows_all: Callable[[Solution], bool] | None = None
        self._hears = type(self).matched is not Matching.matched
        left.connect(self._left_sink(how.left_key, pair))
        right.connect(self._right_sink(how.right_key, pair))

    def decide_by(
        self, settled: Callable[[], bool], knows_all: Callable[[Solution], bool] | None
    ) -> None:
        """Take what tells that all partners have come: of all left solutions, or of one."""
        self.settled = settled
        self._knows_all = knows_all

    def limit(self, work: Work) -> None:
        self._work = work

    @property
    def pending(self) -> bool:
        return bool(self._touched)

    def matched(self, left: Solution, right: Solution, count: int) -> None:
        """Handle a matching pair that appears or vanishes, at once."""

    def render(self, left: Solution, has_partners: bool) -> Solution | None:
        """Return the row that a left solution gives by itself, if any."""
        raise NotImplementedError

    def _left_sink(self, key_of: Callable[[Solution], Any], pair: Pair) -> Sink:
        lefts, rights, touched = self._left, self._right, self._touched
        hears, matched = self._hears, self.matched

        def push(solution: Solution, count: int) -> None:
            key = key_of(solution)
            bucket = lefts.get(key)
            if bucket is None:
                bucket = lefts[key] = {}
            state = bucket.get(solution)
            partners = rights.get(key)
            if state is None:
                state = bucket[solution] = LeftState(key)
                if partners:
                    if self._work is not None:
                        self._work.spend(sum(partners.values()))
                    for other, times in partners.items():
                        if pair(solution, other):
                            state.partners += times
            state.count += count
            touched[solution] = state
            if partners and hears:
                for other, times in partners.items():
                    if pair(solution, other):
                        matched(solution, other, count * times)

        return push

    def _right_sink(self, key_of: Callable[[Solution], Any], pair: Pair) -> Sink:
        lefts, rights, touched = self._left, self._right, self._touched
        hears, matched = self._hears, self.matched

        def push(solution: Solution, count: int) -> None:
            key = key_of(solution)
            put(rights, key, solution, count)
            bucket = lefts.get(key)
            if not bucket:
                return
            if self._work is not None:
                self._work.spend(count * len(bucket))
            for other, state in bucket.items():
                if pair(other, solution):
                    state.partners += count
                    touched[other] = state
                    if hears:
                        matched(other, solution, state.count * count)

        return push

    def flush(self) -> None:
        """Send what changed about the touched left solutions."""
        if self._touched:
            touched = list(self._touched.items())
            self._touched.clear()
            self._send(touched)

    def flush_some(self) -> bool:
        """Send what is final of the first left solutions; return success."""
        if self._knows_all is None:
            return False
        first = islice(self._touched.items(), _LOOK_AT)
        final = [each for each in first if self._knows_all(each[0])]
        for solution, _ in final:
            del self._touched[solution]
        self._send(final)
        return bool(final)

    def _send(self, touched: Iterable[tuple[Solution, LeftState]]) -> None:
        emit, render = self.emit, self.render
        for solution, state in touched:
            count, has_partners = state.count, state.partners > 0
            kept = state.shown if state.had_partners == has_partners else 0
            for partners, change in (
                (state.had_partners, kept - state.shown),
                (has_partners, count - kept),
            ):
                row = render(solution, partners) if change else None
                if row is not None:
                    emit(row, change)
            state.shown = count
            state.had_partners = has_partners
            if not count:
                self._forget(solution, state)

    def _forget(self, solution: Solution, state: LeftState) -> None:
        bucket = self._left.get(state.key)
        if bucket is not None and bucket.get(solution) is state:
            if self._work is not None:
                self._work.spend(-sum(self._right.get(state.key, {}).values()))
            del bucket[solution]
            if not bucket:
                del self._left[state.key]


def _compatible(how: Layout, condition: Condition | None) -> Pair:
    def pair(one: Solution, other: Solution) -> bool:
        merged = how.merge(one, other)
        return merged is not None and (condition is None or condition(merged))

    return pair


# Left join: OPTIONAL.


class LeftJoin(Matching):
    """Merge compatible pairs that meet the condition; keep left solutions without any."""

    def __init__(self, left: Node, right: Node, condition: Condition | None = None) -> None:
        how = layout(left.schema, left.certain, right.schema, right.certain)
        self._merge = how.merge
        self._padding = (UNBOUND,) * (len(how.schema) - len(left.schema))
        super().__init__(left, right, how, how.schema, left.certain, _compatible(how, condition))

    def matched(self, left: Solution, right: Solution, count: int) -> None:
        merged = self._merge(left, right)
        if merged is not None and count:
            self.emit(merged, count)

    def render(self, left: Solution, has_partners: bool) -> Solution | None:
        return None if has_partners else left + self._padding


# Semi join: EXISTS and NOT EXISTS, as a filter or as a value.


class Mark(NamedTuple):
    """Bind a variable to whether there are partners, instead of filtering."""

    variable: Variable
    true: TermId
    false: TermId


class SemiJoin(Matching):
    """Keep left solutions that have a compatible right solution; `negated`: that have none.

    With a `mark` all are kept and its variable is added.
    """

    def __init__(
        self,
        left: Node,
        right: Node,
        *,
        negated: bool = False,
        condition: Condition | None = None,
        mark: Mark | None = None,
        expressions: Sequence[Expression] | None = None,
    ) -> None:
        how = layout(left.schema, left.certain, right.schema, right.certain)
        schema, certain = left.schema, left.certain
        if mark is not None:
            schema, certain = (*schema, mark.variable), certain | {mark.variable}
        self.left, self.right, self.negated = left, right, negated
        self.expressions = () if condition is None else expressions
        self._mark = mark
        super().__init__(left, right, how, schema, certain, _compatible(how, condition))
        if not negated and mark is None:
            self.monotone = left.monotone and right.monotone

    @property
    def filters(self) -> bool:
        """True if it filters solutions instead of marking them."""
        return self._mark is None

    def render(self, left: Solution, has_partners: bool) -> Solution | None:
        holds = has_partners != self.negated
        if self._mark is None:
            return left if holds else None
        return (*left, self._mark.true if holds else self._mark.false)


# Minus: solutions that share no bound variable with a right solution stay in any case.
#
# Source: SPARQL 1.1 Query Language, section 18.5.


class Minus(Matching):
    """Drop left solutions with a compatible right solution that shares a bound variable.

    Variables in `apart` do not count as shared, those in `given` only beside an unbound one.
    """

    def __init__(
        self,
        left: Node,
        right: Node,
        apart: Sequence[Variable] = (),
        given: Mapping[Variable, Variable] | None = None,
    ) -> None:
        how = layout(left.schema, left.certain, right.schema, right.certain)
        pair = removes(how, left.schema, right.schema, apart, given or {})
        super().__init__(left, right, how, left.schema, left.certain, pair)

    def render(self, left: Solution, has_partners: bool) -> Solution | None:
        """Return the left solution unless it is subtracted."""
        return None if has_partners else left


def removes(
    how: Layout,
    left: tuple[Variable, ...],
    right: tuple[Variable, ...],
    apart: Sequence[Variable],
    given: Mapping[Variable, Variable],
) -> Pair:
    """Return a test: does a right solution remove a left one with an equal key?"""
    counting = [name for name in how.shared if name not in apart and name not in given.values()]
    columns = [(left.index(name), right.index(name)) for name in counting if name not in given]
    unsure = [
        (left.index(name), right.index(name), left.index(given[name]))
        for name in counting
        if name in given
    ]

    def pair(one: Solution, other: Solution) -> bool:
        if how.merge(one, other) is None:
            return False
        return any(
            one[column] != UNBOUND and other[other_column] != UNBOUND
            for column, other_column in columns
        ) or any(
            one[column] != UNBOUND and other[other_column] != UNBOUND and one[outside] == UNBOUND
            for column, other_column, outside in unsure
        )

    return pair
