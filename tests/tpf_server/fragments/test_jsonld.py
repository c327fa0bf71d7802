"""JSON-LD is put together from the text of terms: any text must come through."""

import json

import pyoxigraph
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term, Triple
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


@given(st.lists(st.builds(pyoxigraph.Triple, IRIS.map(pyoxigraph.NamedNode), PREDICATES, OBJECTS)))
def test_any_triples_come_back(triples: list[pyoxigraph.Triple]) -> None:
    rows = [Triple(*[Term(str(term)) for term in triple]) for triple in triples]
    text = document(rows)
    json.loads(text)
    found = pyoxigraph.parse(text.encode(), format=pyoxigraph.RdfFormat.JSON_LD)
    assert {quad.triple for quad in found} == set(triples)
