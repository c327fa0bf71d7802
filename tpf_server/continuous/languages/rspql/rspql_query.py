"""A parsed RSP-QL query: policies, windows, and triggers."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias, get_args

from annotations.terms import (
    Term,
)
from tpf_server.continuous.runtime.clock import NEVER
from tpf_server.continuous.runtime.instants.csparql_query import (
    CsparqlQuery,
    Instants,
    LogicalWindow,
    Occurrence,
    PhysicalWindow,
    Progression,
    SteppedWindow,
    StreamOperator,
    Trigger,
)

# When a query of RSP-QL answers, and what of its answer it streams: the policies of the model.
#
# A report is made at an instant where all strategies of the policy hold, for one of the windows:
#
# ==================  ==========================================================================
# window close        a window closes then
# periodic            the instant is a multiple of the period
# content change      other elements are in the window than when the query last answered
# non-empty content   elements are in the window
# ==================  ==========================================================================
#
# The tick says where it is looked for such instants:
#
# =====  =======================================================================================
# time   at all
# batch  where elements have come, after all with one timestamp: the last one since the tick before
# tuple  at each element, in the order of arrival: the last one since the tick before that had
#        passed, for window close and periodic; otherwise the instant of the element
# =====  =======================================================================================
#
# Source: paper 005, sections 3 and 4, after the SECRET model of Botan and others (VLDB 2010).

TickPolicy: TypeAlias = Literal["time", "batch", "tuple"]

STREAM_OPERATORS: Final[tuple[StreamOperator, ...]] = get_args(StreamOperator)
TICKS: Final[tuple[TickPolicy, ...]] = get_args(TickPolicy)


@dataclass(frozen=True, slots=True)
class ReportPolicy:
    """Conditions of an answer, all of which must hold; the period is in milliseconds."""

    window_close: bool = False
    content_change: bool = False
    non_empty: bool = False
    period: int | None = None

    @property
    def timing(self) -> bool:
        return self.window_close or self.period is not None

    @property
    def content(self) -> bool:
        return self.content_change or self.non_empty

    def __str__(self) -> str:
        strategies = (
            (self.window_close, "window close"),
            (self.content_change, "content change"),
            (self.non_empty, "non-empty content"),
            (self.period is not None, f"periodic {self.period}ms"),
        )
        return ", ".join(name for holds, name in strategies if holds)


WINDOW_CLOSE: Final = ReportPolicy(window_close=True)
"""The default, as of YASPER and RSP4J."""


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
        return not self.own

    @property
    def closing(self) -> Progression:
        return Progression(self.start + self.range + self.past, self.step)

    def closes(self, at: int) -> int:
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
        numbers = groupby(map(_NUMBER, inside))
        return sum(1 for _ in numbers) > self.count

    def __str__(self) -> str:
        return f"ELEMENTS {self.count} STEP {self.step}"


def report_instants(report: ReportPolicy, windows: Sequence[SteppedWindow]) -> Instants:
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
    return Instants(tuple(dict.fromkeys(each for each in result if each is not None)))


# Which elements are in windows, as far as report policies ask for it.

_SPARE: Final = 256

WindowContent: TypeAlias = tuple[object, ...] | None
"""Equal for equal contents of a window; ``None`` where it is empty."""


class SlidingMarks:
    """Timestamps of the elements of a window over time."""

    def __init__(self, window: SlidingWindow) -> None:
        self.window = window
        self._marks: list[tuple[int, int]] = []

    def add(self, at: int, number: int) -> None:
        insort(self._marks, (at, number))

    def later(self, at: int) -> Sequence[object]:
        return self._marks[bisect_right(self._marks, self.window.bounds(at)[0], key=_timestamp) :]

    def closes(self, at: int) -> bool:
        return self.window.closed(at) == at

    def content(self, at: int) -> WindowContent:
        lower, upper = self.window.bounds(at)
        begin = bisect_right(self._marks, lower, key=_timestamp)
        end = bisect_right(self._marks, upper, key=_timestamp)
        if begin >= end:
            return None
        # Marks are only added, so that as many between the same two are the same.
        return self._marks[begin], self._marks[end - 1], end - begin

    def newest(self, at: int) -> int:
        """The number of the last element in the window at an instant, or 0."""
        end = bisect_right(self._marks, self.window.bounds(at)[1], key=_timestamp)
        return self._marks[end - 1][1] if self.content(at) else 0

    def seen(self, at: int, until: int, since: int) -> list[tuple[int, int]]:
        """Return the elements in the window at an instant with numbers after one, up to another."""
        lower, upper = self.window.bounds(at)
        begin, end = (bisect_right(self._marks, each, key=_timestamp) for each in (lower, upper))
        return [each for each in self._marks[begin:end] if since < each[1] <= until]

    def leaving(self, at: int) -> int | None:
        """The first instant from `at` on at which an element leaves."""
        index = bisect_left(self._marks, at, key=lambda mark: self.window.leaves(mark[0]))
        return None if index == len(self._marks) else self.window.leaves(self._marks[index][0])

    def forget(self, at: int) -> None:
        if len(self._marks) > _SPARE:
            lower, _ = self.window.bounds(at)
            gone = bisect_right(self._marks, lower, key=_timestamp)
            if 2 * gone > len(self._marks):
                del self._marks[:gone]


class ElementMarks:
    """Count the elements of a window that counts them; `closed` until somebody asks."""

    def __init__(self, window: ElementWindow) -> None:
        self.window = window
        self.closed = False
        self._came = self._last = 0

    def add(self, at: int, number: int) -> None:  # noqa: ARG002
        self._came += 1
        self._last = number
        self.closed = self._came % self.window.step == 0

    def closes(self, at: int) -> bool:  # noqa: ARG002
        return self.closed

    def content(self, at: int) -> WindowContent:  # noqa: ARG002
        return (self._last,) if self._came else None

    def later(self, at: int) -> Sequence[object]:  # noqa: ARG002
        return self._last, self._came % self.window.step

    def leaving(self, at: int) -> int | None:  # noqa: ARG002
        return None

    def forget(self, at: int) -> None:  # noqa: ARG002
        self.closed = False


def _timestamp(mark: tuple[int, int]) -> int:
    return mark[0]


class ReportTrigger(Trigger):
    """The trigger of queries with a report and a tick policy.

    Window close and periodic with TICK TIME have instants, as C-SPARQL. All others are decided by
    elements: with TICK TIME where content enters or leaves a window; with TICK BATCH once for each
    timestamp; with TICK TUPLE at each element: for windows that closed before it, and for those
    that it closes or changes.
    """

    widens = False

    def __init__(self, query: "RspqlQuery", since: int) -> None:
        super().__init__(query.instants, query.streams, since)
        self._report, self._tick = query.report, query.tick
        self.key = self.key, self._report, self._tick
        self._clauses = query.streams
        windows = [clause.window for clause in query.streams]
        self._reports = report_instants(query.report, windows)
        self._marks: dict[Term, SlidingMarks | ElementMarks] = {}
        # Of windows of both kinds it matters which of them closes.
        counted = any(isinstance(each, ElementWindow) for each in windows)
        for clause in query.streams:
            if clause.in_graphs:
                continue  # the same elements as in the window itself
            if isinstance(clause.window, ElementWindow):
                self._marks[clause.graph] = ElementMarks(clause.window)
            elif isinstance(clause.window, SlidingWindow) and (query.report.content or counted):
                self._marks[clause.graph] = SlidingMarks(clause.window)
        self._by_time = query.tick == "time"
        self.decides = not self._by_time or not query.report.timing
        self.by_elements = query.tick == "tuple"
        self.timed = not self.by_elements
        self.follows = bool(self._marks) or self.decides
        self._planned: list[int] = []
        self._begun: int | None = None
        self._looked = NEVER
        self._contents: dict[Term, WindowContent] = dict.fromkeys(self._marks)
        self._number = 0
        self._before = self._decided = (NEVER, 0)
        self._entered: bool | None = None
        # Queries that see other elements are told apart where each change is reported at once: then
        # what changed for one is known from the look before.
        at_once = self.by_elements and not query.report.timing
        marks = [each for each in self._marks.values() if isinstance(each, SlidingMarks)]
        splits = at_once and not counted and not any(each.window.past for each in marks)
        self._apart = marks if splits else []

    def came_before(self, newest: int) -> None:
        """See `Trigger`: windows that others share are there already."""
        if self.by_elements:
            self._looked = newest

    def coming(self, at: int) -> int | None:
        """See `Trigger`: what has closed before an element, by tuples and in batches."""
        if self._begun is None or at < self._begun:
            self._begun = at
        if self._by_time or not self._report.timing:
            return None
        since = self._begun
        if self.by_elements:
            since, at = max(self._looked, since), max(at, self._looked) - 1
        last = self._reports.last(at)
        if last is None or last < since:
            return None
        if not self.by_elements:
            self._plan(last)
        return last

    def came(self, stream: Term, at: int, number: int) -> bool:
        """See `Trigger`: in windows now, or later."""
        here = [each for each in self._clauses if each.stream == stream]
        for each in here:
            if each.graph in self._marks:
                self._marks[each.graph].add(at, number)
        self._number = number
        if self.by_elements:
            self._looked = max(self._looked, at)
        if self.by_elements or self._report.timing:
            return False
        result = [self._plan(at)] if not self._by_time else []
        result += [
            self._plan(at + each.window.past)
            for each in here
            if self._by_time and isinstance(each.window, SlidingWindow)
        ]
        return any(result)

    def _plan(self, at: int) -> bool:
        index = bisect_left(self._planned, at)
        if index == len(self._planned) or self._planned[index] != at:
            self._planned.insert(index, at)
        return True

    def wanted(self, done: int) -> int | None:
        if self._report.timing:
            # What was closed is looked at once, whatever others have seen meanwhile.
            index = bisect_left(self._planned, self._looked + 1)
            return self._planned[index] if index < len(self._planned) else None
        result = [max(self._planned[0], done + 1)] if self._planned else []
        if self._by_time:
            leaving = (each.leaving(done + 1) for each in self._marks.values())
            result += [at for at in leaving if at is not None]
        return min(result, default=None)

    def due_first(self, at: int) -> int | None:
        return self.wanted(at - 1) if self.decides else super().due_first(at)

    def due_after(self, at: int) -> int | None:
        if not self.decides:
            return super().due_after(at)
        del self._planned[: bisect_left(self._planned, at + 1)]
        self._looked = max(self._looked, at)
        return self.wanted(at)

    def due_at_end(self, at: int) -> int:
        return at if self.decides else super().due_at_end(at)

    # ----------------------------------------------------------------------------- answers

    def arrived(self) -> bool:
        """See `Trigger`: time alone closes sliding windows."""
        closed = any(isinstance(m, ElementMarks) and m.closed for m in self._marks.values())
        return closed or not self._report.timing

    def instant(self, at: int) -> int:
        return max(at, self._looked) if self.by_elements else at

    def holds(self, instant: int) -> bool:
        """True where all strategies about windows hold for one of them."""
        self._before, self._decided = self._decided, (instant, self._number)
        if not self._marks:
            return True
        report = self._report
        contents = {name: marks.content(instant) for name, marks in self._marks.items()}
        result = any(
            (not report.window_close or marks.closes(instant))
            and (not report.content_change or contents[name] != self._contents[name])
            and (not report.non_empty or contents[name] is not None)
            for name, marks in self._marks.items()
        )
        self._entered = None
        for marks in self._marks.values():
            marks.forget(self._before[0])
        if result:
            self._contents = contents
        return result

    def concerns(self, since: int) -> bool:
        if since <= self.since or not self._apart:
            return True
        if self._entered is None:
            (at, _), (_, number) = self._decided, self._before
            self._entered = any(each.newest(at) > number for each in self._apart)
        if self._entered:
            return True
        for marks in self._apart:
            now = marks.seen(*self._decided, since)
            changed = not self._report.content_change or now != marks.seen(*self._before, since)
            if changed and (now or not self._report.non_empty):
                return True
        return False

    def equals(self, other: Trigger) -> bool:
        at = self._decided[0]
        return (
            isinstance(other, ReportTrigger)
            and self._decided == other._decided
            and self._looked == other._looked
            and self._planned == other._planned
            and (
                (bool(self._apart) and other.since <= self.since)
                or (
                    self._contents == other._contents
                    and all(
                        marks.later(at) == other._marks[name].later(at)
                        for name, marks in self._marks.items()
                    )
                )
            )
        )


@dataclass(frozen=True, slots=True)
class RspqlQuery(CsparqlQuery):
    """A query of RSP-QL."""

    report: ReportPolicy = WINDOW_CLOSE
    tick: TickPolicy = "time"

    @property
    def instants(self) -> Instants:
        if self.tick != "time" or not self.report.timing:
            return Instants()
        return report_instants(self.report, [clause.window for clause in self.streams])

    @property
    def counts(self) -> bool:
        return self.tick == "tuple"

    @property
    def said(self) -> str:
        return f"{self.operator}, report: {self.report}, tick: {self.tick}"

    @property
    def continuous(self) -> bool:
        return True

    def trigger(self, since: int) -> Trigger:
        return ReportTrigger(self, since)

    def explain(self) -> dict[str, Any]:
        return {"operator": self.operator, "report": str(self.report), "tick": self.tick}
