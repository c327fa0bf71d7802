"""Files that are there as a whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def replaced_file(path: Path, *, durable: bool = True) -> Iterator[IO[str]]:
    """The new content of a file, which takes the place of the old one when the block ends well.

    Args:
        path: the file; its directory is there.
        durable: whether it outlasts the machine's end once the block has ended.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    # Spark and those who list a directory take no notice of names that begin with a dot.
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
        if durable:
            sync_directory(path.parent)
    finally:
        # It is gone where all went well; a medium that only reads has none.
        with suppress(OSError):
            aside.unlink()


def sync_directory(directory: Path) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
