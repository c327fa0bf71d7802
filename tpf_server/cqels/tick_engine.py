"""What happens when an element arrives, and when time passes.

An arrival is a tick. First the windows let go what is too old for its time, then the element enters
the windows one after the other and every new row finds its way through the joins, then the
operators send what they held back, then the queries emit.

There is one thread and no clock: time is what the elements say, and what `advance` says.
"""

import re
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from weakref import WeakSet

from annotations.terms import Term
from tpf_server.cqels.delivery import Emission
from tpf_server.cqels.errors import (
    CallbackError,
    ContinuousError,
    StreamNameError,
    UnknownStreamError,
    WindowLimitError,
)
from tpf_server.cqels.feeds import Feeds
from tpf_server.cqels.housekeeping import Housekeeping
from tpf_server.cqels.limits import Limits
from tpf_server.cqels.plan import Plan
from tpf_server.cqels.plan_registry import PlanRegistry
from tpf_server.cqels.query_engine import QueryEngine
from tpf_server.cqels.registered_query import RegisteredQuery
from tpf_server.cqels.reorder_buffer import ReorderBuffer
from tpf_server.cqels.streams import Stream
from tpf_server.cqels.timestamps import milliseconds
from tpf_server.cqels.watermark import Watermark
from tpf_server.cqels.window_registry import WindowRegistry
from tpf_server.cqels.windows.matchers import EncodedTriple

_IRI = re.compile(r'<[^\x00-\x20<>"{}|^`\\\ud800-\udfff]+>')


