"""The operator graph (O-graph) of a query, and its static triple patterns.

To the algebra the paper adds sources (graph, stream, window) and the aggregation. Source: paper
003, sections 3.4 and 4.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    NOTHING,
    Call,
    Constant,
    DatasetClause,
    Expression,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    Path,
    Pattern,
    Project,
    Query,
    Reduced,
    Union,
    Values,
    VariableRef,
)
from tpf_client.sparql.depth import balanced
from tpf_client.sparql.rewrite.visitor import join, transformed, with_parts
from tpf_server.continuous.runtime.instants.csparql_query import (
    TIMESTAMP,
    CsparqlQuery,
    Instants,
    StreamClause,
    place_of,
)
from tpf_server.continuous.runtime.static.service_clauses import is_service

# What the graphs of a query are made of: static graphs and windows of streams.
#
# ============================  ==============================================================
# the default graph             the merge of the graphs of FROM (of the repository's default graph
#                               where the query names no static graph) and of all streams of FROM
#                               STREAM
# GRAPH <s>, FROM NAMED STREAM  the window of s
# GRAPH <s>, FROM STREAM        the window of s, merged with the static part of the default graph:
#                               the paper's examples select their triples by stream in this way, and
#                               join them with static ones in the same GRAPH (sections 2.6 and 5.2)
# GRAPH <g>                     the static graph g, if FROM NAMED names it or the query names no
#                               static graph at all
# GRAPH ?g                      each of the named ones; each stream of FROM STREAM too, where
#                               nothing is NAMED
# ============================  ==============================================================
#
# A window is an RDF graph: a triple that came twice is in it once (paper 003, table 1).


@dataclass(frozen=True, slots=True)
class MergedSource:
    """Parts of a graph: names of static graphs, and graphs of windows (`StreamClause.graph`)."""

    static: tuple[Term, ...]
    streams: tuple[Term, ...]


class Sources:
    """The graphs of one query."""

    def __init__(
        self, dataset: DatasetClause, clauses: Iterable[StreamClause], repository: Iterable[Term]
    ) -> None:
        clauses = tuple(clauses)
        self._default = dataset.default if dataset else (DEFAULT_GRAPH,)
        self._unnamed = tuple(clause.graph for clause in clauses if not clause.named)
        self._streams = tuple(clause.graph for clause in clauses if clause.named)
        called = {clause.name for clause in clauses}
        self._named = dataset.named if dataset else tuple(repository)
        # One that is not there yet may come.
        self._any = not dataset
        something_named = bool(self._streams or dataset.named)
        streams = self._streams if something_named else self._unnamed
        shown = [each for each in streams if each not in called]
        self.names: tuple[Term, ...] = tuple(dict.fromkeys((*self._named, *shown)))
        """What GRAPH ?g ranges over."""

    def of(self, graph: Term) -> MergedSource | None:
        """The parts of a graph; ``None`` where the query has no such graph."""
        if graph == DEFAULT_GRAPH:
            return MergedSource(self._default, self._unnamed)
        streams = graph in self._unnamed or graph in self._streams
        is_static = graph in self._named or is_service(graph) or (self._any and not streams)
        static = (graph,) if is_static else ()
        if graph in self._unnamed:
            return MergedSource(tuple(dict.fromkeys((*self._default, *static))), (graph,))
        if graph in self._streams:
            return MergedSource(static, (graph,))
        return MergedSource(static, ()) if static else None


def with_constant_graphs(pattern: Pattern, sources: Sources) -> Pattern:
    """Replace GRAPH ?g with a union over its graphs."""

    def change(each: Pattern) -> Pattern:
        if isinstance(each, BGP):
            return _bgp(each, sources)
        if isinstance(each, Path) and place_of(each.graph) is None:
            if is_variable(each.graph):
                name, path = Variable(each.graph), each
                return _union(name, sources, lambda graph: replace(path, graph=graph))
            return each if sources.of(Term(each.graph)) is not None else NOTHING
        return each

    return transformed(pattern, change)


def _bgp(bgp: BGP, sources: Sources) -> Pattern:
    constant: list[QuadPattern] = []
    by_name: dict[Variable, list[QuadPattern]] = {}
    for quad in bgp.patterns:
        if place_of(quad.graph) is not None:
            constant.append(quad)
        elif is_variable(quad.graph):
            by_name.setdefault(Variable(quad.graph), []).append(quad)
        elif sources.of(Term(quad.graph)) is None:
            return NOTHING
        else:
            constant.append(quad)
    result: Pattern = BGP(tuple(constant))
    for name, quads in by_name.items():
        inside = tuple(quads)

        def there(graph: Term, inside: tuple[QuadPattern, ...] = inside) -> Pattern:
            return BGP(tuple(quad._replace(graph=graph) for quad in inside))

        result = join(result, _union(name, sources, there))
    return result


def _union(name: Variable, sources: Sources, there: Callable[[Term], Pattern]) -> Pattern:
    parts: list[Pattern] = [Join(Values((name,), ((at,),)), there(at)) for at in sources.names]
    return balanced(Union, parts) if parts else NOTHING


# The timestamp function: a further variable of each triple pattern that may give the answer.
#
# ``timestamp(?v)`` is the highest timestamp of the triples that bind ?v in the pattern that its
# expression belongs to; ``timestamp(?v, g)`` counts the triples of stream g only. It is an
# ``xsd:integer`` of milliseconds, and an error where no triple of a stream binds ?v. A triple that
# is in a window more than once has its latest timestamp. Source: paper 003, sections 2.7 and 3.3.
#
# A triple pattern with a timestamp has, in place of its graph, a hidden variable that is bound to
# the timestamp (unbound for static triples); `Stamp` says which graph is meant. To be applied
# after GRAPH ?g has been resolved.

_PREFIX = "?.t"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Meaning of a hidden timestamp variable, which stands in place of this graph."""

    graph: Term
    streams: tuple[Term, ...]


