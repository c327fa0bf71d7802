"""OFFSET and LIMIT of many queries that have the same order, but perhaps not the same rows of it.

What is new in a part is told to all queries to which the same rows are new together.
"""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution, projection
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.order import SHARE, SortKeyOf
from tpf_client.sparql.ordering import SortKey
from tpf_server.continuous.runtime.plans.stamps import hidden_stamp, seen_by
from tpf_server.continuous.runtime.static.static_rows import INSTANCE

_Seers = range | tuple[int, ...] | frozenset[int]
_Entry = tuple[Any, Solution, int, _Seers]
"""A copy of a row: its sorting key, the row, the number of its arrival, and who sees it."""
_EVERYBODY: Final = range(sys.maxsize)
_FEW: Final = 8
"""Of so many numbers a tuple is searched as fast as a set."""


class _Slice:
    """Queries with the same OFFSET and LIMIT, and what of their rows has changed."""

    __slots__ = ("entered", "left", "numbers")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.entered: dict[int, _Entry] = {}
        self.left: dict[int, _Entry] = {}

    def move(self, entry: _Entry, sign: int) -> None:
        here, there = (self.entered, self.left) if sign > 0 else (self.left, self.entered)
        if there.pop(entry[2], None) is None:
            here[entry[2]] = entry


