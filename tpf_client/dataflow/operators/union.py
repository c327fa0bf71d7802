"""Union: the solutions of several nodes, brought to one schema."""

from tpf_client.dataflow.changes import Schema, Sink, Solution, projection
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
