"""The last batch that was acknowledged, kept apart from the log.

SQLite takes a ``-wal`` file that was cut, damaged or removed for one that ends there: the batches
behind that are gone without a word, and their numbers would be given to others. So the number of
the newest batch, and a checksum of it, lie in a small file of their own, beside the log, which is
compared when the log is opened. It is written after a batch is durable and before it is
acknowledged, in place and without waiting for the disk: where the machine stops as well, it may be
older than the log, never newer.
"""

import os
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, NamedTuple

from tpf_server.errors import CorruptStoreError

_LENGTH: Final = 20 + 1 + 32 + 1 + 8 + 1
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.01


class Last(NamedTuple):
    """A batch: its number, and a checksum of its record."""

    sequence: int
    checksum: str

    @classmethod
    def of(cls, sequence: int, payload: bytes) -> "Last":
        """The one of a record."""
        return cls(sequence, blake2b(payload, digest_size=16).hexdigest())


class Acknowledged:
    """The last batch of a log that was acknowledged.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def read(self) -> Last | None:
        """What the file says; ``None`` where there is none.

        Raises:
            CorruptStoreError: the file is damaged.
        """
        for number in range(_TRIES):
            if number:  # another process was writing just then, perhaps
                time.sleep(_PAUSE_SECONDS)
            try:
                text = self.path.read_bytes()
            except FileNotFoundError:
                return None
            except OSError as error:
                raise CorruptStoreError(f"{self.path}: {error}") from error
            if len(text) == _LENGTH and text[-9:] == _check(text[:-9]):
                sequence, checksum = text[:-9].decode().split()
                return Last(int(sequence), checksum)
        raise CorruptStoreError(f"{self.path} is damaged")

    def write(self, last: Last) -> None:
        """Keep a batch.

        Raises:
            OSError: the file cannot be written.
        """
        text = f"{last.sequence:020} {last.checksum} ".encode()
        text += _check(text)
        if self._file is None:
            if not self.path.exists():
                self._make(text)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        os.pwrite(self._file, text, 0)

    def _make(self, text: bytes) -> None:
        # Whole at once, where the file system has links: who reads it meanwhile must not find an
        # empty file. No renaming, as another process may have made it and hold it open.
        with NamedTemporaryFile(dir=self.path.parent, prefix=self.path.name) as made:
            made.write(text)
            made.flush()
            os.fchmod(made.fileno(), 0o644)
            with suppress(OSError):
                os.link(made.name, self.path)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _check(text: bytes) -> bytes:
    return blake2b(text, digest_size=4).hexdigest().encode() + b"\n"
