"""The dictionary of a static store: terms as N-Triples text, sorted by their UTF-8 bytes.

One ``large_string`` column in an Arrow file, searched in place; the fence repeats every n-th term
in memory.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from annotations.terms import Term
from tpf_server.errors import CorruptStoreError, StoreError
from tpf_server.store.static.columns import Ids

_SCHEMA = pa.schema([pa.field("term", pa.large_string(), nullable=False)])
_ID_TYPE = pa.uint32()
_STRIDE = 64
_FENCE_TERMS = 1 << 15
_MEMO_TERMS = 4096
_MEMO_LENGTH = 1024
_FEW = 48
"""So many terms are read one by one in less time than Arrow takes for a call; in a quarter of it
where requests are rare, so that the processor's caches hold nothing of Arrow."""


class Dictionary:
    """Terms and ids of a store. Thread-safe."""

    def __init__(self, path: Path, fence: Path, length: int) -> None:
        self._terms = _map_terms(path, length)
        self._stride = _stride(length)
        fence_terms = _map_terms(fence, -(-length // self._stride))
        self._fence: list[bytes] = fence_terms.cast(pa.large_binary()).to_pylist()
        _, offsets, text = self._terms.buffers()
        self._offsets = memoryview(offsets).cast("q")
        self._text = memoryview(text if text is not None else b"")
        self._bytes_of = _reader(self._offsets, self._text)
        self._positions = range(length)
        self._memo: dict[str, int | None] = {}

    def id_of(self, term: str) -> int | None:
        memo = self._memo
        try:
            return memo[term]
        except KeyError:
            result = self._search(term.encode("utf-8", "surrogatepass"))
        if len(term) <= _MEMO_LENGTH:
            if len(memo) >= _MEMO_TERMS:
                memo.clear()
            memo[term] = result
        return result

    def has_prefix(self, prefix: str) -> bool:
        """True where a term begins with this text."""
        key = prefix.encode()
        result = self._first_from(key)
        return result < len(self._positions) and self._bytes_of(result).startswith(key)

    def _search(self, key: bytes) -> int | None:
        result = self._first_from(key)
        return result if result < len(self._positions) and self._bytes_of(result) == key else None

    def _first_from(self, key: bytes) -> int:
        # The fence begins with the empty text, so that no key lies before it.
        low = (bisect_right(self._fence, key) - 1) * self._stride
        high = min(low + self._stride, len(self._positions))
        return bisect_left(self._positions, key, low, high, key=self._bytes_of)

    def terms(self, ids: bytes) -> list[Term]:
        count = len(ids) // 4
        if count <= _FEW:
            offsets, text = self._offsets, self._text
            each = memoryview(ids).cast("I").tolist()
            few = [str(text[offsets[k] : offsets[k + 1]], "utf-8") for k in each]
            return cast("list[Term]", few)
        result: list[Term] = self._terms.take(id_array(ids)).to_pylist()
        return result


def _reader(offsets: memoryview, text: memoryview) -> Callable[[int], bytes]:
    # A search calls it a dozen times: attributes would take as long as the bytes.
    return lambda position: bytes(text[offsets[position] : offsets[position + 1]])


def _stride(length: int) -> int:
    """Return the distance of the terms of the fence: a power of two."""
    stride = _STRIDE
    while length > stride * _FENCE_TERMS:
        stride *= 2
    return stride


def _map_terms(path: Path, length: int) -> pa.LargeStringArray:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if reader.num_record_batches != 1 or not reader.schema.equals(_SCHEMA):
            raise CorruptStoreError(f"{path} holds no terms")
        terms = reader.get_batch(0).column(0)
    except (OSError, pa.ArrowInvalid) as error:
        raise CorruptStoreError(f"{path} is corrupt: {error}") from None
    if len(terms) != length:
        raise CorruptStoreError(f"{path} has {len(terms)} terms instead of {length}")
    return terms


# Of buffers, because `pa.array` imports pandas, where it is: half a second and 60 MB.


def text_array(texts: Collection[str]) -> pa.LargeStringArray:
    """Return texts as an array of Arrow."""
    text = "".join(texts)
    lengths = map(len, texts if text.isascii() else map(str.encode, texts))
    ends = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(lengths, np.int64, len(texts)), out=ends[1:])
    return pa.LargeStringArray.from_buffers(
        len(texts), pa.py_buffer(ends), pa.py_buffer(text.encode())
    )


def id_array(ids: bytes | Ids) -> pa.Array:
    """Return ids as an array of Arrow, which shares their memory."""
    content = pa.py_buffer(ids)
    return pa.Array.from_buffers(_ID_TYPE, content.size // 4, [None, content])


def write_dictionary(path: Path, fence: Path, terms: Iterable[pa.Array]) -> int:
    """Write the dictionary from sorted pieces, one in memory at a time; count the terms."""
    text_path = path.with_suffix(".text")
    offsets_path = path.with_suffix(".offsets")
    try:
        count = _write_pieces(text_path, offsets_path, terms)
        # Arrow wants both buffers at once: they are mapped, so nothing is held in memory.
        with pa.memory_map(str(offsets_path)) as offsets, pa.memory_map(str(text_path)) as text:
            column = pa.LargeStringArray.from_buffers(
                count, offsets.read_buffer(), text.read_buffer()
            )
            _write_terms(path, column)
            every = np.arange(0, count, _stride(count), dtype=np.uint32)
            _write_terms(fence, column.take(id_array(every)))
    finally:
        text_path.unlink(missing_ok=True)
        offsets_path.unlink(missing_ok=True)
    return count


def _write_terms(path: Path, column: pa.LargeStringArray) -> None:
    with path.open("wb") as file:
        with pa.ipc.new_file(file, _SCHEMA) as writer:
            writer.write_batch(pa.record_batch([column], schema=_SCHEMA))
        file.flush()
        os.fsync(file.fileno())


def _write_pieces(text_path: Path, offsets_path: Path, terms: Iterable[pa.Array]) -> int:
    count = 0
    end = 0
    last: pa.Scalar | None = None
    with text_path.open("wb") as text_file, offsets_path.open("wb") as offsets_file:
        offsets_file.write(np.zeros(1, dtype="<i8").data)
        for given in terms:
            piece = given.cast(pa.large_string())
            if not len(piece):
                continue
            _check_ascending(piece, last)
            _, offsets_buffer, text = piece.buffers()
            offsets = np.frombuffer(offsets_buffer, dtype="<i8")
            offsets = offsets[piece.offset : piece.offset + len(piece) + 1]
            if text is not None:
                text_file.write(memoryview(text)[offsets[0] : offsets[-1]])
            offsets_file.write(np.ascontiguousarray(offsets[1:] - offsets[0] + end).data)
            end += int(offsets[-1] - offsets[0])
            count += len(piece)
            last = piece[-1]
        if not end:
            # Nothing can be mapped from an empty file; a byte beyond the last offset is no text.
            text_file.write(b"\0")
    if not count:
        raise StoreError("a dictionary begins with the empty text of the default graph")
    return count


def _check_ascending(piece: pa.Array, last: pa.Scalar | None) -> None:
    if piece.null_count:
        raise StoreError("a term of the dictionary is null")
    if last is None:
        if piece[0].as_py() != "":
            raise StoreError("a dictionary begins with the empty text of the default graph")
    elif not pc.less(last, piece[0]).as_py():
        raise StoreError(f"terms out of order: {last.as_py()} before {piece[0].as_py()}")
    ascending = pc.less(piece.slice(0, len(piece) - 1), piece.slice(1))
    if pc.all(ascending).as_py() is False:
        at = pc.index(ascending, False).as_py()
        raise StoreError(f"terms out of order: {piece[at].as_py()} before {piece[at + 1].as_py()}")
