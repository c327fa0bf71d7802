"""The order of values, by which ORDER BY, MIN and MAX go."""

from hypothesis import example, given
from hypothesis import strategies as st

from tpf_client.sparql.expressions.values import Single
from tpf_client.sparql.ordering import value_key

doubles = st.floats(allow_nan=False)


@given(doubles, doubles)
@example(1e-20, 2e-20)
@example(5e-324, 0.0)
def test_doubles_are_in_the_order_of_their_values(one: float, other: float) -> None:
    for kind in (float, Single):
        left, right = kind(one), kind(other)
        assert (value_key(left) < value_key(right)) == (left < right)
