"""AGGREGATE under DISTINCT: where all members of a group look the same, one of them is enough.

``SELECT DISTINCT`` of grouping and aggregate variables only needs the groups, not their members:
the aggregation becomes a grouping that collapses them. The paper notes the gain in section 5.2.
"""

from dataclasses import replace

from annotations.terms import Variable
from tpf_client.sparql.algebra import (
    Aggregate,
    Aggregated,
    Distinct,
    Expression,
    Filter,
    Group,
    OrderBy,
    Pattern,
    Project,
    Slice,
    Union,
    VariableRef,
    expressions_of,
)
from tpf_client.sparql.rewrite.visitor import combined, first_exists, operands
from tpf_client.sparql.scopes import variables_in
from tpf_server.continuous.csparql.operator_graph import OperatorGraph


def collapse_groups(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule to the outermost operators."""
    return graph.with_pattern(_change(graph.pattern))


def _change(pattern: Pattern) -> Pattern:
    match pattern:
        case Slice(inner):
            return replace(pattern, input=_change(inner))
        case Distinct(Project(OrderBy(inner, conditions) as order, variables)):
            used = frozenset(variables).union(*map(variables_in, expressions_of(order)))
            collapsed = _collapsed(inner, used)
            if collapsed is None:
                return pattern
            return Distinct(Project(OrderBy(collapsed, conditions), variables))
        case Distinct(Project(inner, variables)):
            collapsed = _collapsed(inner, frozenset(variables))
            return pattern if collapsed is None else Distinct(Project(collapsed, variables))
        case _:
            return pattern


def _collapsed(pattern: Pattern, visible: frozenset[Variable]) -> Pattern | None:
    """The groups of an aggregation (under conditions, in each branch); ``None``: not possible."""
    conditions: list[Expression] = []
    while isinstance(pattern, Filter):
        if first_exists(pattern.condition) is not None:
            return None
        conditions.append(pattern.condition)
        pattern = pattern.input
    parts = operands(pattern, Union)
    needed = visible.union(*map(variables_in, conditions))
    found = [_group(part, needed) for part in parts]
    groups = [each for each in found if each is not None]
    if len(groups) < len(found):
        return None
    result = combined(groups, Union)
    for condition in reversed(conditions):
        result = Filter(result, condition)
    return result


def _group(pattern: Pattern, needed: frozenset[Variable]) -> Pattern | None:
    aggregates: list[tuple[Variable, Aggregate]] = []
    keys: frozenset[Variable] | None = None
    order: tuple[Variable, ...] = ()
    while isinstance(pattern, Aggregated):
        if keys is not None and keys != frozenset(pattern.keys):
            return None
        keys, order = frozenset(pattern.keys), pattern.keys
        aggregates.append((pattern.variable, pattern.aggregate))
        pattern = pattern.input
    if keys is None or not needed <= keys | {name for name, _ in aggregates}:
        return None
    return Group(
        pattern, tuple((name, VariableRef(name)) for name in order), tuple(reversed(aggregates))
    )
