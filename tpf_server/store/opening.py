"""Open static data: a store, or RDF files that are indexed first."""

import fcntl
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from annotations.instants import from_micros
from tpf_server.errors import CorruptStoreError, NoStoreError, StoreFormatError
from tpf_server.store import layout
from tpf_server.store.columnar import ColumnarStore
from tpf_server.store.manifest import Manifest, read_manifest, verify_files

_ATTEMPTS = 5


def is_store(path: Path) -> bool:
    """Whether there is a store at this path (it may be of another version, or corrupt)."""
    return (path / layout.MANIFEST).is_file()


def store_version(path: Path) -> str:
    """The version of the store at this path, without opening it: did it change since?

    Raises:
        StoreFormatError: there is no store, or its manifest cannot be read.
    """
    return read_manifest(path).version


def open_store(path: Path, *, verify: bool = False) -> ColumnarStore:
    """Open a store for reading.

    It stays as it is while it is open, even when a writer replaces it at the same path.

    Args:
        path: the directory of the store.
        verify: check all checksums, also of files that have been checked before and have not been
            written to since.

    Raises:
        NoStoreError: there is no store.
        StoreVersionError: it was written in another version of the format.
        CorruptStoreError: a file is missing, cut short or altered; says which.
    """
    manifest = read_manifest(path)
    for _ in range(_ATTEMPTS):
        try:
            return _open_generation(path, manifest, verify)
        except CorruptStoreError:
            # The store may have been replaced since the manifest was read.
            newer = read_manifest(path)
            if newer.generation == manifest.generation:
                raise
            manifest = newer
    raise CorruptStoreError(f"{path} is being replaced over and over")


def _open_generation(path: Path, manifest: Manifest, verify: bool) -> ColumnarStore:
    folder = path / manifest.generation
    verify_files(folder, manifest, again=verify)
    return ColumnarStore(folder, manifest)


def open_dataset(source: Path, cache: Path, *, base: str | None = None) -> ColumnarStore:
    """Open a store, or index RDF files into a cached store and open that.

    The cached store is used again as long as the files have the same names, sizes and times;
    its instant is the time of the newest file. Several processes may call this at once: one
    indexes, the others wait for it.

    Args:
        source: a store, an RDF file, or a directory of RDF files.
        cache: the directory for stores of RDF files; made where it is missing.
        base: what relative IRIs in the files are resolved against; ``None``: they are refused.

    Raises:
        RdfInputError: a file cannot be read; says which and where.
        StoreError: the store cannot be opened or written.
    """
    if is_store(source):
        return open_store(source)
    # Who opens stores only does not load a parser of RDF.
    from tpf_server.store.indexing import index_files
    from tpf_server.store.rdf_files import rdf_files

    if source.is_dir() and any(source.glob(f"{layout.GENERATION_PREFIX}*")):
        raise NoStoreError(f"{source} is a store that lacks its {layout.MANIFEST}")
    files = rdf_files([source])
    states = [(file, file.stat()) for file in files]
    fingerprint = hashlib.sha256(
        repr((base, [(str(f), s.st_size, s.st_mtime_ns) for f, s in states])).encode()
    ).hexdigest()
    label = f"{source} {fingerprint}"
    place = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:16]
    store = cache / f"{re.sub(r'[^A-Za-z0-9-]', '_', source.stem)}-{place}"
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{store.name}.lock"):
        if not (is_store(store) and _made_from(store, label)):
            newest = max(status.st_mtime_ns for _, status in states)
            index_files(
                [source], store, created=from_micros(newest // 1000), base=base, source=label
            )
        return open_store(store)


def _made_from(store: Path, label: str) -> bool:
    try:
        with open_store(store) as opened:
            return opened.manifest.source == label
    except StoreFormatError:
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
