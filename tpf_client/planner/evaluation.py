"""The fragments of one query: read once, or kept up to date."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias, TypeVar

from annotations.instants import LAST
from annotations.labels import Fact
from annotations.terms import QuadPattern, Term, is_variable
from tpf_client.dataflow.changes import Schema, Sink, Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow
from tpf_client.errors import UnstableError
from tpf_client.fragments.form import PATTERN_VARIABLES, Block
from tpf_client.planner.demand import Demand, Need
from tpf_client.planner.driver import PAUSE, Ask, Begin, Driver, Steps, Task
from tpf_client.planner.live_fragment import (
    PLAIN_READING,
    FragmentReading,
    Freshness,
    HeldFacts,
    LiveFragment,
    OnQuadChanges,
    Unlabelled,
    canonical_pattern,
)
from tpf_client.planner.reading import Content, ReadRequest
from tpf_client.planner.source import Estimate, Source

T = TypeVar("T")

# How long fragments are in truth, where their servers' counts are wrong.

SURPRISE = 2
"""How many times as many pages as were promised are a reason to plan anew."""


class Lengths:
    """The fragments that are longer than their servers say."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, QuadPattern], int] = {}

    def learn(self, source: Source, pattern: QuadPattern, pages: int) -> None:
        """Record that a fragment has more than so many pages."""
        self._pages[source.url, canonical_pattern(pattern)] = pages

    def knows(self, source: Source, pattern: QuadPattern) -> bool:
        """True if a fragment is longer than its server says."""
        return (source.url, canonical_pattern(pattern)) in self._pages

    def corrected(self, source: Source, pattern: QuadPattern, estimate: Estimate) -> Estimate:
        """Correct an estimate: an unknown length is four times the pages read."""
        pages = self._pages.get((source.url, canonical_pattern(pattern)))
        if pages is None or estimate.pages is None or estimate.count is None:
            return estimate
        times = SURPRISE**2 * pages / (estimate.pages + 1)
        return replace(
            estimate,
            count=math.ceil(estimate.count * max(times, 1)),
            pages=max(math.ceil(SURPRISE**2 * pages), estimate.pages),
        )


_Name: TypeAlias = tuple[Source, QuadPattern, Block | None]


class _EnoughError(Exception):
    """Ends the reading of a fragment."""


@dataclass(slots=True)
class Learned:
    """Estimates by canonical pattern, and sources of SERVICE, for planning a query."""

    estimates: dict[tuple[Source, QuadPattern], Estimate] = field(default_factory=dict)
    services: dict[Term, Source] = field(default_factory=dict)


class MissingEstimates(Exception):  # noqa: N818 - it is no error: what was begun is begun again
    """A plan needs estimates; `begin` fetches them."""

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        super().__init__("estimates are missing")


def planned(driver: Driver, make: Callable[[Learned], T]) -> Steps[T]:
    """Plan a query, fetching missing estimates, until its plan is complete."""
    learned = Learned()
    while True:
        try:
            return make(learned)
        except MissingEstimates as missing:
            yield from driver.until(missing.begin)


_MAX_PASSES = 8
_TOGETHER = 8
"""Fragments that one request brings at most."""


class Lookups(Protocol):
    """A lookup that holds back requests until it knows how many there are."""

    after: "frozenset[Lookups]"

    @property
    def patient(self) -> bool:
        """True if other results may save it requests."""

    def pump(self, *, complete: bool) -> bool:
        """Send worthwhile requests; return whether any was sent or answered.

        `complete`: nothing under way could bring more keys.
        """

    def scout(self) -> bool:
        """Request the first few keys for early solutions; return success."""

    def scouts(self) -> Sequence[LiveFragment]:
        """Return the fragments being read for the first few."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of a query that requests.

    Args:
        at_rest: it has everything requested.
        results: all results of a looked-up solution; ``None``: there may be more.
        seed: the variables of the seed that it looks up first, if it does.
        choose: restricts it to keys that matter.
        whole: about how many requests it takes to read all that it may need.
        requests: counts the requests for keys that it has sent.
    """

    need: Need
    at_rest: Callable[[], bool]
    results: Callable[[Solution], list[Solution] | None] | None = None
    seed: Schema | None = None
    choose: Callable[[Demand], None] | None = None
    whole: float = 0
    requests: Callable[[], int] = lambda: 0


