"""The first step, in the workers: from a piece of RDF to numbered rows and lists of terms.

Every chunk of quads has its own small dictionary: a term is numbered when it appears first. The
rows go to a file of local numbers, the terms to a Parquet file; Spark sorts only the terms.
"""

import json
import os
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loaders.errors import InputError
from loaders.rdf.pieces import Piece, PieceReader, Reject
from tpf_server.store.rdf_files import QuadTexts

CHUNK_QUADS = 1_000_000
"""Rows with a common dictionary: bounds the memory of a worker."""


@dataclass(frozen=True, slots=True)
class ChunkSummary:
    """What was staged for a chunk; `graphs`: whether any quad lies in a named graph."""

    piece: int
    number: int
    quads: int
    terms: int
    graphs: bool

    @property
    def key(self) -> int:
        """Identifies the chunk among all chunks."""
        return self.piece << 20 | self.number


@dataclass(frozen=True, slots=True)
class PieceSummary:
    """What was found in a piece."""

    piece: int
    chunks: list[ChunkSummary]
    rejects: int
    prefixes: dict[str, str]


def rows_file(staging: Path, key: int) -> Path:
    """Where the rows of a chunk are."""
    return staging / "rows" / f"{key}.npy"


def scan_piece(piece: Piece, staging: Path, strict: bool) -> PieceSummary:
    """Read a piece and stage it.

    Raises:
        InputError: the file cannot be read; or, where `strict`, anything in it is not RDF.
    """
    chunks: list[ChunkSummary] = []
    with RejectLog(piece, staging, strict) as log:
        reader = PieceReader(piece, log.reject)
        quads = reader.quads()
        while (chunk := _Chunk(islice(quads, CHUNK_QUADS))).quads:
            summary = ChunkSummary(
                piece.number, len(chunks), chunk.quads, len(chunk.ids), chunk.has_graphs
            )
            chunk.write(staging, summary.key)
            chunks.append(summary)
    return PieceSummary(piece.number, chunks, log.count, reader.prefixes)


class RejectLog:
    """Writes aside what is malformed in a piece: one JSON object per line.

    Args:
        piece: where it is found.
        staging: has a folder ``rejects``.
        strict: do not write aside, but stop.

    Raises:
        InputError: something is malformed, and `strict`.
    """

    def __init__(self, piece: Piece, staging: Path, strict: bool) -> None:
        self.count = 0
        self._strict = strict
        self._target = staging / "rejects" / f"{piece.number:08}.ndjson"
        self._aside = self._target.with_suffix(f".{os.getpid()}")
        self._file: IO[str] | None = None

    def reject(self, found: Reject) -> None:
        """Write it down."""
        if self._strict:
            raise InputError(f"{found.message}: {found.text}".strip(": "), found.path, found.line)
        if self._file is None:
            self._file = self._aside.open("w", encoding="utf-8")
        self._file.write(json.dumps(found._asdict(), ensure_ascii=False) + "\n")
        self.count += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            if kind is None:
                self._aside.replace(self._target)


class _Chunk:
    def __init__(self, quads: Iterable[QuadTexts]) -> None:
        self.ids: defaultdict[str, int] = defaultdict()
        self.ids.default_factory = self.ids.__len__
        ids = self.ids
        ids[""]  # the default graph is number 0 everywhere
        self._columns = tuple(array("I") for _ in range(4))
        add_s, add_p, add_o, add_g = (column.append for column in self._columns)
        for s, p, o, g in quads:
            add_s(ids[s])
            add_p(ids[p])
            add_o(ids[o])
            add_g(ids[g])
        self.quads = len(self._columns[0])

    @property
    def has_graphs(self) -> bool:
        return bool(np.frombuffer(self._columns[3], dtype=np.uint32).any())

    def write(self, staging: Path, key: int) -> None:
        rows = np.stack([np.frombuffer(column, dtype=np.uint32) for column in self._columns])
        file = rows_file(staging, key)
        aside = file.with_suffix(f".{os.getpid()}")
        with aside.open("wb") as handle:
            np.save(handle, rows)
        aside.replace(file)
        terms = list(self.ids)[1:]
        table = pa.table(
            {
                "term": pa.array(terms, pa.string()),
                "chunk": pa.array(np.full(len(terms), key, dtype=np.int64)),
                "local": pa.array(np.arange(1, len(terms) + 1, dtype=np.int32)),
            }
        )
        target = staging / "terms" / f"{key}.parquet"
        # Hidden files are not read by Spark, should a worker be killed here.
        aside = target.with_name(f".{target.name}.{os.getpid()}")
        pq.write_table(table, aside, compression="snappy", use_dictionary=["chunk"])
        aside.replace(target)


class ScanTask:
    """Arrow batches of numbers of pieces to Arrow batches of summaries; runs in the workers."""

    def __init__(self, pieces: list[Piece], staging: Path, strict: bool) -> None:
        self._pieces = pieces
        self._staging = str(staging)
        self._strict = strict

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Scan the pieces."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                summary = scan_piece(self._pieces[number], Path(self._staging), self._strict)
                chunks = [[c.piece, c.number, c.quads, c.terms, c.graphs] for c in summary.chunks]
                packed = json.dumps([number, chunks, summary.rejects, summary.prefixes])
                yield pa.RecordBatch.from_pydict({"summary": [packed]})


def unpack_summary(text: str) -> PieceSummary:
    """The summary that a `ScanTask` packed."""
    piece, chunks, rejects, prefixes = json.loads(text)
    return PieceSummary(piece, [ChunkSummary(*chunk) for chunk in chunks], rejects, prefixes)
