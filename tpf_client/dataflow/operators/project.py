"""Project: only some variables, in a given order; absent ones are unbound."""

from collections.abc import Mapping, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import (
    Sink,
    Solution,
    places_of,
    selection,
)
from tpf_client.dataflow.node import Key, Node


class Project(Node):
    """Solutions reduced to `variables`.

    A projection of a projection is one step: it listens to where the first gets its solutions from.

    Args:
        upstream: where the solutions come from.
        variables: the variables of the output.
        copies: variables of the output that have the value of another variable.
        asks: whether to ask for the solutions instead of listening (see `Node`).
    """

    def __init__(
        self,
        upstream: Node,
        variables: Sequence[Variable],
        copies: Mapping[Variable, Variable] | None = None,
        *,
        asks: bool = False,
    ) -> None:
        copied = copies or {}
        names = [copied.get(name, name) for name in variables]
        certain = frozenset(
            name
            for name, source in zip(variables, names, strict=True)
            if source in upstream.certain
        )
        super().__init__(variables, certain, monotone=upstream.monotone)
        places = places_of(upstream.schema, names)
        self._source: Node = upstream
        if isinstance(upstream, Project) and upstream.keyed == asks:
            self._source = upstream._source
            places = tuple([upstream._places[place] if place >= 0 else -1 for place in places])
        self._places: tuple[int, ...] = places
        self._reduce = reduce = selection(places, len(self._source.schema))
        if not asks:
            return
        key: tuple[Variable, ...] | None = None
        if upstream.key is not None and set(upstream.key) <= set(names):
            key = tuple([variables[names.index(name)] for name in upstream.key])
        row_of = self._source.row

        def row(key: Key) -> Solution | None:
            found = row_of(key)
            return None if found is None else reduce(found)

        same = places == tuple(range(len(self._source.schema)))
        self.ask(upstream, row_of if same else row, key)

    @property
    def taken(self) -> tuple[Node, tuple[int, ...]]:
        """Where its solutions come from, and the places of its values there; -1: unbound."""
        return self._source, self._places

    def connect(self, sink: Sink) -> None:
        """See `Node`; nothing comes from upstream before somebody listens."""
        if self.keyed:
            super().connect(sink)
            return
        reduce = self._reduce

        def push(solution: Solution, count: int) -> None:
            sink(reduce(solution), count)

        self._source.connect(push)
        super().connect(sink)
