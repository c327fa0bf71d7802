"""Records of a body, a stream of Arrow, whose size is counted before anything is unfolded.

Dictionaries, runs, overlapping columns and values of less than a byte can make a short body long.
So compressed buffers are refused, and the size of all records, written out, is counted first.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from annotations.terms import Term
from tpf_server.continuous.runtime.elements.elements import Element
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.runtime.plans.column_expressions import Column
from tpf_server.continuous.runtime.records.record_columns import in_short, whole_numbers
from tpf_server.continuous.runtime.records.record_reading import (
    MAGIC,
    RecordColumns,
    columns_of_batch,
    elements_of_batch,
    in_a_line,
    opened_batches,
)
from tpf_server.errors import BodyTooLargeError

_PLACE: Final = "the Arrow stream"
_LEAST: Final = 8
"""Bytes that a value counts at least, and a text beside its own: what is made of it takes more."""
_COMPRESSION_OF_OLD: Final = b"ARROW:experimental_compression"
"""The metadata key of compression in Arrow 0.17."""
# Of flatbuffers, by the schema of messages: unions that say what a header is, and slots of fields.
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_HEADER_TYPE, _HEADER, _RECORDS_OF_DICTIONARY, _COMPRESSION = 6, 8, 6, 10


class RecordBody:
    """Records of a body, and its bytes."""

    def __init__(
        self, predicates: Sequence[Term], batches: Sequence[pa.RecordBatch], written: bytes
    ) -> None:
        self.predicates = tuple(predicates)
        self.written = written
        self.count = sum(batch.num_rows for batch in batches)
        self._batches = batches

    @cached_property
    def columns(self) -> RecordColumns | None:
        """Return all records as columns; ``None`` where one is malformed."""
        try:
            batches = [columns_of_batch(batch) for batch in self._batches if batch.num_rows]
            if len(batches) == 1:
                return batches[0]
            if not batches:
                return None
            values = [
                pa.concat_arrays(parts)
                for parts in zip(*[each.values.columns for each in batches], strict=True)
            ]
            return RecordColumns(
                pa.concat_arrays([each.subjects for each in batches]),
                pa.RecordBatch.from_arrays(values, names=batches[0].values.schema.names),
                pa.concat_arrays([each.timestamps for each in batches]),
            )
        except (ElementError, ValueError, IndexError, OverflowError):
            return None

    def elements(self) -> Iterator[Element | ElementError]:
        """Return the records one by one; a malformed one is an error in its place."""
        before = 0
        for batch in self._batches:
            for row, item in enumerate(
                elements_of_batch(batch, self.predicates, before), before + 1
            ):
                if isinstance(item, ElementError):
                    yield ElementError(in_a_line(item), row, "record")
                else:
                    yield item
            before += batch.num_rows


def read_records(body: bytes, limit: int, name: Callable[[str], Term]) -> RecordBody:
    """Return the records of a body, still folded.

    Raises:
        ElementError: it is damaged, has compressed buffers, or columns that records have not.
        BodyTooLargeError: the records are longer than that.
    """
    if body.startswith(MAGIC):
        raise ElementError(f"{_PLACE}: it is an Arrow file; write a stream")
    try:
        _check_messages(body)
        batches = []
        size = 0
        with opened_batches(pa.BufferReader(body), _PLACE, name) as (predicates, numbered):
            for _, batch in numbered:
                # What is found here is where columns end; what they hold is looked at later.
                batch.validate()
                size += sum(map(_unfolded, batch.schema.names, batch.columns))
                if size > limit:
                    raise BodyTooLargeError(
                        f"the records of a body have at most {limit} bytes, written out; these "
                        f"have {size} and more"
                    )
                batches.append(batch)
    except (OSError, pa.ArrowException) as error:
        raise ElementError(f"{_PLACE}: {in_a_line(error)}") from None
    return RecordBody(predicates, batches, body)


def _check_messages(body: bytes) -> None:
    source = pa.BufferReader(body)
    for message in pa.ipc.MessageReader.open_stream(source):
        if _compressed(message.metadata.to_pybytes()):
            raise ElementError(f"{_PLACE}: its buffers are compressed: send them as they are")
    if source.tell() < len(body):
        raise ElementError(f"{_PLACE}: something follows its end")


def _compressed(message: bytes) -> bool:
    if _COMPRESSION_OF_OLD in message:
        return True
    try:
        root = _offset(message, 0)
        position = _field(message, root, _HEADER_TYPE)
        kind = message[position] if position else 0
        position = _field(message, root, _HEADER)
        header = _offset(message, position) if position else 0
        if kind == _DICTIONARY_BATCH:
            position = _field(message, header, _RECORDS_OF_DICTIONARY)
            header = _offset(message, position) if position else 0
        elif kind != _RECORD_BATCH:
            return False
        return bool(header and _field(message, header, _COMPRESSION))
    except (struct.error, IndexError):
        raise ElementError(f"{_PLACE}: damaged metadata of a message") from None


def _offset(buffer: bytes, position: int) -> int:
    (offset,) = struct.unpack_from("<I", buffer, position)
    return position + int(offset)


def _field(buffer: bytes, table: int, slot: int) -> int:
    """Return the position of a field of a table in a flatbuffer, or 0."""
    (back,) = struct.unpack_from("<i", buffer, table)
    positions = table - back
    if positions < 0:
        raise IndexError(positions)
    (size,) = struct.unpack_from("<H", buffer, positions)
    if slot >= size:
        return 0
    (offset,) = struct.unpack_from("<H", buffer, positions + slot)
    return table + offset if offset else 0


def _unfolded(name: str, column: pa.Array) -> int:
    """Return the bytes of a column, with its intact dictionary, written out."""
    column.validate()
    count, size = len(column), 0
    times = None  # how often each value is in the column
    if pa.types.is_run_end_encoded(column.type):
        ends = whole_numbers(column.run_ends)
        times = np.diff(np.clip(ends - column.offset, 0, count), prepend=0)
        column = column.values
    elif pa.types.is_dictionary(column.type):
        positions = whole_numbers(column.indices.drop_null())
        column = column.dictionary
        # It is looked at for each batch that has it.
        size = _written_out(column)
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(column):
            raise ElementError(f"{in_short(name)}: a value that is not in its dictionary")
        times = np.bincount(positions, minlength=len(column))
    if pa.types.is_run_end_encoded(column.type) or pa.types.is_dictionary(column.type):
        raise ElementError(f"{in_short(name)}: it is encoded twice")
    return size + _written_out(column, count, times)


def _written_out(column: pa.Array, count: int | None = None, times: Column | None = None) -> int:
    """Return the bytes of a column without encoding, or of its first values by times."""
    count = len(column) if count is None else count
    lengths = _lengths(column)
    if lengths is None:
        width = 0 if pa.types.is_null(column.type) else column.type.bit_width // 8
        return count * max(_LEAST, int(width))
    # The numbers may be larger than 64 bits.
    total = lengths.sum() if times is None else lengths.astype(float) @ times
    return count * _LEAST + int(total)


def _lengths(column: pa.Array) -> Column | None:
    first, count = column.offset, len(column)
    if pa.types.is_string_view(column.type):
        # The first of four numbers of each view.
        lengths = _numbers(column, np.int32, 4 * count, 4 * first)[::4]
        lengths = lengths * whole_numbers(column.is_valid())
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        kind = np.int32 if pa.types.is_string(column.type) else np.int64
        ends = _numbers(column, kind, count + 1, first)
        lengths = ends[1:] - ends[:-1]
    else:
        return None
    # One that ends before it begins takes nothing away from the others.
    return np.asarray(np.maximum(lengths, 0), np.int64)


def _numbers(column: pa.Array, kind: type[np.signedinteger[Any]], count: int, first: int) -> Column:
    if not len(column):
        return np.zeros(0, np.int64)
    size = np.dtype(kind).itemsize
    values = np.frombuffer(column.buffers()[1], kind, count, first * size)
    return np.asarray(values, np.int64)
