"""What publishing a batch means: the versions that come, and those that end or are replaced.

The rules, for facts with one key (an expiring fact counts as starting now):

- An expiring fact replaces the expiring fact, and ends an interval that is open now.
- An interval ends an interval that is open at its start; one with the same start it replaces (a
  correction). An expiring fact that lasts beyond its start it replaces, or ends at its start where
  that lies in the future.
- A label that reaches into an interval that starts later is refused: the later one was published
  as the truth, and whoever means to correct it must say so from its start.
- A fact that is there already, with the same label, stays as it is.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from annotations.errors import OverlapError
from annotations.instants import format_instant, from_micros, to_micros
from annotations.labels import Fact, FactKey, check_no_overlap, key_of
from annotations.methods.names import identity
from annotations.terms import Quad
from tpf_server.errors import PublishError
from tpf_server.store.live.index import FactIndex
from tpf_server.store.live.log import FOREVER, NO_START, Version
from tpf_server.store.live.names import token_bits
from tpf_server.store.live.rows import EXPIRING, INTERVALS

Groups: TypeAlias = list[list[tuple[int, int, Fact]]]
"""Facts with the start and end of their labels, grouped by key, each group by start."""


@dataclass(slots=True)
class Effects:
    """What a batch does to the rows."""

    added: list[Version] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    facts: int = 0
    """How many of the facts are new."""
    replaced: int = 0
    """How many versions they replaced or ended."""
    slots: list[int] = field(default_factory=list)
    """The slots that were taken for new keys."""


def checked(facts: Sequence[Fact], now: int, accept_past: bool, key: FactKey) -> Groups:
    """The facts of a batch as (start, end, fact), grouped by key, each group by start.

    Raises:
        PublishError: a fact without a label, a label that has ended, overlapping labels.
    """
    groups: dict[tuple[str, ...], list[tuple[int, int, Fact]]] = {}
    for fact in facts:
        label = fact.label
        if label is None:
            raise PublishError(f"a live fact needs a time label: {show(fact.quad)}")
        start = NO_START if label.start is None else to_micros(label.start)
        end = to_micros(label.end)
        if end <= now and not (accept_past and start != NO_START):
            raise PublishError(
                f"the label of {show(fact.quad)} ended at {format_instant(label.end)}, "
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


def plan(index: FactIndex, groups: Groups, now: int) -> Effects:
    """What the checked facts do to the newest state of an index, which stays as it is.

    Where this fails or the effects come to nothing, `undo` frees the numbers that were taken.

    Raises:
        PublishError: a label reaches into an interval that was published to start later.
    """
    effects = Effects()
    try:
        for group in groups:
            _Planner(index, effects, now, group[0][2].quad).plan(group)
    except PublishError:
        undo(index, effects)
        raise
    return effects


def undo(index: FactIndex, effects: Effects) -> None:
    """Free the numbers that were taken for effects that do not take place."""
    index.give_back([version.row for version in effects.added], effects.slots)


class _Planner:
    """Plans the facts of one key."""

    def __init__(self, index: FactIndex, effects: Effects, now: int, quad: Quad) -> None:
        self._index = index
        self._rows = index.rows
        self._effects = effects
        self._now = now
        self._slots = index.slots_of(quad)
        self._gone: set[int] = set()

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
        rows = self._rows
        old = self._current_expiring()
        if old is not None and rows.end[old] == end and self._same_object(old, fact):
            return False
        open_now, later = self._around(self._now)
        self._refuse_if_reaches(later, end, fact)
        if old is not None:
            self._remove(old)
        if open_now is not None and rows.end[open_now] > self._now:
            self._end_at(open_now, self._now)
        return True

    def _interval(self, start: int, end: int, fact: Fact) -> bool:
        rows = self._rows
        before, later = self._around(start)
        self._refuse_if_reaches(later, end, fact)
        if before is not None and rows.start[before] == start:
            if rows.end[before] == end and self._same_object(before, fact):
                return False
            self._remove(before)
        elif before is not None and rows.end[before] > start:
            self._end_at(before, start)
        expiring = self._current_expiring()
        if expiring is not None and rows.end[expiring] > start:
            if start > self._now:
                self._end_at(expiring, start)
            else:
                self._remove(expiring)
        return True

    def _same_object(self, row: int, fact: Fact) -> bool:
        return self._rows.terms.text(self._rows.object[row]) == fact.quad.object

    def _stands(self, row: int) -> bool:
        return self._rows.removed[row] == FOREVER and row not in self._gone

    def _current_expiring(self) -> int | None:
        slot = self._slots[EXPIRING]
        if slot is None or not self._rows.slot_in_use(slot):
            return None
        row = self._rows.rows(slot)[-1]
        return row if self._stands(row) else None

    def _around(self, instant: int) -> tuple[int | None, int | None]:
        """The last interval that starts until an instant, and the first that starts after it."""
        slot = self._slots[INTERVALS]
        if slot is None or not self._rows.slot_in_use(slot):
            return None, None
        rows = self._rows.rows(slot)
        position = bisect_right(rows, instant, key=self._rows.start.__getitem__)
        before = (rows[place] for place in range(position - 1, -1, -1))
        later = (rows[place] for place in range(position, len(rows)))
        return next(filter(self._stands, before), None), next(filter(self._stands, later), None)

    def _refuse_if_reaches(self, later: int | None, end: int, fact: Fact) -> None:
        if later is not None and self._rows.start[later] < end:
            known = self._index.fact(later)
            assert known.label is not None
            assert known.label.start is not None
            raise PublishError(
                f"the label of {show(fact.quad)} (until {format_instant(from_micros(end))}) "
                f"overlaps that of {show(known.quad)}, "
                f"which starts at {format_instant(known.label.start)}"
            )

    def _remove(self, row: int) -> None:
        self._gone.add(row)
        self._effects.removed.append(row)
        self._effects.replaced += 1

    def _end_at(self, row: int, instant: int) -> None:
        self._remove(row)
        version = self._rows.version(row)
        if version.start < instant:
            shorter = version._replace(row=self._index.take_row(), end=instant)
            self._effects.added.append(shorter)

    def _add(self, fact: Fact, start: int, end: int) -> None:
        bits = token_bits(identity(fact))
        kind = EXPIRING if start == NO_START else INTERVALS
        slot = self._slots[kind]
        if slot is None:
            slot = self._slots[kind] = self._index.take_slot()
            self._effects.slots.append(slot)
        row = self._index.take_row()
        self._effects.added.append(Version(row, slot, *fact.quad, start, end, bits))


def show(quad: Quad) -> str:
    """A quad for a message."""
    return " ".join(term for term in quad if term)
