"""What the steps of a route through a join cost, estimated from the rows that are there."""

from collections.abc import Sequence
from typing import Any

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.state.join_input import JoinInput
from tpf_client.dataflow.state.row_index import Columns, RowStatistics


class RouteCosts:
    """What the next step of a route costs, by the rows as they are now.

    Args:
        inputs: of the join.
    """

    def __init__(self, inputs: Sequence[JoinInput]) -> None:
        self._inputs = inputs
        self._statistics: dict[tuple[int, Columns], RowStatistics] = {}
        self._recent: dict[int, Sequence[Solution]] = {}

    def of(self, route: Sequence[int], place: int) -> tuple[bool, float, int]:
        """What comes next, at `place`, costs a row that took this route.

        Returns:
            Whether it is a cross product, the expected partners of a row, and all rows.
        """
        each = self._inputs[place]
        size = each.size()
        columns = each.columns_of({n for at in route for n in self._inputs[at].variables})
        if not columns or not size:
            return not columns, size, size
        statistics = self._statistics.get((place, columns))
        if statistics is None:
            statistics = self._statistics[place, columns] = each.bag.statistics(columns, size)
        keys = self._keys(route, [each.variables[column] for column in columns])
        if keys:
            return False, statistics.partners(keys), size
        return False, size / statistics.distinct, size

    def _keys(self, route: Sequence[int], names: Sequence[Variable]) -> Sequence[Any]:
        """Values of these variables, from some rows of the first input that has them all."""
        for place in route:
            variables = self._inputs[place].variables
            if all(name in variables for name in names):
                if place not in self._recent:
                    self._recent[place] = self._inputs[place].recent()
                sample = self._recent[place]
                at = [variables.index(name) for name in names]
                if len(at) == 1:
                    return [row[at[0]] for row in sample]
                return [tuple([row[p] for p in at]) for row in sample]
        return ()
