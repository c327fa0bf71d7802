"""Values of literals, and the letters of computed ones."""

import sys

from hypothesis import example, given
from hypothesis import strategies as st

from annotations.namespaces import XSD
from annotations.terms import literal
from tpf_client.sparql.expressions.values import (
    LONGEST,
    Opaque,
    Single,
    double_text,
    read_double,
    value_of,
)


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


def test_only_digits_of_ascii_are_digits() -> None:
    for name, text in {
        "boolean": "1", "integer": "10", "decimal": "-1.5", "double": "1e5", "float": "2",
        "dateTime": "2020-01-02T10:11:12.5Z", "date": "2020-01-02+10:00", "time": "10:11:12",
        "duration": "P1Y2M3DT4H5M6.7S", "dayTimeDuration": "P1D", "yearMonthDuration": "P1Y",
    }.items():  # fmt: skip
        assert not isinstance(value_of(literal(text, datatype=XSD + name)), Opaque)
        for place, digit in enumerate(text):
            if digit.isdigit():
                other = f"{text[:place]}{chr(0x660 + int(digit))}{text[place + 1 :]}"
                assert isinstance(value_of(literal(other, datatype=XSD + name)), Opaque), other
