"""JSON-LD is composed of texts of terms: any text must survive."""

import json
from collections.abc import Iterator

import pyoxigraph
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term, Triple, triple_term
from tpf_server.fragments.writers.jsonld import document

IRIS = st.sampled_from(["http://example.org/a", "http://example.org/é", "urn:x:'y'"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
OBJECTS = st.one_of(
    IRIS.map(pyoxigraph.NamedNode),
    TEXTS.map(pyoxigraph.Literal),
    st.builds(lambda t: pyoxigraph.Literal(t, language="en-gb"), TEXTS),
    st.builds(lambda t, d: pyoxigraph.Literal(t, datatype=pyoxigraph.NamedNode(d)), TEXTS, IRIS),
)
PREDICATES = st.one_of(IRIS, st.just("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")).map(
    pyoxigraph.NamedNode
)

TRIPLES = st.recursive(
    st.builds(pyoxigraph.Triple, IRIS.map(pyoxigraph.NamedNode), PREDICATES, OBJECTS),
    lambda inner: st.builds(pyoxigraph.Triple, IRIS.map(pyoxigraph.NamedNode), PREDICATES, inner),
    max_leaves=3,
)


@given(st.lists(TRIPLES))
def test_any_triples_come_back(triples: list[pyoxigraph.Triple]) -> None:
    rows = list(dict.fromkeys(Triple(*map(text_of, t)) for t in triples))
    text = document(rows)
    json.loads(text)
    found = pyoxigraph.Dataset(pyoxigraph.parse(text.encode(), format=pyoxigraph.RdfFormat.JSON_LD))
    wanted = pyoxigraph.Dataset(encoded for triple in set(triples) for encoded in encode(triple))
    for dataset in (found, wanted):
        dataset.canonicalize(pyoxigraph.CanonicalizationAlgorithm.UNSTABLE)
    assert found == wanted


def text_of(term: object) -> Term:
    if isinstance(term, pyoxigraph.Triple):
        return triple_term(Triple(*map(text_of, term)))
    return Term(str(term))


def encode(triple: pyoxigraph.Triple) -> Iterator[pyoxigraph.Quad]:
    """The triple in the basic encoding of RDF 1.2 Interoperability."""
    value = triple.object
    if isinstance(value, pyoxigraph.Triple):
        node = pyoxigraph.BlankNode()
        yield pyoxigraph.Quad(node, rdf("type"), rdf("TripleTerm"))
        for name, part in zip(("ttSubject", "ttPredicate", "ttObject"), value, strict=True):
            yield from encode(pyoxigraph.Triple(node, rdf(name), part))
        value = node
    yield pyoxigraph.Quad(triple.subject, triple.predicate, value)


def rdf(name: str) -> pyoxigraph.NamedNode:
    return pyoxigraph.NamedNode(f"http://www.w3.org/1999/02/22-rdf-syntax-ns#{name}")
