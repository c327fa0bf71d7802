"""Encode whole columns of Arrow as integers of terms, without a Python value of each.

Numbers and instants that fit into their integers (see `dictionary`) are shifted all at once; each
different string is looked up once. Other columns go value by value.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tpf_client.dataflow.changes import TermId
from tpf_client.sparql.expressions.inlined import (
    DATE_TIME,
    DECIMAL,
    INTEGER,
    MOST_INTEGER,
    MOST_SCALE,
    SCALE_BITS,
    TAG_BITS,
)
from tpf_server.continuous.runtime.elements.elements import EARLIEST, LATEST
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.runtime.plans.column_expressions import Column

_SHOWN: Final = 200
"""Characters that errors show of the name or the type of a column."""
_SECOND: Final = 1_000_000
# How many of a unit of time are a second.
_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FIRST: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * _SECOND
_LAST: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * _SECOND
# The digits of a decimal of so many bits. Beyond so many places Python has no value of it.
_DIGITS: Final = {32: 9, 64: 18, 128: 38, 256: 76}
# What is left of 64 bits for an unscaled decimal.
_MOST_UNSCALED: Final = 1 << 62 - TAG_BITS - SCALE_BITS


def encoded_column(
    name: str,
    column: pa.Array,
    value: Callable[[Any], TermId],
    term: Callable[[str], TermId],
) -> list[TermId]:
    """Return the integers of a column; see `column_cells`."""
    cells = column_cells(name, column, value, term, lambda _: None, lambda _: None)
    return cells if isinstance(cells, list) else cells.tolist()


def column_cells(
    name: str,
    column: pa.Array,
    value: Callable[[Any], TermId],
    term: Callable[[str], TermId],
    known: Callable[[str], TermId | None],
    hold: Callable[[list[TermId]], None],
) -> Column | list[TermId]:
    """Return the integers of a column, as an array where they were made all at once.

    Args:
        name: of the column, in errors.
        column: strings, booleans, integers, decimals, floats, or instants with a time zone.
        value: the integer of a Python value.
        term: the integer of a term.
        known: the integer of a term that needs no check, or ``None``.
        hold: is given the integers of terms, which nothing else holds in an array.
    """
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise ElementError(f"record {row + 1}: no value for {in_short(name)}")
    kind = column.type
    if is_text(column):
        return _of_strings(name, column, term, known, hold)
    fast: Column | None = None
    if not _has_terms(kind):
        raise _without_terms(name, kind)
    if pa.types.is_integer(kind):
        fast = _of_integers(column)
    elif pa.types.is_decimal128(kind):
        fast = _of_decimals(column)
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        fast = _of_instants(column)
    if fast is not None:
        return fast
    try:
        return [value(each) for each in column.to_pylist()]
    except (ValueError, OverflowError) as error:
        raise ElementError(f"{in_short(name)}: {error}") from None


def _has_terms(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_integer(kind)
        or (types.is_decimal(kind) and abs(kind.scale) <= _DIGITS[kind.bit_width])
        or types.is_boolean(kind)
        or types.is_floating(kind)
        or (types.is_timestamp(kind) and kind.tz is not None)
    )


def check_type(name: str, kind: pa.DataType) -> None:
    """Check that a column of this type, not encoded, may have terms or timestamps."""
    types = pa.types
    others = types.is_null(kind) or types.is_string_view(kind) or types.is_timestamp(kind)
    if not (_has_terms(kind) or others):
        raise _without_terms(name, kind)


def in_short(described: object) -> str:
    """Shorten a name, a type or an error for a message."""
    text = str(described)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _without_terms(name: str, kind: pa.DataType) -> ElementError:
    hint = ": instants need a time zone" if pa.types.is_timestamp(kind) else ""
    return ElementError(f"{in_short(name)}: a column of {in_short(kind)} has no terms{hint}")


def plain_column(name: str, column: pa.Array) -> pa.Array:
    """Return the same values in an encoding that all readers take; instants have microseconds."""
    kind = column.type
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    # A column of nothing but missing values has no type.
    if not (_has_terms(kind) or pa.types.is_null(kind)):
        raise _without_terms(name, kind)
    if not pa.types.is_timestamp(kind):
        return column
    try:
        return column.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid as error:
        raise ElementError(
            f"{in_short(name)}: an instant that is none of microseconds: {error}"
        ) from None


def is_text(column: pa.Array) -> bool:
    """True if a column is of terms."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def whole_numbers(column: pa.Array) -> Column:
    """Read a column without missing values as 64-bit integers."""
    # `to_numpy` would bring pandas, wherever that is installed.
    numbers: Column = np.asarray(np.from_dlpack(column.cast(pa.int64())), np.int64)
    return numbers


