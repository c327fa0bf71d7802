"""What an engine of plans consists of: streams, windows over them, plans over these.

What happens to them with each element, and as time passes, is in `TickEngine`.
"""

import re
from collections.abc import Callable, Iterable
from weakref import WeakSet

from annotations.terms import Term
from tpf_client.dataflow.kernels import Kernel
from tpf_client.dataflow.operators.multiway_join import Routing
from tpf_server.continuous.engine.emitter import Emitter
from tpf_server.continuous.engine.errors import (
    EngineLimitError,
    JoinLimitError,
    StreamNameError,
    UnknownStreamError,
)
from tpf_server.continuous.engine.housekeeping import Housekeeping
from tpf_server.continuous.engine.limits import EngineLimits
from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.plans.plan_registry import PlanRegistry
from tpf_server.continuous.engine.plans.registered_query import RegisteredQuery
from tpf_server.continuous.engine.query_engine import QueryEngine
from tpf_server.continuous.engine.reorder_buffer import ReorderBuffer
from tpf_server.continuous.engine.static.static_data import GraphChange
from tpf_server.continuous.engine.windows.matchers import EncodedTriple
from tpf_server.continuous.engine.windows.stream_time import NEVER
from tpf_server.continuous.engine.windows.streams import ElementStream
from tpf_server.continuous.engine.windows.watermark import Watermark
from tpf_server.continuous.engine.windows.window_registry import WindowRegistry

_IRI = re.compile(r'<[^\x00-\x20<>"{}|^`\\\ud800-\udfff]+>')


