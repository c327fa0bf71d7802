"""Plan the effects of a batch: versions that begin, end, or are replaced or withdrawn.

For facts with one key (an expiring fact counts as starting now):

- An expiring fact replaces the expiring fact, and ends an interval that is open now.
- An interval ends an interval that is open at its start, and replaces one with the same start; an
  expiring fact that lasts beyond its start is replaced or, for a future start, ended there.
- A label that reaches into an interval that starts later is refused.

A withdrawal cuts the versions that hold within an interval, or from now on. It precedes the facts
of its batch.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias

from annotations.errors import OverlapError
from annotations.instants import format_instant, from_micros, to_micros
from annotations.labels import Fact, FactKey, Interval, check_no_overlap, key_of
from annotations.methods.names import identity
from annotations.terms import Quad, Term
from tpf_server.errors import PublishError
from tpf_server.store.live.index import FactIndex, label_of
from tpf_server.store.live.log import FOREVER, NO_START, Version
from tpf_server.store.live.rows import EXPIRING, INTERVALS, token_bits

_start = attrgetter("start")
Withdrawals: TypeAlias = dict[tuple[str, ...], list[tuple[int, int, Quad]]]
"""Quads, each with the start and end of the interval to withdraw, by key."""
_NEW: Final = -1
"""The row of a version that has none yet."""


@dataclass(slots=True)
class Effects:
    """Effects of a batch on the rows."""

    added: list[Version] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    """Rows that were replaced, ended or withdrawn."""
    facts: int = 0
    """How many of the facts are new."""


class _KeyVersions:
    """The versions of one key that a batch concerns, as it leaves them.

    `spans_of_time` are all that the batch says of.
    """

    def __init__(
        self, index: FactIndex, now: int, quad: Quad, spans_of_time: Iterable[tuple[int, int]]
    ) -> None:
        self._index = index
        self._now = now
        self._slots = index.slots_of(quad)
        self._expiring: Version | None = None
        self._intervals: list[Version] = []
        self._new: list[tuple[str, str, str, str, int, int, int]] = []
        """New versions, without row and slot."""
        rows, (expiring, intervals) = index.rows, self._slots
        self._standing: list[int] = []
        if expiring is not None and rows.removed[row := rows.rows(expiring)[-1]] == FOREVER:
            self._expiring = rows.version(row)
            self._standing.append(row)
        if intervals is not None:
            concerned = sorted(
                (now if start == NO_START else start, end) for start, end in spans_of_time
            )
            standing = list(self._within(rows.rows(intervals), concerned))
            self._intervals = list(map(rows.version, standing))
            self._standing += standing

    def _within(
        self, rows: Sequence[int], spans_of_time: Iterable[tuple[int, int]]
    ) -> Iterator[int]:
        """Return the rows that stand in spans, or just before; each row is looked at once."""
        start_of, removed = self._index.rows.start, self._index.rows.removed
        seen = 0
        for start, end in spans_of_time:
            position = max(seen, bisect_right(rows, start, seen, key=start_of.__getitem__) - 1)
            while position > seen and removed[rows[position]] != FOREVER:
                position -= 1
            while position < len(rows) and start_of[rows[position]] < end:
                if removed[rows[position]] == FOREVER:
                    yield rows[position]
                position += 1
            seen = max(seen, position)

    def withdraw(self, cuts: Iterable[tuple[int, int, Quad]]) -> None:
        by_object: dict[str, list[tuple[int, int]]] = {}
        for start, end, quad in cuts:
            by_object.setdefault(quad.object, []).append((start, end))
        united = {value: _united(each) for value, each in by_object.items()}
        self._intervals = [
            rest for each in self._intervals for rest in _cut(each, united.get(each.object, ()))
        ]
        expiring = self._expiring
        if expiring is not None and expiring.end > self._now:
            # Nobody knows since when it holds, but it does now.
            cut = united.get(expiring.object, ())
            self._end_expiring(next((start for start, end in cut if end > self._now), FOREVER))

    def publish(self, start: int, end: int, fact: Fact) -> bool:
        """Add a fact; return False where it is there."""
        expires = start == NO_START
        since = self._now if expires else start
        position = bisect_right(self._intervals, since, key=_start)
        last = self._intervals[position - 1] if position else None
        old = self._expiring if expires else last
        label = (start, end, fact.quad.object)
        if old is not None and (old.start, old.end, old.object) == label:
            return False
        if position < len(self._intervals):
            _refuse_if_reaches(self._intervals[position], end, fact)
        if last is not None and last.end > since:
            self._end_interval(position - 1, since)
        if expires:
            self._expiring = None
        else:
            self._end_expiring(start)
        self._new.append((*fact.quad, start, end, token_bits(identity(fact))))
        return True

    def _end_interval(self, position: int, instant: int) -> None:
        version = self._intervals[position]
        ended = [version._replace(row=_NEW, end=instant)] if version.start < instant else []
        self._intervals[position : position + 1] = ended

    def _end_expiring(self, instant: int) -> None:
        version = self._expiring
        if version is not None and version.end > instant:
            ended = version._replace(row=_NEW, end=instant) if instant > self._now else None
            self._expiring = ended

    def settle(self, effects: Effects) -> None:
        """Add what is new and what stands no more to the effects of the batch."""
        versions = self._intervals if self._expiring is None else [self._expiring, *self._intervals]
        left = {version.row for version in versions}
        effects.removed += [row for row in self._standing if row not in left]
        changed = [version[2:] for version in versions if version.row == _NEW]
        for content in (*changed, *self._new):
            kind = EXPIRING if content[4] == NO_START else INTERVALS
            slot = self._slots[kind]
            if slot is None:
                slot = self._slots[kind] = self._index.take_slot()
            effects.added.append(Version(self._index.take_row(), slot, *content))


def _refuse_if_reaches(later: Version, end: int, fact: Fact) -> None:
    if later.start < end:
        raise PublishError(
            f"the label of {_quad_shown(fact.quad)} (until {format_instant(from_micros(end))}) "
            f"overlaps that of {_quad_shown(Quad(*map(Term, later[2:6])))}, "
            f"which starts at {format_instant(from_micros(later.start))}"
        )


def _quad_shown(quad: Quad) -> str:
    return " ".join(term for term in quad if term)


def spans(withdrawn: Iterable[Fact], now: int, key: FactKey) -> Withdrawals:
    """Return the withdrawn spans by key."""
    results: Withdrawals = {}
    for quad, label in withdrawn:
        start, end = now, FOREVER
        if isinstance(label, Interval):
            start, end = to_micros(label.start), to_micros(label.end)
        results.setdefault(key_of(quad, key), []).append((start, end, quad))
    return results


def _cut(version: Version, cuts: Sequence[tuple[int, int]]) -> Iterator[Version]:
    """What is left of an interval; itself where no cut meets it."""
    first = bisect_right(cuts, version.start, key=itemgetter(1))
    if first == len(cuts) or cuts[first][0] >= version.end:
        yield version
        return
    since = version.start
    for start, end in islice(cuts, first, None):
        if start >= version.end:
            break
        if since < start:
            yield _renamed(version._replace(row=_NEW, start=since, end=start))
        since = end
    if since < version.end:
        yield _renamed(version._replace(row=_NEW, start=since))


def _united(spans_of_time: list[tuple[int, int]]) -> list[tuple[int, int]]:
    united: list[tuple[int, int]] = []
    for start, end in sorted(spans_of_time):
        if united and start <= united[-1][1]:
            united[-1] = united[-1][0], max(end, united[-1][1])
        else:
            united.append((start, end))
    return united


def _renamed(version: Version) -> Version:
    quad = Quad(*map(Term, version[2:6]))
    token = identity(Fact(quad, label_of(version.start, version.end)))
    return version._replace(token=token_bits(token))


FactGroups: TypeAlias = dict[tuple[str, ...], list[tuple[int, int, Fact]]]
"""Facts with the start and end of their labels, by key, each group by start."""


def checked(facts: Sequence[Fact], now: int, accept_past: bool, key: FactKey) -> FactGroups:
    """Check the facts of a batch (`PublishError`); return them by key, each group by start."""
    groups: FactGroups = {}
    for fact in facts:
        label = fact.label
        if label is None:
            raise PublishError(f"a live fact needs a time label: {_quad_shown(fact.quad)}")
        start = NO_START if label.start is None else to_micros(label.start)
        end = to_micros(label.end)
        if end <= now and not (accept_past and start != NO_START):
            raise PublishError(
                f"the label of {_quad_shown(fact.quad)} ended at {format_instant(label.end)}, "
                f"and it is {format_instant(from_micros(now))}"
            )
        groups.setdefault(key_of(fact.quad, key), []).append((start, end, fact))
    for group in groups.values():
        if len(group) > 1:
            try:
                check_no_overlap([fact for _, _, fact in group], key)
            except OverlapError as error:
                raise PublishError(str(error)) from error
            group[:] = sorted(dict.fromkeys(group), key=lambda one: one[0])
    return groups


def plan(
    index: FactIndex, groups: FactGroups, now: int, withdrawals: Withdrawals | None = None
) -> Effects:
    """Return the effects of a batch on the newest state of an index, which stays unchanged.

    A label that reaches into a later published interval is a `PublishError`.
    """
    effects = Effects()
    withdrawals = withdrawals or {}
    try:
        for key in dict.fromkeys((*withdrawals, *groups)):
            cuts, group = withdrawals.get(key, []), groups.get(key, [])
            quad = cuts[0][2] if cuts else group[0][2].quad
            concerned = [(start, end) for start, end, _ in (*cuts, *group)]
            versions = _KeyVersions(index, now, quad, concerned)
            if cuts:
                versions.withdraw(cuts)
            for start, end, fact in group:
                effects.facts += versions.publish(start, end, fact)
            versions.settle(effects)
    except PublishError:
        index.give_back(effects.added)
        raise
    return effects
