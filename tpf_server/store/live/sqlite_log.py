"""Keep the log of a live store in one SQLite file, for all processes of one machine.

WAL mode with ``synchronous=FULL``: a commit returns when the batch is on the disk. A second file
has the number of the newest batch, to refuse a log that has lost batches.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from tpf_server.errors import CorruptStoreError, StoreError
from tpf_server.store.live.log import (
    LOG_FORMAT,
    Contents,
    Record,
    continued,
    decode,
    encode,
    left_out,
)
from tpf_server.store.live.sqlite_tables import SQLITE_SCHEMA, TABLES, contents_of, fill, new_file
from tpf_server.store.protocols import BatchReceipt

# The last batch that was acknowledged, kept apart from the log.
#
# SQLite takes a ``-wal`` file that was cut, damaged or removed for one that ends there: the
# batches behind that are gone without a word, and their numbers would be given to others. So the
# number of the newest batch, and a checksum of it, lie in a small file of their own, beside the
# log, which is compared when the log is opened. It is written after a batch is durable and before
# it is acknowledged, in place and without waiting for the disk: where the machine stops as well,
# it may be older than the log, never newer.

_LENGTH: Final = 20 + 1 + 32 + 1 + 8 + 1
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.01


class Last(NamedTuple):
    """A batch: its number, and a checksum of its record."""

    sequence: int
    checksum: str

    @classmethod
    def of(cls, sequence: int, payload: bytes) -> "Last":
        return cls(sequence, blake2b(payload, digest_size=16).hexdigest())


class Acknowledged:
    """The file with the last acknowledged batch of a log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def read(self) -> Last | None:
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
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _check(text: bytes) -> bytes:
    return blake2b(text, digest_size=4).hexdigest().encode() + b"\n"


_log = logging.getLogger("tpf_server")

_KEPT_APART: Final = "kept_apart"
"""The setting that says that the newest number is kept apart."""


