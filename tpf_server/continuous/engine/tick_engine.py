"""What happens when an element arrives, and when time passes.

An arrival is a tick. First the windows let go what is too old for its time, then the element enters
the windows one after the other and every new row finds its way through the joins, then the
operators send what they held back, then the queries emit.

There is one thread and no clock: time is what the elements say, and what `advance` says. All
windows move with it, except those over streams that are behind or ahead (see `StreamTime`).
"""

from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial

from tpf_server.continuous.engine.elements.timestamps import milliseconds
from tpf_server.continuous.engine.plan_engine import PlanEngine
from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.windows.matchers import EncodedTriple
from tpf_server.continuous.engine.windows.stream_time import NEVER
from tpf_server.continuous.engine.windows.streams import ElementStream


class TickEngine(PlanEngine):
    """Streams, their windows and the plans over these, moved on by arrivals; see `PlanEngine`."""

    # ------------------------------------------------------------------------- what arrives

    def arrive(self, stream: ElementStream, triples: list[EncodedTriple], at: int) -> None:
        """An encoded element arrives."""
        if self.reorders and at >= stream.latest:
            for time, (where, element) in self._waiting.add(stream, at, (stream, triples)):
                self._tick(where, element, time)
        else:
            self._tick(stream, triples, at)

    def begin_arrival(self, stream: ElementStream, at: int, triples: int) -> bool:
        """An encoded element is about to arrive at the windows.

        What it pushes out of them goes; then what waited for its time comes. Where windows slide,
        `reach` comes before.

        Args:
            stream: where.
            at: its time.
            triples: how many triples it is.

        Returns:
            Whether it does: it does not come too late.
        """
        front = self.front
        if front <= at <= self._limit and stream.plain:
            stream.latest = at
            if at != front:
                self.front = at
                # As `WindowRegistry.expire` does, without the call.
                for log, width, each in self._timed:
                    if log and log[0][0] < at - width:
                        each.expire(at)
        elif at < stream.latest:
            self.dropped += 1
            return False
        elif at != stream.latest or at != front:
            self._move(stream, at)
        self.arrivals += 1
        if stream.counting:
            stream.expire_counted(triples)
        stream.elements += 1
        stream.triples += triples
        plans = self._plans
        if plans.early or self.ticking:
            self._admit()
        else:
            plans.phase.inserting = True
        return True

    def _move(self, stream: ElementStream, at: int) -> None:
        """The windows over a stream are at an instant, and maybe no others."""
        front = max(self.front, min(at, self._limit))
        lag = max(0, front - at)
        back = at < stream.at(self.front)
        moved = back or lag != stream.lag
        stream.latest, stream.lag = at, lag
        if back:
            for window in stream.inputs:
                window.set_back(at)
        if moved:
            self._windows.moved(stream)
        if front != self.front:
            self.front = front
            self._windows.expire(front)
        self._expire_of((stream,))
        stream.settle(front)

    def advance(self, timestamp: int | datetime) -> None:
        """Time passes without an arrival: elements that waited are processed, windows expire.

        What thereby comes into a result or goes from it is emitted by policies of difference.
        With a lateness, stream time stays behind the instant by it, because elements may still
        come. An instant before the one of last time says that the clock was set back: nothing
        moves, and elements from then on are not late.
        """
        self._check_open()
        at = milliseconds(timestamp)
        at -= self._waiting.lateness
        for time, (stream, triples) in self._waiting.until(at):
            self._tick(stream, triples, time)
        front = self.front
        until = min(at, front)
        behind = [each for each in self.streams.values() if each.at(front) < until]
        if behind:
            self._catch_up(behind, at + 1)
            if at <= front:
                self._move_to(behind, at)
                self._changed(at)
        self._pass_until(at + 1)
        self._told = at
        for each in self.streams.values():
            each.tell(at, max(at, front))
        if at > front:
            self._pass(at)

    def reach(self, stream: ElementStream, at: int) -> None:
        """Stop at each instant before another at which a window changes.

        So what changes between elements is reported, whenever the next one comes.

        Args:
            stream: the one whose element says so.
            at: the instant.
        """
        if at >= stream.latest:
            if stream.lag:
                self._catch_up((stream,), at)
            self._pass_until(min(at, self._limit + 1))
            self._catch_up_to((stream,), at)

    def _pass_until(self, at: int) -> None:
        while (boundary := self._boundary(at)) is not None:
            self._pass(boundary, partial(Plan.slides_to, at=boundary))

    def _boundary(self, before: int) -> int | None:
        ticking = self._plans.ticking
        if self._plans.awake and self._pending() and self.front + 1 < before:
            return self.front + 1
        found = self._windows.boundary(before)
        if ticking.repeating:
            own = ticking.boundary(self.front, before if found is None else found)
            found = found if own is None else own
        if ticking.netting:
            # Last: windows let go what is too old by then.
            gone = self._windows.next_gone(before if found is None else found)
            found = found if gone is None else gone
        return found

    def _catch_up(self, streams: Collection[ElementStream], at: int) -> None:
        """Streams that are behind come to the time of the engine, or to an instant before it."""
        self._catch_up_to(streams, min(at, self.front + 1))
        if at > self.front:
            self._move_to(streams, self.front)

    def _catch_up_to(self, streams: Collection[ElementStream], at: int) -> None:
        """They stop at the boundaries before an instant."""
        while (boundary := self._boundary_of(streams, at)) is not None:
            moved = self._move_to(streams, boundary)
            self._changed(boundary, partial(Plan.slides_to, at=boundary, streams=moved))

    def _pending(self) -> bool:
        """Whether a plan that emits differences has some already, because it is new."""
        return self.front != NEVER and self._plans.pending()

    def _boundary_of(self, streams: Collection[ElementStream], before: int) -> int | None:
        found = [
            self._windows.boundary_of(streams, before),
            self._windows.next_gone_of(streams, before),
            self._plans.ticking.boundary_of(streams, self.front, before),
        ]
        if self._plans.awake and self._pending():
            soonest = min(each.at(self.front) for each in streams) + 1
            found.append(soonest if soonest < before else None)
        return min((each for each in found if each is not None), default=None)

    def finish(self) -> None:
        """No more elements will come: process those that wait, for late ones or for a slide."""
        self.settle()
        for at, (stream, triples) in self._waiting.rest():
            self._tick(stream, triples, at)
        while (boundary := self._windows.boundary(None)) is not None:
            self._pass_until(boundary + 1)

    # -------------------------------------------------------------------------------- ticks

    def _tick(self, stream: ElementStream, triples: list[EncodedTriple], at: int) -> None:
        if self._plans.fusion.active is not None:
            self.settle()
        if self.ticking:
            # Before it enters, others may be told what was before it.
            self.arriving.append(triples)
            try:
                self.reach(stream, at)
            finally:
                self.arriving.pop()
        if self.begin_arrival(stream, at, len(triples)):
            stream.deliver(at, triples)
            self.end_arrival(at)

    def _pass(self, at: int, slides: Callable[[Plan], bool] | None = None) -> None:
        """It is a later instant, and nothing arrives; for `slides` see `_changed`."""
        self.front = at
        self._windows.expire(at)
        self._changed(at, slides)

    def _move_to(self, streams: Collection[ElementStream], at: int) -> list[ElementStream]:
        """It is a later instant on some streams only; returns those that were not there yet."""
        moved = []
        for stream in streams:
            if stream.at(self.front) < at:
                moved.append(stream)
                stream.lag = max(0, self.front - at)
                if at > self.front:
                    stream.latest = at
                stream.settle(self.front)
                self._windows.moved(stream)
        self._expire_of(streams)
        return moved

    def _expire_of(self, streams: Collection[ElementStream]) -> None:
        for stream in streams:
            for window in stream.inputs:
                if window.moves and window.log:
                    window.expire(self.front)

    def _changed(self, at: int, slides: Callable[[Plan], bool] | None = None) -> None:
        """Rows went out of windows: now others come in, and what thereby changes is emitted.

        Args:
            at: the instant.
            slides: whether a plan is at a multiple of a slide: who does not emit differences emits
                then only. ``None``: everybody may.
        """
        self._admit()
        due = None
        if slides is not None:
            due = partial(_may_emit, slides=slides)
            for plan in filter(slides, self._plans.ticking.repeating):
                plan.delivery.rouse()
        self._plans.flush(due)
        self._plans.phase.inserting = False
        self._emitter.emit(self.arrivals, at, due)
        if self._plans.exceeded:
            self._stop_exceeded()

    def end_arrival(self, at: int) -> None:
        """What the arrival at an instant derived is sent and emitted."""
        plans = self._plans
        for plan in plans.holding:
            plan.flush()
        plans.phase.inserting = False
        for delivery in plans.repeating:
            delivery.rouse()
        if plans.awake:
            self._emitter.emit(self.arrivals, at)
        if plans.exceeded:
            self._stop_exceeded()
        self._until_housekeeping -= 1
        if not self._until_housekeeping:
            self._until_housekeeping = self._housekeeping.run(self.arrivals)

    def _admit(self) -> None:
        for plan in self._plans.early:
            plan.flush()
        self._plans.phase.inserting = True
        if self.ticking:
            self._windows.admit(self.front)


def _may_emit(plan: Plan, *, slides: Callable[[Plan], bool]) -> bool:
    return plan.nets or slides(plan)
