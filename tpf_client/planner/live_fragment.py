"""A fragment in one query: its content, and until when it is valid."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from annotations.instants import FIRST, LAST, shifted
from annotations.labels import Fact, Label, key_of
from annotations.terms import Quad, QuadPattern, Term, is_variable
from tpf_client.fragments.form import PATTERN_VARIABLES, Block
from tpf_client.planner.reading import Content
from tpf_client.planner.source import Source

# The facts that one continuous query looks at, whichever of its fragments hold them.


class HeldFacts:
    """Quads with the labels read last, while a fragment holds them."""

    __slots__ = ("_labels", "_more", "find", "labelled")

    def __init__(self) -> None:
        self._labels: dict[Quad, Label | None] = {}
        self.find = self._labels.get
        self.labelled: set[Term] = set()
        self._more: dict[Quad, int] = {}
        """How many fragments beside the first hold a quad, where any does."""

    def __contains__(self, quad: Quad) -> bool:
        return quad in self._labels

    def update(
        self, come: Collection[Quad], removed: Iterable[Quad], labels: Mapping[Quad, Label | None]
    ) -> None:
        """Update from one reading: new and gone quads, and all its labels."""
        for quad in come:
            if quad in self._labels:
                self._more[quad] = self._more.get(quad, 0) + 1
        self._labels.update(labels)
        self.labelled.update({quad[1] for quad, label in labels.items() if label is not None})
        for quad in removed:
            others = self._more.pop(quad, 0)
            if others == 0:
                del self._labels[quad]
            elif others > 1:
                self._more[quad] = others - 1


QuadChanges: TypeAlias = Sequence[tuple[Quad, int]]
OnQuadChanges: TypeAlias = Callable[[QuadChanges], None]
Enough: TypeAlias = Callable[[], bool]
"""Whether a subscriber needs no more of a fragment that is being read for the first time."""

MOMENT = timedelta(microseconds=1)
_FLOOR = timedelta(milliseconds=100)
"""The least time to the next reading, however short a server says (no busy loop)."""
_POLL = timedelta(seconds=1)
"""The least time without labels."""
_LOOK, _LOOKS = timedelta(milliseconds=250), 5
"""The first pause when labelled facts ended without successors; it doubles, so many times."""
_SMALL = 300
"""Matches of a fragment that may come on one page with those of others."""


def canonical_pattern(pattern: QuadPattern) -> QuadPattern:
    """Name a pattern's variables by position, as in requests."""
    return QuadPattern(
        *(
            name if is_variable(term) else term
            for name, term in zip(PATTERN_VARIABLES, pattern, strict=True)
        )
    )


@dataclass(frozen=True, slots=True)
class FragmentReading:
    """How a subscriber needs a fragment read.

    Args:
        dynamic: its content is known to change.
        enough: tells that the pages read will do; `limited`: it will at some time.
        pages: their number according to the server.
        turn: see `Driver.spawn`.
    """

    dynamic: bool = False
    enough: Enough | None = None
    pages: int | None = None
    limited: bool = False
    turn: int = 0
    unlabelled: "Unlabelled | None" = None


PLAIN_READING = FragmentReading()


