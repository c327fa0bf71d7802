"""Step three: sort the rows of the store in every order.

A row becomes one sortable key; ranges are cut by samples of whole keys, so that frequent predicates
are cut, too.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from loaders.rdf.dictionary import RangeRanks, even_bounds
from loaders.rdf.flow import Gathered, Message
from loaders.rdf.scan import ChunkArray, ChunkRows
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.indexing import KeyCode, Keys, distinct_rows

_SAMPLES = 1_000
_MANY_PREDICATES = 1 << 16


class ChunkNumbers(NamedTuple):
    """The numbers in the store of a chunk's terms in one range."""

    chunk: int
    range: int
    numbers: Ids


def send_rows(groups: Mapping[int, int], rows: ChunkRows) -> Iterator[Message]:
    """Send a chunk's rows to their translating task."""
    yield Message(groups[rows.chunk], rows)


def send_numbers(
    groups: Mapping[int, int], begins: Sequence[int], of: RangeRanks
) -> Iterator[Message]:
    """Send term numbers to translating tasks."""
    begin = np.uint32(begins[of.number])
    for key, ranks in of.ranks.items():
        yield Message(groups[key], ChunkNumbers(key, of.number, ranks + begin))


@dataclass(frozen=True, slots=True)
class OrderRanges:
    """An order's ranges of keys."""

    code: KeyCode
    first: int
    cuts: Keys

    def __len__(self) -> int:
        return len(self.cuts) + 1


def order_ranges(codes: Mapping[str, KeyCode], sample: ChunkArray, count: int) -> list[OrderRanges]:
    """Return at most `count` even ranges per order."""
    ranges: list[OrderRanges] = []
    first = 0
    for code in codes.values():
        keys = np.sort(code.encode(columns_of(sample)))
        cuts = keys[:0] if not len(keys) else np.array(even_bounds(keys, count)[1:-1], keys.dtype)
        ranges.append(OrderRanges(code, first, cuts))
        first += len(ranges[-1])
    return ranges


def columns_of(rows: ChunkArray) -> dict[str, Ids]:
    """Return rows by position."""
    columns = dict(zip("spog", rows, strict=False))
    columns.setdefault("g", np.zeros(rows.shape[1], dtype=np.uint32))
    return columns


class TranslatedRows(NamedTuple):
    """Rows in the numbers of the store."""

    rows: ChunkArray


class RowsSample(NamedTuple):
    """Random rows: a sample of every order; and all predicates, or ``None``: too many to list."""

    rows: ChunkArray
    predicates: Ids | None


def translate_rows(of: Gathered) -> Iterator[RowsSample | TranslatedRows]:
    """Translate chunks' rows into the numbers of the store."""
    rows: dict[int, ChunkArray] = {}
    numbers: defaultdict[int, dict[int, Ids]] = defaultdict(dict)
    for value in of.values:
        if isinstance(value, ChunkRows):
            rows[value.chunk] = value.rows
        else:
            numbers[value.chunk][value.range] = value.numbers
    tables = [np.zeros((4, 0), dtype=np.uint32)]
    for chunk, table in rows.items():
        parts = numbers.pop(chunk)
        # A chunk's terms ascend, and so do the ranges; number 0 is the default graph.
        table_parts = [np.zeros(1, dtype=np.uint32), *(parts[number] for number in sorted(parts))]
        tables.append(np.stack(list(columns_of(np.concatenate(table_parts)[table]).values())))
    whole = np.concatenate(tables, axis=1)
    count = whole.shape[1]
    # At random, because data have rhythms; and the same ones where the task is repeated.
    some = np.random.default_rng(of.partition).integers(0, max(count, 1), min(_SAMPLES, count))
    predicates = np.unique(whole[1])
    few = predicates if len(predicates) < _MANY_PREDICATES else None
    yield RowsSample(whole[:, some], few)
    yield TranslatedRows(whole if whole[3].any() else whole[:3])


def sort_rows(orders: Sequence[OrderRanges], translated: TranslatedRows) -> Iterator[Message]:
    """Sort and cut translated rows."""
    columns = columns_of(translated.rows)
    for order in orders:
        keys = distinct_rows(np.sort(order.code.encode(columns)))
        ends = [0, *np.searchsorted(keys, order.cuts).tolist(), len(keys)]
        for number in range(len(order)):
            part = keys[ends[number] : ends[number + 1]]
            if len(part):
                yield Message(order.first + number, _differences(part))


class SortedRange(NamedTuple):
    """The differences of a range's keys, which ascend without repetitions."""

    number: int
    differences: Keys

    @property
    def keys(self) -> Keys:
        return _sums(self.differences)


def merge_keys(orders: Sequence[OrderRanges], of: Gathered) -> Iterator[SortedRange]:
    """Merge one range of an order."""
    # An empty one has keys of the right kind, too.
    empty = next(o for o in reversed(orders) if o.first <= of.partition).cuts[:0]
    keys = np.concatenate([empty, *map(_sums, of.values)])
    keys.sort()
    yield SortedRange(of.partition, _differences(distinct_rows(keys)))


# Of keys that ascend the differences are small, and compress better; long keys are byte strings.


def _differences(keys: Keys) -> Keys:
    return np.diff(keys, prepend=keys.dtype.type(0)) if keys.dtype.kind == "u" else keys


def _sums(differences: Keys) -> Keys:
    return np.cumsum(differences) if differences.dtype.kind == "u" else differences
