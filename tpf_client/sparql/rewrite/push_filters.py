"""Filters to the earliest place where they may stand.

A filter that runs before a lookup or a join spares the work for the solutions that it drops. What
moves, and why the answers stay the same: a condition looks at nothing but its variables, so it may
be tested on any part of a pattern that binds all of them in every solution; where a part is
optional or subtracted, on the part that is not; below a projection or DISTINCT wherever it can be
told there; below an aggregation only if it selects whole groups. Conditions with EXISTS or with
functions that give another value at each call stay where they are, and patterns in EXISTS as they
are.

Source: SPARQL 1.1 Query Language, section 18; Schmidt, Meier and Lausen, *Foundations of SPARQL
Query Optimization*, ICDT 2010, figure 3 (rules of the family F); for C-SPARQL paper 003, section
5.1.
"""

from collections.abc import Callable, Iterable

from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Aggregated, Expression, Pattern
from tpf_client.sparql.rewrite.conditions import conjunction, conjuncts, movable
from tpf_client.sparql.rewrite.visitor import with_children
from tpf_client.sparql.scopes import always_bound, variables_in


def push_filters(pattern: Pattern, conditions: Iterable[Expression] = ()) -> Pattern:
    """The same solutions, with conditions tested as early as they can be.

    Args:
        pattern: a pattern.
        conditions: what its solutions must fulfil, too.
    """
    conditions = tuple(conditions)
    match pattern:
        case algebra.Filter(inner, condition):
            return push_filters(inner, (*conjuncts(condition), *conditions))
        case algebra.Join(left, right):
            sides = [push_filters(side, _fitting(side, conditions)) for side in (left, right)]
            joined = algebra.Join(sides[0], sides[1])
            return _filtered(joined, _others(conditions, left, right))
        case algebra.LeftJoin(left, right, condition):
            inside = () if condition is None else tuple(conjuncts(condition))
            fitting = _fitting(right, inside)
            optional = push_filters(right, fitting)
            required = push_filters(left, _fitting(left, conditions))
            rest = conjunction([each for each in inside if each not in fitting])
            return _filtered(algebra.LeftJoin(required, optional, rest), _others(conditions, left))
        case algebra.Union(left, right):
            fitting = tuple(each for each in conditions if movable(each))
            both = algebra.Union(push_filters(left, fitting), push_filters(right, fitting))
            return _filtered(both, [each for each in conditions if each not in fitting])
        case algebra.Minus(left, right, apart):
            kept = push_filters(left, _fitting(left, conditions))
            return _filtered(
                algebra.Minus(kept, push_filters(right), apart), _others(conditions, left)
            )
        case Aggregated(inner):
            return _past(pattern, conditions, lambda each: variables_in(each) <= set(pattern.keys))
        case algebra.Extend(inner):
            bound = always_bound(inner)
            return _past(pattern, conditions, lambda each: variables_in(each) <= bound)
        case algebra.Project(_, variables):
            return _past(pattern, conditions, lambda each: variables_in(each) <= set(variables))
        case algebra.Distinct() | algebra.Reduced():
            return _past(pattern, conditions, lambda _: True)
        case algebra.Group() | algebra.OrderBy() | algebra.Slice():
            return _filtered(with_children(pattern, push_filters), conditions)
        case _:
            return _filtered(pattern, conditions)


def _fitting(pattern: Pattern, conditions: Iterable[Expression]) -> tuple[Expression, ...]:
    """Those of these conditions that can be tested on the solutions of a pattern."""
    bound = always_bound(pattern)
    return tuple(each for each in conditions if movable(each) and variables_in(each) <= bound)


def _others(conditions: Iterable[Expression], *patterns: Pattern) -> list[Expression]:
    """The conditions that fit none of these patterns."""
    return [each for each in conditions if not any(_fitting(p, (each,)) for p in patterns)]


def _past(
    pattern: Pattern, conditions: Iterable[Expression], fits: Callable[[Expression], bool]
) -> Pattern:
    """The pattern with those conditions below it that fit there, and the others above."""
    below = [each for each in conditions if movable(each) and fits(each)]
    changed = with_children(pattern, lambda inner: push_filters(inner, below))
    return _filtered(changed, [each for each in conditions if each not in below])


def _filtered(pattern: Pattern, conditions: Iterable[Expression]) -> Pattern:
    condition = conjunction(conditions)
    return pattern if condition is None else algebra.Filter(pattern, condition)
