"""The fragments that one query looks at: read once, or kept up to date.

A `LiveFragment` is read when somebody subscribes to it; in a continuous query it is read again
when it may have become wrong, and its subscribers get the difference.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeAlias

from annotations.labels import Fact
from annotations.terms import Quad, QuadPattern, is_variable
from tpf_client.dataflow.builder import Watch
from tpf_client.dataflow.changes import TermDictionary
from tpf_client.dataflow.node import Dataflow
from tpf_client.errors import UnstableError
from tpf_client.fragments.form import POSITIONS, Block
from tpf_client.planner.driver import Driver
from tpf_client.planner.held import HeldFacts
from tpf_client.planner.reading import Content
from tpf_client.planner.source import Estimate, Source

_Name: TypeAlias = tuple[Source, QuadPattern, Block | None]
QuadChanges: TypeAlias = Sequence[tuple[Quad, int]]
Subscriber: TypeAlias = Callable[[QuadChanges], None]
Enough: TypeAlias = Callable[[], bool]
"""Whether a subscriber needs no more of a fragment that is being read for the first time."""


class _EnoughError(Exception):
    """Ends the reading of a fragment."""


SURPRISE = 2
"""How many times as many pages as were promised are a reason to plan anew."""
_MAX_PASSES = 8
_NEVER = datetime.min.replace(tzinfo=UTC)
_ALWAYS = datetime.max.replace(tzinfo=UTC)


def canonical(pattern: QuadPattern) -> QuadPattern:
    """The pattern with its variables named by their positions: what a server is asked."""
    return QuadPattern(
        *(
            name if is_variable(term) else term
            for name, term in zip(POSITIONS, pattern, strict=True)
        )
    )


class LiveFragment:
    """The matches of one pattern at one source, or those that fit a block of bindings.

    Attributes:
        loaded: whether it was ever read to its end.
        loading: whether it is being read.
        evaluated_at: the instant that its content shows, on the source's clock.
        fresh_until: the instant until which it may be reused.
        expires: the first instant at which a label ends; ``None``: nobody says.
        dynamic: whether its matches change over time.
        pages: how many pages with matches its first reading took.
        expected: how many pages it should have; ``None``: nobody says.
        whole: whether somebody wants it to its end, as long as that is not much further than it
            should be.
        misses: how many readings in a row found nothing labelled, where there was before.
    """

    def __init__(
        self,
        pattern: QuadPattern,
        source: Source,
        block: Block | None = None,
        *,
        dynamic: bool = False,
        held: HeldFacts | None = None,
    ) -> None:
        self.pattern = pattern
        self.source = source
        self.block = block
        self._held = held
        self._was_labelled = False
        self._of_many = block is None and is_variable(pattern.subject)
        self.loaded = False
        self.loading = False
        self.pages = 0
        self.expected: int | None = None
        self.misses = 0
        self.evaluated_at = _NEVER
        self.fresh_until = _NEVER
        self.expires: datetime | None = None
        self.dynamic = dynamic
        self.subscribers: list[Subscriber] = []
        self.enough: dict[Subscriber, Enough] = {}
        self.whole = False
        self._quads: dict[Quad, None] = {}

    def __len__(self) -> int:
        return len(self._quads)

    def quads(self) -> Iterator[Quad]:
        """Its content so far."""
        return iter(self._quads)

    @property
    def wanted(self) -> bool:
        """Whether a subscriber needs all of it."""
        return not all(each in self.enough and self.enough[each]() for each in self.subscribers)

    def grow(self, facts: Iterable[Fact]) -> None:
        """Some facts of the first reading: those of a page."""
        self.pages += 1
        fresh = {fact.quad: fact.label for fact in facts if fact.quad not in self._quads}
        if fresh:
            self._quads.update(dict.fromkeys(fresh))
            if self._held is not None and self.subscribers:
                self._held.update(fresh, (), fresh)
            self._tell([(quad, 1) for quad in fresh])

    def replace(self, content: Content) -> None:
        """The whole content as it is now: subscribers get the difference."""
        self.loaded = True
        self.evaluated_at = content.evaluated_at
        self.fresh_until = content.fresh_until
        self.expires = content.expires
        # That nothing labelled matches at the moment does not make it static again.
        self.dynamic = self.dynamic or bool(content.dynamic)
        labelled = any(fact.label is not None for fact in content.facts)
        self._was_labelled = self._was_labelled or labelled
        self.misses = 0 if labelled or not self._was_labelled else self.misses + 1
        new = dict.fromkeys(fact.quad for fact in content.facts)
        gone = [(quad, -1) for quad in self._quads if quad not in new]
        come = [(quad, 1) for quad in new if quad not in self._quads]
        self._quads = new
        if self._held is not None and self.subscribers:
            labels = {fact.quad: fact.label for fact in content.facts}
            self._held.update([quad for quad, _ in come], [quad for quad, _ in gone], labels)
        if gone or come:
            self._tell(gone + come)

    def due(self, freshness: "Freshness") -> datetime:
        """The instant at which it should be read again."""
        if freshness.replay:
            ends = [self.fresh_until]
            if self.expires is not None and self.expires > self.evaluated_at:
                ends.append(self.expires)
            if freshness.every is not None:
                ends.append(self.evaluated_at + freshness.every)
            return min(ends)
        if self.dynamic:
            if self.expires is not None and self.expires > self.evaluated_at:
                end = min(self.expires, self.fresh_until)
                return max(end, self.evaluated_at + freshness.floor)
            # No label tells when it changes.
            late = max(self.fresh_until, self.evaluated_at + freshness.poll)
            if self._of_many and 0 < self.misses <= freshness.looks:
                # Its publisher may be a little late with the next facts.
                pause: timedelta = freshness.look * 2 ** (self.misses - 1)
                return min(late, self.evaluated_at + max(pause, freshness.floor))
            return late
        if freshness.static_recheck is None:
            return _ALWAYS
        if not self._quads and self.fresh_until > self.evaluated_at:
            # What is not there yet may come labelled; the server says how soon to look again.
            return max(self.fresh_until, self.evaluated_at + freshness.poll)
        return max(self.fresh_until, self.evaluated_at + freshness.static_recheck)

    def contradicts(self, instant: datetime) -> bool:
        """Whether it may have changed between its reading and this instant.

        A page whose labels lie in its own past contradicts nothing: its server means it.
        """
        ends = [self.expires, self.fresh_until if self.dynamic else None]
        return any(end is not None and self.evaluated_at < end <= instant for end in ends)

    def _tell(self, changes: QuadChanges) -> None:
        for subscriber in tuple(self.subscribers):
            subscriber(changes)


@dataclass(frozen=True, slots=True)
class Freshness:
    """For how long fragments are taken to hold.

    Args:
        floor: the least time, however short a server says (no busy loop).
        poll: the least time for fragments of changing facts none of which holds.
        static_recheck: the least time for fragments of which no match is labelled; ``None``: for
            ever. One without any match is read again when its freshness by HTTP ends.
        look: how soon to look again when all labelled facts of a fragment, of whatever subject,
            ended and no others came; longer each time.
        looks: how often to do so.
        replay: whether history is replayed: no time is saved then, every state is to be shown.
        every: the most time, in a replay.
    """

    floor: timedelta = timedelta(milliseconds=100)
    poll: timedelta = timedelta(seconds=1)
    static_recheck: timedelta | None = None
    look: timedelta = timedelta(milliseconds=250)
    looks: int = 5
    replay: bool = False
    every: timedelta | None = None


class Lengths:
    """What was found out about fragments that are longer than their servers say."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, QuadPattern], int] = {}

    def learn(self, source: Source, pattern: QuadPattern, pages: int) -> None:
        """A fragment has more than so many pages."""
        self._pages[source.url, canonical(pattern)] = pages

    def knows(self, source: Source, pattern: QuadPattern) -> bool:
        """Whether a fragment is longer than its server says."""
        return (source.url, canonical(pattern)) in self._pages

    def corrected(self, source: Source, pattern: QuadPattern, estimate: Estimate) -> Estimate:
        """What a server says of a fragment, in the light of what was found out.

        A fragment of unknown length is taken for four times as long as was read of it: so what is
        read in vain is a part of the whole, however long that is.
        """
        pages = self._pages.get((source.url, canonical(pattern)))
        if pages is None or estimate.pages is None or estimate.count is None:
            return estimate
        times = SURPRISE**2 * pages / (estimate.pages + 1)
        return replace(
            estimate,
            count=math.ceil(estimate.count * max(times, 1)),
            pages=max(math.ceil(SURPRISE**2 * pages), estimate.pages),
        )


