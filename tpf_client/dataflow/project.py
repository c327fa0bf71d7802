"""Project: only some variables, in a given order; absent ones are unbound."""

from collections.abc import Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import Multiset, Schema, Solution, projection
from tpf_client.dataflow.node import Node


class Project(Node):
    """Solutions reduced to `variables`."""

    def __init__(self, upstream: Node, variables: Sequence[Variable]) -> None:
        super().__init__(
            variables, upstream.certain & frozenset(variables), monotone=upstream.monotone
        )
        reduce = projection(upstream.schema, self.schema)

        def push(solution: Solution, count: int) -> None:
            self.emit(reduce(solution), count)

        upstream.connect(push)


def plain_project(rows: Multiset, schema: Schema, variables: Sequence[Variable]) -> Multiset:
    """The plain twin."""
    reduce = projection(schema, variables)
    result: Multiset = Multiset()
    for row, count in rows.items():
        result[reduce(row)] += count
    return result
