"""Groups that are news whenever they get solutions, and what of a query they are for."""

from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Key, Node
from tpf_client.dataflow.state.groups import Grouping, Groups
from tpf_client.sparql import algebra


class EmittingGroup(Node):
    """Groups whose row is there once for each solution that the group got last.

    That is, in the last tick in which it got any: the way of the original engine.

    Args:
        upstream: where the solutions come from.
        how: what is grouped how.
    """

    def __init__(self, upstream: Node, how: Grouping) -> None:
        super().__init__(how.schema, how.certain, monotone=False)
        self.groups = Groups(how, counts_fresh=True)
        self._shown: dict[Key, tuple[Solution, int]] = {}
        upstream.connect(self.groups.sink())

    @property
    def pending(self) -> bool:
        """Whether something happened to a group."""
        return bool(self.groups.touched)

    def flush(self) -> None:
        """Send what changed about the groups that something happened to."""
        groups, shown = self.groups, self._shown
        if not groups.touched:
            return
        for group in groups.touched:
            key = group.key
            assert key is not None
            count, group.fresh = group.fresh, 0
            now = (groups.row(group), count) if count and group.total > 0 else None
            # Also where the row is that of the last tick: what is new is that solutions came.
            before = shown.pop(key, None)
            if before is not None:
                self.emit(before[0], -before[1])
            if now is not None:
                shown[key] = now
                self.emit(*now)
        groups.drained()


def emitting_group(query: algebra.Query) -> algebra.Group | None:
    """The grouping whose rows are the rows of the query; ``None`` where there is more to it.

    Where something above a grouping looks at all its rows (an order with a limit, a join), the rows
    must stay.
    """
    pattern = query.pattern
    while isinstance(pattern, (algebra.Project, algebra.OrderBy, algebra.Extend, algebra.Filter)):
        pattern = pattern.input
    return pattern if isinstance(pattern, algebra.Group) else None