def milliseconds_of(column: pa.Array) -> Column:
    """Return the timestamps of records, in milliseconds since 1970, rounded down."""
    if column.null_count:
        raise ElementError(f"record {column.is_null().index(True).as_py() + 1}: no timestamp")
    kind = column.type
    unit = _UNITS["ms"]
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        unit = _UNITS[kind.unit]
    elif not pa.types.is_integer(kind):
        raise ElementError(f"timestamps cannot be a column of {in_short(kind)}")
    try:
        times = whole_numbers(column)
    except pa.ArrowInvalid as error:
        raise ElementError(f"not a timestamp: {error}") from None
    # Before they are multiplied: what is outside might come back inside.
    first, last = EARLIEST * unit // 1_000, ((LATEST + 1) * unit - 1) // 1_000
    outside = (times < first) | (times > last)
    if outside.any():
        row = int(outside.argmax())
        raise ElementError(f"record {row + 1}: not a timestamp: {times[row]}")
    return times * 1_000 if unit == 1 else times // (unit // 1_000)


def _of_strings(
    name: str,
    column: pa.Array,
    term: Callable[[str], TermId],
    known: Callable[[str], TermId | None],
    hold: Callable[[list[TermId]], None],
) -> Column | list[TermId]:
    different = column.dictionary_encode()
    texts = different.dictionary.to_pylist()
    terms: list[Any] = list(map(known, texts))
    for number in [number for number, each in enumerate(terms) if each is None]:
        try:
            terms[number] = term(texts[number])
        except ElementError as error:
            row = different.indices.index(number).as_py()
            raise ElementError(f"record {row + 1}: {in_short(name)}: {error}") from None
    indexes = whole_numbers(different.indices)
    try:
        cells: Column = np.array(terms, np.int64)[indexes]
    except OverflowError:
        return [terms[position] for position in indexes.tolist()]
    hold(terms)
    return cells


def _of_integers(column: pa.Array) -> Column | None:
    if pa.types.is_uint64(column.type):
        return None
    numbers = whole_numbers(column)
    if not _inside(numbers, -MOST_INTEGER, MOST_INTEGER):
        return None
    cells: Column = numbers << TAG_BITS | INTEGER
    return cells


def _of_decimals(column: pa.Array) -> Column | None:
    scale = column.type.scale
    if not 0 <= scale <= MOST_SCALE:
        return None
    # A decimal is an integer of 128 bits, the lower half first.
    count = len(column)
    if not count:
        return np.zeros(0, np.int64)
    # There may be more behind them.
    halves = np.frombuffer(column.buffers()[1], np.int64, 2 * count, 16 * column.offset)
    low, high = halves.reshape(-1, 2).T
    if not ((low >> 63) == high).all() or not _inside(low, -_MOST_UNSCALED, _MOST_UNSCALED):
        return None
    tag = scale << TAG_BITS | DECIMAL
    cells: Column = low << SCALE_BITS + TAG_BITS | tag
    return cells


def _of_instants(column: pa.Array) -> Column | None:
    try:
        numbers = whole_numbers(column.cast(pa.timestamp("us", column.type.tz)))
    except pa.ArrowInvalid as error:
        raise ElementError(f"an instant that is none of microseconds: {error}") from None
    if (numbers % _SECOND).any() or not _inside(numbers, _FIRST, _LAST):
        return None
    cells: Column = numbers << TAG_BITS | DATE_TIME
    return cells


def _inside(numbers: Column, low: int, high: int) -> bool:
    return not len(numbers) or bool(numbers.min() > low and numbers.max() < high)
