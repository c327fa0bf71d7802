"""Semi join: EXISTS and NOT EXISTS, as a filter or as a value."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from annotations.terms import Variable
from tpf_client.dataflow.changes import Condition, Solution, TermId
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.layout import layout
from tpf_client.dataflow.operators.matching import LeftState, Matching
from tpf_client.sparql.algebra import Expression


class Mark(NamedTuple):
    """Adds a variable that says whether there are partners, instead of filtering by it."""

    variable: Variable
    true: TermId
    false: TermId


class SemiJoin(Matching):
    """Left solutions that have a compatible right solution, or that have none.

    Args:
        left: the solutions to keep or not.
        right: who may be compatible.
        negated: keep those without a partner.
        condition: sees the merged solution (schema: all of the left, then what only the right has);
            a partner is one for which it is true.
        mark: keep all, with this variable added (`negated` turns its value around).
        expressions: the condition as it was written: all of these hold. ``None``: it was not.

    Attributes:
        left: see above.
        right: see above.
        negated: see above.
        expressions: see above.
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

        rest, exact = how.rest, not how.loose

        def pair(one: Solution, other: Solution) -> bool:
            merged = one + rest(other) if exact else how.merge(one, other)
            return merged is not None and (condition is None or condition(merged))

        super().__init__(left, right, how, schema, certain, pair)
        if not negated and mark is None:
            self.monotone = left.monotone and right.monotone

    @property
    def filters(self) -> bool:
        """Whether it lets solutions through or not, instead of marking them."""
        return self._mark is None

    def render(self, left: Solution, has_partners: bool) -> Solution | None:
        """The left solution with its mark."""
        assert self._mark is not None
        holds = has_partners != self.negated
        return (*left, self._mark.true if holds else self._mark.false)

    def _send(self, touched: Iterable[tuple[Solution, LeftState]]) -> None:
        if self._mark is not None:
            super()._send(touched)
            return
        emit, negated = self.emit, self.negated
        for solution, state in touched:
            count = state.count
            kept = count if (state.partners > 0) != negated else 0
            if kept != state.shown:
                emit(solution, kept - state.shown)
                state.shown = kept
            if not count:
                self._forget(solution, state)
