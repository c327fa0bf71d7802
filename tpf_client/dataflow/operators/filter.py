"""Filter: lets through the solutions for which a condition is true."""

from annotations.terms import Variable
from tpf_client.dataflow.changes import Condition, Solution
from tpf_client.dataflow.node import Key, Node
from tpf_client.sparql.algebra import Expression


class Filter(Node):
    """Solutions for which `condition` is true (an error counts as false).

    The condition must be a function of the solution alone: what came in comes out again when it
    goes.

    Args:
        upstream: where the solutions come from.
        condition: says which ones to let through.
        certain: variables that are bound in all of these; ``None``: as upstream.
        asks: whether to ask for the solutions instead of listening (see `Node`).
        expression: the condition as it was written; ``None``: it was not.

    Attributes:
        expression: see above.
    """

    def __init__(
        self,
        upstream: Node,
        condition: Condition,
        certain: frozenset[Variable] | None = None,
        *,
        asks: bool = False,
        expression: Expression | None = None,
    ) -> None:
        super().__init__(
            upstream.schema,
            upstream.certain if certain is None else certain,
            monotone=upstream.monotone,
        )
        self.expression = expression

        def push(solution: Solution, count: int) -> None:
            if condition(solution):
                self.emit(solution, count)

        if not asks:
            upstream.connect(push)
            return
        row_of = upstream.row

        def row(key: Key) -> Solution | None:
            found = row_of(key)
            return found if found is not None and condition(found) else None

        self.ask(upstream, row, upstream.key)
