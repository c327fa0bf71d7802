"""How what an arrival derived gets to queries, and from these to streams."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from annotations.terms import Term
from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.plans.plan_registry import PlanRegistry
from tpf_server.continuous.engine.plans.registered_query import RegisteredQuery
from tpf_server.continuous.engine.plans.row_maker import EncodedTriples
from tpf_server.continuous.engine.windows.matchers import EncodedTriple
from tpf_server.continuous.engine.windows.streams import ElementStream


class Emitter:
    """Gives queries what they have to emit, then the streams what these feed them.

    A callback may do anything with the engine: what thereby is emitted waits for its turn.

    Args:
        plans: who has something to emit.
        streams: by their names.
        tick: takes an element that a query has made.

    Attributes:
        outgoing: what waits to be given to queries.
        fed: elements that queries have made, and that wait for their turn.
    """

    def __init__(
        self,
        plans: PlanRegistry,
        streams: Mapping[Term, ElementStream],
        tick: Callable[[ElementStream, list[EncodedTriple], int], None],
    ) -> None:
        self.fed: deque[tuple[Term, list[EncodedTriple], int]] = deque()
        self._plans = plans
        self._streams = streams
        self._tick = tick
        self.outgoing: deque[tuple[Sequence[RegisteredQuery], Emission, EncodedTriples]] = deque()
        self._emits = False

    @property
    def emitting(self) -> bool:
        """Whether a query is being given something."""
        return self._emits

    def emit(self, sequence: int, at: int, due: Callable[[Plan], bool] | None = None) -> None:
        """Take from the plans what there is to emit, and give it to their queries.

        Args:
            sequence: the number of the arrival.
            at: its instant.
            due: whether a plan may emit; what others have waits until they may. ``None``: all may.
        """
        outgoing = self.outgoing
        emissions = self._plans.emissions(due)
        nested = self._emits
        self._emits = True
        try:
            for owners, solutions, removed in emissions:
                rows, triples = owners[0].made(solutions)
                emission = Emission(sequence, at, rows, removed)
                if len(emissions) == 1 and not nested:
                    # What most arrivals come to, without the steps in between.
                    self._emit_to(owners, emission, triples)
                else:
                    outgoing.append((owners, emission, triples))
            while (outgoing or self.fed) and not nested:
                if outgoing:
                    self._emit_to(*outgoing.popleft())
                    continue
                name, fed, at = self.fed.popleft()
                if name in self._streams:
                    # What comes of a stream that is behind another never comes too late.
                    stream = self._streams[name]
                    self._tick(stream, fed, max(at, stream.latest))
        finally:
            self._emits = nested

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
                self.fed.append((owner.stream, triples, emission.at))
