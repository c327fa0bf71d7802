"""Named graphs: each labelled fact in a graph of its own (Carroll et al. 2005).

``GRAPH g { s p o }``; the label on g, and ``g tmp:graph <the fact's named graph>``, are in the
default graph.
"""

from collections.abc import Iterator

from annotations.errors import DecodeError
from annotations.labels import Fact
from annotations.methods.base import Naming, OnError, RewriteOptions, Rewriting
from annotations.methods.method import Method, labelled, without_fact
from annotations.methods.shapes import (
    DEFAULT,
    GRAPH,
    OBJECT,
    PREDICATE,
    SUBJECT,
    FixedTerm,
    LabelledNodes,
    Minted,
    Shape,
    label_patterns,
    label_shapes,
)
from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, TriplePattern


class NamedGraph(Method):
    """The method ``named-graph``."""

    name = "named-graph"

    def shapes(self, naming: Naming) -> tuple[Shape, ...]:
        """Return the value, the label, and the graph of a fact that lies in one."""
        own = Minted("graph", naming)
        return (
            Shape(SUBJECT, PREDICATE, OBJECT, own),
            *label_shapes(own, DEFAULT, naming),
            Shape(own, FixedTerm(naming.vocabulary.graph), GRAPH, DEFAULT, named_only=True),
        )

    def read_facts(self, nodes: LabelledNodes, naming: Naming, report: OnError) -> Iterator[Fact]:
        """Yield the quads in labelled graphs, and all unlabelled ones."""
        lies_in = naming.vocabulary.graph
        graphs: dict[Term, dict[Term, None]] = {}
        for quad in nodes.rest:
            if quad.predicate == lies_in and quad.subject in nodes.labels:
                graphs.setdefault(quad.subject, {})[quad.object] = None
        used: set[Term] = set()
        for quad in nodes.rest:
            if quad.predicate == lies_in and quad.subject in nodes.labels:
                continue
            if quad.graph not in nodes.labels:
                yield Fact(quad)
                continue
            used.add(quad.graph)
            stated = list(graphs.get(quad.graph, (DEFAULT_GRAPH,)))
            if len(stated) == 1:
                yield from labelled(quad._replace(graph=stated[0]), nodes.labels[quad.graph])
        for node in nodes.labels:
            if len(graphs.get(node, ())) > 1:
                report(DecodeError(f"{node} has {len(graphs[node])} values of {lies_in}"))
            elif node not in used:
                report(without_fact(node, "no statement lies in this graph"))

    def rewrite(self, pattern: TriplePattern, options: RewriteOptions) -> Rewriting:
        """Ask the pattern of any graph, and the label of that graph."""
        own = options.fresh("graph")
        label = label_patterns(own, options)
        patterns = (QuadPattern(*pattern, own), *label.patterns)
        return Rewriting(patterns, label.initial, label.final)
