"""The local writer: RDF files → static store, with pyoxigraph and numpy in one process.

Every distinct term is held in memory while the files are read: about 150 bytes each. For data that
do not fit, the Spark writer brings the same terms and rows to `write_store`, too.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from annotations.terms import DEFAULT_GRAPH
from tpf_server.store.static import layout
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.manifest import Manifest
from tpf_server.store.static.rdf_files import QuadTexts, RdfReader, merge_prefixes, rdf_files
from tpf_server.store.static.writing import RowColumns, write_store

# Sort quads of ids into the orders of a store, in memory.
#
# The positions of a row are packed into one 64-bit number, which numpy sorts an order of magnitude
# faster than columns; where they do not fit, the columns are sorted.

_RANKED_AT_ONCE = 1 << 20
_KEY_BITS = 64


def sorted_orders(subjects: Ids, predicates: Ids, objects: Ids, graphs: Ids) -> dict[
    str, Iterator[RowColumns]
]:  # fmt: skip
    """The orders of these quads without duplicates, as `write_store` takes them.

    Args:
        subjects: the subject of each quad, and so on; `graphs` is 0 for the default graph.
        predicates: see `subjects`.
        objects: see `subjects`.
        graphs: see `subjects`.

    Returns:
        The orders; each is sorted when it is iterated, so that one is in memory at a time.
    """
    given = {"s": subjects, "p": predicates, "o": objects}
    names: tuple[str, ...] = layout.TRIPLE_ORDERS
    if graphs.any():
        given["g"] = graphs
        names = layout.QUAD_ORDERS
    quads = _Packing(given).distinct(names[0])
    return {name: quads.rows(name) for name in names}


class _Packing:
    """Columns by position, each replaced by the ranks of its ids, which need fewer bits."""

    def __init__(self, columns: dict[str, Ids]) -> None:
        self._used: dict[str, Ids] = {}
        self._ranks: dict[str, Ids] = {}
        for position, ids in columns.items():
            present = np.zeros(int(ids.max(initial=0)) + 1, dtype=bool)
            present[ids] = True
            rank_of = np.cumsum(present, dtype=np.uint32)
            rank_of -= np.uint32(1)
            self._used[position] = np.flatnonzero(present).astype(np.uint32)
            self._ranks[position] = rank_of[ids]

    def _bits(self, position: str) -> int:
        return max(len(self._used[position]) - 1, 0).bit_length()

    def _packs(self, order: str) -> bool:
        return sum(map(self._bits, order)) <= _KEY_BITS

    def _packed(self, order: str) -> npt.NDArray[np.uint64]:
        packed = np.zeros(len(self._ranks[order[0]]), dtype=np.uint64)
        for position in order:
            packed <<= np.uint64(self._bits(position))
            packed |= self._ranks[position]
        packed.sort()
        return packed

    def _unpacked(self, order: str, packed: npt.NDArray[np.uint64]) -> dict[str, Ids]:
        ranks: dict[str, Ids] = {}
        rest = packed.copy()
        for position in reversed(order):
            bits = self._bits(position)
            ranks[position] = (rest & np.uint64((1 << bits) - 1)).astype(np.uint32)
            rest >>= np.uint64(bits)
        return ranks

    def _argsort(self, order: str) -> npt.NDArray[np.intp]:
        return np.lexsort([self._ranks[position] for position in reversed(order)])

    def distinct(self, order: str) -> "_Packing":
        """Without duplicate rows."""
        if self._packs(order):
            packed = self._packed(order)
            keep = np.ones(len(packed), dtype=bool)
            keep[1:] = packed[1:] != packed[:-1]
            self._ranks = self._unpacked(order, packed[keep])
            return self
        at = self._argsort(order)
        keep = np.zeros(len(at), dtype=bool)
        keep[:1] = True
        for ranks in self._ranks.values():
            keep[1:] |= ranks[at[1:]] != ranks[at[:-1]]
        self._ranks = {position: ranks[at[keep]] for position, ranks in self._ranks.items()}
        return self

    def rows(self, order: str) -> Iterator[RowColumns]:
        """The rows in this order, in pieces."""
        if self._packs(order):
            packed = self._packed(order)
            for start in range(0, len(packed), _RANKED_AT_ONCE):
                ranks = self._unpacked(order, packed[start : start + _RANKED_AT_ONCE])
                yield tuple(self._used[position][ranks[position]] for position in order)
        else:
            at = self._argsort(order)
            for start in range(0, len(at), _RANKED_AT_ONCE):
                piece = at[start : start + _RANKED_AT_ONCE]
                yield tuple(
                    self._used[position][self._ranks[position][piece]] for position in order
                )


_PIECE = 1 << 16


def index_files(
    inputs: Sequence[Path],
    store: Path,
    *,
    created: datetime,
    base: str | None = None,
    source: str = "",
    progress: Callable[[Path, int], None] | None = None,
) -> Manifest:
    """Index RDF files as a static store, or replace the store that is there.

    Args:
        inputs: RDF files and directories of them (see `tpf_server.store.static.rdf_files`).
        store: the directory of the store.
        created: the instant of the content.
        base: what relative IRIs are resolved against; ``None``: they are refused.
        source: what the store is made from, kept in the manifest.
        progress: is told each file and the number of its quads when it has been read.

    Returns:
        The manifest of the new store.

    Raises:
        RdfInputError: a file cannot be read; says which and where.
        StoreError: the store cannot be written there.
    """
    indexer = QuadIndexer()
    prefixes: list[Mapping[str, str]] = []
    for number, path in enumerate(rdf_files(inputs)):
        reader = RdfReader(path, number, base)
        count = indexer.add(reader.quads())
        prefixes.append(reader.prefixes)
        if progress is not None:
            progress(path, count)
    return indexer.write(store, created=created, prefixes=merge_prefixes(prefixes), source=source)


class QuadIndexer:
    """Collects quads in memory and writes them as a store; duplicates count once."""

    def __init__(self) -> None:
        # A new term gets the number of terms before it, without a Python frame per term.
        self._ids: defaultdict[str, int] = defaultdict()
        self._ids.default_factory = self._ids.__len__
        self._columns = tuple(array("I") for _ in range(4))
        assert self._ids[DEFAULT_GRAPH] == 0

    def add(self, quads: Iterable[QuadTexts]) -> int:
        """Add quads of canonical N-Triples texts.

        Returns:
            How many were added, duplicates included.
        """
        ids = self._ids
        add_s, add_p, add_o, add_g = (column.append for column in self._columns)
        before = len(self._columns[0])
        for s, p, o, g in quads:
            add_s(ids[s])
            add_p(ids[p])
            add_o(ids[o])
            add_g(ids[g])
        return len(self._columns[0]) - before

    def write(
        self,
        store: Path,
        *,
        created: datetime,
        prefixes: Mapping[str, str] = MappingProxyType({}),
        source: str = "",
    ) -> Manifest:
        """Write a store of the quads added so far, as `write_store` does.

        Raises:
            StoreError: the store cannot be written there.
        """
        texts = pa.array(self._ids, pa.large_string(), size=len(self._ids))
        by_text = pc.sort_indices(texts)
        rank = np.empty(len(texts), dtype=np.uint32)
        rank[by_text.to_numpy()] = np.arange(len(texts), dtype=np.uint32)
        subjects, predicates, objects, graphs = (
            rank[np.array(column, dtype=np.uint32)] for column in self._columns
        )
        terms = (texts.take(by_text.slice(start, _PIECE)) for start in range(0, len(texts), _PIECE))
        orders = sorted_orders(subjects, predicates, objects, graphs)
        return write_store(store, terms, orders, created=created, prefixes=prefixes, source=source)
