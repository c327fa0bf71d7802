"""OFFSET and LIMIT of many queries that differ in nothing else: one order, each has a part.

What is new in a part is told to all queries to which the same rows are new together.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution, projection
from tpf_client.dataflow.node import Key, Node
from tpf_client.dataflow.operators.order import Entry, SortKeyOf, TopK
from tpf_server.continuous.runtime.static.static_rows import INSTANCE

_ARRIVED = Variable("?.arrived")


class Copies(Node):
    """The solutions of a node as rows, one per copy, with the number of its arrival.

    The last copy to come is the first to go.
    """

    def __init__(self, upstream: Node) -> None:
        super().__init__(
            (*upstream.schema, _ARRIVED), upstream.certain | {_ARRIVED}, monotone=False, keyed=True
        )
        self._arrived = 0
        self._copies: dict[Solution, list[int]] = {}
        self._rows: dict[Key, Solution] = {}
        self._touched: dict[Key, None] = {}
        self.row = self._rows.get
        upstream.connect(self._push)

    @property
    def pending(self) -> bool:
        """True if solutions came or went."""
        return bool(self._touched)

    def loose(self) -> bool:
        return False

    def changed(self) -> Collection[Key]:
        touched, self._touched = self._touched, {}
        return touched

    def all_keys(self) -> Iterable[Key]:
        return self._rows

    def _push(self, solution: Solution, count: int) -> None:
        copies = self._copies.setdefault(solution, [])
        for _ in range(count):
            self._arrived += 1
            copies.append(self._arrived)
            key = (self._arrived,)
            self._rows[key] = (*solution, self._arrived)
            self._touched[key] = None
        for _ in range(-count):
            key = (copies.pop(),)
            del self._rows[key]
            self._touched[key] = None
        if not copies:
            del self._copies[solution]


class Slices(TopK):
    """Slice rows for each query; the column `INSTANCE` holds the numbers of the queries.

    Args:
        visible: variables; a new row is no change where one goes that is equal in these.
        leaving: rows that leave the parts are wanted; otherwise those that enter.
    """

    def __init__(
        self,
        source: Node,
        key: SortKeyOf | None,
        visible: Sequence[Variable],
        *,
        leaving: bool,
        wanted: Callable[[], bool],
    ) -> None:
        super().__init__(source, key or _last, 0, 1, asks=True)
        kept = [position for position, name in enumerate(source.schema) if name != _ARRIVED]
        self._width = len(kept)
        self.schema = (*(source.schema[position] for position in kept), INSTANCE)
        self._seen = projection(source.schema, [name for name in visible if name != _ARRIVED])
        self._leaving = leaving
        self._is_wanted = wanted
        self._prefix: list[Entry] = []
        self._parts: dict[int, tuple[int, int]] = {}
        self._queries: dict[tuple[int, int], list[int]] = {}

    def add(self, number: int, offset: int, limit: int | None, *, news: bool) -> None:
        end = sys.maxsize if limit is None else offset + limit
        self._parts[number] = (offset, end)
        self._queries.setdefault((offset, end), []).append(number)
        self._reach()
        if news and not self._leaving and self._is_wanted():
            self._send([each[1] for each in self._prefix[offset:end]], [number], 1)

    def remove(self, number: int) -> None:
        part = self._parts.pop(number)
        self._queries[part].remove(number)
        if not self._queries[part]:
            del self._queries[part]
        self._reach()

    def _reach(self) -> None:
        """Sort as many rows as are needed."""
        self._end = max([1, *(end for _, end in self._queries)])
        self.reserve = max(32, 3 * self._end)
        if len(self._sorted) < self._end and not self._all:
            self._choose_anew()
        self._prefix = self._sorted[: self._end]

    def _show(self) -> None:
        """Notify the queries whose part changed, together those with the same new rows."""
        before, now = self._prefix, self._sorted[: self._end]
        self._prefix = now
        if not self._is_wanted():
            return
        if self._leaving:
            before, now = now, before
        same = min(len(before), len(now))
        first = next((at for at in range(same) if before[at] is not now[at]), same)
        alike: dict[tuple[int, ...], tuple[list[Solution], list[int]]] = {}
        for (offset, end), numbers in self._queries.items():
            begin = offset if offset > first else first
            if (one := before[begin:end]) != (other := now[begin:end]):
                rows = self._new(one, other)
                # The rows of the order live as long as this, so their addresses name them.
                alike.setdefault(tuple(map(id, rows)), (rows, []))[1].extend(numbers)
        for rows, numbers in alike.values():
            self._send(rows, numbers, -1 if self._leaving else 1)

    def _new(self, before: list[Entry], now: list[Entry]) -> list[Solution]:
        """Return the rows of a part that it did not have, nor others equal to them."""
        had, has, seen = set(map(id, before)), set(map(id, now)), self._seen
        gone = [seen(each[1]) for each in before if id(each) not in has]
        result = []
        for each in now:
            if id(each) not in had:
                if gone and (key := seen(each[1])) in gone:
                    gone.remove(key)
                else:
                    result.append(each[1])
        return result

    def _send(self, rows: Iterable[Solution], numbers: Sequence[int], sign: int) -> None:
        width, emit, column = self._width, self.emit, tuple(numbers)
        for row in rows:
            emit((*row[:width], column), sign)  # type: ignore[arg-type]


def _last(row: Solution) -> int:
    return row[-1]
