"""Distinct: every solution once, as long as there is at least one copy of it."""

from collections.abc import Iterator

from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Node


class Distinct(Node):
    """Every solution once.

    Args:
        upstream: where solutions come from.

    Attributes:
        upstream: see above.
    """

    def __init__(self, upstream: Node) -> None:
        super().__init__(upstream.schema, upstream.certain, monotone=upstream.monotone)
        self._counts: dict[Solution, int] = {}
        self.upstream = upstream
        upstream.connect(self._push)

    def present(self) -> Iterator[Solution]:
        """The solutions that there are now."""
        return (solution for solution, count in self._counts.items() if count > 0)

    @property
    def empty(self) -> bool:
        """Whether there is no solution now."""
        return not self._counts

    def clear(self) -> None:
        """Forget all solutions."""
        self._counts.clear()

    def _push(self, solution: Solution, count: int) -> None:
        counts = self._counts
        before = counts.get(solution, 0)
        after = before + count
        if after:
            counts[solution] = after
        else:
            counts.pop(solution, None)
        if before <= 0 < after:
            self.emit(solution, 1)
        elif after <= 0 < before:
            self.emit(solution, -1)
