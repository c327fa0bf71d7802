"""Push of projections: a variable goes as soon as nobody further up needs it.

Solutions are bags, so a projection never changes how many there are. Source: paper 003, 5.1.
"""

from dataclasses import replace

from annotations.terms import Variable
from tpf_client.sparql.algebra import (
    BGP,
    Aggregated,
    Distinct,
    Expression,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    Path,
    Pattern,
    Project,
    Reduced,
    Slice,
    Union,
    expressions_of,
)
from tpf_client.sparql.rewrite.visitor import counts_whole_rows
from tpf_client.sparql.scopes import in_scope, variables_in
from tpf_server.continuous.csparql.operator_graph import OperatorGraph

_Names = frozenset[Variable]


def push_projections(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule below the outermost projection."""
    if counts_whole_rows(graph.pattern):
        return graph
    return graph.with_pattern(_top(graph.pattern))


def _top(pattern: Pattern) -> Pattern:
    match pattern:
        case Distinct() | Reduced() | Slice():
            return replace(pattern, input=_top(pattern.input))
        case Project(inner, variables):
            return Project(_narrowed(inner, frozenset(variables)), variables)
        case _:
            return pattern


def _used(*expressions: Expression) -> _Names:
    return frozenset().union(*map(variables_in, expressions))


def _narrowed(pattern: Pattern, needed: _Names) -> Pattern:
    """The pattern with projections inside; it may still bind more than is needed."""
    match pattern:
        case Aggregated(inner, _, aggregate, keys):
            return replace(
                pattern, input=_narrowed(inner, needed | _used(aggregate) | frozenset(keys))
            )
        case Filter(inner, condition):
            return replace(pattern, input=_narrowed(inner, needed | _used(condition)))
        case Extend(inner, _, expression):
            return replace(pattern, input=_narrowed(inner, needed | _used(expression)))
        case OrderBy(inner):
            more = _used(*expressions_of(pattern))
            return replace(pattern, input=_narrowed(inner, needed | more))
        case Group(inner):
            used = _used(*expressions_of(pattern))
            return replace(pattern, input=_projected(_narrowed(inner, used), used))
        case Join(left, right):
            return Join(*_sides(left, right, needed))
        case LeftJoin(left, right, condition):
            more = frozenset() if condition is None else variables_in(condition)
            return LeftJoin(*_sides(left, right, needed | more), condition)
        case Union(left, right):
            return Union(
                _projected(_narrowed(left, needed), needed),
                _projected(_narrowed(right, needed), needed),
            )
        case Minus(left, right, apart):
            kept = needed | frozenset(in_scope(right)) | frozenset(apart)
            return Minus(_narrowed(left, kept), right, apart)
        case _:
            return pattern


def _sides(left: Pattern, right: Pattern, needed: _Names) -> tuple[Pattern, Pattern]:
    to_left = needed | frozenset(in_scope(right))
    to_right = needed | frozenset(in_scope(left))
    return (
        _projected(_narrowed(left, to_left), to_left),
        _projected(_narrowed(right, to_right), to_right),
    )


def _projected(pattern: Pattern, needed: _Names) -> Pattern:
    """The pattern under a projection, where that takes a variable away."""
    names = in_scope(pattern)
    kept = tuple(name for name in names if name in needed)
    if kept == names or isinstance(pattern, Project):
        return pattern
    if isinstance(pattern, (BGP, Path, Join, LeftJoin, Filter, Union, Extend, Minus)):
        return Project(pattern, kept)
    return pattern
