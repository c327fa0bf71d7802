"""The query streamer: evaluate, wait until something expires, evaluate that again."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from annotations.clock import Clock, ManualClock
from annotations.instants import shifted
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Change, Solution
from tpf_client.dataflow.operators.basic import Output
from tpf_client.errors import ClosedError, ServiceError, SourceError, UnstableError
from tpf_client.fragments.fetcher import Fetcher, Statistics
from tpf_client.planner.budget import Budget
from tpf_client.planner.driver import Ask, Driver, Steps, Task, Waking, answered
from tpf_client.planner.evaluation import Evaluation, Learned, planned
from tpf_client.planner.leaves import FragmentLeaves
from tpf_client.planner.live_fragment import Freshness
from tpf_client.planner.service import Services
from tpf_client.sparql.algebra import Row
from tpf_client.streaming.change_signal import ChangeSignals
from tpf_client.streaming.detection import Detected, detect_all
from tpf_client.streaming.validity import Span, Validity

# When to evaluate next.

_ZERO = timedelta(0)
_RETRY: Final = timedelta(seconds=1)
"""The first pause after a failure, doubled up to `_MAX_RETRY`."""
_MAX_RETRY: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of a continuous query's evaluations.

    Args:
        max_interval: ``None``: until something expires.
        every: a fixed period, whatever expires.
        jitter: the most random delay, so that many clients do not come at once.
        least: a lower bound whatever the settings: no busy loop.
    """

    min_interval: timedelta = _ZERO
    max_interval: timedelta | None = None
    every: timedelta | None = None
    jitter: timedelta = _ZERO
    least: timedelta = timedelta(milliseconds=100)
    chance: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def next(self, evaluated_at: datetime, due: datetime | None) -> datetime | None:
        """Return the instant of the next evaluation; ``None``: never.

        `due` is when the first fact read expires.
        """
        if self.every is not None:
            instant: datetime | None = shifted(evaluated_at, self.every)
        else:
            instant = due
            if self.max_interval is not None:
                latest = shifted(evaluated_at, self.max_interval)
                instant = latest if instant is None else min(instant, latest)
        if instant is None:
            return None
        earliest = shifted(evaluated_at, max(self.min_interval, self.least))
        return shifted(max(instant, earliest), self._some(self.jitter))

    def pause(self, failures: int) -> timedelta:
        """Return the pause after so many failures in a row: a half of it at random."""
        longest: timedelta = min(_RETRY * 2 ** min(failures - 1, 16), _MAX_RETRY)
        return longest / 2 + self._some(longest / 2)

    def _some(self, most: timedelta) -> timedelta:
        part: float = self.chance.random()
        return most * part


# What a continuous query hears of changes, and how that shortens its waiting.

SAFETY: Final = timedelta(minutes=5)
"""How often fragments are looked at all the same, whose server tells what changes."""


