"""Operators to dataflow: what SPARQL has, and the aggregation of C-SPARQL."""

from tpf_client.dataflow.aggregates import accumulator
from tpf_client.dataflow.builder import Builder
from tpf_client.dataflow.changes import UNBOUND, Solution
from tpf_client.dataflow.describe_builder import build_description
from tpf_client.dataflow.distinct import Distinct
from tpf_client.dataflow.hash_join import HashJoin
from tpf_client.dataflow.node import Dataflow, Leaves, Node
from tpf_client.dataflow.number import Number
from tpf_client.dataflow.output import Output
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Pattern
from tpf_client.sparql.expressions.compiler import Environment
from tpf_server.csparql.aggregated import Aggregated
from tpf_server.csparql.native.aggregation import Aggregation, Compute


def build(query: algebra.Query, leaves: Leaves, flow: Dataflow, environment: Environment) -> Output:
    """The dataflow of a query over its operators.

    Raises:
        UnsupportedQueryError: something in it cannot be evaluated; nothing has run yet.
    """
    builder = CsparqlBuilder(leaves, flow, environment)
    pattern = query.pattern
    if query.form == "DESCRIBE":
        return Output(*build_description(builder, query, pattern))
    if query.form == "ASK":
        pattern = algebra.Slice(pattern, 0, 1)
    node, variables, order = builder.modified(pattern, None)
    return Output(node, variables, order)


class CsparqlBuilder(Builder):
    """Builds nodes for patterns, aggregations included."""

    def build(self, pattern: Pattern, seed: Node | None) -> Node:
        """The node of a pattern's solutions."""
        if isinstance(pattern, Aggregated):
            return self._aggregation(pattern)
        if isinstance(pattern, algebra.BGP) and pattern.patterns:
            return self._correlated(self.leaves.bgp(pattern.patterns, None))
        return super().build(pattern, seed)

    def sideways(self, node: Node, pattern: Pattern) -> Node | None:
        """The seed that a node gives to a pattern: only paths have a use for it."""
        if any(isinstance(each, algebra.Path) for each in algebra.walk(pattern)):
            return super().sideways(node, pattern)
        return None

    def _aggregation(self, pattern: Aggregated) -> Node:
        # Whole groups are needed: nothing may be left out by what they are joined with.
        node = self.build(pattern.input, None)
        schema = node.schema
        argument = pattern.aggregate.argument
        compute: Compute = _one
        if argument is not None:
            compute = self.compiler(node).binding(argument)
        elif pattern.aggregate.distinct:
            visible = tuple(name for name in schema if not name.startswith("?."))
            distinct = self.flow.add(Distinct(self.project(node, visible)))
            numbers = self.flow.add(Number(distinct, self.fresh()))
            node = self.flow.add(HashJoin(node, numbers))
            compute = self.compiler(node).binding(algebra.VariableRef(numbers.schema[-1]))
        keys = [node.schema.index(name) if name in node.schema else -1 for name in pattern.keys]
        aggregation = Aggregation(
            node,
            pattern.variable,
            [key for key in keys if key >= 0],
            compute,
            accumulator(pattern.aggregate, self.environment.typed),
        )
        return self.project(self.flow.add(aggregation), (*schema, pattern.variable))


def _one(_solution: Solution) -> int:
    return UNBOUND + 1
