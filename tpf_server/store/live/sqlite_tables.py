"""Tables of a log in SQLite, and files with a copy of them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from annotations.whole_files import replaced_path
from tpf_server.errors import StoreError
from tpf_server.store.live.log import LOG_FORMAT, Contents

SQLITE_SCHEMA = """
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
TABLES: Final = ("settings", "batches", "receipts")


def read_backup(file: Path) -> Contents:
    """Return the contents of a log in a file."""
    try:
        url = f"file:{quote(str(file.absolute()))}?mode=ro"
        with closing(sqlite3.connect(url, uri=True)) as connection:
            contents = contents_of(connection)
    except sqlite3.Error as error:
        raise StoreError(f"cannot read the backup {file}: {error}") from error
    entry = contents.settings.get("format")
    if entry != LOG_FORMAT:
        raise StoreError(f"{file} has format {entry}; this version reads {LOG_FORMAT}")
    return contents


def write_backup(file: Path, contents: Contents) -> None:
    """Write the contents of a log to a new file."""
    with new_file(file) as connection:
        connection.executescript(SQLITE_SCHEMA)
        fill(connection, contents)


@contextmanager
def new_file(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a database that gets its name once it is complete."""
    if file.exists():
        raise StoreError(f"{file} is there already")
    try:
        with replaced_path(file) as half, closing(sqlite3.connect(half)) as connection:
            yield connection
            connection.commit()
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"cannot write {file}: {error}") from error


def contents_of(connection: sqlite3.Connection) -> Contents:
    """Read the tables in one snapshot."""
    connection.execute("BEGIN")
    try:
        settings, batches, receipts = (
            connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()  # noqa: S608
            for table in TABLES
        )
    finally:
        connection.rollback()
    return Contents(dict(settings), batches, receipts)


def fill(connection: sqlite3.Connection, contents: Contents) -> None:
    """Fill empty tables."""
    connection.executemany("INSERT INTO settings VALUES (?, ?)", contents.settings.items())
    connection.executemany("INSERT INTO batches VALUES (?, ?, ?, ?)", contents.batches)
    connection.executemany("INSERT INTO receipts VALUES (?, ?, ?, ?, ?)", contents.receipts)
