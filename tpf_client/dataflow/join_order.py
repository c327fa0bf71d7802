"""In which order the operands of a join are built: each may be seeded by those before it."""

import math

from tpf_client.dataflow.node import CountingLeaves, Leaves, Node
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Pattern

_RANKS: dict[type, int] = {algebra.Values: 0, algebra.Path: 3, algebra.Service: 4}


def operands(pattern: Pattern) -> list[Pattern]:
    """What a join joins, joins within it taken apart."""
    if isinstance(pattern, algebra.Join):
        return operands(pattern.left) + operands(pattern.right)
    return [pattern]


def in_good_order(operands: list[Pattern], leaves: Leaves, seed: Node | None) -> list[Pattern]:
    """Inline data first; then what shares variables with what is there, the least first."""
    counts = {id(each): expected(each, leaves) for each in operands} if len(operands) > 1 else {}
    rest = list(operands)
    ordered: list[Pattern] = []
    known = set() if seed is None else set(seed.certain)

    def cost(each: Pattern) -> tuple[int, float]:
        return _RANKS.get(type(each), 2), counts[id(each)]

    while rest:
        connected = [each for each in rest if known & set(algebra.in_scope(each))]
        best = min(connected or rest, key=cost) if counts else rest[0]
        rest.remove(best)
        ordered.append(best)
        known.update(algebra.always_bound(best))
    return ordered


def expected(pattern: Pattern, leaves: Leaves) -> float:
    """About how many solutions a pattern has, where the leaves know."""
    match pattern:
        case algebra.BGP(patterns):
            # Without counts, what is not a union or an optional part comes first.
            return leaves.expected(patterns) if isinstance(leaves, CountingLeaves) else 0.0
        case algebra.Values(_, rows):
            return len(rows)
        case algebra.Union(left, right):
            return 1 + expected(left, leaves) + expected(right, leaves)
        case algebra.Join(left, right):
            return min(expected(left, leaves), expected(right, leaves))
        case algebra.LeftJoin(inner) | algebra.Minus(inner):
            return 1 + expected(inner, leaves)
        case algebra.Path() | algebra.Service():
            return math.inf
        case algebra.Slice(inner, _, limit):
            count = 1 + expected(inner, leaves)
            return count if limit is None else min(count, limit)
        case _:
            return 1 + expected(pattern.input, leaves)
