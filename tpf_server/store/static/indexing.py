"""Index RDF files as a static store in one process; about 150 bytes of memory per term."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from annotations.terms import DEFAULT_GRAPH
from tpf_server.store.static import layout
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.dictionary import text_array
from tpf_server.store.static.manifest import Manifest
from tpf_server.store.static.rdf_files import QuadTexts, RdfReader, merge_prefixes, rdf_files
from tpf_server.store.static.writing import RowColumns, write_store

# Sort quads of ids into the orders of a store.
#
# The positions of a row are packed into one 64-bit number, which numpy sorts an order of magnitude
# faster than columns; where they do not fit, a key is a text of bytes.

Keys: TypeAlias = np.ndarray[tuple[int], np.dtype[Any]]
KEY_BITS = 64
_KEYS_AT_ONCE = 1 << 20


class KeyCode:
    """Pack the rows of an order into keys that sort as the rows do, and unpack them."""

    def __init__(
        self,
        order: str,
        sizes: Mapping[str, int],
        used: Mapping[str, Ids] = MappingProxyType({}),
        bits: int = KEY_BITS,
    ) -> None:
        self._order = order
        self._used = dict(used)
        self._widths = [
            max((len(used[letter]) if letter in used else sizes[letter]) - 1, 1).bit_length()
            for letter in order
        ]
        self._is_integer = sum(self._widths) <= bits

    def encode(self, columns: Mapping[str, Ids]) -> Keys:
        if not self._is_integer:
            stacked = np.stack([columns[letter] for letter in self._order], axis=1)
            return stacked.astype(">u4").view(f"S{4 * len(self._order)}").ravel()
        keys = np.zeros(len(columns[self._order[0]]), dtype=np.uint64)
        for letter, width in zip(self._order, self._widths, strict=True):
            ids = columns[letter]
            packed = np.searchsorted(self._used[letter], ids) if letter in self._used else ids
            keys <<= np.uint64(width)
            keys |= packed.astype(np.uint64)
        return keys

    def decode(self, keys: Keys) -> RowColumns:
        """Return the rows of keys: one column per letter of the order."""
        if not self._is_integer:
            stacked = np.ascontiguousarray(keys).view(">u4").reshape(len(keys), len(self._order))
            return tuple(np.ascontiguousarray(column, dtype=np.uint32) for column in stacked.T)
        rows: list[Ids] = []
        rest = keys.copy()
        for letter, width in zip(reversed(self._order), reversed(self._widths), strict=True):
            ids = (rest & np.uint64((1 << width) - 1)).astype(np.uint32)
            rows.append(self._used[letter][ids] if letter in self._used else ids)
            rest >>= np.uint64(width)
        return tuple(reversed(rows))


def distinct_rows(ascending: Keys) -> Keys:
    """Return sorted keys without repetitions."""
    if len(ascending) < 2:
        return ascending
    new = np.ones(len(ascending), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    return ascending if new.all() else ascending[new]


def sorted_orders(subjects: Ids, predicates: Ids, objects: Ids, graphs: Ids) -> dict[
    str, Iterator[RowColumns]
]:  # fmt: skip
    """Sort columns of quads into the orders that `write_store` takes, without duplicates."""
    given = {"s": subjects, "p": predicates, "o": objects}
    names: tuple[str, ...] = layout.TRIPLE_ORDERS
    if graphs.any():
        given["g"] = graphs
        names = layout.QUAD_ORDERS
    used, ranks = {}, {}
    for position, ids in given.items():
        present = np.zeros(int(ids.max(initial=0)) + 1, dtype=bool)
        present[ids] = True
        used[position] = np.flatnonzero(present).astype(np.uint32)
        ranks[position] = (np.cumsum(present, dtype=np.uint32) - np.uint32(1))[ids]
    sizes = {position: len(ids) for position, ids in used.items()}
    codes = {name: KeyCode(name, sizes, bits=KEY_BITS) for name in names}
    first = codes[names[0]]
    rows = first.decode(distinct_rows(np.sort(first.encode(ranks))))
    ranks = dict(zip(names[0], rows, strict=True))

    def pieces(name: str, code: KeyCode) -> Iterator[RowColumns]:
        keys = code.encode(ranks)
        keys.sort()
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            result = code.decode(keys[start : start + _KEYS_AT_ONCE])
            yield tuple(used[each][column] for each, column in zip(name, result, strict=True))

    return {name: pieces(name, code) for name, code in codes.items()}


_PIECE = 1 << 16


def index_files(
    inputs: Sequence[Path],
    store: Path,
    *,
    created: datetime,
    base: str | None = None,
    source: str = "",
) -> Manifest:
    """Index RDF files as a static store; an `RdfInputError` says which is malformed, and where."""
    indexer = QuadIndexer()
    prefixes: list[Mapping[str, str]] = []
    for number, path in enumerate(rdf_files(inputs)):
        reader = RdfReader(path, number, base)
        indexer.add(reader.quads())
        prefixes.append(reader.prefixes)
    return indexer.write(store, created=created, prefixes=merge_prefixes(prefixes), source=source)


class QuadArrays:
    """Quads in memory as columns of term numbers, of which 0 is the default graph."""

    def __init__(self) -> None:
        # A new term gets the number of terms before it, without a Python frame per term.
        self._ids: defaultdict[str, int] = defaultdict()
        self._ids.default_factory = self._ids.__len__
        self._columns = tuple(array("I") for _ in range(4))
        assert self._ids[DEFAULT_GRAPH] == 0

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, quads: Iterable[QuadTexts]) -> int:
        """Add quads of canonical N-Triples texts; return how many, duplicates included."""
        ids = self._ids
        add_s, add_p, add_o, add_g = (column.append for column in self._columns)
        before = len(self)
        for s, p, o, g in quads:
            add_s(ids[s])
            add_p(ids[p])
            add_o(ids[o])
            add_g(ids[g])
        return len(self) - before

    def ranked(self) -> tuple[Iterator[pa.Array], list[Ids]]:
        """Return the sorted terms in pieces, and the quads as columns of ranks among them."""
        texts = text_array(self._ids)
        by_text = pc.sort_indices(texts)
        rank = np.empty(len(texts), dtype=np.uint32)
        rank[np.from_dlpack(by_text)] = np.arange(len(texts), dtype=np.uint32)
        columns = [rank[np.array(column, dtype=np.uint32)] for column in self._columns]
        pieces = (texts.take(by_text.slice(n, _PIECE)) for n in range(0, len(texts), _PIECE))
        return pieces, columns


class QuadIndexer(QuadArrays):
    """Collect quads in memory and write them as a store, without duplicates."""

    def write(
        self,
        store: Path,
        *,
        created: datetime,
        prefixes: Mapping[str, str] = MappingProxyType({}),
        source: str = "",
    ) -> Manifest:
        """Write a store of the quads added so far; see `write_store`."""
        terms, columns = self.ranked()
        return write_store(
            store, terms, sorted_orders(*columns), created=created, prefixes=prefixes, source=source
        )
