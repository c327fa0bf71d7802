"""Anything → static store on Spark.

1. Scan: workers read pieces; each chunk gets rows of its own numbers and a sorted list of terms.
2. Dictionary: the terms are cut into ranges; a task merges one range of all chunks.
3. Orders: a task translates a chunk and sorts its rows once per order; another one merges a range.
4. Finish: the step that all writers of stores share.

Spark spreads the tasks over its workers and repeats those that are lost; the data go from task to
task through sorted files, not through Java: nothing is shuffled row by row. The input, the output
and its staging directory must be visible to every worker under one path. Every step is linear, and
a task has in memory a chunk or a range, whatever the size of the whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from loaders.errors import OutputError
from loaders.progress import Report, Silent
from loaders.rdf.dictionary import (
    MergeTerms,
    Renumbering,
    dictionary_pieces,
    term_ranges,
)
from loaders.rdf.orders import KEY_BITS, KeyCode, MergeRuns, SortRuns, key_ranges, sorted_rows
from loaders.rdf.pieces import PIECE_BYTES, cut
from loaders.rdf.scan import (
    CHUNK_QUADS,
    ChunkSummary,
    PieceSummary,
    QuadInput,
    RdfInput,
    Scan,
    SourceInput,
)
from loaders.rdf.staging import staging
from loaders.rdf.summary import (
    RdfSummary,
    check_not_all_rejected,
    collect_rejects,
    summary_of,
)
from loaders.rdf.tasks import Tasks
from loaders.sources.base import StaticSource
from tpf_server.errors import StoreError
from tpf_server.store.static import layout
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.manifest import Manifest
from tpf_server.store.static.rdf_files import merge_prefixes
from tpf_server.store.static.writing import write_store

if TYPE_CHECKING:
    from pyspark import SparkContext

_NO_PREFIXES: Mapping[str, str] = MappingProxyType({})
_FOLDERS = ("rows", "terms", "rejects", "ranks", "dictionary", "runs", "sorted")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How the work is cut; tests make everything small.

    Args:
        piece_bytes: of pieces of line formats.
        chunk_quads: rows with a common dictionary.
        range_rows: rows, or terms, that a task merges: bounds its memory.
        small: so many quads are not worth any task after the scan.
        key_bits: how long an integer key may be.
    """

    piece_bytes: int = PIECE_BYTES
    chunk_quads: int = CHUNK_QUADS
    range_rows: int = 2_000_000
    small: int = 200_000
    key_bits: int = KEY_BITS


DEFAULT_SIZES = Sizes()


def load_rdf_spark(
    files: Sequence[Path],
    store: Path,
    context: "SparkContext | None",
    *,
    created: datetime,
    rejects: Path | None = None,
    strict: bool = False,
    report: Report | None = None,
    sizes: Sizes = DEFAULT_SIZES,
    source: str = "",
    prefixes: Mapping[str, str] = _NO_PREFIXES,
) -> RdfSummary:
    """Load RDF files into a store, or replace the store that is there when the load is complete.

    Args:
        files: RDF files, as `loaders.rdf.pieces.input_files` gives them.
        store: the directory of the store.
        context: a Spark context; ``None``: every task in this process.
        created: the instant of the content.
        rejects: file for what is malformed, one JSON object per line; ``None``: only counted.
        strict: stop at the first malformed line.
        report: where to tell how far it is.
        sizes: how the work is cut.
        source: what the store is made from, kept in the manifest.
        prefixes: prefix to namespace, for display; those of the files come behind them.

    Raises:
        InputError: a file cannot be read, or is malformed and `strict`.
        OutputError: the store cannot be written, or another load is writing it.
    """
    tasks = Tasks(context, report or Silent())
    with staging(store) as work:
        _prepare(work)
        given = RdfInput(cut(files, sizes.piece_bytes), work, strict)
        found, manifest = _build(
            given, store, work, tasks, sizes, created, source, prefixes, rejects
        )
        first = collect_rejects(work, rejects)
    return summary_of(store, manifest, sum(piece.rejects for piece in found), first)


