"""The last emissions of queries, for readers that come, go and resume, and over restarts."""

import contextlib
import json
import logging
import secrets
import sqlite3
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from annotations.terms import Term
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.errors import (
    BacklogError,
    ContinuousError,
    ElementError,
    RegistrationsError,
    UnknownEventError,
)

_log = logging.getLogger(__name__)
Positions: TypeAlias = Mapping[str, tuple[int, int | None]]
"""By the names of queries: the last emission that was pushed to another server, and the last one of
a batch that perhaps was."""


_KeptEvent: TypeAlias = tuple[int, int, str]
"""The number of an emission, the count of its rows, and its text."""


@dataclass(frozen=True, slots=True)
class KeptLog:
    """The log of a query when its server stopped.

    `begin` is the number before its first emission.
    """

    begin: int
    events: tuple[_KeptEvent, ...]


KeptBatch: TypeAlias = tuple[str, str, int, int, int]
"""A stream and the identifier of a batch; how many of it were accepted, dropped and late."""


KeptResults: TypeAlias = tuple[dict[str, KeptLog], list[KeptBatch], Positions]
"""The logs of queries, the receipts of batches, and positions in pushing."""


# What was registered, and results, kept in a file, so that a server that starts again has them.

TAKEN_OVER: Final = "another server has begun with it"
_SCHEMA: Final = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS owner (only INTEGER PRIMARY KEY, mark TEXT);
CREATE TABLE IF NOT EXISTS streams (name TEXT PRIMARY KEY, declared TEXT);
CREATE TABLE IF NOT EXISTS queries (position INTEGER PRIMARY KEY, registration TEXT);
CREATE TABLE IF NOT EXISTS receipts (
    stream TEXT, batch TEXT, accepted INTEGER, dropped INTEGER, late INTEGER
);
CREATE TABLE IF NOT EXISTS emissions (
    query TEXT, number INTEGER, rows INTEGER, text TEXT, PRIMARY KEY (query, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pushed (query TEXT PRIMARY KEY, after INTEGER, until INTEGER);
CREATE TABLE IF NOT EXISTS steps (
    number INTEGER PRIMARY KEY, stream TEXT, newest INTEGER, count INTEGER, time TEXT, body BLOB
);
COMMIT;
"""


@dataclass(frozen=True, slots=True)
class Registration:
    """A query as it was registered; see `ContinuousService.register`.

    Args:
        begun: the number of the first step of a `WindowLog` that it sees.
        advanced: the present when time was last advanced before; see `LoggedStep`.
        ended: where it feeds a stream and was deleted: the first step that it does not see.
        ended_advanced: as `advanced`, when it was deleted.
    """

    text: str
    name: str | None = None
    semantics: str | None = None
    into: str | None = None
    engine: str | None = None
    begun: int = 0
    advanced: int | None = None
    ended: int | None = None
    ended_advanced: int | None = None


class Registrations:
    """A file of SQLite with streams, queries, their results, and steps (see `WindowLog`).

    Only the server that opened it last writes it: a worker whose parent was killed lives on for a
    while, maybe beside the next server. Without steps, results are written when a server stops, and
    removed when the next one reads them: numbers of emissions continue there, which would be wrong
    after a server that could not write them.

    Args:
        steps: earlier steps are kept; else what comes now would be missing among them.
        earlier: a file of version 0.1, which is taken over.
    """

    def __init__(self, path: Path, *, steps: bool = False, earlier: Path | None = None) -> None:
        self._path = path
        self._mark = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._steps = steps
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.connection = sqlite3.connect(
                path, timeout=30.0, isolation_level=None, check_same_thread=False
            )
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
            self.connection.executescript(_SCHEMA)
            self.connection.execute("INSERT OR REPLACE INTO owner VALUES (1, ?)", (self._mark,))
            if not steps:
                self.connection.execute("DELETE FROM steps")
        if earlier is not None and earlier.exists():
            self._take_over(earlier)

    def _take_over(self, earlier: Path) -> None:
        try:
            value = json.loads(earlier.read_text("utf-8"))
            declared = value.get("declared", {})
            streams = {Term(name): declared.get(name) for name in value["streams"]}
            self.save(streams, [Registration(**each) for each in value["queries"]])
            earlier.unlink()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RegistrationsError(f"{earlier}: {error}") from error

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, ValueError, TypeError) as error:
            raise RegistrationsError(f"{self._path}: {error}") from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Write all of a block, durably, or nothing (`RegistrationsError`)."""
        connection = self.connection
        with self._lock, self._errors():
            try:
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("SELECT mark FROM owner").fetchone() != (self._mark,):
                    raise RegistrationsError(f"{self._path}: {TAKEN_OVER}")
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def load(self) -> tuple[dict[Term, list[str] | None], list[Registration]]:
        """Read the streams with their declared predicates, and the queries."""
        select = self.connection.execute
        with self._errors():
            streams = select("SELECT name, declared FROM streams ORDER BY rowid").fetchall()
            queries = select("SELECT registration FROM queries ORDER BY position").fetchall()
            declared = {Term(name): json.loads(predicates) for name, predicates in streams}
            return declared, [Registration(**json.loads(each)) for (each,) in queries]

    def save(
        self, streams: Mapping[Term, Sequence[str] | None], queries: Iterable[Registration]
    ) -> None:
        """Replace streams and queries, durably."""
        with self.writing() as connection:
            connection.execute("DELETE FROM streams")
            connection.execute("DELETE FROM queries")
            connection.executemany(
                "INSERT INTO streams VALUES (?, ?)",
                [(name, json.dumps(declared)) for name, declared in streams.items()],
            )
            connection.executemany(
                "INSERT INTO queries (registration) VALUES (?)",
                [(json.dumps(asdict(each)),) for each in queries],
            )

    def take_results(self) -> KeptResults:
        """Read what an earlier server kept, and remove it where there are no steps."""
        begins: dict[str, int] = {}
        events: defaultdict[str, list[_KeptEvent]] = defaultdict(list)
        with self.writing() as connection:
            select = connection.execute
            for query, number, rows, text in select("SELECT * FROM emissions ORDER BY 1, 2"):
                if text is None:
                    begins[query] = number
                else:
                    events[query].append((number, rows, text))
            batches = select("SELECT * FROM receipts ORDER BY rowid").fetchall()
            pushed = {name: (after, until) for name, after, until in select("SELECT * FROM pushed")}
            if not self._steps:
                self._remove_results()
        logs = {name: KeptLog(begin, tuple(events[name])) for name, begin in begins.items()}
        return logs, batches, pushed

    def _remove_results(self) -> None:
        for table in ("emissions", "receipts", "pushed"):
            self.connection.execute(f"DELETE FROM {table}")  # noqa: S608

    def save_results(
        self, logs: Mapping[str, KeptLog], batches: list[KeptBatch], pushed: Positions
    ) -> None:
        """Write results durably; a failure is logged, because the server stops anyway."""
        rows: list[tuple[str, int, int, str | None]] = []
        for name, log in logs.items():
            rows += [(name, log.begin, 0, None), *((name, *each) for each in log.events)]
        try:
            with self.writing() as connection:
                self._remove_results()
                connection.executemany("INSERT INTO emissions VALUES (?, ?, ?, ?)", rows)
                connection.executemany("INSERT INTO receipts VALUES (?, ?, ?, ?, ?)", batches)
                connection.executemany(
                    "INSERT INTO pushed VALUES (?, ?, ?)",
                    [(name, *position) for name, position in pushed.items()],
                )
        except RegistrationsError as error:
            _log.warning("results are not kept: %s", error)

    def close(self) -> None:
        with self._lock:
            self.connection.close()


# What became of batches of elements.

_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of a batch of elements.

    Args:
        dropped: elements that came too late for CQELS-QL.
        late: elements that came after an answer in C-SPARQL that should have seen them.
        repeated: the batch had come before; nothing was done.
    """

    accepted: int
    refused: tuple[ElementError, ...]
    dropped: int
    late: int
    repeated: bool = False


class Receipts:
    """The receipts of the last batches with an identifier."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Term, str], Receipt] = {}

    def repeated(self, stream: Term, batch: str | None) -> Receipt | None:
        """Return the receipt of a batch that came before, or ``None``."""
        result = None if batch is None else self._kept.get((stream, batch))
        return None if result is None else replace(result, repeated=True)

    def forget(self, stream: Term) -> None:
        self._kept = {key: receipt for key, receipt in self._kept.items() if key[0] != stream}

    def listed(self) -> list[KeptBatch]:
        return [
            (stream, batch, each.accepted, each.dropped, each.late)
            for (stream, batch), each in self._kept.items()
        ]

    def take_up(self, batches: Iterable[KeptBatch]) -> None:
        """Add the batches of an earlier server."""
        for stream, batch, accepted, dropped, late in batches:
            self.keep(Term(stream), batch, Receipt(accepted, (), dropped, late))

    def keep(self, stream: Term, batch: str | None, receipt: Receipt) -> None:
        if batch is None:
            return
        self._kept[stream, batch] = receipt
        if len(self._kept) > _REMEMBERED:
            del self._kept[next(iter(self._kept))]


_PORTION: Final = 1_000
_EMISSION: Final = 250
_ROW: Final = 60
"""About the bytes that an emission and a row take beside the text of their terms."""


_NOTHING: Final = Emission(0, 0, ())


class ResultMemory:
    """Count the bytes of the emissions of all queries."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    @property
    def full(self) -> bool:
        return self.taken > self.limit

    def take(self, size: int) -> None:
        """Count bytes more, or fewer."""
        self.taken += size


class Event:
    """An emission in a log; `emission` is ``None`` once there is a text of it."""

    __slots__ = ("_text", "emission", "number", "rows", "size")

    def __init__(self, number: int, emission: Emission) -> None:
        self.number = number
        self.emission: Emission | None = emission
        self.rows = len(emission.rows)
        terms = sum([len(term) for row in emission.rows for term in row if term is not None])
        self.size = _EMISSION + _ROW * self.rows + terms
        self._text = ""

    @classmethod
    def written(cls, number: int, rows: int, text: str) -> "Event":
        event = cls(number, _NOTHING)
        event.emission, event.rows, event._text = None, rows, text
        event.size = _EMISSION + len(text)
        return event

    def text(self, encode: Callable[[Emission], str]) -> str:
        """Return the text, encoded once, always by the same function."""
        if self.emission is not None:
            self._text = encode(self.emission)
            self.emission = None
        return self._text

    def read(self, decode: Callable[[str], Emission]) -> Emission:
        """Return the emission, decoded where there is only a text."""
        return decode(self._text) if self.emission is None else self.emission


class ResultLog:
    """Keep and number the last emissions. Thread-safe.

    Readers that are too slow meet a `BacklogError`.

    Args:
        rows: of all kept emissions together; the last emission is kept anyway.
        memory: shared with other logs; whoever appends gives way, but for its last emission.
        holds: emissions wait for `release`.

    Attributes:
        begin: the number before the first emission.
        last: that of the last one, or `begin`.
        encoded: count of emissions that became texts.
    """

    def __init__(
        self,
        limit: int,
        rows: int,
        begin: int = 0,
        memory: ResultMemory | None = None,
        *,
        holds: bool = False,
    ) -> None:
        self._kept: deque[Event] = deque()
        self._held: list[Event] = []
        self._holds = holds
        self._memory = memory or ResultMemory(sys.maxsize)
        self._encoding = threading.Lock()
        self.encoded = 0
        self._limit = limit
        self._most_rows = rows
        self._rows = 0
        self.begin = self.last = begin
        self._error: ContinuousError | None = None
        self._closed = False
        self._changed = threading.Condition()

    @property
    def oldest(self) -> int:
        """The number of the oldest kept emission, or of the next one."""
        with self._changed:
            return self.last - len(self._kept) + 1

    def check(self, number: int) -> None:
        """Check that an emission of this run had the number (`UnknownEventError`)."""
        if not self.begin <= number <= self.last:
            raise UnknownEventError(
                f"event {number} is none of this run of the query, whose events are numbered from "
                f"{self.begin + 1}: read without a number to begin with the oldest that is kept"
            )

    @property
    def count(self) -> int:
        return self.last - self.begin + len(self._held)

    def append(self, emission: Emission) -> None:
        event = Event(self.begin + self.count + 1, emission)
        if self._holds:
            self._held.append(event)
        else:
            self._show([event])

    def held(self, encode: Callable[[Emission], str]) -> list[_KeptEvent]:
        """Return the emissions that wait for `release`."""
        return [(event.number, event.rows, event.text(encode)) for event in self._held]

    def release(self) -> None:
        events, self._held = self._held, []
        self._show(events)

    def _show(self, events: Sequence[Event]) -> None:
        with self._changed:
            kept = self._kept
            for event in events:
                self._keep(event)
                while len(kept) > self._limit or (len(kept) > 1 and self._too_much()):
                    gone = kept.popleft()
                    self._rows -= gone.rows
                    self._memory.take(-gone.size)
            self._changed.notify_all()

    def _keep(self, event: Event) -> None:
        self._kept.append(event)
        self.last = event.number
        self._rows += event.rows
        self._memory.take(event.size)

    def _too_much(self) -> bool:
        return self._rows > self._most_rows or self._memory.full

    def discard(self) -> None:
        with self._changed:
            self._memory.take(-sum(each.size for each in self._kept))
            self._memory = ResultMemory(sys.maxsize)

    def close(self, error: ContinuousError | None = None) -> None:
        with self._changed:
            self._closed = True
            self._error = self._error or error
            self._changed.notify_all()

    def kept(self, encode: Callable[[Emission], str]) -> KeptLog:
        """Return the log for the next server."""
        with self._changed:
            events = list(self._kept)
        rows = {event.number: event.rows for event in events}
        texts = self.texts(events, encode)
        return KeptLog(self.begin, tuple((number, rows[number], text) for number, text in texts))

    def take_up(self, kept: KeptLog) -> None:
        """Resume the log of an earlier server, before `append`."""
        with self._changed:
            self.begin = self.last = kept.begin
            for number, rows, text in kept.events:
                self._keep(Event.written(number, rows, text))

    def texts(
        self, events: Iterable[Event], encode: Callable[[Emission], str]
    ) -> list[tuple[int, str]]:
        """Return numbers and texts, encoded once for all readers."""
        with self._encoding:
            result = []
            for event in events:
                self.encoded += event.emission is not None
                result.append((event.number, event.text(encode)))
            return result

    def emissions(
        self, events: Iterable[Event], decode: Callable[[str], Emission]
    ) -> list[tuple[int, Emission]]:
        with self._encoding:
            return [(event.number, event.read(decode)) for event in events]

    def read(self, after: int, seconds: float) -> list[Event] | None:
        """Read up to a thousand emissions after this number; wait for the first one.

        The list is empty after the wait; ``None`` is the end. Raises the error that stopped the
        query, or `BacklogError`: some emissions are gone.
        """
        with self._changed:
            if after >= self.last and not self._closed:
                self._changed.wait(seconds)
            first = self.oldest
            if after + 1 < first:
                raise BacklogError(f"results {after + 1} to {first - 1} are no longer kept")
            start = after + 1 - first
            result = list(islice(self._kept, start, start + _PORTION))
            if result:
                return result
            if self._error is not None:
                raise self._error
            return None if self._closed else []
