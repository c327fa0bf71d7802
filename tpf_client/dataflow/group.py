"""Group: one solution per group of solutions, with its aggregates."""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from annotations.terms import Variable
from tpf_client.dataflow.aggregates import Accumulator
from tpf_client.dataflow.changes import UNBOUND, Multiset, Schema, Solution, TermId, projection
from tpf_client.dataflow.node import Node
from tpf_client.sparql.algebra import Aggregate, Expression

Compute = Callable[[Solution], TermId]


class _Group:
    __slots__ = ("accumulators", "shown", "total")

    def __init__(self, accumulators: list[Accumulator]) -> None:
        self.accumulators = accumulators
        self.total = 0
        self.shown: Solution | None = None


class Group(Node):
    """Groups by keys, and aggregates.

    Args:
        upstream: where the solutions come from.
        keys: variables of the output and how their values are computed. Without keys there is
            exactly one group, even of nothing.
        aggregates: variables of the output, what they aggregate, and how (see `argument_of`).
        certain: variables of the output that are bound in every solution.
    """

    def __init__(
        self,
        upstream: Node,
        keys: Sequence[tuple[Variable, Compute]],
        aggregates: Sequence[tuple[Variable, Compute, Callable[[], Accumulator]]],
        certain: Iterable[Variable] = (),
    ) -> None:
        names = [name for name, *_ in keys] + [name for name, *_ in aggregates]
        super().__init__(names, frozenset(certain), monotone=False)
        self._keys = [compute for _, compute in keys]
        self._arguments = [compute for _, compute, _ in aggregates]
        self._factories = [factory for *_, factory in aggregates]
        self._groups: dict[Solution, _Group] = {}
        self._touched: set[Solution] = set()
        if not keys:
            self._group(())
        upstream.connect(self._push)

    @property
    def pending(self) -> bool:
        """Whether something happened to a group."""
        return bool(self._touched)

    def _group(self, key: Solution) -> _Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group([make() for make in self._factories])
            self._touched.add(key)
        return group

    def _push(self, solution: Solution, count: int) -> None:
        key = tuple([compute(solution) for compute in self._keys])
        group = self._group(key)
        group.total += count
        for accumulator, argument in zip(group.accumulators, self._arguments, strict=True):
            accumulator.add(argument(solution), count)
        self._touched.add(key)

    def flush(self) -> None:
        """Send what changed about the groups that something happened to."""
        touched, self._touched = self._touched, set()
        for key in touched:
            group = self._groups[key]
            now: Solution | None = None
            if group.total > 0 or not self._keys:
                now = key + tuple([each.result() for each in group.accumulators])
            if now != group.shown:
                if group.shown is not None:
                    self.emit(group.shown, -1)
                if now is not None:
                    self.emit(now, 1)
                group.shown = now
            if not group.total and self._keys:
                del self._groups[key]


def argument_of(
    aggregate: Aggregate, schema: Schema, compile_it: Callable[[Expression], Compute]
) -> Compute:
    """What an aggregate counts or adds up of a solution.

    Args:
        aggregate: the aggregate.
        schema: of the solutions.
        compile_it: makes a function of an expression.

    Returns:
        A function to the term of the argument. ``COUNT(*)`` has no argument: any term will do.
        ``COUNT(DISTINCT *)`` tells solutions apart that the query can tell apart: by the tuple of
        the visible variables' values, unbound ones included, in place of a term. The accumulator
        only looks at whether such arguments are equal.
    """
    if aggregate.argument is not None:
        return compile_it(aggregate.argument)
    if not aggregate.distinct:
        return _any_term
    return cast(Compute, projection(schema, [n for n in schema if not n.startswith("?.")]))


def _any_term(_solution: Solution) -> TermId:
    return UNBOUND + 1


def plain_group(
    rows: Multiset,
    keys: Sequence[Compute],
    aggregates: Sequence[tuple[Compute, Callable[[], Accumulator]]],
) -> Multiset:
    """The plain twin: fresh accumulators that only ever see the whole group."""
    groups: dict[Solution, Multiset] = {} if keys else {(): Multiset()}
    for row, count in rows.items():
        groups.setdefault(tuple(compute(row) for compute in keys), Multiset())[row] += count
    result: Multiset = Multiset()
    for key, members in groups.items():
        values = []
        for argument, make in aggregates:
            fresh = make()
            for row, count in members.items():
                fresh.add(argument(row), count)
            values.append(fresh.result())
        result[key + tuple(values)] += 1
    return result
