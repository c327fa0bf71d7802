"""Singleton properties: a property of its own for each labelled fact (Nguyen et al. 2014).

``s p' o . p' sp:singletonPropertyOf p .`` and the label on p', all in the fact's graph.
"""

from collections.abc import Iterator

from annotations.labels import Fact
from annotations.methods.base import Naming, OnError, RewriteOptions, Rewriting
from annotations.methods.method import Method, linked_facts
from annotations.methods.shapes import (
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
from annotations.terms import QuadPattern, TriplePattern


class SingletonProperty(Method):
    """The method ``singleton-property``."""

    name = "singleton-property"

    def shapes(self, naming: Naming) -> tuple[Shape, ...]:
        """Return the value, the link to the property, and the label."""
        singleton = Minted("property", naming)
        stands_for = FixedTerm(naming.vocabulary.singleton_property_of)
        return (
            Shape(SUBJECT, singleton, OBJECT, GRAPH),
            Shape(singleton, stands_for, PREDICATE, GRAPH),
            *label_shapes(singleton, GRAPH, naming),
        )

    def read_facts(self, nodes: LabelledNodes, naming: Naming, report: OnError) -> Iterator[Fact]:
        """Yield the quads of labelled singletons, and all unlabelled ones."""
        stands_for = naming.vocabulary.singleton_property_of
        return linked_facts(nodes, "predicate", stands_for, None, report)

    def rewrite(self, pattern: TriplePattern, options: RewriteOptions) -> Rewriting:
        """Ask the predicate, variable or not, of ``sp:singletonPropertyOf``."""
        singleton, graph = options.fresh("property"), options.fresh("graph")
        stands_for = options.naming.vocabulary.singleton_property_of
        patterns = (
            QuadPattern(pattern.subject, singleton, pattern.object, graph),
            QuadPattern(singleton, stands_for, pattern.predicate, options.fresh("propertyGraph")),
        )
        return rewriting(singleton, patterns, options, graph)
