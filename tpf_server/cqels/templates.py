"""Queries that differ in constants only: what they have in common, and what is their own.

The subjects and objects of triple patterns that differ become variables, one plan computes the
common text once for all, and a table of instances is joined in like any other input. So the cost of
an arrival follows the instances that match it, not those that there are.

Only queries whose instances do not disturb each other are merged: a basic graph pattern under
filters, BIND, grouping by keys, projection and DISTINCT.
"""

from dataclasses import dataclass, replace

from annotations.terms import QuadPattern, Term, TermOrVariable, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
    Call,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    Group,
    Pattern,
    Project,
    Query,
    VariableRef,
)
from tpf_server.cqels.parser import ContinuousQuery
from tpf_server.cqels.static_cache import INSTANCE


@dataclass(frozen=True, slots=True)
class Template:
    """A query with its constants taken out.

    Args:
        key: equal for queries that have the same text but for constants.
        constants: what was taken out, in the order of the text.
    """

    key: object
    constants: tuple[Term, ...]


def template_of(query: ContinuousQuery) -> Template | None:
    """The template of a query; ``None`` where it cannot share a plan with others."""
    bgp = _only_bgp(query.query.pattern)
    if bgp is None or query.query.form == "ASK":
        return None
    constants: list[Term] = []
    patterns = []
    for pattern in bgp.patterns:
        places: list[TermOrVariable] = []
        for place, term in enumerate(pattern):
            if place in (0, 2) and not is_variable(term):
                constants.append(Term(term))
                places.append(Variable(f"?.c{len(constants) - 1}"))
            else:
                places.append(term)
        patterns.append(QuadPattern(*places))
    common = replace(query.query, pattern=_with_bgp(query.query.pattern, BGP(tuple(patterns))))
    return Template((common, query.windows), tuple(constants))


def differing(one: Template, other: Template) -> tuple[int, ...]:
    """The numbers of the constants in which two queries of the same template differ."""
    pairs = zip(one.constants, other.constants, strict=True)
    return tuple(number for number, (left, right) in enumerate(pairs) if left != right)


def common_query(
    query: ContinuousQuery, numbers: tuple[int, ...]
) -> tuple[ContinuousQuery, frozenset[Variable]]:
    """The query with these constants as variables, its instances kept apart; and the variables.

    `INSTANCE` is among them.
    """
    bgp = _only_bgp(query.query.pattern)
    assert bgp is not None
    count = 0
    patterns = []
    for pattern in bgp.patterns:
        places: list[TermOrVariable] = []
        for place, term in enumerate(pattern):
            if place in (0, 2) and not is_variable(term):
                places.append(lifted_variable(count) if count in numbers else term)
                count += 1
            else:
                places.append(term)
        patterns.append(QuadPattern(*places))
    pattern_ = _apart(_with_bgp(query.query.pattern, BGP(tuple(patterns))))
    common: Query = replace(query.query, pattern=pattern_)
    return replace(query, query=common), frozenset((INSTANCE, *map(lifted_variable, numbers)))


def lifted_variable(number: int) -> Variable:
    """The variable that stands for a constant."""
    return Variable(f"?.c{number}")


def _only_bgp(pattern: Pattern) -> BGP | None:
    match pattern:
        case BGP():
            return pattern
        case Filter(inner, condition):
            return None if _unsafe(condition) else _only_bgp(inner)
        case Extend(inner, _, expression):
            return None if _unsafe(expression) else _only_bgp(inner)
        case Project(inner, _) | Distinct(inner):
            return _only_bgp(inner)
        case Group(inner, keys, aggregates):
            expressions = [each for _, each in keys] + [
                each.argument for _, each in aggregates if each.argument is not None
            ]
            if (
                not keys
                or any(map(_unsafe, expressions))
                or any(each.argument is None and each.distinct for _, each in aggregates)
            ):
                return None
            return _only_bgp(inner)
        case _:
            return None


def _unsafe(expression: Expression) -> bool:
    if isinstance(expression, (Exists, Aggregate)):
        return True
    return isinstance(expression, Call) and any(map(_unsafe, expression.arguments))


def _with_bgp(pattern: Pattern, bgp: BGP) -> Pattern:
    if isinstance(pattern, BGP):
        return bgp
    assert isinstance(pattern, (Filter, Extend, Project, Distinct, Group))
    return replace(pattern, input=_with_bgp(pattern.input, bgp))


def _apart(pattern: Pattern) -> Pattern:
    """The pattern with the column of instances let through to the top."""
    match pattern:
        case Project(inner, variables):
            return Project(_apart(inner), (*variables, INSTANCE))
        case Group(inner, keys, aggregates):
            return Group(_apart(inner), (*keys, (INSTANCE, VariableRef(INSTANCE))), aggregates)
        case Filter(inner) | Extend(inner) | Distinct(inner):
            return replace(pattern, input=_apart(inner))
        case _:
            return pattern
