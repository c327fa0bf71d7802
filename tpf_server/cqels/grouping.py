"""Grouping for streams: the nodes, and what of a query they are for."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from annotations.terms import Variable
from tpf_client.dataflow.aggregates import Accumulator, accumulator
from tpf_client.dataflow.builder import Builder
from tpf_client.dataflow.changes import Solution
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
            # Also where the row is that of the last tick: what is new is that solutions came.
            before = shown.pop(key, None)
            if before is not None:
                self.emit(before[0], -before[1])
            if now is not None:
                shown[key] = now
                self.emit(*now)
        groups.drained()


def _anything(_key: Solution) -> bool:
    return True


def build_group(
    builder: Builder,
    pattern: algebra.Group,
    node: Node,
    conditions: Sequence[algebra.Expression],
    *,
    by_rows: bool,
) -> Node:
    """The node of a grouping.

    Args:
        builder: makes the expressions and takes in the node.
        pattern: the grouping.
        node: its input.
        conditions: on its keys alone.
        by_rows: whether it is an `EmittingGroup`.
    """
    environment = builder.environment
    # Equal as far as the query can see: hidden variables do not count.
    visible = [place for place, name in enumerate(node.schema) if not name.startswith("?.")]
    expressions: list[algebra.Expression | None] = []
    for _, key in pattern.keys:
        node, plain = builder.without_exists(node, key)
        expressions.append(plain)
    aggregates: list[tuple[Variable, Callable[[], Accumulator] | None]] = []
    for name, each in pattern.aggregates:
        argument = each.argument
        whole = not each.distinct and (
            argument is None
            or (
                each.name == "COUNT"
                and isinstance(argument, algebra.VariableRef)
                and argument.variable in node.certain
            )
        )
        aggregates.append(
            (name, None if whole else accumulator(each, environment.typed, InlinedMedian))
        )
        if not whole:
            if argument is not None:
                node, argument = builder.without_exists(node, argument)
            expressions.append(argument)
    keys = tuple(name for name, _ in pattern.keys)
    passes: Callable[[Solution], bool] = _anything
    if conditions:
        # One condition is one function.
        test: algebra.Expression = conditions[0]
        for condition in conditions[1:]:
            test = algebra.Call("&&", (test, condition))
        passes = ArithmeticCompiler(environment, keys).condition(test)
    compiler = ArithmeticCompiler(environment, node.schema)
    how = Grouping(keys, aggregates, _values_of(compiler, expressions, visible), passes)
    return builder.flow.add(EmittingGroup(node, how) if by_rows else KeyedGroup(node, how))


def _values_of(
    compiler: ArithmeticCompiler,
    expressions: Sequence[algebra.Expression | None],
    visible: Sequence[int],
) -> Callable[[Solution], tuple[Any, ...]]:
    """The values of expressions; ``None`` stands for the whole solution (``COUNT(DISTINCT *)``)."""
    plain = [each for each in expressions if each is not None]
    if len(plain) == len(expressions):
        return compiler.bindings(plain)

    def whole(solution: Solution) -> Solution:
        return tuple([solution[place] for place in visible])

    each = [whole if e is None else compiler.binding(e) for e in expressions]
    return lambda solution: tuple([value(solution) for value in each])


def emitting_group(query: algebra.Query) -> algebra.Group | None:
    """The grouping whose rows are the rows of the query; ``None`` where there is more to it.

    Where something above a grouping looks at all its rows (an order with a limit, a join), the rows
    must stay.
    """
    pattern = query.pattern
    while isinstance(pattern, (algebra.Project, algebra.OrderBy, algebra.Extend, algebra.Filter)):
        pattern = pattern.input
    return pattern if isinstance(pattern, algebra.Group) else None
