"""Push filters to the earliest part that certainly binds their variables.

Not into an optional or subtracted part; EXISTS and volatile functions stay. Source: SPARQL 1.1,
section 18; Schmidt, Meier and Lausen, *Foundations of SPARQL Query Optimization*, 2010, figure 3;
paper 003, section 5.1.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Final

from annotations.terms import Term, Variable, is_iri
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    BGP,
    EMPTY_GROUP,
    Aggregated,
    Call,
    Constant,
    Expression,
    Pattern,
    Repeat,
    VariableRef,
)
from tpf_client.sparql.rewrite.visitor import (
    combined,
    conjunction,
    conjuncts,
    join,
    movable,
    operands,
    substituted,
    with_children,
)
from tpf_client.sparql.scopes import always_bound, in_scope, mentioned, variables_in

# Limits below what gives one or more solutions for each: OPTIONAL and BIND.
#
# Source: SPARQL 1.1 Query Language, section 18.


def push_limits(pattern: Pattern) -> Pattern:
    """Push the limits of a query's outermost pattern inside."""
    match pattern:
        case algebra.Slice(inner, offset, limit, ()) if limit is not None:
            return replace(pattern, input=_limited(inner, offset + limit))
        case _:
            return pattern


def _limited(pattern: Pattern, count: int) -> Pattern:
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


# Conditions that name the IRIs that a variable may be, as inline data: those can be looked up.


def filters_to_values(pattern: Pattern) -> Pattern:
    """Replace conditions on basic graph patterns by VALUES where possible."""
    match pattern:
        case algebra.Filter(BGP() as bgp, condition):
            conditions = tuple(conjuncts(condition))
            values = {each: terms for each in conditions if (terms := _values(each, bgp))}
            rest = conjunction([each for each in conditions if each not in values])
            narrowed: Pattern = bgp if rest is None else algebra.Filter(bgp, rest)
            for each in dict.fromkeys(values.values()):
                narrowed = algebra.Join(each, narrowed)
            return narrowed
        case algebra.Service():
            return pattern
        case _:
            return with_children(pattern, filters_to_values)


def _values(condition: Expression, pattern: BGP) -> algebra.Values | None:
    """Only IRIs: equal numbers and texts may be different terms (17.4.1.7)."""
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


# Terms in place of variables that can have no other value: `BIND(<iri> AS ?x)`, VALUES of one row.
#
# Where one side of a join, or the left side of OPTIONAL, gives a variable the same term in every
# solution, a pattern beside it may as well have the term in the variable's place: then it is asked
# for with that term from the beginning, and counted so.
#
# Written *J(P) = P ⋈ {v → c}*, a pattern *P* becomes *P'* with *J(P') = J(P)*, without *v* where
# that can be:
#
# - the solutions of a basic graph pattern, or of a path of at least one step, that are compatible
#   with *v → c* are those that give *v* the value *c*: those of the pattern with *c* in its place,
#   with *v* added. (A path of no steps from a variable begins at what the graph holds, one from a
#   term also where the graph lacks it: section 18.4.)
# - joins and unions: *J(P ⋈ Q) = J(P) ⋈ J(Q)*, *J(P ∪ Q) = J(P) ∪ J(Q)*;
# - FILTER, BIND and the left side of OPTIONAL and MINUS, where what they compute does not mention
#   *v* and every solution of the left side binds it: each solution is then kept, extended or
#   matched for itself. The right side of OPTIONAL must not bind *v* any more when it is done, that
#   of MINUS must not mention it: what is left of the left side no longer says which value *v* has.
#
# VALUES whose rows leave different variables open (`UNDEF`) is taken apart before that, into a
# union of one VALUES for each set of variables that rows bind: *(V ∪ W) ⋈ P = (V ⋈ P) ∪ (W ⋈ P)*.
# Each side then knows for certain what it looks up *P* with; together they know nothing.
#
# Source: SPARQL 1.1 Query Language, sections 18.4 and 18.5; Pérez, Arenas and Gutierrez,
# *Semantics and Complexity of SPARQL*, TODS 2009, section 4.

