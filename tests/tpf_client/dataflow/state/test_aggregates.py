"""Sums: exact for exact numbers, rounded once for others."""

import math
from collections import Counter
from collections.abc import Iterable
from decimal import Context, Decimal
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
from tpf_client.sparql.expressions.values import Single, double_text

DICTIONARY = TermDictionary()
TERMS = TypedTerms(DICTIONARY)
doubles = st.floats(-1e300, 1e300)


def term(value: float) -> TermId:
    """Return the identifier of a number as written in a stream."""
    kind = "float" if isinstance(value, Single) else "double"
    text = double_text(value)
    return DICTIONARY.encode(Term(f'"{text}"^^<http://www.w3.org/2001/XMLSchema#{kind}>'))


def summed(values: Iterable[float], *, average: bool = False) -> TermId:
    """Return the aggregate of values in order."""
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
        ([1e308, 9e307, math.inf], math.inf),
        ([1e308, 9e307, -math.inf], -math.inf),
        ([1e308, 9e307, math.nan], math.nan),
        ([Single(0.1), Single(0.2)], Single(Single(0.1) + Single(0.2))),
        ([Single(0.1), 0.2], Single(0.1) + 0.2),
    ],
)
def test_sums_by_hand(values: list[float], expected: float) -> None:
    assert summed(values) == TERMS.encode(expected)


def exact_term(value: int | Decimal) -> TermId:
    """Return the identifier of an integer or decimal as written in a stream."""
    kind = "decimal" if isinstance(value, Decimal) else "integer"
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return DICTIONARY.encode(Term(f'"{text}"^^<http://www.w3.org/2001/XMLSchema#{kind}>'))


def cut_off(value: Fraction) -> Fraction:
    """Truncate to 18 decimal digits."""
    whole = int(abs(value) * 10**18)
    return Fraction(whole if value >= 0 else -whole, 10**18)


# Those inside integers, with more digits than Python's decimals have unless told, and with more
# behind the point than results have.
exact_numbers = st.one_of(
    st.integers(-9, 9),
    st.integers(-(10**40), 10**40),
    st.builds(
        lambda unscaled, scale: Decimal(unscaled).scaleb(-scale, Context(prec=60)),
        st.one_of(st.integers(-999, 999), st.integers(-(10**40), 10**40)),
        st.one_of(st.integers(0, 3), st.integers(0, 40)),
    ),
)


@pytest.mark.parametrize("average", [False, True])
@given(gone=st.lists(exact_numbers), stays=st.lists(exact_numbers, min_size=1))
def test_sums_of_exact_numbers_are_exact(
    gone: list[int | Decimal], stays: list[int | Decimal], *, average: bool
) -> None:
    made = Sum(TERMS, average=average)
    for value in (*gone, *stays):
        made.add(exact_term(value), 1)
    for value in gone:
        made.add(exact_term(value), -1)
    exact = sum(map(Fraction, stays), Fraction(0))
    whole = not average and all(isinstance(each, int) for each in stays)
    found = TERMS[made.result()]
    assert isinstance(found, int if whole else Decimal)
    expected = cut_off(exact)
    assert Fraction(found) == (cut_off(expected / len(stays)) if average else expected)
