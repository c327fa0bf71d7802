"""The order of values, by which ORDER BY, MIN and MAX go."""

from hypothesis import example, given
from hypothesis import strategies as st

from annotations.namespaces import XSD
from annotations.terms import Term
from tpf_client.sparql.expressions.values import Single, value_of
from tpf_client.sparql.ordering import value_key

doubles = st.floats(allow_nan=False)


@given(doubles, doubles)
@example(1e-20, 2e-20)
@example(5e-324, 0.0)
def test_doubles_are_in_the_order_of_their_values(one: float, other: float) -> None:
    for kind in (float, Single):
        left, right = kind(one), kind(other)
        assert (value_key(left) < value_key(right)) == (left < right)


def typed(text: str, kind: str) -> str:
    return f'"{text}"^^<{XSD}{kind}>'


IN_ORDER = [
    "_:a", "<urn:a>", typed("NaN", "double"), typed("-1", "integer"), typed("1.5", "decimal"),
    typed("2e0", "double"), typed("false", "boolean"), typed("true", "boolean"), '"1"', '"a"',
    '"b"@de', '"a"@en', '"b"@en', typed("2001-01-01Z", "date"),
    typed("2001-01-01T00:00:00Z", "dateTime"), typed("P1D", "duration"), typed("P1M", "duration"),
    '"1"^^<urn:kind>', typed("x", "integer"), '<<( <urn:a> <urn:b> "1" )>>',
    '<<( <urn:a> <urn:b> "a"@de )>>', '<<( <urn:b> <urn:a> "1" )>>',
]  # fmt: skip
"""Kinds in their order: each may stand beside each other one."""


@given(st.permutations(IN_ORDER))
def test_terms_of_all_kinds_have_one_order(terms: list[str]) -> None:
    assert sorted(terms, key=lambda each: value_key(value_of(Term(each)))) == IN_ORDER
