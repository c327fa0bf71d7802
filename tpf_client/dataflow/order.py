"""Order: the first solutions in an order (ORDER BY with OFFSET and LIMIT), under deletions too."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import Any

from tpf_client.dataflow.changes import Multiset, Solution
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.slice import window
from tpf_client.sparql.ordering import SortKey as OrderKey

SortKey = Callable[[Solution], Any]
Entry = tuple[Any, Solution]
Seen = Callable[[Solution], Solution]


class TopK(Node):
    """The window of a sorted sequence.

    All solutions are kept, so that one that vanishes is replaced by the next; but where there is a
    limit, only the best few are kept in order, and the others are looked at when those run out.
    Changes behind the window cost nothing further. Solutions with equal keys stand in the order of
    their identifiers, which makes the window deterministic.

    Args:
        upstream: where the solutions come from.
        key: what to sort by.
        offset: how many to leave out.
        limit: how many to let through, ``None`` for all.
        distinct: where given, of the solutions for which it gives the same only the first counts,
            once (DISTINCT over fewer variables than the order needs).

    Attributes:
        upstream: see above.
        key: see above.
        rebuilt: how often the best few were chosen anew, for tests that count work.
    """

    def __init__(
        self,
        upstream: Node,
        key: SortKey,
        offset: int = 0,
        limit: int | None = None,
        distinct: Seen | None = None,
    ) -> None:
        super().__init__(upstream.schema, upstream.certain, monotone=False)
        self.rebuilt = 0
        self.upstream = upstream
        self.key = key
        self._offset = offset
        self._limit = limit
        self._distinct = distinct
        self._whole = key.whole if isinstance(key, OrderKey) else key
        self._first = key.first if isinstance(key, OrderKey) else None
        # How many are kept in order, ``None`` for all.
        wanted = None if limit is None or distinct is not None else offset + limit
        self._reserve = None if wanted is None else max(64, 4 * wanted)
        self._wanted = wanted
        self._sorted: list[Entry] = []
        self._last_sorted: Entry | None = None
        """Solutions behind this one are not in `_sorted`; ``None``: all are."""
        self._last_shown: Entry | None = None
        """Solutions behind this one do not matter to the window; ``None``: all do."""
        self._counts: dict[Solution, int] = {}
        self._changes: dict[Solution, int] = {}
        self._shown: Multiset = Multiset()
        upstream.connect(self._push)

    @property
    def pending(self) -> bool:
        """Whether solutions came or went."""
        return bool(self._changes)

    def _push(self, solution: Solution, count: int) -> None:
        self._changes[solution] = self._changes.get(solution, 0) + count

    def flush(self) -> None:
        """Send what entered and left the window."""
        if not self._changes:
            return
        changes, self._changes = self._changes, {}
        matters = self._last_shown is None
        last_sorted = self._last_sorted
        counts, key, first = self._counts, self._whole, self._first
        # Most of what is behind all that are sorted is so by its first key already.
        if last_sorted is None or first is None:
            first = _nothing
            behind: Any = ()
        else:
            behind = last_sorted[0][0]
        new: list[Entry] = []
        for solution, count in changes.items():
            if not count:
                continue
            before = counts.get(solution, 0)
            after = before + count
            if after:
                counts[solution] = after
            else:
                del counts[solution]
            if first(solution) > behind:
                continue
            entry = (key(solution), solution)
            if last_sorted is None or entry <= last_sorted:
                if not matters and entry <= self._last_shown:  # type: ignore[operator]
                    matters = True
                if not before:
                    new.append(entry)
                elif not after:
                    del self._sorted[bisect_left(self._sorted, entry)]
        # Sorting merges runs, so that a first load of many costs n log n; few are put in place.
        if len(new) * 8 > len(self._sorted):
            self._sorted.extend(new)
            self._sorted.sort()
        else:
            for entry in new:
                insort(self._sorted, entry)
        if self._reserve is not None:
            self._keep_reserve(self._reserve)
        if matters:
            self._show()

    def _keep_reserve(self, reserve: int) -> None:
        if len(self._sorted) > 4 * reserve:
            del self._sorted[reserve:]
            self._last_sorted = self._sorted[-1]
        elif self._last_sorted is not None and len(self._sorted) < (self._wanted or 0):
            self.rebuilt += 1
            key = self._whole
            self._sorted = nsmallest(reserve, [(key(each), each) for each in self._counts])
            everything = len(self._sorted) == len(self._counts)
            self._last_sorted = None if everything else self._sorted[-1]

    def _show(self) -> None:
        now = window(self._in_order(), self._offset, self._limit)
        before, self._shown = self._shown, now
        self._last_shown = None
        if self._wanted is not None and sum(now.values()) == self._limit and self._limit:
            last = next(reversed(now))
            self._last_shown = (self._whole(last), last)
        for row in before.keys() | now.keys():
            change = now[row] - before[row]
            if change:
                self.emit(row, change)

    def _in_order(self) -> Iterator[tuple[Solution, int]]:
        if self._distinct is None:
            for _, solution in self._sorted:
                yield solution, self._counts[solution]
            return
        seen: set[Solution] = set()
        for _, solution in self._sorted:
            visible = self._distinct(solution)
            if visible not in seen:
                seen.add(visible)
                yield solution, 1


def _nothing(_solution: Solution) -> Any:
    return ()


def plain_top_k(
    rows: Multiset, key: SortKey, offset: int, limit: int | None, distinct: Seen | None = None
) -> Multiset:
    """The plain twin."""
    copies = [
        row for row in sorted(rows, key=lambda row: (key(row), row)) for _ in range(rows[row])
    ]
    if distinct is not None:
        first = {distinct(row): row for row in reversed(copies)}
        copies = [row for row in dict.fromkeys(copies) if first[distinct(row)] == row]
    return Multiset(copies[offset : None if limit is None else offset + limit])
