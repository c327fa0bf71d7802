"""The third step: the rows of the store, sorted in every order.

A row becomes one key that sorts as the row does. A task translates a chunk and sorts its keys once
per order; another one merges a range of keys out of all chunks. The ranges are cut by samples of
whole keys, so that a predicate or a class that is used millions of times is cut, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from loaders.rdf.dictionary import Renumbering, even_bounds
from loaders.rdf.files import replaced
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.writing import Rows

Keys: TypeAlias = np.ndarray[tuple[int], np.dtype[Any]]
KEY_BITS = 64
_SAMPLES = 64


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

    def decode(self, keys: Keys) -> Rows:
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


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Samples of the sorted keys of a chunk, by order."""

    samples: Mapping[str, Keys]


class SortRuns:
    """Translates a chunk and sorts it once per order; runs in the workers.

    Args:
        staging: where the chunks are.
        chunks: the keys of all chunks.
        translation: from the numbers of chunks to those of the store.
        codes: by order.
    """

    def __init__(
        self,
        staging: Path,
        chunks: Sequence[int],
        translation: Renumbering,
        codes: Mapping[str, KeyCode],
    ) -> None:
        self._staging = str(staging)
        self._chunks = list(chunks)
        self._translation = translation
        self._codes = dict(codes)

    def __call__(self, position: int) -> RunSummary:
        """Sort the chunk at this position."""
        staging = Path(self._staging)
        chunk = self._chunks[position]
        rows = np.load(staging / "rows" / f"{chunk}.npy")
        numbers = self._translation.of_chunk(position)
        columns = {letter: numbers[rows[n]] for n, letter in enumerate("spog")}
        samples = {}
        for order, code in self._codes.items():
            keys = _distinct(np.sort(code.encode(columns)))
            with replaced(_run_file(staging, order, chunk)) as aside, aside.open("wb") as file:
                np.save(file, keys)
            samples[order] = keys[:: max(1, len(keys) // _SAMPLES)].copy()
        return RunSummary(samples)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys of an order from `lower` (inclusive) to `upper` (exclusive); ``None``: no bound."""

    order: str
    number: int
    lower: Any
    upper: Any


def key_ranges(order: str, samples: Sequence[Keys], count: int) -> list[KeyRange]:
    """At most `count` ranges that hold about equally many of the samples."""
    bounds = even_bounds(np.sort(np.concatenate(samples)), count)
    return [KeyRange(order, number, *pair) for number, pair in enumerate(pairwise(bounds))]


class MergeRuns:
    """Makes one range of an order; runs in the workers.

    Args:
        staging: where the runs are.
        chunks: the keys of all chunks.
    """

    def __init__(self, staging: Path, chunks: Sequence[int]) -> None:
        self._staging = str(staging)
        self._chunks = list(chunks)

    def __call__(self, of: KeyRange) -> int:
        """Merge one range, write it, and count its keys."""
        staging = Path(self._staging)
        slices = []
        for chunk in self._chunks:
            run = np.load(_run_file(staging, of.order, chunk), mmap_mode="r")
            low = 0 if of.lower is None else int(np.searchsorted(run, of.lower))
            high = len(run) if of.upper is None else int(np.searchsorted(run, of.upper))
            slices.append(run[low:high])
        keys = np.concatenate(slices)
        keys.sort()
        keys = _distinct(keys)
        with replaced(_range_file(staging, of.order, of.number)) as aside, aside.open("wb") as file:
            np.save(file, keys)
        return len(keys)


def sorted_rows(staging: Path, order: str, ranges: int, code: KeyCode) -> Iterator[Rows]:
    """The rows of an order, ascending, without repetitions."""
    for number in range(ranges):
        yield code.decode(np.load(_range_file(staging, order, number)))


def _distinct(ascending: Keys) -> Keys:
    if len(ascending) < 2:
        return ascending
    new = np.ones(len(ascending), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    return ascending if new.all() else ascending[new]


def _run_file(staging: Path, order: str, chunk: int) -> Path:
    return staging / "runs" / f"{order}-{chunk}.npy"


def _range_file(staging: Path, order: str, number: int) -> Path:
    return staging / "sorted" / f"{order}-{number}.npy"
