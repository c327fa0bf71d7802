"""Push of totally distributable aggregates: each stream computes its own groups.

An aggregation over a union is done in each branch where some grouping variable has another
constant in every branch: then no group has solutions of two branches. That is so where GRAPH ?g
groups by ?g. Source: paper 003, section 5.2, case 1, figure 8.
"""

from dataclasses import replace

from annotations.terms import Term, Variable
from tpf_client.sparql.algebra import (
    Aggregated,
    Extend,
    Filter,
    Group,
    Join,
    Pattern,
    Project,
    Union,
    Values,
    VariableRef,
)
from tpf_client.sparql.rewrite.visitor import combined, operands, transformed
from tpf_server.continuous.csparql.operator_graph import OperatorGraph


def distribute_totally(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""
    return graph.with_pattern(transformed(graph.pattern, _change))


def disjoint(parts: list[Pattern], keys: tuple[Variable, ...]) -> bool:
    """Whether no group can have solutions of two of these patterns."""
    for name in keys:
        values = [_constant(part, name) for part in parts]
        if None not in values and len(set(values)) == len(values):
            return True
    return False


def group_keys(group: Group) -> tuple[Variable, ...] | None:
    """The variables that it groups by; ``None`` where it groups by nothing or by expressions."""
    names = tuple(name for name, key in group.keys if key == VariableRef(name))
    return names if names and len(names) == len(group.keys) else None


def _change(pattern: Pattern) -> Pattern:
    match pattern:
        case Aggregated(inner, _, _, keys):
            parts = operands(inner, Union)
            if len(parts) > 1 and disjoint(parts, keys):
                return combined([replace(pattern, input=part) for part in parts], Union)
        case Group(inner):
            found = group_keys(pattern)
            parts = operands(inner, Union)
            if found and len(parts) > 1 and disjoint(parts, found):
                return combined([replace(pattern, input=part) for part in parts], Union)
    return pattern


def _constant(pattern: Pattern, name: Variable) -> Term | None:
    """The one value that a variable has in every solution of a pattern, if that is known."""
    match pattern:
        case Values(variables, rows) if name in variables:
            found = {row[variables.index(name)] for row in rows}
            return found.pop() if len(found) == 1 else None
        case Join(left, right):
            return _constant(left, name) or _constant(right, name)
        case Project(inner, variables) if name in variables:
            return _constant(inner, name)
        case Filter(inner) | Extend(inner):
            return _constant(inner, name)
        case _:
            return None