def load_source(
    source: StaticSource,
    store: Path,
    context: "SparkContext | None",
    *,
    created: datetime,
    report: Report | None = None,
    sizes: Sizes = DEFAULT_SIZES,
) -> RdfSummary:
    """Load the static facts of a source into a store; see `load_rdf_spark`."""
    tasks = Tasks(context, report or Silent())
    with staging(store) as work:
        _prepare(work)
        given = SourceInput(source, tasks.cores)
        _, manifest = _build(
            given, store, work, tasks, sizes, created, source.name, source.prefixes
        )
    return summary_of(store, manifest, 0, [])


def _prepare(work: Path) -> None:
    for name in _FOLDERS:
        (work / name).mkdir()


def _build(
    given: QuadInput,
    store: Path,
    work: Path,
    tasks: Tasks,
    sizes: Sizes,
    created: datetime,
    source: str,
    prefixes: Mapping[str, str],
    rejects: Path | None = None,
) -> tuple[list[PieceSummary], Manifest]:
    found = tasks.run("reading", Scan(given, work, sizes.chunk_quads), range(len(given)))
    chunks = [chunk for piece in found for chunk in piece.chunks]
    keys = [chunk.key for chunk in chunks]
    total = sum(chunk.quads for chunk in chunks)
    if not total:
        rejected = sum(piece.rejects for piece in found)
        check_not_all_rejected(total, rejected, collect_rejects(work, rejects))
    here = total <= sizes.small
    cores = 1 if here else tasks.cores

    # The dictionary.
    count = _ranges(sum(chunk.terms for chunk in chunks), sizes, cores)
    parts = term_ranges([s for chunk in chunks for s in chunk.samples], count) if chunks else []
    merged = tasks.run("merging terms", MergeTerms(work, keys), parts, here=here)
    translation = Renumbering(work, merged)

    # The orders.
    names: tuple[str, ...] = layout.TRIPLE_ORDERS
    if any(chunk.graphs for chunk in chunks):
        names = layout.QUAD_ORDERS
    predicates = _predicates(chunks, translation)
    codes = {name: KeyCode(name, translation.terms, predicates, sizes.key_bits) for name in names}
    sort = SortRuns(work, keys, translation, codes)
    runs = tasks.run("sorting rows", sort, range(len(keys)), here=here)
    count = _ranges(total, sizes, cores)
    ranges = {
        name: key_ranges(name, [run.samples[name] for run in runs], count) if runs else []
        for name in names
    }
    every = [each for of_order in ranges.values() for each in of_order]
    tasks.run("merging rows", MergeRuns(work, keys), every, here=here)

    known = [prefixes, *(piece.prefixes for piece in found)]
    tasks.report.stage("writing")
    try:
        manifest = write_store(
            store,
            dictionary_pieces(work, len(parts)),
            {name: sorted_rows(work, name, len(ranges[name]), codes[name]) for name in names},
            created=created,
            prefixes=merge_prefixes(known),
            source=source,
        )
    except StoreError as error:
        raise OutputError(str(error)) from error
    return found, manifest


def _ranges(rows: int, sizes: Sizes, cores: int) -> int:
    """Into how many ranges so many rows or terms are cut."""
    return max(cores, -(-rows // sizes.range_rows))


def _predicates(chunks: Sequence[ChunkSummary], translation: Renumbering) -> Ids:
    """The numbers of all predicates; none where there are too many to tell."""
    known: list[Ids] = [np.zeros(0, dtype=np.uint32)]
    for position, chunk in enumerate(chunks):
        if chunk.predicates is None:
            return np.zeros(0, dtype=np.uint32)
        known.append(translation.of_chunk(position)[list(chunk.predicates)])
    return np.unique(np.concatenate(known))
