"""GROUP BY and aggregates in a dataflow."""

from typing import TYPE_CHECKING

from annotations.terms import Variable
from tpf_client.dataflow.aggregates import accumulator
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.distinct import Distinct
from tpf_client.dataflow.group import Group
from tpf_client.dataflow.hash_join import HashJoin
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.number import Number
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Expression, VariableRef

if TYPE_CHECKING:
    from tpf_client.dataflow.builder import Builder


def build_group(builder: "Builder", pattern: algebra.Group, seed: Node | None) -> Node:
    """The groups of a pattern's solutions, with their aggregates."""
    node: Node = builder.build(pattern.input, builder.passed_on(pattern, seed))
    visible = tuple(name for name in node.schema if not name.startswith("?."))
    prepared: list[tuple[Variable, Expression | None, algebra.Aggregate]] = []
    expressions: list[tuple[Variable, Expression]] = []
    for name, expression in pattern.keys:
        node, plain = builder.without_exists(node, expression)
        expressions.append((name, plain))
    for name, aggregate in pattern.aggregates:
        argument = aggregate.argument
        if argument is not None:
            node, argument = builder.without_exists(node, argument)
        elif aggregate.distinct:
            # Equal as far as the query can see: hidden variables do not count.
            numbers = builder.flow.add(
                Number(builder.flow.add(Distinct(builder.project(node, visible))), builder.fresh())
            )
            node = builder.flow.add(HashJoin(node, numbers))
            argument = VariableRef(numbers.schema[-1])
        prepared.append((name, argument, aggregate))
    compiler = builder.compiler(node)
    keys = [(name, compiler.binding(expression)) for name, expression in expressions]
    aggregates = [
        (
            name,
            _one if argument is None else compiler.binding(argument),
            accumulator(aggregate, builder.environment.typed),
        )
        for name, argument, aggregate in prepared
    ]
    return builder.flow.add(Group(node, keys, aggregates))


def _one(_solution: Solution) -> int:
    return 1
