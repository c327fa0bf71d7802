"""Values of literals, and the letters of computed ones."""

import sys

from hypothesis import example, given
from hypothesis import strategies as st

from tpf_client.sparql.expressions.values import LONGEST, Single, double_text, read_double


@given(st.floats(allow_nan=False))
@example(1e300)
@example(sys.float_info.max)
@example(-5e-324)
def test_a_computed_double_is_read_as_the_same_double(value: float) -> None:
    text = double_text(value)
    assert read_double(text) == value
    assert len(text) <= LONGEST


@given(st.floats(allow_nan=False, width=32))
def test_a_computed_float_is_read_as_the_same_float(value: float) -> None:
    text = double_text(Single(value))
    assert Single(read_double(text) or 0.0) == Single(value)
    assert len(text) <= LONGEST
