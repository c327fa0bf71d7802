"""Read records as columns of Arrow, from a stream or a file of IPC.

Columns are ``timestamp`` (milliseconds since 1970, or instants with a time zone), ``subject``
(terms), and one for each predicate, named by its IRI: terms (N-Triples), numbers, booleans or
instants, maybe encoded by dictionaries or runs. Rows are in the order of time; none is missing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from numbers import Integral
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from annotations.terms import Term
from tpf_client.dataflow.changes import TermId
from tpf_client.sparql.expressions.inlined import (
    BOOLEAN,
    DECIMAL,
    SCALE_BITS,
    TAG_BITS,
    inline_instant,
    inline_integer,
)
from tpf_client.sparql.expressions.values import term_of
from tpf_server.continuous.runtime.elements.elements import (
    Element,
    canonical_term,
    canonical_triple,
    date_time_term,
    milliseconds,
)
from tpf_server.continuous.runtime.errors import ElementError, TimestampError
from tpf_server.continuous.runtime.records.record_columns import (
    check_type,
    in_short,
    is_text,
    milliseconds_of,
    plain_column,
)

# The integers of Python values.

_XSD = "http://www.w3.org/2001/XMLSchema#"
RecordValue = str | bool | int | float | Decimal | datetime
"""A value of a record; a string is a term (N-Triples)."""


def _decimal(value: Decimal) -> TermId | None:
    text = str(value)
    whole, _, fraction = text.partition(".")
    if len(text) > 17 or "E" in text or not (text.isascii() and whole.lstrip("-").isdigit()):
        return None
    unscaled = int(whole + fraction)
    if not unscaled and text[0] == "-":
        return None
    return ((unscaled << SCALE_BITS | len(fraction)) << TAG_BITS) | DECIMAL


def _boolean(value: bool) -> TermId:
    return value << TAG_BITS | BOOLEAN


def _instant(value: datetime) -> TermId | None:
    return inline_instant(_checked(value))


def _checked(value: datetime) -> datetime:
    try:
        milliseconds(value)
    except TimestampError as error:
        raise ElementError(str(error)) from None
    return value


def term_text(value: object) -> str:
    """Return the term of a Python value; a string is one already.

    An `ElementError` is ``None``, no finite decimal, no instant, or of another type.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return date_time_term(_checked(value))
    if isinstance(value, Decimal) and value.is_finite():
        return Term(f'"{value:f}"^^<{_XSD}decimal>')
    if isinstance(value, (bool, np.bool_)):
        return term_of(bool(value))
    if isinstance(value, (float, np.floating)):
        return term_of(float(value))
    if isinstance(value, Integral):
        return Term(f'"{int(value)}"^^<{_XSD}integer>')
    if value is None:
        raise ElementError("no value")
    raise ElementError(f"not a value of a record: {value!r}")


def inlined_value(value: RecordValue) -> TermId | None:
    """Return the integer of a Python value; ``None`` where it must go through the table."""
    encoder = _ENCODERS.get(type(value))
    return None if encoder is None else encoder(value)


_ENCODERS: dict[type, Callable[[Any], TermId | None]] = {
    bool: _boolean,
    int: inline_integer,
    Decimal: _decimal,
    datetime: _instant,
}


# Columns that are encoded by dictionaries or runs, as plain ones.
#
# A dictionary is shared by all records of a file: what is wrong with a text in it is wrong with
# the records that have the text, and only damage is wrong with all.

# Of the types of texts, those of which nothing is to be UTF-8.
_BYTES: Final = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


def _check_encoding(column: pa.Array) -> None:
    """Check that the dictionary or runs of a column are intact.

    Texts are checked when they are read.
    """
    values = column
    while True:
        if pa.types.is_dictionary(values.type):
            values.validate()
            values = values.dictionary
        elif pa.types.is_run_end_encoded(values.type):
            values.validate()
            # This sees to the order of ends, whatever the values are.
            pa.RunEndEncodedArray.from_arrays(values.run_ends, values.run_ends)
            values = values.values
        else:
            break
    if values is not column and (kind := _BYTES.get(values.type)) is not None:
        values.cast(kind).validate(full=True)


def _value_type(kind: pa.DataType) -> pa.DataType:
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def _decodable(column: pa.Array) -> pa.Array:
    """Return the same column without a dictionary of views, which `take` does not support."""
    if not (
        pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.dictionary.type)
    ):
        return column
    return pa.DictionaryArray.from_arrays(column.indices, _texts(column.dictionary), safe=False)


def _texts(views: pa.Array) -> pa.Array:
    return views.cast(pa.large_string())


def decoded(column: pa.Array) -> pa.Array:
    """Return the same values, encoded neither by a dictionary nor by runs."""
    while True:
        if pa.types.is_dictionary(column.type):
            column = _decodable(column).dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        else:
            return column


MAGIC: Final = b"ARROW1"
"""The first bytes of an Arrow file; a stream lacks them."""
_TIMESTAMP, _SUBJECT = "timestamp", "subject"


class RecordColumns(NamedTuple):
    """Records for `RecordFeed.push_batch`."""

    subjects: pa.Array
    values: pa.RecordBatch
    timestamps: pa.Array


@contextmanager
def opened_batches(
    source: pa.NativeFile, location: str, name: Callable[[str], Term]
) -> Iterator[tuple[list[Term], Iterator[tuple[str, pa.RecordBatch]]]]:
    """Return the predicates of records, and these in batches with their names in errors.

    Column types and encodings are checked (`ElementError`).
    """
    name_in_errors = location

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        nonlocal name_in_errors
        for number, batch in enumerate(batches, 1):
            name_in_errors = f"{location}: batch {number}" if number > 1 else location
            for column in batch.columns:
                _check_encoding(column)
            yield name_in_errors, batch

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
            yield predicates, named(batches)
    except (ElementError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ElementError(f"{name_in_errors}: {in_a_line(error)}") from None


def in_a_line(error: Exception) -> str:
    """Return the message of an error, which may name columns, as one line."""
    shown = (each if each.isprintable() else f"\\u{ord(each):04x}" for each in str(error))
    return "".join(shown)


def _predicate(term: Term) -> Term:
    try:
        predicate = canonical_term(term)
    except ElementError as error:
        raise ElementError(in_short(error)) from None
    if not predicate.startswith("<") or predicate.startswith("<<"):
        raise ElementError(f"not a predicate: {in_short(term)}")
    return predicate


def _values_of(names: Iterable[str]) -> list[str]:
    return [each for each in names if each not in (_TIMESTAMP, _SUBJECT)]


def _check_types(schema: pa.Schema) -> None:
    for name, kind in zip(schema.names, schema.types, strict=True):
        # Of other types, and of what is damaged, Arrow cannot even make an empty column.
        check_type(name, _value_type(kind))
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
    """Return the decoded columns of a batch.

    A malformed record raises `ElementError`, `ValueError`, `IndexError` or `OverflowError`.
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
    """Return the elements of a batch, or their errors, behind so many other records."""
    # Once, and not for each part of the batch.
    columns = [_decodable(column) for column in batch.columns]
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
