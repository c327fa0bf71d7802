"""Queries that differ in constants only: what they have in common, and what is their own.

The subjects and objects of triple patterns that differ become variables, one plan computes the
common text once for all, and a table of instances is joined in like any other input. So the cost of
an arrival follows the instances that match it, not those that there are.

Only queries whose instances do not disturb each other are merged: a basic graph pattern under
filters, BIND, grouping by keys, projection and DISTINCT. Constants that the last FILTER or HAVING
compares with are lifted too: there solutions are given to those queries whose constants compare,
and what is below is computed once for all (see `Dispatch`).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from annotations.terms import QuadPattern, Term, TermOrVariable, Variable, is_variable
from tpf_client.dataflow.exists_builder import conjuncts
from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
    Call,
    Constant,
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
    walk,
)
from tpf_server.cqels.constant_index import OPERATORS
from tpf_server.cqels.parser import ContinuousQuery
from tpf_server.cqels.static_cache import INSTANCE


@dataclass(frozen=True, slots=True)
class Template:
    """A query with its constants taken out.

    Args:
        key: equal for queries that have the same text but for constants.
        constants: what was taken out of triple patterns, in the order of the text, then what is
            compared with.
        matched: how many are in triple patterns.
        groups: whether there are groups below what compares.
    """

    key: object
    constants: tuple[Term, ...]
    matched: int
    groups: bool

    def opens(self, numbers: Collection[int]) -> bool:
        """Whether instances that differ in these constants may be added while elements flow.

        A group holds what came before them.
        """
        return not self.groups or any(number < self.matched for number in numbers)


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
    pattern_ = _with_bgp(query.query.pattern, BGP(tuple(patterns)))
    matched = len(constants)
    if any(query.window_of(each.graph) is not None for each in bgp.patterns):
        pattern_ = _comparing(pattern_, constants, None)
    groups = any(isinstance(each, Group) for each in walk(pattern_))
    common = replace(query.query, pattern=pattern_)
    return Template((common, query.windows), tuple(constants), matched, groups)


def _comparing(pattern: Pattern, constants: list[Term], wanted: Collection[int] | None) -> Pattern:
    """The pattern with variables for the constants that its last FILTER compares with.

    Args:
        pattern: of a query.
        constants: gets them.
        wanted: the numbers of those that are to be replaced; ``None``: all.
    """
    match pattern:
        case Project(inner, _) | Extend(inner, _, _):
            return replace(pattern, input=_comparing(inner, constants, wanted))
        case Filter(inner, condition):
            parts = [_compared(each, constants, wanted) for each in conjuncts(condition)]
            whole = parts[0]
            for each in parts[1:]:
                whole = Call("&&", (whole, each))
            return Filter(_comparing(inner, constants, wanted), whole)
    return pattern


def _compared(
    condition: Expression, constants: list[Term], wanted: Collection[int] | None
) -> Expression:
    match condition:
        case Call(operator, (left, Constant(term))) if operator in OPERATORS and not isinstance(
            left, Constant
        ):
            constants.append(term)
        case Call(operator, (Constant(term), left)) if operator in OPERATORS and not isinstance(
            left, Constant
        ):
            operator = OPERATORS[operator]
            constants.append(term)
        case _:
            return condition
    number = len(constants) - 1
    if wanted is not None and number not in wanted:
        return condition
    return Call(operator, (left, VariableRef(lifted_variable(number))))


def differing(one: Template, other: Template) -> tuple[int, ...]:
    """The numbers of the constants in which two queries of the same template differ."""
    pairs = zip(one.constants, other.constants, strict=True)
    return tuple(number for number, (left, right) in enumerate(pairs) if left != right)


def common_query(
    query: ContinuousQuery, numbers: tuple[int, ...]
) -> tuple[ContinuousQuery, frozenset[Variable]]:
    """The query with these constants as variables, its instances kept apart; and the variables.

    `INSTANCE` is among them where triple patterns have variables for constants, or there are no
    comparisons to keep the instances apart.
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
    matched = [number for number in numbers if number < count]
    found = [Term("")] * count
    pattern_ = _comparing(_with_bgp(query.query.pattern, BGP(tuple(patterns))), found, numbers)
    compares = len(matched) < len(numbers)
    pattern_ = _apart(pattern_, below=bool(matched) or not compares)
    common: Query = replace(query.query, pattern=pattern_)
    variables = frozenset(map(lifted_variable, numbers))
    if matched or not compares:
        variables |= {INSTANCE}
    return replace(query, query=common), variables


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


def _apart(pattern: Pattern, *, below: bool) -> Pattern:
    """The pattern with the column of instances let through to the top.

    Args:
        pattern: of the common query.
        below: whether the column is there below the last FILTER.
    """
    match pattern:
        case Project(inner, variables):
            return Project(_apart(inner, below=below), (*variables, INSTANCE))
        case Group(inner, keys, aggregates):
            own = (INSTANCE, VariableRef(INSTANCE))
            return Group(_apart(inner, below=below), (*keys, own), aggregates)
        case Filter() if not below:
            return pattern
        case Filter(inner) | Extend(inner) | Distinct(inner):
            return replace(pattern, input=_apart(inner, below=below))
        case _:
            return pattern
