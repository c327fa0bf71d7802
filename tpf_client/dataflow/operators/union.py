"""Union: the solutions of several nodes, brought to one schema."""

from tpf_client.dataflow.changes import Multiset, Schema, Sink, Solution, projection
from tpf_client.dataflow.node import Node


class Union(Node):
    """All solutions of all inputs; a variable that an input lacks is unbound."""

    def __init__(self, *inputs: Node) -> None:
        schema = tuple(dict.fromkeys(name for node in inputs for name in node.schema))
        certain = frozenset.intersection(*(node.certain for node in inputs))
        super().__init__(schema, certain, monotone=all(node.monotone for node in inputs))
        for node in inputs:
            node.connect(self._sink(node.schema))

    def _sink(self, source: Schema) -> Sink:
        widen = projection(source, self.schema)

        def push(solution: Solution, count: int) -> None:
            self.emit(widen(solution), count)

        return push


def plain_union(
    left: Multiset, left_schema: Schema, right: Multiset, right_schema: Schema
) -> Multiset:
    """The plain twin."""
    schema = tuple(dict.fromkeys((*left_schema, *right_schema)))
    result: Multiset = Multiset()
    for rows, source in ((left, left_schema), (right, right_schema)):
        widen = projection(source, schema)
        for row, count in rows.items():
            result[widen(row)] += count
    return result
