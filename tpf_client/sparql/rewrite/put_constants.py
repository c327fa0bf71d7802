"""Terms in place of variables that can have no other value: `BIND(<iri> AS ?x)`, VALUES of one row.

Where one side of a join, or the left side of OPTIONAL, gives a variable the same term in every
solution, a pattern beside it may as well have the term in the variable's place: then it is asked
for with that term from the beginning, and counted so.

Written *J(P) = P ⋈ {v → c}*, a pattern *P* becomes *P'* with *J(P') = J(P)*, without *v* where that
can be:

- the solutions of a basic graph pattern, or of a path of at least one step, that are compatible
  with *v → c* are those that give *v* the value *c*: those of the pattern with *c* in its place,
  with *v* added. (A path of no steps from a variable begins at what the graph holds, one from a
  term also where the graph lacks it: section 18.4.)
- joins and unions: *J(P ⋈ Q) = J(P) ⋈ J(Q)*, *J(P ∪ Q) = J(P) ∪ J(Q)*;
- FILTER, BIND and the left side of OPTIONAL and MINUS, where what they compute does not mention *v*
  and every solution of the left side binds it: each solution is then kept, extended or matched for
  itself. The right side of OPTIONAL must not bind *v* any more when it is done, that of MINUS must
  not mention it: what is left of the left side no longer says which value *v* has.

VALUES whose rows leave different variables open (`UNDEF`) is taken apart before that, into a union
of one VALUES for each set of variables that rows bind: *(V ∪ W) ⋈ P = (V ⋈ P) ∪ (W ⋈ P)*. Each
side then knows for certain what it looks up *P* with; together they know nothing.

Source: SPARQL 1.1 Query Language, sections 18.4 and 18.5; Pérez, Arenas and Gutierrez, *Semantics
and Complexity of SPARQL*, TODS 2009, section 4.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Final

from annotations.terms import QuadPattern, Term, TermOrVariable, Variable, is_variable
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import BGP, EMPTY_GROUP, Constant, Pattern
from tpf_client.sparql.path_expressions import Repeat
from tpf_client.sparql.rewrite.conditions import movable
from tpf_client.sparql.rewrite.operands import combined, join, operands
from tpf_client.sparql.rewrite.visitor import with_children
from tpf_client.sparql.scopes import always_bound, in_scope, mentioned, variables_in

Fixed = Mapping[Variable, Term]

MOST_SIDES: Final = 8
"""How often a pattern may be repeated for the sides of a union."""


def split_values(pattern: Pattern) -> Pattern:
    """The same solutions, with VALUES that leave different variables open taken apart.

    What is joined with one, or optional to it, is repeated in each side of the union as far as its
    variables are not bound in all sides.
    """
    match pattern:
        case algebra.Service():
            return pattern
        case algebra.Join() | algebra.LeftJoin():
            return combined(_sides(pattern), algebra.Union)
        case _:
            return with_children(pattern, split_values)


def _sides(pattern: Pattern) -> list[Pattern]:
    """The patterns whose union a pattern is, where they look up more by themselves."""
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
            return [algebra.Values(names, tuple(found)) for names, found in sides.items()]
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
        found = _sides(part)
        if len(found) > 1 and len(sides or [part]) * len(found) <= MOST_SIDES:
            sides = [algebra.Join(a, b) for a in sides for b in found] if sides else found
        else:
            rest.append(combined(found, algebra.Union))
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
    """The patterns of a basic graph pattern, each by itself; what is none, as it is."""
    return [BGP((quad,)) for quad in pattern.patterns] if isinstance(pattern, BGP) else [pattern]


def _next_repeated(
    rest: list[Pattern], bound: list[frozenset[Variable]], given: frozenset[Variable]
) -> Pattern | None:
    """What to join with each side; ``None``: nothing else is any better for it.

    It shares a variable with each of them. What has one that VALUES gives comes first; anything
    else is a way to such.

    Args:
        rest: what may be joined with the sides.
        bound: the variables of each side.
        given: the variables of VALUES.
    """
    wanted = [each for each in rest if not given.isdisjoint(in_scope(each))]
    near = [
        each
        for each in rest
        if _repeatable(each) and not any(side.isdisjoint(in_scope(each)) for side in bound)
    ]
    if not wanted or not near:
        return None
    return next((each for each in near if each in wanted), near[0])


def _unsure(sides: list[Pattern]) -> frozenset[Variable]:
    """The variables that some sides bind, but not all."""
    bound = [always_bound(each) for each in sides]
    return frozenset().union(*bound) - frozenset.intersection(*bound)


def _repeatable(pattern: Pattern) -> bool:
    """Whether a pattern has the same solutions each time: no sub-query, no RAND()."""
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
    """The same solutions, with terms in place of the variables that can have no other value.

    Args:
        pattern: a pattern.
    """
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
    """The variables to which every solution of a pattern gives the same term."""
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
    """The pattern with terms in place of variables, as far as may be: *P'* above."""
    if not any(name in terms for name in in_scope(pattern)):
        return pattern
    match pattern:
        case BGP(patterns):
            return BGP(
                tuple(QuadPattern(*(_at(each, terms) for each in quad)) for quad in patterns)
            )
        case algebra.Path(subject, Repeat(at_least_once=True) as path, object_, graph):
            return algebra.Path(_at(subject, terms), path, _at(object_, terms), _at(graph, terms))
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


def _at(term: TermOrVariable, terms: Fixed) -> TermOrVariable:
    return terms.get(Variable(term), term) if is_variable(term) else term


def _but(terms: Fixed, inner: Pattern, used: frozenset[Variable]) -> Fixed:
    """The terms of variables that a pattern always binds and that nothing else uses."""
    return {name: terms[name] for name in terms.keys() & always_bound(inner) - used}