class ChangeListener:
    """Collect the signals of one query until it is evaluated."""

    def __init__(self, signals: ChangeSignals, wake: Callable[[], object]) -> None:
        self._signals = signals
        self._wake = wake
        self._lock = threading.Lock()
        self._urls: Sequence[str] = ()
        self._ends: list[Callable[[], None]] = []
        self._up: dict[str, bool] = {}
        self._interest: frozenset[str] | None = None
        self._changed: set[str] = set()
        self._all = False
        self._ended = False
        self.news = False
        """Whether something was heard since the query last looked."""

    def follow(self, urls: Sequence[str]) -> None:
        """Listen at these URLs from now on, and nowhere else."""
        if urls == self._urls or self._ended:
            return
        ends, self._ends, self._urls = self._ends, [], urls
        for end in ends:
            end()
        with self._lock:
            self._up = dict.fromkeys(urls, False)
        for url in urls:
            self._ends.append(self._signals.follow(url, self._heard_at(url)))

    def _heard_at(self, url: str) -> Callable[[bool, frozenset[str] | None], None]:
        def heard(up: bool, predicates: frozenset[str] | None) -> None:
            with self._lock:
                turned = self._up.get(url) != up
                self._up[url] = up
                if predicates is None:
                    self._all = True
                else:
                    interest = self._interest
                    mine = predicates if interest is None else predicates & interest
                    self._changed |= mine
                    if not mine and not turned:
                        return
                self.news = True
            self._wake()

        return heard

    def tell(self, evaluation: Evaluation) -> None:
        """Hand the signals received to an evaluation that begins."""
        with self._lock:
            self.news = False
            # What it comes to look at meanwhile is of interest, too.
            self._interest = None
            changed, self._changed = frozenset(self._changed), set()
            every, self._all = self._all, False
            up = bool(self._up) and all(self._up.values())
        evaluation.expect_signals(SAFETY if up else None)
        if every or changed:
            evaluation.mark(None if every else changed)

    def wait(
        self, wake: datetime, clock: Clock, schedule: Schedule, evaluation: Evaluation
    ) -> Generator[datetime, None, bool]:
        """Yield instants to wait for, until `wake`; return whether a signal came before."""
        with self._lock:
            self._interest = evaluation.predicates()
        soonest = shifted(clock.now(), max(schedule.min_interval, schedule.least))
        heard = False
        while clock.now() < wake and not self._ended:
            with self._lock:
                heard, self.news = heard or self.news, False
            if not heard:
                yield wake
            elif clock.now() < soonest:
                yield min(soonest, wake)
            else:
                return True
        return False

    def close(self) -> None:
        self._ended = True
        ends, self._ends = self._ends, []
        for end in ends:
            end()


# A continuous query as it is planned now, until it has to be planned anew.

LEAST_TERMS = 10_000
"""So many terms are never too many to keep."""


@dataclass(slots=True)
class PlannedQuery:
    """A planned query: its dataflow, and the part of its answer already sent."""

    detected: Detected
    evaluation: Evaluation
    leaves: FragmentLeaves
    output: Output
    validity: Validity
    terms: int | None = None
    """How many terms its first evaluation met."""

    @property
    def outgrown(self) -> bool:
        """True if most of its terms are gone: planning again drops their identifiers."""
        terms = len(self.evaluation.dictionary)
        return self.terms is not None and terms > 2 * max(self.terms, LEAST_TERMS)

    def measure(self) -> None:
        if self.terms is None:
            self.terms = len(self.evaluation.dictionary)

    def now(self) -> datetime:
        return self.evaluation.source.now()

    def row(self, solution: tuple[int, ...]) -> Row:
        decode = self.evaluation.dictionary.decode
        return tuple([decode(each) if each else None for each in solution])

    def encode(self, row: Row) -> Solution:
        encode = self.evaluation.dictionary.encode
        return tuple([UNBOUND if term is None else encode(term) for term in row])

    def decode(self, changes: Sequence[Change]) -> list[Row]:
        return [row for solution, count in changes for row in [self.row(solution)] * count]

    def told_rows(self) -> list[Row]:
        """Return the answer as last sent; without order after a failure."""
        changes = self.output.changes()
        if not changes:
            return self.rows()
        now = self.output.multiset()
        for solution, count in changes:
            now[solution] -= count
        return [self.row(each) for each, count in now.items() for _ in range(count)]

    def rows(self) -> list[Row]:
        return [self.row(each) for each in self.output.rows()]

    def late_rows(self, at: datetime) -> list[Row]:
        if not self.validity.any_late:
            # Nothing is to be looked at for each row, tick by tick.
            return []
        late = self.validity.late(self.output.multiset().items(), at)
        return [self.row(each) for each in late]

    def timed_rows(self, at: datetime) -> list[tuple[Row, Span]]:
        counts = list(self.output.multiset().items())
        spans = zip(counts, self.validity.spans(counts, at), strict=True)
        left = {solution: iter(copies) for (solution, _), copies in spans}
        return [(self.row(each), next(left[each])) for each in self.output.rows()]


# What a continuous query tells of one evaluation.


@dataclass(frozen=True, slots=True)
class Tick:
    """One evaluation, in terms; instants are on the server's clock.

    `valid_until` is when the first fact read expires; after an `error` nothing changed; `late` rows
    are present by grace alone.
    """

    at: datetime
    variables: tuple[Variable, ...]
    added: list[Row]
    spans: list[Span]
    removed: list[Row]
    answer: Callable[[], list[Row]]
    timed_answer: Callable[[], list[tuple[Row, Span]]]
    valid_until: datetime | None
    error: SourceError | None = None
    warnings: tuple[str, ...] = ()
    dynamic: bool = True
    wakes_at: datetime | None = None
    late: Sequence[Row] = ()


