"""What the graphs of a query are made of: static graphs and windows of streams.

============================  ==============================================================
the default graph             the merge of the graphs of FROM (of the repository's default graph
                              where the query names no static graph) and of all streams of FROM
                              STREAM
GRAPH <s>, FROM NAMED STREAM  the window of s
GRAPH <s>, FROM STREAM        the window of s, merged with the static part of the default graph:
                              the paper's examples select their triples by stream in this way, and
                              join them with static ones in the same GRAPH (sections 2.6 and 5.2)
GRAPH <g>                     the static graph g, if FROM NAMED names it or the query names no
                              static graph at all
GRAPH ?g                      each of the named ones; each stream of FROM STREAM too, where
                              nothing is NAMED
============================  ==============================================================

A window is an RDF graph: a triple that came twice is in it once (paper 003, table 1).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    NOTHING,
    DatasetClause,
    Join,
    Path,
    Pattern,
    Union,
    Values,
)
from tpf_client.sparql.rewrite.operands import join
from tpf_client.sparql.rewrite.visitor import transformed
from tpf_server.continuous.csparql.windows import StreamClause, place_of
from tpf_server.continuous.engine.static.service_clauses import is_service


@dataclass(frozen=True, slots=True)
class MergedSource:
    """What a graph is merged from.

    Args:
        static: names of static graphs; `DEFAULT_GRAPH` is the repository's default graph.
        streams: windows, by what patterns call them: in C-SPARQL the IRIs of their streams.
    """

    static: tuple[Term, ...]
    streams: tuple[Term, ...]


class Sources:
    """The graphs of one query.

    Args:
        dataset: FROM and FROM NAMED.
        clauses: FROM [NAMED] STREAM.
        repository: the names of the static graphs that there are.
    """

    def __init__(
        self, dataset: DatasetClause, clauses: Iterable[StreamClause], repository: Iterable[Term]
    ) -> None:
        clauses = tuple(clauses)
        self._static_only = False
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

    def without_streams(self) -> "Sources":
        """The same graphs, of which only the static parts are left."""
        result = Sources(DatasetClause(), (), ())
        result.__dict__.update(self.__dict__)
        result._static_only = True
        return result

    def of(self, graph: Term) -> MergedSource | None:
        """What a graph is merged from; ``None`` where the query has no such graph."""
        found = self._of(graph)
        if found is not None and self._static_only:
            return MergedSource(found.static, ())
        return found

    def _of(self, graph: Term) -> MergedSource | None:
        if graph == DEFAULT_GRAPH:
            return MergedSource(self._default, self._unnamed)
        streams = graph in self._unnamed or graph in self._streams
        known = graph in self._named or is_service(graph) or (self._any and not streams)
        static = (graph,) if known else ()
        if graph in self._unnamed:
            return MergedSource(tuple(dict.fromkeys((*self._default, *static))), (graph,))
        if graph in self._streams:
            return MergedSource(static, (graph,))
        return MergedSource(static, ()) if static else None


def with_constant_graphs(pattern: Pattern, sources: Sources) -> Pattern:
    """A pattern in which GRAPH ?g is the union over all graphs that ?g ranges over."""

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
    result: Pattern | None = None
    for graph in sources.names:
        each = Join(Values((name,), ((graph,),)), there(graph))
        result = each if result is None else Union(result, each)
    return NOTHING if result is None else result
