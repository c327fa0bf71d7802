"""What publishing facts with one key does to its versions: those that come, end or are replaced."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from annotations.instants import format_instant, from_micros
from annotations.labels import Fact
from annotations.methods.names import identity
from annotations.terms import Quad, Term
from tpf_server.errors import PublishError
from tpf_server.store.live.index import FactIndex
from tpf_server.store.live.log import FOREVER, NO_START, Version
from tpf_server.store.live.names import token_bits
from tpf_server.store.live.rows import EXPIRING, INTERVALS


@dataclass(slots=True)
class Effects:
    """What a batch does to the rows."""

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
        """The versions that come."""
        return list(self.versions.values())

    def add(self, version: Version) -> None:
        """Have one more version come."""
        self.versions[version.row] = version


class Planner:
    """Plans what a batch says of one key."""

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
        """Plan what the facts of the key do, in order of their starts."""
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
        """The last interval that starts until an instant, and the first that starts after it."""
        slot = self._slots[INTERVALS]
        if slot is None or not self._rows.slot_in_use(slot):
            return None, None
        rows = self._rows.rows(slot)
        position = bisect_right(rows, instant, key=self._rows.start.__getitem__)
        return self._standing(rows, position - 1, -1), self._standing(rows, position, 1)

    def _standing(self, rows: Sequence[int], position: int, step: int) -> int | None:
        """The first version from a place on that stands; places without are passed once."""
        goes_on, passed = self._passed[step], []
        while 0 <= position < len(rows) and not self._stands(rows[position]):
            passed.append(position)
            position = goes_on.get(position, position + step)
        goes_on.update(dict.fromkeys(passed, position))
        return rows[position] if 0 <= position < len(rows) else None

    def _refuse_if_reaches(self, later: int | None, end: int, fact: Fact) -> None:
        if later is not None and self._start(later) < end:
            known = self._version(later)
            raise PublishError(
                f"the label of {quad_shown(fact.quad)} (until {format_instant(from_micros(end))}) "
                f"overlaps that of {quad_shown(Quad(*map(Term, known[2:6])))}, "
                f"which starts at {format_instant(from_micros(known.start))}"
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


def quad_shown(quad: Quad) -> str:
    """A quad for a message."""
    return " ".join(term for term in quad if term)
