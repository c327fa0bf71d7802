"""The static data of an engine: a default graph and named graphs, from files or from stores."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pyoxigraph as ox

from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    Term,
    Triple,
    Variable,
    is_iri,
    is_literal,
    is_variable,
    triple_term,
)
from tpf_server.continuous.engine.elements.ox_terms import OxTerm, ox_term, text_of
from tpf_server.continuous.engine.errors import ContinuousError
from tpf_server.store.protocols import StaticStore
from tpf_server.store.static.rdf_files import check_file

_STRING = ox.NamedNode("http://www.w3.org/2001/XMLSchema#string")
_ANY = tuple(Variable(f"?.any{place}") for place in range(4))


class Graph(Protocol):
    """One graph: what matches a pattern of its triples."""

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterable[tuple[Term, Term, Term]]:
        """The triples with these terms; ``None`` is any."""

    def count(self, subject: Term | None, predicate: Term | None, object_: Term | None) -> int:
        """About how many there are (an estimate serves: it only orders the joins)."""


class Change(NamedTuple):
    """What is about to change, or has.

    Args:
        graphs: their names.
        triples: that may come or go, nothing else does; ``None``: anything may have changed.
    """

    graphs: Collection[Term]
    triples: Collection[tuple[Term, Term, Term]] | None = None


Listener = Callable[[Change], Callable[[], None]]
"""Is called before some triples of graphs change; what it returns is called afterwards. Where
anything may have changed both are called afterwards."""

_LEXICAL: Final = "lexical:"
"""Stands before the datatype of literals inside a `MemoryGraph`. Of the datatypes that it knows,
pyoxigraph keeps values: it gives ``"18"`` back for ``"18.0"``, and an integer for a byte. Literals
of a datatype that it does not know stay what they are."""


def _kept(term: OxTerm) -> OxTerm:
    """A term as it is kept."""
    if isinstance(term, ox.Literal):
        if term.language is not None or term.datatype == _STRING:
            return term
        return ox.Literal(term.value, datatype=ox.NamedNode(_LEXICAL + term.datatype.value))
    if isinstance(term, ox.Triple):
        return ox.Triple(term.subject, term.predicate, _kept(term.object))
    return term


def _given(term: OxTerm) -> Term:
    """The text of a term that is kept."""
    if isinstance(term, ox.Literal):
        text = str(term)
        if text[-1] == ">":
            quote = text.rindex('"')
            return Term(f'{text[:quote]}"^^<{text[quote + len(_LEXICAL) + 4 :]}')
        return Term(text)
    if isinstance(term, ox.Triple):
        subject, predicate = text_of(term.subject), text_of(term.predicate)
        return triple_term(Triple(subject, predicate, _given(term.object)))
    return Term(str(term))


class MemoryGraph:
    """A graph in memory, kept by pyoxigraph; it can change."""

    def __init__(self) -> None:
        self._store = ox.Store()
        self._counts: dict[tuple[Term | None, Term | None, Term | None], int] = {}

    def load(self, path: Path) -> None:
        """Add the triples of an RDF file (all graphs of it).

        Raises:
            ContinuousError: the file cannot be read or is no RDF.
        """
        extension = path.suffix.removeprefix(".").lower()
        if extension == "nt" or extension == "nq":
            rdf_format: ox.RdfFormat | None = ox.RdfFormat.from_extension(extension)
        else:
            rdf_format = ox.RdfFormat.N3 if extension == "n3" else None
            rdf_format = rdf_format or ox.RdfFormat.from_extension(extension)
        if rdf_format is None:
            raise ContinuousError(f"{path}: no RDF format has the ending {path.suffix!r}")
        try:
            check_file(path, rdf_format)
            quads = ox.parse(path=path, format=rdf_format, rename_blank_nodes=True)
            self._store.bulk_extend(
                ox.Quad(quad.subject, quad.predicate, _kept(quad.object)) for quad in quads
            )
        except (OSError, SyntaxError, ValueError) as error:
            raise ContinuousError(f"{path}: {error}") from error
        self._counts.clear()

    def add(self, triples: Iterable[tuple[Term, Term, Term]]) -> None:
        """Add triples."""
        self._store.extend(map(_quad, triples))
        self._counts.clear()

    def remove(self, triples: Iterable[tuple[Term, Term, Term]]) -> None:
        """Remove triples; those that are not there are ignored."""
        for triple in triples:
            self._store.remove(_quad(triple))
        self._counts.clear()

    def clear(self) -> None:
        """Remove every triple."""
        self._store = ox.Store()
        self._counts.clear()

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[tuple[Term, Term, Term]]:
        """The triples with these terms; ``None`` is any."""
        for quad in self._find(subject, predicate, object_):
            yield Term(str(quad.subject)), Term(str(quad.predicate)), _given(quad.object)

    def _find(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[ox.Quad]:
        if (subject is not None and is_literal(subject)) or (
            predicate is not None and not is_iri(predicate)
        ):
            return iter(())
        return self._store.quads_for_pattern(
            None if subject is None else ox_term(subject),  # type: ignore[arg-type]
            None if predicate is None else ox_term(predicate),  # type: ignore[arg-type]
            None if object_ is None else _kept(ox_term(object_)),
            None,
        )

    def count(self, subject: Term | None, predicate: Term | None, object_: Term | None) -> int:
        """How many there are, counted up to a thousand; above that, a thousand per free place."""
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
    subject, predicate, object_ = map(ox_term, triple)
    return ox.Quad(subject, predicate, _kept(object_))  # type: ignore[arg-type]


class StoreGraph:
    """A graph inside a static store that a loader wrote.

    Attributes:
        version: differs wherever the content may differ.
    """

    PAGE = 10_000

    def __init__(self, store: StaticStore, graph: Term = DEFAULT_GRAPH) -> None:
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
        """The triples with these terms; ``None`` is any."""
        pattern = self._pattern(subject, predicate, object_)
        offset = 0
        while True:
            page = self._store.quads(pattern, offset, self.PAGE)
            for quad in page:
                yield quad.subject, quad.predicate, quad.object
            offset += len(page)
            if len(page) < self.PAGE:
                return

    def count(self, subject: Term | None, predicate: Term | None, object_: Term | None) -> int:
        """How many there are, exactly."""
        return self._store.count(self._pattern(subject, predicate, object_))


class StaticData:
    """The static graphs of an engine, and who wants to know when one changes."""

    def __init__(self) -> None:
        self._default: list[Graph] = []
        self._named: dict[Term, list[Graph]] = {}
        self._listeners: list[Listener] = []

    @property
    def names(self) -> tuple[Term, ...]:
        """The names of the named graphs."""
        return tuple(self._named)

    def attach(self, graph: Graph, name: Term = DEFAULT_GRAPH) -> None:
        """Add what a graph holds to the graph of this name, and tell the listeners."""
        parts = self._default if name == DEFAULT_GRAPH else self._named.setdefault(name, [])
        parts.append(graph)
        self.changed(name)

    def exchange(self, stores: Mapping[Term, Sequence[StoreGraph]]) -> None:
        """Put these in the place of all graphs of stores, and tell the listeners what changed.

        Args:
            stores: by the names of graphs.
        """
        changed = []
        for name in {DEFAULT_GRAPH: None, **self._named, **stores}:
            old = self.graphs(name)
            kept = [each for each in old if not isinstance(each, StoreGraph)]
            new = stores.get(name, ())
            if [each.version for each in new] != [
                each.version for each in old if isinstance(each, StoreGraph)
            ]:
                changed.append(name)
            if name == DEFAULT_GRAPH:
                self._default = [*kept, *new]
            elif kept or new:
                self._named[name] = [*kept, *new]
            else:
                del self._named[name]
        for name in changed:
            self.changed(name)

    def part(self, names: Collection[Term]) -> MemoryGraph:
        """A new part of the graphs of these names; there is nothing in it yet."""
        made = MemoryGraph()
        for name in names:
            parts = self._default if name == DEFAULT_GRAPH else self._named.setdefault(name, [])
            parts.append(made)
        return made

    def drop(self, graph: MemoryGraph) -> None:
        """Take a part out of all graphs."""
        triples = list(graph.match(None, None, None))
        if triples:
            self.change(graph, removed=triples)
        self._default = [part for part in self._default if part is not graph]
        for name, parts in tuple(self._named.items()):
            parts[:] = [part for part in parts if part is not graph]
            if not parts:
                del self._named[name]

    def detach(self, name: Term) -> None:
        """Take everything from the graph of this name, and tell the listeners."""
        if name == DEFAULT_GRAPH:
            self._default = []
        else:
            self._named.pop(name, None)
        self.changed(name)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of each change; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def changed(self, name: Term) -> None:
        """Say that the graph of this name has changed, in whatever way."""
        for finish in self._told(Change((name,))):
            finish()

    def change(
        self,
        graph: MemoryGraph,
        added: Collection[tuple[Term, Term, Term]] = (),
        removed: Collection[tuple[Term, Term, Term]] = (),
    ) -> None:
        """Change one part of graphs; what listeners have to do follows from these triples alone."""
        every = {DEFAULT_GRAPH: self._default, **self._named}
        names = [name for name, parts in every.items() if any(part is graph for part in parts)]
        finishing = self._told(Change(names, {*added, *removed}))
        graph.remove(removed)
        graph.add(added)
        for finish in finishing:
            finish()

    def _told(self, change: Change) -> list[Callable[[], None]]:
        return [listener(change) for listener in self._listeners]

    def memory(self, name: Term = DEFAULT_GRAPH) -> MemoryGraph:
        """The part of this graph that is kept in memory and may change; made where absent."""
        parts = self._default if name == DEFAULT_GRAPH else self._named.setdefault(name, [])
        for part in parts:
            if isinstance(part, MemoryGraph):
                return part
        return self.part((name,))

    def graphs(self, name: Term) -> tuple[Graph, ...]:
        """The parts of the graph of this name."""
        return tuple(self._default if name == DEFAULT_GRAPH else self._named.get(name, ()))


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

    def seen(self, pattern: QuadPattern, change: Change) -> Iterator[Quad]:
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
        elif not self._named or graph in self._named:
            yield Term(graph), self._data.graphs(Term(graph))


def agrees(pattern: QuadPattern, quad: Quad) -> bool:
    """Whether a quad matches a pattern."""
    seen: dict[str, str] = {}
    return all(
        seen.setdefault(place, value) == value if is_variable(place) else place == value
        for place, value in zip(pattern, quad, strict=True)
    )
