"""Group: one solution per group of solutions, with its aggregates."""

from collections.abc import Callable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.aggregates import Accumulator
from tpf_client.dataflow.changes import Multiset, Solution, TermId
from tpf_client.dataflow.node import Node

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
        aggregates: variables of the output, what they aggregate (``None``: whole solutions, for
            ``COUNT(*)``), and how. For ``COUNT(DISTINCT *)`` the argument must be an identifier of
            the solution (see `Number`).
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
