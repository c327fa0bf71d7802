"""The groups of solutions that come and go. Conditions on keys are decided once per group.

Computed values may be kept until their solution goes (paper 001, section 3.1).
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Sink, Solution
from tpf_client.dataflow.codegen import compiled
from tpf_client.dataflow.node import Work
from tpf_client.dataflow.state.aggregates import Accumulator, limit_accumulators
from tpf_client.sparql.algebra import Aggregate, Expression
from tpf_client.sparql.expressions.inlined import INTEGER, TAG_BITS


def _anything(_key: Solution) -> bool:
    return True


class GroupState:
    """A group; `key` is ``None`` for all groups that fail the conditions on their keys."""

    __slots__ = ("accumulators", "fresh", "key", "row", "total", "untouched")

    def __init__(self, key: Solution | None, accumulators: list[Accumulator]) -> None:
        self.key = key
        self.accumulators = accumulators
        self.total = 0
        self.fresh = 0
        self.row: Solution | None = None
        self.untouched = True

    def add(self, arguments: Sequence[Any], count: int) -> None:
        """Add solutions with these arguments of the aggregates."""
        self.total += count
        for each, value in zip(self.accumulators, arguments, strict=True):
            each.add(value, count)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The keys and aggregates of a grouping.

    Args:
        keys: without keys there is exactly one group, even of nothing.
        aggregates: ``None`` counts the solutions.
        values_of: the values of the keys, then the arguments of the accumulators.
        passes: the condition on keys; `condition` as written.
        remembers: keep the values of a solution until it goes, also volatile ones.
        expressions: what `values_of` computes; ``None``: the whole solution.
    """

    keys: tuple[Variable, ...]
    aggregates: Sequence[tuple[Variable, Callable[[], Accumulator] | None]]
    values_of: Callable[[Solution], tuple[Any, ...]]
    passes: Callable[[Solution], bool] = _anything
    certain: frozenset[Variable] = frozenset()
    remembers: bool = True
    expressions: tuple[Expression | None, ...] = ()
    condition: Expression | None = None
    written: tuple[Aggregate, ...] = ()

    @property
    def schema(self) -> tuple[Variable, ...]:
        return (*self.keys, *(name for name, _ in self.aggregates))


class Groups:
    """The groups of solutions that come and go.

    `loose`: some key has lacked a value.
    """

    def __init__(self, how: Grouping, *, counts_fresh: bool = False) -> None:
        # Counting whole solutions needs no accumulator: a group knows how many it has.
        self._factories = [factory for _, factory in how.aggregates if factory is not None]
        self.how = how
        self._counts_fresh = counts_fresh
        self._rejected = GroupState(None, [])
        self._rejected.untouched = False
        # The group of each solution, what its accumulators saw of it, and how often it is there.
        self._live: dict[Solution, tuple[GroupState, Any, int]] = {}
        self.by_key: dict[Solution, GroupState] = {}
        self.touched: list[GroupState] = []
        self.loose = False
        self.row = _row_maker([factory is None for _, factory in how.aggregates])
        self.keyed = bool(how.keys)
        self._work: Work | None = None
        if not self.keyed:
            only = self._new_group(())
            only.untouched = False
            self.touched.append(only)

    def limit(self, work: Work) -> None:
        self._work = work
        for group in self.by_key.values():
            limit_accumulators(group.accumulators, work)

    def _new_group(self, key: Solution) -> GroupState:
        if not self.how.passes(key):
            return self._rejected
        group = self.by_key[key] = self.state(key)
        if UNBOUND in key:
            self.loose = True
        return group

    def state(self, key: Solution) -> GroupState:
        """Make the state of a group, which nobody else knows."""
        group = GroupState(key, [make() for make in self._factories])
        if self._work is not None:
            limit_accumulators(group.accumulators, self._work)
        return group

    def sink(self) -> Sink:
        live, groups, touched, make_group = self._live, self.by_key, self.touched, self._new_group
        rejected, counts_fresh = self._rejected, self._counts_fresh
        keys, values_of = len(self.how.keys), self.how.values_of
        accumulates, single = bool(self._factories), len(self._factories) == 1
        remembers = self.how.remembers

        def push(solution: Solution, count: int) -> None:
            argument: Any = None
            entry = live.pop(solution, None) if remembers else None
            if entry is None:
                values = values_of(solution)
                total = count
                if single:
                    argument = values[keys]
                    values = values[:keys]
                elif accumulates:
                    argument = values[keys:]
                    values = values[:keys]
                group = groups.get(values) or make_group(values)
            else:
                group, argument, total = entry
                total += count
            if remembers and total:
                live[solution] = (group, argument, total)
            if group is rejected:
                return
            group.total += count
            if counts_fresh and count > 0:
                group.fresh += count
            if single:
                group.accumulators[0].add(argument, count)
            elif accumulates:
                for each, value in zip(group.accumulators, argument):  # noqa: B905 (hot)
                    each.add(value, count)
            if group.untouched:
                group.untouched = False
                group.row = None
                touched.append(group)

        return push

    def drained(self) -> list[Solution]:
        """Take the touched keys since the last call; forget empty groups."""
        keys = []
        for group in self.touched:
            key = group.key
            assert key is not None, "nothing happens to groups that are not wanted"
            group.untouched = True
            keys.append(key)
            # Without keys there is always one group.
            if not group.total and key:
                del self.by_key[key]
        self.touched.clear()
        return keys


def _row_maker(whole: Sequence[bool]) -> Callable[[GroupState], Solution]:
    values = []
    positions = itertools.count()
    for each in whole:
        if each:
            values.append(f"group.total << {TAG_BITS} | {INTEGER}, ")
        else:
            values.append(f"group.accumulators[{next(positions)}].result(), ")
    text = f"def row(group):\n    return (*group.key, {''.join(values)})"
    return compiled(text, "row", {})
