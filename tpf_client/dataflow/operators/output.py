"""Output: the present result of a dataflow, and what changed of it since it was last asked."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from annotations.terms import Variable
from tpf_client.dataflow.changes import Change, Multiset, Solution, projection
from tpf_client.dataflow.node import Node


class Output:
    """Collects the changes of a tick and nets them.

    Args:
        upstream: the last node.
        variables: the variables of the result; others of the node only serve the order.
        order: the sorting key of a solution *of the upstream schema*; ``None``: no order.
        on_change: called with each change of the result as it arrives, before it is netted (for
            results that stream while requests run; sensible where the node is monotone).
    """

    def __init__(
        self,
        upstream: Node,
        variables: Sequence[Variable],
        order: Callable[[Solution], Any] | None = None,
        on_change: Callable[[Solution, int], None] | None = None,
    ) -> None:
        self.node = upstream
        self.variables = tuple(variables)
        self.on_change = on_change
        self._order = order
        self._visible = projection(upstream.schema, self.variables)
        self._rows: dict[Solution, int] = {}
        self._changes: dict[Solution, int] = {}
        upstream.connect(self._push)

    @property
    def ordered(self) -> bool:
        """Whether the rows have an order."""
        return self._order is not None

    def _push(self, solution: Solution, count: int) -> None:
        total = self._rows.get(solution, 0) + count
        if total:
            self._rows[solution] = total
        else:
            self._rows.pop(solution, None)
        seen = self._visible(solution)
        self._changes[seen] = self._changes.get(seen, 0) + count
        if self.on_change is not None:
            self.on_change(seen, count)

    def take_changes(self) -> list[Change]:
        """What changed since this was last called, netted: each solution once, never zero."""
        changes = [(solution, count) for solution, count in self._changes.items() if count]
        self._changes = {}
        return changes

    def rows(self) -> Iterator[Solution]:
        """The present result: every copy, in order where the query has one."""
        rows = list(self._rows.items())
        if self._order is not None:
            order = self._order
            rows.sort(key=lambda row: order(row[0]))
        for row, count in rows:
            seen = self._visible(row)
            for _ in range(count):
                yield seen

    def multiset(self) -> Multiset:
        """The present result without its order."""
        result: Multiset = Multiset()
        for row, count in self._rows.items():
            result[self._visible(row)] += count
        return result

    def __len__(self) -> int:
        return sum(self._rows.values())
