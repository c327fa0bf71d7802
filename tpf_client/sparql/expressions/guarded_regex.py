"""Regular expressions on Python's own engine, for browsers without RE2 and `regex`.

It cannot be stopped, so risky patterns end the query with an error.
"""

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from tpf_client.errors import LimitError
from tpf_client.sparql.expressions.environment import Spend
from tpf_client.sparql.expressions.values import EvaluationError

_MOST_STEPS: Final = 10**8
"""Steps that matching a pattern with a text may take."""
_AT_ONCE: Final = 16
"""Of these, few are taken in practice."""
_CATEGORY: Final = re.compile(r"\\([pP])\{(\w+)\}")
_REPEATS: Final = re.compile(r"[*+]|\{\d*+(?:,\d*+)?\}")
_FIXED: Final = re.compile(r"\{\d++\}")
"""Repeats a number of times that leaves no choice."""
_TOKEN: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]?|\(|\)|\||[*+?]|\{\d*+(?:,\d*+)?\}|.", re.DOTALL
)


class GuardedRegex:
    """A pattern on Python's engine."""

    def __init__(self, pattern: str, flags: str) -> None:
        options = re.IGNORECASE if "i" in flags else 0
        options |= re.MULTILINE if "m" in flags else 0
        try:
            self._pattern = re.compile(_without_categories(pattern), options)
        except re.error:
            raise EvaluationError from None
        self.groups: int = self._pattern.groups
        self.states = len(pattern)
        self._repeats, self._choices, self._nested = _repetition(pattern)

    def found_in(self, text: str, spend: Spend | None = None) -> bool:
        """True if it matches somewhere; a `LimitError` if this may take too long."""
        self._check(text, spend)
        return self._pattern.search(text) is not None

    def matches(self, text: str, spend: Spend | None = None) -> Iterator[re.Match[str]]:
        """Yield matches from left to right; a `LimitError` if this may take too long."""
        self._check(text, spend)
        yield from self._pattern.finditer(text)

    def _check(self, text: str, spend: Spend | None) -> None:
        length = len(text)
        # What repeats choices may try all of them at each character.
        steps = 2 ** min(length, 99) if self._nested else length ** (self._repeats + 1)
        steps *= 2**self._choices
        if steps > _MOST_STEPS:
            raise LimitError(
                f"this regular expression may take too long here: {self._pattern.pattern[:100]!a}"
            )
        if spend is not None:
            spend(steps // _AT_ONCE)


def _repetition(pattern: str) -> tuple[int, int, bool]:
    inside = [False]
    repeats, choices, nested, closed = 0, 0, False, False
    before = ""
    for token in _TOKEN.findall(pattern):
        if token == "(":
            inside.append(False)
        elif token == ")" and len(inside) > 1:
            closed = inside.pop()
            inside[-1] = inside[-1] or closed
            before = token
            continue
        elif token == "|" or (token == "?" and before != "(" and not _REPEATS.fullmatch(before)):
            choices += 1
            inside[-1] = True
        elif _REPEATS.fullmatch(token) and (closed or not _FIXED.fullmatch(token)):
            repeats += 1
            nested = nested or closed
            inside[-1] = True
        closed, before = False, token
    return repeats, choices, nested


def _without_categories(pattern: str) -> str:
    parts: list[str] = []
    for token in re.split(r"(\\[pP]\{\w+\}|\\.|\[|\])", pattern):
        match = _CATEGORY.fullmatch(token)
        if match is None:
            parts.append(token)
            continue
        ranges = _ranges(match[2], outside=match[1] == "P")
        # Classes are never inside of classes.
        opened = _is_open(parts)
        parts.append(ranges if opened else f"[{ranges}]")
    return "".join(parts)


def _is_open(parts: list[str]) -> bool:
    for part in reversed(parts):
        if part == "[":
            return True
        if part == "]":
            return False
    return False


@lru_cache(64)
def _ranges(category: str, *, outside: bool) -> str:
    ranges: list[str] = []
    start: int | None = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and (
            unicodedata.category(chr(code)).startswith(category) is not outside
        )
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(ranges)
