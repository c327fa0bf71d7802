"""A parsed RSP-QL query: policies and windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import gcd, lcm
from operator import attrgetter
from typing import Final, Literal, TypeAlias, get_args

from annotations.terms import TermOrVariable
from tpf_server.continuous.csparql.csparql_query import (
    CsparqlQuery,
    Instants,
    LogicalWindow,
    Occurrence,
    PhysicalWindow,
    SteppedWindow,
)

# When a query of RSP-QL answers, and what of its answer it streams: the policies of the model.
#
# A report is made at an instant where all strategies of the policy hold, for one of the windows:
#
# ==================  ==========================================================================
# window close        a window closes then periodic            the instant is a multiple of the
# period content change      other elements are in the window than when the query last answered
# non-empty content   elements are in the window
# ==================  ==========================================================================
#
# The tick says where it is looked for such instants:
#
# =====  =======================================================================================
# time   at all batch  where elements have come, after all with one timestamp: the last one since
# the tick before tuple  at each element, in the order of arrival: the last one since the tick
# before that had
#        passed, for window close and periodic; otherwise the instant of the element
# =====  =======================================================================================
#
# Source: paper 005, sections 3 and 4, after the SECRET model of Botan and others (VLDB 2010).

StreamOperator: TypeAlias = Literal["ISTREAM", "DSTREAM", "RSTREAM"]
"""What is streamed: what an answer has more than the one before, what it has less, or all of it."""

TickPolicy: TypeAlias = Literal["time", "batch", "tuple"]

STREAM_OPERATORS: Final[tuple[StreamOperator, ...]] = get_args(StreamOperator)
TICKS: Final[tuple[TickPolicy, ...]] = get_args(TickPolicy)


@dataclass(frozen=True, slots=True)
class ReportPolicy:
    """Conditions of an answer; all must hold.

    Args:
        period: of ``periodic``, in milliseconds.
    """

    window_close: bool = False
    content_change: bool = False
    non_empty: bool = False
    period: int | None = None

    @property
    def timing(self) -> bool:
        """True where time decides the instants."""
        return self.window_close or self.period is not None

    @property
    def content(self) -> bool:
        """True where content matters."""
        return self.content_change or self.non_empty

    def __str__(self) -> str:
        said = (
            (self.window_close, "window close"),
            (self.content_change, "content change"),
            (self.non_empty, "non-empty content"),
            (self.period is not None, f"periodic {self.period}ms"),
        )
        return ", ".join(name for holds, name in said if holds)


WINDOW_CLOSE: Final = ReportPolicy(window_close=True)
"""The default, as of YASPER and RSP4J."""


@dataclass(frozen=True, slots=True)
class Progression:
    """The instants first, first + step, first + 2 step and so on."""

    first: int
    step: int

    def at_or_after(self, at: int) -> int:
        """The first at or after an instant."""
        return max(self.first, self.first - (self.first - at) // self.step * self.step)

    def at_or_before(self, at: int) -> int | None:
        """The last at or before an instant."""
        if at < self.first:
            return None
        return self.first + (at - self.first) // self.step * self.step

    def multiples(self, period: int) -> "Progression | None":
        """Those that are multiples of a period, if any."""
        common = gcd(self.step, period)
        if self.first % common:
            return None
        modulus = period // common
        steps = -(self.first // common) * pow(self.step // common, -1, modulus) % modulus
        return Progression(self.first + steps * self.step, lcm(self.step, period))


# The windows of RSP-QL: which elements they hold at an instant, and when they close.
#
# A sliding window of width α and slide β that begins at t0 is a sequence of fixed windows (o, c]:
# the first opens at t0, each is α wide, and opens β after the one before. At an instant t the
# *present* window is the one of those with o < t <= c that closes first; what the query sees are
# its elements up to t. (Where β is longer than α there are instants without a present window.) A
# window in the past, ``FROM NOW-a TO NOW-b``, is that of α = a - b, seen b later.
#
# Source: paper 005, section 3; paper 006 for windows in the past and those that count.

_NUMBER: Final = attrgetter("number")


@dataclass(frozen=True, slots=True)
class SlidingWindow(LogicalWindow):
    """``[RANGE range STEP step]``, in milliseconds.

    Args:
        start: t0; elements up to it are in no window.
        past: delay of the content.
        own: arrivals of its query move it, so it is not shared.
    """

    start: int = 0
    past: int = 0
    own: bool = False

    @property
    def shared(self) -> bool:
        """True where queries may share it."""
        return not self.own

    @property
    def closing(self) -> Progression:
        """The instants at which windows close."""
        return Progression(self.start + self.range + self.past, self.step)

    def closes(self, at: int) -> int:
        """The close of the present window at an instant."""
        return self.closing.at_or_after(at)

    def closed(self, at: int) -> int | None:
        """The last close up to an instant."""
        return self.closing.at_or_before(at)

    def bounds(self, at: int) -> tuple[int, int]:
        """Timestamps at an instant are in (lower, upper]."""
        return self.closes(at) - self.past - self.range, at - self.past

    def leaves(self, timestamp: int) -> int:
        """The first instant after an element has left."""
        # It is in the windows that open before it; the last of them that is not the present one.
        return self.closing.at_or_after(timestamp + self.past + self.range) - self.step + 1

    def __str__(self) -> str:
        if self.past:
            beginning = f"FROM NOW-{self.range + self.past}ms TO NOW-{self.past}ms STEP"
            text = f"{beginning} {self.step}ms"
        else:
            text = f"RANGE {self.range}ms STEP {self.step}ms"
        return text + (f" STARTING AT {self.start}ms" if self.start else "")


@dataclass(frozen=True, slots=True)
class ElementWindow(PhysicalWindow):
    """``[ELEMENTS count STEP step]``: the last elements; it closes every `step` elements."""

    def full(self, inside: Sequence[Occurrence]) -> bool:
        """True where the oldest element expires."""
        numbers = groupby(map(_NUMBER, inside))
        return sum(1 for _ in numbers) > self.count

    def __str__(self) -> str:
        return f"ELEMENTS {self.count} STEP {self.step}"


@dataclass(frozen=True, slots=True)
class ReportInstants(Instants):
    """The instants of any of these progressions."""

    progressions: tuple[Progression, ...] = ()

    def first(self, at: int) -> int:
        """The first at or after `at`."""
        return min(each.at_or_after(at) for each in self.progressions)

    def last(self, at: int) -> int | None:
        """The last at or before `at`."""
        result = [each.at_or_before(at) for each in self.progressions]
        return max((each for each in result if each is not None), default=None)


def report_instants(report: ReportPolicy, windows: Sequence[SteppedWindow]) -> ReportInstants:
    """The instants of window close and periodic together, if any."""
    period = report.period
    sliding = [each for each in windows if isinstance(each, SlidingWindow)]
    if report.window_close:
        closing = [each.closing for each in sliding]
        result = closing if period is None else [each.multiples(period) for each in closing]
    elif period is not None:
        result = [Progression(0, period)]
    else:
        result = []
    progressions = tuple(each for each in result if each is not None)
    return ReportInstants(tuple(each.step for each in progressions), progressions)


@dataclass(frozen=True, slots=True)
class RspqlQuery(CsparqlQuery):
    """A query of RSP-QL.

    Args:
        graphs: of the triples of the template, in order.
    """

    operator: StreamOperator = "RSTREAM"
    report: ReportPolicy = WINDOW_CLOSE
    tick: TickPolicy = "time"
    graphs: tuple[TermOrVariable | None, ...] = ()

    @property
    def instants(self) -> Instants:
        """The instants that time decides; none where elements do."""
        if self.tick != "time" or not self.report.timing:
            return Instants(())
        return report_instants(self.report, [clause.window for clause in self.streams])

    @property
    def said(self) -> str:
        """Its policies."""
        return f"{self.operator}, report: {self.report}, tick: {self.tick}"

    @property
    def continuous(self) -> bool:
        """True."""
        return True