def _changes(old: Sequence[Solution], new: Sequence[Solution], ordered: bool) -> list[Change]:
    """Return what makes an answer of another: all of it where what stays has moved."""
    gone, come = Counter(old), Counter(new)
    stays = gone & come
    if ordered and [each for each in old if each in stays] != [s for s in new if s in stays]:
        stays.clear()
    rest = (gone - stays).items()
    return [*(come - stays).items(), *[(each, -count) for each, count in rest]]


SERVICE_RETRY = timedelta(seconds=60)
"""How long a SILENT service that failed is left out, where nothing else says."""
MANY_WARNINGS = 1_000
"""So many warnings are told of one query."""

Build: TypeAlias = Callable[[FragmentLeaves, Evaluation], Output]
"""Builds the dataflow of a query on its leaves."""
Budgets: TypeAlias = Callable[[], AbstractContextManager[Budget]]
"""Gives the budget of an evaluation, for as long as that lasts."""


_FRESHNESS: Final = Freshness(static_recheck=timedelta(seconds=60))


@dataclass(frozen=True, slots=True)
class StreamingPlan:
    """How a continuous query is kept up to date.

    Args:
        keep_checking: how often to look for new annotations; ``None``: a query with nothing dynamic
            ends.
        quiet: yield evaluations without changes, too.
        past: a clock by which history is replayed.
        services: failed SILENT services that `build` leaves out.
        budgets: entered for each evaluation; gives its budget.
        signals: of servers that say what changes.
    """

    schedule: Schedule = field(default_factory=Schedule)
    freshness: Freshness = _FRESHNESS
    until: datetime | None = None
    keep_checking: timedelta | None = None
    quiet: bool = False
    past: ManualClock | None = None
    vocabulary: Vocabulary = DEFAULT_VOCABULARY
    services: Services | None = None
    budgets: Budgets | None = None
    explain: bool = False
    signals: ChangeSignals | None = None


