"""The last emissions of queries, for readers that come, go and resume, and over restarts."""

import contextlib
import fcntl
import json
import logging
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from annotations.terms import Term
from annotations.whole_files import make_durable, replaced_file
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.errors import (
    BacklogError,
    ContinuousError,
    ElementError,
    RegistrationsError,
    UnknownEventError,
)

# Which of several processes may write the files of a server: the one that was started last.
#
# A worker whose parent was killed lives on for a while, maybe beside the next server.

TAKEN_OVER: Final = "another server has begun with it"


class _Ownership:
    """Mark in a file which process may write beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark: str | None = None

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take it from the owner; no other process writes within the block."""
        with self._locked() as file:
            self._mark = secrets.token_hex(16)
            file.truncate(0)
            file.write(self._mark)
            file.flush()
            yield

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Give True to the owner, also of a file without one; it stays owner within the block."""
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


_log = logging.getLogger(__name__)
_FORMAT: Final = "tpf-server results 1"
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
    last: int
    events: tuple[_KeptEvent, ...]


KeptBatch: TypeAlias = tuple[str, str, int, int, int]
"""A stream and the identifier of a batch; how many of it were accepted, dropped and late."""


KeptResults: TypeAlias = tuple[dict[str, KeptLog], list[KeptBatch], Positions]
"""The logs of queries, the receipts of batches, and positions in pushing."""


# What was registered, kept in a file, so that a server that starts again has it again.

_REGISTRATIONS_FORMAT: Final = "tpf-server registrations 1"


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
    """A file of streams and queries, replaced whole; beside it one of their results.

    Results are written when a server stops and removed when the next one reads them: numbers of
    emissions continue there, which would be wrong after a server that could not write them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results = path.with_name(f"{path.stem}-results.json")
        self._ownership = _Ownership(path.with_name(f"{path.stem}-owner"))

    def take(self) -> tuple[dict[Term, list[str] | None], list[Registration]]:
        """Load, and keep earlier servers from writing."""
        try:
            # Earlier writes of another server are read; later ones it is refused.
            with self._ownership.taken():
                return self.load()
        except OSError as error:
            raise RegistrationsError(f"{self._path}: {error}") from error

    def load(self) -> tuple[dict[Term, list[str] | None], list[Registration]]:
        """Read the streams with their declared predicates, and the queries."""
        with _reading(self._path):
            if not self._path.exists():
                return {}, []
            value = _checked(json.loads(self._path.read_text("utf-8")), _REGISTRATIONS_FORMAT)
            declared = value.get("declared", {})
            streams = {Term(name): declared.get(name) for name in value["streams"]}
            return streams, [Registration(**each) for each in value["queries"]]

    def save(
        self, streams: Mapping[Term, Sequence[str] | None], queries: Iterable[Registration]
    ) -> None:
        """Replace the content, durably."""
        body: dict[str, Any] = {
            "format": _REGISTRATIONS_FORMAT,
            "streams": list(streams),
            "declared": {name: list(each) for name, each in streams.items() if each is not None},
            "queries": [asdict(each) for each in queries],
        }
        self._write(self._path, body, 1)

    def take_results(self) -> KeptResults:
        with _reading(self._results):
            with self._ownership.held() as mine:
                if not mine:
                    _log.warning("results are not taken up: %s: %s", self._results, TAKEN_OVER)
                    return {}, [], {}
                if not self._results.exists():
                    return {}, [], {}
                text = self._results.read_text("utf-8")
                # Also where it is malformed: the next start passes it over.
                self._results.unlink()
                make_durable(self._results.parent)
            value = _checked(json.loads(text), _FORMAT)
            logs = {
                name: KeptLog(each["begin"], each["last"], tuple(map(tuple, each["events"])))
                for name, each in value["queries"].items()
            }
            pushed = {
                name: (last, until) for name, (last, until) in value.get("pushed", {}).items()
            }
            return logs, [tuple(each) for each in value["batches"]], pushed

    def save_results(
        self, logs: Mapping[str, KeptLog], batches: list[KeptBatch], pushed: Positions
    ) -> None:
        """Write results durably; a failure is logged, because the server stops anyway."""
        queries = {
            name: {"begin": each.begin, "last": each.last, "events": each.events}
            for name, each in logs.items()
        }
        body = {"format": _FORMAT, "queries": queries, "batches": batches, "pushed": pushed}
        try:
            self._write(self._results, body, None)
        except RegistrationsError as error:
            _log.warning("results are not kept: %s", error)

    def _write(self, path: Path, body: Mapping[str, Any], indent: int | None) -> None:
        try:
            with self._ownership.held() as mine:
                if not mine:
                    raise RegistrationsError(f"{path}: {TAKEN_OVER}")
                with replaced_file(path) as file:
                    json.dump(body, file, indent=indent)
        except OSError as error:
            raise RegistrationsError(f"{path}: {error}") from error


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RegistrationsError(f"{path}: {error}") from error


def _checked(value: Any, expected: str) -> Any:
    if value["format"] != expected:
        raise ValueError(f"format {value['format']!r}")
    return value


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
        self._size = 0
        self._encoding = threading.Lock()
        self.encoded = 0
        self._limit = limit
        self._most_rows = rows
        self._rows = 0
        self.begin = self._last = begin
        self._error: ContinuousError | None = None
        self._closed = False
        self._changed = threading.Condition()

    @property
    def last(self) -> int:
        """The number of the last emission, or the one before the first."""
        return self._last

    @property
    def oldest(self) -> int:
        """The number of the oldest kept emission, or of the next one."""
        with self._changed:
            return self._last - len(self._kept) + 1

    def check(self, number: int) -> None:
        """Check that an emission of this run had the number (`UnknownEventError`)."""
        if not self.begin <= number <= self._last:
            raise UnknownEventError(
                f"event {number} is none of this run of the query, whose events are numbered from "
                f"{self.begin + 1}: read without a number to begin with the oldest that is kept"
            )

    @property
    def count(self) -> int:
        return self._last - self.begin + len(self._held)

    def append(self, emission: Emission) -> None:
        """Append an emission, and wake the readers."""
        event = Event(self.begin + self.count + 1, emission)
        if self._holds:
            self._held.append(event)
        else:
            self._show([event])

    @property
    def holds(self) -> bool:
        """True where emissions wait for `release`."""
        return bool(self._held)

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
                kept.append(event)
                self._last = event.number
                self._rows += event.rows
                self._take(event.size)
                while len(kept) > self._limit or (len(kept) > 1 and self._too_much()):
                    gone = kept.popleft()
                    self._rows -= gone.rows
                    self._take(-gone.size)
            self._changed.notify_all()

    def _too_much(self) -> bool:
        return self._rows > self._most_rows or self._memory.full

    def _take(self, size: int) -> None:
        self._size += size
        self._memory.take(size)

    def discard(self) -> None:
        with self._changed:
            self._take(-self._size)
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
            begin, last = self.begin, self._last
        rows = {event.number: event.rows for event in events}
        texts = self.texts(events, encode)
        return KeptLog(begin, last, tuple((number, rows[number], text) for number, text in texts))

    def take_up(self, kept: KeptLog) -> None:
        """Resume the log of an earlier server, before `append`."""
        with self._changed:
            self.begin, self._last = kept.begin, kept.last
            for number, rows, text in kept.events:
                event = Event.written(number, rows, text)
                self._kept.append(event)
                self._rows += event.rows
                self._take(event.size)

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
            if after >= self._last and not self._closed:
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
