"""Open static data: a store, or RDF files that are indexed first."""

from pathlib import Path

from tpf_server.store.static.checking import checked_store, with_generation
from tpf_server.store.static.columnar import ColumnarStore
from tpf_server.store.static.manifest import Manifest, verify_files


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

    def open_files(folder: Path, manifest: Manifest) -> ColumnarStore:
        verify_files(folder, manifest, again=verify)
        return ColumnarStore(folder, manifest)

    return with_generation(path, open_files)


def open_dataset(source: Path, cache: Path, *, base: str | None = None) -> ColumnarStore:
    """Open a store, or the store that RDF files are put in (`tpf_server.store.static.checking`).

    Args:
        source: a store, an RDF file, or a directory of RDF files.
        cache: the directory for stores of RDF files; made where it is missing.
        base: what relative IRIs in the files are resolved against; ``None``: they are refused.

    Raises:
        RdfInputError: a file cannot be read; says which and where.
        StoreError: the store cannot be opened or written.
    """
    return open_store(checked_store(source, cache, base=base))