class TickEngine(QueryEngine[RegisteredQuery]):
    """Streams, their windows and the plans over these, moved on by arrivals.

    Args:
        base: what relative IRIs are relative to.
        limits: what is allowed.
        lateness: how late an element may come, in milliseconds.
        create_streams: whether a stream comes into being when it is first named.
        require_graphs: whether a query may only name static graphs that are loaded.
        share: whether queries that differ in constants only share a plan.
        now: what NOW() gives in queries.

    Attributes:
        time: the stream time, in milliseconds since 1970; ``None`` before the first element.
        arrivals: how many elements were processed.
        dropped: how many elements came too late: older than the newest of their stream, or than
            what `advance` said.
        reorders: whether elements wait for late ones.
        streams: by their names.
    """

    def __init__(
        self,
        base: str,
        limits: Limits | None,
        *,
        lateness: int,
        create_streams: bool,
        require_graphs: bool,
        share: bool,
        now: datetime,
    ) -> None:
        super().__init__(base, limits, require_graphs=require_graphs, now=now)
        self.time: int | None = None
        self.arrivals = 0
        self.dropped = 0
        self.reorders = bool(lateness)
        self.streams: dict[Term, Stream] = {}
        self._create_streams = create_streams
        self._waiting: ReorderBuffer[tuple[Stream, list[EncodedTriple]]] = ReorderBuffer(lateness)
        watermark = Watermark()
        self._windows = WindowRegistry(self.stream, watermark)
        self._plans = PlanRegistry(
            self._windows,
            self.static,
            self.dictionary,
            self._environment,
            watermark=watermark,
            share=share,
        )
        self._feeds = Feeds()
        # What waits to be emitted, and what of it becomes elements afterwards.
        self._outgoing: deque[tuple[RegisteredQuery, Emission]] = deque()
        self._fed: deque[tuple[Term, list[EncodedTriple]]] = deque()
        self._emits = False
        self._housekeeping = Housekeeping(
            self._plans.plans,
            self.streams,
            self.forgetting,
            self.limits.window_rows,
            self._stop,
        )
        self._until_housekeeping = 1
        self._arriving: list[list[EncodedTriple]] = []
        self._records: WeakSet[object] = WeakSet()
        self.static.on_change(self._refresh)

    def _refresh(self, graph: Term) -> None:
        with self.dictionary.keeping():
            self._plans.refresh(graph)
        self._emit()
        self.forgetting.sweep_where_due()

    # ------------------------------------------------------------------------------ streams

    def stream(self, name: str) -> Stream:
        """The stream of this IRI, made where it is new and that is allowed.

        Raises:
            UnknownStreamError: there is none, and streams are not made on first use.
            StreamNameError: it is no IRI.
        """
        term = self.name(name)
        found = self.streams.get(term)
        if found is None:
            if not self._create_streams:
                raise UnknownStreamError(f"there is no stream {term}")
            found = self.create_stream(term)
        return found

    def create_stream(self, name: str) -> Stream:
        """Make a stream, or find the one of this IRI.

        Raises:
            StreamNameError: it is no IRI.
        """
        term = self.name(name)
        found = self.streams.get(term)
        if found is None:
            if not _IRI.fullmatch(term):
                raise StreamNameError(f"not an IRI: {term}")
            found = self.streams[term] = Stream(term)
        return found

    # ------------------------------------------------------------------------- what arrives

    def arrive(self, stream: Stream, triples: list[EncodedTriple], at: int) -> None:
        """An encoded element arrives."""
        if self.reorders and (self.time is None or at >= self.time):
            for time, (where, element) in self._waiting.add(at, (stream, triples)):
                self._tick(where, element, time)
        else:
            self._tick(stream, triples, at)

    def begin_arrival(self, stream: Stream, at: int, triples: int) -> bool:
        """An encoded element is about to arrive at the windows.

        What it pushes out of them goes; then what waited for its time comes.

        Args:
            stream: where.
            at: its time.
            triples: how many triples it is.

        Returns:
            Whether it does: it does not come too late.
        """
        time = self.time
        if at != time:
            if stream.latest is not None and at < stream.latest:
                self.dropped += 1
                return False
            if time is None or at > time:
                if self._windows.sliding:
                    self.reach(at)
                self.time = at
                self._windows.expire(at)
        stream.latest = at
        self.arrivals += 1
        if stream.counting:
            stream.expire_counted(triples)
        stream.elements += 1
        stream.triples += triples
        plans = self._plans
        if plans.early or self._windows.sliding:
            # Where another stream is ahead, the time of windows is later than that of the element.
            self._admit(at if time is None else max(at, time))
        else:
            plans.phase.inserting = True
        return True

    def advance(self, timestamp: int | datetime) -> None:
        """Time passes without an arrival: elements that waited are processed, windows expire.

        What thereby comes into a result or goes from it is emitted by policies of difference.
        With a lateness, stream time stays behind the instant by it, because elements may still
        come.
        """
        self._check_open()
        at = timestamp if type(timestamp) is int else milliseconds(timestamp)
        at -= self._waiting.lateness
        for time, (stream, triples) in self._waiting.until(at):
            self._tick(stream, triples, time)
        for stream in self.streams.values():
            stream.latest = at if stream.latest is None else max(stream.latest, at)
        if self.time is not None and at <= self.time:
            return
        self.reach(at)
        self._pass(at)

    def reach(self, at: int) -> None:
        """Stop at each boundary of a slide before an instant at which a window changes.

        So what a window holds at a boundary is reported, whenever the next element comes.
        """
        while (boundary := self._windows.boundary(at)) is not None:
            self._pass(boundary)

    def finish(self) -> None:
        """No more elements will come: process those that wait, for late ones or for a slide."""
        for at, (stream, triples) in self._waiting.rest():
            self._tick(stream, triples, at)
        while (boundary := self._windows.boundary(None)) is not None:
            self._pass(boundary)

    # -------------------------------------------------------------------------------- ticks

    def _tick(self, stream: Stream, triples: list[EncodedTriple], at: int) -> None:
        # Before it enters, others may be told what was before it.
        self._arriving.append(triples)
        try:
            comes = self.begin_arrival(stream, at, len(triples))
        finally:
            self._arriving.pop()
        if comes:
            assert self.time is not None
            stream.deliver(at, triples, self.time)
            self.end_arrival()

    def _pass(self, at: int) -> None:
        """It is a later instant, and nothing arrives."""
        self._expire(at)
        self._admit(at)
        self._settle()
        self._emit()

    def end_arrival(self) -> None:
        """What the arrival derived is sent and emitted."""
        plans = self._plans
        for plan in plans.holding:
            plan.flush()
        plans.phase.inserting = False
        for delivery in plans.repeating:
            delivery.rouse()
        if plans.awake:
            self._emit()
        self._until_housekeeping -= 1
        if not self._until_housekeeping:
            self._until_housekeeping = self._housekeeping.run(self.arrivals)

    def _expire(self, at: int) -> None:
        self.time = at
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
        """Give what there is to emit to its queries, then the streams what these feed them.

        A callback may do anything with the engine: what thereby is emitted waits for its turn.
        """
        outgoing, sequence, at = self._outgoing, self.arrivals, self.time or 0
        emissions = self._plans.emissions()
        nested = self._emits
        self._emits = True
        try:
            if len(emissions) == 1 and not nested and len(emissions[0][0]) == 1:
                # What most arrivals come to, without the steps in between.
                ((owner,), solutions, removed) = emissions[0]
                self._emit_to(owner, Emission(sequence, at, owner.rows(solutions), removed))
            else:
                for owners, solutions, removed in emissions:
                    emission = Emission(sequence, at, owners[0].rows(solutions), removed)
                    for owner in owners:
                        outgoing.append((owner, emission))
            while (outgoing or self._fed) and not nested:
                if outgoing:
                    self._emit_to(*outgoing.popleft())
                    continue
                name, triples = self._fed.popleft()
                if name in self.streams:
                    assert self.time is not None
                    self._tick(self.streams[name], triples, self.time)
        finally:
            self._emits = nested

    def _emit_to(self, owner: RegisteredQuery, emission: Emission) -> None:
        if owner.state != "running":
            return
        rows = emission.rows
        owner.emitted += len(rows)
        try:
            owner.take(emission)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this query's alone)
            self._end(owner, CallbackError(owner.name, error))
            return
        target = self._feeds.target(owner.name)
        if target is not None and rows:
            encode = self.dictionary.encode
            triples = [(encode(s), encode(p), encode(o)) for s, p, o in rows]  # type: ignore[arg-type]
            self._fed.append((target, triples))

    # ------------------------------------------------------------------------- housekeeping

    def _holders(self) -> Iterable[object]:
        streams = tuple(self.streams.values())
        coming = self._waiting, self._arriving, self._fed
        return self._plans.plans, self._windows, streams, coming, *self._records

    def _static_holders(self) -> Iterable[object]:
        for plan in self._plans.plans:
            for cache, _ in plan.leaves.caches:
                yield from cache.tables

    def _stop(self, plan: Plan, error: WindowLimitError) -> None:
        for owner in self._plans.owners(plan):
            self._end(owner, error)

    def _end(self, owner: RegisteredQuery, error: ContinuousError) -> None:
        owner.state = "stopped"
        owner.error = error
        owner.results.fail(error)
        self._feeds.remove(owner.name)
        self._plans.remove(owner)
