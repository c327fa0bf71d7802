"""The third step: the rows of the store, sorted in every order.

A row becomes one key that sorts as the row does. A task is sent the rows of some chunks and the
numbers of their terms, translates them, and sorts their keys once per order; another one is sent a
range of keys of all of them. The ranges are cut by samples of whole keys, so that a predicate or a
class that is used millions of times is cut, too.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from loaders.rdf.dictionary import MergedRange, even_bounds
from loaders.rdf.flow import Gathered, Message
from loaders.rdf.scan import Chunk, ChunkArray, Staged
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.writing import RowColumns

Keys: TypeAlias = np.ndarray[tuple[int], np.dtype[Any]]
KEY_BITS = 64


class KeyCode:
    """How rows become keys and back.

    Where the numbers fit, a key is an unsigned integer of 64 bits, which numpy sorts fastest: the
    predicates are few, so their ranks among themselves need few bits. Else it is a text of bytes.

    Args:
        order: the letters of the order.
        terms: how many terms there are.
        predicates: the numbers of all predicates, ascending; empty: unknown.
        bits: how long an integer may be.
    """

    def __init__(self, order: str, terms: int, predicates: Ids, bits: int = KEY_BITS) -> None:
        self._order = order
        self._predicates = predicates
        sizes = [
            len(predicates) if letter == "p" and len(predicates) else terms for letter in order
        ]
        self._widths = [max(size - 1, 1).bit_length() for size in sizes]
        self._is_integer = sum(self._widths) <= bits

    def encode(self, columns: Mapping[str, Ids]) -> Keys:
        """The keys of some rows, given by position."""
        if not self._is_integer:
            stacked = np.stack([columns[letter] for letter in self._order], axis=1)
            return stacked.astype(">u4").view(f"S{4 * len(self._order)}").ravel()
        keys = np.zeros(len(columns["s"]), dtype=np.uint64)
        for letter, width in zip(self._order, self._widths, strict=True):
            ids = columns[letter]
            if letter == "p" and len(self._predicates):
                ids = np.searchsorted(self._predicates, ids).astype(np.uint32)
            keys <<= np.uint64(width)
            keys |= ids.astype(np.uint64)
        return keys

    def decode(self, keys: Keys) -> RowColumns:
        """The rows of some keys: one column per letter of the order."""
        if not self._is_integer:
            stacked = np.ascontiguousarray(keys).view(">u4").reshape(len(keys), len(self._order))
            return tuple(np.ascontiguousarray(column, dtype=np.uint32) for column in stacked.T)
        rows: list[Ids] = []
        rest = keys.copy()
        for letter, width in zip(reversed(self._order), reversed(self._widths), strict=True):
            ids = (rest & np.uint64((1 << width) - 1)).astype(np.uint32)
            if letter == "p" and len(self._predicates):
                ids = self._predicates[ids]
            rows.append(ids)
            rest >>= np.uint64(width)
        return tuple(reversed(rows))


class ChunkRows(NamedTuple):
    """The rows of a chunk."""

    chunk: int
    rows: ChunkArray


class ChunkNumbers(NamedTuple):
    """The numbers in the store of those terms of a chunk that lie in a range."""

    chunk: int
    range: int
    numbers: Ids


class SendRows:
    """Sends the rows of chunks to where they are translated; runs in the workers.

    Args:
        groups: by the key of each chunk.
    """

    def __init__(self, groups: Mapping[int, int]) -> None:
        self._groups = dict(groups)

    def __call__(self, staged: Staged) -> Iterator[Message]:
        """Those of one chunk."""
        if isinstance(staged, Chunk):
            key = staged.summary.key
            yield Message(self._groups[key], ChunkRows(key, staged.rows))


class SendNumbers:
    """Sends the numbers of terms to where rows are translated; runs in the workers.

    Args:
        groups: by the key of each chunk.
        begins: the first number of each range.
    """

    def __init__(self, groups: Mapping[int, int], begins: Sequence[int]) -> None:
        self._groups = dict(groups)
        self._begins = list(begins)

    def __call__(self, merged: MergedRange) -> Iterator[Message]:
        """Those of one range."""
        number = merged.summary.number
        begin = np.uint32(self._begins[number])
        for key, ranks in merged.ranks.items():
            yield Message(self._groups[key], ChunkNumbers(key, number, ranks + begin))


@dataclass(frozen=True, slots=True)
class OrderRanges:
    """Into which ranges the keys of an order are cut.

    Args:
        code: how rows become keys.
        first: the number of the first range among those of all orders.
        cuts: the first key of each range but the first.
    """

    code: KeyCode
    first: int
    cuts: Keys

    def __len__(self) -> int:
        return len(self.cuts) + 1


def order_ranges(codes: Mapping[str, KeyCode], sample: ChunkArray, count: int) -> list[OrderRanges]:
    """At most `count` ranges for each order, which hold about equally many rows of the sample."""
    ranges: list[OrderRanges] = []
    first = 0
    for code in codes.values():
        keys = np.sort(code.encode(columns_of(sample)))
        cuts = keys[:0] if not len(keys) else np.array(even_bounds(keys, count)[1:-1], keys.dtype)
        ranges.append(OrderRanges(code, first, cuts))
        first += len(ranges[-1])
    return ranges


def columns_of(rows: ChunkArray) -> dict[str, Ids]:
    """Rows by position; without graphs, all are in the default one."""
    columns = dict(zip("spog", rows, strict=False))
    columns.setdefault("g", np.zeros(rows.shape[1], dtype=np.uint32))
    return columns


class SortRows:
    """Translates rows of chunks, sorts them once per order and cuts them; runs in the workers.

    Args:
        orders: the ranges of all orders.
    """

    def __init__(self, orders: Sequence[OrderRanges]) -> None:
        self._orders = list(orders)

    def __call__(self, of: Gathered) -> Iterator[Message]:
        """Those of one group of chunks."""
        columns = _translated(of.values)
        for order in self._orders:
            keys = _distinct(np.sort(order.code.encode(columns)))
            ends = [0, *np.searchsorted(keys, order.cuts).tolist(), len(keys)]
            for number in range(len(order)):
                part = keys[ends[number] : ends[number + 1]]
                if len(part):
                    yield Message(order.first + number, part)


def _translated(values: Sequence[ChunkRows | ChunkNumbers]) -> dict[str, Ids]:
    rows: dict[int, ChunkArray] = {}
    numbers: defaultdict[int, dict[int, Ids]] = defaultdict(dict)
    for value in values:
        if isinstance(value, ChunkRows):
            rows[value.chunk] = value.rows
        else:
            numbers[value.chunk][value.range] = value.numbers
    tables = []
    for chunk, table in rows.items():
        parts = numbers.pop(chunk)
        # A chunk's terms ascend, and so do the ranges; number 0 is the default graph.
        known = [np.zeros(1, dtype=np.uint32), *(parts[number] for number in sorted(parts))]
        tables.append(columns_of(np.concatenate(known)[table]))
    nothing = [columns_of(np.zeros((4, 0), dtype=np.uint32))]
    return {
        letter: np.concatenate([each[letter] for each in tables or nothing]) for letter in "spog"
    }


class SortedRange(NamedTuple):
    """The keys of a range, ascending, without repetitions."""

    number: int
    keys: Keys


class MergeKeys:
    """Makes one range of an order; runs in the workers.

    Args:
        orders: the ranges of all orders.
    """

    def __init__(self, orders: Sequence[OrderRanges]) -> None:
        self._orders = list(orders)

    def __call__(self, of: Gathered) -> Iterator[SortedRange]:
        """Merge one range."""
        # An empty one has keys of the right kind, too.
        empty = next(o for o in reversed(self._orders) if o.first <= of.partition).cuts[:0]
        keys = np.concatenate([empty, *of.values])
        keys.sort()
        yield SortedRange(of.partition, _distinct(keys))


def _distinct(ascending: Keys) -> Keys:
    if len(ascending) < 2:
        return ascending
    new = np.ones(len(ascending), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    return ascending if new.all() else ascending[new]
