"""The operator graph (O-graph) of a query, and which of its triple patterns are static.

The operators are those of the algebra; what the paper adds to them are the sources (graph, stream,
window) and the aggregation. Source: paper 003, sections 3.4 and 4.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from annotations.terms import QuadPattern, Term, Variable, is_variable
from tpf_client.sparql.algebra import BGP, Join, Pattern, Project, Query
from tpf_client.sparql.rewrite.visitor import transformed
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.sources import MergedSource, Sources, with_constant_graphs
from tpf_server.continuous.csparql.timestamps import Stamp, with_timestamps
from tpf_server.continuous.csparql.windows import Instants, StreamClause, place_of

PatternKind: TypeAlias = Literal["static", "streaming", "mixed"]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known about the data before anything is evaluated.

    Args:
        predicates: the predicates that a window has, where that is known of its stream: they were
            declared, or are taken to have no others until one comes.
        has_static: whether any triple of these static graphs matches a pattern.
    """

    predicates: Mapping[Term, frozenset[Term]] = field(default_factory=dict)
    has_static: Callable[[QuadPattern, tuple[Term, ...]], bool] = lambda _pattern, _graphs: True


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """A query as operators.

    Args:
        query: its algebra. Every graph in it is a constant, a variable of `stamps`, or one of
            named graphs in a window (see `graph_variable`).
        clauses: its streams and windows.
        sources: what its graphs are made of.
        stamps: what the timestamp variables in graph positions mean.
        instants: when it is evaluated.
        knowledge: what tells static from streaming patterns.
    """

    query: Query
    clauses: tuple[StreamClause, ...]
    sources: Sources
    stamps: Mapping[Variable, Stamp]
    instants: Instants
    knowledge: Knowledge

    @property
    def pattern(self) -> Pattern:
        """The root of the operators, solution modifiers included."""
        return self.query.pattern

    def with_pattern(self, pattern: Pattern) -> "OperatorGraph":
        """The same query with other operators."""
        return replace(self, query=replace(self.query, pattern=pattern))

    def graph_of(self, quad: QuadPattern) -> Term:
        """The graph that a triple pattern is matched against."""
        if not is_variable(quad.graph):
            return Term(quad.graph)
        place = place_of(quad.graph)
        if place is not None:
            return self.clauses[place].graph
        return self.stamps[Variable(quad.graph)].graph

    def source_of(self, quad: QuadPattern) -> MergedSource:
        """What the graph of a triple pattern is merged from."""
        source = self.sources.of(self.graph_of(quad))
        assert source is not None, "other graphs were resolved before"
        return source

    def part_of(self, quad: QuadPattern) -> PatternKind:
        """Whether a triple pattern can match static triples, streaming ones, or both.

        A stream of which nothing is known may carry everything.
        """
        source = self.source_of(quad)
        streaming = any(self.may_carry(stream, quad) for stream in source.streams)
        if not streaming:
            return "static"
        static = bool(source.static) and self.knowledge.has_static(quad, source.static)
        return "mixed" if static else "streaming"

    def may_carry(self, window: Term, quad: QuadPattern) -> bool:
        """Whether a triple that matches a pattern may come into a window, as far as is known."""
        declared = self.knowledge.predicates.get(window)
        return declared is None or is_variable(quad.predicate) or quad.predicate in declared

    def clause_of(self, window: Term) -> StreamClause:
        """The FROM STREAM clause of a window, which patterns call so."""
        return next(clause for clause in self.clauses if clause.graph == window)


def operator_graph(
    parsed: CsparqlQuery, repository: tuple[Term, ...], knowledge: Knowledge
) -> OperatorGraph:
    """The initial operator graph: one graph pattern operator for each triple pattern.

    Args:
        parsed: the query.
        repository: the names of the static graphs that there are.
        knowledge: what tells static from streaming patterns.
    """
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
    """A basic graph pattern as joins of its triple patterns."""
    if not isinstance(pattern, BGP) or len(pattern.patterns) < 2:
        return pattern
    first, *rest = pattern.patterns
    result: Pattern = BGP((first,))
    for each in rest:
        result = Join(result, BGP((each,)))
    return result
