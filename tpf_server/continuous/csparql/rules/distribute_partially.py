"""Push of partially distributable aggregates: the streams compute parts, and those are combined.

A grouping over a union becomes a grouping of the groups of the branches. COUNT is the sum of
counts, SUM of sums, MIN the least of least ones, AVG the sum of sums by the sum of counts. An
aggregate over distinct values cannot be had in this way, and stays where it is. Source: paper 003,
section 5.2, case 2.
"""

from annotations.terms import Term, Variable
from tpf_client.sparql.algebra import (
    Aggregate,
    Call,
    Constant,
    Expression,
    Extend,
    Group,
    Pattern,
    Project,
    Union,
    VariableRef,
)
from tpf_client.sparql.rewrite.visitor import combined, operands, transformed
from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.csparql.rules.distribute_totally import group_keys

_COMBINED = {"COUNT": "SUM", "SUM": "SUM", "MIN": "MIN", "MAX": "MAX"}
_ONE = Constant(Term('"1"^^<http://www.w3.org/2001/XMLSchema#integer>'))


def distribute_partially(graph: OperatorGraph) -> OperatorGraph:
    """Apply the rule everywhere."""
    return graph.with_pattern(transformed(graph.pattern, _change))


def distributable(aggregate: Aggregate) -> bool:
    """Whether it can be computed from parts."""
    return aggregate.name in (*_COMBINED, "AVG") and not aggregate.distinct


def _change(pattern: Pattern) -> Pattern:
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
