"""Assign solutions to the queries whose constants compare with them."""

from collections.abc import Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Node
from tpf_server.continuous.engine.plans.constant_index import Comparison, ConstantIndex
from tpf_server.continuous.engine.static.static_cache import INSTANCE


class Dispatch(Node):
    """Solutions with the queries that want them, computed once for all queries.

    The column `INSTANCE` holds the numbers of these queries, as a tuple, or that of one of them.
    Where it is there already it stays, and the constants of that query decide.

    Args:
        comparisons: the conditions, at least one; constants are looked up for the first.
        stamps: the columns with stamps (see `Watermark`), which are left out: a query gets the
            solutions whose stamps are not below its number.
        nets: additions and removals at the same time cancel out.
    """

    def __init__(
        self,
        upstream: Node,
        comparisons: Sequence[Comparison],
        stamps: Sequence[Variable],
        dictionary: TermDictionary,
        *,
        nets: bool,
    ) -> None:
        kept = [place for place, name in enumerate(upstream.schema) if name not in stamps]
        schema = [upstream.schema[place] for place in kept]
        apart = INSTANCE in schema
        super().__init__(
            schema if apart else (*schema, INSTANCE),
            upstream.certain - frozenset(stamps) | {INSTANCE},
            monotone=upstream.monotone,
        )
        self._comparisons = tuple(comparisons)
        self._constants: dict[int, Solution] = {}
        first = comparisons[0]
        self.index = ConstantIndex(first.operator, first.test, dictionary)
        self._stamps = [upstream.schema.index(name) for name in stamps]
        self._kept = kept if stamps else None
        self._nets = nets
        if apart:
            self._column = schema.index(INSTANCE)
            upstream.connect(self._push_one)
        else:
            upstream.connect(self._push)

    def add(self, number: int, constants: Sequence[TermId]) -> None:
        """Add a query."""
        self._constants[number] = tuple(constants)
        self.index.add(constants[0], number)

    def remove(self, number: int) -> None:
        """Remove a query."""
        self.index.remove(self._constants.pop(number)[0], number)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the cells that stand for the constants of `add`."""
        return tuple(each.variable for each in self._comparisons)

    def _push_one(self, solution: Solution, count: int) -> None:
        constants = self._constants[solution[self._column]]
        for comparison, constant in zip(self._comparisons, constants, strict=True):
            if not comparison.test((comparison.value(solution), constant)):
                return
        self.emit(solution, count)

    def _push(self, solution: Solution, count: int) -> None:
        first, *others = self._comparisons
        numbers = self.index.queries(first.value(solution))
        if not numbers:
            return
        if self._stamps:
            seen = min([solution[place] for place in self._stamps])
            numbers = [number for number in numbers if number <= seen]
        for place, comparison in enumerate(others, start=1):
            value, test = comparison.value(solution), comparison.test
            numbers = [n for n in numbers if test((value, self._constants[n][place]))]
        if not numbers:
            return
        if self._kept is not None:
            solution = tuple([solution[place] for place in self._kept])
        if self._kept is None or not self._nets:
            self.emit((*solution, tuple(numbers)), count)  # type: ignore[arg-type]
            return
        # An equal solution that goes at the same time may have come before some of them.
        for number in numbers:
            self.emit((*solution, number), count)
