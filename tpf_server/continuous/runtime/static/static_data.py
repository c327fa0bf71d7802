"""The static data of an engine: a default graph and named graphs, from files or from stores."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyoxigraph as ox

from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    Term,
    Variable,
    is_blank_node,
    is_iri,
    is_literal,
    is_triple_term,
    is_variable,
)
from tpf_server.continuous.runtime.errors import ContinuousError
from tpf_server.continuous.runtime.static.service_clauses import is_service
from tpf_server.errors import RdfInputError
from tpf_server.store.static.columnar import ColumnarStore
from tpf_server.store.static.ox_terms import OxTerm, ox_term
from tpf_server.store.static.rdf_files import RdfReader

# A graph of static data in memory.

_numbers: Final = itertools.count(2**32)
"""Numbers of files, for their blank nodes; beyond those that stores give to theirs."""


def _kept(term: Term) -> OxTerm:
    """Keep literals as their text: of some datatypes pyoxigraph would keep the value alone."""
    return ox_term(term) if is_iri(term) or is_blank_node(term) else ox.Literal(term)


def _given(term: OxTerm) -> Term:
    return Term(term.value if isinstance(term, ox.Literal) else str(term))


class MemoryGraph:
    """A graph in memory, kept by pyoxigraph; it can change."""

    def __init__(self) -> None:
        self._store = ox.Store()
        self._counts: dict[tuple[Term | None, Term | None, Term | None], int] = {}

    def load(self, path: Path) -> None:
        """Add the triples of an RDF file (all graphs of it), as stores read it.

        Raises:
            ContinuousError: the file cannot be read, is no RDF, or has a relative IRI.
        """
        try:
            read = RdfReader(path, next(_numbers)).quads()
            self._store.bulk_extend(_quad((Term(s), Term(p), Term(o))) for s, p, o, _ in read)
        except RdfInputError as error:
            raise ContinuousError(str(error)) from error
        self._counts.clear()

    def add(self, triples: Iterable[tuple[Term, Term, Term]]) -> None:
        self._store.extend(map(_quad, triples))
        self._counts.clear()

    def remove(self, triples: Iterable[tuple[Term, Term, Term]]) -> None:
        for triple in triples:
            self._store.remove(_quad(triple))
        self._counts.clear()

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[tuple[Term, Term, Term]]:
        for quad in self._find(subject, predicate, object_):
            yield Term(str(quad.subject)), Term(str(quad.predicate)), _given(quad.object)

    def _find(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[ox.Quad]:
        if (subject is not None and (is_literal(subject) or is_triple_term(subject))) or (
            predicate is not None and not is_iri(predicate)
        ):
            return iter(())
        try:
            s, p, o = (
                None if each is None else _kept(each) for each in (subject, predicate, object_)
            )
        except ValueError:
            return iter(())  # streams may have terms that no file can have
        return self._store.quads_for_pattern(s, p, o, None)  # type: ignore[arg-type]

    def count(self, subject: Term | None, predicate: Term | None, object_: Term | None) -> int:
        """See `Graph`; counts up to a thousand, above that, a thousand per free position."""
        key = (subject, predicate, object_)
        found = self._counts.get(key)
        if found is None:
            found = 0
            for _ in self._find(subject, predicate, object_):
                found += 1
                if found == 1000:
                    found = 1000 * (1 + sum(term is None for term in key))
                    break
            self._counts[key] = found
        return found


def _quad(triple: tuple[Term, Term, Term]) -> ox.Quad:
    return ox.Quad(*map(_kept, triple))  # type: ignore[arg-type]


# A graph of static data inside a store.

_ANY = tuple(Variable(f"?.any{place}") for place in range(4))
_FIRST, _MOST, _GROWTH = 20, 10_000, 10
"""How many triples are read at first, at most at once, and by how much more each time: many who ask
want to know whether there is any, or look a few up."""


class StoreGraph:
    """A graph inside a static store; `version` differs wherever the content may differ."""

    def __init__(self, store: ColumnarStore, graph: Term = DEFAULT_GRAPH) -> None:
        self.version = (store.version, graph)
        self._store = store
        self._graph = graph

    def _pattern(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> QuadPattern:
        terms = (subject, predicate, object_)
        filled = (_ANY[i] if term is None else term for i, term in enumerate(terms))
        return QuadPattern(*(*filled, self._graph))

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[tuple[Term, Term, Term]]:
        pattern = self._pattern(subject, predicate, object_)
        offset, limit = 0, _FIRST
        while True:
            page = self._store.quads(pattern, offset, limit)
            for quad in page:
                yield quad.subject, quad.predicate, quad.object
            offset += limit
            if len(page) < limit:
                return
            limit = min(_GROWTH * limit, _MOST)

    def count(self, subject: Term | None, predicate: Term | None, object_: Term | None) -> int:
        """See `Graph`; exact."""
        return self._store.count(self._pattern(subject, predicate, object_))


class Graph(Protocol):
    """A graph that can be matched."""

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterable[tuple[Term, Term, Term]]:
        """Return the triples with these terms; ``None`` is any."""

    def count(self, subject: Term | None, predicate: Term | None, object_: Term | None) -> int:
        """Estimate their number, to order joins."""


class GraphChange(NamedTuple):
    """A change of a static graph, before or after.

    Args:
        triples: all that may come or go; ``None``: any.
        prepared: a `Preparation`, where any triple may have changed.
    """

    graphs: Collection[Term]
    triples: Collection[tuple[Term, Term, Term]] | None = None
    prepared: Any = None


StaticChangeListener = Callable[[GraphChange], Callable[[], None]]
"""Is called before some triples of graphs change; what it returns is called afterwards. Where
anything may have changed both are called afterwards; the former is called before as well, by who
prepares it, so that listeners ask for what they will want to know."""


class StaticData:
    """The static graphs of an engine, and the listeners to their changes."""

    def __init__(self) -> None:
        self._graphs: dict[Term, list[Graph]] = {}
        self._listeners: list[StaticChangeListener] = []

    @property
    def names(self) -> tuple[Term, ...]:
        """Return the named graphs, without those of services."""
        return tuple([n for n in self._graphs if n != DEFAULT_GRAPH and not is_service(n)])

    def attach(self, graph: Graph, name: Term = DEFAULT_GRAPH) -> None:
        """Add the content of a graph to the graph of this name."""
        self._graphs.setdefault(name, []).append(graph)
        self.changed(name)

    def exchange(self, stores: Mapping[Term, Sequence[StoreGraph]], prepared: Any = None) -> None:
        changed = self._exchange(stores)
        if changed:
            for finish in self._told(GraphChange(changed, None, prepared)):
                finish()

    def copy(self) -> "StaticData":
        made = StaticData()
        made._graphs = {name: list(parts) for name, parts in self._graphs.items()}
        return made

    def with_stores(self, stores: Mapping[Term, Sequence[StoreGraph]]) -> "StaticData":
        """Return a copy with all graphs of stores replaced."""
        made = self.copy()
        made._exchange(stores)
        return made

    def ask(self, stores: Mapping[Term, Sequence[StoreGraph]], prepared: Any) -> None:
        """Let listeners prepare an exchange of stores."""
        changed = self.copy()._exchange(stores)
        if changed:
            self._told(GraphChange(changed, None, prepared))

    def _exchange(self, stores: Mapping[Term, Sequence[StoreGraph]]) -> list[Term]:
        changed = []
        for name in {DEFAULT_GRAPH: None, **self._graphs, **stores}:
            old = self.graphs(name)
            kept = [each for each in old if not isinstance(each, StoreGraph)]
            new = stores.get(name, ())
            if [each.version for each in new] != [
                each.version for each in old if isinstance(each, StoreGraph)
            ]:
                changed.append(name)
            if kept or new:
                self._graphs[name] = [*kept, *new]
            else:
                self._graphs.pop(name, None)
        return changed

    def part(self, names: Collection[Term]) -> MemoryGraph:
        """Return a new, empty part of the graphs of these names."""
        made = MemoryGraph()
        for name in names:
            self._graphs.setdefault(name, []).append(made)
        return made

    def drop(self, graph: MemoryGraph) -> None:
        triples = list(graph.match(None, None, None))
        if triples:
            self.change(graph, removed=triples)
        for name, parts in tuple(self._graphs.items()):
            parts[:] = [part for part in parts if part is not graph]
            if not parts:
                del self._graphs[name]

    def on_change(self, listener: StaticChangeListener) -> None:
        self._listeners.append(listener)

    def changed(self, name: Term) -> None:
        """Notify listeners of an unknown change of this graph."""
        for finish in self._told(GraphChange((name,))):
            finish()

    def change(
        self,
        graph: MemoryGraph,
        added: Collection[tuple[Term, Term, Term]] = (),
        removed: Collection[tuple[Term, Term, Term]] = (),
    ) -> None:
        """Change one part of graphs; listeners get these triples alone."""
        names = [
            name for name, parts in self._graphs.items() if any(part is graph for part in parts)
        ]
        finishing = self._told(GraphChange(names, {*added, *removed}))
        graph.remove(removed)
        graph.add(added)
        for finish in finishing:
            finish()

    def _told(self, change: GraphChange) -> list[Callable[[], None]]:
        # An engine beside another comes after it, and may get elements of what that one emits: so
        # it has taken the change over before.
        return [listener(change) for listener in self._listeners][::-1]

    def memory(self, name: Term = DEFAULT_GRAPH) -> MemoryGraph:
        """Return the part of this graph that is in memory and may change; make it where absent."""
        for part in self._graphs.get(name, ()):
            if isinstance(part, MemoryGraph):
                return part
        return self.part((name,))

    def graphs(self, name: Term) -> tuple[Graph, ...]:
        return tuple(self._graphs.get(name, ()))


# What a query sees of static data.


class Dataset:
    """The static data as one query sees them: FROM and FROM NAMED applied.

    A query without FROM sees the default graph (also with FROM NAMED, unlike SPARQL). Where several
    graphs make up the default graph, a triple in more than one of them counts once.
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
        """Return the matching quads; repeated variables are equal.

        A variable as graph ranges over the named graphs.
        """
        terms = tuple(None if is_variable(term) else Term(term) for term in pattern[:3])
        repeated = len({t for t in pattern if is_variable(t)}) < sum(map(is_variable, pattern))
        for name, names in self._names(pattern.graph):
            parts = self._parts(names)
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
        return next(self.match(QuadPattern(*quad)), None) is not None

    def sees(self, patterns: Iterable[QuadPattern], change: GraphChange) -> bool:
        """True if a change may concern what matches patterns."""
        return any(is_variable(each.graph) or self._changed(each, change) for each in patterns)

    def seen(self, pattern: QuadPattern, change: GraphChange) -> Iterator[Quad]:
        """Return the present matches among the quads of a change."""
        for name in self._changed(pattern, change):
            for triple in change.triples or ():
                quad = Quad(*triple, name)
                if agrees(pattern, quad) and self.has(quad):
                    yield quad

    def _changed(self, pattern: QuadPattern, change: GraphChange) -> list[Term]:
        there = self._names(pattern.graph)
        return [name for name, names in there if not set(names).isdisjoint(change.graphs)]

    def count(self, pattern: QuadPattern) -> int:
        terms = tuple(None if is_variable(term) else Term(term) for term in pattern[:3])
        there = self._names(pattern.graph)
        return sum(part.count(*terms) for _, names in there for part in self._parts(names))

    def _names(self, graph: str) -> Iterator[tuple[Term, tuple[Term, ...]]]:
        """The graphs that a pattern ranges over, and the static graphs that each is made of."""
        if is_variable(graph):
            yield from ((name, (name,)) for name in self._named or self._data.names)
        elif graph == DEFAULT_GRAPH:
            yield DEFAULT_GRAPH, self._default
        elif not self._named or graph in self._named or is_service(graph):
            yield Term(graph), (Term(graph),)

    def _parts(self, names: tuple[Term, ...]) -> list[Graph]:
        return [part for name in names for part in self._data.graphs(name)]


def agrees(pattern: QuadPattern, quad: Quad) -> bool:
    """True if a quad matches a pattern."""
    seen: dict[str, str] = {}
    return all(
        seen.setdefault(place, value) == value if is_variable(place) else place == value
        for place, value in zip(pattern, quad, strict=True)
    )