class LiveFragment:
    """The matches of one pattern at one source, perhaps restricted by a block.

    Attributes:
        loaded: it was read at all, as far as needed.
        expires: the first end of a match's label.
        changes: the first instant at which matches may end or begin.
        pages: pages with matches of its first reading; `expected`, if known.
        whole: somebody needs all of it, unless much longer than expected.
        misses: consecutive readings without labelled facts, where there were some.
        late: content without a valid label, kept by grace until `grace_ends`.
        stale: a signal says that it has changed.
        extent: pages of its last reading; `complete`: these were all.
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
        self.stale = False
        self.extent = 0
        self.complete = False
        self.in_step = False
        self.unlabelled: Unlabelled | None = None
        self._may_be_labelled = False
        self.turn = 0
        self.evaluated_at = FIRST
        self.fresh_until = FIRST
        self.expires: datetime | None = None
        self.changes: datetime | None = None
        self.dynamic = dynamic
        self.subscribers: list[OnQuadChanges] = []
        self.enough: dict[OnQuadChanges, Enough] = {}
        self.whole = False
        self._quads: dict[Quad, Label | None] = {}
        self.late: dict[Quad, Label] = {}
        self.grace_ends: datetime | None = None

    def __len__(self) -> int:
        return len(self._quads)

    def quads(self) -> Iterator[Quad]:
        return iter(self._quads)

    @property
    def needed_whole(self) -> bool:
        """True if a subscriber needs all of it."""
        return not all(each in self.enough and self.enough[each]() for each in self.subscribers)

    def subscribe(self, subscriber: OnQuadChanges, reading: FragmentReading) -> None:
        """Add a subscriber, and send it the content so far."""
        self.subscribers.append(subscriber)
        if reading.enough is not None:
            self.enough[subscriber] = reading.enough
        if reading.pages is not None:
            self.expected = reading.pages
        self.whole = self.whole or not reading.limited
        self.turn = reading.turn
        self.unlabelled = reading.unlabelled
        if present := [(quad, 1) for quad in self._quads]:
            subscriber(present)

    def unsubscribe(self, subscriber: OnQuadChanges) -> bool:
        """Remove a subscriber; return whether there are others."""
        self.subscribers.remove(subscriber)
        self.enough.pop(subscriber, None)
        return bool(self.subscribers)

    def start_loading(self) -> None:
        self.loading = True

    def end_loading(self) -> None:
        self.loading = False

    def mark_stale(self) -> None:
        """Note that a signal says that it has changed."""
        self.stale = True

    def note_labels(self) -> None:
        """Note that a match has got a label."""
        self.dynamic = True

    def grow(self, facts: Iterable[Fact]) -> None:
        """Add facts of a page of the first reading."""
        self.pages += 1
        fresh = {fact.quad: fact.label for fact in facts if fact.quad not in self._quads}
        if fresh:
            self._quads.update(fresh)
            if self._held is not None and self.subscribers:
                self._held.update(fresh, (), fresh)
            self._tell([(quad, 1) for quad in fresh])

    def replace(self, content: Content, grace: timedelta = timedelta(0)) -> None:
        """Replace the content; subscribers get the difference.

        `grace` is how long an expired fact stays unless replaced.
        """
        self.loaded = True
        # What a cache on the way had may be older than the signal.
        self.stale = self.stale and content.cached
        self.evaluated_at = content.evaluated_at
        self.fresh_until = content.fresh_until
        self.expires = content.expires
        self.changes = content.changes
        # That nothing labelled matches at the moment does not make it static again.
        self.dynamic = self.dynamic or bool(content.dynamic)
        self._may_be_labelled = content.dynamic is not None
        if self.unlabelled is not None:
            self.unlabelled.fragment_read(content, self.pattern if self.block is None else None)
        self.extent, self.complete = content.pages, content.complete
        ends = [fact.label.end for fact in content.facts if fact.label is not None]
        labelled, self.in_step = bool(ends), min(ends, default=None) == content.changes
        self._was_labelled = self._was_labelled or labelled
        self.misses = 0 if labelled or not self._was_labelled else self.misses + 1
        new = {fact.quad: fact.label for fact in content.facts}
        self._set_late(self._late(new, grace) if grace else {}, grace)
        new |= self.late
        removed = [quad for quad in self._quads if quad not in new]
        come = [quad for quad in new if quad not in self._quads]
        self._quads = new
        if self._held is not None and self.subscribers:
            self._held.update(come, removed, new)
        if removed or come:
            self._tell(_in_turn(come, removed))

    def end_grace(self, instant: datetime, grace: timedelta) -> bool:
        """Drop facts whose grace is over, without a reading; return success."""
        if self.grace_ends is None or self.grace_ends > instant:
            return False
        over = [quad for quad, label in self.late.items() if shifted(label.end, grace) <= instant]
        for quad in over:
            del self._quads[quad], self.late[quad]
        self._set_late(self.late, grace)
        if self._held is not None and self.subscribers:
            self._held.update((), over, {})
        self._tell([(quad, -1) for quad in over])
        return True

    def _set_late(self, late: dict[Quad, Label], grace: timedelta) -> None:
        self.late = late
        self.grace_ends = min((shifted(label.end, grace) for label in late.values()), default=None)

    def _late(self, new: Mapping[Quad, Label | None], grace: timedelta) -> dict[Quad, Label]:
        """Return what is missing only because its label ended, less than `grace` ago."""
        at = self.evaluated_at
        late = {
            quad: label
            for quad, label in self._quads.items()
            if quad not in new and label is not None and label.end <= at < shifted(label.end, grace)
        }
        if not late:
            return {}
        come = {key_of(quad, "subject-predicate") for quad in new if quad not in self._quads}
        return {
            quad: label
            for quad, label in late.items()
            if key_of(quad, "subject-predicate") not in come
        }

    def next_reading(self, freshness: "Freshness") -> datetime:
        at, changes = self.evaluated_at, self.changes
        next_change = changes if changes is not None and changes > at else None
        if freshness.replay:
            ends = [self.fresh_until]
            if freshness.every is not None:
                ends.append(shifted(at, freshness.every))
            return max(
                min(ends if next_change is None else [*ends, next_change]), shifted(at, MOMENT)
            )
        if self.dynamic:
            late = max(self.fresh_until, shifted(at, freshness.signalled or _POLL))
            if next_change is not None:
                return max(min(next_change, late), shifted(at, _FLOOR))
            # No label tells when it changes.
            if self._of_many and 0 < self.misses <= _LOOKS:
                # Its publisher may be a little late with the next facts.
                pause: timedelta = _LOOK * 2 ** (self.misses - 1)
                return min(late, shifted(at, max(pause, _FLOOR)))
            return late
        if freshness.static_recheck is None:
            return LAST
        may_come = self.unlabelled is None and (self._may_be_labelled or not self._quads)
        if may_come and self.fresh_until > at and freshness.signalled is None:
            # What is not there yet may come labelled; the server says how soon to look again.
            return max(self.fresh_until, shifted(at, _POLL))
        return max(self.fresh_until, shifted(at, max(freshness.static_recheck, _FLOOR)))

    @property
    def joinable(self) -> bool:
        """True if one page may bring it with what changes at the same instant."""
        return (
            self.in_step
            and self.block is None
            and self.whole
            and self.complete
            and self.extent == 1
            and not (self.stale or self.loading or is_variable(self.pattern.predicate))
            and len(self) <= _SMALL
        )

    def contradicts(self, instant: datetime, freshness: "Freshness") -> bool:
        """True if it may have changed between its reading and this instant."""
        ends = [self.changes]
        if self.dynamic and freshness.signalled is None:
            ends.append(self.fresh_until)
        return any(end is not None and self.evaluated_at < end <= instant for end in ends)

    def _tell(self, changes: QuadChanges) -> None:
        for subscriber in tuple(self.subscribers):
            subscriber(changes)


def _in_turn(come: Sequence[Quad], removed: Sequence[Quad]) -> QuadChanges:
    """Additions first, or operators would drop a subject's state in between."""
    old: dict[Term, list[Quad]] = {}
    for quad in removed:
        old.setdefault(quad.subject, []).append(quad)
    new: dict[Term, list[Quad]] = {}
    for quad in come:
        new.setdefault(quad.subject, []).append(quad)
    changes: list[tuple[Quad, int]] = []
    for subject, quads in new.items():
        changes += [(quad, 1) for quad in quads]
        changes += [(quad, -1) for quad in old.pop(subject, ())]
    return changes + [(quad, -1) for quads in old.values() for quad in quads]


