"""MergeJoinedGPOs: joined graph pattern operators over the same source become one.

Patterns are merged where they have the same graph, are static or not, and hang together by
variables: so no product is hidden in an operator, and what is static can be given to a SPARQL
engine as one query. What may match both goes with what streams: by itself it may have as many
solutions as the static data. Source: paper 003, section 5.1, figure 5.
"""

from annotations.terms import DEFAULT_GRAPH, QuadPattern
from tpf_client.sparql.algebra import BGP, Join, Pattern, variables_of_quad
from tpf_server.csparql.operator_graph import OperatorGraph
from tpf_server.csparql.transform import transformed


def merge_joined_patterns(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""

    def change(pattern: Pattern) -> Pattern:
        return _merged(graph, pattern) if isinstance(pattern, Join) else pattern

    return graph.with_pattern(transformed(graph.pattern, change))


def operands(pattern: Pattern) -> list[Pattern]:
    """What a tree of joins joins."""
    if type(pattern) is Join:
        return operands(pattern.left) + operands(pattern.right)
    return [pattern]


def joined(patterns: list[Pattern]) -> Pattern:
    """A tree of joins."""
    result = patterns[0]
    for each in patterns[1:]:
        result = Join(result, each)
    return result


def _merged(graph: OperatorGraph, pattern: Join) -> Pattern:
    blocks: list[list[QuadPattern]] = []
    kinds: list[tuple[str, str]] = []
    others: list[Pattern] = []
    for each in operands(pattern):
        if not isinstance(each, BGP) or not each.patterns:
            others.append(each)
            continue
        for quad in each.patterns:
            static = graph.part_of(quad) == "static"
            _add(quad, (graph.graph_of(quad), "static" if static else ""), blocks, kinds)
    # Blocks of the default graph last: streams are usually the smaller side.
    order = sorted(range(len(blocks)), key=lambda place: kinds[place][0] == DEFAULT_GRAPH)
    return joined([*others, *(BGP(tuple(dict.fromkeys(blocks[place]))) for place in order)])


def _add(
    quad: QuadPattern,
    kind: tuple[str, str],
    blocks: list[list[QuadPattern]],
    kinds: list[tuple[str, str]],
) -> None:
    names = set(variables_of_quad(quad))
    touched = [
        place
        for place, block in enumerate(blocks)
        if kinds[place] == kind and any(names & set(variables_of_quad(each)) for each in block)
    ]
    if not touched:
        blocks.append([quad])
        kinds.append(kind)
        return
    first, *rest = touched
    blocks[first].append(quad)
    for place in reversed(rest):
        blocks[first] += blocks.pop(place)
        kinds.pop(place)
