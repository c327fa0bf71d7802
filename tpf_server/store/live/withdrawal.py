"""What withdrawing quads with one key does to its versions; facts with the key may follow."""

from collections.abc import Iterable
from typing import TypeAlias

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

    def withdraw(self, cuts: Iterable[tuple[int, int, Quad]]) -> None:
        """Plan that quads do not hold: each from when until when."""
        for start, end, quad in cuts:
            for row in self._said_between(start, end):
                version = self._version(row)
                if version.object == quad.object:
                    self._remove(row)
                    # Of an expiring fact nobody knows since when it holds, but it does now.
                    since = self._now if version.start == NO_START else version.start
                    if since < start:
                        self._leave(version._replace(end=start))
                    if version.start != NO_START and end < version.end:
                        self._leave(_renamed(version._replace(start=end)))

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
        self._effects.added.append(version)

    def _same_object(self, row: int, fact: Fact) -> bool:
        return self._version(row).object == fact.quad.object

    def _version(self, row: int) -> Version:
        return self._left.get(row) or super()._version(row)

    def _start(self, row: int) -> int:
        return self._left[row].start if row in self._left else super()._start(row)

    def _end(self, row: int) -> int:
        return self._left[row].end if row in self._left else super()._end(row)

    def _current_expiring(self) -> int | None:
        for row, version in self._left.items():
            if version.start == NO_START:
                return row
        return super()._current_expiring()

    def _around(self, instant: int) -> tuple[int | None, int | None]:
        before, later = super()._around(instant)
        for row, version in self._left.items():
            if version.start == NO_START:
                continue
            if version.start > instant:
                if later is None or version.start < self._start(later):
                    later = row
            elif before is None or version.start > self._start(before):
                before = row
        return before, later

    def _remove(self, row: int) -> None:
        if row in self._left:
            self._effects.added.remove(self._left.pop(row))
            self._index.give_back([row], [])
        else:
            super()._remove(row)


def _renamed(version: Version) -> Version:
    """The version with the token of its start."""
    quad = Quad(*map(Term, version[2:6]))
    token = identity(Fact(quad, label_of(version.start, version.end)))
    return version._replace(token=token_bits(token))
