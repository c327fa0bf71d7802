"""Recompute: whatever is not worth an operator of its own, under changes."""

from collections.abc import Callable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import Multiset, Sink, Solution
from tpf_client.dataflow.node import Node


class Recompute(Node):
    """Evaluates a function of whole inputs anew when an input changed, and sends the difference.

    The function is its own plain twin.

    Args:
        inputs: the nodes whose present multisets are the function's arguments.
        schema: variables of the output.
        function: from multisets, in the order of `inputs`, to the output.
        certain: variables that are always bound in the output.
    """

    def __init__(
        self,
        inputs: Sequence[Node],
        schema: Sequence[Variable],
        function: Callable[..., Multiset],
        certain: frozenset[Variable] = frozenset(),
    ) -> None:
        super().__init__(schema, certain, monotone=False)
        self._function = function
        self._rows = [Multiset() for _ in inputs]
        self._shown: Multiset = Multiset()
        # A function of nothing may have an output.
        self._stale = True
        for node, rows in zip(inputs, self._rows, strict=True):
            node.connect(self._sink(rows))

    @property
    def pending(self) -> bool:
        """Whether an input changed."""
        return self._stale

    def _sink(self, rows: Multiset) -> Sink:
        def push(solution: Solution, count: int) -> None:
            rows[solution] += count
            if not rows[solution]:
                del rows[solution]
            self._stale = True

        return push

    def flush(self) -> None:
        """Evaluate, and send the difference."""
        if not self._stale:
            return
        self._stale = False
        # Only what is there: within a tick a count may be negative.
        now = self._function(*(+rows for rows in self._rows))
        before, self._shown = self._shown, now
        for row in before.keys() | now.keys():
            change = now[row] - before[row]
            if change:
                self.emit(row, change)