class PlanEngine(QueryEngine[RegisteredQuery]):
    """Streams, their windows and the plans over these, before anything moves them.

    Args:
        base: what relative IRIs are relative to.
        limits: what is allowed.
        lateness: how late an element may come, in milliseconds.
        create_streams: whether a stream comes into being when it is first named.
        require_graphs: whether a query may only name static graphs that are loaded.
        share: whether queries that differ in constants only share a plan.
        routing: of joins.
        kernel: what takes records that come in batches (see `kernels`).
        skip_idle: whether queries that emit everything leave out multiples of their slides at which
            nothing is in their windows.

    Attributes:
        front: the newest instant that elements or `advance` told, in milliseconds since 1970;
            `NEVER` before the first element.
        arrivals: how many elements were processed.
        dropped: how many elements came too late: older than the newest of their stream, or than
            what `advance` said.
        reorders: whether elements wait for late ones.
        abandoned: whether no more elements are to come, because the engine is about to be closed.
        ticking: plans that are looked at between elements, too.
        streams: by their names.
    """

    def __init__(
        self,
        base: str,
        limits: EngineLimits | None,
        *,
        lateness: int,
        create_streams: bool,
        require_graphs: bool,
        share: bool,
        routing: Routing = "reviewed",
        kernel: Kernel | None = None,
        skip_idle: bool = False,
    ) -> None:
        super().__init__(base, limits, require_graphs=require_graphs)
        self.front = NEVER
        self._limit = -NEVER
        self._told: int | None = None
        self.arrivals = 0
        self.dropped = 0
        self.reorders = bool(lateness)
        self.abandoned = False
        self.streams: dict[Term, ElementStream] = {}
        self._create_streams = create_streams
        self._waiting: ReorderBuffer[tuple[ElementStream, list[EncodedTriple]]] = ReorderBuffer(
            lateness
        )
        watermark = Watermark()
        self._windows = WindowRegistry(self.stream, watermark, self.streams)
        self._timed = self._windows.timed
        self._plans = PlanRegistry(
            self._windows,
            self.static,
            self.dictionary,
            self._environment,
            watermark=watermark,
            share=share,
            routing=routing,
            kernel=kernel,
            reorders=self.reorders,
            skip_idle=skip_idle,
            join_rows=self.limits.join_rows,
        )
        self.ticking = self._plans.ticking.plans
        self._emitter = Emitter(self._plans, self.streams, self._tick)
        self._housekeeping = Housekeeping(
            self._plans.plans,
            self.streams,
            self.forgetting,
            self.limits.window_rows,
            self._stop,
            self._plans.merge,
        )
        self._until_housekeeping = 1
        self._records: WeakSet[object] = WeakSet()
        self.static.on_change(self._changing)

    @property
    def time(self) -> int | None:
        """The newest instant that elements or `advance` told; ``None`` before the first element."""
        return None if self.front == NEVER else self.front

    @property
    def present(self) -> int | None:
        """What time it is, where somebody knows: elements of later instants move no other stream.

        ``None``: nobody does.
        """
        return None if self._limit == -NEVER else self._limit

    @present.setter
    def present(self, present: int | None) -> None:
        self._limit = -NEVER if present is None else present

    def _changing(self, change: GraphChange) -> Callable[[], None]:
        self.settle()
        finishing = self._plans.changing(change)

        def finish() -> None:
            with self.dictionary.keeping():
                finishing()
            self._emitter.emit(self.arrivals, self.time or 0)
            self.forgetting.sweep_where_due()

        return finish

    # ------------------------------------------------------------------------------ streams

    def stream(self, name: str) -> ElementStream:
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

    def create_stream(self, name: str) -> ElementStream:
        """Make a stream, or find the one of this IRI.

        Raises:
            StreamNameError: it is no IRI.
        """
        term = self.name(name)
        found = self.streams.get(term)
        if found is None:
            self.settle()
            if not _IRI.fullmatch(term):
                raise StreamNameError(f"not an IRI: {term}")
            found = self.streams[term] = ElementStream(term)
            if self._told is not None:
                found.tell(self._told, self.front)
            with self.dictionary.keeping():
                for plan in self._plans.stream_came(term):
                    self._housekeeping.added(plan)
        return found

    def delete_stream(self, name: str) -> None:
        """Forget a stream that no query names; what queries over every stream saw of it goes.

        Raises:
            UnknownStreamError: there is none.
        """
        term = self.name(name)
        if term not in self.streams:
            raise UnknownStreamError(f"there is no stream {term}")
        self.settle()
        del self.streams[term]
        self._plans.stream_gone(term)
        self._emitter.emit(self.arrivals, self.time or 0)

    def settle(self) -> None:
        """Something else comes than records as columns: everything is where operators find it."""
        if self._plans.fusion.active is not None:
            self._plans.fusion.settle()

    def _check_open(self) -> None:
        super()._check_open()
        self.settle()

    def _tick(self, stream: ElementStream, triples: list[EncodedTriple], at: int) -> None:
        """An element comes into the windows of its stream."""
        raise NotImplementedError

    # ------------------------------------------------------------------------- housekeeping

    def holders(self) -> Iterable[object]:
        """Plans, windows, and what comes into them."""
        fused = self._plans.fusion.holders()
        streams = tuple(self.streams.values())
        coming = self._waiting, self.arriving, self._emitter.outgoing, self._emitter.fed
        return self._plans.plans, self._windows, streams, coming, fused, *self._records

    def static_holders(self) -> Iterable[object]:
        """The tables of static caches."""
        for plan in self._plans.plans:
            for cache, _ in plan.leaves.caches:
                yield from cache.tables

    def _stop_exceeded(self) -> None:
        """End the queries whose joins made too many rows."""
        plans = self._plans.exceeded
        while plans:
            plan = plans.pop()
            if self.abandoned:
                continue
            allowed = f"the joins of the query made more than {plan.work.most} rows at once"
            self._stop(plan, JoinLimitError(allowed))

    def abandon(self) -> None:
        """End the tick that is under way; said in another thread, before the engine is closed."""
        self.abandoned = True
        for plan in tuple(self._plans.plans):
            plan.work.end()

    def _stop(self, plan: Plan, error: EngineLimitError) -> None:
        for owner in self._plans.owners(plan):
            owner.stop(error)

    def _let_go(self, registered: RegisteredQuery) -> None:
        self.settle()
        self._plans.remove(registered)
