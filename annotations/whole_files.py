"""Files that are there as a whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def replaced_path(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Where to write what takes the place of a file when the block ends well.

    Args:
        path: the file; its directory is there.
        durable: whether it outlasts the machine's end once the block has ended.

    Raises:
        OSError: it cannot be written; the file is as it was, or it is the new one, and the
            directory could not be made durable.
    """
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
    """The new text of a file, which takes the place of the old one when the block ends well.

    Args:
        path: see `replaced_path`.
        durable: see there.

    Raises:
        OSError: see `replaced_path`.
    """
    with (
        replaced_path(path, durable=durable) as aside,
        aside.open("w", encoding="utf-8", newline="\n") as file,
    ):
        yield file


def make_durable(path: Path) -> None:
    """See to it that a file, or the entries of a directory, outlast the machine's end.

    Raises:
        OSError: there is no such path, or the disk is full.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