class _Part:
    """The first rows, in order, of those that some queries see.

    Args:
        number: they see what a query with this number sees.
        entries: all copies of rows, as they came, also others.
        by_arrival: the order is that of `entries`.

    Attributes:
        after: the number of the part before.
        best: rows in order; behind them there may be others, unless it has `all`.
        end: so many rows are needed.
        reserve: so many are chosen.
    """

    def __init__(self, number: int, entries: dict[int, _Entry], *, by_arrival: bool) -> None:
        self.number = number
        self.entries = entries
        self.by_arrival = by_arrival
        self.after = 0
        self.slices: dict[tuple[int, int], _Slice] = {}
        self.best: list[_Entry] = []
        self.all = True
        self.end = self.reserve = 0

    def reach(self) -> None:
        self.end = max([end for _, end in self.slices], default=0)
        self.reserve = max(32, 3 * self.end)
        if len(self.best) <= self.end and not self.all:
            self.choose()

    def choose(self) -> None:
        number = self.number
        seen = (each for each in self.entries.values() if number in each[3])
        if self.by_arrival:
            self.best = [*islice(seen, min(self.reserve, sys.maxsize))]
            self.all = len(self.best) < self.reserve
            return
        every = [*seen]
        self.reserve = max(self.reserve, len(every) // SHARE)
        self.best = nsmallest(self.reserve, every, key=itemgetter(0, 1, 2))
        self.all = len(self.best) == len(every)


class Slices(Node):
    """Slice rows for each query; the column `INSTANCE` holds the numbers of the queries.

    Where rows have that column already, or stamps (see `Watermark`), queries see different rows.
    Of equal rows the first goes first.

    Args:
        key: of the order; ``None``: that of arrival.
        visible: variables; a new row is no change where one goes that is equal in these.
        leaving: rows that leave the parts are wanted; otherwise those that enter.
        wanted: true if changes that come now would be emitted.
        fixed: OFFSET and LIMIT of all queries: all changes are sent.
        seers: then the columns for the last query that does not see a row yet, and the last that
            does; none where all queries see the same.
    """

    def __init__(
        self,
        upstream: Node,
        key: SortKeyOf | None,
        visible: Sequence[Variable],
        *,
        leaving: bool = False,
        wanted: Callable[[], bool] = lambda: True,
        fixed: tuple[int, int | None] | None = None,
        seers: tuple[Variable, ...] = (INSTANCE,),
    ) -> None:
        hidden = {INSTANCE, *filter(hidden_stamp, upstream.schema)}
        rows = tuple([name for name in upstream.schema if name not in hidden])
        schema = (*rows, *seers)
        super().__init__(schema, upstream.certain & {*rows} | {*seers}, monotone=False)
        self._row = projection(upstream.schema, rows)
        self._key = key.whole if isinstance(key, SortKey) else key
        self._visible = projection(rows, [name for name in visible if name in rows])
        self._leaving = leaving
        self._wanted = wanted
        self._fixed = fixed
        apart = INSTANCE in upstream.schema
        self._column = upstream.schema.index(INSTANCE) if apart else None
        self._stamped = not apart and any(map(hidden_stamp, upstream.schema))
        self._seen_by = seen_by(upstream.schema)
        self._arrived = self._settled = self._latest = self._dropped = 0
        self._entries: dict[int, _Entry] = {}
        # By the row, or by all that tells it from others that other queries see.
        self._copies: dict[Solution, list[_Entry]] = {}
        self._parts: dict[int, _Part] = {}
        self._slices: dict[int, tuple[_Part, tuple[int, int]]] = {}
        self._touched: dict[_Slice, _Part] = {}
        if not seers:
            self.add(1, (0, None), news=False)
        upstream.connect(self._push)

    @property
    def pending(self) -> bool:
        """True if some part has changed."""
        return bool(self._touched)

    # ----------------------------------------------------------------------------- queries

    def add(self, number: int, part: tuple[int, int | None], *, news: bool) -> None:
        """Add a query; what is there already may be news to it."""
        offset, limit = part if self._fixed is None else self._fixed
        bounds = (offset, sys.maxsize if limit is None else offset + limit)
        with self._arranging(number):
            one = self._part_of(number)
            one.slices.setdefault(bounds, _Slice()).numbers.append(number)
            self._slices[number] = one, bounds
            one.reach()
        if news and self._fixed is None and not self._leaving and self._wanted():
            self._send([each[1] for each in one.best[slice(*bounds)]], [number], 1)

    def _part_of(self, number: int) -> _Part:
        parts = self._parts
        if not self._stamped and self._column is None:
            number = 1
        elif self._stamped and number <= self._settled:
            number = next((each for each in parts if each <= self._settled), number)
        if number not in parts:
            part = parts[number] = _Part(number, self._entries, by_arrival=self._key is None)
            if self._latest >= number:
                part.choose()
        return parts[number]

    def remove(self, number: int) -> None:
        part, bounds = self._slices.pop(number)
        part.slices[bounds].numbers.remove(number)
        if not part.slices[bounds].numbers:
            if self._fixed is not None:
                self._show(-1, (part,))
            self._touched.pop(part.slices.pop(bounds), None)
        if not part.slices:
            del self._parts[part.number]
        part.reach()
        self._dropped += self._column is not None
        if self._dropped > len(self._slices):
            self._drop_unseen()

    def _drop_unseen(self) -> None:
        """Forget rows of queries that have ended: nobody says when they go."""
        self._dropped, left = 0, self._slices.keys()
        for held, own in tuple(self._copies.items()):
            for each in [each for each in own if left.isdisjoint(each[3])]:
                own.remove(each)
                del self._entries[each[2]]
            if not own:
                del self._copies[held]

    def settle(self, number: int) -> None:
        """Note that queries up to this one see all rows, from now on."""
        self._settled = number
        *others, last = [each for each in self._parts if each <= number] or [0]
        if not self._stamped or self._touched or not others:
            return
        with self._arranging(0):
            one = self._parts[last]
            for each in others:
                for bounds, own in self._parts.pop(each).slices.items():
                    one.slices.setdefault(bounds, _Slice()).numbers += own.numbers
                    self._slices.update(dict.fromkeys(own.numbers, (one, bounds)))
            one.reach()

    @contextmanager
    def _arranging(self, number: int) -> Iterator[None]:
        """Send anew who sees what, where parts change that are not before this number."""
        if self._fixed is None:
            yield
            return
        self._show(-1, [each for each in self._parts.values() if each.number >= number])
        yield
        moved = sorted(each for each in self._parts if each >= number)
        after = max([each for each in self._parts if each < number], default=0)
        for each in moved:
            self._parts[each].after, after = after, each
        self._show(1, map(self._parts.__getitem__, moved))

    def _show(self, sign: int, parts: Iterable[_Part]) -> None:
        for part in parts:
            for offset, end in part.slices:
                for entry in part.best[offset:end]:
                    self.emit(self._seen(entry[1], part), sign)

    def _seen(self, row: Solution, part: _Part) -> Solution:
        return (*row, part.after, part.number) if self._stamped else row

    # -------------------------------------------------------------------------------- rows

    def _push(self, solution: Solution, count: int) -> None:
        row, parts = self._row(solution), self._parts
        held = row
        seers: _Seers = _EVERYBODY
        if self._column is not None:
            numbers: Any = solution[self._column]
            if not isinstance(numbers, tuple):
                held, seers = solution, (numbers,)
            else:
                seers = numbers if len(numbers) <= _FEW else frozenset(numbers)
            some = [part for each in seers if (part := parts.get(each)) is not None]
        else:
            if self._stamped:
                after, until = self._seen_by(solution)
                self._latest = max(self._latest, until)
                held, seers = solution, range(after + 1, until + 1)
            some = [each for each in parts.values() if each.number in seers]
        if count < 0 and not some and held not in self._copies:
            # The queries that it was for have ended.
            return
        key = None if self._key is None else self._key(solution)
        for _ in range(abs(count)):
            if count > 0:
                self._arrived = arrived = self._arrived + 1
                entry = (arrived if key is None else key, row, arrived, seers)
                self._entries[arrived] = entry
                self._copies.setdefault(held, []).append(entry)
            else:
                entry = self._first(self._copies[held], seers)
                del self._entries[entry[2]]
                if not self._copies[held]:
                    del self._copies[held]
            for part in some:
                if part.all or entry <= part.best[-1]:
                    self._move(entry, 1 if count > 0 else -1, part)

    def _first(self, own: list[_Entry], seers: _Seers) -> _Entry:
        """Take the first of the copies that these queries see, and no others left."""
        if len(own) == 1 or own[0][3] == seers:
            return own.pop(0)
        left = self._slices.keys()
        here = left & seers
        return own.pop(next(at for at, each in enumerate(own) if left & each[3] == here))

    def _move(self, entry: _Entry, sign: int, part: _Part) -> None:
        """Put a row into the order of a part, or take it from there."""
        best = part.best
        at = bisect_left(best, entry)
        if sign > 0:
            best.insert(at, entry)
        if at < part.end and self._wanted():
            size = len(best)
            for (offset, end), own in part.slices.items():
                if at < end and offset < size:
                    own.move(best[at if at > offset else offset], sign)
                    if end < size:
                        own.move(best[end], -sign)
                    self._touched[own] = part
        if sign < 0:
            del best[at]
            if len(best) <= part.end and not part.all:
                part.choose()
        elif len(best) > 2 * part.reserve:
            del best[part.reserve :]
            part.all = False

    def flush(self) -> None:
        """Notify the queries whose part changed, together those with the same new rows."""
        touched, self._touched = self._touched, {}
        alike: dict[tuple[int, ...], tuple[list[Solution], list[int]]] = {}
        for own, part in touched.items():
            came, went = own.entered, own.left
            own.entered, own.left = {}, {}
            if self._fixed is not None:
                for sign, some, others in ((-1, went, came), (1, came, went)):
                    for row in self._new(some.values(), others.values()):
                        self.emit(self._seen(row, part), sign)
                continue
            if self._leaving:
                came, went = went, came
            if rows := self._new(came.values(), went.values()):
                key = tuple(map(id, rows))
                alike.setdefault(key, (rows, []))[1].extend(own.numbers)
        for rows, numbers in alike.values():
            self._send(rows, numbers, -1 if self._leaving else 1)

    def _new(self, came: Iterable[_Entry], went: Iterable[_Entry]) -> list[Solution]:
        """Return the rows that came, but for those of which an equal one went."""
        gone = [self._visible(each[1]) for each in went]
        result = []
        for each in sorted(came):
            if gone and (key := self._visible(each[1])) in gone:
                gone.remove(key)
            else:
                result.append(each[1])
        return result

    def _send(self, rows: Iterable[Solution], numbers: Sequence[int], sign: int) -> None:
        column = tuple(numbers)
        for row in rows:
            self.emit((*row, column), sign)  # type: ignore[arg-type]
