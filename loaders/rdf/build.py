"""RDF files → static store on Spark.

1. Scan: workers parse pieces; each chunk gets rows of local numbers and a list of its terms.
2. Dictionary: Spark sorts all lists of terms by range. Read in that order, equal terms are
   neighbours; so the global numbers are counted, and every chunk's local numbers are translated,
   in one pass: no join, no hash, no window.
3. Orders: workers translate the rows, Spark sorts them once per order.
4. Finish: the step that all writers of stores share.

The input, the output and its staging directory must be visible to every worker under one path.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loaders.errors import OutputError
from loaders.progress import Report, Silent, spark_tasks
from loaders.rdf.pieces import PIECE_BYTES, PieceReader, Reject, cut
from loaders.rdf.scan import ChunkSummary, RejectLog, ScanTask, rows_file, unpack_summary
from loaders.rdf.staging import staging
from loaders.session import worker_errors
from tpf_server.errors import StoreError
from tpf_server.store import layout
from tpf_server.store.finish import Rows, finish
from tpf_server.store.indexing import QuadIndexer
from tpf_server.store.manifest import Manifest
from tpf_server.store.rdf_files import merge_prefixes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_PREFIXES: Mapping[str, str] = MappingProxyType({})
_SORT_ROWS = 2_000_000
"""Rows that a task sorts: bounds its memory."""


@dataclass(frozen=True, slots=True)
class RdfSummary:
    """What a load did.

    Args:
        manifest: of the new store.
        predicates: how many different predicates the store has.
        rejects: how many malformed lines or statements were left out.
        first_rejects: the first of them.
    """

    manifest: Manifest
    predicates: int
    rejects: int
    first_rejects: list[Reject]


def load_rdf_spark(
    files: Sequence[Path],
    store: Path,
    session: "SparkSession",
    *,
    created: datetime,
    rejects: Path | None = None,
    strict: bool = False,
    report: Report | None = None,
    piece_bytes: int = PIECE_BYTES,
    source: str = "",
    prefixes: Mapping[str, str] = _NO_PREFIXES,
) -> RdfSummary:
    """Load RDF files into a store, or replace the store that is there when the load is complete.

    Args:
        files: RDF files, as `loaders.rdf.pieces.input_files` gives them.
        store: the directory of the store.
        session: a Spark session.
        created: the instant of the content.
        rejects: file for what is malformed, one JSON object per line; ``None``: only counted.
        strict: stop at the first malformed line.
        report: where to tell how far it is.
        piece_bytes: size of the pieces of line formats.
        source: what the store is made from, kept in the manifest.
        prefixes: prefix to namespace, for display; those of the files come behind them.

    Raises:
        InputError: a file cannot be read, or is malformed and `strict`.
        OutputError: the store cannot be written, or another load is writing it.
    """
    report = report or Silent()
    with staging(store) as work:
        for name in ("rows", "terms", "rejects"):
            (work / name).mkdir()
        pieces = cut(files, piece_bytes)
        # A task per piece; small files share tasks.
        tasks = max(_tasks(session), sum(file.stat().st_size for file in files) // piece_bytes + 1)
        numbers = session.range(0, len(pieces), 1, min(len(pieces), tasks))
        scan = numbers.mapInArrow(ScanTask(pieces, work, strict), "summary string")
        with spark_tasks(session, report, "reading"), worker_errors():
            summaries = sorted(
                (unpack_summary(row.summary) for row in scan.collect()), key=lambda s: s.piece
            )
        chunks = [chunk for summary in summaries for chunk in summary.chunks]
        plan = _Plan(session, work, chunks, report)
        plan.sort_terms()
        names = layout.QUAD_ORDERS if plan.has_graphs else layout.TRIPLE_ORDERS
        known = [prefixes, *(summary.prefixes for summary in summaries)]
        try:
            manifest = finish(
                store,
                plan.terms(),
                {name: plan.rows(name) for name in names},
                created=created,
                prefixes=merge_prefixes(known),
                source=source,
            )
        except (StoreError, OSError) as error:
            raise OutputError(str(error)) from error
        found = _collect_rejects(work, rejects)
        return _summary(store, manifest, sum(s.rejects for s in summaries), found)


def _summary(store: Path, manifest: Manifest, rejects: int, first: list[Reject]) -> RdfSummary:
    # The predicates are those terms at which the rows of the second order begin anew.
    order = manifest.orders[1]
    starts = np.load(
        store / manifest.generation / layout.starts_file(order), mmap_mode="r", allow_pickle=False
    )
    predicates = int(np.count_nonzero(np.diff(starts)))
    return RdfSummary(manifest, predicates, rejects, first)


class _Plan:
    """The steps after the scan."""

    def __init__(
        self, session: "SparkSession", work: Path, chunks: list[ChunkSummary], report: Report
    ) -> None:
        self._session = session
        self._work = work
        self._chunks = chunks
        self._report = report
        # Where the numbers of each chunk begin in the one file of translations.
        self._keys = np.array([chunk.key for chunk in chunks], dtype=np.int64)
        sizes = [chunk.terms for chunk in chunks]
        self._begins = np.array([0, *accumulate(sizes)][: len(sizes)], dtype=np.int64)
        self._total = sum(sizes)
        self.has_graphs = any(chunk.graphs for chunk in chunks)

    def _partitions(self, rows: int) -> int:
        return max(self._session.sparkContext.defaultParallelism, -(-rows // _SORT_ROWS))

    def sort_terms(self) -> None:
        """Sort the terms of all chunks; Spark compares the bytes of UTF-8, as the store does."""
        if not self._chunks:
            return
        terms = self._session.read.parquet(str(self._work / "terms"))
        with spark_tasks(self._session, self._report, "sorting terms"):
            (
                terms.repartitionByRange(self._partitions(self._total), "term")
                .sortWithinPartitions("term")
                .write.option("compression", "snappy")
                .parquet(str(self._work / "sorted"))
            )

    def terms(self) -> Iterator[pa.Array]:
        """The dictionary in order; on the way, the translations are written."""
        yield pa.array([""], pa.large_string())
        if not self._chunks:
            return
        self._report.stage("writing terms", self._total)
        translation = np.lib.format.open_memmap(
            self._work / "translation.npy", mode="w+", dtype=np.uint32, shape=(self._total,)
        )
        last: str | None = None
        number = done = 0
        for batch in _batches(self._work / "sorted"):
            terms = batch.column("term")
            new = np.ones(len(terms), dtype=bool)
            new[0] = terms[0].as_py() != last
            new[1:] = pc.not_equal(terms[1:], terms[:-1]).to_numpy(zero_copy_only=False)
            ids = number + np.cumsum(new)
            at = np.searchsorted(self._keys, batch.column("chunk").to_numpy())
            translation[self._begins[at] + batch.column("local").to_numpy()] = ids
            number = int(ids[-1])
            last = terms[-1].as_py()
            yield terms.filter(pa.array(new)).cast(pa.large_string())
            done += len(terms)
            self._report.done(done)
        translation.flush()

    def rows(self, order: str) -> Iterator[Rows]:
        """The rows of an order, sorted by Spark, without repetitions."""
        if not self._chunks:
            return
        columns = list(order)
        tasks = [
            (chunk.key, int(begin), chunk.terms)
            for chunk, begin in zip(self._chunks, self._begins, strict=True)
        ]
        kind = "int" if self._total < 1 << 31 else "bigint"
        schema = ", ".join(f"{column} {kind}" for column in columns)
        total = sum(chunk.quads for chunk in self._chunks)
        partitions = min(len(tasks), max(_tasks(self._session), total // _SORT_ROWS))
        numbers = self._session.range(0, len(tasks), 1, partitions)
        translate = _Translate(tasks, self._work, order, kind == "bigint")
        rows = numbers.mapInArrow(translate, schema)
        target = self._work / order
        with spark_tasks(self._session, self._report, f"sorting {order}"):
            (
                rows.repartitionByRange(self._partitions(total), *columns)
                .sortWithinPartitions(*columns)
                .write.option("compression", "snappy")
                .parquet(str(target))
            )
        last: tuple[int, ...] | None = None
        for batch in _batches(target):
            piece = tuple(batch.column(c).to_numpy().astype(np.uint32) for c in columns)
            new = np.zeros(len(piece[0]), dtype=bool)
            new[0] = tuple(int(column[0]) for column in piece) != last
            for column in piece:
                new[1:] |= column[1:] != column[:-1]
            last = tuple(int(column[-1]) for column in piece)
            yield tuple(column[new] for column in piece)


class _Translate:
    """Turns chunks into Arrow batches of rows with global numbers; runs in the workers."""

    def __init__(
        self, tasks: list[tuple[int, int, int]], work: Path, order: str, wide: bool
    ) -> None:
        self._tasks = tasks
        self._work = str(work)
        self._order = order
        self._wide = wide

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        work = Path(self._work)
        translation = np.load(work / "translation.npy", mmap_mode="r")
        kind = np.int64 if self._wide else np.int32
        for batch in batches:
            for number in batch.column(0).to_pylist():
                key, begin, terms = self._tasks[number]
                numbers = translation[begin : begin + terms].astype(kind)
                rows = np.load(rows_file(work, key))
                columns = {c: numbers[rows["spog".index(c)]] for c in self._order}
                length = rows.shape[1]
                for start in range(0, length, 200_000):
                    yield pa.RecordBatch.from_pydict(
                        {c: pa.array(v[start : start + 200_000]) for c, v in columns.items()}
                    )


def _tasks(session: "SparkSession") -> int:
    """Into how many tasks small work is cut, so that no core is idle for long."""
    return 4 * int(session.sparkContext.defaultParallelism)


def _batches(directory: Path) -> Iterator[Any]:
    """The rows of what Spark wrote, in its order: the names of the files ascend."""
    for file in sorted(directory.glob("part-*.parquet")):
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(batch_size=1 << 18):
                if len(batch):
                    yield batch


def _collect_rejects(work: Path, target: Path | None) -> list[Reject]:
    first: list[Reject] = []
    files = sorted((work / "rejects").glob("*.ndjson"))
    if not files:
        return first
    texts = (line for file in files for line in file.read_text(encoding="utf-8").splitlines(True))
    if target is None:
        return [Reject(**json.loads(line)) for line, _ in zip(texts, range(20), strict=False)]
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8") as out:
        for line in texts:
            out.write(line)
            if len(first) < 20:
                first.append(Reject(**json.loads(line)))
    return first


def load_rdf_local(
    files: Sequence[Path],
    store: Path,
    *,
    created: datetime,
    rejects: Path | None = None,
    strict: bool = False,
    report: Report | None = None,
    source: str = "",
    prefixes: Mapping[str, str] = _NO_PREFIXES,
) -> RdfSummary:
    """The same in one process, with every distinct term in memory; see `load_rdf_spark`."""
    report = report or Silent()
    indexer = QuadIndexer()
    known = [prefixes]
    with staging(store) as work:
        (work / "rejects").mkdir()
        pieces = cut(files)
        report.stage("reading", len(pieces))
        found = 0
        for piece in pieces:
            with RejectLog(piece, work, strict) as log:
                reader = PieceReader(piece, log.reject)
                indexer.add(reader.quads())
            known.append(reader.prefixes)
            found += log.count
            report.done(piece.number + 1)
        report.stage("writing")
        try:
            manifest = indexer.write(
                store, created=created, prefixes=merge_prefixes(known), source=source
            )
        except (StoreError, OSError) as error:
            raise OutputError(str(error)) from error
        return _summary(store, manifest, found, _collect_rejects(work, rejects))
