"""The join of two inputs that have at most one solution for each key, as groupings do.

Both sides of such a join mostly change together, and each change is a row that goes and one that
comes. A join that answers at once makes rows that the next change takes back. This one waits for
the end of the tick and then sends, key by key, what the row was and what it is.
"""

from collections.abc import Callable
from typing import Any

from tpf_client.dataflow.changes import UNBOUND, Sink, Solution, projection
from tpf_client.dataflow.hash_join import HashJoin
from tpf_client.dataflow.layout import layout
from tpf_client.dataflow.node import Input, Node


def joins_by_key(left: Node, right: Node) -> bool:
    """Whether both nodes have at most one solution for each value of their shared variables."""
    shared = {name for name in left.schema if name in right.schema}
    return all(each.unique is not None and each.unique <= shared for each in (left, right))


class KeyedJoin(Node):
    """The joined rows; see `joins_by_key` for what may be joined.

    A key that lacks a value may meet several others. From the first one on, everything goes through
    a `HashJoin`.
    """

    def __init__(self, left: Node, right: Node) -> None:
        how = layout(left.schema, left.certain, right.schema, right.certain)
        super().__init__(how.schema, how.certain, monotone=False)
        self.unique = (left.unique or frozenset()) | (right.unique or frozenset())
        self._left: dict[Solution, Solution] = {}
        self._right: dict[Solution, Solution] = {}
        self._shown: dict[Solution, Solution] = {}
        self._touched: dict[Solution, None] = {}
        self._rest = how.rest
        self._inputs = (Input(left.schema, left.certain), Input(right.schema, right.certain))
        self._general: HashJoin | None = None
        left_key = projection(left.schema, how.shared)
        right_key = projection(right.schema, how.shared)
        left.connect(self._sink(self._left, 0, left_key))
        right.connect(self._sink(self._right, 1, right_key))

    @property
    def pending(self) -> bool:
        """Whether a row came or went."""
        return bool(self._touched)

    def _sink(
        self, rows: dict[Solution, Solution], side: int, key_of: Callable[[Solution], Solution]
    ) -> Sink:
        touched = self._touched

        def push(row: Solution, count: int) -> None:
            if self._general is None:
                key = key_of(row)
                if UNBOUND not in key:
                    touched[key] = None
                    if count > 0:
                        rows[key] = row
                    elif rows.get(key) == row:
                        del rows[key]
                    return
                self._generalise()
            self._inputs[side].push(row, count)

        return push

    def _generalise(self) -> None:
        """Let a hash join take over, which first learns what was sent."""
        self.flush()
        self._general = HashJoin(*self._inputs)
        for rows, entry in zip((self._left, self._right), self._inputs, strict=True):
            for row in rows.values():
                entry.push(row, 1)
        for table in (self._left, self._right, self._shown):
            table.clear()
        self._general.connect(self.emit)

    def flush(self) -> None:
        """Send what changed about the keys that something happened to."""
        if not self._touched:
            return
        touched = list(self._touched)
        self._touched.clear()
        emit, rest = self.emit, self._rest
        left, right, shown = self._left, self._right, self._shown
        for key in touched:
            one, other = left.get(key), right.get(key)
            now: Any = None if one is None or other is None else one + rest(other)
            before = shown.get(key)
            if now == before:
                continue
            if before is not None:
                emit(before, -1)
            if now is not None:
                shown[key] = now
                emit(now, 1)
            else:
                del shown[key]
