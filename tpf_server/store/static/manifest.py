"""The manifest of a static store: its content, and the checksums of its files.

It is written last and replaced atomically, so a store is either complete or absent.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from annotations.errors import InstantError
from annotations.instants import format_instant, parse_instant
from annotations.whole_files import replaced_file
from tpf_server.errors import CorruptStoreError, NoStoreError, StoreVersionError
from tpf_server.store.static import layout


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size and SHA-256 (hexadecimal) of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a store."""

    version: str
    """Hash of the content: equal contents have equal versions."""
    created: datetime
    """When the content was written, or the instant that the writer was given for it."""
    generation: str
    """The folder that holds the files."""
    quads: int
    terms: int
    """Number of entries of the dictionary; the first is the empty text of the default graph."""
    graphs: int
    """Number of named graphs."""
    orders: tuple[str, ...]
    prefixes: Mapping[str, str]
    files: Mapping[str, FileEntry]
    source: str = field(default="")
    """What the store was made from, in the words of its writer."""

    @property
    def size(self) -> int:
        return sum(entry.bytes for entry in self.files.values())


def content_version(files: Mapping[str, FileEntry], prefixes: Mapping[str, str]) -> str:
    """Return the version of a store with these files and prefixes: 16 hexadecimal digits."""
    content = [sorted((name, entry.sha256) for name, entry in files.items()), dict(prefixes)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def sealed(form: str, content: Mapping[str, Any]) -> str:
    """Return a manifest as text: format, content and a checksum of both."""
    body = {"format": form, "format_version": layout.FORMAT_VERSION, **content}
    body["checksum"] = _checksum(body)
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _unsealed(text: bytes, store: Path | str, form: str) -> dict[str, Any]:
    path = f"{store}/{layout.MANIFEST}"
    try:
        body = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptStoreError(f"{path} is corrupt: {error}") from None
    if not isinstance(body, dict) or body.get("format") != form:
        raise StoreVersionError(f"{path} is not the manifest of a store ({form})")
    if body.get("format_version") != layout.FORMAT_VERSION:
        raise StoreVersionError(
            f"{store} is written in version {body.get('format_version')!r} of the format; "
            f"this program reads version {layout.FORMAT_VERSION}: write the store again"
        )
    if body.pop("checksum", None) != _checksum(body):
        raise CorruptStoreError(f"{path} is corrupt: its checksum does not fit its content")
    return body


def write_manifest(store: Path, manifest: Manifest) -> None:
    """Replace the manifest of the store, atomically and durably."""
    text = sealed(layout.FORMAT, {**asdict(manifest), "created": format_instant(manifest.created)})
    with replaced_file(store / layout.MANIFEST) as file:
        file.write(text)


def read_manifest(store: Path) -> Manifest:
    """Read the manifest of a store; `NoStoreError` where there is none."""
    try:
        text = (store / layout.MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NoStoreError(f"{store} is not a store: it has no {layout.MANIFEST}") from None
    return manifest_of(text, store)


def manifest_of(text: bytes, store: Path | str) -> Manifest:
    """Parse the manifest of a store."""
    with manifest_body(text, store, layout.FORMAT, Manifest) as body:
        files = {name: FileEntry(**entry) for name, entry in body.pop("files").items()}
        return Manifest(**body, files=files)


@contextmanager
def manifest_body(
    text: bytes, store: Path | str, form: str, kind: type[Any]
) -> Iterator[dict[str, Any]]:
    """Give the fields of a kind of manifest; what does not fit them is a `CorruptStoreError`."""
    body = _unsealed(text, store, form)
    try:
        content = {each.name: body[each.name] for each in fields(kind)}
        content |= {"created": parse_instant(body["created"]), "orders": tuple(body["orders"])}
        yield content
    except (KeyError, TypeError, AttributeError, InstantError) as error:
        raise CorruptStoreError(f"{store}/{layout.MANIFEST} is corrupt: {error!r}") from None


def _checksum(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def file_entry(path: Path) -> FileEntry:
    """Return size and checksum of a file, read now."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileEntry(os.fstat(file.fileno()).st_size, digest.hexdigest())


def lists_its_files(manifest: Manifest) -> bool:
    """True where a manifest lists just the files that its orders need."""
    has_known_orders = manifest.orders in (layout.TRIPLE_ORDERS, layout.QUAD_ORDERS)
    return has_known_orders and set(manifest.files) == set(layout.files_of(manifest.orders))


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Check every file of a generation against the manifest (`CorruptStoreError`), once."""
    if not lists_its_files(manifest):
        raise CorruptStoreError(f"{folder}: the manifest does not list the files of its orders")
    fingerprint = _fingerprint(folder, manifest)
    if _read_stamp(folder) == fingerprint:
        return
    for name, entry in manifest.files.items():
        if file_entry(folder / name) != entry:
            raise CorruptStoreError(f"{folder / name} is corrupt: its checksum does not fit")
    _write_stamp(folder, fingerprint)


def stamp_verified(folder: Path, manifest: Manifest) -> None:
    """Record that the files of a folder, which were just read, are as the manifest says."""
    _write_stamp(folder, _fingerprint(folder, manifest))


def _fingerprint(folder: Path, manifest: Manifest) -> dict[str, list[int]]:
    fingerprint: dict[str, list[int]] = {}
    for name, entry in manifest.files.items():
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            raise CorruptStoreError(f"{folder / name} is missing") from None
        if status.st_size != entry.bytes:
            raise CorruptStoreError(
                f"{folder / name} has {status.st_size} bytes instead of {entry.bytes}"
            )
        fingerprint[name] = [
            status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
        ]  # fmt: skip
    return fingerprint


def _read_stamp(folder: Path) -> object:
    try:
        return json.loads((folder / layout.VERIFIED).read_bytes())
    except (OSError, ValueError):
        return None


def _write_stamp(folder: Path, fingerprint: Mapping[str, list[int]]) -> None:
    # On a read-only medium the next opening checks again.
    with suppress(OSError), replaced_file(folder / layout.VERIFIED, durable=False) as file:
        json.dump(fingerprint, file)
