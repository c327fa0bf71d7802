"""Project: only some variables, in a given order; absent ones are unbound."""

from collections.abc import Mapping, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import (
    Multiset,
    Schema,
    Sink,
    Solution,
    places_of,
    projection,
    selection,
)
from tpf_client.dataflow.node import Node


class Project(Node):
    """Solutions reduced to `variables`.

    A projection of a projection is one step: it listens to where the first gets its solutions from.

    Args:
        upstream: where the solutions come from.
        variables: the variables of the output.
        copies: variables of the output that have the value of another variable.
    """

    def __init__(
        self,
        upstream: Node,
        variables: Sequence[Variable],
        copies: Mapping[Variable, Variable] | None = None,
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
        if isinstance(upstream, Project):
            self._source = upstream._source
            places = tuple([upstream._places[place] if place >= 0 else -1 for place in places])
        self._places: tuple[int, ...] = places
        self._reduce = selection(places, len(self._source.schema))

    def connect(self, sink: Sink) -> None:
        """See `Node`; nothing comes from upstream before somebody listens."""
        reduce = self._reduce

        def push(solution: Solution, count: int) -> None:
            sink(reduce(solution), count)

        self._source.connect(push)
        super().connect(sink)


def plain_project(rows: Multiset, schema: Schema, variables: Sequence[Variable]) -> Multiset:
    """The plain twin."""
    reduce = projection(schema, variables)
    result: Multiset = Multiset()
    for row, count in rows.items():
        result[reduce(row)] += count
    return result
