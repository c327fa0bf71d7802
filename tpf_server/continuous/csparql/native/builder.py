"""Operators to dataflow: what SPARQL has, and the aggregation of C-SPARQL."""

from tpf_client.dataflow.build.builder import Builder, build_output
from tpf_client.dataflow.build.group_builder import argument_of
from tpf_client.dataflow.node import Dataflow, Leaves, Node
from tpf_client.dataflow.operators.output import Output
from tpf_client.dataflow.state.aggregates import accumulator
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Aggregated, Pattern
from tpf_client.sparql.expressions.environment import Environment
from tpf_server.continuous.csparql.native.aggregation import Aggregation


def build(query: algebra.Query, leaves: Leaves, flow: Dataflow, environment: Environment) -> Output:
    """The dataflow of a query over its operators.

    Raises:
        UnsupportedQueryError: something in it cannot be evaluated; nothing has run yet.
    """
    return build_output(CsparqlBuilder(leaves, flow, environment), query, query.pattern)


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
        keys = [node.schema.index(name) for name in pattern.keys if name in node.schema]
        aggregation = Aggregation(
            node,
            pattern.variable,
            keys,
            argument_of(pattern.aggregate, node.schema, self.compiler(node).binding),
            accumulator(pattern.aggregate, self.environment.typed),
        )
        return self.flow.add(aggregation)
