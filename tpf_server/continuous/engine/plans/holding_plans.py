"""Which plans are to be asked for what they hold back."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.windows.window_input import WindowInput

_FEW: Final = 8


class Flushable(Protocol):
    """What holds something back."""

    def flush(self) -> None:
        """Send it."""


class HoldingPlans:
    """Plans that hold something back until the end of a tick.

    Few are asked each time. Of many those are asked into or out of whose windows rows came.

    Args:
        touched: windows that say so (see `WindowInput.hold`).

    Attributes:
        holding: what to flush at the end of a tick.
        early: what to flush before rows come in, too.
    """

    def __init__(self, touched: list[WindowInput]) -> None:
        self.holding: list[Flushable] = []
        self.early: list[Flushable] = []
        self._touched = touched
        self._plans: dict[Plan, None] = {}
        self._many = False

    def add(self, plan: Plan) -> None:
        """One more plan; nothing happens where it holds nothing back."""
        if not plan.holding:
            return
        self._plans[plan] = None
        if len(self._plans) <= _FEW and not self._many:
            self._arrange()
            return
        for each in [plan] if self._many else self._plans:
            each.wait_for_rows()
        self._many = True
        self.holding[:] = [self]
        if self.early or plan.flushes_early:
            self.early[:] = [_Early(self)]

    def grown(self, plan: Plan) -> None:
        """A plan has one more window."""
        if self._many and plan in self._plans:
            plan.wait_for_rows()

    def remove(self, plan: Plan) -> None:
        """A plan is gone."""
        if self._plans.pop(plan, self) is not self and not (self._many and self._plans):
            self._many = False
            self._arrange()

    def _arrange(self) -> None:
        self.holding[:] = self._plans
        self.early[:] = [each for each in self._plans if each.flushes_early]

    def touched(self) -> Sequence[Plan]:
        """The plans of windows into or out of which rows came."""
        touched = self._touched
        if len(touched) == 1:
            return touched[0].holders
        plans = {plan.number: plan for window in touched for plan in window.holders}
        return [plans[number] for number in sorted(plans)]

    def flush(self) -> None:
        """Flush those."""
        for plan in self.touched():
            plan.flush()
        for window in self._touched:
            window.calm = True
        self._touched.clear()

    def flush_due(self, due: Callable[[Plan], bool]) -> None:
        """Flush those that are looked at now; what others hold waits until they are."""
        for plan in self.touched() if self._many else self._plans:
            if due(plan):
                plan.flush()
            else:
                plan.waits = True
        if self._many:
            waiting = []
            for window in self._touched:
                if all(map(due, window.holders)):
                    window.calm = True
                else:
                    waiting.append(window)
            self._touched[:] = waiting


class _Early:
    """Flushes those plans of windows that lost rows which must be flushed before rows come in."""

    def __init__(self, plans: HoldingPlans) -> None:
        self._plans = plans

    def flush(self) -> None:
        """Flush these."""
        for plan in self._plans.touched():
            if plan.flushes_early:
                plan.flush()