Fixed = Mapping[Variable, Term]

MOST_SIDES: Final = 8
"""How often a pattern may be repeated for the sides of a union."""


def split_values(pattern: Pattern) -> Pattern:
    """Split VALUES with different unbound variables into a union."""
    match pattern:
        case algebra.Service():
            return pattern
        case algebra.Join() | algebra.LeftJoin():
            return combined(_sides(pattern), algebra.Union)
        case _:
            return with_children(pattern, split_values)


def _sides(pattern: Pattern) -> list[Pattern]:
    match pattern:
        case algebra.Values(variables, rows):
            sides: dict[tuple[Variable, ...], list[tuple[Term | None, ...]]] = {}
            for row in rows:
                bound = [(name, term) for name, term in zip(variables, row, strict=True) if term]
                names = tuple(name for name, _ in bound)
                sides.setdefault(names, []).append(tuple(term for _, term in bound))
            if len(sides) < 2 or () in sides or len(sides) > MOST_SIDES:
                # A row without values is joined with everything.
                return [pattern]
            return [algebra.Values(names, tuple(tuples)) for names, tuples in sides.items()]
        case algebra.Join():
            return _sides_of_join(operands(pattern))
        case algebra.LeftJoin(left, right, condition):
            right = split_values(right)
            sides_of_left = _sides(left)
            needed = _repeatable(right) and not _unsure(sides_of_left).isdisjoint(in_scope(right))
            if needed and (condition is None or movable(condition)):
                return [algebra.LeftJoin(each, right, condition) for each in sides_of_left]
            return [algebra.LeftJoin(combined(sides_of_left, algebra.Union), right, condition)]
        case _:
            return [split_values(pattern)]


def _sides_of_join(parts: list[Pattern]) -> list[Pattern]:
    sides: list[Pattern] = []
    rest: list[Pattern] = []
    for part in parts:
        alternatives = _sides(part)
        if len(alternatives) > 1 and len(sides or [part]) * len(alternatives) <= MOST_SIDES:
            sides = (
                [algebra.Join(a, b) for a in sides for b in alternatives] if sides else alternatives
            )
        else:
            rest.append(combined(alternatives, algebra.Union))
    if not sides:
        return [combined(rest)]
    rest = [single for part in rest for single in _patterns_of(part)]
    bound = [always_bound(each) for each in sides]
    given = frozenset().union(*bound)
    repeated: Pattern = EMPTY_GROUP
    while (chosen := _next_repeated(rest, bound, given)) is not None:
        rest.remove(chosen)
        repeated = join(repeated, chosen)
        bound = [each | always_bound(chosen) for each in bound]
    sides = [join(side, repeated) for side in sides]
    return [reduce(join, rest, combined(sides, algebra.Union))] if rest else sides


def _patterns_of(pattern: Pattern) -> list[Pattern]:
    return [BGP((quad,)) for quad in pattern.patterns] if isinstance(pattern, BGP) else [pattern]


def _next_repeated(
    rest: list[Pattern], bound: list[frozenset[Variable]], given: frozenset[Variable]
) -> Pattern | None:
    preferred = [each for each in rest if not given.isdisjoint(in_scope(each))]
    near = [
        each
        for each in rest
        if _repeatable(each) and not any(side.isdisjoint(in_scope(each)) for side in bound)
    ]
    if not preferred or not near:
        return None
    return next((each for each in near if each in preferred), near[0])


def _unsure(sides: list[Pattern]) -> frozenset[Variable]:
    bound = [always_bound(each) for each in sides]
    return frozenset().union(*bound) - frozenset.intersection(*bound)


def _repeatable(pattern: Pattern) -> bool:
    match pattern:
        case BGP() | algebra.Path() | algebra.Values():
            return True
        case algebra.Join(left, right) | algebra.Union(left, right) | algebra.Minus(left, right):
            return _repeatable(left) and _repeatable(right)
        case algebra.LeftJoin(left, right, condition):
            fixed_condition = condition is None or movable(condition)
            return fixed_condition and _repeatable(left) and _repeatable(right)
        case algebra.Filter(inner, expression) | algebra.Extend(inner, _, expression):
            return movable(expression) and _repeatable(inner)
        case _:
            return False


