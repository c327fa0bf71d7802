"""Grouping for streams: the nodes, and what of a query they are for."""

from collections.abc import Callable, Collection, Iterable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.aggregates import Accumulator, accumulator
from tpf_client.dataflow.builder import Builder
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.exists_builder import first_exists
from tpf_client.dataflow.node import Node
from tpf_client.sparql import algebra
from tpf_server.cqels.arithmetic import ArithmeticCompiler
from tpf_server.cqels.groups import Grouping, Groups
from tpf_server.cqels.inlined_median import InlinedMedian
from tpf_server.cqels.keyed import Key, KeyedNode


class KeyedGroup(KeyedNode):
    """Groups by keys, and aggregates: one solution for each group.

    Args:
        upstream: where the solutions come from.
        how: what is grouped how.
    """

    def __init__(self, upstream: Node, how: Grouping) -> None:
        super().__init__(how.schema, frozenset(), how.keys)
        self.groups = groups = Groups(how)
        by_key, make, keyed = groups.by_key, groups.row, groups.keyed

        def row(key: Key) -> Solution | None:
            group = by_key.get(key)
            if group is None:
                return None
            made = group.row
            if made is None and (group.total > 0 or not keyed):
                made = group.row = make(group)
            return made

        self.row = row
        upstream.connect(groups.sink())

    @property
    def pending(self) -> bool:
        """Whether something happened to a group."""
        return bool(self.groups.touched)

    def loose(self) -> bool:
        """See `KeyedNode`."""
        return self.groups.loose

    def changed(self) -> Collection[Key]:
        """See `KeyedNode`."""
        return self.groups.drained() if self.groups.touched else ()

    def all_keys(self) -> Iterable[Key]:
        """See `KeyedNode`."""
        return self.groups.by_key


class EmittingGroup(Node):
    """Groups whose row is there once for each solution that the group got last.

    That is, in the last tick in which it got any: the way of the original engine.

    Args:
        upstream: where the solutions come from.
        how: what is grouped how.
    """

    def __init__(self, upstream: Node, how: Grouping) -> None:
        super().__init__(how.schema, frozenset(), monotone=False)
        self.groups = Groups(how, counts_fresh=True)
        self._shown: dict[Key, tuple[Solution, int]] = {}
        upstream.connect(self.groups.sink())

    @property
    def pending(self) -> bool:
        """Whether something happened to a group."""
        return bool(self.groups.touched)

    def flush(self) -> None:
        """Send what changed about the groups that something happened to."""
        groups, shown = self.groups, self._shown
        if not groups.touched:
            return
        for group in groups.touched:
            key = group.key
            assert key is not None
            count, group.fresh = group.fresh, 0
            now = (groups.row(group), count) if count and group.total > 0 else None
            before = shown.get(key)
            if now == before:
                continue
            if before is not None:
                self.emit(before[0], -before[1])
            if now is None:
                del shown[key]
            else:
                shown[key] = now
                self.emit(*now)
        groups.drained()


def _anything(_key: Solution) -> bool:
    return True


def simple_group(pattern: algebra.Group) -> bool:
    """Whether a grouping is one for this module: no EXISTS, no ``COUNT(DISTINCT *)``."""
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
    """The node of a simple grouping.

    Args:
        builder: makes the expressions and takes in the node.
        pattern: the grouping.
        node: its input.
        conditions: on its keys alone.
        by_rows: whether it is an `EmittingGroup`.
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
    how = Grouping(keys, aggregates, values_of, passes)
    return builder.flow.add(EmittingGroup(node, how) if by_rows else KeyedGroup(node, how))


def emitting_group(query: algebra.Query) -> algebra.Group | None:
    """The grouping whose rows are the rows of the query; ``None`` where there is more to it.

    Where something above a grouping looks at all its rows (an order with a limit, a join), the rows
    must stay.
    """
    pattern = query.pattern
    while isinstance(pattern, (algebra.Project, algebra.Extend, algebra.Filter)):
        pattern = pattern.input
    return pattern if isinstance(pattern, algebra.Group) and simple_group(pattern) else None
