"""Matching finds precisely the quads that encoding everything would write."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.errors import EncodeError
from annotations.instants import instant_term
from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods import METHODS
from annotations.methods.base import FactPattern
from annotations.methods.method import Method
from annotations.methods.names import fragment_iri, minted
from annotations.namespaces import (
    DEFAULT_VOCABULARY,
    RDF_OBJECT,
    RDF_REIFIES,
    RDF_STATEMENT,
    RDF_TYPE,
)
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    TermOrVariable,
    Triple,
    Variable,
    iri,
    literal,
    triple_term,
)
from tests.support import stores
from tests.support.facts import NAMING
from tests.support.live_model import matches

every_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
A, B, C = (iri(f"http://example.org/{name}") for name in "abc")
VOCABULARY_TERMS = [
    *sorted(DEFAULT_VOCABULARY.label_predicates),
    *sorted(DEFAULT_VOCABULARY.structure_predicates),
    RDF_TYPE,
    RDF_STATEMENT,
]
LABELS: st.SearchStrategy[Label] = st.sampled_from(
    [
        Expiration(NOON),
        Expiration(NOON + timedelta(seconds=1)),
        Interval(NOON - timedelta(hours=1), NOON),
        Interval(NOON - timedelta(hours=2), NOON + timedelta(seconds=1)),
    ]
)
# Few terms, so that facts share them, and words of the vocabulary in every position.
RESOURCES = st.sampled_from([A, B, C, RDF_OBJECT, RDF_REIFIES, RDF_STATEMENT, RDF_TYPE])
PREDICATES = st.sampled_from([A, B, RDF_TYPE, *sorted(DEFAULT_VOCABULARY.structure_predicates)])
OBJECTS = st.one_of(
    RESOURCES,
    st.sampled_from([literal("x"), instant_term(NOON), triple_term(Triple(A, B, C))]),
)
GRAPHS = st.sampled_from([DEFAULT_GRAPH, DEFAULT_GRAPH, A, B])
# As in a store at one instant: one label per quad.
FACTS = st.dictionaries(
    st.builds(Quad, RESOURCES, PREDICATES, OBJECTS, GRAPHS), LABELS, max_size=8
).map(lambda labels: [Fact(quad, label) for quad, label in labels.items()])
VARIABLES = st.sampled_from([Variable(f"?{name}") for name in "xyz"])


@st.composite
def patterns(draw: st.DrawFn, facts: list[Fact], quads: list[Quad]) -> QuadPattern:
    """Patterns around an existing quad, or of any existing terms."""
    terms = sorted({term for quad in quads for term in quad} | {A, NAMING_ELSE, literal("y")})
    terms += VOCABULARY_TERMS
    near = draw(st.one_of(st.none(), st.sampled_from(quads))) if quads else None
    chosen: list[TermOrVariable] = []
    for position in range(4):
        constant = st.just(near[position]) if near else st.sampled_from(terms)
        chosen.append(draw(st.one_of(VARIABLES, VARIABLES, constant)))
    return QuadPattern(*chosen)


NAMING_ELSE = iri("http://example.org/trains/facts/graph/" + "0" * 32)


def shown(method: Method, pattern: QuadPattern, facts: list[Fact]) -> list[Quad]:
    return [
        part.render(fact)
        for part in method.match(pattern, NAMING)
        for fact in facts
        if matches(fact, part.facts) and (part.residual is None or part.residual(fact))
    ]


@given(facts=FACTS, data=st.data())
def test_parts_show_exactly_what_encoding_everything_would(
    facts: list[Fact], data: st.DataObject
) -> None:
    for method in METHODS:
        everything = [quad for fact in facts for quad in method.encode(fact, NAMING)]
        pattern = data.draw(patterns(facts, everything))
        # Sorted lists, not sets: a quad that two parts show would be counted twice.
        assert sorted(shown(method, pattern, facts)) == sorted(
            quad for quad in everything if stores.matches([quad], pattern)
        ), method.name


@given(facts=FACTS)
def test_every_encoded_quad_is_found_alone(facts: list[Fact]) -> None:
    for method in METHODS:
        for fact in facts:
            for quad in method.encode(fact, NAMING):
                assert shown(method, QuadPattern(*quad), facts) == [quad], method.name


@every_method
def test_usual_patterns_need_no_filter_beyond_the_index(method: Method) -> None:
    s, p, o, g = (Variable(f"?{name}") for name in "spog")
    fact = Fact(Quad(A, B, C), Expiration(NOON))
    for quad in method.encode(fact, NAMING):
        for pattern in (
            QuadPattern(s, p, o, g),
            QuadPattern(quad.subject, p, o, g),
            QuadPattern(s, quad.predicate, o, g),
            QuadPattern(quad.subject, quad.predicate, o, g),
            QuadPattern(s, p, o, quad.graph),
        ):
            parts = method.match(pattern, NAMING)
            assert parts
            assert all(part.residual is None for part in parts)


def test_a_minted_name_is_looked_up_by_its_token() -> None:
    fact = Fact(Quad(A, B, C), Expiration(NOON))
    method = METHODS[0]
    name = minted("property", fact, NAMING)
    (part,) = method.match(QuadPattern(Variable("?s"), name, C), NAMING)
    token = name.removesuffix(">").rsplit("/", 1)[1]
    assert part.facts == FactPattern(object=C, graph=DEFAULT_GRAPH, identity=token)


def test_the_iri_of_a_fragment_is_looked_up_by_its_terms() -> None:
    method = next(method for method in METHODS if method.name == "implicit-graph")
    quad = Quad(A, B, literal('a "b" & c', language="en"), C)
    pattern = QuadPattern(fragment_iri(quad, NAMING), DEFAULT_VOCABULARY.expiration, Variable("?t"))
    *_, part = method.match(pattern, NAMING)
    assert part.facts == FactPattern(*quad, labelling="expiration")


@every_method
def test_a_fact_that_reads_as_an_annotation_is_refused(method: Method) -> None:
    label = Expiration(NOON)
    other = minted("reifier", Fact(Quad(A, B, C), label), NAMING)
    for quad in (
        Quad(A, DEFAULT_VOCABULARY.expiration, instant_term(NOON)),
        Quad(A, DEFAULT_VOCABULARY.initial, instant_term(NOON)),
        Quad(other, RDF_REIFIES, triple_term(Triple(A, B, C))),
    ):
        with pytest.raises(EncodeError, match="annotation"):
            method.encode(Fact(quad, label), NAMING)
        with pytest.raises(EncodeError, match="annotation"):
            method.encode(Fact(quad), NAMING)
