"""The first rows of a keyed node in an order, under changes of all of them."""

from bisect import bisect_left, insort
from heapq import nsmallest
from typing import Any

from tpf_client.dataflow.changes import Multiset, Solution
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.order import SortKey
from tpf_client.sparql.ordering import SortKey as OrderKey
from tpf_server.cqels.keyed import Key, KeyedNode

Entry = tuple[Any, Solution, Key]


class KeyedTopK(Node):
    """What `TopK` does, without a copy of the rows.

    Only the best few are kept in order; when those run out, the node is asked for all its rows.
    A row that is behind them before and after a change costs its first sorting key.

    Args:
        source: where the rows come from.
        key: what to sort by.
        offset: how many to leave out.
        limit: how many to let through.

    Attributes:
        reserve: how many are kept in order when they are chosen anew; not fewer than are shown.
        rebuilt: how often the best few were chosen anew, for tests that count work.
    """

    def __init__(self, source: KeyedNode, key: SortKey, offset: int, limit: int) -> None:
        super().__init__(source.schema, source.certain, monotone=False)
        self.rebuilt = 0
        self._source = source.claimed()
        self._whole = key.whole if isinstance(key, OrderKey) else key
        self._first = key.first if isinstance(key, OrderKey) else key
        self._offset = offset
        self._wanted = offset + limit
        self.reserve = max(32, 3 * self._wanted)
        self._sorted: list[Entry] = []
        self._entries: dict[Key, Entry] = {}
        self._all = True
        """Whether `_sorted` has every row."""
        self._shown: list[Solution] = []

    @property
    def pending(self) -> bool:
        """Whether something happened to a row."""
        return self._source.pending

    def flush(self) -> None:
        """Send what entered and left the window."""
        changed = self._source.changed()
        if not changed:
            return
        row_of, entries, ordered = self._source.row, self._entries, self._sorted
        first, whole = self._first, self._whole
        wanted = self._wanted
        # Rows behind the last one that is kept in order cost no more than to see that.
        last = None if self._all else ordered[-1]
        behind = None if last is None else last[0][0] if first is not whole else last[0]
        # Rows behind the last one that is shown do not matter to the window.
        last_shown = ordered[wanted - 1] if len(ordered) >= wanted else None
        matters = False
        new: list[Entry] = []
        for key in changed:
            row = row_of(key)
            before = entries.get(key)
            if before is None:
                if row is None or (last is not None and first(row) > behind):
                    continue
            elif before[1] == row:
                continue
            else:
                del ordered[bisect_left(ordered, before)]
                del entries[key]
                matters = matters or last_shown is None or before <= last_shown
            if row is None:
                continue
            entry = (whole(row), row, key)
            if last is None or entry <= last:
                entries[key] = entry
                new.append(entry)
                matters = matters or last_shown is None or entry <= last_shown
        # Sorting merges runs, so that a first load of many costs n log n; few are put in place.
        if len(new) * 8 > len(ordered):
            ordered.extend(new)
            ordered.sort()
        else:
            for entry in new:
                insort(ordered, entry)
        size = len(ordered)
        if size > 2 * self.reserve:
            self._shorten()
        elif size < wanted and not self._all:
            self._choose_anew()
        if matters:
            self._show()

    def _shorten(self) -> None:
        ordered, reserve = self._sorted, self.reserve
        for entry in ordered[reserve:]:
            del self._entries[entry[2]]
        del ordered[reserve:]
        self._all = False

    def _choose_anew(self) -> None:
        self.rebuilt += 1
        ordered, row_of, whole = self._sorted, self._source.row, self._whole
        rows = [(key, row_of(key)) for key in self._source.all_keys()]
        entries = [(whole(row), row, key) for key, row in rows if row is not None]
        ordered[:] = nsmallest(self.reserve, entries)
        self._all = len(ordered) == len(entries)
        self._entries = {entry[2]: entry for entry in ordered}

    def _show(self) -> None:
        now = [row for _, row, _ in self._sorted[self._offset : self._wanted]]
        changes = Multiset(now)
        changes.subtract(self._shown)
        self._shown = now
        for row, count in changes.items():
            if count:
                self.emit(row, count)
