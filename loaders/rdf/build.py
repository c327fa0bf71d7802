"""Load RDF into a static store: with Spark, or in one process.

Scan chunks to rows of own numbers and sorted terms; merge ranges of terms to the dictionary;
translate and sort rows per order, and merge ranges; finish. Every step is linear; a task holds one
chunk or range.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from loaders.errors import InputError, OutputError
from loaders.outputs import written
from loaders.places import RemoteFile
from loaders.progress import SILENT, Report
from loaders.rdf.dictionary import (
    RangeRanks,
    RangeSummary,
    RangeTerms,
    cut_terms,
    merge_terms,
    range_begins,
    term_ranges,
)
from loaders.rdf.entailment import Entailment, Regime
from loaders.rdf.flow import Flow, Flows
from loaders.rdf.orders import (
    OrderRanges,
    RowsSample,
    SortedRange,
    TranslatedRows,
    merge_keys,
    order_ranges,
    send_numbers,
    send_rows,
    sort_rows,
    translate_rows,
)
from loaders.rdf.parting import PartsPlace, manifest_of_parts, put_rows, put_terms
from loaders.rdf.pieces import PIECE_BYTES, PieceReader, cut
from loaders.rdf.scan import (
    CHUNK_QUADS,
    ChunkRows,
    ChunkSummary,
    ChunkTerms,
    PieceSummary,
    QuadInput,
    RejectLines,
    RejectLog,
    Staged,
    rdf_input,
    scan,
    source_input,
    unpacked_terms,
)
from loaders.rdf.summary import (
    RdfLoad,
    RdfSummary,
    check_not_all_rejected,
    collect_rejects,
    summary_of,
)
from loaders.sources.base import StaticSource
from tpf_server.errors import StoreError
from tpf_server.store.static import layout
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.dictionary import text_array
from tpf_server.store.static.indexing import KEY_BITS, KeyCode, QuadIndexer
from tpf_server.store.static.manifest import Manifest
from tpf_server.store.static.parts import PartsManifest
from tpf_server.store.static.rdf_files import merge_prefixes
from tpf_server.store.static.writing import RowColumns, write_store

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True, slots=True)
class WorkSizes:
    """The sizes of the work; small in tests.

    Args:
        piece_bytes: of pieces of line formats.
        chunk_quads: rows with a common dictionary.
        range_rows: rows, or 16 bytes of terms, that a task merges: bounds its memory.
        small: the most quads for which one task does all after the scan.
        key_bits: longest integer key.
    """

    piece_bytes: int = PIECE_BYTES
    chunk_quads: int = CHUNK_QUADS
    range_rows: int = 1_000_000
    small: int = 200_000
    key_bits: int = KEY_BITS


DEFAULT_SIZES = WorkSizes()


def load_rdf_spark(
    files: Sequence[Path | RemoteFile],
    store: Path,
    context: "SparkContext | None",
    job: RdfLoad,
    *,
    report: Report = SILENT,
    sizes: WorkSizes = DEFAULT_SIZES,
    parts: PartsPlace | None = None,
) -> RdfSummary:
    """Load RDF files into a store, which replaces the old one when complete.

    Without a Spark context, all runs in this process. With `parts`, workers write a large store in
    parts, and the returned manifest is still to be put there.

    Raises:
        InputError: a file cannot be read, or is malformed and `strict`.
        OutputError: the store cannot be written, or another load is writing it.
    """
    load = _Load(store, sizes, job, parts)
    given = rdf_input(cut(files, sizes.piece_bytes))
    with staging(store), Flows(context, report) as flows:
        return load.run(given, flows)


def load_source(
    source: StaticSource,
    store: Path,
    context: "SparkContext | None",
    *,
    created: datetime,
    report: Report = SILENT,
    parts: PartsPlace | None = None,
) -> RdfSummary:
    """Load a source's static facts into a store; see `load_rdf_spark`."""
    job = RdfLoad(created, source=source.name, prefixes=source.prefixes)
    load = _Load(store, DEFAULT_SIZES, job, parts)
    with staging(store), Flows(context, report) as flows:
        return load.run(source_input(source, flows.cores), flows)


