"""Push of filters: a condition is checked as soon as the variables in it are bound.

Source: paper 003, section 5.1.
"""

from tpf_client.sparql.rewrite.push_down import push_filters as pushed
from tpf_client.sparql.rewrite.visitor import with_exists
from tpf_server.continuous.csparql.operator_graph import OperatorGraph


def push_filters(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""
    pattern = with_exists(graph.pattern, pushed)
    return graph.with_pattern(pushed(pattern))
