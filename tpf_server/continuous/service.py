"""Continuous queries for many threads: an engine, one lock, a log for each query."""

import gc
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Final, TypeAlias

from annotations.clock import Clock
from annotations.follower_slots import FollowerSlots
from annotations.terms import Term
from tpf_server.continuous.changing_graphs import ChangingGraphs, RemoteGraphs, StaticUpdates
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.csparql.periodic_query import Executor
from tpf_server.continuous.engine.elements.elements import (
    EARLIEST,
    EPOCH,
    LATEST,
    Element,
    iso,
    milliseconds,
)
from tpf_server.continuous.engine.errors import (
    ContinuousError,
    ElementError,
    EngineClosedError,
    RegistrationsError,
    StreamInUseError,
    UnknownQueryError,
    UnknownStreamError,
)
from tpf_server.continuous.engine.records.record_bodies import RecordBody
from tpf_server.continuous.engine.records.record_columns import milliseconds_of
from tpf_server.continuous.engine.static.static_data import StoreGraph
from tpf_server.continuous.hosting import NATIVE, HostedQuery, Hosting, ParsedRegistration, Policies
from tpf_server.continuous.remote_streams import RemoteStreams
from tpf_server.continuous.result_log import (
    Receipt,
    Receipts,
    Registration,
    Registrations,
    ResultLog,
    ResultMemory,
)
from tpf_server.continuous.streams import SharedStreams
from tpf_server.store.protocols import LiveStore

Pushed: TypeAlias = Sequence[Element | ElementError] | RecordBody
"""What comes: elements, with an error in the place of each that is malformed, or records."""


