"""Streams in files: lines of elements, or records as columns of Arrow.

A file of Arrow (``.arrow``: IPC, a stream or a file) has a column ``timestamp`` (milliseconds since
1970, or instants with a time zone), a column ``subject`` (terms), and one for each predicate, which
is called by its IRI: terms (N-Triples), numbers, booleans or instants with a time zone. Columns may
be encoded by dictionaries or runs. Its rows are in the order of time; none is missing.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from annotations.terms import Term
from tpf_server.continuous.engine.elements.elements import (
    Element,
    canonical_term,
    canonical_triple,
    read_file,
)
from tpf_server.continuous.engine.errors import ElementError
from tpf_server.continuous.engine.records.record_columns import (
    decoded,
    milliseconds_of,
    plain_column,
)
from tpf_server.continuous.engine.records.record_values import term_text

_SUFFIX: Final = ".arrow"
_MAGIC: Final = b"ARROW1"
_TIMESTAMP, _SUBJECT = "timestamp", "subject"


class RecordColumns(NamedTuple):
    """Records as `RecordFeed.push_batch` takes them."""

    subjects: pa.Array
    values: pa.RecordBatch
    timestamps: pa.Array


def holds_records(path: Path) -> bool:
    """Whether a file of a stream is one of Arrow."""
    return path.suffix == _SUFFIX


def absolute_name(iri: str) -> Term:
    """The term of an IRI that is not relative."""
    return Term(f"<{iri}>")


@contextmanager
def opened_records(
    path: Path, name: Callable[[str], Term] = absolute_name
) -> Iterator[tuple[list[Term], Iterator[RecordColumns]]]:
    """The predicates of a file of records, and these, batch by batch.

    Args:
        path: of the file.
        name: makes a predicate of the name of a column.

    Raises:
        ElementError: it is no such file, a column is of a type or a name that has no terms, or
            whoever reads it finds one; says the file, and after the first batch which one, as
            records are counted in their batch.
        OSError: it cannot be read.
    """
    place = str(path)

    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[RecordColumns]:
        nonlocal place
        for number, batch in enumerate(batches, 1):
            place = f"{path}: batch {number}" if number > 1 else str(path)
            yield _columns(batch, columns)

    try:
        with pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b"") as file:
            whole = file.read(len(_MAGIC)) == _MAGIC
            file.seek(0)
            with pa.ipc.open_file(file) if whole else pa.ipc.open_stream(file) as reader:
                names = reader.schema.names
                columns = [each for each in names if each not in (_TIMESTAMP, _SUBJECT)]
                complete = len(set(names)) == len(names) == len(columns) + 2 > 2
                predicates = [_predicate(name(each)) for each in columns] if complete else []
                if not complete or len(set(predicates)) < len(predicates):
                    raise ElementError(
                        f"expected columns {_TIMESTAMP} and {_SUBJECT}, and others, all of "
                        "different names"
                    )
                batches = (
                    map(reader.get_batch, range(reader.num_record_batches)) if whole else reader
                )
                yield predicates, told(batches)
    except (ElementError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ElementError(f"{place}: {error}") from None


def _predicate(term: Term) -> Term:
    found = canonical_term(term)
    if not found.startswith("<") or found.startswith("<<"):
        raise ElementError(f"not a predicate: {term}")
    return found


def _columns(batch: pa.RecordBatch, names: list[str]) -> RecordColumns:
    # Otherwise what is no UTF-8 is found by whoever looks at it first, or by nobody.
    batch.validate(full=True)
    values = [plain_column(each, batch.column(each)) for each in names]
    return RecordColumns(
        plain_column("the subject", batch.column(_SUBJECT)),
        pa.RecordBatch.from_arrays(values, names=names),
        decoded(batch.column(_TIMESTAMP)),
    )


def read_stream(
    stream: str, path: Path, name: Callable[[str], Term] = absolute_name
) -> Iterator[tuple[int, str, Element | ElementError]]:
    """The elements of a file, each with its timestamp and its stream; see `read_file`.

    Args:
        stream: what the stream is called.
        path: of the file.
        name: see `opened_records`.

    Raises:
        ElementError: a file of Arrow that is none, or a timestamp that is none.
        OSError: the file cannot be read.
    """
    if not holds_records(path):
        yield from read_file(stream, path)
        return
    row = 0
    with opened_records(path, name) as (predicates, batches):
        for subjects, values, timestamps in batches:
            try:
                columns = [column.to_pylist() for column in (subjects, *values.columns)]
            except (ValueError, OverflowError) as error:
                raise ElementError(str(error)) from None
            times = milliseconds_of(timestamps).tolist()
            for at, subject, *cells in zip(times, *columns, strict=True):
                row += 1
                item = _element(at, subject, zip(predicates, cells, strict=True), row)
                if isinstance(item, ElementError):
                    item = ElementError(f"{path}: record {row}: {item}")
                yield at, stream, item


def _element(
    at: int, subject: object, cells: Iterable[tuple[str, object]], row: int
) -> Element | ElementError:
    triples: dict[tuple[Term, Term, Term], None] = {}
    try:
        for predicate, value in cells:
            triples[canonical_triple((subject, predicate, term_text(value)))] = None
    except (ElementError, ValueError, OverflowError) as error:
        return ElementError(str(error))
    return Element(at, tuple(triples), row)


def merged_streams(
    files: Iterable[tuple[str, Path]], name: Callable[[str], Term] = absolute_name
) -> Iterator[tuple[int, str, Element | ElementError]]:
    """The elements of several streams, each with its file, in the order of their timestamps.

    Args:
        files: the name of each stream, and its file.
        name: see `opened_records`.

    Raises:
        ElementError: see `read_stream`.
        OSError: a file cannot be read.
    """
    return heapq.merge(*(read_stream(*each, name) for each in files), key=lambda each: each[0])
