"""The engine: streams in, results out.

An arrival is a tick. First the windows let go what is too old for its time, then the element enters
the windows one after the other and every new row finds its way through the joins, then the
operators send what they held back, then the queries emit.

The engine has one thread and no clock: time is what the elements say, and what `advance` says.
"""

import heapq
import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from annotations.terms import Term
from tpf_client.dataflow.changes import Solution
from tpf_server.cqels.delivery import Callback, Emission, Results
from tpf_server.cqels.errors import (
    ContinuousError,
    ElementError,
    UnknownStreamError,
    WindowLimitError,
)
from tpf_server.cqels.feeds import Feeds
from tpf_server.cqels.limits import Limits
from tpf_server.cqels.parser import BASE, parse
from tpf_server.cqels.plan import Plan
from tpf_server.cqels.plan_registry import PlanRegistry
from tpf_server.cqels.query_engine import QueryEngine
from tpf_server.cqels.records import RecordFeed
from tpf_server.cqels.registered_query import RegisteredQuery
from tpf_server.cqels.semantics import CQELS, Semantics
from tpf_server.cqels.streams import Stream
from tpf_server.cqels.timestamps import EPOCH, milliseconds
from tpf_server.cqels.window_registry import WindowRegistry
from tpf_server.cqels.windows.matchers import EncodedTriple
from tpf_server.cqels.windows.window_input import WindowInput

_HOUSEKEEPING: Final = 64
_ADAPTATION: Final = 1024


__all__ = ["Engine", "Limits", "RegisteredQuery"]


