"""Minted names and the IRIs of fragments, there and back."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given

from annotations.labels import Expiration, Fact, Interval
from annotations.methods import names
from annotations.methods.names import (
    fragment_iri,
    identity,
    is_minted,
    minted,
    quad_of_fragment,
    read_fragment_iri,
    token_of,
)
from annotations.terms import Quad, Term, iri, literal
from tests.support.facts import FACTS, NAMING

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
QUAD = Quad(iri("http://example.org/s"), iri("http://example.org/p"), literal("o"))


def test_a_name_outlives_the_renewal_of_an_expiration_and_the_end_of_an_interval() -> None:
    assert identity(Fact(QUAD, Expiration(NOON))) == identity(Fact(QUAD, Expiration(NOON + HOUR)))
    open_ended = Fact(QUAD, Interval(NOON, NOON + 9 * HOUR))
    closed = Fact(QUAD, Interval(NOON, NOON + HOUR))
    assert identity(open_ended) == identity(closed)


def test_what_is_kept_of_terms_is_short() -> None:
    long = QUAD._replace(object=literal("o" * 10_000))
    assert quad_of_fragment(fragment_iri(long, NAMING), NAMING) == long
    before = names._known_expanded.cache_info().currsize
    fragment_iri(long._replace(object=literal("p" * 10_000)), NAMING)
    assert names._known_expanded.cache_info().currsize == before


@given(fact=FACTS)
def test_the_token_is_read_back(fact: Fact) -> None:
    name = minted("interval", fact, NAMING)
    assert token_of(name, "interval", NAMING) == identity(fact)
    assert token_of(name, "graph", NAMING) is None
    assert is_minted(name, NAMING)


@pytest.mark.parametrize(
    "term",
    [
        "<http://example.org/trains/facts/graph/0>",
        f"<http://example.org/trains/facts/graph/{'A' * 32}>",
        f"<http://example.org/trains/facts/graph/{'0' * 33}>",
        f"<http://example.org/other/graph/{'0' * 32}>",
        '"x"',
    ],
)
def test_other_terms_are_no_minted_names(term: str) -> None:
    assert token_of(term, "graph", NAMING) is None
    assert not is_minted(term, NAMING)


def test_the_fragment_is_named_as_the_template_expands() -> None:
    quad = Quad(iri("http://example.org/s"), iri("http://example.org/p#é"), literal("a b", "en"))
    assert fragment_iri(quad, NAMING) == (
        "<http://example.org/trains?subject=http%3A%2F%2Fexample.org%2Fs"
        "&predicate=http%3A%2F%2Fexample.org%2Fp%23%C3%A9&object=%22a%20b%22%40en>"
    )
    typed = literal("5", datatype="http://example.org/d~t")
    in_graph = quad._replace(object=typed, graph=iri("urn:g"))
    assert fragment_iri(in_graph, NAMING).endswith(
        "&object=%225%22%5E%5Ehttp%3A%2F%2Fexample.org%2Fd~t&graph=urn%3Ag>"
    )


def test_other_spellings_are_read_but_are_not_the_fragment() -> None:
    term = Term("<http://other.example/?object=%22o+o%22&predicate=urn:p&subject=%3Curn:s%3E>")
    assert read_fragment_iri(term) == Quad(iri("urn:s"), iri("urn:p"), literal("o o"))
    assert quad_of_fragment(term, NAMING) is None


@pytest.mark.parametrize(
    "term",
    [
        "_:b",
        "<http://example.org/trains>",
        "<http://example.org/trains?subject=urn%3As&predicate=urn%3Ap>",
        "<http://example.org/trains?subject=urn%3As&subject=urn%3As&predicate=urn%3Ap&object=urn%3Ao>",
        "<http://example.org/trains?subject=s&predicate=urn%3Ap&object=urn%3Ao>",
        "<http://example.org/trains?subject=urn%3As&predicate=urn%3Ap&object=%22o>",
        "<http://example.org/trains?subject=urn%3As&predicate=urn%3Ap&object=%FF>",
        "<http://[example.org/trains?subject=urn%3As&predicate=urn%3Ap&object=urn%3Ao>",
    ],
)
def test_what_names_no_fact(term: str) -> None:
    assert read_fragment_iri(term) is None
