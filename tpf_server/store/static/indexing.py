"""The local writer: RDF files → static store, with pyoxigraph and numpy in one process.

Every distinct term is held in memory while the files are read: about 150 bytes each. For data that
do not fit, the Spark writer brings the same terms and rows to `write_store`, too.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from annotations.terms import DEFAULT_GRAPH
from tpf_server.store.static.manifest import Manifest
from tpf_server.store.static.rdf_files import QuadTexts, RdfReader, merge_prefixes, rdf_files
from tpf_server.store.static.sorting import sorted_orders
from tpf_server.store.static.writing import write_store

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
