"""Many small rows as one binary value: Java moves few large values, whatever is in them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa


def packed_rows(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> bytes:
    """Rows of integers and texts as an Arrow stream; as many of the names as there are columns."""
    columns = list(zip(*rows, strict=True))
    batch = pa.record_batch([pa.array(column) for column in columns], list(names[: len(columns)]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked_rows(content: bytes) -> Iterator[tuple[Any, ...]]:
    """The rows."""
    with pa.ipc.open_stream(content) as reader:
        yield from rows_of(reader)


def rows_of(batches: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of Arrow batches, one by one."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)


_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
