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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sortedcontainers import SortedDict

from annotations.errors import OverlapError
from annotations.instants import format_instant, from_micros, to_micros
from annotations.labels import Fact, FactKey, Interval, check_no_overlap, key_of
from annotations.methods.names import identity
from annotations.terms import Quad, Term
from tpf_server.errors import PublishError
from tpf_server.store.live.index import FactIndex, label_of
from tpf_server.store.live.log import FOREVER, NO_START, Version
from tpf_server.store.live.rows import EXPIRING, INTERVALS, token_bits

# What publishing facts with one key does to its versions: those that come, end or are replaced.


@dataclass(slots=True)
class Effects:
    """Effects of a batch on the rows."""

    versions: dict[int, Version] = field(default_factory=dict)
    """Those that are added, by row."""
    removed: list[int] = field(default_factory=list)
    facts: int = 0
    """How many of the facts are new."""
    replaced: int = 0
    """How many versions were replaced, ended or withdrawn."""
    slots: list[int] = field(default_factory=list)
    """The slots that were taken for new keys."""

    @property
    def added(self) -> list[Version]:
        return list(self.versions.values())

    def add(self, version: Version) -> None:
        self.versions[version.row] = version


class _Planner:
    def __init__(self, index: FactIndex, effects: Effects, now: int, quad: Quad) -> None:
        self._index = index
        self._rows = index.rows
        self._effects = effects
        self._now = now
        self._slots = index.slots_of(quad)
        self._gone: set[int] = set()
        self._passed: dict[int, dict[int, int]] = {-1: {}, 1: {}}
        """Where to go on, by direction, from a place in the slot where no version stands."""

    def plan(self, group: list[tuple[int, int, Fact]]) -> None:
        for start, end, fact in group:
            if start == NO_START:
                new = self._expiring(end, fact)
            else:
                new = self._interval(start, end, fact)
            if new:
                self._add(fact, start, end)
                self._effects.facts += 1

    def _expiring(self, end: int, fact: Fact) -> bool:
        old = self._current_expiring()
        if old is not None and self._end(old) == end and self._same_object(old, fact):
            return False
        open_now, later = self._around(self._now)
        self._refuse_if_reaches(later, end, fact)
        if old is not None:
            self._remove(old)
        if open_now is not None and self._end(open_now) > self._now:
            self._end_at(open_now, self._now)
        return True

    def _interval(self, start: int, end: int, fact: Fact) -> bool:
        before, later = self._around(start)
        self._refuse_if_reaches(later, end, fact)
        if before is not None and self._start(before) == start:
            if self._end(before) == end and self._same_object(before, fact):
                return False
            self._remove(before)
        elif before is not None and self._end(before) > start:
            self._end_at(before, start)
        expiring = self._current_expiring()
        if expiring is not None and self._end(expiring) > start:
            if start > self._now:
                self._end_at(expiring, start)
            else:
                self._remove(expiring)
        return True

    def _same_object(self, row: int, fact: Fact) -> bool:
        return self._rows.terms.text(self._rows.object[row]) == fact.quad.object

    def _version(self, row: int) -> Version:
        return self._rows.version(row)

    def _start(self, row: int) -> int:
        return self._rows.start[row]

    def _end(self, row: int) -> int:
        return self._rows.end[row]

    def _stands(self, row: int) -> bool:
        return self._rows.removed[row] == FOREVER and row not in self._gone

    def _current_expiring(self) -> int | None:
        slot = self._slots[EXPIRING]
        if slot is None or not self._rows.slot_in_use(slot):
            return None
        row = self._rows.rows(slot)[-1]
        return row if self._stands(row) else None

    def _around(self, instant: int) -> tuple[int | None, int | None]:
        """Return the last interval that starts until an instant, and the next."""
        slot = self._slots[INTERVALS]
        if slot is None or not self._rows.slot_in_use(slot):
            return None, None
        rows = self._rows.rows(slot)
        position = bisect_right(rows, instant, key=self._rows.start.__getitem__)
        return self._standing(rows, position - 1, -1), self._standing(rows, position, 1)

    def _standing(self, rows: Sequence[int], position: int, step: int) -> int | None:
        goes_on, passed = self._passed[step], []
        while 0 <= position < len(rows) and not self._stands(rows[position]):
            passed.append(position)
            position = goes_on.get(position, position + step)
        goes_on.update(dict.fromkeys(passed, position))
        return rows[position] if 0 <= position < len(rows) else None

    def _refuse_if_reaches(self, later: int | None, end: int, fact: Fact) -> None:
        if later is not None and self._start(later) < end:
            other = self._version(later)
            raise PublishError(
                f"the label of {_quad_shown(fact.quad)} (until {format_instant(from_micros(end))}) "
                f"overlaps that of {_quad_shown(Quad(*map(Term, other[2:6])))}, "
                f"which starts at {format_instant(from_micros(other.start))}"
            )

    def _remove(self, row: int) -> None:
        self._gone.add(row)
        self._effects.removed.append(row)
        self._effects.replaced += 1

    def _end_at(self, row: int, instant: int) -> None:
        version = self._version(row)
        self._remove(row)
        if version.start < instant:
            shorter = version._replace(row=self._index.take_row(), end=instant)
            self._effects.add(shorter)

    def _add(self, fact: Fact, start: int, end: int) -> None:
        bits = token_bits(identity(fact))
        kind = EXPIRING if start == NO_START else INTERVALS
        slot = self._slots[kind]
        if slot is None:
            slot = self._slots[kind] = self._index.take_slot()
            self._effects.slots.append(slot)
        row = self._index.take_row()
        self._effects.add(Version(row, slot, *fact.quad, start, end, bits))


