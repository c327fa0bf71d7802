"""Fetch stores from an object store into a local folder, and again when they change.

A fetched generation is checked before it replaces the last one.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpf_server.errors import CorruptStoreError, NoStoreError
from tpf_server.store.static import layout
from tpf_server.store.static.checking import intact_manifest, locked, with_generation
from tpf_server.store.static.file_systems import RemoteFolder
from tpf_server.store.static.manifest import (
    FileEntry,
    Manifest,
    lists_its_files,
    manifest_of,
    read_manifest,
)

if TYPE_CHECKING:
    from tpf_server.store.static.parts import PartsManifest

_HEAD: Final = 100
"""Bytes at the beginning of a manifest that tell its format."""
_GENERATION: Final = re.compile(rf"{layout.GENERATION_PREFIX}[0-9a-f]+")


def fetched_store(url: str, cache: Path) -> Path:
    """Return the local path of the store of a URL; it may not exist."""
    name = re.sub(r"[^A-Za-z0-9-]", "_", Path(url).stem)
    return cache / f"{name}-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:16]}"


def fetch_store(url: str, cache: Path, environment: Mapping[str, str]) -> Path:
    """Fetch the store of a URL unless it is here already; return its directory."""
    # Who fetches nothing loads no numpy.
    from tpf_server.store.static.parts import PartsManifest, store_of_parts
    from tpf_server.store.static.writing import switch_to, writing_folder

    folder = RemoteFolder(url, environment)
    store = fetched_store(url, cache)
    cache.mkdir(parents=True, exist_ok=True)

    def fetch(manifest: Manifest | PartsManifest) -> None:
        here = intact_manifest(store)
        if here is not None and here.generation == manifest.generation:
            return
        if isinstance(manifest, PartsManifest):
            store_of_parts(folder, manifest, store)
            return
        with writing_folder(store) as writing:
            for name, entry in manifest.files.items():
                _fetch(folder, f"{manifest.generation}/{name}", writing / name, entry)
            switch_to(store, writing, manifest)

    with locked(cache / f"{store.name}.lock"):
        with_generation(url, lambda: remote_manifest(folder), fetch)
    return store


def has_changed(url: str, cache: Path, environment: Mapping[str, str]) -> bool:
    """True where the store of a URL differs from the fetched one."""
    there = remote_manifest(RemoteFolder(url, environment))
    return read_manifest(fetched_store(url, cache)).generation != there.generation


def remote_manifest(folder: RemoteFolder) -> "Manifest | PartsManifest":
    """Return the manifest of the store in a folder: of files, or of parts."""
    try:
        text = folder.read(layout.MANIFEST)
    except FileNotFoundError:
        raise NoStoreError(f"{folder.url} is not a store: it has no {layout.MANIFEST}") from None
    manifest: Manifest | PartsManifest
    if layout.PARTS_FORMAT.encode() in text[:_HEAD]:
        from tpf_server.store.static.parts import parts_manifest

        manifest = parts_manifest(text, folder.url)
        listed = manifest.orders in (layout.TRIPLE_ORDERS, layout.QUAD_ORDERS)
    else:
        manifest = manifest_of(text, folder.url)
        listed = lists_its_files(manifest)
    # What is written there becomes names of files here.
    if not _GENERATION.fullmatch(manifest.generation) or not listed:
        raise CorruptStoreError(f"{folder.url}: the manifest does not list the files of its orders")
    return manifest


def _fetch(folder: RemoteFolder, name: str, target: Path, entry: FileEntry) -> None:
    digest = hashlib.sha256()
    size = 0
    try:
        with target.open("wb") as file:
            for block in folder.blocks(name):
                file.write(block)
                digest.update(block)
                size += len(block)
    except FileNotFoundError:
        raise CorruptStoreError(f"{folder.url}/{name} is missing") from None
    if (size, digest.hexdigest()) != (entry.bytes, entry.sha256):
        raise CorruptStoreError(f"{folder.url}/{name} is corrupt: its checksum does not fit")
