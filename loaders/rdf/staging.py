"""The working directory of a load, beside the store.

It is locked while a load runs. The next load removes what a killed one left.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loaders.errors import OutputError
from loaders.outputs import written


@contextmanager
def staging(store: Path) -> Iterator[Path]:
    """Give an empty directory beside the store, removed at the end.

    Raises:
        OutputError: another load into this store is running, or the disk is not writable.
    """
    store = store.resolve()
    import fcntl  # which only POSIX systems have

    directory = store.parent / f".{store.name}.loading"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("a")
    except OSError as error:
        raise OutputError(f"{store}: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"another load into {store} is running") from None
        try:
            work = directory / "work"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            with written(store):
                yield work
        finally:
            shutil.rmtree(directory, ignore_errors=True)
