"""Streams in files: lines of elements, or records as columns of Arrow.

A file of Arrow (``.arrow``: IPC, a stream or a file) has a column ``timestamp`` (milliseconds since
1970, or instants with a time zone), a column ``subject`` (terms), and one for each predicate, which
is called by its IRI: terms (N-Triples), numbers, booleans or instants with a time zone. Columns may
be encoded by dictionaries or runs. Its rows are in the order of time; none is missing.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from tpf_server.continuous.engine.records.decoding import check_encoding, decoded
from tpf_server.continuous.engine.records.record_columns import (
    is_text,
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
    with _opened(path, name) as (predicates, batches):
        yield predicates, (_columns(batch) for _, batch in batches)


@contextmanager
def _opened(
    path: Path, name: Callable[[str], Term]
) -> Iterator[tuple[list[Term], Iterator[tuple[str, pa.RecordBatch]]]]:
    """The same, as batches with what errors call them; the types of their columns are right."""
    place = str(path)

    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        nonlocal place
        for number, batch in enumerate(batches, 1):
            place = f"{path}: batch {number}" if number > 1 else str(path)
            for column in batch.columns:
                check_encoding(column)
            yield place, batch

    try:
        with pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b"") as file:
            whole = file.read(len(_MAGIC)) == _MAGIC
            file.seek(0)
            with pa.ipc.open_file(file) if whole else pa.ipc.open_stream(file) as reader:
                names = reader.schema.names
                columns = _values_of(names)
                complete = len(set(names)) == len(names) == len(columns) + 2 > 2
                predicates = [_predicate(name(each)) for each in columns] if complete else []
                if not complete or len(set(predicates)) < len(predicates):
                    raise ElementError(
                        f"expected columns {_TIMESTAMP} and {_SUBJECT}, and others, all of "
                        "different names"
                    )
                _check_types(reader.schema)
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


def _values_of(names: Iterable[str]) -> list[str]:
    """The columns of values."""
    return [each for each in names if each not in (_TIMESTAMP, _SUBJECT)]


def _check_types(schema: pa.Schema) -> None:
    """See that records could be right: what is of a wrong type is wrong in all of them."""
    none = _columns(pa.RecordBatch.from_pylist([], schema=schema))
    milliseconds_of(none.timestamps)
    if not is_text(none.subjects):
        raise ElementError(f"subjects cannot be a column of {none.subjects.type}")


def _columns(batch: pa.RecordBatch) -> RecordColumns:
    # A dictionary also has what no record of these has.
    plain = pa.RecordBatch.from_arrays(
        [decoded(column) for column in batch.columns], names=batch.schema.names
    )
    # Otherwise what is no UTF-8 is found by whoever looks at it first, or by nobody.
    plain.validate(full=True)
    names = _values_of(plain.schema.names)
    values = [plain_column(each, plain.column(each)) for each in names]
    return RecordColumns(
        plain_column("the subject", plain.column(_SUBJECT)),
        pa.RecordBatch.from_arrays(values, names=names),
        plain.column(_TIMESTAMP),
    )


def read_stream(
    stream: str, path: Path, name: Callable[[str], Term] = absolute_name
) -> Iterator[tuple[int, str, Element | ElementError]]:
    """The elements of a file, each with its timestamp and its stream; see `read_file`.

    An error stands in the place of a malformed record, too.

    Args:
        stream: what the stream is called.
        path: of the file.
        name: see `opened_records`.

    Raises:
        ElementError: a file of Arrow that is none or is damaged, or a column that is of another
            type.
        OSError: the file cannot be read.
    """
    if not holds_records(path):
        yield from read_file(stream, path)
        return
    before = last = 0
    with _opened(path, name) as (predicates, batches):
        for place, batch in batches:
            for row, item in enumerate(_elements(batch, predicates, before), 1):
                if isinstance(item, ElementError):
                    yield last, stream, ElementError(f"{place}: record {row}: {item}")
                else:
                    last = item.at
                    yield last, stream, item
            before += batch.num_rows


def _elements(
    batch: pa.RecordBatch, predicates: Sequence[Term], before: int
) -> Iterator[Element | ElementError]:
    """The elements of a batch, or what is wrong with them, behind so many other records."""
    try:
        subjects, values, timestamps = _columns(batch)
        columns = [column.to_pylist() for column in (subjects, *values.columns)]
        times = milliseconds_of(timestamps).tolist()
    except (ElementError, ValueError, IndexError, OverflowError) as error:
        if not batch.num_rows:
            raise
        if batch.num_rows == 1:
            # Which record of the file it is, its reader knows.
            yield ElementError(str(error).removeprefix("record 1: "))
            return
        half = batch.num_rows // 2
        yield from _elements(batch.slice(0, half), predicates, before)
        yield from _elements(batch.slice(half), predicates, before + half)
        return
    for row, (at, subject, *cells) in enumerate(zip(times, *columns, strict=True), before + 1):
        yield _element(at, subject, zip(predicates, cells, strict=True), row)


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