def _quad_shown(quad: Quad) -> str:
    return " ".join(term for term in quad if term)


# What withdrawing quads with one key does to its versions; facts with the key may follow.

Withdrawals: TypeAlias = dict[tuple[str, ...], list[tuple[int, int, Quad]]]
"""Quads with from when until when they do not hold, by key."""


def spans(withdrawn: Iterable[Fact], now: int, key: FactKey) -> Withdrawals:
    """Return the withdrawn spans by key."""
    results: Withdrawals = {}
    for quad, label in withdrawn:
        start, end = now, FOREVER
        if isinstance(label, Interval):
            start, end = to_micros(label.start), to_micros(label.end)
        results.setdefault(key_of(quad, key), []).append((start, end, quad))
    return results


class _WithdrawingPlanner(_Planner):
    """Plan withdrawals, too; the rests of cut versions stand like those of the index."""

    def __init__(self, index: FactIndex, effects: Effects, now: int, quad: Quad) -> None:
        super().__init__(index, effects, now, quad)
        self._left: dict[int, Version] = {}
        """What is left of versions, by the rows that are to hold it."""
        self._starts = SortedDict[int, int]()
        """The rows of the intervals among them, by start."""
        self._expiring_left: int | None = None
        """The row of what is left of the expiring version."""

    def withdraw(self, cuts: Sequence[tuple[int, int, Quad]]) -> None:
        by_object: dict[str, list[tuple[int, int]]] = {}
        for start, end, quad in cuts:
            by_object.setdefault(quad.object, []).append((start, end))
        versions: dict[str, list[Version]] = {}
        for row in self._said_between(min(each[0] for each in cuts), max(each[1] for each in cuts)):
            version = self._version(row)
            if version.object in by_object:
                versions.setdefault(version.object, []).append(version)
        for value, of_object in versions.items():
            self._cut(of_object, _united(by_object[value]))

    def _cut(self, versions: Iterable[Version], cuts: Sequence[tuple[int, int]]) -> None:
        first = 0
        for version in versions:
            if version.start == NO_START:
                # Nobody knows since when it holds, but it does now.
                start = next((start for start, end in cuts if end > self._now), FOREVER)
                if start < version.end:
                    self._remove(version.row)
                    if self._now < start:
                        self._leave(version._replace(end=start))
                continue
            while first < len(cuts) and cuts[first][1] <= version.start:
                first += 1
            since, index = version.start, first
            while index < len(cuts) and cuts[index][0] < version.end:
                start, end = cuts[index]
                if index == first:
                    self._remove(version.row)
                if since < start:
                    self._leave(_renamed(version._replace(start=since, end=start)))
                since, index = end, index + 1
            if index > first and since < version.end:
                self._leave(_renamed(version._replace(start=since)))

    def _said_between(self, start: int, end: int) -> list[int]:
        results = []
        expiring = self._current_expiring()
        if expiring is not None and self._end(expiring) > max(start, self._now) < end:
            results.append(expiring)
        before, later = self._around(start)
        if before is not None and self._end(before) > start:
            results.append(before)
        while later is not None and self._start(later) < end:
            results.append(later)
            _, later = self._around(self._start(later))
        return results

    def _leave(self, version: Version) -> None:
        version = version._replace(row=self._index.take_row())
        self._left[version.row] = version
        if version.start == NO_START:
            self._expiring_left = version.row
        else:
            self._starts[version.start] = version.row
        self._effects.add(version)

    def _same_object(self, row: int, fact: Fact) -> bool:
        return self._version(row).object == fact.quad.object

    def _version(self, row: int) -> Version:
        return self._left.get(row) or super()._version(row)

    def _start(self, row: int) -> int:
        return self._left[row].start if row in self._left else super()._start(row)

    def _end(self, row: int) -> int:
        return self._left[row].end if row in self._left else super()._end(row)

    def _current_expiring(self) -> int | None:
        return super()._current_expiring() if self._expiring_left is None else self._expiring_left

    def _around(self, instant: int) -> tuple[int | None, int | None]:
        before, later = super()._around(instant)
        index = self._starts.bisect_right(instant)
        if index and (before is None or self._starts.peekitem(index - 1)[0] > self._start(before)):
            before = self._starts.peekitem(index - 1)[1]
        if index < len(self._starts) and (
            later is None or self._starts.peekitem(index)[0] < self._start(later)
        ):
            later = self._starts.peekitem(index)[1]
        return before, later

    def _remove(self, row: int) -> None:
        left = self._left.pop(row, None)
        if left is None:
            super()._remove(row)
            return
        if left.start == NO_START:
            self._expiring_left = None
        else:
            del self._starts[left.start]
        del self._effects.versions[row]
        self._index.give_back([row], [])


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


