"""In which order the operands of a join are built: each may be seeded by those before it."""

import math
from collections.abc import Collection
from itertools import count

from annotations.terms import Variable, is_variable
from tpf_client.dataflow.node import CountingLeaves, Leaves, Node
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import BGP, Path, Pattern, Repeat, variables_of_quad
from tpf_client.sparql.paths import path_pattern
from tpf_client.sparql.rewrite.components import components
from tpf_client.sparql.rewrite.join_order import greedy_order
from tpf_client.sparql.scopes import always_bound, in_scope

SELECTIVITY = 1 / 3
"""The part of the solutions that is taken to pass a filter (Selinger et al., *Access Path Selection
in a Relational Database Management System*, SIGMOD 1979, for open ranges), to be different, or to
be within reach."""

_VALUES, _PATTERNS, _PATHS, _SERVICES = range(4)


def in_good_order(operands: list[Pattern], leaves: Leaves, seed: Node | None) -> list[Pattern]:
    """Inline data first; then what shares variables with what is there, the least first.

    Where the leaves count, basic graph patterns are taken apart that something else connects.
    """
    if isinstance(leaves, CountingLeaves) and len(operands) > 1:
        operands = [part for each in operands for part in _connected(each)]

    # What is known decides about paths only; all else is counted once, however many there are.
    counts = {id(each): None if _has_path(each) else expected(each, leaves) for each in operands}

    def cost(each: Pattern, known: set[Variable]) -> tuple[int, float]:
        count = counts[id(each)]
        return _rank(each, known), expected(each, leaves, known) if count is None else count

    known = () if seed is None else seed.certain
    return list(greedy_order(operands, in_scope, cost, known, always_bound))


def _connected(pattern: Pattern) -> list[Pattern]:
    """The parts of a basic graph pattern that share no variable with one another."""
    match pattern:
        case BGP((_, *_) as patterns):
            return [BGP(tuple(quads)) for quads in components(patterns, variables_of_quad)]
        case _:
            return [pattern]


def _has_path(pattern: Pattern) -> bool:
    return any(isinstance(each, Path) for each in algebra.walk(pattern))


def _rank(pattern: Pattern, known: Collection[Variable]) -> int:
    match pattern:
        case algebra.Values():
            return _VALUES
        case Path() if not _has_known_end(pattern, known):
            return _PATHS
        case algebra.Service():
            return _SERVICES
        case _:
            return _PATTERNS


def _has_known_end(path: Path, known: Collection[Variable]) -> bool:
    return any(not is_variable(end) or end in known for end in (path.subject, path.object))


def steps_of(path: Path) -> Pattern:
    """One step of a path of any length, as a pattern between two variables."""
    assert isinstance(path.path, Repeat)
    numbers = count()

    def fresh() -> Variable:
        return Variable(f"?.step{next(numbers)}")

    return path_pattern(fresh(), path.path.path, fresh(), path.graph, fresh)


def foreseen(pattern: Pattern, leaves: Leaves) -> float:
    """About how many solutions a pattern has, without guesses about paths, filters and groups.

    Infinite where there are such.
    """
    unforeseen = (Path, algebra.Filter, algebra.Group)
    if any(isinstance(each, unforeseen) for each in algebra.walk(pattern)):
        return math.inf
    return expected(pattern, leaves)


def expected(pattern: Pattern, leaves: Leaves, known: Collection[Variable] = ()) -> float:
    """About how many solutions a pattern has, where the leaves know.

    Args:
        pattern: any.
        leaves: who counts.
        known: variables of which a few values are known.
    """
    match pattern:
        case BGP(patterns):
            # Without counts, what is not a union or an optional part comes first.
            return leaves.expected(patterns) if isinstance(leaves, CountingLeaves) else 0.0
        case algebra.Values(_, rows):
            return len(rows)
        case algebra.Union(left, right):
            return 1 + expected(left, leaves, known) + expected(right, leaves, known)
        case algebra.Join(left, right):
            return min(expected(left, leaves, known), expected(right, leaves, known))
        case algebra.LeftJoin(inner) | algebra.Minus(inner):
            return 1 + expected(inner, leaves, known)
        case Path() if isinstance(leaves, CountingLeaves) and _has_known_end(pattern, known):
            return 1 + SELECTIVITY * expected(steps_of(pattern), leaves)
        case Path() | algebra.Service():
            return math.inf
        case algebra.Slice(inner, _, limit):
            solutions = 1 + expected(inner, leaves, known)
            return solutions if limit is None else min(solutions, limit)
        case algebra.Group(_, ()):
            return 1
        case algebra.Filter(inner) | algebra.Group(inner) | algebra.Distinct(inner):
            return 1 + SELECTIVITY * expected(inner, leaves, known)
        case _:
            return 1 + expected(pattern.input, leaves, known)
