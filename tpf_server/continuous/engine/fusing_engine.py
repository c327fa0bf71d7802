"""What happens when many records arrive at once: plans may take them as columns."""

from collections.abc import Sequence

from tpf_server.continuous.engine.plans.fused_plan import FusedRows
from tpf_server.continuous.engine.plans.fused_stream import FusedStream
from tpf_server.continuous.engine.tick_engine import TickEngine
from tpf_server.continuous.engine.windows.streams import ElementStream
from tpf_server.continuous.engine.windows.window_input import WindowInput


class FusingEngine(TickEngine):
    """An engine to which records come in batches; for the arguments see `TickEngine`."""

    def fused(self, stream: ElementStream, takers: Sequence[WindowInput]) -> FusedStream | None:
        """The plans that take records of a stream as columns.

        Args:
            stream: the stream.
            takers: who else would take them.
        """
        plans = self._plans
        found = plans.fusion.together
        if found is None or found.windows != takers or len(self._windows) > len(takers):
            return None
        slides = any(each.slides for each in self.ticking)
        others = slides or stream.counting or self._emitter.emitting
        return None if others else found

    def fuse(self, found: FusedStream, stream: ElementStream, rows: FusedRows, triples: int) -> int:
        """Records arrive at plans, one after the other; returns how many did.

        Args:
            found: the plans.
            stream: where they arrive.
            rows: what of them the plans want.
            triples: how many each has.
        """
        times = rows.times
        late = times[0] < self.front or times[-1] > self._limit or (times[1:] < times[:-1]).any()
        # Where a window might become too long it is looked at more often.
        long = len(times) > found.room(self.limits.window_rows)
        if late or long or not stream.plain:
            return 0
        self._plans.fusion.active = found

        def passed(at: int, count: int) -> None:
            self.front = at
            if count:
                stream.latest = at
            self.arrivals += count
            stream.elements += count
            stream.triples += count * triples
            if self._plans.awake:
                self._emitter.emit(self.arrivals, at)

        done = found.run(rows, passed)
        # At the end of a batch: to look for terms is to settle.
        self._until_housekeeping -= done
        if self._until_housekeeping <= 0:
            self._until_housekeeping = self._housekeeping.run(self.arrivals)
        if not found.active:
            self._plans.fusion.active = None
        return done