class Unlabelled:
    """A pattern whose first page says that no match is labelled."""

    def __init__(self, source: Source, pattern: QuadPattern, block: int) -> None:
        self.source = source
        self.pattern = pattern
        self.block = block
        self._looked_at = self._fresh_until = LAST
        self._begun = False

    def fragment_read(self, content: Content, pattern: QuadPattern | None) -> None:
        """Note a reading: of a pattern, or ``None`` where it was restricted."""
        if not self._begun:
            self._looked_at = min(self._looked_at, content.evaluated_at)
            self._fresh_until = min(self._fresh_until, content.fresh_until)
        elif pattern == self.pattern and content.dynamic is False:
            self.look(content, content.evaluated_at)

    def look(self, first_page: Content, at: datetime) -> None:
        self._begun = True
        self._looked_at, self._fresh_until = at, first_page.fresh_until

    def next_reading(self, freshness: "Freshness") -> datetime:
        """Return when its first page should be read again."""
        if freshness.static_recheck is None or freshness.signalled is not None or freshness.replay:
            return LAST
        return max(self._fresh_until, shifted(self._looked_at, _POLL))


@dataclass(frozen=True, slots=True)
class Freshness:
    """The freshness of fragments.

    Args:
        static_recheck: the least time for fragments without labelled matches; ``None``: for ever.
        replay: show every state of history, at the latest `every` so much.
        grace: how long an expired fact stays unless replaced.
        signalled: the period under a change signal, if there is one.
    """

    static_recheck: timedelta | None = None
    replay: bool = False
    every: timedelta | None = None
    grace: timedelta = timedelta(0)
    signalled: timedelta | None = None
