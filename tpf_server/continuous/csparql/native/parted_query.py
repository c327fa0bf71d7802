"""A query in two parts: what it shares with queries that compare with other constants, and its own.

The cut is at the last FILTER or HAVING that compares with constants. What is below is computed once
for all queries that have it in common; what is above is theirs, whatever it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, get_args

from annotations.terms import Term, Variable
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    Aggregated,
    Call,
    Constant,
    Expression,
    Filter,
    Pattern,
    VariableRef,
)
from tpf_client.sparql.rewrite.conditions import conjunction, conjuncts, first_exists, movable
from tpf_client.sparql.scopes import in_scope, variables_in
from tpf_server.continuous.engine.plans.comparisons import comparison_in, lifted_variable

_Above: TypeAlias = (
    algebra.Project
    | algebra.Extend
    | algebra.OrderBy
    | algebra.Distinct
    | algebra.Reduced
    | algebra.Slice
    | algebra.Group
    | Filter
)
_ABOVE: Final = get_args(_Above)
"""What may be above the gap; AGGREGATE is an `Extend`."""


@dataclass(frozen=True, slots=True)
class PartedQuery:
    """A query in two parts.

    Args:
        below: what is shared; its solutions have what the comparisons and all above need.
        comparisons: the conditions, with variables for the constants.
        constants: these.
        above: the query over `gap`.
        gap: stands for the solutions that the comparisons let through.
        own: the query over `gap`, with the comparisons.
    """

    below: algebra.Query
    comparisons: tuple[Call, ...]
    constants: tuple[Term, ...]
    above: algebra.Query
    gap: Pattern
    own: algebra.Query


def parted(query: algebra.Query) -> PartedQuery | None:
    """The two parts of a query; ``None`` where it compares with no constant at its end."""
    if query.form == "DESCRIBE":
        return None
    above: list[_Above] = []
    pattern = query.pattern
    while (found := _cut(pattern)) is None:
        if not isinstance(pattern, _ABOVE) or any(
            first_exists(each) is not None for each in algebra.expressions_of(pattern)
        ):
            return None
        above.append(pattern)
        pattern = pattern.input
    inner, comparisons, constants = found
    needed = _needed(above, comparisons, in_scope(inner))
    gap = algebra.Values(needed, ())
    below = algebra.Query("SELECT", algebra.Project(inner, needed), needed, dataset=query.dataset)

    def over(pattern: Pattern) -> algebra.Query:
        for each in reversed(above):
            pattern = replace(each, input=pattern)
        return replace(query, pattern=pattern)

    whole = conjunction(
        Call(each.name, (each.arguments[0], Constant(term)))
        for each, term in zip(comparisons, constants, strict=True)
    )
    assert whole is not None
    return PartedQuery(below, comparisons, constants, over(gap), gap, over(Filter(gap, whole)))


def _cut(pattern: Pattern) -> tuple[Pattern, tuple[Call, ...], tuple[Term, ...]] | None:
    """What is below comparisons; these; and their constants."""
    conditions: list[Expression] = []
    while isinstance(pattern, Filter):
        conditions += conjuncts(pattern.condition)
        pattern = pattern.input
    comparisons: list[Call] = []
    constants: list[Term] = []
    others: list[Expression] = []
    for each in conditions:
        found = comparison_in(each) if movable(each) else None
        if found is None:
            others.append(each)
            continue
        operator, value, constant = found
        variable = VariableRef(lifted_variable(len(constants)))
        comparisons.append(Call(operator, (value, variable)))
        constants.append(constant)
    if not comparisons:
        return None
    rest = conjunction(others)
    inner = pattern if rest is None else Filter(pattern, rest)
    return inner, tuple(comparisons), tuple(constants)


def _needed(
    above: Sequence[Pattern], comparisons: tuple[Call, ...], scope: tuple[Variable, ...]
) -> tuple[Variable, ...]:
    """The variables of what is below that are seen above it."""
    used = {name for each in comparisons for name in variables_in(each)}
    chooses = False
    for pattern in above:
        for expression in algebra.expressions_of(pattern):
            used |= variables_in(expression)
        match pattern:
            case algebra.Project(_, names):
                used.update(names)
                chooses = True
            case Aggregated(_, _, _, names):
                if pattern.aggregate.argument is None and pattern.aggregate.distinct:
                    return scope
                used.update(names)
            case algebra.Group(_, _, aggregates):
                if any(each.argument is None and each.distinct for _, each in aggregates):
                    return scope
                chooses = True
    return tuple(name for name in scope if name in used) if chooses else scope
