"""Property paths of any length in a dataflow: where to start, in which direction, over what."""

from annotations.terms import (
    DEFAULT_GRAPH,
    QuadPattern,
    Term,
    TermOrVariable,
    Variable,
    is_variable,
)
from tpf_client.dataflow.build.construction import Construction
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Input, Node
from tpf_client.dataflow.operators.closure import Closure, PairSolution, Place
from tpf_client.dataflow.operators.distinct import Distinct
from tpf_client.dataflow.operators.hash_join import HashJoin
from tpf_client.dataflow.operators.semi_join import SemiJoin
from tpf_client.dataflow.operators.values import Values
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import BGP, Path, Pattern
from tpf_client.sparql.algebra import Distinct as DistinctPattern
from tpf_client.sparql.path_expressions import Inverse, Repeat
from tpf_client.sparql.paths import path_pattern
from tpf_client.sparql.rewrite.restrict import restrict


def build_path(builder: Construction, path: Path, seed: Node | None) -> Node:
    """The distinct pairs of ends of a path, as solutions."""
    repeat = path.path
    assert isinstance(repeat, Repeat)
    start, end = path.subject, path.object
    steps = repeat.path
    known = () if seed is None else tuple(name for name in seed.schema if name in seed.certain)
    if is_variable(start) and not _is_known(start, known) and _is_known(end, known):
        start, end, steps = end, start, Inverse(steps)
    graphs = (Variable(path.graph),) if is_variable(path.graph) else ()

    source, target = builder.fresh(), builder.fresh()
    pattern = _in_dataset(
        builder, path.graph, path_pattern(source, steps, target, path.graph, builder.fresh)
    )
    builder = builder.by_itself()
    frontier: Input | None = None
    if _is_known(start, known):
        frontier = builder.flow.add(Input((source, *graphs)))
        starts = _known_starts(builder, start, path.graph, seed, repeat)
        edges = builder.build(pattern, frontier)
    else:
        edges = builder.build(pattern, None)
        if repeat.at_least_once:
            starts = builder.flow.add(Distinct(builder.project(edges, (source, *graphs))))
        else:
            starts = _all_places(builder, Variable(start), path.graph, None)

    schema, shape = _output(builder, start, end, graphs)
    edges = builder.project(edges, (source, target, *graphs))
    closure = Closure(
        starts,
        edges,
        frontier,
        schema,
        shape,
        at_least_once=repeat.at_least_once,
        many=repeat.many,
    )
    return builder.flow.add(closure)


def _is_known(end: TermOrVariable, known: tuple[Variable, ...]) -> bool:
    return not is_variable(end) or end in known


def _known_starts(
    builder: Construction,
    start: TermOrVariable,
    graph: TermOrVariable,
    seed: Node | None,
    repeat: Repeat,
) -> Node:
    """The places to start from: the constant, or what the seed says, in every graph wanted."""
    graphs = (Variable(graph),) if is_variable(graph) else ()
    if not is_variable(start):
        name = builder.fresh()
        here = builder.flow.add(Values((name,), [(builder.flow.dictionary.encode(Term(start)),)]))
        if not graphs:
            return here
        return builder.flow.add(HashJoin(here, _graph_names(builder, graphs[0], seed)))
    name = Variable(start)
    given = builder.seed(seed, (name, *graphs))
    assert given is not None
    if repeat.at_least_once and set(graphs) <= set(given.schema):
        return builder.project(given, (name, *graphs))
    # A path of no steps connects only what occurs in the graph.
    places = _all_places(builder, name, graph, given)
    return builder.project(builder.flow.add(SemiJoin(places, given)), (name, *graphs))


def _graph_names(builder: Construction, graph: Variable, seed: Node | None) -> Node:
    quad = QuadPattern(builder.fresh(), builder.fresh(), builder.fresh(), graph)
    pattern = DistinctPattern(algebra.Project(BGP((quad,)), (graph,)))
    return builder.build(pattern, builder.seed(seed, (graph,)))


def _all_places(
    builder: Construction, name: Variable, graph: TermOrVariable, seed: Node | None
) -> Node:
    """All subjects and objects, with their graph where that is a variable."""
    fresh = builder.fresh
    graphs = (Variable(graph),) if is_variable(graph) else ()
    out = BGP((QuadPattern(name, fresh(), fresh(), graph),))
    into = BGP((QuadPattern(fresh(), fresh(), name, graph),))
    pattern = _in_dataset(builder, graph, algebra.Union(out, into))
    return builder.build(DistinctPattern(algebra.Project(pattern, (name, *graphs))), seed)


def _in_dataset(builder: Construction, graph: TermOrVariable, pattern: Pattern) -> Pattern:
    """The pattern, over all graphs that are the default graph of the query together."""
    return restrict(pattern, builder.dataset, builder.fresh) if graph == DEFAULT_GRAPH else pattern


def _output(
    builder: Construction,
    start: TermOrVariable,
    end: TermOrVariable,
    graphs: tuple[Variable, ...],
) -> tuple[tuple[Variable, ...], PairSolution]:
    """The schema of the solutions, and how a pair of places becomes one."""
    names = tuple(Variable(each) for each in (start, end) if is_variable(each))
    schema = tuple(dict.fromkeys((*names, *graphs)))
    wanted = None if is_variable(end) else builder.flow.dictionary.encode(Term(end))
    in_graph = bool(graphs)

    def shape(one: Place, other: Place) -> Solution | None:
        values: dict[Variable, int] = {}
        if wanted is not None and other[0] != wanted:
            return None
        pairs = [(start, one[0]), (end, other[0])]
        if in_graph:
            pairs.append((graphs[0], one[1]))
        for name, value in pairs:
            if is_variable(name) and values.setdefault(Variable(name), value) != value:
                return None
        return tuple([values[name] for name in schema])

    return schema, shape
