"""Keep the versions of facts in columns, and the slots that hold the versions of one fact.

A *slot* holds all versions with one key and kind of label; at most one is valid at any instant. A
*row* is one version: its object, when it holds (`start`, `end`), and in which states it exists
(`added` up to `removed`, sequence numbers). So an older state is a filter, never an undo
(Snodgrass, *Developing Time-Oriented Database Applications in SQL*, 1999, chapter 10).
"""

from array import array
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tpf_server.store.live.log import FOREVER, NO_START, Version

# Terms of a live store as small integers that are free again when nothing refers to them.


class _TermTable:
    """Number terms densely and count references; unreferenced terms are freed."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._texts: list[str] = []
        self._references = array("q")
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, text: str) -> int | None:
        return self._ids.get(text)

    def text(self, number: int) -> str:
        return self._texts[number]

    def texts(self, numbers: Iterable[int]) -> Iterator[str]:
        return map(self._texts.__getitem__, numbers)

    def acquire(self, text: str) -> int:
        number = self._ids.get(text)
        if number is not None:
            self._references[number] += 1
            return number
        if self._free:
            number = self._free.pop()
            self._texts[number] = text
            self._references[number] = 1
        else:
            number = len(self._texts)
            self._texts.append(text)
            self._references.append(1)
        self._ids[text] = number
        return number

    def release(self, number: int) -> None:
        self._references[number] -= 1
        if not self._references[number]:
            del self._ids[self._texts[number]]
            self._texts[number] = ""
            self._free.append(number)


ANY = -1
"""An open position of a pattern of numbers."""
EXPIRING, INTERVALS = 0, 1
"""The two kinds of slots."""
_NOT_USED = FOREVER
_FEW = 16

Array: TypeAlias = npt.NDArray[Any]


def _grown(column: "array[int]", size: int, value: int) -> "array[int]":
    more = array(column.typecode, [value]) * (size - len(column))
    try:
        column.extend(more)
    except BufferError:  # numpy looks into it
        return column + more
    return column


def _room(number: int) -> int:
    # A sixteenth more at a time: doubling a million rows would stop a server for a moment.
    return max(number + 1 + number // 16, 64)


class Rows:
    """The columns, and the rows of each slot in order."""

    def __init__(self) -> None:
        self.terms = _TermTable()
        self.start = array("q")
        self.end = array("q")
        self.added = array("q")
        self.removed = array("q")
        self.token = array("q")
        self.object = array("i")
        self.slot = array("i")
        self.subject_of = array("i")
        self.predicate_of = array("i")
        self.graph_of = array("i")
        self.kind_of = array("b")
        self._rows_of: list[int | tuple[int, ...] | MutableSequence[int] | None] = []
        # Tuples of numbers, unlike arrays, are no concern of the garbage collector.
        self.live_rows = 0
        """Rows in use, superseded ones included."""
        self.probes = 0
        """How many rows were looked at one by one: the measure of work in tests."""

    def numpy(self, name: str) -> Array:
        """Return a column as numpy array, in the same memory until rows are added."""
        column: array[int] = getattr(self, name)
        kinds = {"q": np.int64, "i": np.int32, "b": np.int8}
        return np.frombuffer(column, dtype=kinds[column.typecode])

    def in_use(self) -> npt.NDArray[np.bool_]:
        """Return for every row True where it holds a version."""
        used: npt.NDArray[np.bool_] = self.numpy("added") != _NOT_USED
        return used

    def _make_room(self, row: int, slot: int) -> None:
        if row >= len(self.start):
            size = _room(row)
            for name in ("start", "end", "removed", "token"):
                setattr(self, name, _grown(getattr(self, name), size, 0))
            self.added = _grown(self.added, size, _NOT_USED)
            for name in ("object", "slot"):
                setattr(self, name, _grown(getattr(self, name), size, ANY))
        if slot >= len(self.kind_of):
            size = _room(slot)
            for name in ("subject_of", "predicate_of", "graph_of", "kind_of"):
                setattr(self, name, _grown(getattr(self, name), size, ANY))
            self._rows_of.extend([None] * (size - len(self._rows_of)))

    def row_in_use(self, row: int) -> bool:
        return row < len(self.added) and self.added[row] != _NOT_USED

    def exists(self, row: int, sequence: int) -> bool:
        """True where a row is part of a state."""
        return self.added[row] <= sequence < self.removed[row]

    def slot_in_use(self, slot: int) -> bool:
        return slot < len(self._rows_of) and self._rows_of[slot] is not None

    def insert(self, version: Version, added: int, removed: int) -> bool:
        """Put a version into its row and slot; return True where the slot is new."""
        row, slot = version.row, version.slot
        self._make_room(row, slot)
        self.start[row] = version.start
        self.end[row] = version.end
        self.added[row] = added
        self.removed[row] = removed
        self.token[row] = version.token
        self.object[row] = self.terms.acquire(version.object)
        self.slot[row] = slot
        self.live_rows += 1
        rows = self._rows_of[slot]
        if rows is None:
            self._rows_of[slot] = row
            self.subject_of[slot] = self.terms.acquire(version.subject)
            self.predicate_of[slot] = self.terms.acquire(version.predicate)
            self.graph_of[slot] = self.terms.acquire(version.graph)
            self.kind_of[slot] = EXPIRING if version.start == NO_START else INTERVALS
            return True
        if isinstance(rows, int):
            rows = (rows,)
        if isinstance(rows, tuple):
            position = bisect_right(rows, self._order(row), key=self._order)
            rows = (*rows[:position], row, *rows[position:])
            self._rows_of[slot] = rows if len(rows) <= _FEW else array("i", rows)
        elif self._order(rows[-1]) <= self._order(row):
            rows.append(row)
        else:
            insort(rows, row, key=self._order)
        return False

    def _order(self, row: int) -> tuple[int, int]:
        return self.start[row], self.added[row]

    def remove(self, row: int) -> tuple[int, bool]:
        """Free a retired row.

        Return its slot, and True where that is empty now (see `release_slot`).
        """
        slot = self.slot[row]
        rows = self._rows_of[slot]
        if isinstance(rows, array):
            if rows[0] == row:
                del rows[0]
            else:
                rows.remove(row)
            if len(rows) <= _FEW // 2:
                self._rows_of[slot] = tuple(rows)
            empty = False
        elif isinstance(rows, tuple):
            rest = tuple(one for one in rows if one != row)
            self._rows_of[slot] = rest[0] if len(rest) == 1 else rest
            empty = False
        else:
            self._rows_of[slot] = None
            empty = True
        self.added[row] = _NOT_USED
        self.removed[row] = NO_START
        self.terms.release(self.object[row])
        self.live_rows -= 1
        return slot, empty

    def release_slot(self, slot: int) -> None:
        for column in (self.subject_of, self.predicate_of, self.graph_of):
            self.terms.release(column[slot])

    def rows(self, slot: int) -> Sequence[int]:
        rows = self._rows_of[slot] if slot < len(self._rows_of) else None
        if rows is None:
            return ()
        return (rows,) if isinstance(rows, int) else rows

    def holds(self, slot: int, obj: int) -> bool:
        """True where a row of a slot has this object."""
        rows = self.rows(slot)
        if len(rows) <= _FEW:
            return any(self.object[row] == obj for row in rows)
        return bool((self.numpy("object")[np.asarray(rows)] == obj).any())

    def repeats(self, row: int) -> bool:
        """True where a row's fact repeats a term."""
        slot = self.slot[row]
        subject, predicate, graph = (
            self.subject_of[slot], self.predicate_of[slot], self.graph_of[slot],
        )  # fmt: skip
        obj = self.object[row]
        return subject in (predicate, obj, graph) or predicate in (obj, graph) or obj == graph

    def row_at(self, slot: int, instant: int, sequence: int) -> int:
        """Bisect for the row of a slot that is valid at an instant of a state, or -1."""
        rows = self._rows_of[slot]
        added, removed = self.added, self.removed
        if isinstance(rows, int):
            row = rows
            self.probes += 1
            if not added[row] <= sequence < removed[row]:
                return -1
        elif rows is None:
            return -1
        else:
            expiring = self.kind_of[slot] == EXPIRING
            if expiring:
                position = bisect_right(rows, sequence, key=added.__getitem__) - 1
            else:
                position = bisect_right(rows, instant, key=self.start.__getitem__) - 1
            self.probes += len(rows).bit_length()
            while position >= 0:
                row = rows[position]
                self.probes += 1
                if added[row] <= sequence < removed[row]:
                    break
                # Each expiring version replaced the one before it, so no other can be there.
                position = -1 if expiring else position - 1
            else:
                return -1
        return row if self.start[row] <= instant < self.end[row] else -1

    def next_start(self, slot: int, instant: int, sequence: int, obj: int = ANY) -> int:
        """Return the earliest later start in a state of a row with this object, or FOREVER."""
        if self.kind_of[slot] == EXPIRING:
            return FOREVER
        rows = self.rows(slot)
        position = bisect_right(rows, instant, key=self.start.__getitem__)
        for row in rows[position : position + _FEW]:
            self.probes += 1
            if self.added[row] <= sequence < self.removed[row] and obj in (ANY, self.object[row]):
                return self.start[row]
        position += _FEW
        if position >= len(rows):
            return FOREVER
        return self._next_start_of_many(np.asarray(rows[position:]), sequence, obj)

    def _next_start_of_many(self, rows: Array, sequence: int, obj: int) -> int:
        columns = self.numpy("added"), self.numpy("removed"), self.numpy("object")
        position, size = 0, 256
        while position < len(rows):
            block = rows[position : position + size]
            self.probes += len(block)
            added, removed, objects = (column[block] for column in columns)
            result = (added <= sequence) & (sequence < removed)
            if obj != ANY:
                result &= objects == obj
            if result.any():
                return self.start[int(block[int(result.argmax())])]
            position, size = position + size, 2 * size
        return FOREVER

    def version(self, row: int) -> Version:
        slot, text = self.slot[row], self.terms.text
        return Version(
            row,
            slot,
            text(self.subject_of[slot]),
            text(self.predicate_of[slot]),
            text(self.object[row]),
            text(self.graph_of[slot]),
            self.start[row],
            self.end[row],
            self.token[row],
        )


