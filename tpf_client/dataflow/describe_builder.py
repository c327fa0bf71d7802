"""DESCRIBE: a concise bounded description of every resource.

The triples of which it is the subject, and, where their objects are blank nodes, the triples of
those, and so on.
"""

from typing import TYPE_CHECKING

from annotations.terms import QuadPattern, Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.closure import Closure, Place
from tpf_client.dataflow.distinct import Distinct
from tpf_client.dataflow.hash_join import HashJoin
from tpf_client.dataflow.node import Input, Node
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    BGP,
    Call,
    Extend,
    Filter,
    Pattern,
    Project,
    Query,
    VariableRef,
)

if TYPE_CHECKING:
    from tpf_client.dataflow.builder import Builder


def build_description(
    builder: "Builder", query: Query, pattern: Pattern
) -> tuple[Node, tuple[Variable, ...]]:
    """The distinct triples that describe what a query asks for, and their three variables."""
    resource, source, target = builder.fresh(), builder.fresh(), builder.fresh()
    described: Pattern = algebra.Values((resource,), tuple((term,) for term in query.described))
    for name in query.variables:
        values = Filter(pattern, Call("BOUND", (VariableRef(name),)))
        each = Project(Extend(values, resource, VariableRef(name)), (resource,))
        described = algebra.Union(described, each)
    starts = builder.flow.add(Distinct(builder.build(described, None)))

    frontier = builder.flow.add(Input((source,)))
    steps = BGP((QuadPattern(source, builder.fresh(), target),))
    to_blank = Filter(steps, Call("ISBLANK", (VariableRef(target),)))
    edges = builder.project(builder.build(to_blank, frontier), (source, target))

    def end(_start: Place, place: Place) -> Solution:
        return place

    subject, predicate, object_ = builder.fresh(), builder.fresh(), builder.fresh()
    reached = Closure(starts, edges, frontier, (subject,), end, at_least_once=False, many=True)
    subjects = builder.flow.add(Distinct(builder.flow.add(reached)))
    triples = builder.build(BGP((QuadPattern(subject, predicate, object_),)), subjects)
    variables = (subject, predicate, object_)
    joined = builder.project(builder.flow.add(HashJoin(subjects, triples)), variables)
    return joined, variables
