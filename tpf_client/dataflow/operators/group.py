"""Group: one solution per group of solutions, with its aggregates."""

from collections.abc import Callable, Collection, Iterable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution, projection
from tpf_client.dataflow.node import Input, Key, Node, Work
from tpf_client.dataflow.operators.order import Slice, TopK
from tpf_client.dataflow.state.groups import Grouping, Groups

# An operator for each key by itself: the limit for each graph of GRAPH ?g.


class PerKey(Node):
    """Run an operator for each key, and send all outputs together."""

    def __init__(
        self, upstream: Node, keys: Sequence[Variable], make: Callable[[Node], Slice | TopK]
    ) -> None:
        super().__init__(upstream.schema, upstream.certain, monotone=False)
        self._upstream = upstream
        self._key = projection(upstream.schema, keys)
        self._make = make
        self._parts: dict[Solution, tuple[Input, Slice | TopK]] = {}
        upstream.connect(self._push)

    @property
    def pending(self) -> bool:
        """True if one of the operators holds something back."""
        return any(node.pending for _, node in self._parts.values())

    def _push(self, solution: Solution, count: int) -> None:
        key = self._key(solution)
        part = self._parts.get(key)
        if part is None:
            entry = Input(self._upstream.schema, self._upstream.certain)
            node = self._make(entry)
            node.connect(lambda row, change: self.emit(row, change))
            part = self._parts[key] = (entry, node)
        part[0].push(solution, count)

    def flush(self) -> None:
        for key, (_, node) in list(self._parts.items()):
            node.flush()
            if node.empty:
                del self._parts[key]


class Group(Node):
    """Group by keys, with aggregates: one solution per group."""

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

    def limit(self, work: Work) -> None:
        self.groups.limit(work)

    @property
    def pending(self) -> bool:
        return bool(self.groups.touched)

    def loose(self) -> bool:
        return self.groups.loose

    def changed(self) -> Collection[Key]:
        return self.groups.drained() if self.groups.touched else ()

    def all_keys(self) -> Iterable[Key]:
        return self.groups.by_key
