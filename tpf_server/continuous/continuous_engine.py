"""One engine for continuous queries in all languages: streams in, results out."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakSet

from annotations.terms import DEFAULT_GRAPH, Term
from tpf_server.continuous.languages.cqels.parser import parse
from tpf_server.continuous.languages.csparql.parser import parse as parse_csparql
from tpf_server.continuous.languages.rspql.parser import parse as parse_rspql
from tpf_server.continuous.languages.rspql.rspql_query import WINDOW_CLOSE, ReportPolicy, TickPolicy
from tpf_server.continuous.runtime.clock import (
    ENDLESS,
    NEVER,
    ReorderBuffer,
    StreamPosition,
)
from tpf_server.continuous.runtime.delivery import Callback
from tpf_server.continuous.runtime.elements.elements import (
    EARLIEST,
    LATEST,
    canonical_term,
    canonical_triple,
    graph_name,
    milliseconds,
)
from tpf_server.continuous.runtime.errors import (
    ConflictError,
    ContinuousError,
    EngineClosedError,
    EngineLimitError,
    UnknownQueryError,
    UnknownStreamError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.runtime.forgetting import Forgetting
from tpf_server.continuous.runtime.instants.csparql_query import CsparqlQuery, PeriodicAnswer
from tpf_server.continuous.runtime.instants.instant_queries import (
    InstantQueries,
    InstantSettings,
)
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph
from tpf_server.continuous.runtime.instants.periodic_query import AnswerCallback, PeriodicQuery
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.records.records import RecordFeed
from tpf_server.continuous.runtime.semantics import EngineLimits, EngineSettings, Semantics
from tpf_server.continuous.runtime.shared import Shared
from tpf_server.continuous.runtime.static.service_clauses import ServiceClause
from tpf_server.continuous.runtime.static.static_data import Graph
from tpf_server.continuous.runtime.tick_queries import TickQueries
from tpf_server.continuous.runtime.windows.continuous_query import ContinuousQuery
from tpf_server.continuous.runtime.windows.matchers import EncodedTriple
from tpf_server.continuous.runtime.windows.streams import ElementStream

__all__ = ["Engine", "EngineLimits", "EngineSettings", "InstantSettings", "RegisteredQuery"]


_SETTINGS: Final = EngineSettings()
_LIMITS: Final = EngineLimits()
_INSTANTS: Final = InstantSettings()


_Coming: TypeAlias = tuple[ElementStream, list[EncodedTriple], Term | None]
"""An element on its way: its stream, its triples, and the name of its graph."""


class Engine:
    """Continuous queries in all languages, over streams and static data.

    It has one thread and no clock: time is what elements say, and what `advance` says.

    Args:
        settings: how it treats elements and queries.
        instants: how queries in C-SPARQL and RSP-QL are evaluated.

    Attributes:
        asks: the graphs that stand for SERVICE clauses are kept up to date.
        base: that relative IRIs are relative to.
        ticks: the queries that emit at arrivals.
        instants: the queries that answer at instants.
    """

    asks = False

    def __init__(
        self,
        settings: EngineSettings = _SETTINGS,
        limits: EngineLimits = _LIMITS,
        instants: InstantSettings = _INSTANTS,
    ) -> None:
        self.base = settings.base
        self.lateness = settings.lateness
        self.reorders = bool(settings.lateness)
        self.semantics = settings.semantics
        self._shared = shared = Shared(settings, limits, instants.patience)
        shared.forgetting = Forgetting(shared.dictionary, self)
        self.static, self.dictionary = shared.static, shared.dictionary
        self.queries, self.streams, self.clocks = shared.queries, shared.streams, shared.clocks
        self.name, self.encode, self.encoded = shared.name, shared.encode, shared.encoded
        self._known = shared.known_triple
        self.ticks = TickQueries(shared, self._deliver, self._check_made)
        self.stream, self.create_stream = self.ticks.stream, self.ticks.create_stream
        self.instants = InstantQueries(shared, instants, self.drop, self._made_at_instant)
        self._waiting: ReorderBuffer[_Coming] = ReorderBuffer(settings.lateness)
        self._records: WeakSet[object] = WeakSet()
        self._names = itertools.count(1)
        self._closed = False
        self.static.on_change(self.ticks.changing)
        self.static.on_change(self.instants.changing)

    @property
    def time(self) -> int | None:
        """The newest instant that elements or `advance` told; ``None`` before the first element."""
        newest = self.clocks.newest
        return None if newest == NEVER else newest

    @property
    def present(self) -> int | None:
        """The present, if it is set: elements of later instants move no other stream."""
        present = self.clocks.present
        return None if present == ENDLESS else present

    @present.setter
    def present(self, present: int | None) -> None:
        self.clocks.present = ENDLESS if present is None else present

    @property
    def arrivals(self) -> int:
        return self.ticks.arrivals

    @property
    def dropped(self) -> int:
        """Count of elements older than the newest of their stream, or than `advance`."""
        return self.ticks.dropped

    @property
    def abandoned(self) -> bool:
        """No more elements are to come, because the engine is about to be closed."""
        return self._shared.abandoned

    @property
    def late(self) -> int:
        """Elements that came after an answer at an instant that should have seen them."""
        return self.instants.readers.late

    # ---------------------------------------------------------------------- static graphs

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

    # ----------------------------------------------------------------------------- queries

    def register(
        self,
        text: str,
        callback: Callback | None = None,
        *,
        name: str | None = None,
        semantics: Semantics | None = None,
        into: str | None = None,
    ) -> RegisteredQuery:
        """Start a query in CQELS-QL; it sees what arrives from now on.

        Args:
            text: CQELS-QL.
            callback: is called with each `Emission`; without one they wait in the result.
            name: what to call it; a new name where it is ``None``.
            semantics: what it emits.
            into: for CONSTRUCT: the stream that its triples are pushed to, as one element for each
                emission.

        Raises:
            ContinuousSyntaxError: the text is no query.
            UnsupportedContinuousQueryError: it cannot be run.
            UnknownStreamError: by setting, it names one that does not exist.
            LimitError: there are as many queries as allowed, or its joins make too many rows.
        """
        query = parse(text, self.base)
        return self.start(query, callback, name=name, semantics=semantics, into=into)

    def register_csparql(
        self, text: str, callback: AnswerCallback | None = None, *, name: str | None = None
    ) -> PeriodicQuery:
        """Start a query in C-SPARQL; it sees what arrives from now on.

        Args:
            text: C-SPARQL.
            callback: is called with each `PeriodicAnswer`; without one they wait in the result.
            name: what to call it, where the text does not say it.

        Raises:
            ContinuousSyntaxError: the text is no query.
            UnsupportedContinuousQueryError: nothing says when to evaluate it, or it feeds itself.
            LimitError: there are as many queries as allowed, or there is one of this name.
        """
        return self.start_at_instants(parse_csparql(text, self.base), callback, name=name)

    def register_rspql(
        self,
        text: str,
        callback: AnswerCallback | None = None,
        *,
        name: str | None = None,
        report: ReportPolicy = WINDOW_CLOSE,
        tick: TickPolicy = "time",
    ) -> PeriodicQuery:
        """Start a query in RSP-QL; see `register_csparql`.

        Args:
            text: RSP-QL.
            callback: see `register_csparql`.
            name: see `register_csparql`.
            report: the policy where the text has none.
            tick: the policy where the text has none.
        """
        query = parse_rspql(text, self.base, report, tick)
        return self.start_at_instants(query, callback, name=name)

    def start_at_instants(
        self,
        query: CsparqlQuery,
        callback: AnswerCallback | None = None,
        *,
        name: str | None = None,
    ) -> PeriodicQuery:
        """Start a parsed query in C-SPARQL or RSP-QL; see `register_csparql`."""
        said = query.registration
        name = self._begin(query, name if said is None else said.name)
        registered = self.instants.start(name, query, callback)
        self._begun(registered)
        self.ticks.began_beside()
        return registered

    def ask(self, text: str) -> PeriodicAnswer:
        """Answer a query in C-SPARQL without streams, once."""
        self._check_open()
        query = parse_csparql(text, self.base)
        self._check_services(query.services)
        return self.instants.ask(query)

    def explain(self, query: str | CsparqlQuery) -> tuple[OperatorGraph, OperatorGraph]:
        """The operators of a query in C-SPARQL, as written and after the rules."""
        parsed = parse_csparql(query, self.base) if isinstance(query, str) else query
        return self.instants.planner.explain(parsed)

    def start(
        self,
        query: ContinuousQuery,
        callback: Callback | None = None,
        *,
        name: str | None = None,
        semantics: Semantics | None = None,
        into: str | None = None,
    ) -> RegisteredQuery:
        """Start a query that was parsed.

        Raises:
            UnsupportedContinuousQueryError, UnknownStreamError, LimitError: see
                `register`.
        """
        self.ticks.settle()
        name = self._begin(query, name)
        registered = RegisteredQuery(name, query, callback, self._shared.limits.backlog, self.drop)
        for stream in registered.reads:
            self.stream(stream)
        policy = semantics or self.semantics
        if into is not None:
            if query.varies:
                raise UnsupportedContinuousQueryError(
                    "a query over every stream would read the one that it makes"
                )
            if policy.relation == "rstream":
                # Each element that it makes would be an arrival at which it emits everything.
                raise UnsupportedContinuousQueryError(f"{policy.name} cannot feed a stream")
            self._feed(registered, self.stream(into).name)
        try:
            self.ticks.start(registered, policy)
        except ContinuousError:
            self.instants.timetable.unlink(registered.name)
            raise
        self._begun(registered)
        self.ticks.stop_exceeded()
        if registered.error is not None:
            raise registered.error
        return registered

    def _feed(self, registered: RegisteredQuery, target: Term) -> None:
        """Let a query feed a stream.

        Raises:
            UnsupportedContinuousQueryError: it makes no triples, or it would feed itself.
        """
        if registered.query.query.form not in ("CONSTRUCT", "DESCRIBE"):
            raise UnsupportedContinuousQueryError("only CONSTRUCT or DESCRIBE can feed a stream")
        name, reads = registered.name, registered.reads
        self.instants.timetable.link(name, target, reads)
        registered.stream = target

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

    def drop(self, registered: RegisteredQuery | PeriodicQuery) -> None:
        """Let go of a query that has ended."""
        if self.queries.get(registered.name) is not registered:
            return
        del self.queries[registered.name]
        if isinstance(registered, PeriodicQuery):
            self.instants.let_go(registered)
        else:
            self.ticks.let_go(registered)
            self.instants.timetable.unlink(registered.name)
        self._shared.forgetting.closed()

    def abandon(self) -> None:
        """End what is under way; called from another thread, before the engine is closed."""
        self._shared.abandoned = True
        for plan in tuple(self.ticks.plans.plans):
            plan.work.end()
        for each in tuple(self.instants.queries.values()):
            each.evaluation.end()

    def close(self) -> None:
        for registered in tuple(self.queries.values()):
            registered.close()
        self._closed = True

    def sweep(self) -> int:
        return self._shared.forgetting.sweep()

    def holders(self) -> Iterable[object]:
        coming = tuple(self.streams.values()), self._waiting, self._shared.arriving
        return *coming, *self.ticks.holders(), *self.instants.holders(), *self._records

    def static_holders(self) -> Iterable[object]:
        return *self.ticks.static_holders(), *self.instants.static_holders()

    def apart(self) -> Iterable[object]:
        parts = self._shared, self.static, self._shared.environment, self.ticks, self.instants
        return self, *parts, self.queries

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine is closed")

    def _begin(self, query: ContinuousQuery | CsparqlQuery, name: str | None) -> str:
        self._check_open()
        self._check_services(query.services)
        if len(self.queries) >= self._shared.limits.queries:
            raise EngineLimitError(f"there are {len(self.queries)} queries already")
        if name is None:
            return next(name for name in map(str, self._names) if name not in self.queries)
        if name in self.queries:
            raise ConflictError(f"there is a query {name!r} already")
        return name

    def _begun(self, registered: Any) -> None:
        self.queries[registered.name] = registered
        self._shared.forgetting.opened()

    def _check_services(self, services: Iterable[ServiceClause]) -> None:
        for service in () if self.asks else services:
            raise UnsupportedContinuousQueryError(
                f"SERVICE {service.endpoint} cannot be asked from here"
            )

    # ----------------------------------------------------------------------------- streams

    def declare(self, stream: str, predicates: Iterable[str]) -> None:
        """Declare all predicates of a stream; elements with others are refused.

        Patterns of C-SPARQL with other predicates are static.

        Raises:
            ElementError: a predicate is no IRI.
            ConflictError: queries rest on other declared ones.
        """
        declared = frozenset([canonical_term(self.name(each)) for each in predicates])
        read = self.instants.readers.read(self.name(stream))
        self.instants.declarations.declare(self.name(stream), declared, read=read)

    def push(
        self,
        stream: str,
        element: Sequence[Any],
        timestamp: int | datetime,
        graph: str | None = None,
    ) -> None:
        """An element arrives.

        Args:
            stream: the IRI of the stream.
            element: a triple of N-Triples texts, or several: a graph.
            timestamp: milliseconds since 1970, or an instant.
            graph: the N-Triples text of its graph.

        Raises:
            ElementError: a term that is none, or a predicate that its stream does not declare.
            TimestampError: no instant of the years 1 to 9999.
            UnknownStreamError: see `stream`.
        """
        if self._closed:
            self._check_open()
        at = timestamp
        if type(at) is not int or not EARLIEST <= at <= LATEST:
            at = milliseconds(timestamp)
        # What most elements come to, without the steps in between.
        known = self._known(*element) if type(element) is tuple and len(element) == 3 else None
        triples = self.encoded(element) if known is None else [known]
        found = self.streams.get(stream) or self.stream(stream)  # type: ignore[call-overload]
        instants = self.instants
        if instants.declarations.declared:
            instants.declarations.check_triples(found.name, triples)
        if self.reorders or instants.queries:
            self.arrive(found, triples, at, None if graph is None else graph_name(graph))
        else:
            self.ticks.tick(found, triples, at)

    def delete_stream(self, name: str) -> None:
        """Delete a stream that no query names, and its elements in queries over every stream."""
        term = self.name(name)
        if term not in self.streams:
            raise UnknownStreamError(f"there is no stream {term}")
        self._waiting.drop(self.streams.pop(term))
        self.ticks.stream_gone(term)
        self.instants.declarations.declared.pop(term, None)

    def arrive(
        self,
        stream: ElementStream,
        triples: list[EncodedTriple],
        at: int,
        graph: Term | None = None,
    ) -> None:
        """Take an encoded element, and the name of its graph."""
        if self.reorders and at >= stream.latest:
            self._release(self._waiting.add(stream, at, (stream, triples, graph)))
        else:
            self._deliver(stream, triples, at, graph)

    def _release(self, coming: Iterable[tuple[int, _Coming]]) -> None:
        for at, (stream, triples, graph) in coming:
            # It may have been deleted meanwhile.
            if self.streams.get(stream.name) is stream:
                self._deliver(stream, triples, at, graph)

    def position(self, name: str) -> StreamPosition:
        """Return the state that all elements before the next one of a stream have left in time."""
        return StreamPosition(
            self.ticks.arrivals, self.clocks.front, self.stream(name).latest, self._waiting.newest
        )

    def resume(self, name: str, position: StreamPosition) -> None:
        """Move to the `position` before the next element of a stream; others are left out."""
        if self.position(name) == position:
            return
        self.ticks.settle()
        if position.newest is not None:
            self._release(self._waiting.until(position.newest - self.lateness))
        if position.front > self.clocks.front:
            self.ticks.pass_to(position.front)
        stream = self.stream(name)
        stream.latest = max(stream.latest, position.latest)
        stream.settle(self.clocks.front)
        self.ticks.arrivals, self._waiting.newest = position.arrivals, position.newest

    def wants_elements(self, stream: ElementStream) -> bool:
        """True where records of a stream must come as elements, one by one."""
        return self.reorders or self.instants.looks_at(stream.name)

    @property
    def makes_first(self) -> bool:
        """True where plans may make elements between others for queries at instants.

        These must then be there before answers; where such queries make elements for plans, too,
        answers come first.
        """
        return bool(self.ticks.ticking and self.instants.queries) and self.instants.timetable.fed

    def _check_made(self, stream: Term, triples: list[EncodedTriple]) -> None:
        self.instants.declarations.check_triples(stream, triples)

    def _deliver(
        self,
        stream: ElementStream,
        triples: list[EncodedTriple],
        at: int,
        graph: Term | None = None,
    ) -> None:
        """Let queries answer for what was before an element, then let it in everywhere."""
        instants = self.instants
        if instants.queries:
            self._shared.arriving.append(triples)
            try:
                if self.makes_first:
                    self.ticks.settle()
                    self.ticks.reach(stream, at)
                stream.came(at)
                instants.arrive(stream.name, triples, at, graph)
            finally:
                self._shared.arriving.pop()
        if self.ticks.plans.plans or not instants.queries:
            self.ticks.tick(stream, triples, at)
        elif stream.plain and self.clocks.front <= at <= self.clocks.present:
            # No windows are there to be moved.
            self.clocks.front = stream.latest = at
        elif at >= stream.latest:
            self.ticks.move(stream, at)

    def _made_at_instant(self, stream: Term, triples: list[EncodedTriple], at: int) -> None:
        """Let in what a query has made that answers at instants, and has let in itself."""
        if self.ticks.plans.plans:
            self.ticks.tick(self.create_stream(stream), triples, at)

    def advance(self, timestamp: int | datetime) -> None:
        """Let time pass without an arrival: all elements until then have come.

        With a lateness, stream time stays behind the instant by it, because elements may still
        come.
        """
        self._check_open()
        at = milliseconds(timestamp) - self._waiting.lateness
        self._release(self._waiting.until(at))
        instants = self.instants
        # What is answered for earlier instants others must see before this one; and what these
        # make of it then must be seen before answers for this one.
        if instants.queries and self.ticks.plans.plans and not self.makes_first:
            instants.advance(at - 1)
        self.ticks.advance(at)
        if instants.queries:
            instants.advance(at)

    def finish(self) -> None:
        """No more elements will come: process those that wait, for late ones or for a slide."""
        self.ticks.settle()
        self._release(self._waiting.rest())
        if not self.makes_first:
            self.instants.finish()
        self.ticks.finish()
        self.instants.finish()

    def record_feed(
        self,
        stream: str,
        predicates: Sequence[str],
        subjects: str | None = None,
        *,
        asked: bool = False,
    ) -> RecordFeed:
        """A way in for elements with one subject and one value for each of these predicates.

        Args:
            stream: the IRI of the stream.
            predicates: IRIs.
            subjects: what the IRIs of subjects begin with, where they end in a number.
            asked: whether what is left of a batch does not arrive once there is no query.
        """
        terms = [self.name(each) for each in predicates]
        parts = self.ticks, self.instants, self.arrive
        feed = RecordFeed(parts, self.stream(stream), terms, subjects, asked=asked)
        self._records.add(feed)
        return feed
