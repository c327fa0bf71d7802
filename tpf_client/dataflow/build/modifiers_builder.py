"""Projection, DISTINCT, ORDER BY, OFFSET and LIMIT in a dataflow.

Source: SPARQL 1.1 Query Language, section 15.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

from annotations.terms import Variable
from tpf_client.dataflow.build.construction import Construction
from tpf_client.dataflow.changes import projection
from tpf_client.dataflow.node import CountingLeaves, Node
from tpf_client.dataflow.operators.distinct import Distinct
from tpf_client.dataflow.operators.order import SortKeyOf, TopK
from tpf_client.dataflow.operators.per_key import PerKey
from tpf_client.dataflow.operators.slice import Slice
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Pattern, VariableRef
from tpf_client.sparql.expressions.compiler import is_volatile
from tpf_client.sparql.ordering import sort_key
from tpf_client.sparql.rewrite.conditions import grows
from tpf_client.sparql.scopes import in_scope, variables_in


class Core(NamedTuple):
    """What a query's answer is made from, before projection and the other solution modifiers.

    Args:
        pattern: the pattern.
        node: its solutions, with all their variables.
        variables: those that the answer shows.
        distinct: whether the answer shows equal solutions once.
        offset: how many solutions the answer leaves out.
    """

    pattern: Pattern
    node: Node
    variables: tuple[Variable, ...]
    distinct: bool
    offset: int


Watch = Callable[[Core], None]


def build_modified(
    builder: Construction, pattern: Pattern, seed: Node | None, watch: Watch | None
) -> tuple[Node, tuple[Variable, ...], SortKeyOf | None]:
    """A pattern with its solution modifiers; see `Builder.modified`."""
    leaves = builder.leaves
    mark = leaves.mark() if isinstance(leaves, CountingLeaves) else 0
    node, variables, key = _modified(builder, pattern, seed, watch)
    if isinstance(leaves, CountingLeaves):
        leaves.spare(mark, pattern, node, builder.environment)
        whole = pattern.input if isinstance(pattern, algebra.Slice) else pattern
        if isinstance(node, Slice) and (node.monotone or grows(whole)):
            leaves.limit(mark, lambda: node.missing)
        elif isinstance(node, Distinct) and not node.schema and grows(pattern):
            # There is one such solution.
            leaves.limit(mark, lambda: 1 if node.empty else 0)
    return node, variables, key


def _modified(
    builder: Construction, pattern: Pattern, seed: Node | None, watch: Watch | None
) -> tuple[Node, tuple[Variable, ...], SortKeyOf | None]:
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
    if watch is not None:
        watch(Core(pattern, node, variables, distinct, offset))
    if not conditions:
        return _finished(builder, node, variables, distinct, offset, limit, by)
    prepared = []
    for each in conditions:
        node, expression = builder.without_exists(node, each.expression)
        if not isinstance(expression, VariableRef):
            # Computed once per row, and kept with it: an order must not change its mind.
            computed = builder.fresh()
            compute = builder.compiler(node).binding(expression)
            node = builder.extended(node, computed, compute, volatile=is_volatile(expression))
            expression = VariableRef(computed)
        prepared.append(algebra.OrderCondition(expression, each.descending))
    used = {name for each in prepared for name in variables_in(each.expression)}
    hidden = tuple(name for name in node.schema if name in used and name not in variables)
    node = builder.reduced(node, (*variables, *hidden))
    if distinct:
        node = builder.flow.add(Distinct(node))
    key = sort_key(builder.compiler(node), tuple(prepared))
    if sliced or (distinct and hidden):
        same = projection(node.schema, variables) if distinct and hidden else None
        if by or same:

            def first_ones(node: Node) -> Node:
                return TopK(node, key, offset, limit, same)

            node = builder.flow.add(PerKey(node, by, first_ones) if by else first_ones(node))
        else:
            node = builder.first_ones(node, key, offset, limit)
    return node, variables, key


def _finished(
    builder: Construction,
    node: Node,
    variables: tuple[Variable, ...],
    distinct: bool,
    offset: int,
    limit: int | None,
    by: tuple[Variable, ...],
) -> tuple[Node, tuple[Variable, ...], None]:
    node = builder.reduced(node, variables)
    if distinct:
        node = builder.flow.add(Distinct(node))
    if by:
        node = builder.flow.add(PerKey(node, by, lambda each: Slice(each, offset, limit)))
    elif offset or limit is not None:
        node = builder.flow.add(Slice(node, offset, limit))
    return node, variables, None
