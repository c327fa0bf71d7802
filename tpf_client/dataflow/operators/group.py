"""Group: one solution per group of solutions, with its aggregates."""

from collections.abc import Collection, Iterable

from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Key, Node
from tpf_client.dataflow.state.groups import Grouping, Groups


class Group(Node):
    """Groups by keys, and aggregates: one solution for each group.

    Args:
        upstream: where the solutions come from.
        how: what is grouped how.

    Attributes:
        upstream: see above.
        groups: what it keeps.
    """

    def __init__(self, upstream: Node, how: Grouping) -> None:
        super().__init__(how.schema, how.certain, monotone=False, keyed=True, key=how.keys)
        self.upstream = upstream
        self.groups = groups = Groups(how)
        by_key, make, keyed = groups.by_key, groups.row, groups.keyed

        def row(key: Key) -> Solution | None:
            group = by_key.get(key)
            if group is None:
                return None
            made = group.row
            if made is None and (group.total > 0 or not keyed):
                made = group.row = make(group)
            return made

        self.row = row
        upstream.connect(groups.sink())

    @property
    def pending(self) -> bool:
        """Whether something happened to a group."""
        return bool(self.groups.touched)

    def loose(self) -> bool:
        """See `Node`."""
        return self.groups.loose

    def changed(self) -> Collection[Key]:
        """See `Node`."""
        return self.groups.drained() if self.groups.touched else ()

    def all_keys(self) -> Iterable[Key]:
        """See `Node`."""
        return self.groups.by_key