def with_timestamps(
    pattern: Pattern, sources: Sources, streams: tuple[Term, ...]
) -> tuple[Pattern, dict[Variable, Stamp]]:
    """Resolve calls of timestamp(); also give the meaning of the new variables."""
    rewriter = _Timestamps(sources, streams)
    return transformed(pattern, rewriter.change), rewriter.stamps


class _Timestamps:
    def __init__(self, sources: Sources, streams: tuple[Term, ...]) -> None:
        self.stamps: dict[Variable, Stamp] = {}
        self._sources = sources
        self._streams = streams
        self._inner: Pattern = BGP(())

    def change(self, pattern: Pattern) -> Pattern:
        match pattern:
            case LeftJoin(left, right, condition) if condition is not None:
                # The condition sees the solutions of both sides.
                self._inner = Join(left, right)
                condition = self._resolved(condition)
                assert isinstance(self._inner, Join)
                return LeftJoin(self._inner.left, self._inner.right, condition)
            case Filter(inner) | Extend(inner) | Group(inner) | OrderBy(inner):
                self._inner = inner
                changed = with_parts(pattern, self._resolved)
                return replace(changed, input=self._inner)
        return pattern

    def _resolved(self, part: Any) -> Any:
        """Resolve the calls in a part of a pattern, but not those in patterns inside."""
        if isinstance(part, Pattern):
            return part
        if isinstance(part, Call) and part.name == TIMESTAMP:
            return self._timestamp(part)
        return with_parts(part, self._resolved)

    def _timestamp(self, call: Call) -> Expression:
        variable, *rest = call.arguments
        assert isinstance(variable, VariableRef)
        if not rest:
            return self._latest(variable.variable, self._streams)
        (graph,) = rest
        if isinstance(graph, Constant):
            return self._latest(variable.variable, (graph.term,))
        result: Expression = Call("ABS", (Constant(Term('""')),))
        for stream in self._streams:
            same = Call("=", (graph, Constant(stream)))
            result = Call("IF", (same, self._latest(variable.variable, (stream,)), result))
        return result

    def _latest(self, variable: Variable, streams: tuple[Term, ...]) -> Expression:
        results: list[Variable] = []
        self._inner = self._stamped(self._inner, variable, streams, results)
        result: Expression | None = None
        for name in dict.fromkeys(results):
            one: Expression = VariableRef(name)
            if result is None:
                result = one
                continue
            later = Call("IF", (Call("<", (result, one)), one, result))
            result = Call("COALESCE", (later, result, one))
        # An error, which an expression without any timestamp is.
        return result or Call("ABS", (Constant(Term('""')),))

    def _stamped(
        self,
        pattern: Pattern,
        variable: Variable,
        streams: tuple[Term, ...],
        result: list[Variable],
    ) -> Pattern:
        match pattern:
            case BGP(quads):
                return BGP(tuple(self._stamped_quads(quads, variable, streams, result)))
            case Join(left, right) | Union(left, right) | LeftJoin(left, right):
                return replace(
                    pattern,
                    left=self._stamped(left, variable, streams, result),
                    right=self._stamped(right, variable, streams, result),
                )
            case Minus(left):
                return replace(pattern, left=self._stamped(left, variable, streams, result))
            case Filter(inner) | Extend(inner) | OrderBy(inner) | Reduced(inner):
                return replace(pattern, input=self._stamped(inner, variable, streams, result))
            case _:
                return pattern

    def _stamped_quads(
        self,
        quads: tuple[QuadPattern, ...],
        variable: Variable,
        streams: tuple[Term, ...],
        results: list[Variable],
    ) -> list[QuadPattern]:
        result = list(quads)
        plain = dict.fromkeys(quad._replace(graph=self._graph_of(quad)) for quad in quads)
        for quad in plain:
            source = self._sources.of(Term(quad.graph))
            relevant = tuple(each for each in streams if source and each in source.streams)
            if variable not in quad[:3] or not relevant:
                continue
            stamp = Stamp(Term(quad.graph), relevant)
            stamps = [
                Variable(each.graph)
                for each in result
                if each[:3] == quad[:3] and self.stamps.get(Variable(each.graph)) == stamp
            ]
            if stamps:
                results += stamps
                continue
            name = Variable(f"{_PREFIX}{len(self.stamps)}")
            self.stamps[name] = stamp
            results.append(name)
            # It has the same solutions as the pattern without a timestamp.
            if quad in result:
                result.remove(quad)
            result.append(quad._replace(graph=name))
        return result

    def _graph_of(self, quad: QuadPattern) -> Term:
        stamp = self.stamps.get(Variable(quad.graph))
        return Term(quad.graph) if stamp is None else stamp.graph


