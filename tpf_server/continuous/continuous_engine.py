"""One engine for continuous queries in all languages: streams in, results out."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from annotations.terms import Term
from tpf_server.continuous.languages.cqels.parser import parse
from tpf_server.continuous.languages.csparql.parser import parse as parse_csparql
from tpf_server.continuous.languages.rspql.parser import parse as parse_rspql
from tpf_server.continuous.languages.rspql.rspql_query import WINDOW_CLOSE, ReportPolicy, TickPolicy
from tpf_server.continuous.runtime.clock import ENDLESS, NEVER
from tpf_server.continuous.runtime.delivery import Callback
from tpf_server.continuous.runtime.elements.elements import (
    EARLIEST,
    LATEST,
    canonical_term,
    graph_name,
    milliseconds,
)
from tpf_server.continuous.runtime.errors import (
    ContinuousError,
    UnsupportedContinuousQueryError,
    as_continuous_errors,
)
from tpf_server.continuous.runtime.instants.csparql_query import CsparqlQuery, PeriodicAnswer
from tpf_server.continuous.runtime.instants.instant_queries import InstantSettings
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph
from tpf_server.continuous.runtime.instants.periodic_query import AnswerCallback, PeriodicQuery
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.records.records import RecordFeed
from tpf_server.continuous.runtime.semantics import EngineLimits, EngineSettings, Semantics
from tpf_server.continuous.runtime.tick_engine import TickEngine
from tpf_server.continuous.runtime.windows.continuous_query import ContinuousQuery

__all__ = ["Engine", "EngineLimits", "EngineSettings", "InstantSettings", "RegisteredQuery"]


class Engine(TickEngine):
    """Continuous queries in all languages, over streams and static data.

    It has one thread and no clock: time is what elements say, and what `advance` says.

    Args:
        settings: how it treats elements and queries.
        instants: how queries in C-SPARQL and RSP-QL are evaluated.
    """

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
    def semantics(self) -> Semantics:
        """What queries in CQELS-QL emit, where registration says nothing else."""
        return self._settings.semantics

    @property
    def late(self) -> int:
        """Elements that came after an answer at an instant that should have seen them."""
        return self.instants.readers.late

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
        if self._emitter.emitting:
            # What is left of a batch must come as elements.
            self.settle()
            for each in self.streams.values():
                each.version += 1
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
        self.settle()
        name = self._begin(query, name)
        registered = RegisteredQuery(name, query, callback, self.limits.backlog, self.drop)
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
            with as_continuous_errors(), self.dictionary.permanently():
                self._plans.add(registered, policy)
        except ContinuousError:
            self._plans.drop_idle()
            self.instants.timetable.unlink(registered.name)
            raise
        self._until_housekeeping = 1
        if registered.plan is not None:
            self._housekeeping.added(registered.plan)
        self._begun(registered)
        self._stop_exceeded()
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

    def _let_go(self, registered: RegisteredQuery | PeriodicQuery) -> None:
        if isinstance(registered, PeriodicQuery):
            self.instants.let_go(registered)
            return
        self.settle()
        self._plans.remove(registered)
        self.instants.timetable.unlink(registered.name)

    def abandon(self) -> None:
        super().abandon()
        self.instants.abandon()

    def holders(self) -> Iterable[object]:
        return *super().holders(), *self.instants.holders()

    def static_holders(self) -> Iterable[object]:
        return *super().static_holders(), *self.instants.static_holders()

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
        known = (
            self._known_triple(*element) if type(element) is tuple and len(element) == 3 else None
        )
        triples = self.encoded(element) if known is None else [known]
        found = self.streams.get(stream) or self.stream(stream)  # type: ignore[call-overload]
        instants = self.instants
        if instants.declarations.declared:
            instants.declarations.check_triples(found.name, triples)
        if self.reorders or instants.queries:
            self.arrive(found, triples, at, None if graph is None else graph_name(graph))
        else:
            self._tick(found, triples, at)

    def delete_stream(self, name: str) -> None:
        super().delete_stream(name)
        self.instants.declarations.declared.pop(self.name(name), None)

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
        if instants.queries and self._plans.plans and not self.makes_first:
            instants.advance(at - 1)
        self._advance(at)
        if instants.queries:
            instants.advance(at)

    def finish(self) -> None:
        """No more elements will come: process those that wait, for late ones or for a slide."""
        self.settle()
        self._release(self._waiting.rest())
        if not self.makes_first:
            self.instants.finish()
        self._finish()
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
        feed = RecordFeed(self, self.encode, self.stream(stream), terms, subjects, asked=asked)
        self._records.add(feed)
        return feed
