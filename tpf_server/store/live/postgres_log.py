"""Keep the log of a live store in PostgreSQL, for processes on several machines.

A writer locks one row, so the numbers of batches have no gaps; a reader asks for the highest number
before every snapshot. After a restart of the database, running calls fail and the next reconnects.
Source: PostgreSQL 15, sections 13.2.1 and 13.3.2.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tpf_server.errors import StoreError
from tpf_server.store.live.log import (
    LOG_FORMAT,
    Contents,
    Record,
    continued,
    decode,
    encode,
)
from tpf_server.store.live.sqlite_tables import TABLES, write_backup
from tpf_server.store.protocols import BatchReceipt

_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.settings (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.batches (
    sequence bigint PRIMARY KEY, published bigint NOT NULL, entries integer NOT NULL,
    payload bytea NOT NULL
);
ALTER TABLE {schema}.batches ALTER COLUMN payload SET STORAGE EXTERNAL; -- compressed already
CREATE TABLE IF NOT EXISTS {schema}.receipts (
    batch_id text PRIMARY KEY, sequence bigint NOT NULL, added integer NOT NULL,
    replaced integer NOT NULL, published bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS receipts_by_age ON {schema}.receipts (published);
"""
_SESSION = """
SELECT set_config('search_path', quote_ident(%(schema)s), false),
       set_config('lock_timeout', %(patience)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle)s, false),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                  ELSE current_setting('synchronous_commit') END, false)
"""
_ADD_SETTING = "INSERT INTO settings VALUES (%s, %s)"
_CHECK = (
    "INSERT INTO settings VALUES ('writable', '0') "
    "ON CONFLICT (name) DO UPDATE SET value = 1 - settings.value::integer"
)
_ADD_BATCH = "INSERT INTO batches VALUES (%s, %s, %s, %s)"
_ADD_RECEIPT = "INSERT INTO receipts VALUES (%s, %s, %s, %s, %s)"
_DROP_BATCHES = "DELETE FROM batches WHERE sequence <= %s"
_DROP_RECEIPTS = "DELETE FROM receipts WHERE published < %s"
_MAKING = 7_310_604_221
"""The advisory lock of whoever makes a schema: any number that others hardly use."""
_LONGEST = 63
_PATIENT: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,
    "application_name": "tpf-server",
}

_LOST = ("08", "57P", "25P03")
"""How the codes of errors begin after which a connection is gone (appendix A of the manual)."""

_Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
_T = TypeVar("_T")


