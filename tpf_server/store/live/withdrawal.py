"""What withdrawing quads with one key does to its versions; facts with the key may follow."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from sortedcontainers import SortedDict

from annotations.instants import to_micros
from annotations.labels import Fact, FactKey, Interval, key_of
from annotations.methods.names import identity
from annotations.terms import Quad, Term
from tpf_server.store.live.index import FactIndex, label_of
from tpf_server.store.live.log import FOREVER, NO_START, Version
from tpf_server.store.live.names import token_bits
from tpf_server.store.live.planner import Effects, Planner

Withdrawals: TypeAlias = dict[tuple[str, ...], list[tuple[int, int, Quad]]]
"""Quads with from when until when they do not hold, by key."""


def spans(withdrawn: Iterable[Fact], now: int, key: FactKey) -> Withdrawals:
    """What is withdrawn: within its interval, or from now on where it has none."""
    found: Withdrawals = {}
    for quad, label in withdrawn:
        start, end = now, FOREVER
        if isinstance(label, Interval):
            start, end = to_micros(label.start), to_micros(label.end)
        found.setdefault(key_of(quad, key), []).append((start, end, quad))
    return found


class WithdrawingPlanner(Planner):
    """Plans what a batch says of one key of which it withdraws something.

    What withdrawals leave of the versions that they cut stands like what the index holds.
    """

    def __init__(self, index: FactIndex, effects: Effects, now: int, quad: Quad) -> None:
        super().__init__(index, effects, now, quad)
        self._left: dict[int, Version] = {}
        """What is left of versions, by the rows that are to hold it."""
        self._starts = SortedDict[int, int]()
        """The rows of the intervals among them, by start."""
        self._expiring_left: int | None = None
        """The row of what is left of the expiring version."""

    def withdraw(self, cuts: Sequence[tuple[int, int, Quad]]) -> None:
        """Plan that quads do not hold: each from when until when."""
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
        """Plan that versions do not hold in some spans; both are in order of time."""
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
            since, place = version.start, first
            while place < len(cuts) and cuts[place][0] < version.end:
                start, end = cuts[place]
                if place == first:
                    self._remove(version.row)
                if since < start:
                    self._leave(_renamed(version._replace(start=since, end=start)))
                since, place = end, place + 1
            if place > first and since < version.end:
                self._leave(_renamed(version._replace(start=since)))

    def _said_between(self, start: int, end: int) -> list[int]:
        """The versions that hold at some instant of these, the expiring one from now on."""
        found = []
        expiring = self._current_expiring()
        if expiring is not None and self._end(expiring) > max(start, self._now) < end:
            found.append(expiring)
        before, later = self._around(start)
        if before is not None and self._end(before) > start:
            found.append(before)
        while later is not None and self._start(later) < end:
            found.append(later)
            _, later = self._around(self._start(later))
        return found

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
        place = self._starts.bisect_right(instant)
        if place and (before is None or self._starts.peekitem(place - 1)[0] > self._start(before)):
            before = self._starts.peekitem(place - 1)[1]
        if place < len(self._starts) and (
            later is None or self._starts.peekitem(place)[0] < self._start(later)
        ):
            later = self._starts.peekitem(place)[1]
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
    """Spans in order, those that meet as one."""
    united: list[tuple[int, int]] = []
    for start, end in sorted(spans_of_time):
        if united and start <= united[-1][1]:
            united[-1] = united[-1][0], max(end, united[-1][1])
        else:
            united.append((start, end))
    return united


def _renamed(version: Version) -> Version:
    """The version with the token of its start."""
    quad = Quad(*map(Term, version[2:6]))
    token = identity(Fact(quad, label_of(version.start, version.end)))
    return version._replace(token=token_bits(token))
