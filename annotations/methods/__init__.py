"""Annotation methods: a new one is a file here and a line in `METHODS`."""

from collections.abc import Sequence

from annotations.errors import MethodError
from annotations.methods.implicit_graph import ImplicitGraph
from annotations.methods.method import Method
from annotations.methods.named_graph import NamedGraph
from annotations.methods.names import read_fragment_iri
from annotations.methods.rdf12 import Rdf12Reifier
from annotations.methods.reification import Reification
from annotations.methods.singleton_property import SingletonProperty
from annotations.namespaces import RDF_OBJECT, RDF_REIFIES, Vocabulary
from annotations.terms import Quad, is_iri

METHODS: tuple[Method, ...] = (
    SingletonProperty(),
    NamedGraph(),
    ImplicitGraph(),
    Reification(),
    Rdf12Reifier(),
)
"""All annotation methods, in the order in which they are shown and detected."""


def method_named(name: str) -> Method:
    """Return the method of this name, or raise `MethodError`."""
    for method in METHODS:
        if method.name == name:
            return method
    names = ", ".join(method.name for method in METHODS)
    raise MethodError(f"no annotation method is called {name!r}; there are {names}")


def detect_method(quads: Sequence[Quad], vocabulary: Vocabulary) -> Method | None:
    """Return the method that annotates these quads; ``None``: there is no label."""
    labels = {vocabulary.expiration, vocabulary.instant, vocabulary.interval}
    labels.add(vocabulary.interval_final)
    labelled = {quad.subject for quad in quads if quad.predicate in labels}
    # Facts may have the same predicates.
    predicates = {quad.predicate for quad in quads if quad.subject in labelled}
    if vocabulary.singleton_property_of in predicates:
        return method_named("singleton-property")
    if RDF_REIFIES in predicates:
        return method_named("rdf-1.2")
    if RDF_OBJECT in predicates:
        return method_named("reification")
    if labelled & {quad.graph for quad in quads}:
        return method_named("named-graph")
    if any(is_iri(node) and read_fragment_iri(node) is not None for node in labelled):
        return method_named("implicit-graph")
    return None
