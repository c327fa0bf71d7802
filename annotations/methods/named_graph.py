"""Named graphs: each labelled fact in a graph of its own (Carroll et al. 2005).

``GRAPH g { s p o }``; the label on g, and ``g tmp:graph <the fact's named graph>``, are in the
default graph.
"""

from collections.abc import Iterator

from annotations.labels import Fact
from annotations.methods.base import Naming, OnError, RewriteOptions, Rewriting
from annotations.methods.method import Method, linked_facts
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
    label_shapes,
    rewriting,
)
from annotations.terms import DEFAULT_GRAPH, QuadPattern, TriplePattern


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
        return linked_facts(nodes, "graph", naming.vocabulary.graph, DEFAULT_GRAPH, report)

    def rewrite(self, pattern: TriplePattern, options: RewriteOptions) -> Rewriting:
        """Ask the pattern of any graph, the label of that graph, and what graph it stands for."""
        own, graph = options.fresh("graph"), options.fresh("factGraph")
        patterns = (QuadPattern(*pattern, own),)
        names = options.naming.vocabulary
        link = QuadPattern(own, names.graph, graph, options.fresh("linkGraph"))
        return rewriting(own, patterns, options, graph)._replace(link=link)
