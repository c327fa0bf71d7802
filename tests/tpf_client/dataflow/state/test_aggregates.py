"""Sums of numbers with a binary point: rounded once, whatever the order in which they came."""

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term
from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.state.aggregates import Sum
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import Single

DICTIONARY = TermDictionary()
TERMS = TypedTerms(DICTIONARY)
doubles = st.floats(-1e300, 1e300)


def term(value: float) -> TermId:
    """The identifier of a number, as it is written in a stream."""
    kind = "float" if isinstance(value, Single) else "double"
    text = {math.inf: "INF", -math.inf: "-INF"}.get(value, repr(float(value)))
    return DICTIONARY.encode(Term(f'"{text}"^^<http://www.w3.org/2001/XMLSchema#{kind}>'))


def summed(values: Iterable[float], *, average: bool = False) -> TermId:
    """What a group says of values that come one after the other."""
    made = Sum(TERMS, average=average)
    for value in values:
        made.add(term(value), 1)
    return made.result()


@given(st.lists(doubles, min_size=1), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(values: list[float], random: Random) -> None:
    for average in (False, True):
        shuffled = random.sample(values, len(values))
        assert summed(values, average=average) == summed(shuffled, average=average)
    # Copies of a value are multiplied first, which rounds them.
    if max(Counter(values).values()) == 1:
        assert summed(values) == TERMS.encode(float(sum(map(Fraction, values))))


@given(st.lists(doubles), st.lists(doubles, min_size=1))
def test_what_has_gone_leaves_nothing(gone: list[float], stays: list[float]) -> None:
    made = Sum(TERMS)
    for value in (*gone, *stays):
        made.add(term(value), 1)
    for value in gone:
        made.add(term(value), -1)
    assert made.result() == summed(stays)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.2, 0.3], 0.6),
        ([1e16, 1.0, -1e16], 1.0),
        ([1e308, 9e307], math.inf),
        ([-1e308, -9e307], -math.inf),
        # Only what is in between is too large.
        ([1e308, 9e307, -1e308, -9e307, 2.5], 2.5),
        ([math.inf, 1.0], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([Single(0.1), Single(0.2)], Single(Single(0.1) + Single(0.2))),
        ([Single(0.1), 0.2], Single(0.1) + 0.2),
    ],
)
def test_sums_by_hand(values: list[float], expected: float) -> None:
    assert summed(values) == TERMS.encode(expected)
