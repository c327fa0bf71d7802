"""Rules that rewrite an operator graph and change no answer, in the order of `RULES`.

Patterns are merged by source, filters pushed, aggregates pushed to streams, and unused variables
projected away. Source: paper 003, section 5.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable
from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
    Aggregated,
    Call,
    Constant,
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
    Values,
    VariableRef,
    expressions_of,
    variables_of_quad,
)
from tpf_client.sparql.rewrite.join_order import components
from tpf_client.sparql.rewrite.push_down import push_filters as pushed
from tpf_client.sparql.rewrite.visitor import (
    combined,
    counts_whole_rows,
    first_exists,
    operands,
    transformed,
    with_exists,
)
from tpf_client.sparql.scopes import in_scope, variables_in
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph

# AGGREGATE under DISTINCT: where all members of a group look the same, one of them is enough.
#
# ``SELECT DISTINCT`` of grouping and aggregate variables only needs the groups, not their members:
# the aggregation becomes a grouping that collapses them. The paper notes the gain in section 5.2.


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
    conditions: list[Expression] = []
    while isinstance(pattern, Filter):
        if first_exists(pattern.condition) is not None:
            return None
        conditions.append(pattern.condition)
        pattern = pattern.input
    parts = operands(pattern, Union)
    needed = visible.union(*map(variables_in, conditions))
    results = [_group(part, needed) for part in parts]
    groups = [each for each in results if each is not None]
    if len(groups) < len(results):
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


# Push of totally distributable aggregates: each stream computes its own groups.
#
# An aggregation over a union is done in each branch where some grouping variable has another
# constant in every branch: then no group has solutions of two branches. That is so where GRAPH ?g
# groups by ?g. Source: paper 003, section 5.2, case 1, figure 8.


def distribute_totally(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""
    return graph.with_pattern(transformed(graph.pattern, _change_totally))


def disjoint(parts: list[Pattern], keys: tuple[Variable, ...]) -> bool:
    """True where no group has solutions of two of these patterns."""
    for name in keys:
        values = [_constant(part, name) for part in parts]
        if None not in values and len(set(values)) == len(values):
            return True
    return False


def group_keys(group: Group) -> tuple[Variable, ...] | None:
    """The variables that it groups by; ``None`` for expressions or nothing."""
    names = tuple(name for name, key in group.keys if key == VariableRef(name))
    return names if names and len(names) == len(group.keys) else None


def _change_totally(pattern: Pattern) -> Pattern:
    match pattern:
        case Aggregated(inner, _, _, keys):
            parts = operands(inner, Union)
            if len(parts) > 1 and disjoint(parts, keys):
                return combined([replace(pattern, input=part) for part in parts], Union)
        case Group(inner):
            result = group_keys(pattern)
            parts = operands(inner, Union)
            if result and len(parts) > 1 and disjoint(parts, result):
                return combined([replace(pattern, input=part) for part in parts], Union)
    return pattern


def _constant(pattern: Pattern, name: Variable) -> Term | None:
    match pattern:
        case Values(variables, rows) if name in variables:
            result = {row[variables.index(name)] for row in rows}
            return result.pop() if len(result) == 1 else None
        case Join(left, right):
            return _constant(left, name) or _constant(right, name)
        case Project(inner, variables) if name in variables:
            return _constant(inner, name)
        case Filter(inner) | Extend(inner):
            return _constant(inner, name)
        case _:
            return None


# Push of partially distributable aggregates: the streams compute parts, and those are combined.
#
# A grouping over a union becomes a grouping of the groups of the branches. COUNT is the sum of
# counts, SUM of sums, MIN the least of least ones, AVG the sum of sums by the sum of counts. An
# aggregate over distinct values cannot be had in this way, and stays where it is. Source: paper
# 003, section 5.2, case 2.

_COMBINED = {"COUNT": "SUM", "SUM": "SUM", "MIN": "MIN", "MAX": "MAX"}
_ONE = Constant(Term('"1"^^<http://www.w3.org/2001/XMLSchema#integer>'))


def distribute_partially(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""
    return graph.with_pattern(transformed(graph.pattern, _change_partially))


def distributable(aggregate: Aggregate) -> bool:
    """True where it can be computed from parts."""
    return aggregate.name in (*_COMBINED, "AVG") and not aggregate.distinct


def _change_partially(pattern: Pattern) -> Pattern:
    if not isinstance(pattern, Group):
        return pattern
    parts = operands(pattern.input, Union)
    keys = group_keys(pattern)
    if (
        len(parts) < 2
        or keys is None
        or not pattern.aggregates
        or not all(distributable(each) for _, each in pattern.aggregates)
    ):
        return pattern
    partial: list[tuple[Variable, Aggregate]] = []
    whole: list[tuple[Variable, Aggregate]] = []
    computed: list[tuple[Variable, Expression]] = []
    for name, aggregate in pattern.aggregates:
        plain = "?.g" + name.lstrip("?.")
        if aggregate.name == "AVG":
            total, count = Variable(plain + "·sum"), Variable(plain + "·count")
            partial += [
                (total, Aggregate("SUM", aggregate.argument)),
                # An error of an argument is an error of the sum; it need not be one of the count.
                (count, Aggregate("SUM", _ONE)),
            ]
            whole += [
                (total, Aggregate("SUM", VariableRef(total))),
                (count, Aggregate("SUM", VariableRef(count))),
            ]
            computed.append((name, Call("/", (VariableRef(total), VariableRef(count)))))
        else:
            part = Variable(plain + "·part")
            partial.append((part, aggregate))
            whole.append((name, Aggregate(_COMBINED[aggregate.name], VariableRef(part))))
    parts = [Group(part, pattern.keys, tuple(partial)) for part in parts]
    result: Pattern = Group(combined(parts, Union), pattern.keys, tuple(whole))
    for name, expression in computed:
        result = Extend(result, name, expression)
    if computed:
        names = (*keys, *(name for name, _ in pattern.aggregates))
        result = Project(result, names)
    return result


# MergeJoinedGPOs: joined graph pattern operators over the same source become one.
#
# Patterns are merged where they have the same graph, are static or not, and hang together by
# variables: so no product is hidden in an operator, and what is static can be given to a SPARQL
# engine as one query. What may match both goes with what streams: by itself it may have as many
# solutions as the static data. Source: paper 003, section 5.1, figure 5.


def merge_joined_patterns(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""

    def change(pattern: Pattern) -> Pattern:
        return _merged(graph, pattern) if isinstance(pattern, Join) else pattern

    return graph.with_pattern(transformed(graph.pattern, change))


def _merged(graph: OperatorGraph, pattern: Join) -> Pattern:
    kinds: dict[QuadPattern, tuple[str, bool]] = {}
    others: list[Pattern] = []
    for each in operands(pattern):
        if not isinstance(each, BGP) or not each.patterns:
            others.append(each)
            continue
        for quad in each.patterns:
            kinds[quad] = graph.graph_of(quad), graph.part_of(quad) == "static"
    # What is of another kind does not hang together, whatever it shares.
    blocks = components(
        kinds, lambda quad: [(kinds[quad], name) for name in variables_of_quad(quad)]
    )
    # Blocks of the default graph last: streams are usually the smaller side.
    blocks.sort(key=lambda block: kinds[block[0]][0] == DEFAULT_GRAPH)
    return combined([*others, *(BGP(tuple(block)) for block in blocks)])


# Push of filters: a condition is checked as soon as the variables in it are bound.
#
# Source: paper 003, section 5.1.


def push_filters(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""
    pattern = with_exists(graph.pattern, pushed)
    return graph.with_pattern(pushed(pattern))


# Push of projections: a variable goes as soon as nobody further up needs it.
#
# Solutions are bags, so a projection never changes how many there are. Source: paper 003, 5.1.

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
    match pattern:
        case Aggregated(inner, _, aggregate, keys):
            return replace(
                pattern, input=_narrowed(inner, needed | _used(aggregate) | frozenset(keys))
            )
        case Filter(inner) | Extend(inner) | OrderBy(inner):
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
    names = in_scope(pattern)
    kept = tuple(name for name in names if name in needed)
    if kept == names or isinstance(pattern, Project):
        return pattern
    if isinstance(pattern, (BGP, Path, Join, LeftJoin, Filter, Union, Extend, Minus)):
        return Project(pattern, kept)
    return pattern


Rule = Callable[[OperatorGraph], OperatorGraph]

RULES: Final[tuple[Rule, ...]] = (
    merge_joined_patterns,
    push_filters,
    distribute_totally,
    collapse_groups,
    distribute_partially,
    push_projections,
)

RULES_ON_SPARK: Final = tuple(rule for rule in RULES if rule is not distribute_totally)
"""Those that pay on Spark, where an aggregation in each branch has never cost less than one."""


def optimised(graph: OperatorGraph, rules: tuple[Rule, ...] = RULES) -> OperatorGraph:
    """Apply rules."""
    for rule in rules:
        graph = rule(graph)
    return graph
