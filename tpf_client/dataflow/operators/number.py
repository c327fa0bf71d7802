"""Number: gives every distinct solution an identifier of its own, while it is there."""

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Node


class Number(Node):
    """Solutions with one more variable, different for different solutions.

    The identifiers are negative: they are no terms, they only tell rows apart, so that a correlated
    sub-pattern can be joined back to exactly the row that it was evaluated for.
    """

    def __init__(self, upstream: Node, variable: Variable) -> None:
        super().__init__(
            (*upstream.schema, variable), upstream.certain | {variable}, monotone=upstream.monotone
        )
        self._known: dict[Solution, tuple[int, int]] = {}
        self._last = 0
        upstream.connect(self._push)

    def _push(self, solution: Solution, count: int) -> None:
        known = self._known.get(solution)
        if known is None:
            self._last -= 1
            known = (self._last, 0)
        number, total = known[0], known[1] + count
        if total:
            self._known[solution] = (number, total)
        else:
            del self._known[solution]
        self.emit((*solution, number), count)
