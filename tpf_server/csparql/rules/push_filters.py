"""Push of filters: a condition is checked as soon as the variables in it are bound.

A conjunction is taken apart. A condition goes below an operator only to where all its variables are
certainly bound, so that its value cannot differ; below an aggregation only if it selects whole
groups. Conditions with EXISTS or a value that changes stay. Source: paper 003, section 5.1.
"""

from dataclasses import replace

from tpf_client.sparql.algebra import (
    Call,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    Join,
    LeftJoin,
    Minus,
    Pattern,
    Project,
    Union,
    always_bound,
    variables_in,
)
from tpf_client.sparql.expressions.compiler import is_volatile
from tpf_server.csparql.aggregated import Aggregated
from tpf_server.csparql.operator_graph import OperatorGraph
from tpf_server.csparql.transform import transformed


def push_filters(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""
    return graph.with_pattern(transformed(graph.pattern, _change))


def conjuncts(condition: Expression) -> list[Expression]:
    """The conditions that must all be true."""
    if isinstance(condition, Call) and condition.name == "&&":
        return [each for argument in condition.arguments for each in conjuncts(argument)]
    return [condition]


def has_exists(expression: Expression) -> bool:
    """Whether an expression asks for a pattern."""
    if isinstance(expression, Exists):
        return True
    return isinstance(expression, Call) and any(map(has_exists, expression.arguments))


def _change(pattern: Pattern) -> Pattern:
    if not isinstance(pattern, Filter):
        return pattern
    result = pattern.input
    for condition in conjuncts(pattern.condition):
        if has_exists(condition) or is_volatile(condition):
            result = Filter(result, condition)
        else:
            result = _pushed(result, condition)
    return result


def _below_filters(pattern: Filter, condition: Expression) -> Pattern:
    """The condition below all conditions that follow one another, as far as it may go."""
    base: Pattern = pattern
    above: list[Expression] = []
    while isinstance(base, Filter):
        above.append(base.condition)
        base = base.input
    if not variables_in(condition) <= always_bound(base):
        return Filter(pattern, condition)
    result = _pushed(base, condition)
    for each in reversed(above):
        result = Filter(result, each)
    return result


def _pushed(pattern: Pattern, condition: Expression) -> Pattern:
    """The pattern with the condition as far down as it may go."""
    needed = variables_in(condition)
    match pattern:
        case Join(left, right) if needed:
            to_left = needed <= always_bound(left)
            to_right = needed <= always_bound(right)
            if to_left or to_right:
                return Join(
                    _pushed(left, condition) if to_left else left,
                    _pushed(right, condition) if to_right else right,
                )
        case Union(left, right):
            return Union(_pushed(left, condition), _pushed(right, condition))
        case LeftJoin(left) | Minus(left) if needed <= always_bound(left):
            return replace(pattern, left=_pushed(left, condition))
        case Aggregated(inner) if needed <= set(pattern.keys):
            return replace(pattern, input=_pushed(inner, condition))
        case Aggregated():
            pass
        case Filter():
            return _below_filters(pattern, condition)
        case Extend(inner, _, expression) if needed <= always_bound(inner):
            if not is_volatile(expression):
                return replace(pattern, input=_pushed(inner, condition))
        case Project(inner, variables) if needed <= set(variables):
            return replace(pattern, input=_pushed(inner, condition))
        case Distinct(inner):
            return Distinct(_pushed(inner, condition))
        case _:
            pass
    return Filter(pattern, condition)
