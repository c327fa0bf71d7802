"""Stores in parts: sorted pieces in an object store, written by several machines.

Fetching makes of them, byte for byte, the store of one machine.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from annotations.instants import format_instant
from tpf_server.errors import CorruptStoreError
from tpf_server.store.static import layout
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.dictionary import id_array, text_array
from tpf_server.store.static.file_systems import RemoteFolder
from tpf_server.store.static.manifest import Manifest, manifest_body, sealed
from tpf_server.store.static.writing import RowColumns, write_store

TERM_PARTS: Final = "terms"
"""The list of the parts of the dictionary; those of rows are called after their order."""
_COMPRESSION: Final = "zstd"


@dataclass(frozen=True, slots=True)
class StorePart:
    """Name, size and SHA-256 (hexadecimal) of a part."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PartsManifest:
    """The content of a store in parts; see `Manifest`."""

    created: datetime
    generation: str
    quads: int
    terms: int
    graphs: int
    orders: tuple[str, ...]
    prefixes: Mapping[str, str]
    parts: Mapping[str, Sequence[StorePart]]
    source: str = ""

    @property
    def size(self) -> int:
        return sum(part.bytes for parts in self.parts.values() for part in parts)

    def text(self) -> bytes:
        body = asdict(self) | {"created": format_instant(self.created)}
        return sealed(layout.PARTS_FORMAT, body).encode()


def parts_manifest(text: bytes, store: str) -> PartsManifest:
    """Parse the manifest of a store in parts."""
    with manifest_body(text, store, layout.PARTS_FORMAT, PartsManifest) as body:
        listed = body.pop("parts").items()
        parts = {name: [StorePart(**part) for part in each] for name, each in listed}
        manifest = PartsManifest(**body, parts=parts)
    if set(manifest.parts) != {TERM_PARTS, *manifest.orders}:
        raise CorruptStoreError(f"{store}: the manifest does not list the parts of its orders")
    return manifest


def packed_columns(columns: Sequence[pa.Array | Ids]) -> bytes:
    """Return columns of equal length as the bytes of a part."""
    arrays = [id_array(column) if isinstance(column, np.ndarray) else column for column in columns]
    batch = pa.record_batch(arrays, names=[str(k) for k, _ in enumerate(arrays, 1)])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def put_part(folder: RemoteFolder, generation: str, name: str, content: bytes) -> StorePart:
    """Write a part under a name derived of its content; it counts when a manifest lists it."""
    digest = hashlib.sha256(content).hexdigest()
    part = StorePart(f"{name}-{digest[:16]}.arrow", len(content), digest)
    folder.write(f"{generation}/{part.name}", [content])
    return part


def store_of_parts(folder: RemoteFolder, manifest: PartsManifest, store: Path) -> Manifest:
    """Make the store of these parts, or replace the one there atomically.

    A part that is missing, or is not what the manifest says, is a `CorruptStoreError`.
    """

    def columns(name: str) -> Iterator[pa.RecordBatch]:
        for part in manifest.parts[name]:
            name = f"{manifest.generation}/{part.name}"
            try:
                content = folder.read(name)
            except FileNotFoundError:
                raise CorruptStoreError(f"{folder.url}/{name} is missing") from None
            if (len(content), hashlib.sha256(content).hexdigest()) != (part.bytes, part.sha256):
                raise CorruptStoreError(f"{folder.url}/{name} is corrupt: its checksum differs")
            with pa.ipc.open_stream(content) as reader:
                yield reader.read_next_batch()

    def terms() -> Iterator[pa.Array]:
        yield text_array([""])
        for batch in columns(TERM_PARTS):
            yield batch.column(0)

    def rows(order: str) -> Iterator[RowColumns]:
        for batch in columns(order):
            yield tuple(np.asarray(column, dtype=np.uint32) for column in batch.columns)

    return write_store(
        store,
        terms(),
        {order: rows(order) for order in manifest.orders},
        created=manifest.created,
        prefixes=manifest.prefixes,
        source=manifest.source,
        generation=manifest.generation,
    )
