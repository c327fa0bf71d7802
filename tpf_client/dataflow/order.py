"""Order: the first solutions in an order (ORDER BY with OFFSET and LIMIT), under deletions too."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any

from tpf_client.dataflow.changes import Multiset, Solution
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.slice import window

SortKey = Callable[[Solution], Any]
Seen = Callable[[Solution], Solution]


class TopK(Node):
    """The window of a sorted sequence.

    All solutions are kept in order, so that one that vanishes is replaced by the next. Solutions
    with equal keys stand in the order of their identifiers, which makes the window deterministic.

    Args:
        upstream: where the solutions come from.
        key: what to sort by.
        offset: how many to leave out.
        limit: how many to let through, ``None`` for all.
        distinct: where given, of the solutions for which it gives the same only the first counts,
            once (DISTINCT over fewer variables than the order needs).
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
        self._key = key
        self._offset = offset
        self._limit = limit
        self._distinct = distinct
        self._sorted: list[tuple[Any, Solution]] = []
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
        new = []
        for solution, count in changes.items():
            before = self._counts.get(solution, 0)
            after = before + count
            if after:
                self._counts[solution] = after
            else:
                self._counts.pop(solution, None)
            if not before and after:
                new.append((self._key(solution), solution))
            elif before and not after:
                del self._sorted[bisect_left(self._sorted, (self._key(solution), solution))]
        # Sorting merges runs, so that a first load of many costs n log n; few are put in place.
        if len(new) * 8 > len(self._sorted):
            self._sorted.extend(new)
            self._sorted.sort()
        else:
            for entry in new:
                insort(self._sorted, entry)
        now = window(self._in_order(), self._offset, self._limit)
        before_shown, self._shown = self._shown, now
        for row in before_shown.keys() | now.keys():
            change = now[row] - before_shown[row]
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
