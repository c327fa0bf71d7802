"""Extend: one more variable, with a value computed from the solution."""

from collections.abc import Callable

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.node import Key, Node
from tpf_client.sparql.algebra import Expression

Compute = Callable[[Solution], TermId]


class Extend(Node):
    """Solutions with `variable` added; `UNBOUND` where `compute` says so (an error).

    Args:
        upstream: where the solutions come from.
        variable: a variable that `upstream` does not have.
        compute: the value.
        volatile: whether `compute` may give another value for the same solution (RAND, UUID, a new
            blank node). Then every copy gets its own value, and copies that vanish take back the
            values that were given.
        always: whether `compute` never gives `UNBOUND`.
        asks: whether to ask for the solutions instead of listening (see `Node`); not where the
            value is volatile.
        expression: the value as it was written; ``None``: it was not.

    Attributes:
        compute: see above.
        expression: see above.
    """

    def __init__(
        self,
        upstream: Node,
        variable: Variable,
        compute: Compute,
        *,
        volatile: bool = False,
        always: bool = False,
        asks: bool = False,
        expression: Expression | None = None,
    ) -> None:
        if variable in upstream.schema:
            raise ValueError(f"{variable} has a value already")
        certain = upstream.certain | {variable} if always else upstream.certain
        super().__init__((*upstream.schema, variable), certain, monotone=upstream.monotone)
        self.compute = compute
        self.expression = expression
        self._given: dict[Solution, list[TermId]] = {}
        self._owed: dict[Solution, int] = {}
        if asks:
            assert not volatile, "a volatile value is given once"
            row_of = upstream.row

            def row(key: Key) -> Solution | None:
                found = row_of(key)
                return None if found is None else (*found, compute(found))

            self.ask(upstream, row, upstream.key)
        elif volatile:
            upstream.connect(self._push_volatile)
        else:
            upstream.connect(self._push)

    def _push(self, solution: Solution, count: int) -> None:
        self.emit((*solution, self.compute(solution)), count)

    def _push_volatile(self, solution: Solution, count: int) -> None:
        given = self._given.setdefault(solution, [])
        # A copy may be taken back before it comes, within a tick; then the two cancel out here.
        balance = len(given) - self._owed.pop(solution, 0) + count
        while len(given) < balance:
            given.append(self.compute(solution))
            self.emit((*solution, given[-1]), 1)
        while given and len(given) > balance:
            self.emit((*solution, given.pop()), -1)
        if balance < 0:
            self._owed[solution] = -balance
        if not given:
            del self._given[solution]
