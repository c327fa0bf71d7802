"""Compact Turtle and TriG equal N-Quads, for any terms."""

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.namespaces import RDF_TYPE, TEMPORAL
from annotations.terms import Quad, Term, Triple, iri, literal, triple_term
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.writers.turtle import CompactPages, PredicateNames
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.protocols import quad_columns

PREFIXES = {
    "ex": "http://example.org/", "a-b": "http://example.org/p#", "long": "http://e.org/a/",
}  # fmt: skip
IRIS = st.sampled_from([
    "http://example.org/", "http://example.org/a", "http://example.org/b?c=/../d#e", "urn:x",
    "http://example.org//a", "http://example.org/a/../b", "http://example.org/a/.", "urn:a:/b",
    "http://example.org/./a", "http://example.org/.well-known/a", "http://example.org/a:b",
    "http://example.org", "https://example.org/a", "http://e.org/a/b", "http://e.org/a/1",
    "http://example.org/p#q", "http://example.org/%2e/é", "http://example.org:80/a",
]).map(iri)  # fmt: skip
PREDICATES = st.one_of(IRIS, st.just(RDF_TYPE))
TEXTS = st.one_of(
    st.text(max_size=10),
    st.sampled_from(
        ["<http://example.org/a>", '" <http://example.org/', "</a>", "<//", "/../", "\n} {"]
    ),
)
LITERALS = st.one_of(
    TEXTS.map(literal),
    st.builds(lambda t: literal(t, "en"), TEXTS),
    st.builds(lambda t, d: literal(t, datatype=d[1:-1]), TEXTS, IRIS),
)
OBJECTS = st.recursive(
    st.one_of(IRIS, LITERALS, st.just(Term("_:b"))),
    lambda inner: st.builds(lambda *t: triple_term(Triple(*t)), IRIS, PREDICATES, inner),
    max_leaves=2,
)
GRAPHS = st.one_of(st.just(Term("")), IRIS)


def _pages(prefixes: dict[str, str]) -> CompactPages:
    dataset = OpenDataset(DatasetSettings(name="d"), None, None)
    return CompactPages(
        Endpoint(dataset, None, Settings(prefixes=prefixes), "http://server.example/")
    )


def _read(text: str) -> list[str]:
    return sorted(map(str, ox.parse(text, ox.RdfFormat.TRIG, base_iri="http://base.example/x/")))


@pytest.mark.parametrize("prefixes", [{}, PREFIXES])
@given(quads=st.lists(st.builds(Quad, IRIS, PREDICATES, OBJECTS, GRAPHS), max_size=8))
def test_data_come_back_as_they_were(prefixes: dict[str, str], quads: list[Quad]) -> None:
    text = _pages(prefixes).data(quad_columns(quads))
    lines = "".join(f"{s} {p} {o} {g} .\n" for s, p, o, g in quads)
    assert _read(text) == sorted(map(str, ox.parse(lines, ox.RdfFormat.N_QUADS)))


@given(
    subjects=st.lists(IRIS, min_size=1, max_size=5), objects=st.lists(OBJECTS, max_size=1),
    predicate=PREDICATES,
)  # fmt: skip
def test_labels_come_back_as_they_were(
    subjects: list[Term], objects: list[Term], predicate: Term
) -> None:
    node, end = (
        Term("_:l1"),
        Term('"2026-01-01T00:00:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>'),
    )
    said = [("expiration", end), ("predicate", predicate), *(("subject", s) for s in subjects)]
    said += [("object", o) for o in objects]
    triples = [Triple(node, Term(f"<{TEMPORAL}{name}>"), value) for name, value in said]
    lines = "".join(f"{s} {p} {o} <urn:g> .\n" for s, p, o in triples)
    expected = sorted(set(map(str, ox.parse(lines, ox.RdfFormat.N_QUADS))))
    text = _pages({}).labels(triples, "<urn:g>")
    assert sorted(set(_read(text))) == expected
    # What is renewed is a line, and what it is about is another.
    assert [line.partition(" ")[0] for line in text.splitlines() if "_:l1" in line] == ["_:l1"] * 2


def test_prefixes_that_turtle_does_not_know_are_left_out() -> None:
    odd = {"1": "urn:", "_": "urn:", "": "urn:", "short": "ur", "wrong": "urn:<"}
    assert PredicateNames(odd)["<urn:a>"] == "<urn:a>"
    assert PredicateNames({**odd, "abc": "urn:x:"}).declared(["<urn:x:a>", RDF_TYPE]) == (
        "@prefix abc: <urn:x:> .\n"
    )


def test_prefixes_are_declared_in_the_order_of_the_data() -> None:
    names = {f"n{number}": f"http://example.org/{number}/" for number in range(12)}
    quads = [Quad(iri("urn:a"), iri(f"{space}p"), iri("urn:b")) for space in names.values()]
    for some in (quads, quads[::-1]):
        text = _pages(names).data(quad_columns(some))
        declared = [line.split()[1] for line in text.splitlines() if line.startswith("@prefix")]
        assert declared == [f"n{quad.predicate.split('/')[3]}:" for quad in some]


def test_pages_are_short() -> None:
    quads = [
        Quad(iri(f"http://example.org/{n}"), iri(f"http://example.org/p{m}"), literal("x"))
        for n in range(2)
        for m in range(3)
    ]
    assert _pages({}).data(quad_columns(quads)) == (
        "@base <http://example.org/> .\n"
        '</0> </p0> "x";</p1> "x";</p2> "x" .\n'
        '</1> </p0> "x";</p1> "x";</p2> "x" .\n'
    )
    assert _pages({"e": "http://example.org/"}).data(quad_columns(quads[:2])) == (
        '@prefix e: <http://example.org/> .\n<http://example.org/0> e:p0 "x";e:p1 "x" .\n'
    )
