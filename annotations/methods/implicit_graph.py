"""Implicit graphs: the IRI of a fact's own fragment carries the label (Taelman et al. 2016).

It is in the default graph; an equal static quad counts as labelled.
"""

from collections.abc import Iterator

from annotations.labels import Fact, Label
from annotations.methods.base import Derived, Naming, OnError, RewriteOptions, Rewriting
from annotations.methods.method import Method, labelled, without_fact
from annotations.methods.names import fragment_iri, read_fragment_iri
from annotations.methods.shapes import (
    DEFAULT,
    GRAPH,
    OBJECT,
    PREDICATE,
    SUBJECT,
    FragmentIri,
    LabelledNodes,
    Shape,
    label_shapes,
    rewriting,
)
from annotations.terms import Quad, QuadPattern, TriplePattern


class ImplicitGraph(Method):
    """The method ``implicit-graph``."""

    name = "implicit-graph"

    def shapes(self, naming: Naming) -> tuple[Shape, ...]:
        """Return the fact itself, and the label of its fragment."""
        return (
            Shape(SUBJECT, PREDICATE, OBJECT, GRAPH),
            *label_shapes(FragmentIri(naming), DEFAULT, naming),
        )

    def read_facts(
        self,
        nodes: LabelledNodes,
        naming: Naming,  # noqa: ARG002 - data may name the fragments of another address
        report: OnError,
    ) -> Iterator[Fact]:
        """Yield every quad with the labels of its fragment, whatever the server's address."""
        present = set(nodes.rest)
        labels: dict[Quad, list[Label]] = {}
        for node, stated in nodes.labels.items():
            quad = read_fragment_iri(node)
            if quad is None:
                report(without_fact(node, "it is not the IRI of the fragment of one fact"))
            elif quad not in present:
                report(without_fact(node, f"the data do not hold {' '.join(quad).strip()}"))
            else:
                labels.setdefault(quad, []).extend(stated)
        for quad in nodes.rest:
            yield from labelled(quad, labels[quad]) if quad in labels else (Fact(quad),)

    def rewrite(self, pattern: TriplePattern, options: RewriteOptions) -> Rewriting:
        """Ask the pattern, then the label of each match's fragment (`Rewriting.derived`)."""
        fragment, graph = options.fresh("fragment"), options.fresh("graph")
        derived = Derived(fragment, lambda quad: fragment_iri(quad, options.naming))
        patterns = (QuadPattern(*pattern, graph),)
        return rewriting(fragment, patterns, options, graph, derived)
