"""Reification: a labelled ``rdf:Statement`` (RDF Schema 1.1, section 5.3), in the fact's graph."""

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
    label_shapes,
    rewriting,
    the_only,
)
from annotations.namespaces import (
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_STATEMENT,
    RDF_SUBJECT,
    RDF_TYPE,
)
from annotations.terms import Quad, QuadPattern, Term, TriplePattern

_PARTS = (RDF_SUBJECT, RDF_PREDICATE, RDF_OBJECT)


class Reification(Method):
    """The method ``reification``."""

    name = "reification"

    def shapes(self, naming: Naming) -> tuple[Shape, ...]:
        """Return the parts of the fact, the value first, and the label."""
        node = Minted("statement", naming)
        return (
            Shape(node, FixedTerm(RDF_OBJECT), OBJECT, GRAPH),
            Shape(node, FixedTerm(RDF_SUBJECT), SUBJECT, GRAPH),
            Shape(node, FixedTerm(RDF_PREDICATE), PREDICATE, GRAPH),
            Shape(node, FixedTerm(RDF_TYPE), FixedTerm(RDF_STATEMENT), GRAPH),
            *label_shapes(node, GRAPH, naming),
        )

    def read_facts(
        self,
        nodes: LabelledNodes,
        naming: Naming,  # noqa: ARG002 - the vocabulary of reification is fixed
        report: OnError,
    ) -> Iterator[Fact]:
        """Yield the facts of labelled statements, at the positions of their objects."""
        parts: dict[Term, dict[Term, list[Quad]]] = {}
        for quad in nodes.rest:
            if quad.subject in nodes.labels and quad.predicate in _PARTS:
                stated = parts.setdefault(quad.subject, {}).setdefault(quad.predicate, [])
                stated.append(quad)
        described: dict[Term, Quad] = {}
        for node in nodes.labels:
            try:
                described[node] = _described(node, parts.get(node, {}))
            except DecodeError as error:
                report(error)
        for quad in nodes.rest:
            node = quad.subject
            if node not in nodes.labels:
                yield Fact(quad)
            elif quad.predicate == RDF_OBJECT:
                if node in described:
                    yield from labelled(described[node], nodes.labels[node])
            elif quad.predicate not in _PARTS and quad[1:3] != (RDF_TYPE, RDF_STATEMENT):
                yield Fact(quad)

    def rewrite(self, pattern: TriplePattern, options: RewriteOptions) -> Rewriting:
        """Ask each position of its part of the statement, a variable predicate too."""
        node, graph = options.fresh("statement"), options.fresh("graph")
        patterns = (
            QuadPattern(node, RDF_OBJECT, pattern.object, graph),
            QuadPattern(node, RDF_SUBJECT, pattern.subject, options.fresh("partGraph")),
            QuadPattern(node, RDF_PREDICATE, pattern.predicate, options.fresh("partGraph")),
        )
        return rewriting(node, patterns, options, graph)


def _described(node: Term, parts: dict[Term, list[Quad]]) -> Quad:
    if not parts:
        raise without_fact(node, f"no {RDF_SUBJECT}")
    subject, predicate, value = (
        the_only(node, part, {quad.object for quad in parts.get(part, ())}) for part in _PARTS
    )
    return Quad(subject, predicate, value, parts[RDF_OBJECT][0].graph)
