"""From algebra to the dataflow of a continuous query: what differs from a query over fragments."""

from collections.abc import Callable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.arithmetic import ArithmeticCompiler
from tpf_client.dataflow.build.builder import Builder
from tpf_client.dataflow.build.group_builder import build_group
from tpf_client.dataflow.node import Dataflow, Node
from tpf_client.dataflow.operators.distinct import Distinct
from tpf_client.dataflow.operators.order import SortKeyOf, TopK
from tpf_client.dataflow.operators.slice import Slice
from tpf_client.dataflow.state.groups import Grouping
from tpf_client.sparql import algebra
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.conditions import conjuncts, movable
from tpf_client.sparql.scopes import in_scope, variables_in
from tpf_server.continuous.engine.plans.comparisons import comparison
from tpf_server.continuous.engine.plans.dispatch import Dispatch
from tpf_server.continuous.engine.plans.emitting_group import EmittingGroup
from tpf_server.continuous.engine.plans.leaves import STAMP, ContinuousLeaves
from tpf_server.continuous.engine.plans.own_slices import OwnSlices
from tpf_server.continuous.engine.plans.slices import Copies, Slices


class PlanBuilder(Builder):
    """Builds the dataflow; conditions on a basic graph pattern become part of its join."""

    leaves: ContinuousLeaves
    remembers = True

    def __init__(
        self,
        leaves: ContinuousLeaves,
        flow: Dataflow,
        environment: Environment,
        emitting: algebra.Group | None,
        *,
        paths: bool,
    ) -> None:
        super().__init__(leaves, flow, environment)
        self._emitting = emitting
        self._follows_paths = paths
        self.dispatches: list[Dispatch] = []

    def seed(self, node: Node | None, names: Sequence[Variable]) -> Distinct | None:
        """What spares work: nothing, but for paths, because windows and caches are at hand."""
        return super().seed(node, names) if self._follows_paths else None

    def build(self, pattern: algebra.Pattern, seed: Node | None) -> Node:
        """The node of a pattern's solutions."""
        conditions: list[algebra.Expression] = []
        inner = pattern
        while isinstance(inner, algebra.Filter):
            conditions += conjuncts(inner.condition)
            inner = inner.input
        lifted = self.leaves.lifted
        if compared := [c for c in conditions if variables_in(c) & lifted]:
            for condition in conditions:
                if condition not in compared:
                    inner = algebra.Filter(inner, condition)
            return self._dispatched(self.build(inner, seed), compared)
        if conditions and isinstance(inner, algebra.Group):
            return self._having(inner, conditions)
        if not conditions or not isinstance(inner, algebra.BGP) or not inner.patterns or self.outer:
            return super().build(pattern, seed)
        scope = set(in_scope(inner))
        inside = [c for c in conditions if movable(c) and variables_in(c) <= scope]
        node: Node = self.leaves.join(inner.patterns, inside)
        for condition in conditions:
            if condition not in inside:
                node = self.filtered(node, condition)
        return node

    def _dispatched(self, node: Node, conditions: Sequence[algebra.Expression]) -> Node:
        """The solutions of a node with the instances whose constants compare."""
        found = [comparison(each, node.schema, self.environment) for each in conditions]
        stamps = [name for name in node.schema if name.startswith(STAMP)]
        dispatch = Dispatch(node, found, stamps, self.leaves.dictionary, nets=self.leaves.nets)
        self.dispatches.append(dispatch)
        return self.flow.add(dispatch)

    def sliced(
        self,
        node: Node,
        variables: Sequence[Variable],
        key: SortKeyOf | None,
        *,
        leaving: bool,
        wanted: Callable[[], bool],
    ) -> Slices:
        """The parts of solutions that queries get which differ in OFFSET and LIMIT (see `Slices`).

        Args:
            node: all solutions.
            variables: see `Slices`.
            key: what to sort by; ``None`` where there is no order.
            leaving: see `Slices`.
            wanted: see `Slices`.
        """
        keyed = node if key is not None and node.askable else self.flow.add(Copies(node))
        return self.flow.add(Slices(keyed, key, variables, leaving=leaving, wanted=wanted))

    def sliced_apart(self, node: Node, key: SortKeyOf | None) -> OwnSlices:
        """The parts of queries that differ in other constants, too (see `OwnSlices`).

        Args:
            node: all solutions.
            key: what to sort by; ``None`` where there is no order.
        """

        def make(part: Node, offset: int, limit: int | None) -> Node:
            if key is None:
                return Slice(part, offset, limit)
            return TopK(part, key, offset, limit)

        return self.flow.add(OwnSlices(node, make))

    def _having(self, pattern: algebra.Group, conditions: Sequence[algebra.Expression]) -> Node:
        """A grouping under HAVING: what depends on the keys alone is decided once for a group."""
        keys = {name for name, _ in pattern.keys}
        early = [c for c in conditions if keys and movable(c) and variables_in(c) <= keys]
        node = build_group(self, pattern, self.build(pattern.input, None), early)
        for condition in conditions:
            if condition not in early:
                node = self.filtered(node, condition)
        return node

    def compiler(self, node: Node, row: int | None = None) -> Compiler:
        """A compiler for expressions over the solutions of a node."""
        return ArithmeticCompiler(self.environment, node.schema, row)

    def groups_of(self, node: Node, how: Grouping, pattern: algebra.Group) -> Node:
        """The groups of a node's solutions; `pattern` is what they are for."""
        if self._emitting is not None and pattern == self._emitting:
            return self.flow.add(EmittingGroup(node, how))
        return super().groups_of(node, how, pattern)
