"""Filters and limits to the earliest place where they may stand.

A filter that runs before a lookup spares the requests for the solutions that it drops. What moves,
and why the answers stay the same: a condition looks at nothing but its variables, so it may be
tested on any part of a pattern that binds all of them in every solution; where a part is optional,
subtracted or grouped, on the part that is not. Conditions with EXISTS or with functions that give
another value at each call stay where they are.

A limit goes below OPTIONAL and BIND: every solution of what is required gives one or more.

Source: SPARQL 1.1 Query Language, section 18; Schmidt, Meier and Lausen, *Foundations of SPARQL
Query Optimization*, ICDT 2010, figure 3 (rules of the family F).
"""

from collections.abc import Iterable
from dataclasses import replace

from annotations.terms import is_iri
from tpf_client.dataflow.exists_builder import conjuncts, first_exists
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    BGP,
    Call,
    Constant,
    Expression,
    Pattern,
    VariableRef,
    always_bound,
    variables_in,
)
from tpf_client.sparql.expressions.compiler import is_volatile


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
            rest = _conjunction([each for each in inside if each not in fitting])
            return _filtered(algebra.LeftJoin(required, optional, rest), _others(conditions, left))
        case algebra.Union(left, right):
            movable = [each for each in conditions if _movable(each)]
            both = algebra.Union(push_filters(left, movable), push_filters(right, movable))
            return _filtered(both, [each for each in conditions if each not in movable])
        case algebra.Minus(left, right, apart):
            kept = push_filters(left, _fitting(left, conditions))
            return _filtered(
                algebra.Minus(kept, push_filters(right), apart), _others(conditions, left)
            )
        case algebra.Extend(inner) | algebra.Distinct(inner) | algebra.Reduced(inner):
            return _filtered(
                replace(pattern, input=push_filters(inner, _fitting(inner, conditions))),
                _others(conditions, inner),
            )
        case algebra.Project(inner, variables):
            seen = [each for each in conditions if variables_in(each) <= frozenset(variables)]
            fitting = _fitting(inner, seen)
            return _filtered(
                algebra.Project(push_filters(inner, fitting), variables),
                [each for each in conditions if each not in fitting],
            )
        case algebra.Group() | algebra.OrderBy() | algebra.Slice():
            return _filtered(replace(pattern, input=push_filters(pattern.input)), conditions)
        case BGP():
            values = {each: found for each in conditions if (found := _values(each, pattern))}
            rest_of_them = [each for each in conditions if each not in values]
            narrowed: Pattern = _filtered(pattern, rest_of_them)
            for each in dict.fromkeys(values.values()):
                narrowed = algebra.Join(each, narrowed)
            return narrowed
        case _:
            return _filtered(pattern, conditions)


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
    movable = all(_movable(each.expression) for each in conditions)
    match pattern:
        case algebra.Extend(inner, variable) if variable not in used:
            return replace(pattern, input=_first(inner, count, conditions))
        case algebra.LeftJoin(left, right) if movable and used & frozenset(
            algebra.in_scope(right)
        ) <= always_bound(left):
            ordered = algebra.OrderBy(_first(left, count, conditions), conditions)
            return replace(pattern, left=algebra.Slice(ordered, 0, count))
        case _:
            return pattern


def _movable(condition: Expression) -> bool:
    return first_exists(condition) is None and not is_volatile(condition)


def _fitting(pattern: Pattern, conditions: Iterable[Expression]) -> tuple[Expression, ...]:
    """Those of these conditions that can be tested on the solutions of a pattern."""
    bound = always_bound(pattern)
    return tuple(each for each in conditions if _movable(each) and variables_in(each) <= bound)


def _others(conditions: Iterable[Expression], *patterns: Pattern) -> list[Expression]:
    """The conditions that fit none of these patterns."""
    return [each for each in conditions if not any(_fitting(p, (each,)) for p in patterns)]


def _filtered(pattern: Pattern, conditions: Iterable[Expression]) -> Pattern:
    condition = _conjunction(conditions)
    return pattern if condition is None else algebra.Filter(pattern, condition)


def _conjunction(conditions: Iterable[Expression]) -> Expression | None:
    whole: Expression | None = None
    for each in conditions:
        whole = each if whole is None else Call("&&", (whole, each))
    return whole


def _values(condition: Expression, pattern: BGP) -> algebra.Values | None:
    """What a condition says of a variable of the pattern, as the terms that it may have.

    Being equal to an IRI is being that IRI (section 17.4.1.7); numbers and texts may be equal to
    others than themselves.
    """
    match condition:
        case Call("=", (VariableRef(variable), Constant(term))) | Call(
            "=", (Constant(term), VariableRef(variable))
        ):
            allowed = [Constant(term)]
        case Call("IN", (VariableRef(variable), *others)):
            if not all(isinstance(each, Constant) for each in others):
                return None
            allowed = [each for each in others if isinstance(each, Constant)]
        case _:
            return None
    terms = dict.fromkeys(each.term for each in allowed)
    if variable not in always_bound(pattern) or not all(is_iri(term) for term in terms):
        return None
    return algebra.Values((variable,), tuple((term,) for term in terms))