class Streamer:
    """One continuous query."""

    def __init__(
        self,
        fetcher: Fetcher,
        urls: Sequence[str],
        build: Build,
        clock: Clock,
        how: StreamingPlan | None = None,
    ) -> None:
        self._how = how = how or StreamingPlan()
        self.began = clock.now()
        self.took = timedelta(0)
        self._budget: Budget | None = None
        self._fetcher = fetcher
        self._urls = urls
        self._build = build
        self.clock = clock
        self.driver = Driver(fetcher)
        self._listener: ChangeListener | None = None
        if how.signals is not None:
            self._listener = ChangeListener(how.signals, self.driver.wake)
        self._reported: set[str] = set()
        self._changes: datetime | None = None
        self._detected_until: datetime | None = None
        self._late: Sequence[Row] = ()
        self.running: PlannedQuery | None = None
        self.evaluations = 0

    @property
    def pages(self) -> int:
        """The number of pages read so far, cached ones included."""
        return self.driver.requests

    @property
    def work(self) -> Statistics:
        """The requests made for it so far, and cache hits."""
        return replace(self.driver.work)

    def now(self) -> datetime:
        """The present on the server's clock, as far as that is known."""
        return self.clock.now() if self.running is None else self.running.now()

    @property
    def closed(self) -> bool:
        return self.driver.closed

    @property
    def early(self) -> bool:
        """True if it must go on before the instant that it named."""
        return self.closed or (self._listener is not None and self._listener.news)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self.driver.close()

    def ticks(self) -> Iterator[Tick]:
        """Evaluate now, and again whenever something expires, until closed."""
        woken = threading.Event()
        with closing(self.looks(woken.set)) as looks:
            for step in looks:
                if isinstance(step, Tick):
                    yield step
                    continue
                while not self.clock.wait_until(step, woken):
                    woken.clear()
                    if self.early:
                        break
                if self.closed:
                    return

    def looks(self, wake: Waking | None = None) -> Generator[Tick | datetime]:
        """Yield as `steps` does, but send requests and wait for them in this thread."""
        return answered(self.steps(), self.driver, wake)

    def steps(self) -> Generator[Ask | Tick | datetime]:
        """Evaluate again and again without I/O or waiting; see `ticks` for errors.

        Yields requests, ticks, and the instants, on our clock, to go on at.
        """
        try:
            for step in self._limited(self._steps()):
                if self._how.past is not None and isinstance(step, datetime):
                    self._how.past.advance_to(step)
                else:
                    yield step
        except ClosedError:
            return
        finally:
            self.close()

    def _limited(self, steps: Iterator[Ask | Tick | datetime]) -> Generator[Ask | Tick | datetime]:
        if self._how.budgets is None:
            yield from steps
            return
        while True:
            with self._how.budgets() as budget, budget.explaining():
                self._budget = budget
                budget.on_stop(self.driver.close)
                while isinstance(step := next(steps, None), Ask):
                    yield step
                if budget.error is not None:
                    raise budget.error
            if step is None:
                return
            yield step

    def _guard(self, solution: Solution, count: int) -> None:
        if self._budget is not None:
            self._budget.pass_change(solution, count)

    def _steps(self) -> Generator[Ask | Tick | datetime]:
        detected = yield from self.driver.run(self._detect())
        running = yield from self._start(detected)
        first, anew, failures, checked_at = True, False, 0, running.now()
        before: list[Row] | None = None
        waited: datetime | None = None
        while True:
            self.began = self.clock.now()
            try:
                self.driver.begin()
                if not first and self._should_check(running, checked_at):
                    checked_at = running.now()
                    detected = detected.extended((yield from self.driver.run(self._detect())))
                # Where planning fails, the next evaluation plans.
                anew = anew or (not first and self._forgive())
                if anew or running.outgrown or not detected.like(running.detected):
                    before = running.told_rows() if before is None else before
                    running = yield from self._start(detected)
                    anew = False
                # Later bounds of the server's clock may be wider than those that we waited by.
                reached = running.now() if waited is None else max(running.now(), waited)
                if self._listener is not None:
                    self._listener.follow(running.detected.signals)
                    self._listener.tell(running.evaluation)
                at = yield from running.evaluation.bring_up_to(reached)
            except ServiceError as error:
                self._leave_out(error)
                anew = True
                continue
            except SourceError as error:
                # Facts that expire faster than they are read today may be read in time later.
                lasting = first and not failures and not isinstance(error, UnstableError)
                if lasting or self._how.past is not None:
                    raise
                failures += 1
                pause = self._how.schedule.pause(failures)
                again = shifted(running.now(), pause)
                over = self._is_over(again)
                yield self._failure(running, error, None if over else again, before)
                if over:
                    return
                yield from self._pause(self.clock.now() + pause, running)
                waited = None
                continue
            self.evaluations += 1
            self.took = self.clock.now() - self.began
            running.measure()
            tick = self._tick(running, at, before)
            before = None
            instant = self._next(tick, checked_at)
            news = tick.added or tick.removed or tick.warnings or tick.late != self._late
            self._late = tick.late
            if first or failures or self._how.quiet or news:
                yield replace(tick, wakes_at=instant)
            first, failures = False, 0
            if instant is None:
                return
            early = yield from self._pause(running.evaluation.source.wake_at(instant), running)
            waited = None if early else instant

    def _pause(self, wake: datetime, running: PlannedQuery) -> Generator[datetime, None, bool]:
        if self._listener is None:
            yield wake
            return False
        schedule, evaluation = self._how.schedule, running.evaluation
        return (yield from self._listener.wait(wake, self.clock, schedule, evaluation))

    def _next(self, tick: Tick, checked_at: datetime) -> datetime | None:
        due = tick.valid_until
        if not tick.dynamic:
            if self._how.keep_checking is None:
                return None
            due = shifted(checked_at, self._how.keep_checking)
        instant = self._how.schedule.next(tick.at, due)
        return None if instant is None or self._is_over(instant) else instant

    def _is_over(self, instant: datetime) -> bool:
        return self._how.until is not None and instant > self._how.until

    def _detect(self) -> Task[Detected]:
        vocabulary, past = self._how.vocabulary, self._how.past
        detected = yield from detect_all(self._fetcher, self._urls, vocabulary, past)
        self._changes = detected.changes
        self._detected_until = detected.fresh_until
        return detected

    def _start(self, detected: Detected) -> Steps[PlannedQuery]:
        while True:
            try:
                self.running = yield from planned(self.driver, partial(self._planned, detected))
            except ServiceError as error:
                self._leave_out(error)
            else:
                return self.running

    def _leave_out(self, error: ServiceError) -> None:
        if self._how.services is None:
            raise error
        self._how.services.fail(error, self.clock.now())

    def _forgive(self) -> bool:
        if self._how.services is None or not self._how.services.failed:
            return False
        period = self._how.keep_checking or self._how.freshness.static_recheck or SERVICE_RETRY
        return self._how.services.forgive(self.clock.now() - period)

    def _planned(self, detected: Detected, learned: Learned) -> PlannedQuery:
        evaluation = Evaluation(
            self.driver,
            detected.source,
            freshness=self._how.freshness,
            learned=learned,
            guard=None if self._how.budgets is None else self._guard,
        )
        leaves = FragmentLeaves(evaluation, explain=self._how.explain)
        output = self._build(leaves, evaluation)
        labelled = all(each.how != "freshness" for each in detected.datasets)
        validity = Validity(evaluation, output.core, labelled=labelled)
        return PlannedQuery(detected, evaluation, leaves, output, validity)

    def _should_check(self, running: PlannedQuery, checked_at: datetime) -> bool:
        if running.detected.settled:
            return False
        if running.detected.how == "freshness" or self._how.past is not None:
            # There may just be no labelled fact at the moment; a replay is to show every state.
            return True
        now = running.now()
        if any(each is not None and now >= each for each in (self._changes, self._detected_until)):
            return True
        period = self._how.keep_checking or self._how.freshness.static_recheck
        return period is not None and now >= shifted(checked_at, period)

    def _tick(self, running: PlannedQuery, at: datetime, before: list[Row] | None) -> Tick:
        changes = running.output.take_changes()
        if before is not None:
            # Planned anew: this dataflow does not know what was there before.
            told = [running.encode(row) for row in before]
            changes = _changes(told, list(running.output.rows()), running.output.ordered)
        come = [(each, n) for each, n in changes if n > 0]
        removed = [(each, -n) for each, n in changes if n < 0]
        spans = running.validity.spans(come, at)
        all_warnings = dict.fromkeys([*running.detected.warnings, *running.evaluation.warnings])
        running.evaluation.warnings.clear()
        warnings = tuple(each for each in all_warnings if each not in self._reported)
        if len(self._reported) < MANY_WARNINGS:
            self._reported.update(warnings)
        else:
            warnings = ()
        return Tick(
            at,
            running.output.variables,
            added=running.decode(come),
            spans=[span for copies in spans for span in copies],
            removed=running.decode(removed),
            answer=running.rows,
            timed_answer=partial(running.timed_rows, at),
            valid_until=self._valid_until(running, at),
            warnings=warnings,
            dynamic=running.detected.how != "static",
            late=running.late_rows(at),
        )

    def _valid_until(self, running: PlannedQuery, at: datetime) -> datetime | None:
        instants = [self._changes] if self._changes is not None and self._changes > at else []
        wake = running.evaluation.wake_at()
        if wake is not None:
            instants.append(max(wake, at))
        return min(instants, default=None)

    def _failure(
        self,
        running: PlannedQuery,
        error: SourceError,
        again: datetime | None,
        before: list[Row] | None,
    ) -> Tick:
        now = running.now()

        def last_answer() -> list[Row]:
            return running.told_rows() if before is None else before

        return Tick(
            now,
            running.output.variables,
            added=[],
            spans=[],
            removed=[],
            answer=last_answer,
            timed_answer=lambda: [(row, Span(None, now)) for row in last_answer()],
            valid_until=None,
            error=error,
            wakes_at=again,
            late=self._late,
        )