class Evaluation:
    """One query: its dataflow, fragments and requests.

    Args:
        freshness: when fragments are read again; ``None``: never.
        learned: the estimates so far; `lengths` corrects them.
        guard: sees every change of the dataflow first.
        on_surprise: a fragment is much longer than it should be; returns True to stop reading it.
    """

    def __init__(
        self,
        driver: Driver,
        source: Source,
        *,
        freshness: Freshness | None = None,
        lengths: Lengths | None = None,
        learned: Learned | None = None,
        guard: Sink | None = None,
        on_surprise: Callable[[], bool] | None = None,
    ) -> None:
        self.learned = learned or Learned()
        self.lengths = lengths or Lengths()
        self._on_surprise = on_surprise
        self.driver = driver
        self.source = source
        self.live = freshness is not None
        self.hurried = not self.live
        """True while somebody waits for a first solution."""
        self.dictionary = TermDictionary()
        self.dataflow = Dataflow(self.dictionary, guard)
        self.lookups: list[Lookups] = []
        self.leaves: list[Leaf] = []
        """Each part that asks for something."""
        self.built: list[list[Any]] = [self.leaves, self.lookups, self.dataflow.nodes]
        """The lists that grow when a part of the query is built."""
        self.warnings: dict[str, None] = {}
        self.held = HeldFacts()
        """The facts that a continuous query looks at, with their labels."""
        self.freshness = self._polled = freshness or Freshness()
        self._fragments: dict[_Name, LiveFragment] = {}
        self._unlabelled: dict[tuple[Source, QuadPattern], Unlabelled] = {}
        self._later: deque[Callable[[], object]] = deque()
        self._errors: list[BaseException] = []

    def solution_sent(self) -> None:
        """Note that nobody waits for a first solution any more."""
        self.hurried = False

    def expect_signals(self, period: timedelta | None) -> None:
        """Read fragments at least once in a period while a server signals changes."""
        if self.freshness.signalled != period:
            self.freshness = replace(self.freshness, signalled=period)

    def _freshness_of(self, each: LiveFragment | Unlabelled) -> Freshness:
        """Return its freshness: no signal tells of services, or of what caches keep."""
        kept = isinstance(each, LiveFragment) and each.stale
        return self.freshness if each.source is self.source and not kept else self._polled

    def _next_reading(self, each: LiveFragment | Unlabelled) -> datetime:
        return each.next_reading(self._freshness_of(each))

    def fragments(self) -> list[LiveFragment]:
        return list(self._fragments.values())

    def predicates(self) -> frozenset[str] | None:
        names = {fragment.pattern.predicate for fragment in self.fragments()}
        return None if any(map(is_variable, names)) else frozenset(names)

    def mark(self, predicates: frozenset[str] | None) -> None:
        """Mark fragments of changed predicates stale (``None``: any), by a server's signal."""
        for fragment in self.fragments():
            predicate = fragment.pattern.predicate
            if fragment.source is self.source and (
                predicates is None or is_variable(predicate) or predicate in predicates
            ):
                fragment.mark_stale()

    def has(self, pattern: QuadPattern, source: Source, block: Block | None = None) -> bool:
        """True if this fragment is read anyway, to its end."""
        fragment = self._fragments.get((source, canonical_pattern(pattern), block))
        return fragment is not None and (fragment.complete or fragment.whole)

    def reads(self, pattern: QuadPattern, source: Source) -> bool:
        """Whether this fragment is being read anyway, as far as somebody needs it."""
        fragment = self._fragments.get((source, canonical_pattern(pattern), None))
        return fragment is not None and fragment.loading and fragment.needed_whole

    def subscribe(
        self,
        pattern: QuadPattern,
        subscriber: OnQuadChanges,
        source: Source | None = None,
        reading: FragmentReading = PLAIN_READING,
        block: Block | None = None,
    ) -> LiveFragment:
        """Send `subscriber` the content of a fragment, now and whenever it changes."""
        name = (source or self.source, canonical_pattern(pattern), block)
        fragment = self._fragments.get(name)
        if fragment is None:
            held = self.held if self.live else None
            fragment = LiveFragment(name[1], name[0], block, dynamic=reading.dynamic, held=held)
            self._fragments[name] = fragment
        fragment.subscribe(subscriber, reading)
        if not fragment.loaded or (fragment.needed_whole and not fragment.complete):
            self._reload(fragment)
        return fragment

    def unsubscribe(self, fragment: LiveFragment, subscriber: OnQuadChanges) -> None:
        """Remove a subscriber; a fragment without any is dropped."""
        if not fragment.unsubscribe(subscriber):
            self._fragments.pop((fragment.source, fragment.pattern, fragment.block), None)
            if self.live:
                self.held.update((), list(fragment.quads()), {})

    def when_running(self, action: Callable[[], object]) -> None:
        """Defer an action until the dataflow is built."""
        self._later.append(action)

    # ----------------------------------------------------------------- running

    def work(self) -> Ask | bool:
        """Do one piece of work; ``False`` at rest before the next flush, `Ask` to wait."""
        # A continuous query reads what it can before it tells of a failure: the next evaluation
        # has less to do then.
        busy = self.live and (self._later or not self.driver.idle)
        if self._errors and not busy:
            error, self._errors = self._errors[0], []
            raise error
        with self.driver.working():
            if self._later:
                self._act(self._later.popleft())
                return True
            if self.live and self.driver.idle and any(each.need.limited for each in self.leaves):
                # What operators hold back may be enough.
                self.dataflow.flush()
            if self._pump() or self._later:
                return True
        if self.driver.idle and self.driver.paused:
            self.driver.resume()
            return True
        return self.driver.step()

    def _act(self, action: Callable[[], object]) -> None:
        sizes, later = [(each, len(each)) for each in self.built], len(self._later)
        try:
            action()
        except MissingEstimates as missing:
            # What was built until then has no input yet.
            for each, size in sizes:
                del each[size:]
            while len(self._later) > later:
                self._later.pop()
            missing.begin(lambda: self._later.append(action), self._errors.append)

    def _pump(self) -> bool:
        moved = False
        for lookup in self.lookups:
            moved |= lookup.pump(complete=False)
        moved |= self.dataflow.flush_growing()
        if moved or self._later:
            return moved
        # Whoever waits has seen all there is, but for what the answers to these requests bring.
        asked = {lookup for lookup in self.lookups if lookup.scouts()}
        scouts = {fragment for lookup in asked for fragment in lookup.scouts()}
        if self.driver.outstanding > len(scouts) or self.driver.paused:
            return any(lookup.scout() for lookup in self.lookups)
        for lookup in self.lookups:
            if lookup.patient or not asked.isdisjoint(lookup.after):
                continue
            if lookup.pump(complete=True):
                moved = True
                asked.add(lookup)
        if asked:
            return moved or any(lookup.scout() for lookup in self.lookups)
        patient = [lookup for lookup in reversed(self.lookups) if lookup.patient]
        return any(lookup.pump(complete=True) for lookup in patient)

    def settle(self) -> Steps[None]:
        """Work and flush until nothing moves any more."""
        while True:
            while worked := self.work():
                if isinstance(worked, Ask):
                    yield worked
            self.dataflow.flush()
            if not self.unsettled:
                return

    @property
    def unsettled(self) -> bool:
        if self._later or not self.driver.idle or self.driver.paused or self._errors:
            return True
        # What is there already may answer at once: then there is something to flush.
        return self._pump() or bool(self._later)

    def bring_up_to(self, instant: datetime) -> Steps[datetime]:
        """Make every fragment hold at `instant` or later, and settle; return that instant."""
        self._reload_all(
            [
                each
                for each in self.fragments()
                if not each.loaded or each.stale or self._next_reading(each) <= instant
            ],
            instant,
        )
        self._look_for_labels(instant)
        for _ in range(_MAX_PASSES):
            yield from self.settle()
            fragments = self.fragments()
            instant = max([instant, *(each.evaluated_at for each in fragments)])
            wrong = [
                each
                for each in fragments
                if not each.loaded
                or each.contradicts(instant, self._freshness_of(each))
                or (each.needed_whole and not each.complete)
            ]
            over = [each.end_grace(instant, self.freshness.grace) for each in fragments]
            if not wrong and not any(over):
                return instant
            for fragment in wrong:
                self._reload(fragment, instant)
        raise UnstableError(self.source.url, "facts expire faster than they can be read")

    def wake_at(self) -> datetime | None:
        """Return the next instant, on the source's clock, to read a fragment."""
        fragments = self.fragments()
        dues = [self._next_reading(each) for each in fragments]
        dues += [self._next_reading(each) for each in self._watched()]
        dues += [each.grace_ends for each in fragments if each.grace_ends is not None]
        due = min(dues, default=LAST)
        return None if due == LAST else due

    def _surprised_by(self, fragment: LiveFragment) -> bool:
        expected = fragment.expected
        if self._on_surprise is None or expected is None or fragment.pages <= SURPRISE * expected:
            return False
        self.lengths.learn(fragment.source, fragment.pattern, fragment.pages)
        return self._on_surprise()

    def _reload(self, fragment: LiveFragment, at: datetime | None = None) -> None:
        if not fragment.loading:
            fragment.start_loading()
            self._later.append(lambda: self._load(fragment, at))

    def _reload_all(self, fragments: Iterable[LiveFragment], at: datetime) -> None:
        """Read fragments again, those that change together by one request where bindings can."""
        alike: dict[tuple[Source, QuadPattern, datetime | None], list[LiveFragment]] = {}
        for each in fragments:
            estimate = self.learned.estimates.get((each.source, each.pattern))
            if each.joinable and estimate is not None and estimate.block > 1:
                pattern = each.pattern._replace(predicate=PATTERN_VARIABLES[1])
                group = alike.setdefault((each.source, pattern, each.changes), [])
                if len(group) < min(estimate.block, _TOGETHER):
                    group.append(each)
                    continue
            self._reload(each, at)
        for (source, pattern, _), group in alike.items():
            if len(group) == 1:
                self._reload(group[0], at)
            else:
                self._reload_together(source, pattern, group, at)

    def _reload_together(
        self, source: Source, pattern: QuadPattern, group: Sequence[LiveFragment], at: datetime
    ) -> None:
        def done(content: Content) -> None:
            facts: dict[str, list[Fact]] = {each.pattern.predicate: [] for each in group}
            for fact in content.facts:
                if fact.quad.predicate in facts:
                    facts[fact.quad.predicate].append(fact)
            self.warnings.update(dict.fromkeys(content.warnings))
            for each in group:
                each.end_loading()
                part = replace(content, facts=facts[each.pattern.predicate])
                each.replace(part, self.freshness.grace)

        def failed(error: BaseException) -> None:
            for each in group:
                each.end_loading()
            self._errors.append(error)

        for each in group:
            each.start_loading()
        rows = sorted((Term(each.pattern.predicate),) for each in group)
        block = Block((PATTERN_VARIABLES[1],), tuple(rows))
        self.driver.spawn(source.read(ReadRequest(pattern, at, block=block)), done, failed)

    def unlabelled(
        self, source: Source, pattern: QuadPattern, estimate: Estimate
    ) -> Unlabelled | None:
        """Watch for labels of a pattern; ``None``: it has some, or that is unknown."""
        if not self.live or estimate.dynamic != 0:
            return None
        name = (source, canonical_pattern(pattern))
        return self._unlabelled.setdefault(name, Unlabelled(*name, estimate.block))

    def _watched(self) -> list[Unlabelled]:
        static = [each for each in self.fragments() if not each.dynamic]
        return list(dict.fromkeys(each.unlabelled for each in static if each.unlabelled))

    def _look_for_labels(self, at: datetime) -> None:
        alike: dict[tuple[Source, QuadPattern, int], list[Unlabelled]] = {}
        for each in self._watched():
            whole = self._fragments.get((each.source, each.pattern, None))
            if self._next_reading(each) <= at and not (whole is not None and whole.loading):
                _, predicate, *_ = pattern = each.pattern
                if not is_variable(predicate):
                    pattern = pattern._replace(predicate=PATTERN_VARIABLES[1])
                alike.setdefault((each.source, pattern, each.block), []).append(each)
        for (_, pattern, size), group in alike.items():
            for first in range(0, len(group), size):
                self._look_at(pattern, group[first : first + size], at)

    def _look_at(self, pattern: QuadPattern, group: Sequence[Unlabelled], at: datetime) -> None:
        predicates = [each.pattern.predicate for each in group]
        block = None
        if len(group) == 1:
            pattern = group[0].pattern
        elif not any(map(is_variable, predicates)):
            rows = sorted((Term(each),) for each in predicates)
            block = Block((PATTERN_VARIABLES[1],), tuple(rows))

        def done(first_page: Content) -> None:
            if first_page.dynamic is False:
                for each in group:
                    each.look(first_page, at)
            elif len(group) > 1:
                for each in group:
                    self._look_at(pattern, [each], at)
            else:
                for fragment in self.fragments():
                    if fragment.unlabelled is group[0]:
                        fragment.note_labels()
                        self._reload(fragment, at)

        asked = ReadRequest(pattern, at, block=block, more=lambda _: False)
        task = group[0].source.read(asked)
        self.driver.spawn(task, done, self._errors.append)

    def _load(self, fragment: LiveFragment, at: datetime | None = None) -> None:
        if not fragment.subscribers:
            fragment.end_loading()
            return
        first, extent = not fragment.loaded, fragment.extent
        limited = self.live and not fragment.whole

        def more(pages: int) -> bool:
            return pages < extent or fragment.needed_whole

        def done(content: Content) -> None:
            fragment.end_loading()
            self.warnings.update(dict.fromkeys(content.warnings))
            fragment.replace(content, self.freshness.grace)

        def failed(error: BaseException) -> None:
            fragment.end_loading()
            if not isinstance(error, _EnoughError):
                self._errors.append(error)

        def grow(facts: Iterable[Fact]) -> None:
            fragment.grow(facts)
            if not limited and (not fragment.needed_whole or self._surprised_by(fragment)):
                raise _EnoughError

        asked = ReadRequest(
            fragment.pattern,
            at,
            grow if first or limited else None,
            fragment.block,
            anew=fragment.stale
            or (fragment.misses > 0 and at is not None and at < fragment.fresh_until),
            more=more if limited else None,
        )
        task = fragment.source.read(asked)
        task = task if fragment.whole or limited else _paced(task, fragment)
        self.driver.spawn(task, done, failed, fragment.turn)


def _paced(task: Task[Content], fragment: LiveFragment) -> Task[Content]:
    try:
        requests = next(task)
        while True:
            try:
                pages = yield requests
            except Exception as error:  # noqa: BLE001
                requests = task.throw(error)
            else:
                requests = task.send(pages)
            yield PAUSE
            if not fragment.needed_whole:
                raise _EnoughError
    except StopIteration as stop:
        content: Content = stop.value
        return content
