"""Queries that emit at arrivals: windows and the plans over these, moved by arrivals and time."""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from annotations.terms import Term
from tpf_server.continuous.runtime.clock import ENDLESS, NEVER
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.errors import (
    ContinuousError,
    ElementError,
    FailedEvaluationError,
    StreamNameError,
    UnknownStreamError,
    WindowLimitError,
    as_continuous_errors,
    ended_by,
)
from tpf_server.continuous.runtime.plans.fused_plan import FusedRows
from tpf_server.continuous.runtime.plans.fused_stream import FusedStream
from tpf_server.continuous.runtime.plans.plan import Plan
from tpf_server.continuous.runtime.plans.plan_registry import PlanRegistry
from tpf_server.continuous.runtime.plans.registered_query import EncodedTriples, RegisteredQuery
from tpf_server.continuous.runtime.semantics import Semantics
from tpf_server.continuous.runtime.shared import Shared
from tpf_server.continuous.runtime.static.static_data import GraphChange
from tpf_server.continuous.runtime.windows.matchers import EncodedTriple, Watermark
from tpf_server.continuous.runtime.windows.streams import ElementStream
from tpf_server.continuous.runtime.windows.window_input import WindowInput
from tpf_server.continuous.runtime.windows.window_registry import WindowRegistry

# What happens when an element arrives, and when time passes.
#
# An arrival is a tick. First the windows let go what is too old for its time, then the element
# enters the windows one after the other and every new row finds its way through the joins, then
# the operators send what they held back, then the queries emit.
#
# There is one thread and no clock: time is what the elements say, and what `advance` says. All
# windows move with it, except those over streams that are behind or ahead (see `StreamClock`).

_INTERVAL: Final = 64
_ADAPTATION: Final = 1024
_IRI = re.compile(r'<[^\x00-\x20<>"{}|^`\\\ud800-\udfff]+>')


