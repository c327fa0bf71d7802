"""What is remembered of an event stream that is followed, in a file of SQLite.

Nodes that need not be read again, members that came, those that wait to be told in order, and the
newest version of everything. A step is one transaction: whoever is stopped goes on where it was.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from annotations.instants import from_micros, to_micros
from annotations.terms import Quad, Term
from loaders.errors import StateError
from loaders.sources.ldes_nodes import Member

_FORMAT: Final = "1"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nodes
    (url TEXT PRIMARY KEY, etag TEXT NOT NULL, leads_to TEXT NOT NULL, full INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS members (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS waiting
    (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, name TEXT NOT NULL, quads TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS waiting_in_order ON waiting (at, number);
CREATE TABLE IF NOT EXISTS versions (entity TEXT PRIMARY KEY, at INTEGER, quads TEXT NOT NULL);
"""


class KnownNode(NamedTuple):
    """A node that was read.

    Args:
        etag: its entity tag; empty where it has none.
        leads_to: the URLs that it leads to.
        full: whether it need not be read again.
    """

    etag: str
    leads_to: tuple[str, ...]
    full: bool


class Waiting(NamedTuple):
    """A member that was not told yet, and when it came about."""

    number: int
    at: datetime
    member: Member


class LdesState:
    """The memory of one stream.

    Args:
        path: the file; ``:memory:``: nothing lasts.
        stream: what is followed, and whereto; a file belongs to one such text.

    Raises:
        StateError: the file is none of these, or belongs to another stream.
    """

    def __init__(self, path: Path | str, stream: str) -> None:
        self._path = path
        with self._translated():
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.executescript(_SCHEMA)
        for name, value in (("format", _FORMAT), ("stream", stream)):
            known = self.setting(name, value)
            if known != value:
                raise StateError(f"{path} belongs to another stream: {known}")

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"{self._path}: {error}") from None

    @contextmanager
    def step(self) -> Iterator[None]:
        """What is done in this block is remembered whole or not at all."""
        with self._translated():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def setting(self, name: str, value: str | None = None) -> str:
        """What was set first under a name; sets it to `value` if it is new."""
        with self._translated():
            if value is not None:
                self._database.execute(
                    "INSERT OR IGNORE INTO settings VALUES (?, ?)", (name, value)
                )
            row = self._database.execute("SELECT value FROM settings WHERE name = ?", (name,))
            return str((row.fetchone() or ("",))[0])

    def node(self, url: str) -> KnownNode | None:
        """A node, as it was read last."""
        with self._translated():
            row = self._database.execute(
                "SELECT etag, leads_to, full FROM nodes WHERE url = ?", (url,)
            ).fetchone()
        return None if row is None else KnownNode(row[0], tuple(json.loads(row[1])), bool(row[2]))

    def remember(self, url: str, node: KnownNode) -> None:
        """A node was read."""
        self._database.execute(
            "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?)",
            (url, node.etag, json.dumps(node.leads_to), node.full),
        )

    def add(self, member: Member, at: datetime) -> bool:
        """Let a member wait, unless it came before; whether it is new."""
        new = self._database.execute(
            "INSERT OR IGNORE INTO members VALUES (?)", (member.name,)
        ).rowcount
        if new:
            self._database.execute(
                "INSERT INTO waiting (at, name, quads) VALUES (?, ?, ?)",
                (to_micros(at), member.name, json.dumps(member.quads)),
            )
        return bool(new)

    def waiting(self, limit: int) -> list[Waiting]:
        """The members to tell next, in order; of one instant all, whatever the limit."""
        with self._translated():
            last = self._database.execute(
                "SELECT at FROM waiting ORDER BY at, number LIMIT 1 OFFSET ?", (limit - 1,)
            ).fetchone()
            until = last[0] if last else 2**62
            rows = self._database.execute(
                "SELECT number, at, name, quads FROM waiting WHERE at <= ? ORDER BY at, number",
                (until,),
            ).fetchall()
        return [
            Waiting(number, from_micros(at), Member(Term(name), _quads(quads)))
            for number, at, name, quads in rows
        ]

    def told(self, entries: Iterable[Waiting]) -> None:
        """Members were told."""
        self._database.executemany(
            "DELETE FROM waiting WHERE number = ?", ((each.number,) for each in entries)
        )

    def version(self, entity: Term) -> tuple[datetime, tuple[Quad, ...]] | None:
        """The newest version of something, and when it came about."""
        row = self._database.execute(
            "SELECT at, quads FROM versions WHERE entity = ?", (entity,)
        ).fetchone()
        return None if row is None else (from_micros(row[0]), _quads(row[1]))

    def set_version(self, entity: Term, at: datetime, quads: Iterable[Quad]) -> None:
        """There is a newer version of something."""
        self._database.execute(
            "INSERT OR REPLACE INTO versions VALUES (?, ?, ?)",
            (entity, to_micros(at), json.dumps(list(quads))),
        )


def _quads(text: str) -> tuple[Quad, ...]:
    return tuple(Quad(*map(Term, row)) for row in json.loads(text))
