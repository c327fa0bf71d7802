"""Replace files atomically; list folders."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def replaced_path(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Give a path whose file replaces another one when the block succeeds.

    Raises:
        OSError: there is a device or a pipe, which a file must not replace.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "no file but a device or a pipe", str(path))
    # Spark and those who list a directory take no notice of names that begin with a dot.
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # One that was killed may have had the number of this process.
        aside.unlink(missing_ok=True)
        yield aside
        if durable:
            make_durable(aside)
        aside.replace(path)
        if durable:
            make_durable(path.parent)
    finally:
        # It is gone where all went well; a medium that only reads has none.
        with suppress(OSError):
            aside.unlink()


@contextmanager
def replaced_file(path: Path, *, durable: bool = True) -> Iterator[IO[str]]:
    """Open a text file as in `replaced_path`."""
    with (
        replaced_path(path, durable=durable) as aside,
        aside.open("w", encoding="utf-8", newline="\n") as file,
    ):
        yield file


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder; `OSError` if a part, not hidden, cannot be read."""

    def refuse(error: OSError) -> None:
        if not Path(error.filename).name.startswith("."):
            raise error

    for parent, _, names in os.walk(folder, onerror=refuse):
        yield from (file for name in names if (file := Path(parent, name)).is_file())


def make_durable(path: Path) -> None:
    """Flush a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
