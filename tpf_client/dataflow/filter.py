"""Filter: lets through the solutions for which a condition is true."""

from collections.abc import Callable

from annotations.terms import Variable
from tpf_client.dataflow.changes import Multiset, Solution
from tpf_client.dataflow.node import Node

Condition = Callable[[Solution], bool]


class Filter(Node):
    """Solutions for which `condition` is true (an error counts as false).

    The condition must be a function of the solution alone: what came in comes out again when it
    goes.

    Args:
        upstream: where the solutions come from.
        condition: says which ones to let through.
        certain: variables that are bound in all of these; ``None``: as upstream.
    """

    def __init__(
        self, upstream: Node, condition: Condition, certain: frozenset[Variable] | None = None
    ) -> None:
        super().__init__(
            upstream.schema,
            upstream.certain if certain is None else certain,
            monotone=upstream.monotone,
        )

        def push(solution: Solution, count: int) -> None:
            if condition(solution):
                self.emit(solution, count)

        upstream.connect(push)


def plain_filter(rows: Multiset, condition: Condition) -> Multiset:
    """The plain twin."""
    return Multiset({row: count for row, count in rows.items() if condition(row)})
