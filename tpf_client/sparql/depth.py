"""Bound the depth of queries, and make room on the stack for it."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from typing import Any, TypeVar

from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.algebra import parts_of

T = TypeVar("T")

MAX_LEVELS = 200
"""Levels of brackets and braces inside one another."""
MAX_DEPTH = 2_000
"""Levels of the algebra, one of which is each step of a chain."""

_ORDINARY = 30
"""Levels that every process has room for."""
_FRAMES = 16
_SPARE = 2_000


def balanced(combine: Callable[[T, T], T], parts: Sequence[T]) -> T:
    """Combine parts, in order, by something associative, as a balanced tree."""
    while len(parts) > 1:
        pairs = [combine(parts[n], parts[n + 1]) for n in range(0, len(parts) - 1, 2)]
        parts = [*pairs, parts[-1]] if len(parts) % 2 else pairs
    return parts[0]


def check_levels(levels: int) -> None:
    """Make room for so many nested brackets; `UnsupportedQueryError` if too deep."""
    if levels > MAX_LEVELS:
        raise UnsupportedQueryError(
            f"this query is nested too deeply: more than {MAX_LEVELS} levels"
        )
    make_room(levels)


def check_depth(value: Any) -> None:
    """Make room for walks through a query; `UnsupportedQueryError` if too deep."""
    check_chain(_depth_of(value))


def check_chain(steps: int) -> None:
    """Make room for a chain of one level a step; `UnsupportedQueryError` if too long."""
    if steps > MAX_DEPTH:
        raise UnsupportedQueryError(
            f"this query is nested too deeply: {steps} levels, a long chain having one for each "
            f"step, and at most {MAX_DEPTH} are possible"
        )
    make_room(steps)


def chained(steps: Iterable[T]) -> list[T]:
    """Return the steps of a chain, each of which calls the next; see `check_chain`."""
    chain = list(steps)
    check_chain(len(chain))
    return chain


def _depth_of(value: Any) -> int:
    deepest = 0
    waiting = [(value, 1)]
    while waiting:
        each, level = waiting.pop()
        if is_dataclass(each):
            deepest = max(deepest, level)
            level += 1
        waiting += [(part, level) for part in parts_of(each)]
    return deepest


def make_room(levels: int) -> None:
    """Raise the recursion limit for a walk through so many levels."""
    limit = levels * _FRAMES + _SPARE
    if levels > _ORDINARY and sys.getrecursionlimit() < limit:
        sys.setrecursionlimit(limit)
