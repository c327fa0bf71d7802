"""How large an input is: decides whether starting Spark for it pays."""

import zipfile
from collections.abc import Iterable
from pathlib import Path

from loaders.places import RemotePlace
from loaders.remote_files import RemoteFile
from loaders.sources.reading import archive

SMALL = 64 << 20
"""Bytes of input, not compressed, that one process loads sooner than Spark has started and loaded.

See "When Spark pays" in the documentation of loading.
"""

_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".xz", ".hdt"})
_RATIO = 8
"""How many times as large tables and RDF usually are when they are not compressed."""


def size_of(paths: Iterable[Path | RemoteFile | RemotePlace]) -> int:
    """About how many bytes files and directories hold, not compressed; what is missing has none."""
    total = 0
    for path in paths:
        if isinstance(path, RemoteFile):
            packed = path.path.suffix.lower() in {".zip", *_COMPRESSED}
            total += path.size * (_RATIO if packed else 1)
        elif isinstance(path, RemotePlace):
            total += size_of(path.files())
        elif path.is_dir():
            total += size_of(path.iterdir())
        elif path.suffix.lower() == ".zip" and zipfile.is_zipfile(path):
            with archive(path) as opened:
                total += sum(each.file_size for each in opened.infolist())
        elif path.is_file():
            total += path.stat().st_size * (_RATIO if path.suffix.lower() in _COMPRESSED else 1)
    return total
