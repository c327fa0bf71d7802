"""Check static data without opening them: a store, or RDF files to index first."""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from annotations.instants import from_micros
from tpf_server.errors import CorruptStoreError, NoStoreError, StoreFormatError
from tpf_server.store.static import layout
from tpf_server.store.static.manifest import Manifest, read_manifest, verify_files

if TYPE_CHECKING:
    from tpf_server.store.static.parts import PartsManifest

_ATTEMPTS = 5
_M = TypeVar("_M", bound="Manifest | PartsManifest")
_T = TypeVar("_T")


def is_store(path: Path) -> bool:
    """True where there is a store at this path (maybe of another version, or corrupt)."""
    return (path / layout.MANIFEST).is_file()


def with_generation(store: object, read: Callable[[], _M], use: Callable[[_M], _T]) -> _T:
    """Apply a function to the manifest of a store, again where the store is being replaced."""
    manifest = read()
    for _ in range(_ATTEMPTS):
        try:
            return use(manifest)
        except CorruptStoreError:
            # The store may have been replaced since the manifest was read.
            newer = read()
            if newer.generation == manifest.generation:
                raise
            manifest = newer
    raise CorruptStoreError(f"{store} is being replaced over and over")


def checked_manifest(path: Path) -> Manifest:
    """Return the manifest of a store after checking its files; see `verify_files`."""

    def check(manifest: Manifest) -> Manifest:
        verify_files(path / manifest.generation, manifest)
        return manifest

    return with_generation(path, lambda: read_manifest(path), check)


def intact_manifest(path: Path) -> Manifest | None:
    """Return the manifest of a store; ``None``: there is none, or it is damaged."""
    try:
        return checked_manifest(path)
    except StoreFormatError:
        return None


def checked_store(source: Path, cache: Path) -> Path:
    """Return the checked store of static data: the source itself, or one indexed of RDF files."""
    if is_store(source):
        checked_manifest(source)
        return source
    # Who has stores only does not load a parser of RDF.
    from tpf_server.store.static.indexing import index_files
    from tpf_server.store.static.rdf_files import rdf_files

    if source.is_dir() and any(source.glob(f"{layout.GENERATION_PREFIX}*")):
        raise NoStoreError(f"{source} is a store that lacks its {layout.MANIFEST}")
    files = rdf_files([source])
    states = [(file, file.stat()) for file in files]
    fingerprint = hashlib.sha256(
        repr([(str(f), s.st_size, s.st_mtime_ns) for f, s in states]).encode()
    ).hexdigest()
    label = f"{source} {fingerprint}"
    digest = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:16]
    store = cache / f"{re.sub(r'[^A-Za-z0-9-]', '_', source.stem)}-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / f"{store.name}.lock"):
        manifest = intact_manifest(store)
        if manifest is None or manifest.source != label:
            newest = max(status.st_mtime_ns for _, status in states)
            index_files([source], store, created=from_micros(newest // 1000), source=label)
    return store


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file."""
    import fcntl  # which only POSIX systems have

    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
