"""Groups that emit once for each new solution (the original engine's way).

The row of a group is sent again for every solution that went into it in this tick, as it stands at
the end of the tick.
"""

from collections.abc import Callable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.aggregates import Accumulator, accumulator
from tpf_client.dataflow.builder import Builder
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.exists_builder import first_exists
from tpf_client.dataflow.node import Node
from tpf_client.sparql import algebra

Compute = Callable[[Solution], TermId]


class _State:
    __slots__ = ("accumulators", "fresh", "shown", "total")

    def __init__(self, accumulators: list[Accumulator]) -> None:
        self.accumulators = accumulators
        self.total = 0
        self.fresh = 0
        self.shown: list[tuple[Solution, int]] = []


class RowGroup(Node):
    """Groups by keys, and aggregates; a group is shown once for each solution that it got last.

    What is downstream sees, after each flush, the row of every group that got solutions in the last
    tick in which it got any, as often as it got some.

    Args:
        upstream: where the solutions come from.
        keys: variables of the output and how their values are computed.
        aggregates: variables, what they aggregate, and how.
    """

    def __init__(
        self,
        upstream: Node,
        keys: Sequence[tuple[Variable, Compute]],
        aggregates: Sequence[tuple[Variable, Compute, Callable[[], Accumulator]]],
    ) -> None:
        names = [name for name, *_ in keys] + [name for name, *_ in aggregates]
        super().__init__(names, frozenset(), monotone=False)
        self._keys = [compute for _, compute in keys]
        self._arguments = [compute for _, compute, _ in aggregates]
        self._factories = [factory for *_, factory in aggregates]
        self._groups: dict[Solution, _State] = {}
        self._touched: dict[Solution, None] = {}
        upstream.connect(self._push)

    @property
    def pending(self) -> bool:
        """Whether something happened to a group."""
        return bool(self._touched)

    def _push(self, solution: Solution, count: int) -> None:
        key = tuple([compute(solution) for compute in self._keys])
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _State([make() for make in self._factories])
        group.total += count
        if count > 0:
            group.fresh += count
        for accumulator_, argument in zip(group.accumulators, self._arguments, strict=True):
            accumulator_.add(argument(solution), count)
        self._touched[key] = None

    def flush(self) -> None:
        """Send the rows of the groups that something happened to."""
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        emit = self.emit
        for key in touched:
            group = self._groups[key]
            for row, count in group.shown:
                emit(row, -count)
            group.shown = []
            if group.fresh and group.total > 0:
                now = key + tuple([each.result() for each in group.accumulators])
                emit(now, group.fresh)
                group.shown.append((now, group.fresh))
            group.fresh = 0
            if not group.total and self._keys:
                del self._groups[key]


def build_group(builder: Builder, pattern: algebra.Group, node: Node) -> Node:
    """The `RowGroup` of a grouping whose expressions hold no EXISTS."""
    compiler = builder.compiler(node)
    typed = builder.environment.typed
    keys = [(name, compiler.binding(expression)) for name, expression in pattern.keys]
    aggregates = [
        (
            name,
            _one if each.argument is None else compiler.binding(each.argument),
            accumulator(each, typed),
        )
        for name, each in pattern.aggregates
    ]
    return builder.flow.add(RowGroup(node, keys, aggregates))


def _one(_solution: Solution) -> TermId:
    return 1


def emitting_group(query: algebra.Query) -> algebra.Group | None:
    """The grouping whose rows are the rows of the query; ``None`` where there is more to it.

    Where something above a grouping looks at all its rows (an order with a limit, a join), the rows
    must stay.
    """
    pattern = query.pattern
    while isinstance(pattern, (algebra.Project, algebra.Extend, algebra.Filter)):
        pattern = pattern.input
    if not isinstance(pattern, algebra.Group):
        return None
    expressions = [each for _, each in pattern.keys]
    for _, each in pattern.aggregates:
        if each.argument is not None:
            expressions.append(each.argument)
        elif each.distinct:
            return None
    return None if any(first_exists(each) is not None for each in expressions) else pattern
