"""Staged files: complete or not there, and mapped into memory instead of read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A path to write to, which is renamed to `target` at the end.

    A task that runs twice (Spark repeats one whose worker was lost) writes the same file twice.
    """
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    yield aside
    aside.replace(target)


def mapped_terms(path: Path) -> pa.Array:
    """The one array of an Arrow file, mapped into memory."""
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0).column(0)
