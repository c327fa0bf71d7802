"""Step two: merge the sorted terms of all chunks to the dictionary of the store.

Samples cut the terms into even ranges; a term's number is its rank plus the sizes of earlier
ranges.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loaders.rdf.flow import Gathered, Message
from loaders.rdf.scan import ChunkTerms, packed_terms, unpacked_terms
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.dictionary import text_array


@dataclass(frozen=True, slots=True)
class TermRange:
    """Terms from `lower` (inclusive) to `upper` (exclusive); ``None``: unbounded."""

    number: int
    lower: str | None
    upper: str | None


class TermSlice(NamedTuple):
    """A chunk's terms in a range."""

    chunk: int
    terms: bytes


class RangeSummary(NamedTuple):
    """A range's number of terms."""

    number: int
    terms: int


class RangeTerms(NamedTuple):
    """A range of the dictionary."""

    number: int
    terms: bytes


class RangeRanks(NamedTuple):
    """The ranks in a range of each chunk's terms."""

    number: int
    ranks: Mapping[int, Ids]


def term_ranges(samples: Sequence[str], count: int) -> list[TermRange]:
    """Return at most `count` even ranges by samples."""
    bounds = even_bounds(sorted(samples), count)
    return [TermRange(number, *pair) for number, pair in enumerate(pairwise(bounds))]


def even_bounds(ordered: Sequence[Any] | np.ndarray[Any, Any], count: int) -> list[Any]:
    """Return bounds of at most `count` even ranges."""
    size = len(ordered)
    cuts = [ordered[size * n // count] for n in range(1, count)] if size else []
    return [None, *(cut for n, cut in enumerate(cuts) if not n or cut != cuts[n - 1]), None]


def cut_terms(ranges: Sequence[TermRange], of_chunk: ChunkTerms) -> Iterator[Message]:
    """Send a chunk's terms to their ranges."""
    terms = unpacked_terms(of_chunk.terms)
    texts = _Texts(terms)
    low = 0
    for of in ranges:
        high = len(terms) if of.upper is None else bisect.bisect_left(texts, of.upper, low)
        if high > low:
            share = packed_terms(terms.slice(low, high - low))
            yield Message(of.number, TermSlice(of_chunk.chunk, share))
        low = high


def merge_terms(of: Gathered) -> Iterator[RangeSummary | RangeTerms | RangeRanks]:
    """Make one range of the dictionary."""
    slices: list[TermSlice] = sorted(of.values, key=lambda each: each.chunk)
    empty = text_array([])
    arrays = [unpacked_terms(each.terms) for each in slices]
    encoded = pa.concat_arrays([*arrays, empty]).dictionary_encode()
    by_text = pc.sort_indices(encoded.dictionary)
    ranks = np.empty(len(by_text), dtype=np.uint32)
    ranks[np.from_dlpack(by_text)] = np.arange(len(by_text), dtype=np.uint32)
    every = ranks[np.from_dlpack(encoded.indices)]
    ends = np.cumsum([len(array) for array in arrays])
    shares = {
        each.chunk: every[end - len(array) : end]
        for each, array, end in zip(slices, arrays, ends, strict=True)
    }
    yield RangeSummary(of.partition, len(by_text))
    yield RangeTerms(of.partition, packed_terms(encoded.dictionary.take(by_text)))
    yield RangeRanks(of.partition, shares)


class _Texts(Sequence[str]):
    """An Arrow array as a sequence; code points sort as UTF-8 does."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        return str(self._array[index].as_py())


def range_begins(merged: Sequence[RangeSummary]) -> list[int]:
    """Return the number in the store of each range's first term, and the number of all terms."""
    # Number 0 is the default graph.
    return list(accumulate((each.terms for each in sorted(merged)), initial=1))
