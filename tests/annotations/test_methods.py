"""Every method decodes its encoding of any label and terms."""

from datetime import datetime
from random import Random

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.errors import MethodError
from annotations.labels import Fact, at_instant, check_no_overlap, overlaps
from annotations.methods import METHODS, method_named
from annotations.methods.method import Method
from annotations.namespaces import DEFAULT_VOCABULARY
from tests.support.facts import FACTS, INSTANTS, NAMING, points
from tests.support.oracle import quad_of

every_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


@every_method
@given(fact=FACTS)
def test_decode_inverts_encode(method: Method, fact: Fact) -> None:
    assert method.decode(method.encode(fact, NAMING), NAMING) == [fact]


@given(facts=st.lists(FACTS, max_size=8), order=st.integers(0, 2**32))
def test_decode_inverts_encode_of_many_in_any_order(facts: list[Fact], order: int) -> None:
    later = {fact for _, fact in overlaps(facts, "triple")}
    labelled = {fact.quad for fact in facts if fact.label is not None}
    facts = [f for f in dict.fromkeys(facts) if f not in later]
    # What is stated both for ever and for a while: two of the methods cannot tell.
    facts = [f for f in facts if f.label is not None or f.quad not in labelled]
    for method in METHODS:
        quads = [quad for fact in facts for quad in method.encode(fact, NAMING)]
        Random(order).shuffle(quads)
        decoded = method.decode(quads, NAMING, key="triple")
        assert sorted(decoded, key=str) == sorted(facts, key=str), method.name
        check_no_overlap(decoded, "triple")


@given(fact=FACTS, instants=st.lists(INSTANTS, min_size=1, max_size=3, unique=True))
def test_instants_are_read_as_what_holds_then_only(fact: Fact, instants: list[datetime]) -> None:
    facts = [fact._replace(label=at_instant(instant)) for instant in sorted(instants)]
    for method in METHODS:
        quads = points([quad for each in facts for quad in method.encode(each, NAMING)])
        assert any(quad.predicate == DEFAULT_VOCABULARY.instant for quad in quads)
        decoded = method.decode(quads, NAMING)
        assert sorted(decoded, key=str) == sorted(facts, key=str), method.name


@every_method
@given(fact=FACTS)
def test_what_is_encoded_is_rdf_in_canonical_form(method: Method, fact: Fact) -> None:
    for quad in method.encode(fact, NAMING):
        text = " ".join(term for term in quad if term) + " ."
        (parsed,) = ox.parse(text, format=ox.RdfFormat.N_QUADS)
        # A parser renames blank nodes.
        if "_:" not in text:
            assert quad_of(parsed) == quad


def test_methods_are_found_by_name() -> None:
    assert [method_named(method.name) for method in METHODS] == list(METHODS)
    with pytest.raises(MethodError, match="named-graph"):
        method_named("plain")
