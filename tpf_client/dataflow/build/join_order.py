"""Order the operands of a join, each seeded by those before it."""

import math
from collections.abc import Collection
from itertools import count

from annotations.terms import Variable, is_variable
from tpf_client.dataflow.node import Leaves, Node
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import BGP, Path, Pattern, Repeat, variables_of_quad
from tpf_client.sparql.paths import path_pattern
from tpf_client.sparql.rewrite.join_order import components, greedy_order
from tpf_client.sparql.scopes import always_bound, in_scope

SELECTIVITY = 1 / 3
"""The part of the solutions that is taken to pass a filter (Selinger et al., *Access Path Selection
in a Relational Database Management System*, SIGMOD 1979, for open ranges), to be different, or to
be within reach."""

_VALUES, _PATTERNS, _PATHS, _SERVICES = range(4)


class JoinOrder:
    """Estimate the cardinality of patterns and order joins by it."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        # By the address of a pattern, which is kept here, so that no other gets it.
        self._guessed: dict[int, tuple[Pattern, bool, bool]] = {}
        self._counts: dict[int, tuple[Pattern, float]] = {}

    def of(self, operands: list[Pattern], seed: Node | None) -> list[Pattern]:
        """Put inline data first, then the smallest connected pattern."""
        if self._leaves.counts and len(operands) > 1:
            operands = [part for each in operands for part in _connected(each)]

        def cost(each: Pattern, bound: set[Variable]) -> tuple[int, float]:
            return _rank(each, bound), self._expected(each, bound)

        bound = () if seed is None else seed.certain
        return list(greedy_order(operands, in_scope, cost, bound, always_bound))

    def foreseen(self, pattern: Pattern) -> float:
        """Estimate the solutions of a pattern; infinite for paths, filters and groups."""
        _, guessed = self._marks(pattern)
        return math.inf if guessed else self._expected(pattern)

    def _marks(self, pattern: Pattern) -> tuple[bool, bool]:
        entry = self._guessed.get(id(pattern))
        if entry is None:
            path = guessed = isinstance(pattern, Path)
            guessed |= isinstance(pattern, (algebra.Filter, algebra.Group))
            for each in algebra.children(pattern):
                inner = self._marks(each)
                path |= inner[0]
                guessed |= inner[1]
            entry = self._guessed[id(pattern)] = pattern, path, guessed
        return entry[1:]

    def _expected(self, pattern: Pattern, bound: Collection[Variable] = ()) -> float:
        if bound and self._marks(pattern)[0]:
            return self._count(pattern, bound)
        entry = self._counts.get(id(pattern))
        if entry is None:
            entry = self._counts[id(pattern)] = pattern, self._count(pattern, ())
        return entry[1]

    def _count(self, pattern: Pattern, bound: Collection[Variable]) -> float:
        leaves, expected = self._leaves, self._expected
        match pattern:
            case BGP(patterns):
                return leaves.expected(patterns)
            case algebra.Values(_, rows):
                return len(rows)
            case algebra.Union(left, right):
                return 1 + expected(left, bound) + expected(right, bound)
            case algebra.Join(left, right):
                return min(expected(left, bound), expected(right, bound))
            case algebra.LeftJoin(inner) | algebra.Minus(inner):
                return 1 + expected(inner, bound)
            case Path() if leaves.counts and _has_bound_end(pattern, bound):
                return 1 + SELECTIVITY * self._count(steps_of(pattern), ())
            case Path() | algebra.Service():
                return math.inf
            case algebra.Slice(inner, _, limit):
                solutions = 1 + expected(inner, bound)
                return solutions if limit is None else min(solutions, limit)
            case algebra.Group(_, ()):
                return 1
            case algebra.Filter(inner) | algebra.Group(inner) | algebra.Distinct(inner):
                return 1 + SELECTIVITY * expected(inner, bound)
            case _:
                return 1 + expected(pattern.input, bound)


def _connected(pattern: Pattern) -> list[Pattern]:
    match pattern:
        case BGP((_, *_) as patterns):
            return [BGP(tuple(quads)) for quads in components(patterns, variables_of_quad)]
        case _:
            return [pattern]


def _rank(pattern: Pattern, bound: Collection[Variable]) -> int:
    match pattern:
        case algebra.Values():
            return _VALUES
        case Path() if not _has_bound_end(pattern, bound):
            return _PATHS
        case algebra.Service():
            return _SERVICES
        case _:
            return _PATTERNS


def _has_bound_end(path: Path, bound: Collection[Variable]) -> bool:
    return any(not is_variable(end) or end in bound for end in (path.subject, path.object))


def steps_of(path: Path) -> Pattern:
    """Return one step of a path as a pattern between two variables."""
    assert isinstance(path.path, Repeat)
    numbers = count()

    def fresh() -> Variable:
        return Variable(f"?.step{next(numbers)}")

    return path_pattern(fresh(), path.path.path, fresh(), path.graph, fresh)