def load_rdf_local(
    files: Sequence[Path | RemoteFile],
    store: Path,
    job: RdfLoad,
    *,
    report: Report = SILENT,
    entail: Regime | None = None,
) -> RdfSummary:
    """Load RDF files in one process, with the entailments of `entail`."""
    entailment = entail and Entailment(entail)
    indexer = QuadIndexer()
    all_prefixes = [job.prefixes]
    with staging(store), TemporaryFile() as aside:
        pieces = cut(files)
        report.stage("reading", len(pieces))
        quads = 0
        log = RejectLog(aside, job.strict)
        for piece in pieces:
            reader = PieceReader(piece, log.reject)
            result = reader.quads()
            quads += indexer.add(entailment.noting(result) if entailment else result)
            all_prefixes.append(reader.prefixes)
            report.done(piece.number + 1)
        first = collect_rejects(log.blocks(), job.rejects)
        check_not_all_rejected(quads, log.count, first)
        if entailment:
            report.stage("deriving what follows")
            indexer.add(entailment.derived())
        report.stage("writing")
        try:
            manifest = indexer.write(
                store, created=job.created, prefixes=merge_prefixes(all_prefixes), source=job.source
            )
        except StoreError as error:
            raise OutputError(str(error)) from error
        return summary_of(store, manifest, log.count, first)


