"""Build projection, DISTINCT, ORDER BY, OFFSET and LIMIT (SPARQL 1.1, section 15)."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

from annotations.terms import Variable
from tpf_client.dataflow.build.construction import Construction
from tpf_client.dataflow.changes import UNBOUND, Schema, Solution, projection
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.basic import Compute, Core, Distinct
from tpf_client.dataflow.operators.group import PerKey
from tpf_client.dataflow.operators.order import Slice, SortKeyOf, TopK
from tpf_client.dataflow.state.aggregates import Accumulator, accumulator
from tpf_client.dataflow.state.groups import Grouping
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Expression, Pattern, VariableRef
from tpf_client.sparql.depth import chained
from tpf_client.sparql.expressions.compiler import Compiler, is_volatile
from tpf_client.sparql.ordering import sort_key
from tpf_client.sparql.rewrite.visitor import grows, grows_but_for_absence
from tpf_client.sparql.scopes import in_scope, variables_in

# GROUP BY and aggregates in a dataflow.


def build_group(
    builder: Construction, pattern: algebra.Group, node: Node, conditions: Sequence[Expression] = ()
) -> Node:
    """Build the groups of a node's solutions, with their aggregates."""
    environment = builder.environment
    keys: list[Expression] = []
    for _, key in pattern.keys:
        node, plain = builder.without_exists(node, key)
        keys.append(plain)
    seen: list[Expression | None] = []
    aggregates: list[tuple[Variable, Callable[[], Accumulator] | None]] = []
    for name, each in pattern.aggregates:
        argument = each.argument
        sure = isinstance(argument, VariableRef) and argument.variable in node.certain
        if not each.distinct and (argument is None or (each.name == "COUNT" and sure)):
            # A group knows how many solutions it has.
            aggregates.append((name, None))
            continue
        aggregates.append((name, accumulator(each, environment.typed)))
        if argument is not None:
            node, argument = builder.without_exists(node, argument)
        seen.append(argument)
    names = tuple(name for name, _ in pattern.keys)
    certain = {n for n, key in zip(names, keys, strict=True) if key == VariableRef(n)}
    certain &= node.certain
    certain |= {name for name, each in pattern.aggregates if each.name == "COUNT"}
    expressions = (*keys, *seen)
    how = Grouping(
        names,
        aggregates,
        _values_of(builder.compiler(node), expressions, node),
        certain=frozenset(certain),
        remembers=builder.remembers or any(is_volatile(each) for each in expressions if each),
        expressions=expressions,
        written=tuple([each for _, each in pattern.aggregates]),
    )
    if conditions:
        # One condition is one function.
        test = conditions[0]
        for condition in conditions[1:]:
            test = algebra.Call("&&", (test, condition))
        passes = builder.compiler(Node(names, frozenset())).condition(test)
        how = replace(how, passes=passes, condition=test)
    return builder.groups_of(node, how, pattern)


def _values_of(
    compiler: Compiler, expressions: Sequence[Expression | None], node: Node
) -> Callable[[Solution], tuple[Any, ...]]:
    plain = [each for each in expressions if each is not None]
    if len(plain) == len(expressions):
        return compiler.bindings(plain)
    whole = _visible(node.schema)
    each = [whole if e is None else compiler.binding(e) for e in expressions]
    return lambda solution: tuple([value(solution) for value in each])


def _visible(schema: Schema) -> Callable[[Solution], Solution]:
    return projection(schema, [name for name in schema if not name.startswith("?.")])


def argument_of(
    aggregate: algebra.Aggregate, schema: Schema, compile_it: Callable[[Expression], Compute]
) -> Compute:
    """Compile the argument of an aggregate to a term."""
    if aggregate.argument is not None:
        return compile_it(aggregate.argument)
    if not aggregate.distinct:
        return lambda _solution: UNBOUND + 1
    return cast(Compute, _visible(schema))


class Modified(NamedTuple):
    """A pattern with its solution modifiers: visible variables, sorting key, and the core."""

    node: Node
    variables: tuple[Variable, ...]
    order: SortKeyOf | None = None
    core: Core | None = None


