"""RDF 1.2 reifiers: a node reifies the fact's triple term (RDF 1.2 Concepts, section 1.5).

``s p o . X rdf:reifies <<( s p o )>> .`` and the label on X, in the fact's graph. An equal static
quad counts as labelled.
"""

from collections.abc import Iterator
from itertools import chain

from annotations.errors import TermError
from annotations.labels import Fact
from annotations.methods.base import Derived, Naming, OnError, RewriteOptions, Rewriting
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
    TripleTerm,
    label_shapes,
    rewriting,
)
from annotations.namespaces import RDF_REIFIES
from annotations.terms import (
    Quad,
    QuadPattern,
    Term,
    TriplePattern,
    triple_of_term,
    triple_term,
)


class Rdf12Reifier(Method):
    """The method ``rdf-1.2``."""

    name = "rdf-1.2"

    def shapes(self, naming: Naming) -> tuple[Shape, ...]:
        reifier = Minted("reifier", naming)
        return (
            Shape(SUBJECT, PREDICATE, OBJECT, GRAPH),
            Shape(reifier, FixedTerm(RDF_REIFIES), TripleTerm(), GRAPH),
            *label_shapes(reifier, GRAPH, naming),
        )

    def read_facts(
        self,
        nodes: LabelledNodes,
        naming: Naming,  # noqa: ARG002 - the vocabulary of reification is fixed
        report: OnError,
    ) -> Iterator[Fact]:
        """Yield every stated quad with the labels of its reifiers in the same graph."""
        stated = set(nodes.rest)
        reifiers: dict[Quad, list[Term]] = {}
        reifying: set[Term] = set()
        plain: list[Quad] = []
        for quad in nodes.rest:
            if quad.predicate != RDF_REIFIES or quad.subject not in nodes.labels:
                plain.append(quad)
                continue
            reifying.add(quad.subject)
            try:
                fact = Quad(*triple_of_term(quad.object), quad.graph)
            except TermError as error:
                report(without_fact(quad.subject, str(error)))
                continue
            if fact in stated:
                reifiers.setdefault(fact, []).append(quad.subject)
            else:
                report(without_fact(quad.subject, f"{quad.object} is not stated"))
        for node in nodes.labels:
            if node not in reifying:
                report(without_fact(node, f"no {RDF_REIFIES}"))
        for quad in plain:
            if quad in reifiers:
                labels = (nodes.labels[node] for node in reifiers[quad])
                yield from labelled(quad, chain.from_iterable(labels))
            else:
                yield Fact(quad)

    def rewrite(self, pattern: TriplePattern, options: RewriteOptions) -> Rewriting:
        """Ask the pattern, and the label of its match's reifiers.

        The triple term is `Rewriting.derived`: fragments have no triple terms with variables.
        """
        fresh = options.fresh
        reifier, triple, graph = fresh("reifier"), fresh("triple"), fresh("graph")
        derived = Derived(triple, lambda quad: triple_term(quad.triple))
        patterns = (
            QuadPattern(*pattern, graph),
            QuadPattern(reifier, RDF_REIFIES, triple, graph),
        )
        return rewriting(reifier, patterns, options, graph, derived)
