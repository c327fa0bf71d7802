"""Step one: from a piece of RDF to rows and sorted terms, numbered per chunk."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import IO, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loaders.errors import InputError
from loaders.rdf.pieces import Piece, PieceReader, Reject
from loaders.sources.base import StaticSource
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.indexing import QuadArrays
from tpf_server.store.static.rdf_files import QuadTexts

# Arrays of terms as bytes that go from task to task: Arrow's format for streams.


def packed_terms(terms: pa.Array) -> bytes:
    """Return the bytes of an array of texts."""
    batch = pa.record_batch({"term": terms})
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
_MANY_PREDICATES = 1 << 16
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
        rows: random rows: a sample of every order.
        predicates: their numbers; ``None``: too many to list.
    """

    key: int
    quads: int
    term_bytes: int
    samples: tuple[str, ...]
    rows: ChunkArray
    predicates: Ids | None

    @property
    def graphs(self) -> bool:
        """True where a quad lies in a named graph."""
        return len(self.rows) == 4

    def needed(self) -> Ids:
        """Return the numbers that the driver translates, ascending."""
        numbers = [self.rows.ravel()] + ([] if self.predicates is None else [self.predicates])
        result = np.unique(np.concatenate(numbers))
        return result[result > 0]  # the default graph is number 0 everywhere


class ChunkTerms(NamedTuple):
    """A chunk's sorted terms (Arrow), and the numbers of those that the driver needs."""

    chunk: int
    needed: Ids
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


class QuadReader(Protocol):
    """Reads a piece of work."""

    @property
    def prefixes(self) -> Mapping[str, str]:
        """Prefix to namespace, once all quads have been read."""

    def quads(self) -> Iterator[QuadTexts]:
        """The quads."""


QuadInput: TypeAlias = Sequence[Callable[[Callable[[Reject], None]], QuadReader]]
"""Pieces of quads, for workers: each opens a reader, whose malformed parts go to the argument."""


def rdf_input(pieces: Iterable[Piece]) -> QuadInput:
    """Return pieces of RDF files as an input."""
    return [partial(PieceReader, piece) for piece in pieces]


def source_input(source: StaticSource, count: int) -> QuadInput:
    """Return the static facts of a source as an input."""
    return [partial(_SourceReader, source, piece) for piece in source.pieces(count)]


class _SourceReader:
    def __init__(self, source: StaticSource, piece: str, _reject: Callable[[Reject], None]) -> None:
        self._source = source
        self._piece = piece
        self.prefixes: Mapping[str, str] = {}

    def quads(self) -> Iterator[QuadTexts]:
        yield from self._source.quads(self._piece)


def scan(given: QuadInput, strict: bool, chunk_quads: int, number: int) -> Iterator[Staged]:
    """Make chunks of a piece of an input.

    Malformed input is a result, since repeating would not help; failing reads fail the task.
    """
    with tempfile.TemporaryFile() as aside:
        log = RejectLog(aside, strict)
        reader = given[number](log.reject)
        error = None
        try:
            rows = iter(reader.quads())
            count = 0
            while (quads := QuadArrays()).add(islice(rows, chunk_quads)):
                yield from _chunk(quads, number << 20 | count)
                count += 1
        except InputError as found:
            if isinstance(found.__cause__, OSError):
                raise
            error = str(found)
        yield from map(RejectLines, log.blocks())
        yield PieceSummary(log.count, dict(reader.prefixes), error)


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
        self._file.write(json.dumps(reject_._asdict(), ensure_ascii=False).encode() + b"\n")
        self.count += 1

    def blocks(self) -> Iterator[bytes]:
        """Yield the log in blocks of whole lines."""
        self._file.seek(0)
        while lines := b"".join(self._file.readlines(_REJECT_BYTES)):
            yield lines


def _chunk(quads: QuadArrays, key: int) -> Iterator[Staged]:
    pieces, columns = quads.ranked()
    terms = pa.concat_arrays(pieces).slice(1)
    if not columns[3].any():
        del columns[3]
    rows = np.stack(columns)
    step = max(1, len(terms) // _SAMPLES)
    # At random, because data have rhythms; and the same ones where the task is repeated.
    some = np.random.default_rng(key).integers(0, len(quads), min(_SAMPLES, len(quads)))
    predicates = np.unique(rows[1])
    summary = ChunkSummary(
        key,
        len(quads),
        terms.nbytes,
        tuple(terms[n].as_py() for n in range(0, len(terms), step)),
        rows[:, some],
        predicates if len(predicates) < _MANY_PREDICATES else None,
    )
    yield summary
    yield ChunkTerms(key, summary.needed(), packed_terms(terms))
    yield ChunkRows(key, rows)
