"""Step one: from a piece of RDF to rows and sorted terms, numbered per chunk."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import IO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loaders.errors import InputError
from loaders.rdf.pieces import Piece, PieceReader, Reject
from loaders.sources.base import StaticSource
from tpf_server.store.static.indexing import QuadArrays
from tpf_server.store.static.rdf_files import QuadTexts

# Arrays of terms as bytes that go from task to task: Arrow's format for streams.


def packed_terms(terms: pa.Array) -> bytes:
    """Return the bytes of an array of texts."""
    batch = pa.record_batch([terms], ["term"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked_terms(packed: bytes) -> pa.Array:
    """The array of these bytes, where they lie."""
    return pa.ipc.open_stream(packed).read_next_batch().column(0)


CHUNK_QUADS = 1_000_000
"""Rows with a common dictionary: bounds the memory of a worker."""

_SAMPLES = 256
_REJECT_BYTES = 1 << 20

ChunkArray: TypeAlias = npt.NDArray[np.uint32]
"""Rows of a chunk: a line for each position; without one for the graph where all are in none."""


@dataclass(frozen=True, slots=True)
class ChunkSummary:
    """A chunk in short, for the driver.

    Args:
        key: ascends over all chunks.
        quads: their number, repetitions included.
        term_bytes: of its terms together.
        samples: some of its terms, ascending, at equal distances.
        graphs: a quad lies in a named graph.
    """

    key: int
    quads: int
    term_bytes: int
    samples: tuple[str, ...]
    graphs: bool


class ChunkTerms(NamedTuple):
    """A chunk's sorted terms (Arrow)."""

    chunk: int
    terms: bytes


class ChunkRows(NamedTuple):
    """The rows of a chunk."""

    chunk: int
    rows: ChunkArray


@dataclass(frozen=True, slots=True)
class PieceSummary:
    """A piece in short; `error` is why reading stopped early."""

    rejects: int
    prefixes: Mapping[str, str]
    error: str | None = None


class RejectLines(NamedTuple):
    """The malformed parts of a piece: whole lines of JSON."""

    text: bytes


Staged: TypeAlias = ChunkSummary | ChunkTerms | ChunkRows | RejectLines | PieceSummary


QuadInput: TypeAlias = Sequence[
    Callable[[Callable[[Reject], None], dict[str, str]], Iterable[QuadTexts]]
]
"""Pieces of quads, for workers: each gives malformed parts to the first argument, and notes its
prefixes in the second."""


def rdf_input(pieces: Iterable[Piece]) -> QuadInput:
    """Return pieces of RDF files as an input."""
    return [partial(_quads_of_piece, piece) for piece in pieces]


def _quads_of_piece(
    piece: Piece, reject: Callable[[Reject], None], prefixes: dict[str, str]
) -> Iterator[QuadTexts]:
    reader = PieceReader(piece, reject)
    yield from reader.quads()
    prefixes |= reader.prefixes


def source_input(source: StaticSource, count: int) -> QuadInput:
    """Return the static facts of a source as an input."""
    return [partial(_quads_of_source, source, piece) for piece in source.pieces(count)]


def _quads_of_source(source: StaticSource, piece: str, *_: object) -> Iterator[QuadTexts]:
    return source.quads(piece)


def scan(given: QuadInput, strict: bool, chunk_quads: int, number: int) -> Iterator[Staged]:
    """Make chunks of a piece of an input.

    Malformed input is a result, since repeating would not help; failing reads fail the task.
    """
    with tempfile.TemporaryFile() as aside:
        log = RejectLog(aside, strict)
        prefixes: dict[str, str] = {}
        error = None
        try:
            rows = iter(given[number](log.reject, prefixes))
            count = 0
            while (quads := QuadArrays()).add(islice(rows, chunk_quads)):
                yield from _chunk(quads, number << 20 | count)
                count += 1
        except InputError as found:
            if isinstance(found.__cause__, OSError):
                raise
            error = str(found)
        yield from map(RejectLines, log.blocks())
        yield PieceSummary(log.count, prefixes, error)


class RejectLog:
    """Write malformed parts as lines of JSON."""

    def __init__(self, file: IO[bytes], strict: bool) -> None:
        self.count = 0
        self._file = file
        self._strict = strict

    def reject(self, reject_: Reject) -> None:
        if self._strict:
            raise InputError(
                f"{reject_.message}: {reject_.text}".strip(": "), reject_.path, reject_.line
            )
        text = json.dumps(reject_._asdict(), ensure_ascii=False)
        # Names of files may be no UTF-8.
        self._file.write(text.encode(errors="backslashreplace") + b"\n")
        self.count += 1

    def blocks(self) -> Iterator[bytes]:
        """Yield the log in blocks of whole lines."""
        self._file.seek(0)
        while lines := b"".join(self._file.readlines(_REJECT_BYTES)):
            yield lines


def _chunk(quads: QuadArrays, key: int) -> Iterator[Staged]:
    pieces, columns = quads.ranked()
    terms = pa.concat_arrays(pieces).slice(1)
    graphs = bool(columns[3].any())
    step = max(1, len(terms) // _SAMPLES)
    samples = tuple(terms[n].as_py() for n in range(0, len(terms), step))
    yield ChunkSummary(key, len(quads), terms.nbytes, samples, graphs)
    yield ChunkTerms(key, packed_terms(terms))
    yield ChunkRows(key, np.stack(columns if graphs else columns[:3]))
