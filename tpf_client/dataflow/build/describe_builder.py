"""DESCRIBE: a concise bounded description of every resource.

The triples of which it is the subject, and, where their objects are blank nodes, the triples of
those, and so on.
"""

from functools import partial, reduce

from annotations.terms import QuadPattern, Variable
from tpf_client.dataflow.build.construction import Construction
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Input, Node
from tpf_client.dataflow.operators.closure import Closure, Place
from tpf_client.dataflow.operators.construct import TRIPLE
from tpf_client.dataflow.operators.distinct import Distinct
from tpf_client.dataflow.operators.filter import Filter
from tpf_client.dataflow.operators.hash_join import HashJoin
from tpf_client.dataflow.operators.project import Project
from tpf_client.dataflow.operators.union import Union
from tpf_client.dataflow.operators.values import Values
from tpf_client.sparql.algebra import BGP, Call, Pattern, Query, VariableRef
from tpf_client.sparql.algebra import Filter as FilterPattern
from tpf_client.sparql.rewrite.restrict import restrict


def build_description(
    builder: Construction, query: Query, pattern: Pattern
) -> tuple[Node, tuple[Variable, ...]]:
    """The distinct triples that describe what a query asks for, and their three variables.

    They come from the default graph that the query's FROM makes.
    """
    (subject, predicate, object_), target = TRIPLE, builder.fresh()
    starts = _resources(builder, query, pattern, subject)

    frontier = builder.flow.add(Input((subject,)))
    steps = BGP((QuadPattern(subject, predicate, target),))
    to_blank = FilterPattern(
        restrict(steps, query.dataset, builder.fresh), Call("ISBLANK", (VariableRef(target),))
    )
    edges = builder.project(builder.build(to_blank, frontier), (subject, target))

    def end(_start: Place, place: Place) -> Solution:
        return place

    reached = Closure(starts, edges, frontier, (subject,), end, at_least_once=False, many=True)
    subjects = builder.flow.add(Distinct(builder.flow.add(reached)))
    said = BGP((QuadPattern(subject, predicate, object_),))
    triples = builder.build(restrict(said, query.dataset, builder.fresh), subjects)
    variables = (subject, predicate, object_)
    joined = builder.project(builder.flow.add(HashJoin(subjects, triples)), variables)
    return builder.flow.add(Distinct(joined)) if query.dataset else joined, variables


def _resources(builder: Construction, query: Query, pattern: Pattern, name: Variable) -> Node:
    """What is described: the IRIs of the query, and every value of its variables."""
    dictionary = builder.flow.dictionary
    given = [(dictionary.encode(term),) for term in query.described]
    sources: list[Node] = [builder.flow.add(Values((name,), given))] if given else []
    if query.variables:
        # Built once: what a LIMIT chooses must be the same for all variables.
        node = builder.build(pattern, None)
        for variable in query.variables:
            if variable in node.schema:
                bound = builder.flow.add(
                    Filter(node, partial(_is_bound, node.schema.index(variable)))
                )
                sources.append(builder.flow.add(Project(bound, (name,), {name: variable})))
    if not sources:
        sources = [builder.flow.add(Values((name,), []))]
    union = reduce(lambda left, right: builder.flow.add(Union(left, right)), sources)
    return builder.flow.add(Distinct(union))


def _is_bound(place: int, solution: Solution) -> bool:
    return bool(solution[place])
