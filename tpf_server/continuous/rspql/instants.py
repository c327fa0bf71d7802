"""The instants that report policies and windows say: window close and periodic."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm

from tpf_server.continuous.csparql.windows import Instants, SteppedWindow
from tpf_server.continuous.rspql.reports import ReportPolicy
from tpf_server.continuous.rspql.windows import SlidingWindow


@dataclass(frozen=True, slots=True)
class Progression:
    """The instants first, first + step, first + 2 step and so on."""

    first: int
    step: int

    def at_or_after(self, at: int) -> int:
        """The first of them that is not before an instant."""
        return max(self.first, self.first - (self.first - at) // self.step * self.step)

    def at_or_before(self, at: int) -> int | None:
        """The last of them that is not after an instant."""
        if at < self.first:
            return None
        return self.first + (at - self.first) // self.step * self.step

    def multiples(self, period: int) -> "Progression | None":
        """Those of them that are multiples of a period; ``None``: none is."""
        common = gcd(self.step, period)
        if self.first % common:
            return None
        modulus = period // common
        steps = -(self.first // common) * pow(self.step // common, -1, modulus) % modulus
        return Progression(self.first + steps * self.step, lcm(self.step, period))


@dataclass(frozen=True, slots=True)
class ReportInstants(Instants):
    """The instants that a report policy and windows say.

    Args:
        progressions: any of them.
    """

    progressions: tuple[Progression, ...] = ()

    def first(self, at: int) -> int:
        """The first instant that is not before `at`."""
        return min(each.at_or_after(at) for each in self.progressions)

    def last(self, at: int) -> int | None:
        """The last instant that is not after `at`; ``None``: there is none."""
        found = [each.at_or_before(at) for each in self.progressions]
        return max((each for each in found if each is not None), default=None)


def report_instants(report: ReportPolicy, windows: Sequence[SteppedWindow]) -> ReportInstants:
    """What window close and periodic say together.

    There are none where no window closes at a multiple of the period.
    """
    period = report.period
    sliding = [each for each in windows if isinstance(each, SlidingWindow)]
    if report.window_close:
        closing = [Progression(each.first_close, each.step) for each in sliding]
        found = closing if period is None else [each.multiples(period) for each in closing]
    elif period is not None:
        found = [Progression(0, period)]
    else:
        found = []
    progressions = tuple(each for each in found if each is not None)
    return ReportInstants(tuple(each.step for each in progressions), progressions)
