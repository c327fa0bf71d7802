"""What a query sees of static data."""

from collections.abc import Iterable, Iterator

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, is_variable
from tpf_server.continuous.engine.static.service_clauses import is_service
from tpf_server.continuous.engine.static.static_data import Graph, GraphChange, StaticData


class Dataset:
    """The static data as one query sees them: FROM and FROM NAMED applied.

    A query without FROM sees the default graph (also where it has FROM NAMED: the language of the
    papers differs from SPARQL there). Where several graphs make up the default graph, a triple in
    more than one of them counts once.

    Args:
        data: the graphs.
        default: what FROM names; empty for the default graph itself.
        named: what FROM NAMED names; empty for all.
    """

    def __init__(
        self, data: StaticData, default: tuple[Term, ...] = (), named: tuple[Term, ...] = ()
    ) -> None:
        self._data = data
        self._default = default or (DEFAULT_GRAPH,)
        self._named = named
        self.key = (self._default, named)
        """Equal for datasets of the same data that see the same."""

    def match(self, pattern: QuadPattern) -> Iterator[Quad]:
        """The quads that match; repeated variables are honoured.

        A variable as graph ranges over the named graphs.
        """
        terms = tuple(None if is_variable(term) else Term(term) for term in pattern[:3])
        repeated = len({t for t in pattern if is_variable(t)}) < sum(map(is_variable, pattern))
        for name, parts in self._graphs(pattern.graph):
            seen: set[tuple[Term, Term, Term]] | None = set() if len(parts) > 1 else None
            for part in parts:
                for triple in part.match(*terms):
                    if seen is not None:
                        if triple in seen:
                            continue
                        seen.add(triple)
                    quad = Quad(*triple, name)
                    if not repeated or agrees(pattern, quad):
                        yield quad

    def has(self, quad: Quad) -> bool:
        """Whether a quad is there."""
        return next(self.match(QuadPattern(*quad)), None) is not None

    def seen(self, pattern: QuadPattern, change: GraphChange) -> Iterator[Quad]:
        """Those of the quads that match now that the change is about."""
        if is_variable(pattern.graph):
            names: Iterable[Term] = (
                each for each in self._named or self._data.names if each in change.graphs
            )
        elif pattern.graph == DEFAULT_GRAPH:
            names = () if set(self._default).isdisjoint(change.graphs) else (DEFAULT_GRAPH,)
        else:
            names = (Term(pattern.graph),) if pattern.graph in change.graphs else ()
        for name in names:
            for triple in change.triples or ():
                quad = Quad(*triple, name)
                if agrees(pattern, quad) and self.has(quad):
                    yield quad

    def count(self, pattern: QuadPattern) -> int:
        """About how many quads match."""
        terms = tuple(None if is_variable(term) else Term(term) for term in pattern[:3])
        return sum(part.count(*terms) for _, parts in self._graphs(pattern.graph) for part in parts)

    def _graphs(self, graph: str) -> Iterator[tuple[Term, tuple[Graph, ...]]]:
        if is_variable(graph):
            for name in self._named or self._data.names:
                yield name, self._data.graphs(name)
        elif graph == DEFAULT_GRAPH:
            yield DEFAULT_GRAPH, tuple(p for n in self._default for p in self._data.graphs(n))
        elif not self._named or graph in self._named or is_service(graph):
            yield Term(graph), self._data.graphs(Term(graph))


def agrees(pattern: QuadPattern, quad: Quad) -> bool:
    """Whether a quad matches a pattern."""
    seen: dict[str, str] = {}
    return all(
        seen.setdefault(place, value) == value if is_variable(place) else place == value
        for place, value in zip(pattern, quad, strict=True)
    )
