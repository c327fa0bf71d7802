"""The operator of the AGGREGATE clause: solutions extended by the aggregate of their group."""

from collections.abc import Callable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.extend import Compute
from tpf_client.dataflow.state.aggregates import Accumulator


class _Group:
    __slots__ = ("accumulator", "changes", "members", "shown")

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        self.members: dict[Solution, int] = {}
        self.changes: dict[Solution, int] = {}
        self.shown: TermId | None = None


class Aggregation(Node):
    """Adds a variable that holds the aggregate of all solutions with the same key.

    A change costs as much as there are solutions in its group, unless the aggregate stays the same.

    Args:
        upstream: where the solutions come from.
        variable: what is added.
        keys: the places of the grouping variables.
        argument: what is aggregated.
        make: a new accumulator.
    """

    def __init__(
        self,
        upstream: Node,
        variable: Variable,
        keys: Sequence[int],
        argument: Compute,
        make: Callable[[], Accumulator],
    ) -> None:
        super().__init__((*upstream.schema, variable), upstream.certain, monotone=False)
        self._keys = tuple(keys)
        self._argument = argument
        self._make = make
        self._groups: dict[Solution, _Group] = {}
        self._touched: dict[Solution, _Group] = {}
        upstream.connect(self._push)

    @property
    def pending(self) -> bool:
        """Whether something happened to a group."""
        return bool(self._touched)

    def _push(self, solution: Solution, count: int) -> None:
        key = tuple([solution[place] for place in self._keys])
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(self._make())
        group.accumulator.add(self._argument(solution), count)
        group.changes[solution] = group.changes.get(solution, 0) + count
        self._touched[key] = group

    def flush(self) -> None:
        """Send what changed: all members where the aggregate did, otherwise those that did."""
        touched, self._touched = self._touched, {}
        emit = self.emit
        for key, group in touched.items():
            members, changes = group.members, group.changes
            group.changes = {}
            before = group.shown
            now = group.accumulator.result()
            group.shown = now
            if before is not None and now != before:
                for solution, count in members.items():
                    emit((*solution, before), -count)
            for solution, count in changes.items():
                total = members.get(solution, 0) + count
                if total:
                    members[solution] = total
                else:
                    members.pop(solution, None)
                if now == before and count:
                    emit((*solution, now), count)
            if now != before:
                for solution, count in members.items():
                    emit((*solution, now), count)
            if not members:
                del self._groups[key]
