"""XPath regular expressions against Python's, with libraries and without; and for how long."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tpf_client.errors import LimitError
from tpf_client.sparql.expressions import functions
from tpf_client.sparql.expressions.functions import regex, replace
from tpf_client.sparql.expressions.values import LONGEST_STRING, EvaluationError

_atoms = st.sampled_from(["a", "b", "é", "[ab]", "[^a]", ".", "^", "$", r"\n", r"\d", r"\s"])
patterns = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{1,2}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)
texts = st.text("abé1 \n\r", max_size=8)
flags = st.sampled_from(["", "i", "m", "s", "ms"])


def _python(pattern: str, flags: str) -> "re.Pattern[str]":
    if "m" not in flags:
        pattern = pattern.replace("$", r"\Z")
    if "s" not in flags:
        pattern = pattern.replace(".", r"[^\n\r]")
    pattern = pattern.replace(r"\s", r"[ \t\n\r]")
    options = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
    return re.compile(pattern, sum(options[each] for each in flags))


@examples(150)
@given(patterns, texts, flags)
def test_as_python_matches(pattern: str, text: str, flags: str) -> None:
    compiled = _python(pattern, flags)
    assert regex(pattern, flags).found_in(text) == (compiled.search(text) is not None)
    if compiled.search(""):
        with pytest.raises(EvaluationError):
            replace(text, pattern, "-", flags)
    else:
        # What Python replaces, empty matches in the middle of a text apart.
        found = [each for each in compiled.finditer(text) if each.group()]
        made = list(regex(pattern, flags).matches(text))
        assert [each.span() for each in found] == [(m.start(), m.end()) for m in made if m.group(0)]


ESCAPES = [
    (r"^\w+$", "éa_1+", "a-b"),
    (r"^[\d_]+$", "١2_", "a"),
    (r"^\i\c*$", "é-1", "-a"),
    (r"^[\p{Lu}\P{L}]+$", "A1", "a"),
    (r"^\p{Nd}{2}$", "12", "1"),
    (r"^(.)\1$", "aa", "ab"),
    ("\U0001f600+", "\U0001f600\U0001f600", "x"),
]
"""Patterns, a text that matches, and one that does not."""


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        *ESCAPES,
        (r"^\W$", "-", "a"),
        (r"^[^\s]$", "a", " "),
        (r"^[\S]$", "a", "\t"),
        (r"^\I$", "-", "a"),
        (r"^(a|b)[$]\1$", "a$a", "a$b"),
        (r"^\(\[\.\\\-$", "([.\\-", "x"),
        ("a\nb", "a\nb", "ab"),
    ],
)
def test_escapes_of_xpath(pattern: str, matching: str, other: str) -> None:
    assert regex(pattern).found_in(matching)
    assert not regex(pattern).found_in(other)


@pytest.mark.parametrize(
    "pattern",
    ["[", "(", "a**", r"\y", r"\b", r"\p{X}", r"\p{L", "(?i)a", "(?=a)", "(?P<x>a)", "[a-z-[b]]",
     "a{2000}", "((((a{30}){30}){30}){30})", r"[\I]", r"\2", "\ud800"],
)  # fmt: skip
def test_wrong_patterns_are_errors(pattern: str) -> None:
    with pytest.raises(EvaluationError):
        regex(pattern).found_in("a")


EVIL = ["(a+)+$", "(a*)*b", "(a|aa)+$", "(a|a?)+$", "(.*a){20}", "(x+x+)+y", "^(a?){50}a{50}$",
        "(.*)*(.*)*(.*)*=", "([a-z]+)*[0-9]"]  # fmt: skip


@pytest.mark.parametrize("pattern", EVIL)
def test_no_pattern_freezes(pattern: str) -> None:
    # Any engine that backtracks would not come back from these within a lifetime.
    for text in ("a" * 50_000 + "!", "x" * 50_000, "a" * 50_000):
        regex(pattern).found_in(text)
        if not regex(pattern).found_in(""):
            replace(text, pattern, "-")


def test_back_references_give_up() -> None:
    with pytest.raises(EvaluationError):
        regex(r"^(a+)+\1$").found_in("a" * 5000 + "b")
    with pytest.raises(EvaluationError):
        replace("a" * 5000 + "b", r"^(a+)+\1$", "-")


def test_replacements_are_bounded() -> None:
    assert replace("ab", "b", "x" * (LONGEST_STRING - 1)) == "a" + "x" * (LONGEST_STRING - 1)
    with pytest.raises(EvaluationError):
        replace("a" * 10_000, ".", "$0" * 10_000)
    # Nor may what adds nothing go on for long.
    with pytest.raises(EvaluationError):
        replace("a" * 100_000, "(b)?a", "$1" * 100_000)


# ----------------------- without a library: as RE2 matches, or an error; never for long


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
def test_escapes_of_xpath_without_libraries(pattern: str, matching: str, other: str) -> None:
    with without_libraries():
        assert regex(pattern).found_in(matching)
        assert not regex(pattern).found_in(other)
        assert replace("a1b2", r"\d", "-") == "a-b-"
        assert regex("a.b", "q").found_in("xa.b")


def test_wrong_patterns_are_errors_without_libraries() -> None:
    with without_libraries():
        for pattern in ("[", "(", r"\y", r"\p{X}", "(?=a)"):
            with pytest.raises(EvaluationError):
                regex(pattern).found_in("a")


@pytest.mark.parametrize("pattern", EVIL)
def test_what_may_take_long_without_libraries_is_an_error(pattern: str) -> None:
    with without_libraries():
        before = monotonic()
        for text in ("a" * 5_000 + "!", "x" * 5_000):
            with pytest.raises(LimitError, match="regular expression"):
                regex(pattern).found_in(text)
        assert monotonic() - before < 5
