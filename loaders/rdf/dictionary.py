"""The second step: from the sorted terms of every chunk to the dictionary of the store.

The terms are cut into ranges of about equal size, by a sample. A task takes one range out of every
chunk, removes repetitions, sorts, and notes the rank of every chunk's terms in it. The number of a
term is its rank plus the sizes of the ranges before.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loaders.rdf.files import mapped_terms, replaced
from tpf_server.store.static.columns import Ids

_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class TermRange:
    """Terms from `lower` (inclusive) to `upper` (exclusive); ``None``: without a bound."""

    number: int
    lower: str | None
    upper: str | None


@dataclass(frozen=True, slots=True)
class MergedRange:
    """What became of a range: how many terms it has, and how many of them are of each chunk."""

    number: int
    terms: int
    shares: tuple[int, ...]


def term_ranges(samples: Sequence[str], count: int) -> list[TermRange]:
    """At most `count` ranges that hold about equally many of the samples."""
    bounds = even_bounds(sorted(samples), count)
    return [TermRange(number, *pair) for number, pair in enumerate(pairwise(bounds))]


def even_bounds(ordered: Sequence[Any] | np.ndarray[Any, Any], count: int) -> list[Any]:
    """What bounds at most `count` ranges with about equally many samples; ``None`` at the ends."""
    size = len(ordered)
    cuts = [ordered[size * n // count] for n in range(1, count)] if size else []
    return [None, *(cut for n, cut in enumerate(cuts) if not n or cut != cuts[n - 1]), None]


class MergeTerms:
    """Makes one range of the dictionary; runs in the workers.

    Args:
        staging: where the chunks are.
        chunks: the keys of all chunks.
    """

    def __init__(self, staging: Path, chunks: Sequence[int]) -> None:
        self._staging = str(staging)
        self._chunks = list(chunks)

    def __call__(self, of: TermRange) -> MergedRange:
        """Merge one range and write it."""
        staging = Path(self._staging)
        slices = []
        for key in self._chunks:
            terms = mapped_terms(staging / "terms" / f"{key}.arrow")
            texts = _Texts(terms)
            low = 0 if of.lower is None else bisect.bisect_left(texts, of.lower)
            high = len(terms) if of.upper is None else bisect.bisect_left(texts, of.upper)
            slices.append(terms.slice(low, high - low))
        encoded = pa.concat_arrays(slices).dictionary_encode()
        by_text = pc.sort_indices(encoded.dictionary)
        ranks = np.empty(len(by_text), dtype=np.uint32)
        ranks[by_text.to_numpy()] = np.arange(len(by_text), dtype=np.uint32)
        with replaced(ranks_file(staging, of.number)) as aside, aside.open("wb") as file:
            np.save(file, ranks[encoded.indices.to_numpy()])
        with (
            replaced(staging / "dictionary" / f"{of.number:06}.arrow") as aside,
            pa.OSFile(str(aside), "wb") as sink,
            pa.ipc.new_file(sink, pa.schema([("term", pa.large_string())])) as writer,
        ):
            for start in range(0, len(by_text), _PIECE):
                piece = encoded.dictionary.take(by_text.slice(start, _PIECE))
                writer.write_batch(pa.record_batch({"term": piece}))
        return MergedRange(of.number, len(by_text), tuple(len(each) for each in slices))


class _Texts(Sequence[str]):
    """An Arrow array of texts as Python sees it; code points sort as UTF-8 does."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        return str(self._array[index].as_py())


def ranks_file(staging: Path, number: int) -> Path:
    """Where the ranks of a range are."""
    return staging / "ranks" / f"{number}.npy"


class Renumbering:
    """From the numbers of a chunk to those of the store.

    Args:
        staging: where the ranks are.
        merged: the ranges, in order.
    """

    def __init__(self, staging: Path, merged: Sequence[MergedRange]) -> None:
        self._staging = str(staging)
        shares = np.array([each.shares for each in merged], dtype=np.int64)
        shares = shares.reshape(len(merged), -1 if merged else 0)
        self._begins = np.cumsum(shares, axis=1) - shares
        self._shares = shares
        # Number 0 is the default graph.
        self._bases = 1 + np.concatenate(([0], np.cumsum([each.terms for each in merged])))

    @property
    def terms(self) -> int:
        """How many terms the store has, with the one for the default graph."""
        return int(self._bases[-1])

    def of_chunk(self, position: int) -> Ids:
        """For every number of the chunk at this position, the number in the store."""
        staging = Path(self._staging)
        parts = [np.zeros(1, dtype=np.uint32)]
        for number, base in enumerate(self._bases[:-1]):
            begin, share = self._begins[number, position], self._shares[number, position]
            if share:
                ranks = np.load(ranks_file(staging, number), mmap_mode="r")
                parts.append(ranks[begin : begin + share] + np.uint32(base))
        return np.concatenate(parts)


def dictionary_pieces(staging: Path, ranges: int) -> Iterator[pa.Array]:
    """The dictionary in order, the empty text for the default graph first."""
    yield pa.array([""], pa.large_string())
    for number in range(ranges):
        with pa.memory_map(str(staging / "dictionary" / f"{number:06}.arrow")) as source:
            reader = pa.ipc.open_file(source)
            for batch in range(reader.num_record_batches):
                yield reader.get_batch(batch).column("term")
