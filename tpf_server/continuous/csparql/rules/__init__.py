"""Rules that rewrite an operator graph without changing any answer. Source: paper 003, section 5.

`RULES` is their order: patterns are merged by what they are matched against, conditions go down to
them, aggregates go to the streams they come from, and at last what nobody needs is projected away.
"""

from collections.abc import Callable
from typing import Final

from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.csparql.rules.collapse_groups import collapse_groups
from tpf_server.continuous.csparql.rules.distribute_partially import distribute_partially
from tpf_server.continuous.csparql.rules.distribute_totally import distribute_totally
from tpf_server.continuous.csparql.rules.merge_joined_patterns import merge_joined_patterns
from tpf_server.continuous.csparql.rules.push_filters import push_filters
from tpf_server.continuous.csparql.rules.push_projections import push_projections

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
    """The operator graph after these rules."""
    for rule in rules:
        graph = rule(graph)
    return graph
