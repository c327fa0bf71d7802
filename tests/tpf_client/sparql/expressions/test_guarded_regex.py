"""Regular expressions without a library: as RE2 matches, or an error; never for long."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest
from hypothesis import given

from tests.support.examples import examples
from tests.tpf_client.sparql.expressions.test_patterns import (
    ESCAPES,
    EVIL,
    flags,
    patterns,
    texts,
)
from tpf_client.errors import LimitError
from tpf_client.sparql.expressions import functions
from tpf_client.sparql.expressions.functions import regex, replace
from tpf_client.sparql.expressions.values import EvaluationError


@contextmanager
def without_libraries() -> Iterator[None]:
    """As where neither RE2 nor `regex` is installed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HAS_RE2", "HAS_REGEX"):
            patch.setattr(functions, name, False)
        functions.pattern_of.cache_clear()
        yield
    functions.pattern_of.cache_clear()


@examples(150)
@given(patterns, texts, flags)
def test_as_re2_matches(pattern: str, text: str, flags: str) -> None:
    expected = regex(pattern, flags).found_in(text)
    with without_libraries():
        assert regex(pattern, flags).found_in(text) == expected


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        *ESCAPES,
        (
            f"^{'-'.join(['[0-9A-F]{8}', *['[0-9A-F]{4}'] * 3, '[0-9A-F]{12}'])}$",
            "01234567-89AB-CDEF-0123-456789ABCDEF",
            "0" * 36,
        ),
        ("^https?://[a-z.]+/.*[0-9]$", "http://example.org/" + "a" * 40 + "1", "http:"),
    ],
)
def test_escapes_of_xpath(pattern: str, matching: str, other: str) -> None:
    with without_libraries():
        assert regex(pattern).found_in(matching)
        assert not regex(pattern).found_in(other)
        assert replace("a1b2", r"\d", "-") == "a-b-"
        assert regex("a.b", "q").found_in("xa.b")


def test_wrong_patterns_are_errors() -> None:
    with without_libraries():
        for pattern in ("[", "(", r"\y", r"\p{X}", "(?=a)"):
            with pytest.raises(EvaluationError):
                regex(pattern).found_in("a")


@pytest.mark.parametrize("pattern", EVIL)
def test_what_may_take_long_is_an_error(pattern: str) -> None:
    with without_libraries():
        before = monotonic()
        for text in ("a" * 5_000 + "!", "x" * 5_000):
            with pytest.raises(LimitError, match="regular expression"):
                regex(pattern).found_in(text)
        assert monotonic() - before < 5
