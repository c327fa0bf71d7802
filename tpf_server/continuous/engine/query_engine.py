"""The common base of the engines of all languages, and the state that they share side by side."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from annotations.terms import Term
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import DatasetClause, Query
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.inlined import inlined_literal
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_server.continuous.engine.elements.elements import (
    EPOCH,
    canonical_term,
    canonical_triple,
    date_time_of,
)
from tpf_server.continuous.engine.errors import (
    ElementError,
    EngineClosedError,
    EngineLimitError,
    UnknownGraphError,
    UnknownQueryError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.engine.forgetting import Forgetting
from tpf_server.continuous.engine.running_query import RunningQuery
from tpf_server.continuous.engine.semantics import EngineLimits
from tpf_server.continuous.engine.static.service_clauses import ServiceClause
from tpf_server.continuous.engine.static.static_data import StaticGraphs
from tpf_server.continuous.engine.windows.matchers import EncodedTriple

QueryT = TypeVar("QueryT", bound=RunningQuery[Any])


class ParsedQuery(Protocol):
    """A query from the parser of its language."""

    @property
    def query(self) -> Query:
        """The algebra."""

    @property
    def services(self) -> Sequence[ServiceClause]:
        """The SERVICE clauses, for which static graphs stand."""


class QueryEngine(StaticGraphs, Generic[QueryT]):
    """Registered queries over static graphs.

    Args:
        require_graphs: a query may only name static graphs that are there.
        beside: another engine, whose terms and static graphs it uses.

    Attributes:
        forgetting: of unused terms.
        arriving: encoded elements that are on their way into windows.
        asks: the graphs that stand for SERVICE clauses are kept up to date.
    """

    asks = False

    def __init__(
        self,
        base: str,
        limits: EngineLimits | None,
        *,
        require_graphs: bool,
        beside: "QueryEngine[Any] | None" = None,
    ) -> None:
        super().__init__(base, None if beside is None else beside.static)
        self.limits = limits or EngineLimits()
        if beside is None:
            self.dictionary = TermDictionary(permanent=False)
            self.forgetting = Forgetting(self.dictionary)
            self.arriving: list[Sequence[EncodedTriple]] = []
            typed = TypedTerms(self.dictionary)
        else:
            self.dictionary = beside.dictionary
            self.forgetting = beside.forgetting
            self.arriving = beside.arriving
            typed = beside._environment.typed
        self.queries: dict[str, QueryT] = {}
        self._environment: Environment = Environment(typed, date_time_of(EPOCH))
        self.dictionary.on_forget(self._environment.forget)
        self.forgetting.engines.append(self)
        self._require_graphs = require_graphs
        self._names = itertools.count(1)
        self._closed = False

    def query(self, name: str) -> QueryT:
        """Return the query of this name, or raise `UnknownQueryError`."""
        if name not in self.queries:
            raise UnknownQueryError(f"there is no query {name!r}")
        return self.queries[name]

    def check_running(self, queries: Collection[QueryT]) -> None:
        """Raise the error of a query that was stopped; almost free while all run."""
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
        """Return objects where the search for terms stops."""
        return self, self.static, self._environment

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
        id_of = self.dictionary.known
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
        return Term(text) if self.dictionary.known(text) else canonical_term(text)

    def encode(self, term: str) -> int:
        """Return the integer of a term from outside, or raise `ElementError`."""
        term_id = self.dictionary.known(term)
        return self.dictionary.encode(canonical_term(term)) if term_id is None else term_id

    def sweep(self) -> int:
        """Forget unused terms; return how many."""
        return self.forgetting.sweep()

    def _drop(self, registered: QueryT) -> None:
        if self.queries.get(registered.name) is registered:
            del self.queries[registered.name]
            self._let_go(registered)
            self.forgetting.closed()

    def _let_go(self, registered: QueryT) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Stop all queries."""
        for registered in tuple(self.queries.values()):
            registered.close()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine is closed")

    def _begin(self, query: ParsedQuery, name: str | None) -> str:
        self._check_open()
        self._check_graphs(query.query.dataset)
        self._check_services(query.services)
        if len(self.queries) >= self.limits.queries:
            raise EngineLimitError(f"there are {len(self.queries)} queries already")
        if name is None:
            return next(name for name in map(str, self._names) if name not in self.queries)
        if name in self.queries:
            raise EngineLimitError(f"there is a query {name!r} already")
        return name

    def _begun(self, registered: QueryT) -> None:
        self.queries[registered.name] = registered
        self.forgetting.opened()

    def _check_services(self, services: Iterable[ServiceClause]) -> None:
        for service in () if self.asks else services:
            raise UnsupportedContinuousQueryError(
                f"SERVICE {service.endpoint} cannot be asked from here"
            )

    def _check_graphs(self, dataset: DatasetClause) -> None:
        if not self._require_graphs:
            return
        for graph in (*dataset.named, *dataset.default):
            if graph not in self.static.names:
                raise UnknownGraphError(f"no static graph {graph} is loaded")