PatternKind: TypeAlias = Literal["static", "streaming", "mixed"]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Assumptions of a plan about the data.

    Args:
        predicates: of windows, as far as known.
        has_static: true where a static triple in these graphs matches.
    """

    predicates: Mapping[Term, frozenset[Term]] = field(default_factory=dict)
    has_static: Callable[[QuadPattern, tuple[Term, ...]], bool] = lambda _pattern, _graphs: True


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """A query as operators.

    Its graphs are constants, variables of `stamps`, or `graph_variable`.
    """

    query: Query
    clauses: tuple[StreamClause, ...]
    sources: Sources
    stamps: Mapping[Variable, Stamp]
    instants: Instants
    knowledge: Knowledge

    @property
    def pattern(self) -> Pattern:
        return self.query.pattern

    def with_pattern(self, pattern: Pattern) -> "OperatorGraph":
        return replace(self, query=replace(self.query, pattern=pattern))

    def graph_of(self, quad: QuadPattern) -> Term:
        if not is_variable(quad.graph):
            return Term(quad.graph)
        index = place_of(quad.graph)
        if index is not None:
            return self.clauses[index].graph
        return self.stamps[Variable(quad.graph)].graph

    def source_of(self, quad: QuadPattern) -> MergedSource:
        source = self.sources.of(self.graph_of(quad))
        assert source is not None, "other graphs were resolved before"
        return source if self.clauses else replace(source, streams=())

    def part_of(self, quad: QuadPattern) -> PatternKind:
        """Classify a triple pattern by the triples that may match."""
        source = self.source_of(quad)
        streaming = any(self.may_carry(stream, quad) for stream in source.streams)
        if not streaming:
            return "static"
        static = bool(source.static) and self.knowledge.has_static(quad, source.static)
        return "mixed" if static else "streaming"

    def may_carry(self, window: Term, quad: QuadPattern) -> bool:
        """True where a matching triple may come into a window."""
        declared = self.knowledge.predicates.get(window)
        return declared is None or is_variable(quad.predicate) or quad.predicate in declared

    def clause_of(self, window: Term) -> StreamClause:
        return next(clause for clause in self.clauses if clause.graph == window)


def operator_graph(
    parsed: CsparqlQuery, repository: tuple[Term, ...], knowledge: Knowledge
) -> OperatorGraph:
    """Make the initial graph: an operator for each triple pattern."""
    query = parsed.query
    sources = Sources(query.dataset, parsed.streams, repository)
    windows = tuple(clause.graph for clause in parsed.streams)
    pattern = with_constant_graphs(query.pattern, sources)
    pattern, stamps = with_timestamps(pattern, sources, windows)
    pattern = transformed(pattern, _separated)
    query = replace(query, pattern=pattern)
    if query.form == "CONSTRUCT":
        # Only what the template uses is wanted of the solutions.
        used = {term for triple in query.template for term in triple if is_variable(term)}
        used |= parsed.wanted
        match pattern:
            case Project(inner, variables):
                kept = tuple(name for name in variables if name in used)
                query = replace(query, pattern=Project(inner, kept))
    return OperatorGraph(query, parsed.streams, sources, stamps, parsed.instants, knowledge)


def _separated(pattern: Pattern) -> Pattern:
    if not isinstance(pattern, BGP) or len(pattern.patterns) < 2:
        return pattern
    first, *rest = pattern.patterns
    result: Pattern = BGP((first,))
    for each in rest:
        result = Join(result, BGP((each,)))
    return result
