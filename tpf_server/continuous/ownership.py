"""Which of several processes may write the files of a server: the one that was started last.

A worker whose parent was killed lives on for a while, maybe beside the next server.
"""

import contextlib
import fcntl
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

TAKEN_OVER: Final = "another server has begun with it"


class Ownership:
    """A mark in a file.

    Args:
        path: of the file; its directory is made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark: str | None = None

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take it from whoever had it; nobody else does anything within the block.

        Raises:
            OSError: the file cannot be written.
        """
        with self._locked() as file:
            self._mark = secrets.token_hex(16)
            file.truncate(0)
            file.write(self._mark)
            file.flush()
            yield

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Whether nobody else has taken it, which holds within the block; taken where it never was.

        Raises:
            OSError: the file cannot be read or written.
        """
        if self._mark is None:
            with self.taken():
                yield True
            return
        with self._locked() as file:
            file.seek(0)
            yield file.read() == self._mark

    @contextlib.contextmanager
    def _locked(self) -> Iterator[IO[str]]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