class _Intake:
    def __init__(
        self,
        engine: Engine,
        streams: SharedStreams,
        policies: Policies,
        now: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._streams = streams
        self._policies = policies
        self._now = now
        self.receipts = Receipts()

    def takes_columns(self, stream: Term, batch: str | None) -> bool:
        new = self.receipts.repeated(stream, batch) is None
        return new and self._streams.takes_columns(stream)

    def checked(self, stream: Term, pushed: Pushed, *, as_columns: bool = False) -> Pushed:
        """Replace each refused element with an error."""
        if isinstance(pushed, RecordBody):
            fine = as_columns and self._fine(stream, pushed)
            return pushed if fine else self._each(stream, pushed.elements(), "record")
        return self._each(stream, pushed, "line")

    def _each(
        self, stream: Term, elements: Iterable[Element | ElementError], unit: str
    ) -> list[Element | ElementError]:
        result = []
        for each in elements:
            checked = self._checked(each, stream, unit)
            if self._policies.whole_batches and isinstance(checked, ElementError):
                raise checked
            result.append(checked)
        return result

    def _checked(
        self, element: Element | ElementError, stream: Term, unit: str
    ) -> Element | ElementError:
        if isinstance(element, Element):
            try:
                self._engine.instants.learning.check(stream, (each[1] for each in element.triples))
            except ElementError as error:
                return ElementError(str(error), element.line, unit)
            if element.at > self._latest:
                return ElementError(f"{iso(element.at)} is in the future", element.line, unit)
        return element

    @property
    def _latest(self) -> int:
        return self._now() + self._policies.ahead if self._policies.time == "clock" else LATEST

    def _fine(self, stream: Term, records: RecordBody) -> bool:
        if records.columns is None:
            return False
        try:
            self._engine.instants.learning.check(stream, records.predicates)
            return bool(milliseconds_of(records.columns.timestamps).max() <= self._latest)
        except ElementError:
            return False

    def take(self, stream: Term, batch: str | None, checked: Pushed) -> Receipt | None:
        """Deliver checked elements, unless their batch came before.

        Returns ``None``, having done nothing, where records must be checked as elements.
        """
        repeated = self.receipts.repeated(stream, batch)
        if repeated is not None:
            return repeated
        dropped, late = self._engine.dropped, self._engine.late
        elements: Iterable[Element | ElementError] = ()
        accepted = 0
        if not isinstance(checked, RecordBody):
            elements = checked
        elif self._streams.arrive_records(stream, checked):
            accepted = checked.count
        else:
            return None
        for each in elements:
            if self._engine.abandoned:
                raise EngineClosedError("the server stops")
            if isinstance(each, Element):
                self._streams.arrive(stream, each.triples, each.at)
                accepted += 1
        refused = tuple(each for each in elements if isinstance(each, ElementError))
        self._streams.end_batch()
        dropped = self._engine.dropped - dropped
        late = self._engine.late - late
        receipt = Receipt(accepted - dropped, refused, dropped, late)
        self.receipts.keep(stream, batch, receipt)
        return receipt


_FEW: Final = 16
"""So many plans the garbage collector may look through."""
Executors: TypeAlias = Callable[[AbstractContextManager[Any]], tuple[Mapping[str, Executor], str]]

_PATIENCE: Final = 1.0
"""Seconds that an end waits for what is under way."""


def _nothing_else(_lock: AbstractContextManager[Any]) -> tuple[Mapping[str, Executor], str]:
    return {}, NATIVE


class ContinuousService:
    """An engine behind one lock.

    Args:
        engine: used by nobody else.
        registrations: what they hold is started again.
        executors: makes other executors of C-SPARQL, given the lock, and names the default.

    Attributes:
        refused: errors of kept queries that could not start again.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        policies: Policies | None = None,
        registrations: Registrations | None = None,
        changing: ChangingGraphs | None = None,
        executors: Executors = _nothing_else,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._policies = policies or Policies()
        self.slots = FollowerSlots(self._policies.followers, self._policies.followers_per_address)
        self._memory = ResultMemory(self._policies.memory)
        self._lock = threading.RLock()
        self._executors, default = executors(self._lock)
        self._streams = SharedStreams(engine, self._executors.values())
        self._hosting = Hosting(
            engine, self._streams, self._log, self._executors, default, self._policies
        )
        self._intake = _Intake(engine, self._streams, self._policies, lambda: self.now)
        self._latest = EARLIEST
        self._closed = False
        self._watched = 0
        remote = RemoteGraphs({}, clock, timedelta(minutes=1))
        changing = changing or ChangingGraphs(engine.static, remote)
        self._static = StaticUpdates(changing, clock, self._lock, self._settle)
        self._remote = changing.remote
        self._links = RemoteStreams(
            self._policies.streams,
            engine.base,
            lambda stream, elements, batch: self.push(stream, elements, batch=batch),
            clock,
        )
        engine.asks = True
        self._static.update()
        self.refused: dict[str, ContinuousError] = {}
        if registrations is not None:
            self._restore(registrations)
        self._registrations = registrations

    def _restore(self, registrations: Registrations) -> None:  # what is refused stays, as failed
        streams, queries = registrations.take()
        for stream, predicates in streams.items():
            self._streams.create(stream, predicates)
        for each in queries:
            try:
                self._begin(self._hosting.read(each), reads=False)
            except ContinuousError as error:
                names = [other.name for other in queries]
                self.refused[self._hosting.keep_refused(each, error, names).id] = error
        self._links.resume(self._hosting.take_up(registrations, self._intake.receipts))

    def _begin(self, parsed: ParsedRegistration, *, reads: bool) -> HostedQuery:
        into = parsed.registration.into
        made = () if into is None else (self._engine.name(into),)
        with self._lock:
            self._links.check((*parsed.reads, *made), self._engine.streams)
        services = parsed.query.services
        self._static.take(services, reads=reads)
        try:
            if reads:
                self._static.update()
            with self._lock:
                hosted = self._hosting.register(parsed)
                self._links.take(hosted)
                self._set_aside()
                return hosted
        except ContinuousError:
            self._static.release(services)
            raise

    def _set_aside(self) -> None:
        """Freeze plans now and then, so that the garbage collector does not traverse them.

        Those of deleted queries are freed when half as many came and went as there are.
        """
        self._watched += 1
        if self._watched >= max(_FEW, len(self._hosting.queries) // 2):
            self._watched = 0
            gc.unfreeze()
            gc.collect()
            gc.freeze()

    def _keep(self) -> None:
        if self._registrations is not None:
            declared = self._streams.declared()
            self._registrations.save(
                {
                    name: declared.get(name)
                    for name in self._engine.streams
                    if not self._links.allowed(name)
                },
                (each.registration for each in self._hosting.queries.values()),
            )

    @property
    def now(self) -> int:
        """Return milliseconds since 1970, which never go back."""
        self._latest = max(self._latest, milliseconds(self._clock.now()))
        return self._latest

    def name(self, iri: str) -> Term:
        """Return the term of an IRI, relative to the base of the engine."""
        return self._engine.name(iri)

    # ----------------------------------------------------------------------------- streams

    def create_stream(self, name: str, predicates: Collection[str] | None = None) -> bool:
        """Make a stream; true if it is new. Elements with other `predicates` are refused.

        Raises:
            StreamNameError: its name is no IRI.
            EngineLimitError: queries read other predicates in it.
        """
        with self._lock:
            new = self._streams.create(name, predicates)
            if new or predicates is not None:
                self._keep()
            return new

    def delete_stream(self, name: str) -> None:
        """Delete a stream that no running query reads or makes (`StreamInUseError`)."""
        with self._lock:
            term = self._engine.name(name)
            users = [
                each.id
                for each in self._hosting.queries.values()
                if term in each.streams and each.running.state in ("starting", "running")
            ]
            if users:
                raise StreamInUseError(f"{term} is read or made by {', '.join(users)}")
            self._streams.delete(term)
            self._intake.receipts.forget(term)
            self._keep()

    def streams(self) -> list[dict[str, Any]]:
        """List the streams with their counts."""
        with self._lock:
            return self._streams.listed()

    def stream(self, name: str) -> dict[str, Any]:
        """Return the counts of a stream."""
        with self._lock:
            iri = self._engine.name(name)[1:-1]
            for result in self._streams.listed():
                if result["stream"] == iri:
                    return result
            raise UnknownStreamError(f"there is no stream <{iri}>")

    def push(self, stream: str, pushed: Pushed, *, batch: str | None = None) -> Receipt:
        """Take a batch of elements or records, in order, unless its identifier is repeated.

        Raises:
            ElementError: batches are refused whole, and an element is malformed.
            UnknownStreamError: there is no such stream, and none is made.
        """
        as_columns = False
        if isinstance(pushed, RecordBody):
            with self._lock:
                as_columns = self._intake.takes_columns(self._engine.name(stream), batch)
        while True:
            name = self._engine.name(stream)
            checked = self._intake.checked(name, pushed, as_columns=as_columns)
            self._static.update()
            with self._lock:
                if self._closed:
                    raise EngineClosedError("the server stops")
                self._look_at_clock()
                receipt = self._intake.take(self._made_where_new(stream), batch, checked)
                if receipt is not None:
                    self._settle()
                    return receipt
            # To make elements of many records takes long: nobody is to wait for it.
            as_columns = False

    def _made_where_new(self, stream: str) -> Term:
        before = len(self._engine.streams)
        name = self._engine.stream(stream).name
        if len(self._engine.streams) > before:
            self._keep()
        return name

    def advance(self) -> None:
        """Move stream time with the clock, where that is the policy."""
        self._static.update()
        policies = self._policies
        if policies.time != "clock":
            return
        with self._lock:
            if self._closed:
                return
            behind = max(policies.delay - self._engine.lateness, 0)
            self._streams.advance(self._look_at_clock() - behind)
            self._settle()

    def _look_at_clock(self) -> int:
        present = milliseconds(self._clock.now())
        if self._policies.time == "clock":
            self._engine.present = present
        return present

    def exchange_static(
        self,
        graphs: Mapping[Term, Sequence[StoreGraph]],
        live: Mapping[Term, LiveStore] | None = None,
    ) -> None:
        """Exchange the static graphs of stores, and the live stores by dataset."""
        self._static.exchange(graphs, live or {})

    # ----------------------------------------------------------------------------- queries

    def register(
        self,
        text: str,
        *,
        name: str | None = None,
        semantics: str | None = None,
        into: str | None = None,
        engine: str | None = None,
    ) -> HostedQuery:
        """Start a query.

        Args:
            text: CQELS-QL, C-SPARQL or RSP-QL.
            name: overrides a number, where the text gives no name.
            semantics: a policy of CQELS-QL, ``csparql`` or ``rspql``; by default that of the text.
            into: for CONSTRUCT in CQELS-QL: the stream that gets its triples.
            engine: of C-SPARQL: ``native``, or an executor.

        Raises:
            ContinuousError: see `Engine.register` and `Engine.register_csparql`.
            ContinuousQueryError: an unknown policy, a name that no URL can hold, or options that
                the
                language does not have.
            RegistrationsError: it could not be kept, so it was not started.
        """
        parsed = self._hosting.read(Registration(text, name, semantics, into, engine))
        hosted = self._begin(parsed, reads=True)
        try:
            with self._lock:
                self._keep()
        except RegistrationsError:
            self._end(hosted)
            raise
        return hosted

    def _log(self) -> ResultLog:
        # Numbers begin with the instant, so that no number of an earlier run is ever used again.
        begin = (self._clock.now() - EPOCH) // timedelta(microseconds=1)
        return ResultLog(self._policies.backlog, self._policies.rows, begin, self._memory)

    def query(self, name: str) -> HostedQuery:
        """Return a query, or raise `UnknownQueryError`."""
        with self._lock:
            result = self._hosting.queries.get(name)
            if result is None:
                raise UnknownQueryError(f"there is no query {name!r}")
            return result

    def queries(self) -> list[HostedQuery]:
        """List the queries."""
        with self._lock:
            return list(self._hosting.queries.values())

    def explain(self, name: str) -> dict[str, Any]:
        """Return state, text and plan of a query."""
        with self._lock:
            hosted = self.query(name)
            result = hosted.explain()
            if hosted.running.state == "running":
                result |= self._links.explain(hosted.id)
        if hosted.running.state == "running":
            result |= self._static.explain(hosted.services)
        if self._remote.graphs:
            result["remote"] = [graph.state for graph in self._remote.graphs]
        return result

    def delete(self, name: str) -> None:
        """Stop a query; a `RegistrationsError` means that it will start again with the server."""
        self._end(self.query(name))
        with self._lock:
            self._keep()

    def _end(self, hosted: HostedQuery) -> None:
        with self._lock:
            if self._hosting.queries.get(hosted.id) is not hosted:
                return
            self._hosting.remove(hosted)
            self._links.release(hosted.id)
            self._set_aside()
        self._static.release(hosted.services)

    def start(self) -> None:
        """Start the links to other servers."""
        self._remote.start()
        with self._lock:
            self._links.start()

    def close(self) -> None:
        """Stop everything."""
        self._remote.stop()
        if self._lock.acquire(timeout=_PATIENCE):
            self._lock.release()
        else:
            # What is under way may take longer than a process that stops can wait.
            self._engine.abandon()
        with self._lock:
            self._links.stop()
            again, self._closed = self._closed, True
            self._static.close()
            self._engine.close()
            for executor in self._executors.values():
                executor.close()
            for hosted in self._hosting.queries.values():
                hosted.log.close(EngineClosedError("the server stops"))
            if self._registrations is not None and not again:
                self._hosting.keep(
                    self._registrations, self._intake.receipts, self._links.positions()
                )

    def _settle(self) -> None:
        for hosted in self._hosting.queries.values():
            if hosted.running.state == "stopped":
                hosted.log.close(hosted.running.error)
