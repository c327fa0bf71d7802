"""Records as columns of Arrow: what a stream or a file of IPC has, as columns and as elements.

It has a column ``timestamp`` (milliseconds since 1970, or instants with a time zone), a column
``subject`` (terms), and one for each predicate, which is called by its IRI: terms (N-Triples),
numbers, booleans or instants with a time zone. Columns may be encoded by dictionaries or runs. Its
rows are in the order of time; none is missing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa

from annotations.terms import Term
from tpf_server.continuous.engine.elements.elements import (
    Element,
    canonical_term,
    canonical_triple,
)
from tpf_server.continuous.engine.errors import ElementError
from tpf_server.continuous.engine.records.decoding import (
    check_encoding,
    decodable,
    decoded,
    value_type,
)
from tpf_server.continuous.engine.records.record_columns import (
    check_type,
    in_short,
    is_text,
    milliseconds_of,
    plain_column,
)
from tpf_server.continuous.engine.records.record_values import term_text

MAGIC: Final = b"ARROW1"
"""What a file begins with, and a stream does not."""
_TIMESTAMP, _SUBJECT = "timestamp", "subject"


class RecordColumns(NamedTuple):
    """Records as `RecordFeed.push_batch` takes them."""

    subjects: pa.Array
    values: pa.RecordBatch
    timestamps: pa.Array


@contextmanager
def opened_batches(
    source: pa.NativeFile, place: str, name: Callable[[str], Term]
) -> Iterator[tuple[list[Term], Iterator[tuple[str, pa.RecordBatch]]]]:
    """The predicates of records, and these, batch by batch, with what errors call each batch.

    The types of their columns are right, and what encodes them is not damaged.

    Args:
        source: a stream or a file of IPC.
        place: what errors call it.
        name: makes a predicate of the name of a column.

    Raises:
        ElementError: it is none of these, a column is of a type or a name that has no terms, or
            whoever reads it finds one.
        OSError: it cannot be read, or ends too early.
    """
    said = place

    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        nonlocal said
        for number, batch in enumerate(batches, 1):
            said = f"{place}: batch {number}" if number > 1 else place
            for column in batch.columns:
                check_encoding(column)
            yield said, batch

    try:
        whole = source.read(len(MAGIC)) == MAGIC
        source.seek(0)
        with pa.ipc.open_file(source) if whole else pa.ipc.open_stream(source) as reader:
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
            batches = map(reader.get_batch, range(reader.num_record_batches)) if whole else reader
            yield predicates, told(batches)
    except (ElementError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ElementError(f"{said}: {in_a_line(error)}") from None


def in_a_line(error: Exception) -> str:
    """What an error says, which may have names of columns in it, as one line."""
    shown = (each if each.isprintable() else f"\\u{ord(each):04x}" for each in str(error))
    return "".join(shown)


def _predicate(term: Term) -> Term:
    try:
        found = canonical_term(term)
    except ElementError as error:
        raise ElementError(in_short(error)) from None
    if not found.startswith("<") or found.startswith("<<"):
        raise ElementError(f"not a predicate: {in_short(term)}")
    return found


def _values_of(names: Iterable[str]) -> list[str]:
    """The columns of values."""
    return [each for each in names if each not in (_TIMESTAMP, _SUBJECT)]


def _check_types(schema: pa.Schema) -> None:
    """See that records could be right: what is of a wrong type is wrong in all of them."""
    for name, kind in zip(schema.names, schema.types, strict=True):
        # Of other types, and of what is damaged, Arrow cannot even make an empty column.
        check_type(name, value_type(kind))
        try:
            decoded(pa.nulls(0, kind))
        except pa.ArrowNotImplementedError:
            raise ElementError(
                f"{in_short(name)}: a column of {in_short(kind)} cannot be decoded"
            ) from None
    none = columns_of_batch(
        pa.RecordBatch.from_arrays([pa.nulls(0, each) for each in schema.types], names=schema.names)
    )
    milliseconds_of(none.timestamps)
    if not is_text(none.subjects):
        raise ElementError(f"subjects cannot be a column of {in_short(none.subjects.type)}")


def columns_of_batch(batch: pa.RecordBatch) -> RecordColumns:
    """The columns of a batch, encoded neither by a dictionary nor by runs.

    Raises:
        ElementError, ValueError, IndexError, OverflowError: a record is malformed.
    """
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


def elements_of_batch(
    batch: pa.RecordBatch, predicates: Sequence[Term], before: int
) -> Iterator[Element | ElementError]:
    """The elements of a batch, or what is wrong with them, behind so many other records."""
    # Once, and not for each part of the batch.
    columns = [decodable(column) for column in batch.columns]
    whole = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    return _elements_of(whole, predicates, before)


def _elements_of(
    batch: pa.RecordBatch, predicates: Sequence[Term], before: int
) -> Iterator[Element | ElementError]:
    try:
        subjects, values, timestamps = columns_of_batch(batch)
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
        yield from _elements_of(batch.slice(0, half), predicates, before)
        yield from _elements_of(batch.slice(half), predicates, before + half)
        return
    for row, (at, subject, *cells) in enumerate(zip(times, *columns, strict=True), before + 1):
        yield _element(at, subject, zip(predicates, cells, strict=True), row)


def _element(
    at: int, subject: object, cells: Iterable[tuple[str, object]], row: int
) -> Element | ElementError:
    triples: dict[tuple[Term, Term, Term], None] = {}
    try:
        for predicate, value in cells:
            triples[canonical_triple([subject, predicate, term_text(value)])] = None
    except (ElementError, ValueError, OverflowError) as error:
        return ElementError(str(error))
    return Element(at, tuple(triples), row)
