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
from typing import Any

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution, projection
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.order import SHARE, SortKeyOf
from tpf_client.sparql.ordering import SortKey
from tpf_server.continuous.runtime.plans.dispatch import hidden_stamp, seen_by
from tpf_server.continuous.runtime.static.static_rows import INSTANCE

_Entry = tuple[Any, Solution, int, int, int]
"""A copy of a row: its sorting key, the row, the number of its arrival, and who sees it."""
_Copies = dict[tuple[Solution, int, int], list[_Entry]]


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
        copies: all rows, also others.
        by_arrival: the order is that of `copies`.

    Attributes:
        after: the number of the part before.
        best: rows in order; behind them there may be others, unless it has `all`.
        end: so many rows are needed.
        reserve: so many are chosen.
    """

    def __init__(self, number: int, copies: _Copies, *, by_arrival: bool) -> None:
        self.number = number
        self.copies = copies
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
        """Choose the first rows among all."""
        number = self.number
        entries = (e for own in self.copies.values() for e in own if e[3] < number <= e[4])
        if self.by_arrival:
            self.best = [*islice(entries, min(self.reserve, sys.maxsize))]
            self.all = len(self.best) < self.reserve
            return
        every = [*entries]
        self.reserve = max(self.reserve, len(every) // SHARE)
        self.best = nsmallest(self.reserve, every, key=itemgetter(0, 1, 2))
        self.all = len(self.best) == len(every)


class Slices(Node):
    """Slice rows for each query; the column `INSTANCE` holds the numbers of the queries.

    Where rows have that column already, or stamps (see `Watermark`), queries see different rows.

    Args:
        key: of the order; ``None``: that of arrival, equal rows together.
        visible: variables; a new row is no change where one goes that is equal in these.
        leaving: rows that leave the parts are wanted; otherwise those that enter.
        wanted: true if changes that come now would be emitted.
        fixed: OFFSET and LIMIT of all queries: all changes are sent.
        seers: then the columns for the last query that does not see a row yet, and the last that
            does.
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
        self._arrived = self._settled = self._latest = 0
        self._copies: _Copies = {}
        self._parts: dict[int, _Part] = {}
        self._slices: dict[int, tuple[_Part, tuple[int, int]]] = {}
        self._touched: dict[_Slice, _Part] = {}
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
            copies = {} if self._column is not None else self._copies
            part = parts[number] = _Part(number, copies, by_arrival=self._key is None)
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
        moved = [each for each in self._parts.values() if each.number >= number]
        self._show(-1, moved)
        yield
        after = 0
        for each in sorted(self._parts):
            self._parts[each].after, after = after, each
        self._show(1, [each for each in self._parts.values() if each.number >= number])

    def _show(self, sign: int, parts: Iterable[_Part]) -> None:
        for part in parts:
            for offset, end in part.slices:
                for entry in part.best[offset:end]:
                    self.emit((*entry[1], part.after, part.number), sign)

    # -------------------------------------------------------------------------------- rows

    def _push(self, solution: Solution, count: int) -> None:
        row, after, until = self._row(solution), 0, sys.maxsize
        holders: list[tuple[_Copies, Sequence[_Part]]]
        if self._column is None:
            after, until = self._seen_by(solution)
            self._latest = max(self._latest, until)
            parts = [each for each in self._parts.values() if after < each.number <= until]
            holders = [(self._copies, parts)]
        else:
            numbers: Any = solution[self._column]
            some = map(self._parts.get, numbers if isinstance(numbers, tuple) else (numbers,))
            holders = [(each.copies, (each,)) for each in some if each is not None]
        key = None if self._key is None else self._key(solution)
        seen = row, after, until
        sign = 1 if count > 0 else -1
        for _ in range(abs(count)):
            self._arrived += count > 0
            new = (self._arrived if key is None else key, row, self._arrived, after, until)
            for copies, some_parts in holders:
                own = copies.setdefault(seen, [])
                if sign > 0:
                    own.append(entry := (own[0][0], *new[1:]) if own and key is None else new)
                else:
                    entry = own.pop()
                    if not own:
                        del copies[seen]
                for part in some_parts:
                    if part.all or entry <= part.best[-1]:
                        self._move(entry, sign, part)

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
                        self.emit((*row, part.after, part.number), sign)
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
