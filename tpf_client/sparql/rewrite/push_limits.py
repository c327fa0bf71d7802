"""Limits below what gives one or more solutions for each: OPTIONAL and BIND.

Source: SPARQL 1.1 Query Language, section 18.
"""

from dataclasses import replace

from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Pattern
from tpf_client.sparql.rewrite.conditions import movable
from tpf_client.sparql.scopes import always_bound, in_scope, variables_in


def push_limits(pattern: Pattern) -> Pattern:
    """A part of the solutions as large as before, in the same order, with limits inside.

    Args:
        pattern: the outermost one of a query.
    """
    match pattern:
        case algebra.Slice(inner, offset, limit, ()) if limit is not None:
            return replace(pattern, input=_limited(inner, offset + limit))
        case _:
            return pattern


def _limited(pattern: Pattern, count: int) -> Pattern:
    """A pattern of whose solutions some `count` are wanted, if it has so many."""
    match pattern:
        case algebra.Project(inner) | algebra.Extend(inner):
            return replace(pattern, input=_limited(inner, count))
        case algebra.OrderBy(inner, conditions):
            return replace(pattern, input=_first(inner, count, conditions))
        case algebra.Union(left, right):
            both = algebra.Union(_limited(left, count), _limited(right, count))
            if both == pattern:
                return pattern
            return algebra.Union(
                algebra.Slice(both.left, 0, count), algebra.Slice(both.right, 0, count)
            )
        case algebra.LeftJoin(left):
            return replace(pattern, left=algebra.Slice(_limited(left, count), 0, count))
        case _:
            return pattern


def _first(pattern: Pattern, count: int, conditions: tuple[algebra.OrderCondition, ...]) -> Pattern:
    """A pattern of whose solutions the first `count` in an order are wanted."""
    used = frozenset().union(*(variables_in(each.expression) for each in conditions))
    fixed = all(movable(each.expression) for each in conditions)
    match pattern:
        case algebra.Extend(inner, variable) if variable not in used:
            return replace(pattern, input=_first(inner, count, conditions))
        case algebra.LeftJoin(left, right) if fixed and used & frozenset(
            in_scope(right)
        ) <= always_bound(left):
            ordered = algebra.OrderBy(_first(left, count, conditions), conditions)
            return replace(pattern, left=algebra.Slice(ordered, 0, count))
        case _:
            return pattern
