"""Grouping for streams: what was computed for a solution when it came is kept until it goes.

The solution that expires finds its group and its arguments again without any expression being
evaluated (the link from a leaf to what it made, paper 001, section 3.1). Conditions on the keys of
a group are decided once, when the group comes into being; the solutions of a group that fails them
cost nothing further.
"""

import itertools
from collections.abc import Callable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.aggregates import Accumulator, accumulator
from tpf_client.dataflow.builder import Builder
from tpf_client.dataflow.changes import Sink, Solution
from tpf_client.dataflow.exists_builder import first_exists
from tpf_client.dataflow.node import Node
from tpf_client.sparql import algebra
from tpf_server.cqels.arithmetic import ArithmeticCompiler
from tpf_server.cqels.dictionary import INTEGER, TAG_BITS
from tpf_server.cqels.inlined_median import InlinedMedian
from tpf_server.cqels.row_index import compiled


class _State:
    """A group; `key` is ``None`` for all groups that fail the conditions on their keys."""

    __slots__ = ("accumulators", "fresh", "key", "shown", "shown_count", "total")

    def __init__(self, key: Solution | None, accumulators: list[Accumulator]) -> None:
        self.key = key
        self.accumulators = accumulators
        self.total = 0
        self.fresh = 0
        self.shown: Solution | None = None
        self.shown_count = 0


class StreamGroup(Node):
    """Groups by keys, and aggregates.

    Args:
        upstream: where the solutions come from.
        keys: variables of the output. Without keys there is exactly one group, even of nothing.
        aggregates: variables of the output and how they are made; ``None`` counts the solutions.
        values_of: for a solution, the values of the keys, then what the aggregates with an
            accumulator see of it.
        passes: whether the group of a key is wanted.
        by_rows: a group is shown once for each solution that it got in the last tick in which it
            got any (the original engine's way), instead of once as long as it is there.
    """

    def __init__(
        self,
        upstream: Node,
        keys: Sequence[Variable],
        aggregates: Sequence[tuple[Variable, Callable[[], Accumulator] | None]],
        values_of: Callable[[Solution], Solution],
        passes: Callable[[Solution], bool],
        *,
        by_rows: bool,
    ) -> None:
        super().__init__((*keys, *(name for name, _ in aggregates)), frozenset(), monotone=False)
        self.unique = None if by_rows else frozenset(keys)
        self._keyed = bool(keys)
        # Counting whole solutions needs no accumulator: a group knows how many it has.
        self._factories = [factory for _, factory in aggregates if factory is not None]
        self._row = _row_maker([factory is None for _, factory in aggregates])
        self._passes = passes
        self._by_rows = by_rows
        self._groups: dict[Solution, _State] = {}
        self._rejected = _State(None, [])
        self._live: dict[Solution, tuple[_State, Solution, int]] = {}
        self._touched: dict[_State, None] = {}
        if not keys:
            self._touched[self._group(())] = None
        upstream.connect(self._sink(len(keys), values_of))

    @property
    def pending(self) -> bool:
        """Whether something happened to a group."""
        return bool(self._touched)

    @property
    def live(self) -> int:
        """How many different solutions are remembered."""
        return len(self._live)

    def _group(self, key: Solution) -> _State:
        group = self._groups.get(key)
        if group is None:
            if not self._passes(key):
                return self._rejected
            group = self._groups[key] = _State(key, [make() for make in self._factories])
        return group

    def _sink(self, keys: int, values_of: Callable[[Solution], Solution]) -> Sink:
        live, groups, touched, make_group = self._live, self._groups, self._touched, self._group
        rejected = self._rejected
        accumulates = bool(self._factories)

        def push(solution: Solution, count: int) -> None:
            known = live.pop(solution, None)
            if known is None:
                arguments = values_of(solution)
                total = count
                if accumulates:
                    key, arguments = arguments[:keys], arguments[keys:]
                    group = groups.get(key) or make_group(key)
                else:
                    group = groups.get(arguments) or make_group(arguments)
            else:
                group, arguments, total = known
                total += count
            if total:
                live[solution] = (group, arguments, total)
            if group is rejected:
                return
            group.total += count
            if count > 0:
                group.fresh += count
            if accumulates:
                for each, argument in zip(group.accumulators, arguments):  # noqa: B905 (hot)
                    each.add(argument, count)
            touched[group] = None

        return push

    def flush(self) -> None:
        """Send what changed about the groups that something happened to."""
        if not self._touched:
            return
        touched = list(self._touched)
        self._touched.clear()
        emit, row = self.emit, self._row
        by_rows, keyed = self._by_rows, self._keyed
        for group in touched:
            now: Solution | None = None
            count = 1
            if by_rows:
                count = group.fresh
                if count and group.total > 0:
                    now = row(group)
            elif group.total > 0 or not keyed:
                now = row(group)
            group.fresh = 0
            shown = group.shown
            if now != shown or (now is not None and count != group.shown_count):
                if shown is not None:
                    emit(shown, -group.shown_count)
                if now is not None:
                    emit(now, count)
                group.shown = now
                group.shown_count = count
            if not group.total and keyed:
                assert group.key is not None
                self._groups.pop(group.key, None)


