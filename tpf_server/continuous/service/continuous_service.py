"""Continuous queries for many threads: an engine, one lock, a log for each query."""

import gc
import logging
import math
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import timedelta
from operator import itemgetter
from typing import Any, Final, TypeAlias

from annotations.clock import Clock
from annotations.follower_slots import FollowerSlots
from annotations.terms import Term
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.elements.elements import (
    EARLIEST,
    EPOCH,
    LATEST,
    Element,
    iso,
    milliseconds,
)
from tpf_server.continuous.runtime.errors import (
    ContinuousError,
    ElementError,
    EngineClosedError,
    RegistrationsError,
    StreamInUseError,
    UnknownQueryError,
    UnknownStreamError,
)
from tpf_server.continuous.runtime.instants.periodic_query import Executor
from tpf_server.continuous.runtime.records.record_bodies import RecordBody, read_records
from tpf_server.continuous.runtime.records.record_columns import milliseconds_of
from tpf_server.continuous.runtime.static.static_data import StoreGraph
from tpf_server.continuous.service.changing_graphs import (
    ChangingGraphs,
    RemoteGraphs,
    StaticUpdates,
)
from tpf_server.continuous.service.hosting import (
    NATIVE,
    HostedQuery,
    Hosting,
    ParsedRegistration,
    Policies,
)
from tpf_server.continuous.service.remote_streams import RemoteStreams
from tpf_server.continuous.service.result_log import (
    Receipt,
    Receipts,
    Registration,
    Registrations,
    ResultLog,
    ResultMemory,
)
from tpf_server.continuous.service.streams import SharedStreams
from tpf_server.continuous.service.window_log import LoggedStep, WindowLog
from tpf_server.store.live.store import LiveStore

Pushed: TypeAlias = Sequence[Element | ElementError] | RecordBody
"""What comes: elements, with an error in the place of each that is malformed, or records."""


class _Intake:
    def __init__(
        self,
        engine: Engine,
        streams: SharedStreams,
        policies: Policies,
        now: Callable[[], int],
        windows: WindowLog | None,
    ) -> None:
        self._engine = engine
        self._streams = streams
        self._policies = policies
        self._now = now
        self._windows = windows
        self._advanced: int | None = None
        self.receipts = Receipts()

    def checked(self, stream: Term, pushed: Pushed) -> list[Element | ElementError]:
        elements: Iterable[Element | ElementError]
        if isinstance(pushed, RecordBody):
            elements, unit = pushed.elements(), "record"
        else:
            elements, unit = pushed, "line"
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
                self._engine.instants.declarations.check(
                    stream, (each[1] for each in element.triples)
                )
            except ElementError as error:
                return ElementError(str(error), element.line, unit)
            if element.at > self._latest:
                return ElementError(f"{iso(element.at)} is in the future", element.line, unit)
        return element

    @property
    def _latest(self) -> int:
        return self._now() + self._policies.ahead if self._policies.time == "clock" else LATEST

    def accepts_columns(self, stream: Term, records: RecordBody) -> bool:
        """Check records as columns; false: they must be checked as elements."""
        if records.columns is None:
            return False
        try:
            self._engine.instants.declarations.check(stream, records.predicates)
            return bool(milliseconds_of(records.columns.timestamps).max() <= self._latest)
        except ElementError:
            return False

    def take(self, stream: Term, batch: str | None, checked: Pushed) -> Receipt | None:
        """Deliver checked elements, unless their batch came before.

        Returns ``None``, having done nothing, where records must come as elements.
        """
        repeated = self.receipts.repeated(stream, batch)
        if repeated is not None:
            return repeated
        windows = self._windows
        before = self._engine.position(stream)
        dropped, late = self._engine.dropped, self._engine.late
        refused: tuple[ElementError, ...] = ()
        if not isinstance(checked, RecordBody):
            refused = tuple(each for each in checked if isinstance(each, ElementError))
            count = self._arrive(stream, checked)
        elif self._streams.arrive_records(stream, checked):
            count = checked.count
        else:
            return None
        self._streams.end_batch()
        dropped = self._engine.dropped - dropped
        late = self._engine.late - late
        receipt = Receipt(count - dropped, refused, dropped, late)
        self.receipts.keep(stream, batch, receipt)
        if windows is not None:
            windows.came(self._engine, stream, before, checked, 0 if dropped else count)
            if batch is not None:
                windows.receive((stream, batch, receipt.accepted, dropped, late))
        return receipt

    def _arrive(self, stream: Term, elements: Iterable[Element | ElementError]) -> int:
        count = 0
        for each in elements:
            if self._engine.abandoned:
                raise EngineClosedError("the server stops")
            if isinstance(each, Element):
                self._streams.arrive(stream, each.triples, each.at)
                count += 1
        return count

    def again(self, step: LoggedStep) -> None:
        """Take what an earlier server had taken."""
        self.advance_again(step.advanced)
        self._engine.present = step.present
        if step.stream is not None and step.positions is not None:
            before, after = step.positions
            self._engine.resume(step.stream, before)
            self._body_again(step.stream, step.body)
            self._engine.resume(step.stream, after)

    def advance_again(self, advanced: int | None) -> None:
        """Advance time as an earlier server had."""
        if advanced is not None and advanced != self._advanced:
            self._advanced = advanced
            self.advance(advanced)

    def advance(self, present: int) -> None:
        """Tell the engine what time it is."""
        self._engine.present = present
        self._streams.advance(present - max(self._policies.delay - self._engine.lateness, 0))

    def _body_again(self, stream: Term, body: Sequence[Element] | bytes) -> None:
        elements: Iterable[Element | ElementError]
        if isinstance(body, bytes):
            records = read_records(body, sys.maxsize, self._engine.name)
            if self._streams.arrive_records(stream, records):
                return
            elements = records.elements()
        else:
            elements = body
        self._arrive(stream, elements)


