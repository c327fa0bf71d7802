"""From algebra to the dataflow of a continuous query: what differs from a query over fragments."""

from collections.abc import Callable, Sequence
from typing import TypeGuard

from annotations.terms import Variable
from tpf_client.dataflow.builder import Builder
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.exists_builder import conjuncts
from tpf_client.dataflow.extend import Compute
from tpf_client.dataflow.node import Dataflow, Node
from tpf_client.dataflow.order import SortKey
from tpf_client.sparql import algebra
from tpf_client.sparql.expressions.compiler import Compiler, Environment
from tpf_server.cqels.arithmetic import ArithmeticCompiler
from tpf_server.cqels.dispatch import Comparison, Dispatch
from tpf_server.cqels.grouping import build_group
from tpf_server.cqels.keyed import KeyedColumns, KeyedNode, keyed_extend, keyed_filter
from tpf_server.cqels.keyed_join import KeyedJoin, joins_by_key
from tpf_server.cqels.keyed_top_k import KeyedTopK
from tpf_server.cqels.leaves import STAMP, ContinuousLeaves, pushable


class PlanBuilder(Builder):
    """Builds the dataflow; conditions on a basic graph pattern become part of its join."""

    leaves: ContinuousLeaves

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

    def seed(self, node: Node | None, names: Sequence[Variable]) -> Node | None:
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
        if compared := [c for c in conditions if algebra.variables_in(c) & lifted]:
            for condition in conditions:
                if condition not in compared:
                    inner = algebra.Filter(inner, condition)
            return self._dispatched(self.build(inner, seed), compared)
        if conditions and isinstance(inner, algebra.Group):
            return self._having(inner, conditions)
        if not conditions or not isinstance(inner, algebra.BGP) or not inner.patterns or self.outer:
            return super().build(pattern, seed)
        scope = set(algebra.in_scope(inner))
        inside = [c for c in conditions if pushable(c) and algebra.variables_in(c) <= scope]
        node: Node = self.leaves.join(inner.patterns, inside)
        for condition in conditions:
            if condition not in inside:
                node = self.filtered(node, condition)
        return node

    def _dispatched(self, node: Node, conditions: Sequence[algebra.Expression]) -> Node:
        """The solutions of a node with the instances whose constants compare."""
        found = []
        for condition in conditions:
            match condition:
                case algebra.Call(operator, (left, algebra.VariableRef(variable))):
                    sides = (Variable("?.value"), Variable("?.constant"))
                    whole = algebra.Call(operator, tuple(map(algebra.VariableRef, sides)))
                    test = ArithmeticCompiler(self.environment, sides).condition(whole)
                    value = self.compiler(node).binding(left)
                    found.append(Comparison(operator, variable, value, test))
        stamps = [name for name in node.schema if name.startswith(STAMP)]
        dispatch = Dispatch(node, found, stamps, self.leaves.dictionary)
        self.dispatches.append(dispatch)
        return self.flow.add(dispatch)

    def joined(self, left: Node, right: Node) -> Node:
        """The join of two nodes; of two groupings by their keys."""
        if self._asks(left) and self._asks(right) and joins_by_key(left, right):
            return self.flow.add(KeyedJoin(left, right))
        return super().joined(left, right)

    def _asks(self, node: Node) -> TypeGuard[KeyedNode]:
        """Whether the next node may ask this one for its rows: nobody else will want them."""
        return isinstance(node, KeyedNode) and not self._follows_paths

    def passing(self, node: Node, condition: Callable[[Solution], bool]) -> Node:
        """The solutions for which a condition is true."""
        if self._asks(node):
            return self.flow.add(keyed_filter(node, condition))
        return super().passing(node, condition)

    def extended(
        self,
        node: Node,
        variable: Variable,
        compute: Compute,
        *,
        volatile: bool = False,
        always: bool = False,
    ) -> Node:
        """The solutions with one more variable."""
        if self._asks(node) and not volatile:
            return self.flow.add(keyed_extend(node, variable, compute))
        return super().extended(node, variable, compute, volatile=volatile, always=always)

    def copied(self, node: Node, variable: Variable, source: Variable) -> Node:
        """The solutions with one more variable, which has the value of another."""
        if self._asks(node):
            return self.flow.add(KeyedColumns(node, (*node.schema, variable), {variable: source}))
        return super().copied(node, variable, source)

    def reduced(self, node: Node, names: Sequence[Variable]) -> Node:
        """The solutions with these variables only."""
        if self._asks(node) and node.schema != tuple(names):
            return self.flow.add(KeyedColumns(node, names))
        return super().reduced(node, names)

    def first_ones(self, node: Node, key: SortKey, offset: int, limit: int | None) -> Node:
        """The first solutions in an order."""
        if self._asks(node) and limit:
            return self.flow.add(KeyedTopK(node, key, offset, limit))
        return super().first_ones(node, key, offset, limit)

    def _having(self, pattern: algebra.Group, conditions: Sequence[algebra.Expression]) -> Node:
        """A grouping under HAVING: what depends on the keys alone is decided once for a group."""
        keys = {name for name, _ in pattern.keys}
        early = [c for c in conditions if keys and pushable(c) and algebra.variables_in(c) <= keys]
        by_rows = self._emitting is not None and pattern == self._emitting
        node = self._grouped(pattern, early, by_rows=by_rows)
        for condition in conditions:
            if condition not in early:
                node = self.filtered(node, condition)
        return node

    def compiler(self, node: Node, row: int | None = None) -> Compiler:
        """A compiler for expressions over the solutions of a node."""
        return ArithmeticCompiler(self.environment, node.schema, row)

    def grouped(self, pattern: algebra.Group, seed: Node | None) -> Node:  # noqa: ARG002
        """The groups of a pattern's solutions, with their aggregates."""
        by_rows = self._emitting is not None and pattern == self._emitting
        return self._grouped(pattern, (), by_rows=by_rows)

    def _grouped(
        self, pattern: algebra.Group, conditions: Sequence[algebra.Expression], *, by_rows: bool
    ) -> Node:
        """The node of a grouping, with conditions on its keys."""
        node = self.build(pattern.input, None)
        return build_group(self, pattern, node, conditions, by_rows=by_rows)
