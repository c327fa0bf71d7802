"""The log of a live store in one SQLite file: for all processes of one machine.

SQLite in WAL mode with ``synchronous=FULL``: a commit returns when the batch is on the disk, and
readers never wait for a writer. Sources: https://www.sqlite.org/wal.html and
https://www.sqlite.org/pragma.html#pragma_data_version.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpf_server.errors import StoreError
from tpf_server.store.live_log import LOG_FORMAT, Record, decode, encode
from tpf_server.store.protocols import Receipt

_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    sequence INTEGER PRIMARY KEY, published INTEGER NOT NULL, entries INTEGER NOT NULL,
    payload BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS receipts (
    batch_id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, added INTEGER NOT NULL,
    replaced INTEGER NOT NULL, published INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS receipts_by_age ON receipts (published);
"""


class SqliteLog:
    """Batches in a SQLite file.

    Args:
        path: the file; made if it is not there, in a directory that must be there.
        busy_seconds: how long to wait for another process that is writing.

    Raises:
        StoreError: the file cannot be opened, or is no live store of this format.
    """

    def __init__(self, path: str | Path, busy_seconds: float = 30.0) -> None:
        self._path = Path(path)
        self._lock = threading.RLock()
        self._writer_thread: int | None = None
        self._version: int | None = None
        try:
            self._write = self._connect(busy_seconds)
            self._write.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
            self._read = self._connect(busy_seconds)
        except sqlite3.Error as error:
            raise StoreError(f"cannot open the live store {self._path}: {error}") from error
        found = self.setting("format", LOG_FORMAT)
        if found != LOG_FORMAT:
            raise StoreError(f"{self._path} has format {found}; this version reads {LOG_FORMAT}")

    def _connect(self, busy_seconds: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def setting(self, name: str, value: str) -> str:
        """The value that was set when the log was made; sets it to `value` if it is new."""
        with self._lock, _translated(self._path):
            self._write.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (name, value))
            row = self._write.execute("SELECT value FROM settings WHERE name = ?", (name,))
            return str(row.fetchone()[0])

    def changed(self) -> bool:
        """Whether a batch was committed since the last call: two microseconds, no file is read.

        The connection that writes is another one, so commits of this process count too.
        """
        with self._lock, _translated(self._path):
            (version,) = self._read.execute("PRAGMA data_version").fetchone()
            changed = version != self._version
            self._version = version
            return bool(changed)

    def read(self, after: int, limit: int | None = None) -> Iterator[Record]:
        """The records with a greater number than `after` that are there now, in order."""
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

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that excludes all other writers; durable when it is left."""
        with _translated(self._path):
            self._write.execute("BEGIN IMMEDIATE")
        self._writer_thread = threading.get_ident()
        try:
            yield
            with _translated(self._path):
                self._write.execute("COMMIT")
        finally:
            self._writer_thread = None
            if self._write.in_transaction:
                self._write.execute("ROLLBACK")

    def receipt(self, batch_id: str) -> Receipt | None:
        """What was said of the batch with this identifier."""
        with _translated(self._path):
            row = self._write.execute(
                "SELECT sequence, added, replaced FROM receipts WHERE batch_id = ?", (batch_id,)
            ).fetchone()
        return None if row is None else Receipt(row[0], row[1], row[2], repeated=True)

    def append(self, record: Record, receipt: Receipt, batch_id: str | None) -> None:
        """Add a record and keep the receipt under the identifier."""
        with _translated(self._path):
            self._write.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?)",
                (record.sequence, record.published, record.entries, encode(record)),
            )
            if batch_id is not None:
                self._write.execute(
                    "INSERT INTO receipts VALUES (?, ?, ?, ?, ?)",
                    (batch_id, receipt.sequence, receipt.added, receipt.replaced, record.published),
                )

    def entries(self) -> int:
        """How many versions the log holds, live or not."""
        with _translated(self._path):
            row = self._write.execute("SELECT coalesce(sum(entries), 0) FROM batches").fetchone()
        return int(row[0])

    def drop(self, until: int, forgotten: int) -> None:
        """Drop records up to a number, and identifiers of batches published before an instant."""
        with _translated(self._path):
            self._write.execute("DELETE FROM batches WHERE sequence <= ?", (until,))
            self._write.execute("DELETE FROM receipts WHERE published < ?", (forgotten,))

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._read.close()
            self._write.close()


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"the live store {path} failed: {error}") from error