FactGroups: TypeAlias = list[list[tuple[int, int, Fact]]]
"""Facts with the start and end of their labels, grouped by key, each group by start."""


def checked(facts: Sequence[Fact], now: int, accept_past: bool, key: FactKey) -> FactGroups:
    """Check the facts of a batch (`PublishError`); return them by key, each group by start."""
    groups: dict[tuple[str, ...], list[tuple[int, int, Fact]]] = {}
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
    return list(groups.values())


def plan(
    index: FactIndex, groups: FactGroups, now: int, withdrawals: Withdrawals | None = None
) -> Effects:
    """Return the effects of a batch on the newest state of an index, which stays unchanged.

    A label that reaches into a later published interval is a `PublishError`.
    """
    effects = Effects()
    planners: dict[tuple[str, ...], _WithdrawingPlanner] = {}
    for key, cuts in (withdrawals or {}).items():
        planners[key] = _WithdrawingPlanner(index, effects, now, cuts[0][2])
        planners[key].withdraw(cuts)
    try:
        for group in groups:
            quad = group[0][2].quad
            planner = planners.get(key_of(quad, index.key)) if planners else None
            (planner or _Planner(index, effects, now, quad)).plan(group)
    except PublishError:
        undo(index, effects)
        raise
    return effects


def undo(index: FactIndex, effects: Effects) -> None:
    """Free the numbers that were taken for effects."""
    index.give_back([version.row for version in effects.added], effects.slots)
