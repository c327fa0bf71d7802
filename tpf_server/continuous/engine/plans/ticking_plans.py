"""Which plans are looked at between elements, and when.

Plans of queries that have a window with a slide are looked at at its multiples. Plans that emit
differences are looked at whenever something leaves one of their windows, too, so that they emit the
same whether elements follow each other closely or not. What a query says decides that, and nothing
else: so it emits the same beside others as alone.

Windows say themselves when they change (see `WindowRegistry`). Here are the instants at which
nothing need change: who emits everything does so at each multiple of its slides.
"""

from collections.abc import Container

from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.windows.stream_time import NEVER, StreamTime


class TickingPlans:
    """Plans that are looked at between elements.

    Args:
        skip_idle: whether multiples are left out at which nothing is in the windows of a plan.

    Attributes:
        plans: all of them.
        netting: those that emit differences.
        repeating: those that emit everything at the multiples of their slides.
    """

    def __init__(self, *, skip_idle: bool = False) -> None:
        self.plans: list[Plan] = []
        self.netting: list[Plan] = []
        self.repeating: list[Plan] = []
        self._skip_idle = skip_idle

    def add(self, plan: Plan) -> None:
        """One more plan; nothing happens where elements alone matter to it."""
        if plan.slides or plan.nets:
            self.plans.append(plan)
        if plan.nets:
            self.netting.append(plan)
        if plan.slides and not plan.delivery.silent:
            self.repeating.append(plan)

    def remove(self, plan: Plan) -> None:
        """A plan is gone."""
        for plans in (self.plans, self.netting, self.repeating):
            if plan in plans:
                plans.remove(plan)

    def boundary(self, front: int, before: int) -> int | None:
        """The first instant of the engine at which somebody emits everything.

        Args:
            front: the present one.
            before: an instant that it must be before.
        """
        found = [
            _multiple(time.at(front) + 1, slide) + time.lag
            for plan in self._speaking(front)
            for time, slide in plan.slides
        ]
        return min((each for each in found if each < before), default=None)

    def boundary_of(self, streams: Container[StreamTime], front: int, before: int) -> int | None:
        """The same for some streams, as an instant of these."""
        found = [
            _multiple(time.at(front) + 1, slide)
            for plan in self._speaking(front)
            for time, slide in plan.slides
            if time in streams
        ]
        return min((each for each in found if each < before), default=None)

    def _speaking(self, front: int) -> list[Plan]:
        if front == NEVER:
            return []
        return [each for each in self.repeating if not (self._skip_idle and each.idle)]


def _multiple(at: int, slide: int) -> int:
    return -(-at // slide) * slide
