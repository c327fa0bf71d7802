"""GROUP BY and aggregates in a dataflow."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from annotations.terms import Variable
from tpf_client.dataflow.build.construction import Construction
from tpf_client.dataflow.changes import UNBOUND, Schema, Solution, projection
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.extend import Compute
from tpf_client.dataflow.state.aggregates import Accumulator, accumulator
from tpf_client.dataflow.state.groups import Grouping
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Expression, VariableRef
from tpf_client.sparql.expressions.compiler import Compiler, is_volatile


def build_group(
    builder: Construction, pattern: algebra.Group, node: Node, conditions: Sequence[Expression] = ()
) -> Node:
    """The groups of a node's solutions, with their aggregates.

    Args:
        builder: makes the expressions and takes in the node.
        pattern: the grouping.
        node: its input.
        conditions: on its keys alone: groups that fail them are not wanted.
    """
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
    """The values of expressions; ``None`` stands for the whole solution (``COUNT(DISTINCT *)``)."""
    plain = [each for each in expressions if each is not None]
    if len(plain) == len(expressions):
        return compiler.bindings(plain)
    whole = _visible(node.schema)
    each = [whole if e is None else compiler.binding(e) for e in expressions]
    return lambda solution: tuple([value(solution) for value in each])


def _visible(schema: Schema) -> Callable[[Solution], Solution]:
    """What the query can see of a solution: hidden variables do not count."""
    return projection(schema, [name for name in schema if not name.startswith("?.")])


def argument_of(
    aggregate: algebra.Aggregate, schema: Schema, compile_it: Callable[[Expression], Compute]
) -> Compute:
    """What an aggregate counts or adds up of a solution.

    Args:
        aggregate: the aggregate.
        schema: of the solutions.
        compile_it: makes a function of an expression.

    Returns:
        A function to the term of the argument. ``COUNT(*)`` has no argument: any term will do.
        ``COUNT(DISTINCT *)`` tells solutions apart that the query can tell apart: by the tuple of
        the visible variables' values, unbound ones included, in place of a term. The accumulator
        only looks at whether such arguments are equal.
    """
    if aggregate.argument is not None:
        return compile_it(aggregate.argument)
    if not aggregate.distinct:
        return lambda _solution: UNBOUND + 1
    return cast(Compute, _visible(schema))
