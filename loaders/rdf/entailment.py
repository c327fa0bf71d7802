"""Derive the triples entailed by RDFS or OWL 2 RL, per graph, in memory.

Trivial conclusions and statements about literals are left out. Source: RDF 1.1 Semantics section 9;
OWL 2 Profiles section 4.3; SPARQL 1.1 Entailment Regimes.
"""

import typing
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from rdflib import OWL, RDF, RDFS, Graph
from rdflib.term import BNode, Literal, Node, URIRef

from annotations.terms import is_blank_node, is_iri, literal_parts
from loaders.errors import InputError
from tpf_server.store.static.rdf_files import QuadTexts

_Triple: TypeAlias = tuple[Node, Node, Node]
_REFLEXIVE: Final = frozenset(
    (
        OWL.sameAs, OWL.equivalentClass, OWL.equivalentProperty, RDFS.subClassOf,
        RDFS.subPropertyOf,
    )
)  # fmt: skip
_VOCABULARIES: Final = (str(RDF), str(RDFS), str(OWL))


Regime: TypeAlias = typing.Literal["rdfs", "owl-rl"]
"""By which rules."""


class Entailment:
    """Collects quads, and derives those that follow from them."""

    def __init__(self, regime: Regime) -> None:
        self._regime = regime
        self._graphs: dict[str, set[_Triple]] = defaultdict(set)
        # Letters of literals stay as they are in the data.
        self._texts: dict[Node, str] = {}

    def noting(self, quads: Iterable[QuadTexts]) -> Iterator[QuadTexts]:
        for quad in quads:
            subject, predicate, value, graph = quad
            if not value.startswith("<<("):
                self._graphs[graph].add(
                    (self._node(subject), self._node(predicate), self._node(value))
                )
            yield quad

    def derived(self) -> Iterator[QuadTexts]:
        """Yield the new quads; `InputError` for a contradiction."""
        always = self._closure(set())
        for name, triples in self._graphs.items():
            for triple in self._closure(triples) - triples - always:
                if _says_something(triple):
                    subject, predicate, value = map(self._text, triple)
                    yield subject, predicate, value, name

    def _closure(self, triples: set[_Triple]) -> set[_Triple]:
        # Only who wants it pays for the import.
        import owlrl

        graph = Graph()
        for triple in triples:
            graph.add(triple)
        rdfs = self._regime == "rdfs"
        owlrl.DeductiveClosure(owlrl.RDFS_Semantics if rdfs else owlrl.OWLRL_Semantics).expand(
            graph
        )
        for _, _, message in graph.triples((None, owlrl.Namespaces.ERRNS.error, None)):
            raise InputError(f"under {self._regime} the data contradict themselves: {message}")
        return set(graph)

    def _node(self, text: str) -> Node:
        if is_iri(text):
            node: Node = URIRef(text[1:-1])
        elif is_blank_node(text):
            node = BNode(text[2:])
        else:
            lexical, language, datatype = literal_parts(text)
            if language and "--" in language:
                # rdflib knows no base directions; which datatype it is does not matter here.
                language, datatype = None, f"{datatype}#{language}"
            kind = None if language else URIRef(datatype)
            node = Literal(lexical, lang=language, datatype=kind, normalize=False)
        self._texts.setdefault(node, text)
        return node

    def _text(self, node: Node) -> str:
        text = self._texts.get(node)
        return text if text is not None else node.n3()


def _says_something(triple: _Triple) -> bool:
    subject, predicate, value = triple
    if isinstance(subject, Literal) or not isinstance(predicate, URIRef):
        return False
    if predicate in _REFLEXIVE and subject == value:
        return False
    if predicate == RDF.type and value in (RDFS.Resource, OWL.Thing):
        return False
    return not (isinstance(subject, URIRef) and str(subject).startswith(_VOCABULARIES))
