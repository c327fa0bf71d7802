"""At which instants between elements plans are looked at: the multiples of their slides.

What a query says decides that, and nothing else: neither what its windows hold, nor which of them
its plan needs, nor who else is there. So it emits the same beside others as alone.

Windows with a slide say themselves when they change (see `WindowRegistry`). What time takes out of
the other windows of such a query comes to light at the next multiple.
"""

from collections.abc import Container

from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.windows.stream_time import NEVER, StreamTime


class SlidingPlans:
    """Plans of queries that have windows with a slide.

    Attributes:
        plans: all of them.
    """

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        # For the others it does not matter when something goes.
        self._netting: list[Plan] = []

    def add(self, plan: Plan) -> None:
        """One more plan; nothing happens where no window slides."""
        if plan.slides:
            self.plans.append(plan)
            if plan.nets:
                self._netting.append(plan)

    def remove(self, plan: Plan) -> None:
        """A plan is gone."""
        if plan.slides:
            self.plans.remove(plan)
            if plan.nets:
                self._netting.remove(plan)

    def boundary(self, front: int, before: int) -> int | None:
        """The first instant of the engine at which what has gone from windows comes to light.

        Args:
            front: the present one.
            before: an instant that it must be before.
        """
        found = []
        for plan in self._netting if front != NEVER else ():
            gone = _gone(plan, front + 1)
            if gone is None:
                continue
            for time, slide in plan.slides:
                first = max(gone - time.lag, time.latest + 1)
                found.append(_multiple(first, slide) + time.lag)
        return min((each for each in found if each < before), default=None)

    def boundary_of(self, streams: Container[StreamTime], front: int, before: int) -> int | None:
        """The same for some streams, as an instant of these."""
        found = []
        for plan in self._netting if front != NEVER else ():
            gone = _gone(plan, NEVER, streams)
            if gone is None:
                continue
            for time, slide in plan.slides:
                if time in streams:
                    found.append(_multiple(max(gone, time.at(front) + 1), slide))
        return min((each for each in found if each < before), default=None)


def _gone(plan: Plan, pending: int, streams: Container[StreamTime] | None = None) -> int | None:
    """The first instant from which on something has gone from a plan's windows without a slide.

    Args:
        plan: the plan.
        pending: what it is, where something has.
        streams: those whose instant it is; ``None``: of the engine.
    """
    if plan.delivery.awake or plan.waits:
        return pending
    found = []
    for window in plan.passing:
        if window.log and (streams is None or window.time in streams):
            lag = window.time.lag if streams is None else 0
            found.append(window.last_instant(window.log[0][0]) + lag + 1)
    return min(found, default=None)


def _multiple(at: int, slide: int) -> int:
    return -(-at // slide) * slide