class PostgresLog:
    """Batches in a schema of a PostgreSQL database."""

    def __init__(self, url: str, name: str, busy_seconds: float = 30.0) -> None:
        schema = f"live_{name}"
        if len(schema.encode()) > _LONGEST:
            raise StoreError(f"the name of the live store {name!r} is too long for PostgreSQL")
        self._where = f"{schema} in PostgreSQL"
        self._lock = threading.RLock()
        self._writer_thread: int | None = None
        self._last: int | None = None
        self._newest = -1
        self._statements: list[tuple[str, tuple[object, ...]]] = []
        values = {
            "schema": schema,
            "patience": f"{round(busy_seconds * 1000)}ms",
            "idle": f"{round(busy_seconds * 500)}ms",
        }
        with self._translated():
            self._read = _Session(url, values)
            self._write = _Session(url, values)
        try:
            with self._translated():
                self._read.ask(lambda connection: _make(connection, schema))
            result = self.setting("format", LOG_FORMAT)
            if result != LOG_FORMAT:
                raise StoreError(
                    f"{self._where} has format {result}; this version reads {LOG_FORMAT}"
                )
        except StoreError:
            self.close()
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise StoreError(f"the live store {self._where} failed: {error}") from error

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._translated():
            if self._writer_thread == threading.get_ident():
                return self._write.connection.execute(query, values, binary=True).fetchall()
            with self._lock:
                return self._read.ask(
                    lambda connection: connection.execute(query, values, binary=True).fetchall()
                )

    def setting(self, name: str, value: str) -> str:
        def ask(connection: _Connection) -> str:
            connection.execute(
                "INSERT INTO settings VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, value)
            )
            result = connection.execute("SELECT value FROM settings WHERE name = %s", (name,))
            return str((result.fetchone() or ("",))[0])

        with self._lock, self._translated():
            return self._read.ask(ask)

    def changed(self) -> bool:
        with self._lock:
            ((last,),) = self._rows("SELECT max(sequence) FROM batches")
            changed, self._last = last != self._last, last
            return bool(changed)

    def read(self, after: int, limit: int | None = None) -> Iterator[Record]:
        if self._writer_thread == threading.get_ident() and after == self._newest:
            return iter(())
        rows = self._rows(
            "SELECT sequence, published, payload FROM batches WHERE sequence > %s "
            "ORDER BY sequence LIMIT %s::bigint",
            after,
            limit,
        )
        return (decode(*row) for row in rows)

    def oldest(self) -> int:
        ((oldest,),) = self._rows("SELECT coalesce(min(sequence), 0) FROM batches")
        return int(oldest)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """See `Log`; everything is sent with the commit, in one round trip."""
        try:
            with self._translated():
                self._newest = self._write.ask(_begin)
            self._writer_thread = threading.get_ident()
            self._statements.clear()
            yield
            with self._translated(), self._write.connection.pipeline():
                for statement, values in self._statements:
                    self._write.connection.execute(statement, values)
                self._write.connection.execute("COMMIT")
        except BaseException:
            # Closing rolls back whatever state the transaction is in; the next one connects again.
            self._write.connection.close()
            raise
        finally:
            self._writer_thread = None

    def receipt(self, batch_id: str) -> BatchReceipt | None:
        rows = self._rows(
            "SELECT sequence, added, replaced FROM receipts WHERE batch_id = %s", batch_id
        )
        if not rows:
            return None
        sequence, added, replaced = rows[0]
        return BatchReceipt(sequence, added, replaced, repeated=True)

    def append(self, record: Record, receipt: BatchReceipt, batch_id: str | None) -> None:
        values = (record.sequence, record.published, record.entries, encode(record))
        self._statements.append((_ADD_BATCH, values))
        if batch_id is not None:
            counts = (receipt.sequence, receipt.added, receipt.replaced)
            self._statements.append((_ADD_RECEIPT, (batch_id, *counts, record.published)))

    def check_writing(self) -> None:
        with self._translated():
            self._write.ask(lambda connection: connection.execute(_CHECK))

    def entries(self) -> int:
        ((entries,),) = self._rows("SELECT coalesce(sum(entries), 0)::bigint FROM batches")
        return int(entries)

    def drop(self, until: int, forgotten: int) -> None:
        self._statements.append((_DROP_BATCHES, (until,)))
        self._statements.append((_DROP_RECEIPTS, (forgotten,)))

    def contents(self) -> Contents:
        def ask(connection: _Connection) -> list[list[tuple[Any, ...]]]:
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                return [
                    connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()  # noqa: S608
                    for table in TABLES
                ]

        with self._lock, self._translated():
            settings, batches, receipts = self._read.ask(ask)
        return Contents(dict(settings), batches, receipts)

    def save(self, file: Path) -> None:
        write_backup(file, self.contents())

    def replace(self, contents: Contents, published: int) -> int:
        with self.writing():
            settings, record = continued(contents, self._newest, published)
            self._statements += [(f"DELETE FROM {table}", ()) for table in TABLES]  # noqa: S608
            self._statements += [(_ADD_SETTING, pair) for pair in settings.items()]
            self._statements += [(_ADD_BATCH, row) for row in contents.batches]
            self._statements += [(_ADD_RECEIPT, row) for row in contents.receipts]
            if record is not None:
                self.append(record, BatchReceipt(record.sequence, 0, 0), None)
        return record.sequence if record is not None else 0

    def close(self) -> None:
        with self._lock:
            self._read.close()
            self._write.close()


class _Session:
    def __init__(self, url: str, values: dict[str, str]) -> None:
        self._url = url
        given = conninfo_to_dict(url)
        self._defaults = {name: _PATIENT[name] for name in _PATIENT if name not in given}
        self._values = values
        self._ended = False
        self.connection = self._connect()

    def _connect(self) -> _Connection:
        connection = psycopg.connect(self._url, autocommit=True, **self._defaults)
        try:
            connection.execute(_SESSION, self._values)
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def ask(self, question: Callable[[_Connection], _T]) -> _T:
        """Run an idempotent query; once more where the connection was lost."""
        if self._ended:
            raise psycopg.InterfaceError("it has been closed")
        if not self.connection.closed:
            try:
                return question(self.connection)
            except psycopg.OperationalError as error:
                if not self.connection.closed and not (error.sqlstate or "").startswith(_LOST):
                    raise
                self.connection.close()
        self.connection = self._connect()
        return question(self.connection)

    def close(self) -> None:
        self._ended = True
        self.connection.close()


def _make(connection: _Connection, schema: str) -> None:
    tables = connection.execute("SELECT to_regclass('batches'), to_regclass('receipts_by_age')")
    if None in (tables.fetchone() or ()):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            connection.execute(sql.SQL(_TABLES).format(schema=sql.Identifier(schema)))


def _begin(connection: _Connection) -> int:
    """Begin to write; return the newest batch's number (one round trip)."""
    results = connection.execute(
        "BEGIN; SELECT 1 FROM settings WHERE name = 'format' FOR UPDATE; "
        # Sees what was committed while the lock was waited for: a statement of its own.
        "SELECT coalesce(max(sequence), 0) FROM batches"
    )
    while results.nextset():
        pass
    ((newest,),) = results.fetchall()
    return int(newest)