class TickQueries:
    """The queries of an engine that emit at arrivals: those in CQELS-QL.

    Args:
        shared: its terms, static graphs and streams are used.
        deliver: lets all queries of the engine see an element that one of these made.
        check: checks triples that one of these made for a stream.

    Attributes:
        ticking: plans that are checked between elements, too.
    """

    def __init__(
        self,
        shared: Shared,
        deliver: Callable[[ElementStream, list[EncodedTriple], int], None],
        check: Callable[[Term, list[EncodedTriple]], None],
    ) -> None:
        self.shared = shared
        self.arrivals = 0
        self.dropped = 0
        self.clocks = shared.clocks
        self._streams = shared.streams
        watermark = Watermark()
        self.windows = WindowRegistry(self.stream, watermark, self._streams)
        self._timed = self.windows.timed
        self.plans = PlanRegistry(self.windows, shared, watermark)
        self.ticking = self.plans.ticking.plans
        self._deliver, self._check = deliver, check
        self._outgoing: deque[tuple[Sequence[RegisteredQuery], Emission, EncodedTriples]] = deque()
        self._fed: deque[tuple[Term, list[EncodedTriple], int]] = deque()
        self._emitting = False
        self._window_rows = shared.limits.window_rows
        self._next_adaptation = self._next_limit = self._looked = 0
        self.until_housekeeping = 1

    def start(self, registered: RegisteredQuery, policy: Semantics) -> None:
        shared = self.shared
        try:
            with as_continuous_errors(), shared.dictionary.permanently():
                self.plans.add(registered, policy)
        except ContinuousError:
            self.plans.drop_idle()
            raise
        self.until_housekeeping = 1
        self._next_limit = 0

    def changing(self, change: GraphChange) -> Callable[[], None]:
        finishing = self.plans.changing(change)

        def finish() -> None:
            with self.shared.dictionary.permanently():
                finishing()
            self._emit_changes()
            self.shared.forgetting.sweep_where_due()

        return finish

    # ------------------------------------------------------------------------------ streams

    def stream(self, name: str) -> ElementStream:
        """Return the stream of this IRI, made where it is new and that is allowed.

        Raises:
            UnknownStreamError: there is none, and streams are not made on first use.
            StreamNameError: it is no IRI.
        """
        term = self.shared.name(name)
        stream_of_name = self._streams.get(term)
        if stream_of_name is None:
            if not self.shared.settings.create_streams:
                raise UnknownStreamError(f"there is no stream {term}")
            stream_of_name = self.create_stream(term)
        return stream_of_name

    def create_stream(self, name: str) -> ElementStream:
        """Return the stream of this IRI, made where it is new."""
        term = self.shared.name(name)
        stream_of_name = self._streams.get(term)
        if stream_of_name is None:
            if not _IRI.fullmatch(term):
                raise StreamNameError(f"not an IRI: {term}")
            stream_of_name = self._streams[term] = ElementStream(term)
            if self.clocks.told != NEVER:
                stream_of_name.tell(self.clocks.told, self.clocks.front)
            with self.shared.dictionary.permanently():
                self.plans.stream_came(term)
            self._next_limit = 0
        return stream_of_name

    def stream_gone(self, name: Term) -> None:
        self.plans.stream_gone(name)
        self._emit_changes()

    def _emit_changes(self) -> None:
        front = self.clocks.front
        self._emit(0 if front == NEVER else front)

    def settle(self) -> None:
        """Give the operators the rows that plans have as columns."""
        self.plans.fusion.settle()

    def holders(self) -> Iterable[object]:
        """Return plans, windows, and what comes into them."""
        fused = self.plans.fusion.holders()
        return self.plans.plans, self.windows, self._outgoing, self._fed, fused

    def static_holders(self) -> Iterable[object]:
        for plan in self.plans.plans:
            for rows, _ in plan.leaves.static:
                yield from rows.holders

    def stop_exceeded(self) -> None:
        """Stop the queries of plans that made too many rows."""
        plans = self.plans.exceeded
        while plans:
            plan = plans.pop()
            if not self.shared.abandoned:
                self._stop(plan, ended_by(plan.work))

    def _stop(self, plan: Plan, error: ContinuousError) -> None:
        for owner in self.plans.owners(plan):
            owner.stop(error)

    def let_go(self, registered: RegisteredQuery) -> None:
        self.settle()
        self.plans.remove(registered)

    def began_beside(self) -> None:
        """Note a query that answers at instants: what is left of a batch must come as elements."""
        if self._emitting:
            self.settle()
            for each in self._streams.values():
                each.version += 1

    # ------------------------------------------------------------------------- what arrives

    def begin_arrival(self, stream: ElementStream, at: int, triples: int) -> bool:
        """Prepare the windows for an element, after `reach`; False: it is too late.

        First expiries, then what waited for its time.
        """
        clocks = self.clocks
        front = clocks.front
        if front <= at <= clocks.present and stream.plain:
            stream.newest = stream.latest = at
            if at != front:
                clocks.front = at
                # As `WindowRegistry.expire` does, without the call.
                for log, width, each in self._timed:
                    if log and log[0][0] < at - width:
                        each.expire(at)
        elif at < stream.latest:
            self.dropped += 1
            return False
        elif at != stream.latest or at != front:
            self.move(stream, at)
        self.arrivals += 1
        if stream.counting:
            stream.expire_counted(triples)
        stream.triples += triples
        plans = self.plans
        if plans.early or self.ticking:
            self._admit()
        else:
            plans.phase.inserting = True
        return True

    def move(self, stream: ElementStream, at: int) -> None:
        clocks = self.clocks
        front = max(clocks.front, min(at, clocks.present))
        lag = max(0, front - at)
        back = at < stream.at(clocks.front)
        moved = back or lag != stream.lag
        stream.newest = stream.latest = at
        stream.lag = lag
        if back:
            for window in stream.inputs:
                window.set_back(at)
        if moved:
            self.windows.moved(stream)
        if front != clocks.front:
            clocks.front = front
            self.windows.expire(front)
        self._expire_of((stream,))
        stream.settle(front)

    def advance(self, at: int) -> None:
        """Let windows expire up to an instant.

        What thereby comes into a result or goes from it is emitted by policies of difference. An
        instant before the one of last time says that the clock was set back: nothing moves, and
        elements from then on are not late.
        """
        front = self.clocks.front
        until = min(at, front)
        behind = [each for each in self._streams.values() if each.at(front) < until]
        if behind:
            self._catch_up(behind, at + 1)
            if at <= front:
                self._move_to(behind, at)
                self._changed(at)
        fused = self.plans.fusion.active
        if fused is not None and at > front:
            fused.advance(at, lambda instant, _: self._emit_at(instant))
        self._pass_until(at + 1)
        for each in self._streams.values():
            each.tell(at, max(at, front))
        if at > front:
            self._pass(at)
        self.clocks.told = at

    def reach(self, stream: ElementStream, at: int) -> None:
        """Stop at each instant before another at which a window changes, to report it."""
        if at >= stream.latest:
            if stream.lag:
                self._catch_up((stream,), at)
            self._pass_until(min(at, self.clocks.present + 1))
            self._pass_until(at, (stream,))

    def pass_to(self, at: int) -> None:
        self._pass_until(at + 1)
        self._pass(at)

    def _pass_until(self, at: int, streams: Collection[ElementStream] | None = None) -> None:
        """Move to each instant before another at which something changes, or only some streams."""
        while (boundary := self._boundary(at, streams)) < at:
            if streams is None:
                self._pass(boundary, partial(Plan.slides_to, at=boundary))
            else:
                moved = self._move_to(streams, boundary)
                self._changed(boundary, partial(Plan.slides_to, at=boundary, streams=moved))

    def _boundary(self, before: int, streams: Collection[ElementStream] | None) -> int:
        plans, front = self.plans, self.clocks.front
        if plans.awake and front != NEVER and plans.pending():
            # A plan that emits differences has some already, because it is new.
            now = front if streams is None else min(each.at(front) for each in streams)
            return min(before, now + 1)
        before = self.windows.boundary(before, streams)
        if plans.ticking.repeating:
            before = plans.ticking.boundary(front, before, streams)
        # Last: windows let go what is too old by then.
        return self.windows.next_gone(before, streams) if plans.ticking.netting else before

    def _catch_up(self, streams: Collection[ElementStream], at: int) -> None:
        """Move streams that are behind to the engine's time, or to an earlier instant."""
        self._pass_until(min(at, self.clocks.front + 1), streams)
        if at > self.clocks.front:
            self._move_to(streams, self.clocks.front)

    def finish(self) -> None:
        while (boundary := self.windows.boundary(ENDLESS, gone=False)) != ENDLESS:
            self._pass_until(boundary + 1)

    # -------------------------------------------------------------------------------- ticks

    def tick(self, stream: ElementStream, triples: list[EncodedTriple], at: int) -> None:
        self.settle()
        if self.ticking:
            # Before it enters, others may be told what was before it.
            self.shared.arriving.append(triples)
            try:
                self.reach(stream, at)
            finally:
                self.shared.arriving.pop()
        if self.begin_arrival(stream, at, len(triples)):
            stream.deliver(at, triples)
            self.end_arrival(at)

    def _pass(self, at: int, slides: Callable[[Plan], bool] | None = None) -> None:
        """Move to a later instant without an arrival; for `slides` see `_changed`."""
        self.clocks.front = at
        self.windows.expire(at)
        self._changed(at, slides)

    def _move_to(self, streams: Collection[ElementStream], at: int) -> list[ElementStream]:
        """Move some streams to a later instant; return those that were not there yet."""
        moved = []
        for stream in streams:
            if stream.at(self.clocks.front) < at:
                moved.append(stream)
                stream.lag = max(0, self.clocks.front - at)
                if at > self.clocks.front:
                    stream.latest = at
                stream.settle(self.clocks.front)
                self.windows.moved(stream)
        self._expire_of(streams)
        return moved

    def _expire_of(self, streams: Collection[ElementStream]) -> None:
        for stream in streams:
            for window in stream.inputs:
                if window.moves and window.log:
                    window.expire(self.clocks.front)

    def _changed(self, at: int, slides: Callable[[Plan], bool] | None = None) -> None:
        """After expiries, let others into windows and emit the changes.

        `slides` selects plans at a multiple of a slide: others than those of difference emit then
        only; ``None``: all may.
        """
        self._admit()
        due = None
        if slides is not None:
            due = partial(_may_emit, slides=slides)
            for plan in filter(slides, self.plans.ticking.repeating):
                plan.delivery.rouse()
        self.plans.flush(due)
        self.plans.phase.inserting = False
        self._emit(at, due)

    def end_arrival(self, at: int) -> None:
        """Send and emit what the arrival at an instant derived."""
        plans = self.plans
        for flush in plans.holding:
            flush()
        plans.phase.inserting = False
        for delivery in plans.repeating:
            delivery.rouse()
        if plans.awake or plans.exceeded:
            self._emit(at)
        self.until_housekeeping -= 1
        if not self.until_housekeeping:
            self._keep_house()

    # How what an arrival derived gets to queries, and from these to streams. A callback may do
    # anything with the engine: emissions that it causes wait for their turn.

    def _emit(self, at: int, due: Callable[[Plan], bool] | None = None) -> None:
        outgoing = self._outgoing
        emissions = self.plans.emissions(due)
        nested, self._emitting = self._emitting, True
        try:
            for owners, solutions, removed in emissions:
                try:
                    rows, triples = owners[0].made(solutions)
                except Exception as error:  # noqa: BLE001 - others go on
                    for owner in owners:
                        owner.stop(FailedEvaluationError(error))
                    continue
                emission = Emission(self.arrivals, at, rows, removed)
                if len(emissions) == 1 and not nested:
                    # What most arrivals come to, without the steps in between.
                    self._emit_to(owners, emission, triples)
                else:
                    outgoing.append((owners, emission, triples))
            while (outgoing or self._fed) and not nested:
                if outgoing:
                    self._emit_to(*outgoing.popleft())
                    continue
                name, fed, at = self._fed.popleft()
                if name in self._streams:
                    # What comes of a stream that is behind another never comes too late.
                    stream = self._streams[name]
                    self._deliver(stream, fed, max(at, stream.latest))
        finally:
            self._emitting = nested
        if self.plans.exceeded:
            self.stop_exceeded()

    def _emit_to(
        self, owners: Sequence[RegisteredQuery], emission: Emission, triples: EncodedTriples
    ) -> None:
        count = len(emission.rows)
        for owner in owners:
            if owner.state != "running":
                continue
            owner.emitted += count
            try:
                owner.take(emission)
            except Exception as error:  # noqa: BLE001 (see `RunningQuery.fail`)
                owner.fail(error)
                continue
            # It may have ended itself.
            if triples and owner.stream is not None and owner.state == "running":
                try:
                    self._check(owner.stream, triples)
                except ElementError as error:
                    owner.stop(error)
                    continue
                self._fed.append((owner.stream, triples, emission.at))

    def _admit(self) -> None:
        for flush in self.plans.early:
            flush()
        self.plans.phase.inserting = True
        if self.ticking:
            self.windows.admit(self.clocks.front)

    # ------------------------------------------------------------------------- housekeeping

    def _keep_house(self) -> None:
        """Check routes, limits and terms that nobody needs: often at first, then rarely."""
        plans = self.plans
        plans.merge()
        triples = sum(stream.triples for stream in self._streams.values())
        gone, self._looked = triples - self._looked, triples
        for plan in plans.plans:
            plan.work.renew(gone * plan.work.most // 100)
        if self.arrivals >= self._next_adaptation:
            self._next_adaptation = self.arrivals + min(self.arrivals, _ADAPTATION)
            for plan in plans.plans:
                plan.adapt()
        if triples >= self._next_limit:
            self._limit(triples)
        self.shared.forgetting.sweep_where_due()
        self.until_housekeeping = min(_INTERVAL, self.arrivals + 1)

    def _limit(self, triples: int) -> None:
        """Stop those whose windows hold too much, and compute how soon others could."""
        allowed = self._window_rows
        soonest = allowed
        for plan in tuple(self.plans.plans):
            windows = [window for window, _ in plan.leaves.subscriptions]
            held = sum(window.held for window in windows)
            if any(window.multiplies for window in windows):
                soonest = 0
            soonest = min(soonest, max(0, allowed - held) // max(1, len(windows)))
            if held > allowed:
                error = f"the windows of the query hold {held} entries; {allowed} are allowed"
                self._stop(plan, WindowLimitError(error))
        self._next_limit = triples + soonest

    # ------------------------------------------------------------------------------ batches

    def fused(self, stream: ElementStream, takers: Sequence[WindowInput]) -> FusedStream | None:
        """Return the plans that take records of a stream as columns."""
        plans = self.plans
        fused = plans.fusion.together
        if fused is None or fused.windows != takers or len(self.windows) > len(takers):
            return None
        slides = any(each.slides for each in self.ticking)
        others = slides or stream.counting or self._emitting
        return None if others else fused

    def fuse(self, fused: FusedStream, stream: ElementStream, rows: FusedRows, triples: int) -> int:
        """Give records to plans, one after the other; return how many arrived."""
        times = rows.times
        late = (
            times[0] < self.clocks.front
            or times[-1] > self.clocks.present
            or (times[1:] < times[:-1]).any()
        )
        # Where a window might become too long it is looked at more often.
        long = len(times) > fused.room(self.shared.limits.window_rows)
        if late or long or not stream.plain:
            return 0
        if not fused.active:
            # The state begins with empty windows.
            self._let_go_before(stream, int(times[0]))
            if self.plans.fusion.together is not fused:
                return 0

        def passed(at: int, count: int) -> None:
            if count:
                stream.newest = stream.latest = at
            self.arrivals += count
            stream.triples += count * triples
            self._emit_at(at)

        done = fused.run(rows, passed)
        # At the end of a batch: to look for terms is to settle.
        self.until_housekeeping -= done
        if self.until_housekeeping <= 0:
            self._keep_house()
        return done

    def _let_go_before(self, stream: ElementStream, at: int) -> None:
        if self.ticking:
            self.reach(stream, at)
        self.move(stream, at)
        self._admit()
        self.plans.phase.inserting = False

    def _emit_at(self, at: int) -> None:
        self.clocks.front = at
        if self.plans.awake or self.plans.exceeded:
            self._emit(at)


def _may_emit(plan: Plan, *, slides: Callable[[Plan], bool]) -> bool:
    return plan.nets or slides(plan)