def _row_maker(whole: Sequence[bool]) -> Callable[[_State], Solution]:
    """A function that makes the row of a group.

    Args:
        whole: for each aggregate whether it counts the solutions.
    """
    values = []
    places = itertools.count()
    for each in whole:
        if each:
            values.append(f"group.total << {TAG_BITS} | {INTEGER}, ")
        else:
            values.append(f"group.accumulators[{next(places)}].result(), ")
    text = f"def row(group):\n    return (*group.key, {''.join(values)})"
    return compiled(text, "row", {})


def _anything(_key: Solution) -> bool:
    return True


def simple_group(pattern: algebra.Group) -> bool:
    """Whether a grouping is one for `StreamGroup`: no EXISTS, no ``COUNT(DISTINCT *)``."""
    expressions = [each for _, each in pattern.keys]
    for _, each in pattern.aggregates:
        if each.argument is not None:
            expressions.append(each.argument)
        elif each.distinct:
            return False
    return all(first_exists(each) is None for each in expressions)


def build_group(
    builder: Builder,
    pattern: algebra.Group,
    node: Node,
    conditions: Sequence[algebra.Expression],
    *,
    by_rows: bool,
) -> Node:
    """The `StreamGroup` of a simple grouping.

    Args:
        builder: makes the expressions and takes in the node.
        pattern: the grouping.
        node: its input.
        conditions: on its keys alone.
        by_rows: see `StreamGroup`.
    """
    environment = builder.environment
    compiler = ArithmeticCompiler(environment, node.schema)
    aggregates: list[tuple[Variable, Callable[[], Accumulator] | None]] = []
    arguments: list[algebra.Expression] = []
    for name, each in pattern.aggregates:
        argument = each.argument
        whole = argument is None or (
            each.name == "COUNT"
            and not each.distinct
            and isinstance(argument, algebra.VariableRef)
            and argument.variable in node.certain
        )
        aggregates.append(
            (name, None if whole else accumulator(each, environment.typed, InlinedMedian))
        )
        if argument is not None and not whole:
            arguments.append(argument)
    keys = tuple(name for name, _ in pattern.keys)
    passes: Callable[[Solution], bool] = _anything
    if conditions:
        # One condition is one function.
        test: algebra.Expression = conditions[0]
        for condition in conditions[1:]:
            test = algebra.Call("&&", (test, condition))
        passes = ArithmeticCompiler(environment, keys).condition(test)
    values_of = compiler.bindings([*(expression for _, expression in pattern.keys), *arguments])
    return builder.flow.add(StreamGroup(node, keys, aggregates, values_of, passes, by_rows=by_rows))


def emitting_group(query: algebra.Query) -> algebra.Group | None:
    """The grouping whose rows are the rows of the query; ``None`` where there is more to it.

    Where something above a grouping looks at all its rows (an order with a limit, a join), the rows
    must stay.
    """
    pattern = query.pattern
    while isinstance(pattern, (algebra.Project, algebra.Extend, algebra.Filter)):
        pattern = pattern.input
    return pattern if isinstance(pattern, algebra.Group) and simple_group(pattern) else None