class Engine(QueryEngine[RegisteredQuery]):
    """Continuous queries over streams and static data.

    Args:
        semantics: what queries emit, where registration says nothing else.
        lateness: how late an element may come, in milliseconds. Elements wait that long, so that
            those that come out of order are put in order; later ones are dropped and counted.
        base: what relative IRIs in queries are relative to.
        limits: what is allowed.
        create_streams: whether a stream comes into being when it is first pushed to or asked for.
        require_graphs: whether a query may only name static graphs that are loaded.
        share: whether queries that differ in constants only share a plan.
        now: what NOW() gives in queries.

    Attributes:
        time: the stream time, in milliseconds since 1970; ``None`` before the first element.
        arrivals: how many elements were processed.
        dropped: how many elements came too late.
        reorders: whether elements wait for late ones.
    """

    def __init__(
        self,
        *,
        semantics: Semantics = CQELS,
        lateness: int = 0,
        base: str = BASE,
        limits: Limits | None = None,
        create_streams: bool = True,
        require_graphs: bool = False,
        share: bool = True,
        now: datetime = EPOCH,
    ) -> None:
        super().__init__(base, limits, require_graphs=require_graphs, now=now)
        self.semantics = semantics
        self.time: int | None = None
        self.arrivals = 0
        self.dropped = 0
        self.streams: dict[Term, Stream] = {}
        self._lateness = lateness
        self.reorders = bool(lateness)
        self._create_streams = create_streams
        self._windows = WindowRegistry(self.stream)
        self._plans = PlanRegistry(
            self._windows,
            self.static,
            self.dictionary,
            self._environment,
            share=share,
        )
        self._late: list[tuple[int, int, Term, list[EncodedTriple]]] = []
        self._latest: int | None = None
        self._order = itertools.count()
        self._feeds = Feeds()
        self._fed: list[tuple[Term, list[EncodedTriple]]] = []
        self._until_housekeeping = 1
        self._next_adaptation = 0
        self._swept = 0
        self.static.on_change(self._refresh)

    def _refresh(self, graph: Term) -> None:
        # The terms of static data are kept for ever.
        self.dictionary.now = None
        for plan in self._plans.plans:
            plan.refresh(graph)
        self.dictionary.now = self.time
        self._emit()

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
        """Start a query; it sees what arrives from now on.

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
            UnknownStreamError, UnknownGraphError: by setting, it names one that does not exist.
            LimitError: there are as many queries as allowed.
        """
        self._check_open()
        query = parse(text, self.base)
        name = self._free_name(name)
        for clause in query.windows:
            self.stream(clause.stream)
        self._check_graphs(query.query.dataset)
        registered = RegisteredQuery(
            name, query, callback, Results(self.limits.backlog), self._close_query
        )
        if into is not None:
            target = self.name(into)
            self._feeds.add(registered, target, self.queries)
            self.stream(target)
        policy = semantics or self.semantics
        self.dictionary.now = None
        try:
            self._plans.add(registered, policy, alone=into is not None)
        except ContinuousError:
            self._feeds.remove(name)
            raise
        finally:
            self.dictionary.now = self.time
        self._until_housekeeping = 1
        self.queries[name] = registered
        return registered

    def _close_query(self, registered: RegisteredQuery) -> None:
        if self.queries.pop(registered.name, None) is None:
            return
        self._feeds.remove(registered.name)
        self._plans.remove(registered)
        if registered.state == "running":
            registered.state = "closed"

    # ----------------------------------------------------------------------------- streams

    def stream(self, name: str) -> Stream:
        """The stream of this IRI, made where it is new and that is allowed.

        Raises:
            UnknownStreamError: there is none, and streams are not made on first use.
        """
        term = self.name(name)
        found = self.streams.get(term)
        if found is None:
            if not self._create_streams:
                raise UnknownStreamError(f"there is no stream {term}")
            found = self.create_stream(term)
        return found

    def create_stream(self, name: str) -> Stream:
        """Make a stream, or find the one of this IRI."""
        term = self.name(name)
        return self.streams.setdefault(term, Stream(term))

    def push(self, stream: str, element: Sequence[Any], timestamp: int | datetime) -> None:
        """An element arrives.

        Args:
            stream: the IRI of the stream.
            element: a triple of N-Triples texts, or several: a graph.
            timestamp: milliseconds since 1970, or an instant.

        Raises:
            ElementError: a term that is none.
            TimestampError: no instant.
            UnknownStreamError: see `stream`.
        """
        self._check_open()
        found = self.streams.get(stream) or self.stream(stream)  # type: ignore[call-overload]
        at = timestamp if type(timestamp) is int else milliseconds(timestamp)
        self.dictionary.now = at if self.time is None or at > self.time else self.time
        encode = self.encode
        if element and isinstance(element[0], str):
            s, p, o = element
            triples = [(encode(s), encode(p), encode(o))]
        else:
            triples = [(encode(s), encode(p), encode(o)) for s, p, o in element]
        self.arrive(found, triples, at)

    def record_feed(
        self, stream: str, predicates: Sequence[str], subjects: str | None = None
    ) -> RecordFeed:
        """A way in for elements with one subject and one value for each of these predicates.

        Args:
            stream: the IRI of the stream.
            predicates: IRIs.
            subjects: what the IRIs of subjects begin with, where they end in a number.
        """
        terms = [self.name(each) for each in predicates]
        return RecordFeed(self, self.stream(stream), terms, subjects)

    def encode(self, term: str) -> int:
        """The integer of a term that comes with a stream.

        Raises:
            ElementError: it is no term.
        """
        found = self.dictionary.known(term)
        if found is None:
            if not (term[:1] in ("<", '"') or term[:2] == "_:"):
                raise ElementError(f"not a term: {term!r}")
            found = self.dictionary.encode(Term(term))
        return found

    def arrive(self, stream: Stream, triples: list[EncodedTriple], at: int) -> None:
        """An encoded element arrives."""
        if self._lateness:
            if self.time is not None and at < self.time:
                self.dropped += 1
                return
            heapq.heappush(self._late, (at, next(self._order), stream.name, triples))
            self._latest = at if self._latest is None else max(self._latest, at)
            self._release(self._latest - self._lateness)
            return
        if self.time is not None and at < self.time:
            self.dropped += 1
            return
        self._tick(stream, triples, at)

    def _release(self, until: int) -> None:
        while self._late and self._late[0][0] <= until:
            at, _, name, triples = heapq.heappop(self._late)
            self._tick(self.streams[name], triples, at)

    def advance(self, timestamp: int | datetime) -> None:
        """Time passes without an arrival: elements that waited are processed, windows expire.

        What thereby comes into a result or goes from it is emitted by policies of difference.
        With a lateness, stream time stays behind the instant by it, because elements may still
        come.
        """
        self._check_open()
        at = timestamp if type(timestamp) is int else milliseconds(timestamp)
        at -= self._lateness
        self._release(at)
        if self.time is not None and at <= self.time:
            return
        self._expire(at)
        self._admit(at)
        self._settle()
        self._emit()

    def finish(self) -> None:
        """No more elements will come: process those that wait for late ones."""
        if self._latest is not None:
            self._release(self._latest)

    # -------------------------------------------------------------------------------- tick

    def arrive_record(
        self,
        stream: Stream,
        takers: Sequence[WindowInput],
        subject: int,
        rows: Sequence[Solution],
        at: int,
        triples: int,
    ) -> None:
        """An encoded record arrives, whose takers are known (see `Stream.shape`).

        Args:
            stream: where.
            takers: who take a row of it.
            subject: its subject.
            rows: one for each taker.
            at: its time.
            triples: how many triples it is.
        """
        if self.time is not None and at < self.time:
            self.dropped += 1
            return
        self._begin(at)
        stream.record(at, triples)
        for taker, row in zip(takers, rows):  # noqa: B905 (hot)
            taker.arrive_star(at, subject, row)
        self._end()

    def _tick(self, stream: Stream, triples: list[EncodedTriple], at: int) -> None:
        if stream.counting:
            stream.expire_counted(len(triples))
        self._begin(at)
        stream.deliver(at, triples)
        self._end()

    def _begin(self, at: int) -> None:
        """What an arrival pushes out of the windows goes; then what waited for its time comes."""
        self.arrivals += 1
        if at != self.time:
            self._expire(at)
        self._admit(at)

    def _end(self) -> None:
        """What the arrival derived is sent and emitted."""
        self._settle()
        for delivery in self._plans.repeating:
            delivery.rouse()
        if self._plans.awake:
            self._emit()
        self._until_housekeeping -= 1
        if not self._until_housekeeping:
            self._keep_house()

    def _expire(self, at: int) -> None:
        self.time = at
        self.dictionary.now = at
        self._windows.expire(at)

    def _admit(self, at: int) -> None:
        for plan in self._plans.early:
            plan.flush()
        self._plans.phase.inserting = True
        if self._windows.sliding:
            self._windows.admit(at)

    def _settle(self) -> None:
        for plan in self._plans.holding:
            plan.flush()
        self._plans.phase.inserting = False

    def _emit(self) -> None:
        for owner, solutions, removed in self._plans.emissions():
            self._emit_to(owner, solutions, removed)
        fed, self._fed = self._fed, []
        for name, triples in fed:
            assert self.time is not None
            self._tick(self.streams[name], triples, self.time)

    def _emit_to(
        self, owner: RegisteredQuery, solutions: Sequence[tuple[Solution, int]], removed: bool
    ) -> None:
        assert owner.maker is not None
        rows = owner.maker.rows(solutions)
        owner.emitted += len(rows)
        owner.take(Emission(self.arrivals, self.time or 0, rows, removed))
        target = self._feeds.target(owner.name)
        if target is not None and rows:
            encode = self.dictionary.encode
            triples = [(encode(s), encode(p), encode(o)) for s, p, o in rows]  # type: ignore[arg-type]
            self._fed.append((target, triples))

    # ------------------------------------------------------------------------- housekeeping

    def _keep_house(self) -> None:
        # Often at first, when windows fill and routes settle; then rarely.
        self._until_housekeeping = min(_HOUSEKEEPING, self.arrivals + 1)
        if self.arrivals >= self._next_adaptation:
            self._next_adaptation = self.arrivals + min(self.arrivals, _ADAPTATION)
            for plan in self._plans.plans:
                plan.adapt()
        for plan in tuple(self._plans.plans):
            held = sum(window.held for window, _ in plan.leaves.subscriptions)
            if held > self.limits.window_rows:
                self._stop(plan, held)
        if self.dictionary.passing > 2 * self._swept + 10_000:
            self.sweep()

    def _stop(self, plan: Plan, held: int) -> None:
        error = WindowLimitError(
            f"the windows of the query hold {held} entries; {self.limits.window_rows} are allowed"
        )
        for owner in self._plans.owners(plan):
            owner.state = "stopped"
            owner.error = error
            owner.results.fail(error)
            self._feeds.remove(owner.name)
            self._plans.remove(owner)

    def sweep(self) -> int:
        """Forget terms that no window holds any more; returns how many."""
        horizon = self._horizon()
        dropped = 0 if horizon is None else self.dictionary.forget_before(horizon)
        self._swept = self.dictionary.passing
        return dropped

    def _horizon(self) -> int | None:
        """The time of the oldest element that something may hold; ``None``: everything is held."""
        if self.time is None:
            return None
        oldest = [self.time]
        for at in self._windows.oldest:
            if at is None:
                return None
            oldest.append(at)
        for stream in self.streams.values():
            counted = stream.oldest_counted()
            if counted is not None:
                oldest.append(counted)
        if self._late:
            oldest.append(self._late[0][0])
        return min(oldest)
