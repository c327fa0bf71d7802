"""MergeJoinedGPOs: joined graph pattern operators over the same source become one.

Patterns are merged where they have the same graph, are static or not, and hang together by
variables: so no product is hidden in an operator, and what is static can be given to a SPARQL
engine as one query. What may match both goes with what streams: by itself it may have as many
solutions as the static data. Source: paper 003, section 5.1, figure 5.
"""

from annotations.terms import DEFAULT_GRAPH, QuadPattern
from tpf_client.sparql.algebra import BGP, Join, Pattern, variables_of_quad
from tpf_client.sparql.rewrite.join_order import components
from tpf_client.sparql.rewrite.visitor import combined, operands, transformed
from tpf_server.continuous.csparql.operator_graph import OperatorGraph


def merge_joined_patterns(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""

    def change(pattern: Pattern) -> Pattern:
        return _merged(graph, pattern) if isinstance(pattern, Join) else pattern

    return graph.with_pattern(transformed(graph.pattern, change))


def _merged(graph: OperatorGraph, pattern: Join) -> Pattern:
    kinds: dict[QuadPattern, tuple[str, bool]] = {}
    others: list[Pattern] = []
    for each in operands(pattern):
        if not isinstance(each, BGP) or not each.patterns:
            others.append(each)
            continue
        for quad in each.patterns:
            kinds[quad] = graph.graph_of(quad), graph.part_of(quad) == "static"
    # What is of another kind does not hang together, whatever it shares.
    blocks = components(
        kinds, lambda quad: [(kinds[quad], name) for name in variables_of_quad(quad)]
    )
    # Blocks of the default graph last: streams are usually the smaller side.
    blocks.sort(key=lambda block: kinds[block[0]][0] == DEFAULT_GRAPH)
    return combined([*others, *(BGP(tuple(block)) for block in blocks)])