_log: Final = logging.getLogger(__name__)
_SLIGHTLY: Final = 1_000
"""Milliseconds by which a clock may be set back that is corrected all the time."""
_FEW: Final = 16
"""So many plans the garbage collector may look through."""
Executors: TypeAlias = Callable[[AbstractContextManager[Any]], tuple[Mapping[str, Executor], str]]

_PATIENCE: Final = 1.0
"""Seconds that an end waits for what is under way."""


class ContinuousService:
    """An engine behind one lock.

    Args:
        engine: used by nobody else.
        registrations: what they hold is started again.
        executors: makes other executors of C-SPARQL, given the lock, and names the default.
        windows: what they hold is evaluated again; needs registrations.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        policies: Policies | None = None,
        registrations: Registrations | None = None,
        changing: ChangingGraphs | None = None,
        executors: Executors = lambda _lock: ({}, NATIVE),
        windows: WindowLog | None = None,
    ) -> None:
        self._engine = engine
        self._windows = windows
        self._clock = clock
        self._policies = policies or Policies()
        self.slots = FollowerSlots(self._policies.followers, self._policies.followers_per_address)
        self._memory = ResultMemory(self._policies.memory)
        self._lock = threading.RLock()
        self._executors, default = executors(self._lock)
        self._streams = SharedStreams(engine, self._executors.values(), self._record)
        self._hosting = Hosting(
            engine, self._streams, self._log, self._executors, default, self._policies
        )
        self._intake = _Intake(engine, self._streams, self._policies, lambda: self.now, windows)
        self._latest, self._set_back = EARLIEST, False
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
            (lambda *_: None) if windows is None else windows.push,
        )
        engine.asks = True
        self._static.update()
        if registrations is not None:
            self._restore(registrations)
        self._registrations = registrations

    def _restore(self, registrations: Registrations) -> None:  # what is refused stays, as failed
        streams, queries = registrations.load()
        for stream, predicates in streams.items():
            self._streams.create(stream, predicates)
        windows = self._windows
        least = max((max(each.begun, each.ended or 0) for each in queries), default=1)
        with self._hosting.silence():
            self._replay(queries, () if windows is None else windows.steps(least))
        self._latest = self._engine.present or EARLIEST
        results = (registrations if windows is None else windows).take_results()
        self._links.resume(self._hosting.take_up(results, self._intake.receipts))
        if windows is not None:
            windows.forget(*(windows.queries - self._hosting.queries.keys()))
            self.advance()  # before elements come, which may be late

    def _replay(self, queries: Sequence[Registration], steps: Iterable[LoggedStep]) -> None:
        names = [each.name for each in queries]
        events: list[tuple[float, bool, Registration]] = []
        for each in queries:
            # Spark begins anew.
            begun = math.inf if self._hosting.elsewhere(each) else each.begun
            if each.ended is None:
                events.append((begun, True, each))
            elif self._windows is not None:
                events += [(begun, True, each), (each.ended, False, each)]
        events.sort(key=itemgetter(0, 1))

        first = True

        def happen(until: float, advanced: int | None) -> None:
            while events and events[0][0] <= until:
                _, begins, each = events.pop(0)
                if not begins:
                    self._intake.advance_again(each.ended_advanced)
                    self._end(next(h for h in self.queries() if h.registration == each))
                    continue
                # What passed before a query began it has not seen; but queries that began long
                # before the first step need not answer for all instants until then.
                if each.advanced == advanced or not first:
                    self._intake.advance_again(each.advanced)
                self._begin_again(each, names)

        for step in steps:
            happen(step.number, step.advanced)
            self._intake.again(step)
            first = False
        happen(math.inf, None)

    def _begin_again(self, registration: Registration, reserved: Collection[str | None]) -> None:
        try:
            self._begin(self._hosting.read(registration), reads=False)
        except ContinuousError as error:
            self._hosting.keep_refused(registration, error, reserved)

    def _record(self, stream: Term, element: Element) -> None:
        if self._windows is not None:
            before = self._engine.position(stream)
            self._windows.came(self._engine, stream, before, [element], 1)

    def _begin(self, parsed: ParsedRegistration, *, reads: bool) -> HostedQuery:
        into = parsed.registration.into
        made = () if into is None else (self._engine.name(into),)
        with self._lock:
            self._links.check((*sorted(parsed.query.reads), *made), self._engine.streams)
        services = parsed.query.services
        self._static.take(services, reads=reads)
        try:
            if reads:
                self._static.update()
            with self._lock:
                # Not before services are asked: it does not see what comes meanwhile.
                if reads and self._windows is not None:
                    parsed = replace(parsed, registration=self._windows.begun(parsed.registration))
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
                [
                    *(each.registration for each in self._hosting.queries.values()),
                    *(() if self._windows is None else self._windows.ended),
                ],
            )

    @property
    def now(self) -> int:
        """Return milliseconds since 1970, which never go back."""
        self._read_clock()
        return self._latest

    def _read_clock(self) -> int:
        present = milliseconds(self._clock.now())
        if present >= self._latest:
            self._latest, self._set_back = present, False
        elif present < self._latest - _SLIGHTLY and not self._set_back:
            self._set_back = True
            _log.warning("the clock was set back: streams wait until it is %s", iso(self._latest))
        return present

    def name(self, iri: str) -> Term:
        """Return the term of an IRI, relative to the base of the engine."""
        return self._engine.name(iri)

    # ----------------------------------------------------------------------------- streams

    def create_stream(self, name: str, predicates: Collection[str] | None = None) -> bool:
        """Make a stream; true if it is new. Elements with other `predicates` are refused.

        Raises:
            StreamNameError: its name is no IRI.
            ConflictError: queries read other predicates in it.
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
            if self._windows is not None:
                self._windows.forget_stream(term)
            self._keep()
            self._settle()

    def streams(self) -> list[dict[str, Any]]:
        with self._lock:
            return self._streams.listed()

    def stream(self, name: str) -> dict[str, Any]:
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
        name = self._engine.name(stream)
        receipt = None
        if isinstance(pushed, RecordBody):
            with self._lock:
                new = self._intake.receipts.repeated(name, batch) is None
                as_columns = new and self._streams.takes_columns(name)
            if as_columns and self._intake.accepts_columns(name, pushed):
                receipt = self._take(name, batch, pushed)
        if receipt is None:
            # To make elements of many records takes long: nobody is to wait for it.
            receipt = self._take(name, batch, self._intake.checked(name, pushed))
        assert receipt is not None
        return receipt

    def _take(self, stream: Term, batch: str | None, checked: Pushed) -> Receipt | None:
        self._static.update()
        with self._lock:
            if self._closed:
                raise EngineClosedError("the server stops")
            if self._windows is not None and self._windows.pending:
                self._settle()
            self._look_at_clock()
            receipt = self._intake.take(self._made_where_new(stream), batch, checked)
            if receipt is not None:
                self._settle()
            return receipt

    def _made_where_new(self, stream: str) -> Term:
        before = len(self._engine.streams)
        name = self._engine.stream(stream).name
        if len(self._engine.streams) > before:
            self._keep()
        return name

    def advance(self) -> None:
        """Move stream time with the clock, where that is the policy."""
        self._static.update()
        with self._lock:
            if self._closed:
                return
            if self._policies.time == "clock":
                present = self._look_at_clock()
                if self._windows is not None:
                    self._windows.advanced = present
                self._intake.advance(present)
            self._settle()

    def _look_at_clock(self) -> int:
        present = self._read_clock()
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
                the language does not have.
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
        with self._lock:
            self._settle()
        return hosted

    def _log(self) -> ResultLog:
        # Numbers begin with the instant, so that no number of an earlier run is ever used again.
        begin = (self._clock.now() - EPOCH) // timedelta(microseconds=1)
        policies, holds = self._policies, self._windows is not None
        return ResultLog(policies.backlog, policies.rows, begin, self._memory, holds=holds)

    def query(self, name: str) -> HostedQuery:
        """Return a query, or raise `UnknownQueryError`."""
        with self._lock:
            result = self._hosting.queries.get(name)
            if result is None:
                raise UnknownQueryError(f"there is no query {name!r}")
            return result

    def queries(self) -> list[HostedQuery]:
        with self._lock:
            return list(self._hosting.queries.values())

    def condition(self, hosted: HostedQuery) -> dict[str, Any]:
        """Return the state of a query, of its services and of its streams elsewhere."""
        with self._lock:
            result = hosted.running.condition
            runs = hosted.running.state == "running"
            result |= self._links.explain(hosted.id) if runs else {}
        return result | (self._static.explain(hosted.services) if runs else {})

    def explain(self, name: str) -> dict[str, Any]:
        """Return state, text and plan of a query."""
        with self._lock:
            hosted = self.query(name)
            result = hosted.explain()
        result |= self.condition(hosted)
        if self._remote.graphs:
            result["remote"] = [graph.state for graph in self._remote.graphs]
        return result

    def delete(self, name: str) -> None:
        """Stop a query; a `RegistrationsError` means that it will start again with the server."""
        self._end(self.query(name), forgets=True)

    def _end(self, hosted: HostedQuery, *, forgets: bool = False) -> None:
        with ExitStack() as unlocked, self._lock:
            if self._hosting.queries.get(hosted.id) is not hosted:
                return
            unlocked.callback(self._static.release, hosted.services)
            self._hosting.remove(hosted)
            if self._windows is not None:
                self._windows.end(hosted)
            self._links.release(hosted.id)
            self._set_aside()
            if forgets:
                # Before another query may have its name.
                if self._windows is not None:
                    self._windows.forget(hosted.id)
                self._keep()

    def start(self) -> None:
        self._remote.start()
        with self._lock:
            self._links.start()

    def close(self) -> None:
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
            if again:
                return
            if self._registrations is not None:
                if self._windows is None:
                    self._hosting.keep(
                        self._registrations, self._intake.receipts, self._links.positions()
                    )
                self._registrations.close()

    def _settle(self) -> None:
        if self._windows is not None:
            self._windows.commit(self._hosting.queries, self._engine.present)
        for hosted in self._hosting.queries.values():
            if hosted.running.state == "stopped":
                hosted.log.close(hosted.running.error)