@contextmanager
def staging(store: Path) -> Iterator[None]:
    """Lock a store by a directory beside it, removed at the end.

    Raises:
        OutputError: another load into this store is running, or the disk is not writable.
    """
    store = store.resolve()
    import fcntl  # which only POSIX systems have

    directory = store.parent / f".{store.name}.loading"
    with written(store):
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed it since it was opened: others would lock a new one.
            if not os.path.samestat(os.fstat(lock.fileno()), os.stat(lock.name)):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError):
            raise OutputError(f"another load into {store} is running") from None
        try:
            with written(store):
                yield
        finally:
            shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Load:
    store: Path
    sizes: WorkSizes
    job: RdfLoad
    parts: PartsPlace | None = None

    def run(self, given: QuadInput, flows: Flows) -> RdfSummary:
        read = partial(scan, given, self.job.strict, self.sizes.chunk_quads)
        staged = flows.of(range(len(given))).map(read).kept()
        summaries = staged.only(PieceSummary, ChunkSummary).collect("reading")
        pieces = [each for each in summaries if isinstance(each, PieceSummary)]
        chunks = [each for each in summaries if isinstance(each, ChunkSummary)]
        for piece in pieces:
            if piece.error is not None:
                raise InputError(piece.error)
        rejected = sum(piece.rejects for piece in pieces)
        total = sum(chunk.quads for chunk in chunks)
        lines: Iterator[bytes] = iter(())
        if rejected:
            lines = (each.text for each in staged.only(RejectLines).each("fetching rejects"))
        first = collect_rejects(lines, self.job.rejects)
        check_not_all_rejected(total, rejected, first)

        cores = flows.cores
        if total <= self.sizes.small:
            cores = 1
            staged = flows.here(staged.collect("reading"))
        merged, begins = self._dictionary(staged, chunks, cores)
        names: tuple[str, ...] = layout.TRIPLE_ORDERS
        if any(chunk.graphs for chunk in chunks):
            names = layout.QUAD_ORDERS
        orders, ranges = self._orders(staged, merged, chunks, begins, names, cores)
        made = _Made(
            merged, begins[-1], orders, ranges,
            merge_prefixes([self.job.prefixes, *(piece.prefixes for piece in pieces)]),
        )  # fmt: skip
        if self.parts is not None and total > self.sizes.small:
            manifest, predicates = self._in_parts(made, self.parts)
            return RdfSummary(manifest, predicates, rejected, first)
        return summary_of(self.store, self._here(made, flows.report), rejected, first)

    def _here(self, made: "_Made", report: Report) -> Manifest:
        terms = made.merged.only(RangeTerms).each("fetching terms")
        ranges = made.ranges.each("sorting rows")
        report.stage("writing")
        try:
            return write_store(
                self.store,
                _dictionary_pieces(terms),
                {name: _rows_of(of, ranges) for name, of in made.orders.items()},
                created=self.job.created,
                prefixes=made.prefixes,
                source=self.job.source,
            )
        except StoreError as error:
            raise OutputError(str(error)) from error

    def _in_parts(self, made: "_Made", place: PartsPlace) -> tuple[PartsManifest, int]:
        return manifest_of_parts(
            place,
            made.merged.only(RangeTerms).map(partial(put_terms, place)).collect("writing terms"),
            made.ranges.map(partial(put_rows, place, made.orders)).collect("writing rows"),
            made.orders,
            made.terms,
            replace(self.job, prefixes=made.prefixes),
        )

    def _dictionary(
        self, staged: Flow[Staged], chunks: Sequence[ChunkSummary], cores: int
    ) -> tuple[Flow[Any], list[int]]:
        samples = [sample for chunk in chunks for sample in chunk.samples]
        size = sum(chunk.term_bytes for chunk in chunks)
        cuts = term_ranges(samples, self._ranges(size // 16, cores))
        shares = staged.only(ChunkTerms).map(partial(cut_terms, cuts))
        merged = shares.exchanged(len(cuts)).map(merge_terms).kept()
        return merged, range_begins(merged.only(RangeSummary).collect("merging terms"))

    def _orders(
        self,
        staged: Flow[Staged],
        merged: Flow[Any],
        chunks: Sequence[ChunkSummary],
        begins: list[int],
        names: Sequence[str],
        cores: int,
    ) -> tuple[dict[str, OrderRanges], Flow[SortedRange]]:
        total = sum(chunk.quads for chunk in chunks)
        groups = _groups(chunks, min(self.sizes.chunk_quads, -(-total // cores)))
        numbers = partial(send_numbers, groups, begins)
        sent = staged.only(ChunkRows).map(partial(send_rows, groups))
        sent = sent.beside(merged.only(RangeRanks).map(numbers))
        count = max(groups.values(), default=0) + 1
        translated = sent.exchanged(count).map(translate_rows).kept()
        samples = translated.only(RowsSample).collect("translating rows")
        codes = _codes(names, samples, begins[-1], self.sizes.key_bits)
        sample = np.concatenate([each.rows for each in samples], axis=1)
        orders = order_ranges(codes, sample, self._ranges(total, cores))
        runs = translated.only(TranslatedRows).map(partial(sort_rows, orders))
        count = sum(len(order) for order in orders)
        ranges = runs.exchanged(count).map(partial(merge_keys, orders))
        return dict(zip(names, orders, strict=True)), ranges

    def _ranges(self, rows: int, cores: int) -> int:
        return max(cores, -(-rows // self.sizes.range_rows))


class _Made(NamedTuple):
    merged: Flow[Any]
    terms: int
    orders: Mapping[str, OrderRanges]
    ranges: Flow[SortedRange]
    prefixes: Mapping[str, str]


def _groups(chunks: Sequence[ChunkSummary], rows: int) -> dict[int, int]:
    groups: dict[int, int] = {}
    group = held = 0
    for chunk in chunks:
        if held and held + chunk.quads > rows:
            group += 1
            held = 0
        groups[chunk.key] = group
        held += chunk.quads
    return groups


def _codes(
    names: Sequence[str], samples: Sequence[RowsSample], terms: int, bits: int
) -> dict[str, KeyCode]:
    used: dict[str, Ids] = {}
    listed = [each.predicates for each in samples if each.predicates is not None]
    if len(listed) == len(samples) and any(map(len, listed)):
        used["p"] = np.unique(np.concatenate(listed))
    return {name: KeyCode(name, dict.fromkeys("spog", terms), used, bits) for name in names}


def _dictionary_pieces(terms: Iterator[RangeTerms]) -> Iterator[pa.Array]:
    yield text_array([""])
    for each in terms:
        yield unpacked_terms(each.terms)


def _rows_of(order: OrderRanges, ranges: Iterator[SortedRange]) -> Iterator[RowColumns]:
    for each in islice(ranges, len(order)):
        yield order.code.decode(each.keys)
