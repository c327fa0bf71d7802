"""A join with static rows, which it looks up."""

from collections.abc import Collection
from typing import Any

from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.hash_join import HashJoin, put
from tpf_server.continuous.csparql.native.static_index import StaticIndex
from tpf_server.continuous.csparql.native.static_table import StaticTable


class StaticJoin(HashJoin):
    """A join with the rows of a table, and with further ones; what is among both is there once.

    Args:
        left: a node that shares variables with the right one, bound on both sides.
        right: what there is beside the table: a set of rows, of which the node keeps an index.
        table: of the pattern whose variables the right schema is.
        most: of so many triples of the table all are read at once.
    """

    _static: StaticIndex

    def __init__(self, left: Node, right: Node, table: StaticTable, most: int) -> None:
        super().__init__(left, right)
        shared = self._layout.shared
        assert shared
        assert not self._layout.loose
        schema = right.schema
        self._table = table
        self._most = most
        self._places = (
            tuple(schema.index(name) for name in shared),
            tuple(place for place, name in enumerate(schema) if name not in left.schema),
        )

    def follow(self, place: int) -> None:
        """Begin to follow the table.

        Args:
            place: of this join among those of its query.
        """
        self._static = self._table.index(*self._places, self, place, self._most)

    def close(self) -> None:
        """Follow it no more."""
        self._table.leave(self)

    @property
    def keys(self) -> Collection[Any]:
        """Those that it has left solutions of."""
        return self._left.keys()

    def _push_left(self, solution: Solution, count: int) -> None:
        key = self._left_key(solution)
        static = self._static[key]
        put(self._left, key, solution, count)
        self.probes += 1
        emit = self.emit
        beside = self._right.get(key)
        if not beside:
            for rest in static:
                emit(solution + rest, count)
            return
        for rest in beside:
            emit(solution + rest, count)
        for rest in static:
            if rest not in beside:
                emit(solution + rest, count)

    def _push_right(self, solution: Solution, count: int) -> None:
        key = self._right_key(solution)
        rest = self._rest(solution)
        put(self._right, key, rest, count)
        self.probes += 1
        partners = self._left.get(key)
        if partners and rest not in self._static[key]:
            emit = self.emit
            for partner, times in partners.items():
                emit(partner + rest, count * times)

    def static_change(self, key: Any, rest: Solution, count: int) -> None:
        """See `IndexUser`."""
        partners = self._left.get(key)
        if partners and rest not in self._right.get(key, ()):
            emit = self.emit
            for partner, times in partners.items():
                emit(partner + rest, count * times)
