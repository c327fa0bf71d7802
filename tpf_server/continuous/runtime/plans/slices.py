"""OFFSET and LIMIT of many queries that differ in nothing else: one order, each has a part.

The change of each part follows from positions alone: a new row is new to all whose limit reaches
it, and at each limit the rows behind it move one on. So queries between two positions of change are
notified together; only where rows move up each query gets a row of its own.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Key, Node
from tpf_client.dataflow.operators.order import Entry, SortKeyOf, TopK
from tpf_server.continuous.runtime.static.static_cache import INSTANCE

# How the beginning of an order changed: what came where, and what went from where.


class OrderNews:
    """A change of an order."""

    def __init__(
        self,
        before: list[Entry],
        now: list[Entry],
        kept: list[Entry],
        came: list[int],
        went: list[int],
    ) -> None:
        self.before = before
        self.now = now
        self.kept = kept
        self.came = came
        self.went = went

    @property
    def extent(self) -> tuple[int, int]:
        """Return the first and the last position of change."""
        first, last = sys.maxsize, -1
        for positions in (self.came, self.went):
            if positions:
                first, last = min(first, positions[0]), max(last, positions[-1])
        if len(self.came) != len(self.went):
            # All that stand behind have moved.
            last = max(len(self.now), len(self.before)) - 1
        return first, last

    def crossing(self, end: int) -> tuple[int, int]:
        """Return how many of `kept` are below `end`: the fewer and the more of both times."""
        now = min(end, len(self.now)) - bisect_left(self.came, end)
        before = min(end, len(self.before)) - bisect_left(self.went, end)
        return min(now, before), max(now, before)

    def of(self, offset: int, end: int) -> tuple[list[Entry], list[Entry]]:
        """Return the rows that came into positions `offset` to `end`, and those that left."""
        came, went, kept = self.came, self.went, self.kept
        size, size_before = len(self.now), len(self.before)
        first, last = bisect_left(came, offset), bisect_left(came, end)
        first_gone, last_gone = bisect_left(went, offset), bisect_left(went, end)
        # Which of the kept rows they have now, and had before.
        a, b = min(offset, size) - first, min(end, size) - last
        c, d = min(offset, size_before) - first_gone, min(end, size_before) - last_gone
        entered = kept[a : min(b, c)] + kept[max(a, d) : b]
        left = kept[c : min(d, a)] + kept[max(c, b) : d]
        if first < last:
            entered += [self.now[position] for position in came[first:last]]
        if first_gone < last_gone:
            left += [self.before[position] for position in went[first_gone:last_gone]]
        return entered, left


def differences(
    before: list[Entry], now: list[Entry], new: Sequence[Entry], gone: Sequence[Entry]
) -> tuple[list[int], list[int]]:
    """Return the positions in `now` of entries that `before` lacks, and the reverse."""
    if not before:
        return [*range(len(now))], []
    # What stands behind all that there was before is new here, wherever it comes from.
    tail = bisect_right(now, before[-1])
    came = _found(now, new, tail)
    went = _found(before, gone, len(before))
    # What has been pushed out of `now` are the last ones of `before`.
    survive = tail - len(came)
    position = len(before)
    rest = set(went)
    kept = len(before) - len(went)
    while kept > survive:
        position -= 1
        if position not in rest:
            insort(went, position)
            kept -= 1
    return [*came, *range(tail, len(now))], went


def _found(entries: list[Entry], chosen: Iterable[Entry], end: int) -> list[int]:
    positions = ((bisect_left(entries, each, 0, end), each) for each in chosen)
    return sorted(
        position for position, each in positions if position < end and entries[position] == each
    )


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
        positions = [position for position in kept if source.schema[position] in visible]
        # Whether rows that are equal to a reader stand beside each other.
        self._exact = key is not None and len(positions) == len(kept)
        self._places = None if len(positions) == len(source.schema) else positions
        self._leaving = leaving
        self._is_wanted = wanted
        self._prefix: list[Entry] = []
        # The numbers of queries without an offset, by their limits; in order of these; all others.
        self._limits: list[int] = []
        self._numbers: list[int] = []
        self._apart: dict[tuple[int, int], list[int]] = {}
        self._ranked: list[tuple[int, int]] = []
        self._longest = 0
        self._parts: dict[int, tuple[int, int]] = {}

    def add(self, number: int, offset: int, limit: int | None, *, news: bool) -> None:
        end = sys.maxsize if limit is None else offset + limit
        self._parts[number] = (offset, end)
        if offset:
            if (offset, end) not in self._apart:
                insort(self._ranked, (offset, end))
                self._longest = max(self._longest, end - offset)
            self._apart.setdefault((offset, end), []).append(number)
        else:
            at = bisect_right(self._limits, end)
            self._limits.insert(at, end)
            self._numbers.insert(at, number)
        self._reach()
        if news and not self._leaving and self._is_wanted():
            self._send([(each[1], 1) for each in self._prefix[offset:end]], (number,), 1)

    def remove(self, number: int) -> None:
        offset, _end = part = self._parts.pop(number)
        if offset:
            self._apart[part].remove(number)
            if not self._apart[part]:
                del self._apart[part]
                del self._ranked[bisect_left(self._ranked, part)]
        else:
            at = self._numbers.index(number)
            del self._limits[at], self._numbers[at]
        self._reach()

    def _reach(self) -> None:
        """Sort as many rows as are needed."""
        self._end = max([1, *(end for _, end in self._parts.values())])
        self.reserve = max(32, 3 * self._end)
        if len(self._sorted) < self._end and not self._all:
            self._choose_anew()
        self._prefix = self._sorted[: self._end]

    # ----------------------------------------------------------------------------- changes

    def _show(self, new: list[Entry], gone: list[Entry]) -> None:
        before, now = self._prefix, self._sorted[: self._end]
        self._prefix = now
        if not self._is_wanted():
            return
        came, went = differences(before, now, new, gone)
        if self._leaving:
            before, now, came, went = now, before, went, came
        kept = before[:]
        for position in reversed(went):
            del kept[position]
        news = OrderNews(before, now, kept, came, went)
        sign = -1 if self._leaving else 1
        self._tell_limits(news, sign)
        if self._ranked:
            self._tell_parts(news, sign)

    def _tell_limits(self, news: OrderNews, sign: int) -> None:
        """Notify queries without an offset, together between two positions of change."""
        positions = sorted({*news.came, *news.went})
        limits, numbers = self._limits, self._numbers
        for position, following in zip(positions, [*positions[1:], sys.maxsize], strict=True):
            begin, end = bisect_right(limits, position), bisect_right(limits, following)
            if begin == end:
                continue
            came = news.came[: bisect_left(news.came, limits[begin])]
            went = news.went[: bisect_left(news.went, limits[begin])]
            rows = [news.now[each][1] for each in came]
            if len(came) >= len(went) and not self._clash(news, came, went, limits[begin:end]):
                self._send([(row, 1) for row in rows], tuple(numbers[begin:end]), sign)
                continue
            if not came:
                # Who had all rows has no other now.
                end = bisect_left(limits, len(news.before), begin, end)
            while begin < end:
                limit = limits[begin]
                alike = bisect_right(limits, limit)
                own = tuple(numbers[begin:alike])
                self._send(self._net(news, 0, limit), own, sign)
                begin = alike

    def _tell_parts(self, news: OrderNews, sign: int) -> None:
        """Notify queries with an offset whose part changed, together those with the same rows."""
        first, last = news.extent
        begin = bisect_right(self._ranked, (first - self._longest, sys.maxsize))
        alike: dict[tuple[int, ...], tuple[list[tuple[Solution, int]], list[int]]] = {}
        for part in self._ranked[begin : bisect_left(self._ranked, (last + 1,))]:
            offset, end = part
            if end > first and (rows := self._net(news, offset, end)):
                # What is sent lives as long as this, so that it is told by its address.
                key = tuple([id(row) for row, _ in rows])
                alike.setdefault(key, (rows, []))[1].extend(self._apart[part])
        for rows, numbers in alike.values():
            self._send(rows, tuple(numbers), sign)

    def _clash(
        self, news: OrderNews, came: list[int], went: list[int], limits: Sequence[int]
    ) -> bool:
        """True if a row that comes may be equal to one that goes."""
        seen = self._seen
        rows = {seen(news.now[position]) for position in came}
        if any(seen(news.before[position]) in rows for position in went):
            return True
        if self._exact:
            return any(
                0 <= other < len(news.now) and seen(news.now[other]) == seen(news.now[position])
                for position in came
                for other in (position - 1, position + 1)
            )
        first, last = news.crossing(limits[0])[0], news.crossing(limits[-1])[1]
        return any(seen(each) in rows for each in news.kept[first:last])

    def _net(self, news: OrderNews, offset: int, end: int) -> list[tuple[Solution, int]]:
        """Net the rows that come into a part with equal ones that go."""
        entered, left = news.of(offset, end)
        if not entered or not left:
            return [(each[1], 1) for each in entered]
        seen = self._seen
        if len(entered) == len(left) == 1:
            # What most changes come to, without the steps in between.
            (come,), (gone_,) = entered, left
            return [] if seen(come) == seen(gone_) else [(come[1], 1)]
        gone = Counter(map(seen, left))
        result = []
        for each in entered:
            key = seen(each)
            if gone[key] > 0:
                gone[key] -= 1
            else:
                result.append((each[1], 1))
        return result

    def _seen(self, entry: Entry) -> Solution:
        row = entry[1]
        return row if self._places is None else tuple([row[position] for position in self._places])

    def _send(
        self, rows: Iterable[tuple[Solution, int]], numbers: tuple[int, ...], sign: int
    ) -> None:
        width, emit = self._width, self.emit
        for row, count in rows:
            emit((*row[:width], numbers), sign * count)  # type: ignore[arg-type]


def _last(row: Solution) -> int:
    return row[-1]
