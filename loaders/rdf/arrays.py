"""Arrays of terms as bytes that go from task to task: Arrow's format for streams."""

import pyarrow as pa


def packed_terms(terms: pa.Array) -> bytes:
    """The bytes of an array of texts; of a slice, those of the slice."""
    batch = pa.record_batch({"term": terms})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked_terms(packed: bytes) -> pa.Array:
    """The array of these bytes, where they lie."""
    return pa.ipc.open_stream(packed).read_next_batch().column(0)