# From the token of a minted name to the rows whose fact has it.
#
# A token is a digest that only the fact itself gives, which takes microseconds each. So the first
# 64 bits of it are computed once, where the fact is published, and travel in the log; here they
# are sorted when a minted name is first looked up, and new rows are merged in from time to time.

_FEW_KEYS = 1024
_MERGED, _FORGOTTEN = 8, 2
"""New rows are merged at the next lookup when they are this part; forgotten when they are that."""


def token_bits(token: str) -> int:
    """Return the first 64 bits of a token, signed; 0 for none."""
    try:
        bits = int(token[:16], 16)
    except ValueError:
        return 0
    return bits - (1 << 64) if bits >> 63 else bits


class Names:
    """Rows by token."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._forget()

    def _forget(self) -> None:
        self._bits: Array | None = None
        self._sorted: Array = np.empty(0, np.int32)
        self._recent: dict[int, set[int]] = {}
        self._added = 0

    def add(self, row: int) -> None:
        """Add a row. Costs nothing before the first lookup, or long after the last one."""
        if self._bits is not None:
            if self._added > max(_FEW_KEYS, len(self._bits) // _FORGOTTEN):
                self._forget()
                return
            self._recent.setdefault(self._rows.token[row], set()).add(row)
            self._added += 1

    def find(self, bits: int) -> set[int]:
        """Return the rows whose token begins with these bits, and perhaps former ones."""
        if self._bits is None:
            self._merge(np.flatnonzero(self._rows.in_use()))
        elif self._added > max(_FEW_KEYS, len(self._bits) // _MERGED):
            recent = [row for rows in self._recent.values() for row in rows]
            self._merge(np.array(recent, dtype=np.int32))
        assert self._bits is not None
        low = np.searchsorted(self._bits, np.int64(bits), side="left")
        high = np.searchsorted(self._bits, np.int64(bits), side="right")
        return set(self._sorted[low:high].tolist()) | self._recent.get(bits, set())

    def _merge(self, new: Array) -> None:
        tokens = self._rows.numpy("token")
        in_use = self._rows.in_use()
        if self._bits is None:
            self._bits = np.empty(0, np.int64)
        kept = in_use[self._sorted] & (tokens[self._sorted] == self._bits)
        bits, rows = self._bits[kept], self._sorted[kept]
        new = new[in_use[new]].astype(np.int32)
        new = new[np.argsort(tokens[new], kind="stable")]
        positions = np.searchsorted(bits, tokens[new])
        self._bits = np.insert(bits, positions, tokens[new])
        self._sorted = np.insert(rows, positions, new)
        self._recent, self._added = {}, 0
