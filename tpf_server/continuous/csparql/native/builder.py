"""Operators to dataflow: what SPARQL has, and the aggregation of C-SPARQL."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import itemgetter

from annotations.terms import QuadPattern, Variable
from tpf_client.dataflow.build.builder import Builder, build_output
from tpf_client.dataflow.build.modifiers_builder import argument_of
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.node import Dataflow, Node, Work
from tpf_client.dataflow.operators.basic import Compute, Output
from tpf_client.dataflow.state.aggregates import Accumulator, accumulator, limit_accumulators
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Aggregated, Expression, Pattern
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.visitor import combined, movable, operands
from tpf_client.sparql.scopes import in_scope
from tpf_server.continuous.csparql.native.leaves import CsparqlLeaves

# The operator of the AGGREGATE clause: solutions extended by the aggregate of their group.


class _Group:
    __slots__ = ("accumulator", "changes", "members", "shown")

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        self.members: dict[Solution, int] = {}
        self.changes: dict[Solution, int] = {}
        self.shown: TermId | None = None


class Aggregation(Node):
    """Adds a variable that holds the aggregate of all solutions with the same key.

    A change costs as much as there are solutions in its group, unless the aggregate stays the same.
    """

    def __init__(
        self,
        upstream: Node,
        variable: Variable,
        keys: Sequence[int],
        argument: Compute,
        make: Callable[[], Accumulator],
    ) -> None:
        super().__init__((*upstream.schema, variable), upstream.certain, monotone=False)
        self._keys = tuple(keys)
        self._argument = argument
        self._make = make
        self._groups: dict[Solution, _Group] = {}
        self._touched: dict[Solution, _Group] = {}
        self._work: Work | None = None
        upstream.connect(self._push)

    def limit(self, work: Work) -> None:
        """See `Node.limit`."""
        self._work = work

    @property
    def pending(self) -> bool:
        """Whether something happened to a group."""
        return bool(self._touched)

    def _push(self, solution: Solution, count: int) -> None:
        key = tuple([solution[place] for place in self._keys])
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(self._make())
            if self._work is not None:
                limit_accumulators((group.accumulator,), self._work)
        group.accumulator.add(self._argument(solution), count)
        group.changes[solution] = group.changes.get(solution, 0) + count
        self._touched[key] = group

    def flush(self) -> None:
        """Send what changed: all members where the aggregate did, otherwise those that did."""
        touched, self._touched = self._touched, {}
        emit = self.emit
        for key, group in touched.items():
            members, changes = group.members, group.changes
            group.changes = {}
            before = group.shown
            now = group.accumulator.result()
            group.shown = now
            if before is not None and now != before:
                for solution, count in members.items():
                    emit((*solution, before), -count)
            for solution, count in changes.items():
                total = members.get(solution, 0) + count
                if total:
                    members[solution] = total
                else:
                    members.pop(solution, None)
                if now == before and count:
                    emit((*solution, now), count)
            if now != before:
                for solution, count in members.items():
                    emit((*solution, now), count)
            if not members:
                del self._groups[key]


def build(
    query: algebra.Query,
    leaves: CsparqlLeaves,
    flow: Dataflow,
    environment: Environment,
    static: Callable[[QuadPattern], bool],
) -> Output:
    """The dataflow of a query over its operators.

    Raises:
        UnsupportedQueryError: something in it cannot be evaluated; nothing has run yet.
    """
    builder = CsparqlBuilder(leaves, flow, environment)
    builder.static = static
    # The default graph is what FROM says already, also for descriptions.
    query = replace(query, dataset=algebra.DatasetClause())
    return build_output(builder, query, query.pattern)


def build_above(
    query: algebra.Query,
    gap: tuple[Pattern, Node],
    leaves: CsparqlLeaves,
    flow: Dataflow,
    environment: Environment,
) -> Output:
    """The dataflow of what is above a part of a query."""
    builder = CsparqlBuilder(leaves, flow, environment)
    builder.gap = gap
    return build_output(builder, query, query.pattern)


class CsparqlBuilder(Builder):
    """Builds nodes for patterns, aggregations included."""

    leaves: CsparqlLeaves
    static: Callable[[QuadPattern], bool]
    gap: tuple[Pattern, Node] | None = None

    def build(self, pattern: Pattern, seed: Node | None) -> Node:
        """The node of a pattern's solutions."""
        if self.gap is not None and pattern is self.gap[0]:
            return self.gap[1]
        if isinstance(pattern, Aggregated):
            return self._aggregation(pattern)
        if isinstance(pattern, algebra.BGP) and pattern.patterns:
            self._check_product([algebra.BGP((each,)) for each in pattern.patterns])
            return self._correlated(self.leaves.bgp(pattern.patterns, None))
        return super().build(pattern, seed)

    def _join(self, pattern: Pattern, seed: Node | None) -> Node:
        folded = self._folded(pattern)
        self._check_product(operands(folded))
        if not isinstance(folded, algebra.Join):
            return self.build(folded, seed)
        return super()._join(folded, seed)

    def _check_product(self, parts: Sequence[Pattern]) -> None:
        """See to it that static parts that share no variable with others have no large product."""
        scopes = Counter(name for part in parts for name in set(in_scope(part)))
        alone: list[QuadPattern] = []
        for part in parts:
            inner = part
            while isinstance(inner, algebra.Project):
                inner = inner.input
            shares = any(scopes[name] > 1 for name in in_scope(part))
            if isinstance(inner, algebra.BGP) and len(inner.patterns) == 1 and not shares:
                alone += inner.patterns
        self.leaves.check_product(alone)

    def _folded(self, pattern: Pattern) -> Pattern:
        """Static triple patterns that stand alone beside what they are joined with.

        There they are looked up; a part of its own would be a copy of all their triples.
        """
        single: list[algebra.BGP] = []
        blocks: list[Pattern] = []
        conditions: list[Expression] = []
        for each in operands(pattern):
            inner, own = each, []
            while isinstance(inner, algebra.Filter) and movable(inner.condition):
                own.append(inner.condition)
                inner = inner.input
            if (
                isinstance(inner, algebra.BGP)
                and len(inner.patterns) == 1
                and self._is_static(inner)
            ):
                single.append(inner)
                conditions += own
            else:
                blocks.append(each)
        for one in single:
            names = set(in_scope(one))
            near = [
                (self._is_static(block), place, block)
                for place, block in enumerate(blocks)
                if isinstance(block, algebra.BGP) and not names.isdisjoint(in_scope(block))
            ]
            if near:
                _, place, block = min(near, key=itemgetter(0, 1))
                blocks[place] = algebra.BGP((*block.patterns, *one.patterns))
            else:
                blocks.append(one)
        return reduce(algebra.Filter, conditions, combined(blocks))

    def _is_static(self, bgp: algebra.BGP) -> bool:
        return all(map(self.static, bgp.patterns))

    def sideways(self, node: Node, pattern: Pattern) -> Node | None:
        """The seed that a node gives to a pattern: only paths have a use for it."""
        if any(isinstance(each, algebra.Path) for each in algebra.walk(pattern)):
            return super().sideways(node, pattern)
        return None

    def _aggregation(self, pattern: Aggregated) -> Node:
        # Whole groups are needed: nothing may be left out by what they are joined with.
        node = self.build(pattern.input, None)
        keys = [node.schema.index(name) for name in pattern.keys if name in node.schema]
        aggregation = Aggregation(
            node,
            pattern.variable,
            keys,
            argument_of(pattern.aggregate, node.schema, self.compiler(node).binding),
            accumulator(pattern.aggregate, self.environment.typed),
        )
        return self.flow.add(aggregation)
