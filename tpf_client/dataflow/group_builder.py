"""GROUP BY and aggregates in a dataflow."""

from dataclasses import replace
from typing import TYPE_CHECKING

from annotations.terms import Variable
from tpf_client.dataflow.aggregates import accumulator
from tpf_client.dataflow.group import Group, argument_of
from tpf_client.dataflow.node import Node
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Expression, VariableRef

if TYPE_CHECKING:
    from tpf_client.dataflow.builder import Builder


def build_group(builder: "Builder", pattern: algebra.Group, seed: Node | None) -> Node:
    """The groups of a pattern's solutions, with their aggregates."""
    node: Node = builder.build(pattern.input, builder.passed_on(pattern, seed))
    expressions: list[tuple[Variable, Expression]] = []
    for name, expression in pattern.keys:
        node, plain = builder.without_exists(node, expression)
        expressions.append((name, plain))
    prepared: list[tuple[Variable, algebra.Aggregate]] = []
    for name, aggregate in pattern.aggregates:
        if aggregate.argument is not None:
            node, argument = builder.without_exists(node, aggregate.argument)
            aggregate = replace(aggregate, argument=argument)
        prepared.append((name, aggregate))
    compiler = builder.compiler(node)
    keys = [(name, compiler.binding(expression)) for name, expression in expressions]
    aggregates = [
        (
            name,
            argument_of(aggregate, node.schema, compiler.binding),
            accumulator(aggregate, builder.environment.typed),
        )
        for name, aggregate in prepared
    ]
    certain = {name for name, key in expressions if key == VariableRef(name)} & node.certain
    counts = (name for name, aggregate in prepared if aggregate.name == "COUNT")
    return builder.flow.add(Group(node, keys, aggregates, certain.union(counts)))