class Lookups(Protocol):
    """Something that holds back requests until it sees how many there are.

    Attributes:
        after: those whose answers bring it what to ask for.
    """

    after: "frozenset[Lookups]"

    @property
    def patient(self) -> bool:
        """Whether what others find may spare it requests."""

    def pump(self, *, complete: bool) -> bool:
        """Ask for what is worth asking now; whether anything was asked or answered.

        Args:
            complete: whether nothing is under way that could bring more to ask for.
        """


class Evaluation:
    """One query: its dataflow, its fragments, its requests.

    Args:
        driver: runs the requests.
        source: who answers.
        live: whether fragments are kept up to date.
        freshness: for how long fragments are taken to hold.
        lengths: what was found out about the lengths of fragments.
    """

    def __init__(
        self,
        driver: Driver,
        source: Source,
        *,
        live: bool = False,
        freshness: Freshness | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        self.lengths = lengths or Lengths()
        self.on_surprise: Callable[[], bool] | None = None
        """Told when a fragment is much longer than it should be; whether to stop reading it."""
        self.driver = driver
        self.source = source
        self.live = live
        self.dictionary = TermDictionary()
        self.dataflow = Dataflow(self.dictionary)
        self.lookups: list[Lookups] = []
        self.warnings: dict[str, None] = {}
        self.held = HeldFacts()
        """The facts that a continuous query looks at, with their labels."""
        self.watch: Watch | None = None
        """Wants to see the solutions of the query's pattern."""
        self.freshness = freshness or Freshness()
        self._fragments: dict[_Name, LiveFragment] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._errors: list[BaseException] = []

    def fragments(self) -> list[LiveFragment]:
        """The fragments that somebody looks at."""
        return list(self._fragments.values())

    def has(self, pattern: QuadPattern, source: Source, block: Block | None = None) -> bool:
        """Whether this fragment is read anyway, to its end."""
        fragment = self._fragments.get((source, canonical(pattern), block))
        return fragment is not None and (fragment.loaded or fragment.whole)

    def subscribe(
        self,
        pattern: QuadPattern,
        subscriber: Subscriber,
        *,
        dynamic: bool = False,
        source: Source | None = None,
        block: Block | None = None,
        enough: Enough | None = None,
        pages: int | None = None,
        limited: bool = False,
    ) -> LiveFragment:
        """Let `subscriber` have the content of a fragment, now and whenever it changes.

        Args:
            pattern: which fragment.
            subscriber: gets changes of quads.
            dynamic: whether it is known that its content changes over time, though perhaps nothing
                matches now.
            source: who answers; by default the source of the query.
            block: bindings that restrict it.
            enough: whether what it has will do.
            pages: how many it should have, as far as its server tells.
            limited: whether it is going to have enough at some time.
        """
        name = (source or self.source, canonical(pattern), block)
        fragment = self._fragments.get(name)
        if fragment is None:
            held = self.held if self.live else None
            fragment = LiveFragment(name[1], name[0], block, dynamic=dynamic, held=held)
            self._fragments[name] = fragment
        fragment.subscribers.append(subscriber)
        if enough is not None:
            fragment.enough[subscriber] = enough
        if pages is not None:
            fragment.expected = pages
        fragment.whole = fragment.whole or not limited
        present = [(quad, 1) for quad in fragment.quads()]
        if present:
            subscriber(present)
        if not fragment.loaded and not fragment.loading:
            fragment.loading = True
            self._later.append(lambda: self._load(fragment))
        return fragment

    def unsubscribe(self, fragment: LiveFragment, subscriber: Subscriber) -> None:
        """`subscriber` wants no more of it; a fragment that nobody wants is forgotten."""
        fragment.subscribers.remove(subscriber)
        fragment.enough.pop(subscriber, None)
        if not fragment.subscribers:
            self._fragments.pop((fragment.source, fragment.pattern, fragment.block), None)
            if self.live:
                self.held.update((), list(fragment.quads()), {})

    def when_running(self, action: Callable[[], object]) -> None:
        """Do this when work begins: not while the dataflow is still being built."""

        def act() -> None:
            action()

        self._later.append(act)

    # ----------------------------------------------------------------- running

    def work(self) -> bool:
        """Do one piece of work; ``False`` where there is none left before the next flush.

        Raises:
            SourceError: a fragment could not be read; what was read stays.
            ClosedError: the query was closed.
        """
        # A continuous query reads what it can before it tells of a failure: the next evaluation
        # has less to do then.
        busy = self.live and (self._later or not self.driver.idle)
        if self._errors and not busy:
            error, self._errors = self._errors[0], []
            raise error
        if self._later:
            self._later.popleft()()
            return True
        if self._pump() or self._later:
            return True
        return self.driver.step()

    def _pump(self) -> bool:
        """Let lookups ask for what is worth asking now; whether any did."""
        moved = False
        for lookup in self.lookups:
            moved |= lookup.pump(complete=False)
        if moved or self._later or not self.driver.idle:
            return moved
        # Whoever waits has seen all there is, but for what the answers to these requests bring.
        asked: set[Lookups] = set()
        for lookup in self.lookups:
            if lookup.patient or not asked.isdisjoint(lookup.after):
                continue
            if lookup.pump(complete=True):
                asked.add(lookup)
        if asked:
            return True
        patient = [lookup for lookup in reversed(self.lookups) if lookup.patient]
        return any(lookup.pump(complete=True) for lookup in patient)

    def settle(self) -> None:
        """Work and flush until nothing moves any more.

        Raises:
            SourceError: a fragment could not be read.
            ClosedError: the query was closed.
        """
        while True:
            while self.work():
                pass
            self.dataflow.flush()
            if not self.unsettled:
                return

    @property
    def unsettled(self) -> bool:
        """Whether there is work left."""
        if self._later or not self.driver.idle or self._errors:
            return True
        # What is there already may answer at once: then there is something to flush.
        return self._pump() or bool(self._later)

    def bring_up_to(self, instant: datetime) -> datetime:
        """Make every fragment hold at one instant, `instant` or later, and settle.

        Returns:
            That instant, on the source's clock.

        Raises:
            SourceError: a fragment could not be read; the state is as far as it got, and the next
                call goes on from there.
            UnstableError: facts expire faster than they can be read.
            ClosedError: the query was closed.
        """
        for fragment in self.fragments():
            if not fragment.loaded or fragment.due(self.freshness) <= instant:
                self._reload(fragment, instant)
        for _ in range(_MAX_PASSES):
            self.settle()
            fragments = self.fragments()
            instant = max([instant, *(each.evaluated_at for each in fragments)])
            wrong = [each for each in fragments if not each.loaded or each.contradicts(instant)]
            if not wrong:
                return instant
            for fragment in wrong:
                self._reload(fragment, instant)
        raise UnstableError(self.source.url, "facts expire faster than they can be read")

    def wake_at(self) -> datetime | None:
        """The instant, on the source's clock, at which a fragment should be read again."""
        due = min((each.due(self.freshness) for each in self.fragments()), default=_ALWAYS)
        return None if due == _ALWAYS else due

    def _surprised_by(self, fragment: LiveFragment) -> bool:
        """Whether to plan anew, because a fragment is much longer than it should be."""
        expected = fragment.expected
        if self.on_surprise is None or expected is None or fragment.pages <= SURPRISE * expected:
            return False
        self.lengths.learn(fragment.source, fragment.pattern, fragment.pages)
        return self.on_surprise()

    def _reload(self, fragment: LiveFragment, at: datetime) -> None:
        if not fragment.loading:
            fragment.loading = True
            self._later.append(lambda: self._load(fragment, at))

    def _load(self, fragment: LiveFragment, at: datetime | None = None) -> None:
        if not fragment.subscribers:
            fragment.loading = False
            return
        first = not fragment.loaded

        def done(content: Content) -> None:
            fragment.loading = False
            self.warnings.update(dict.fromkeys(content.warnings))
            fragment.replace(content)

        def failed(error: BaseException) -> None:
            fragment.loading = False
            if not isinstance(error, _EnoughError):
                self._errors.append(error)

        def grow(facts: Iterable[Fact]) -> None:
            fragment.grow(facts)
            if not fragment.wanted or self._surprised_by(fragment):
                raise _EnoughError

        self.driver.spawn(
            fragment.source.read(
                fragment.pattern,
                at,
                grow if first else None,
                fragment.block,
                anew=fragment.misses > 0 and at is not None and at < fragment.fresh_until,
            ),
            done,
            failed,
        )