def put_constants(pattern: Pattern) -> Pattern:
    """Replace variables that can have only one value by it."""
    if isinstance(pattern, algebra.Service):
        return pattern
    whole = with_children(pattern, put_constants)
    match whole:
        case algebra.Join(left, right):
            return algebra.Join(_put(left, fixed(right)), _put(right, fixed(left)))
        case algebra.LeftJoin(left, right):
            return replace(whole, right=_put(right, fixed(left)))
        case _:
            return whole


def fixed(pattern: Pattern) -> dict[Variable, Term]:
    """Return the variables to which every solution gives the same term."""
    match pattern:
        case algebra.Values(variables, (row,)):
            return {name: term for name, term in zip(variables, row, strict=True) if term}
        case algebra.Extend(inner, variable, Constant(term)):
            return {**fixed(inner), variable: term}
        case algebra.Join(left, right):
            return {**fixed(left), **fixed(right)}
        case algebra.Filter(inner) | algebra.Extend(inner):
            return fixed(inner)
        case algebra.LeftJoin(inner) | algebra.Minus(inner):
            return fixed(inner)
        case _:
            return {}


def _put(pattern: Pattern, terms: Fixed) -> Pattern:
    """Replace variables by terms, as far as is correct: *P'* above."""
    if not any(name in terms for name in in_scope(pattern)):
        return pattern
    match pattern:
        case BGP() | algebra.Path(path=Repeat(at_least_once=True)):
            return substituted(pattern, terms)
        case algebra.Join(left, right):
            return algebra.Join(_put(left, terms), _put(right, terms))
        case algebra.Union(left, right):
            return algebra.Union(_put(left, terms), _put(right, terms))
        case algebra.Filter(inner, condition):
            return replace(pattern, input=_put(inner, _but(terms, inner, variables_in(condition))))
        case algebra.Extend(inner, variable, expression):
            used = variables_in(expression) | {variable}
            return replace(pattern, input=_put(inner, _but(terms, inner, used)))
        case algebra.Minus(left, right, apart):
            used = mentioned(right) | set(apart)
            return replace(pattern, left=_put(left, _but(terms, left, used)))
        case algebra.LeftJoin(left, right, condition):
            used = frozenset() if condition is None else variables_in(condition)
            usable = _but(terms, left, used)
            optional = _put(right, usable)
            usable = {name: usable[name] for name in usable.keys() - set(in_scope(optional))}
            return replace(pattern, left=_put(left, usable), right=_put(right, usable))
        case _:
            return pattern


def _but(terms: Fixed, inner: Pattern, used: frozenset[Variable]) -> Fixed:
    return {name: terms[name] for name in terms.keys() & always_bound(inner) - used}


def push_filters(pattern: Pattern, conditions: Iterable[Expression] = ()) -> Pattern:
    """Add conditions to a pattern, tested as early as possible."""
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
    bound = always_bound(pattern)
    return tuple(each for each in conditions if movable(each) and variables_in(each) <= bound)


def _others(conditions: Iterable[Expression], *patterns: Pattern) -> list[Expression]:
    return [each for each in conditions if not any(_fitting(p, (each,)) for p in patterns)]


def _past(
    pattern: Pattern, conditions: Iterable[Expression], fits: Callable[[Expression], bool]
) -> Pattern:
    below = [each for each in conditions if movable(each) and fits(each)]
    changed = with_children(pattern, lambda inner: push_filters(inner, below))
    return _filtered(changed, [each for each in conditions if each not in below])


def _filtered(pattern: Pattern, conditions: Iterable[Expression]) -> Pattern:
    condition = conjunction(conditions)
    return pattern if condition is None else algebra.Filter(pattern, condition)