def build_modified(builder: Construction, pattern: Pattern, seed: Node | None) -> Modified:
    """Build a pattern with its solution modifiers; see `Builder.modified`."""
    leaves, mark = builder.leaves, builder.leaves.mark()
    modified = _modified(builder, pattern, seed)
    node = modified.node
    leaves.spare(mark, pattern, node)
    whole = pattern.input if isinstance(pattern, algebra.Slice) else pattern
    limit = partial(leaves.limit, mark, grows_but_for_absence=grows_but_for_absence(whole))
    if isinstance(node, Slice):
        limit(lambda: node.missing, grows=node.monotone or grows(whole))
    elif isinstance(node, Distinct) and not node.schema:
        # There is one such solution.
        limit(lambda: 1 if node.empty else 0, grows=grows(whole))
    return modified


def _modified(builder: Construction, pattern: Pattern, seed: Node | None) -> Modified:
    offset, limit, distinct = 0, None, False
    by: tuple[Variable, ...] = ()
    if isinstance(pattern, algebra.Slice):
        offset, limit, by = pattern.offset, pattern.limit, pattern.by
        seed = builder.passed_on(pattern, seed)
        pattern = pattern.input
    if isinstance(pattern, (algebra.Distinct, algebra.Reduced)):
        distinct = isinstance(pattern, algebra.Distinct)
        pattern = pattern.input
    sliced = bool(offset) or limit is not None
    if isinstance(pattern, (algebra.Slice, algebra.Distinct, algebra.Reduced)):
        node = builder.build(pattern, seed)
        return _finished(builder, node, node.schema, distinct, offset, limit, by)
    variables = in_scope(pattern)
    if isinstance(pattern, algebra.Project):
        seed = builder.passed_on(pattern, seed)
        pattern = pattern.input
    conditions: tuple[algebra.OrderCondition, ...] = ()
    if isinstance(pattern, algebra.OrderBy):
        conditions, pattern = pattern.conditions, pattern.input
    with builder.not_hurried() if conditions else nullcontext():
        node = builder.build(pattern, seed)
    core = Core(pattern, node, variables, distinct, offset)
    if not conditions:
        finished = _finished(builder, node, variables, distinct, offset, limit, by)
        return finished._replace(core=core)
    prepared = []
    for each in chained(conditions):
        node, expression = builder.without_exists(node, each.expression)
        if not isinstance(expression, VariableRef):
            # Computed once per row, and kept with it: an order must not change its mind.
            computed = builder.fresh()
            node = builder.extended(node, computed, expression)
            expression = VariableRef(computed)
        prepared.append(algebra.OrderCondition(expression, each.descending))
    used = {name for each in prepared for name in variables_in(each.expression)}
    hidden = tuple(name for name in node.schema if name in used and name not in variables)
    node = builder.reduced(node, (*variables, *hidden))
    if distinct:
        node = builder.distinct(node)
    key = sort_key(builder.compiler(node), tuple(prepared))
    if sliced or (distinct and hidden):
        same = projection(node.schema, variables) if distinct and hidden else None
        if by or same:

            def first_ones(node: Node) -> TopK:
                return TopK(node, key, offset, limit, same)

            node = builder.flow.add(PerKey(node, by, first_ones) if by else first_ones(node))
        else:
            node = builder.first_ones(node, key, offset, limit)
    return Modified(node, variables, key, core)


def _finished(
    builder: Construction,
    node: Node,
    variables: tuple[Variable, ...],
    distinct: bool,
    offset: int,
    limit: int | None,
    by: tuple[Variable, ...],
) -> Modified:
    node = builder.reduced(node, variables)
    if distinct:
        node = builder.distinct(node)
    if by:
        node = builder.flow.add(PerKey(node, by, lambda each: Slice(each, offset, limit)))
    elif offset or limit is not None:
        node = builder.some(node, offset, limit)
    return Modified(node, variables)