class SqliteLog:
    """Batches in a SQLite file; `CorruptStoreError` where acknowledged ones are lost."""

    def __init__(
        self, path: str | Path, busy_seconds: float = 30.0, *, refuse_loss: bool = True
    ) -> None:
        self._path = Path(path)
        self._acknowledged = Acknowledged(self._path.with_name(f"{self._path.name}-last"))
        self._appended: Last | None = None
        if refuse_loss:
            self._refuse_loss()
        self._lock = threading.RLock()
        self._writer_thread: int | None = None
        self._version: int | None = None
        try:
            self._write = self._connect(busy_seconds)
            self._write.executescript(f"BEGIN IMMEDIATE;{SQLITE_SCHEMA}COMMIT;")
            self._read = self._connect(busy_seconds)
        except sqlite3.Error as error:
            raise StoreError(f"cannot open the live store {self._path}: {error}") from error
        result = self.setting("format", LOG_FORMAT)
        if result != LOG_FORMAT:
            raise StoreError(f"{self._path} has format {result}; this version reads {LOG_FORMAT}")
        if not self._acknowledged.path.exists():
            self._keep_apart()

    def _refuse_loss(self) -> None:
        try:
            # First what must be there, then what is there: others may be publishing. Where they
            # have told of their first batch between the two looks, there is more to compare with.
            reason = self._what_is_lost(last := self._acknowledged.read())
            while reason is not None and last != (last := self._acknowledged.read()):
                reason = self._what_is_lost(last)
        except CorruptStoreError as error:
            reason = str(error)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise StoreError(f"cannot open the live store {self._path}: {error}") from error
            reason = str(error)
        if reason is not None:
            raise CorruptStoreError(
                f"the live store {self._path} has lost batches that were acknowledged: {reason}. "
                "Put back all its files (also -wal and -last), or see tpf-server restore --help"
            )

    def _what_is_lost(self, last: Last | None) -> str | None:
        if not self._path.exists():
            return None if last is None else f"{self._path} is missing"
        with closing(self._only_read()) as connection:
            connection.execute("BEGIN")  # one view of all tables, whoever publishes or tidies up
            return _lost(connection, last, self._acknowledged.path)

    def _only_read(self) -> sqlite3.Connection:
        # A connection that may write would throw a damaged -wal file away when it is closed.
        url = f"file:{quote(str(self._path.absolute()))}?mode=ro"
        return sqlite3.connect(url, uri=True, timeout=30.0, isolation_level=None)

    def _keep_apart(self) -> None:
        with self._lock, _translated(self._path):
            row = self._write.execute(
                "SELECT sequence, payload FROM batches ORDER BY sequence DESC LIMIT 1"
            ).fetchone()
            if row is not None:
                self._acknowledge(Last.of(*row))

    def _acknowledge(self, last: Last) -> None:
        acknowledged: Last | None = None
        with suppress(CorruptStoreError):
            acknowledged = self._acknowledged.read()
        if acknowledged is not None and acknowledged.sequence >= last.sequence:
            return
        try:
            self._acknowledged.write(last)
        except OSError as error:
            # The batch is durable all the same.
            _log.warning("%s cannot be written: %s", self._acknowledged.path, error)
        else:
            if acknowledged is None:
                self._write.execute(
                    "INSERT OR IGNORE INTO settings VALUES (?, '1')", (_KEPT_APART,)
                )

    def _connect(self, busy_seconds: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def setting(self, name: str, value: str) -> str:
        with self._lock, _translated(self._path):
            self._write.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (name, value))
            row = self._write.execute("SELECT value FROM settings WHERE name = ?", (name,))
            return str(row.fetchone()[0])

    def changed(self) -> bool:
        """See `Log`: two microseconds, no file is read."""
        with self._lock, _translated(self._path):
            (version,) = self._read.execute("PRAGMA data_version").fetchone()
            changed = version != self._version
            self._version = version
            return bool(changed)

    def read(self, after: int, limit: int | None = None) -> Iterator[Record]:
        writing = self._writer_thread == threading.get_ident()
        with self._lock, _translated(self._path):
            rows: list[Any] = (
                (self._write if writing else self._read)
                .execute(
                    "SELECT sequence, published, payload FROM batches WHERE sequence > ? "
                    "ORDER BY sequence LIMIT ?",
                    (after, -1 if limit is None else limit),
                )
                .fetchall()
            )
        return (decode(*row) for row in rows)

    def oldest(self) -> int:
        with self._lock, _translated(self._path):
            row = self._read.execute("SELECT coalesce(min(sequence), 0) FROM batches").fetchone()
        return int(row[0])

    @contextmanager
    def writing(self) -> Iterator[None]:
        with _translated(self._path):
            self._write.execute("BEGIN IMMEDIATE")
        self._writer_thread = threading.get_ident()
        try:
            yield
            with _translated(self._path):
                self._write.execute("COMMIT")
                if self._appended is not None:
                    self._acknowledge(self._appended)
        finally:
            self._writer_thread = None
            self._appended = None
            if self._write.in_transaction:
                self._write.execute("ROLLBACK")

    def receipt(self, batch_id: str) -> BatchReceipt | None:
        with _translated(self._path):
            row = self._write.execute(
                "SELECT sequence, added, replaced FROM receipts WHERE batch_id = ?", (batch_id,)
            ).fetchone()
        return None if row is None else BatchReceipt(row[0], row[1], row[2], repeated=True)

    def append(self, record: Record, receipt: BatchReceipt, batch_id: str | None) -> None:
        payload = encode(record)
        self._appended = Last.of(record.sequence, payload)
        with _translated(self._path):
            self._write.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?)",
                (record.sequence, record.published, record.entries, payload),
            )
            if batch_id is not None:
                self._write.execute(
                    "INSERT INTO receipts VALUES (?, ?, ?, ?, ?)",
                    (batch_id, receipt.sequence, receipt.added, receipt.replaced, record.published),
                )

    def check_writing(self) -> None:
        with _translated(self._path):
            self._write.execute(
                "INSERT INTO settings VALUES ('writable', '0') "
                "ON CONFLICT DO UPDATE SET value = 1 - value"
            )

    def entries(self) -> int:
        with _translated(self._path):
            row = self._write.execute("SELECT coalesce(sum(entries), 0) FROM batches").fetchone()
        return int(row[0])

    def drop(self, until: int, forgotten: int) -> None:
        with _translated(self._path):
            self._write.execute("DELETE FROM batches WHERE sequence <= ?", (until,))
            self._write.execute("DELETE FROM receipts WHERE published < ?", (forgotten,))

    # Backups

    def save(self, file: Path) -> None:
        with new_file(file) as copy:
            with self._lock:
                self._read.backup(copy)
            # One file, without others beside it; what is kept apart stays with the log.
            copy.execute("PRAGMA journal_mode=DELETE")
            copy.execute("DELETE FROM settings WHERE name = ?", (_KEPT_APART,))

    def contents(self) -> Contents:
        with self._lock, _translated(self._path):
            return contents_of(self._read)

    def replace(self, contents: Contents, published: int) -> int:
        with self.writing(), _translated(self._path):
            ((newest,),) = self._write.execute("SELECT coalesce(max(sequence), 0) FROM batches")
            with suppress(CorruptStoreError):
                last = self._acknowledged.read()
                newest = max(newest, last.sequence if last else 0)
            settings, record = continued(contents, newest, published)
            if self._acknowledged.path.exists():
                settings = settings | {_KEPT_APART: "1"}
            for table in TABLES:
                self._write.execute(f"DELETE FROM {table}")  # noqa: S608
            fill(self._write, contents._replace(settings=settings))
            if record is not None:
                self.append(record, BatchReceipt(record.sequence, 0, 0), None)
        return record.sequence if record is not None else 0

    def close(self) -> None:
        with self._lock:
            self._read.close()
            self._write.close()
            self._acknowledged.close()


def _lost(connection: sqlite3.Connection, last: Last | None, path: Path) -> str | None:
    tables = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    if not {("settings",), ("batches",)} <= set(tables):
        # Made, but not yet filled.
        return None if last is None else "it is empty"
    settings = dict(connection.execute("SELECT name, value FROM settings"))
    first, newest, count = connection.execute(
        "SELECT coalesce(min(sequence), 1), coalesce(max(sequence), 0), count(*) FROM batches"
    ).fetchone()
    if last is None:
        return f"{path} is missing" if _KEPT_APART in settings else None
    if newest < last.sequence:
        return f"it ends with batch {newest}, and {last.sequence} were acknowledged"
    row = connection.execute(
        "SELECT sequence, payload FROM batches WHERE sequence = ?", (last.sequence,)
    ).fetchone()
    if (row is None and first <= last.sequence) or (row is not None and Last.of(*row) != last):
        return f"batch {last.sequence} is not the one that was acknowledged"
    if count != newest - first + 1 - left_out(settings, first):
        return f"of the batches {first} to {newest} only {count} are there"
    return None


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"the live store {path} failed: {error}") from error
