"""Singleton properties: a property of its own for each labelled fact (Nguyen et al. 2014).

``s p' o . p' sp:singletonPropertyOf p .`` and the label on p', all in the fact's graph.
"""

from collections.abc import Iterator

from annotations.errors import DecodeError
from annotations.labels import Fact
from annotations.methods.base import Naming, OnError, RewriteOptions, Rewriting
from annotations.methods.method import Method, labelled, without_fact
from annotations.methods.shapes import (
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
from annotations.terms import QuadPattern, Term, TriplePattern


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
        predicates: dict[Term, dict[Term, None]] = {}
        for quad in nodes.rest:
            if quad.predicate == stands_for and quad.subject in nodes.labels:
                predicates.setdefault(quad.subject, {})[quad.object] = None
        used: set[Term] = set()
        for quad in nodes.rest:
            node = quad.predicate
            if node in nodes.labels:
                used.add(node)
                if len(predicates.get(node, ())) == 1:
                    (predicate,) = predicates[node]
                    fact = quad._replace(predicate=predicate)
                    yield from labelled(fact, nodes.labels[node])
            elif node != stands_for or quad.subject not in nodes.labels:
                yield Fact(quad)
        for node in nodes.labels:
            if node not in predicates:
                report(without_fact(node, f"no {stands_for}"))
            elif len(predicates[node]) > 1:
                report(DecodeError(f"{node} has {len(predicates[node])} values of {stands_for}"))
            elif node not in used:
                report(without_fact(node, "no statement has it as its predicate"))

    def rewrite(self, pattern: TriplePattern, options: RewriteOptions) -> Rewriting:
        """Ask the predicate, variable or not, of ``sp:singletonPropertyOf``."""
        singleton, graph = options.fresh("property"), options.fresh("graph")
        label = label_patterns(singleton, options)
        stands_for = options.naming.vocabulary.singleton_property_of
        patterns = (
            QuadPattern(pattern.subject, singleton, pattern.object, graph),
            QuadPattern(singleton, stands_for, pattern.predicate, options.fresh("propertyGraph")),
            *label.patterns,
        )
        return Rewriting(patterns, label.initial, label.final, graph)
