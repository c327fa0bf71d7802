"""The first step, in the workers: from a piece of RDF to numbered rows and lists of terms.

Every chunk of quads has its own small dictionary. The rows go to a file of numbers, the terms,
sorted, to an Arrow file: number n is the n-th term of it.
"""

import json
import os
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loaders.errors import InputError
from loaders.rdf.files import replaced
from loaders.rdf.pieces import Piece, PieceReader, Reject
from loaders.sources.base import StaticSource
from tpf_server.store.static.rdf_files import QuadTexts

CHUNK_QUADS = 1_000_000
"""Rows with a common dictionary: bounds the memory of a worker."""

_SAMPLES = 256
_MANY_PREDICATES = 1 << 16


@dataclass(frozen=True, slots=True)
class ChunkSummary:
    """What was staged for a chunk.

    Args:
        key: identifies it among all chunks.
        quads: how many it has, repetitions included.
        terms: how many different terms they have.
        graphs: whether any quad lies in a named graph.
        samples: some of its terms, ascending, at equal distances.
        predicates: the numbers of its predicates; ``None``: there are too many to tell.
    """

    key: int
    quads: int
    terms: int
    graphs: bool
    samples: tuple[str, ...]
    predicates: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class PieceSummary:
    """What was found in a piece."""

    chunks: tuple[ChunkSummary, ...]
    rejects: int
    prefixes: Mapping[str, str]


class QuadInput(Protocol):
    """Pieces of work that give quads; it is pickled to the workers."""

    def summary(self, number: int, stage: Callable[[Iterable[QuadTexts]], None]) -> "Found":
        """Read a piece: hand its quads over, and tell what else was found.

        Raises:
            InputError: it cannot be read.
        """

    def __len__(self) -> int:
        """How many pieces there are."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a piece has besides quads."""

    rejects: int
    prefixes: Mapping[str, str]


class RdfInput:
    """Pieces of RDF files.

    Args:
        pieces: the pieces.
        staging: where malformed lines go.
        strict: do not go on behind what is malformed.
    """

    def __init__(self, pieces: list[Piece], staging: Path, strict: bool) -> None:
        self._pieces = pieces
        self._staging = str(staging)
        self._strict = strict

    def __len__(self) -> int:
        return len(self._pieces)

    def summary(self, number: int, stage: Callable[[Iterable[QuadTexts]], None]) -> Found:
        """Parse a piece."""
        piece = self._pieces[number]
        with RejectLog(piece, Path(self._staging), self._strict) as log:
            reader = PieceReader(piece, log.reject)
            stage(reader.quads())
        return Found(log.count, reader.prefixes)


class SourceInput:
    """The static facts of a source.

    Args:
        source: the source.
        count: into about how many pieces to cut it.
    """

    def __init__(self, source: StaticSource, count: int) -> None:
        self._source = source
        self._pieces = list(source.pieces(count))

    def __len__(self) -> int:
        return len(self._pieces)

    def summary(self, number: int, stage: Callable[[Iterable[QuadTexts]], None]) -> Found:
        """Read a piece."""
        stage(self._source.quads(self._pieces[number]))
        return Found(0, {})


class Scan:
    """Stages a piece of an input in chunks; runs in the workers.

    Args:
        given: the input.
        staging: has folders ``rows`` and ``terms``.
        chunk_quads: rows with a common dictionary.
    """

    def __init__(self, given: QuadInput, staging: Path, chunk_quads: int = CHUNK_QUADS) -> None:
        self._given = given
        self._staging = str(staging)
        self._chunk_quads = chunk_quads

    def __call__(self, number: int) -> PieceSummary:
        """Stage one piece."""
        staging = Path(self._staging)
        chunks: list[ChunkSummary] = []

        def stage(quads: Iterable[QuadTexts]) -> None:
            rows = iter(quads)
            while (chunk := _Chunk(islice(rows, self._chunk_quads))).quads:
                chunks.append(chunk.write(staging, number << 20 | len(chunks)))

        found = self._given.summary(number, stage)
        return PieceSummary(tuple(chunks), found.rejects, dict(found.prefixes))


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

    def write(self, staging: Path, key: int) -> ChunkSummary:
        texts = pa.array(self.ids, pa.large_string(), size=len(self.ids)).slice(1)
        by_text = pc.sort_indices(texts)
        ranks = np.zeros(len(texts) + 1, dtype=np.uint32)
        ranks[by_text.to_numpy() + 1] = np.arange(1, len(texts) + 1, dtype=np.uint32)
        rows = np.stack([ranks[np.frombuffer(column, np.uint32)] for column in self._columns])
        with replaced(staging / "rows" / f"{key}.npy") as aside, aside.open("wb") as file:
            np.save(file, rows)
        terms = texts.take(by_text)
        batch = pa.record_batch({"term": terms})
        with (
            replaced(staging / "terms" / f"{key}.arrow") as aside,
            pa.OSFile(str(aside), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema) as writer,
        ):
            writer.write_batch(batch)
        step = max(1, len(terms) // _SAMPLES)
        samples = tuple(terms[n].as_py() for n in range(0, len(terms), step))
        predicates = np.unique(rows[1])
        return ChunkSummary(
            key,
            self.quads,
            len(terms),
            bool(rows[3].any()),
            samples,
            tuple(predicates.tolist()) if len(predicates) < _MANY_PREDICATES else None,
        )
