"""Trees of joins or unions, taken apart and put together."""

from collections.abc import Iterable
from functools import reduce

from tpf_client.sparql.algebra import BGP, EMPTY_GROUP, Join, Pattern, Union


def operands(pattern: Pattern, kind: type[Join] | type[Union] = Join) -> list[Pattern]:
    """What a tree of joins joins, or a tree of unions unites, in the order of the text."""
    found: list[Pattern] = []
    waiting = [pattern]
    while waiting:
        each = waiting.pop()
        if isinstance(each, kind):
            waiting += (each.right, each.left)
        else:
            found.append(each)
    return found


def combined(patterns: Iterable[Pattern], kind: type[Join] | type[Union] = Join) -> Pattern:
    """A tree of joins or unions of these patterns, at least one."""
    return reduce(kind, patterns)


def join(left: Pattern, right: Pattern) -> Pattern:
    """The join of two patterns, basic graph patterns melted into one."""
    if left == EMPTY_GROUP:
        return right
    if right == EMPTY_GROUP:
        return left
    if isinstance(left, BGP) and isinstance(right, BGP):
        return BGP(left.patterns + right.patterns)
    return Join(left, right)
