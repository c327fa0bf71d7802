"""What queries of all languages share: terms, static graphs, names, and limits."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from annotations.terms import DEFAULT_GRAPH, Term
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import Query
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.inlined import inlined_literal
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.iris import is_absolute, resolve
from tpf_server.continuous.runtime.elements.elements import (
    EPOCH,
    canonical_term,
    canonical_triple,
    date_time_of,
)
from tpf_server.continuous.runtime.errors import (
    ConflictError,
    ElementError,
    EngineClosedError,
    EngineLimitError,
    UnknownQueryError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.runtime.forgetting import Forgetting
from tpf_server.continuous.runtime.semantics import EngineLimits, EngineSettings
from tpf_server.continuous.runtime.static.service_clauses import ServiceClause
from tpf_server.continuous.runtime.static.static_data import Graph, StaticData
from tpf_server.continuous.runtime.windows.matchers import EncodedTriple


class ParsedQuery(Protocol):
    """A query from the parser of its language."""

    @property
    def query(self) -> Query:
        """The algebra."""

    @property
    def services(self) -> Sequence[ServiceClause]:
        """The SERVICE clauses, for which static graphs stand."""


class QueryEngine:
    """Registered queries over static graphs.

    Attributes:
        base: that relative IRIs are relative to.
        forgetting: of terms that nobody needs.
        arriving: encoded elements that are on their way into windows.
        asks: the graphs that stand for SERVICE clauses are kept up to date.
    """

    asks = False

    def __init__(self, settings: EngineSettings, limits: EngineLimits) -> None:
        self.base = settings.base
        self.limits = limits
        self.static = StaticData()
        self.dictionary = TermDictionary(permanent=False)
        self.forgetting = Forgetting(self.dictionary)
        self.arriving: list[Sequence[EncodedTriple]] = []
        self.queries: dict[str, Any] = {}
        self.environment = Environment(TypedTerms(self.dictionary), date_time_of(EPOCH))
        self.dictionary.on_forget(self.environment.forget)
        self.forgetting.engines.append(self)
        self._settings = settings
        self._names = itertools.count(1)
        self._closed = False

    # ---------------------------------------------------------------------- static graphs

    def resolve(self, iri: str) -> str:
        """An IRI, made absolute as in queries."""
        return iri if is_absolute(iri) else resolve(self.base, iri)

    def name(self, text: str) -> Term:
        """The term of an IRI, which may be relative, or of a term already."""
        return Term(text) if text.startswith("<") else Term(f"<{self.resolve(text)}>")

    def _graph(self, name: str | None) -> Term:
        return DEFAULT_GRAPH if name is None else self.name(name)

    def load(self, path: Path | str, graph: str | None = None) -> None:
        """Add an RDF file to the default graph, or to the graph of this IRI.

        Raises:
            ContinuousError: the file cannot be read.
        """
        name = self._graph(graph)
        self.static.memory(name).load(Path(path))
        self.static.changed(name)

    def attach(self, graph: Graph, name: str | None = None) -> None:
        """Add a graph that somebody else keeps (a static store) to the default or a named graph."""
        self.static.attach(graph, self._graph(name))

    def add(self, triples: Iterable[Sequence[str]], graph: str | None = None) -> None:
        """Add triples to a static graph; queries see them from now on."""
        added = {canonical_triple(each) for each in triples}
        self.static.change(self.static.memory(self._graph(graph)), added=added)

    def remove(self, triples: Iterable[Sequence[str]], graph: str | None = None) -> None:
        """Remove triples that `add` or `load` put into a static graph."""
        removed = {canonical_triple(each) for each in triples}
        self.static.change(self.static.memory(self._graph(graph)), removed=removed)

    # ---------------------------------------------------------------------------- queries

    def query(self, name: str) -> Any:
        """The query of this name.

        Raises:
            UnknownQueryError: there is none.
        """
        if name not in self.queries:
            raise UnknownQueryError(f"there is no query {name!r}")
        return self.queries[name]

    def check_running(self, queries: Collection[Any]) -> None:
        """See that queries run; it costs next to nothing while they do.

        Raises:
            ContinuousError: one of them was stopped.
        """
        if len(self.queries) < len(queries):
            for each in queries:
                if each.error is not None:
                    raise each.error

    def holders(self) -> Iterable[object]:
        """Return objects from which all that hold terms are reached."""
        raise NotImplementedError

    def static_holders(self) -> Iterable[object]:
        """Return objects that hold terms of static data only."""
        return ()

    def apart(self) -> Iterable[object]:
        """Objects where the search for terms stops."""
        return self, self.static, self.environment

    # ----------------------------------------------------------------------------- elements

    def encoded(self, element: Sequence[Any]) -> list[EncodedTriple]:
        """Return the integers of an element from outside, or raise `ElementError`."""
        if not isinstance(element, Sequence):
            raise ElementError(f"neither a triple nor triples: {element!r}")
        if element and isinstance(element[0], str):
            return [self._encode_triple(element)]
        return [self._encode_triple(each) for each in element]

    def _encode_triple(self, triple: Sequence[str]) -> EncodedTriple:
        if isinstance(triple, Sequence) and len(triple) == 3:
            known_triple = self._known_triple(*triple)
            if known_triple is not None:
                return known_triple
        elif isinstance(triple, str) or not isinstance(triple, Sequence):
            raise ElementError(f"neither a triple nor triples: {triple!r}")
        encode = self.dictionary.encode
        s, p, o = canonical_triple(triple, self._canonical)
        return encode(s), encode(p), encode(o)

    def _known_triple(self, s: Any, p: Any, o: Any) -> EncodedTriple | None:
        id_of = self.dictionary.find
        try:
            subject = id_of(s)
            predicate = id_of(p)
            object_ = id_of(o)
            if object_ is None and o:
                object_ = inlined_literal(o)
        except (TypeError, AttributeError):
            return None
        if subject is None or predicate is None or object_ is None:
            return None
        # What `may_begin` says, without the call.
        if s[0] == '"' or p[0] != "<" or s[1] == "<" or p[1] == "<":
            return None
        return subject, predicate, object_

    def _canonical(self, text: str) -> Term:
        # Who is in the table came through here.
        return Term(text) if self.dictionary.find(text) else canonical_term(text)

    def encode(self, term: str) -> int:
        """Return the integer of a term from outside, or raise `ElementError`."""
        term_id = self.dictionary.find(term)
        return self.dictionary.encode(canonical_term(term)) if term_id is None else term_id

    def sweep(self) -> int:
        return self.forgetting.sweep()

    def drop(self, registered: Any) -> None:
        """Let go of a query that has ended."""
        name = registered.name
        if self.queries.get(name) is registered:
            del self.queries[name]
            self._let_go(registered)
            self.forgetting.closed()

    def _let_go(self, registered: Any) -> None:
        """Of what a query holds that has ended."""
        raise NotImplementedError

    def close(self) -> None:
        for registered in tuple(self.queries.values()):
            registered.close()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine is closed")

    def _begin(self, query: ParsedQuery, name: str | None) -> str:
        self._check_open()
        self._check_services(query.services)
        if len(self.queries) >= self.limits.queries:
            raise EngineLimitError(f"there are {len(self.queries)} queries already")
        if name is None:
            return next(name for name in map(str, self._names) if name not in self.queries)
        if name in self.queries:
            raise ConflictError(f"there is a query {name!r} already")
        return name

    def _begun(self, registered: Any) -> None:
        self.queries[registered.name] = registered
        self.forgetting.opened()

    def _check_services(self, services: Iterable[ServiceClause]) -> None:
        for service in () if self.asks else services:
            raise UnsupportedContinuousQueryError(
                f"SERVICE {service.endpoint} cannot be asked from here"
            )
