"""Copies of files at URLs that this process reads, as often as somebody wants.

They are anonymous temporary files, and so go with the process, however it ends. The last ones stay,
since tables and archives are read more than once.
"""

import io
import os
from functools import lru_cache
from tempfile import TemporaryFile
from typing import Any, Final

from loaders.remote_files import RemoteFile, told_of

_COPIES: Final = 16
"""How many files a process keeps that nobody reads any more."""


def open_copy(file: RemoteFile) -> io.BufferedReader:
    """The bytes of a file, from any place in it.

    Raises:
        InputError: it cannot be read, is not the one that was found, or there is no room.
    """
    return io.BufferedReader(_Reader(_copy_of(file)))


class _Copy:
    """A file without a name."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = TemporaryFile(prefix="tpf-load-")  # noqa: SIM115 - as long as this
        with told_of(file.url):
            file.copy_to(self._file)
            self._file.flush()

    def fileno(self) -> int:
        """Its descriptor."""
        return self._file.fileno()

    def __del__(self) -> None:
        self._file.close()


@lru_cache(maxsize=_COPIES)
def _copy_of(file: RemoteFile) -> _Copy:
    return _Copy(file)


class _Reader(io.RawIOBase):
    """Reads a copy from a place of its own, beside other readers."""

    def __init__(self, copy: _Copy) -> None:
        self._copy = copy
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._copy.fileno(), [buffer], self._position)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        if begin is None:
            begin = os.fstat(self._copy.fileno()).st_size
        self._position = begin + offset
        return self._position
