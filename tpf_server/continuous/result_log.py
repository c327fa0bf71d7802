"""The latest emissions of a query, for readers that come and go and resume."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.errors import BacklogError, ContinuousError, UnknownEventError
from tpf_server.continuous.kept_results import KeptLog

_PORTION: Final = 1_000
_EMISSION: Final = 250
_ROW: Final = 60
"""About the bytes that an emission and a row take beside the text of their terms."""


_NOTHING: Final = Emission(0, 0, ())


class ResultMemory:
    """What the emissions of all queries may take together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0


class Event:
    """An emission that is kept.

    Attributes:
        emission: what was emitted; ``None`` once there is a text of it.
    """

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
        """An emission of which there is a text already."""
        event = cls(number, _NOTHING)
        event.emission, event.rows, event._text = None, rows, text
        event.size = _EMISSION + len(text)
        return event

    def text(self, encode: Callable[[Emission], str]) -> str:
        """Its text, made when first asked for; always with the same function."""
        if self.emission is not None:
            self._text = encode(self.emission)
            self.emission = None
        return self._text

    def read(self, decode: Callable[[str], Emission]) -> Emission:
        """The emission, also where there is only a text of it."""
        return decode(self._text) if self.emission is None else self.emission


class ResultLog:
    """Keeps the last emissions; every one has a number.

    Readers remember where they are; the log remembers no readers. One that stopped reading for so
    long that what it needs next is gone meets a `BacklogError`. Thread-safe.

    Args:
        rows: how many rows these may have together; the last emission is kept whatever it has.
        memory: of this and other logs; one that has more than one emission gives way.

    Attributes:
        encoded: how many emissions were made into texts.
    """

    def __init__(
        self, limit: int, rows: int, begin: int = 0, memory: ResultMemory | None = None
    ) -> None:
        self._kept: deque[Event] = deque()
        self._memory = memory
        self._size = 0
        self._encoding = threading.Lock()
        self.encoded = 0
        self._limit = limit
        self._most_rows = rows
        self._rows = 0
        self._begin = self._last = begin
        self._error: ContinuousError | None = None
        self._closed = False
        self._changed = threading.Condition()

    @property
    def last(self) -> int:
        """The number of the last emission; before the first one, the number before that."""
        return self._last

    @property
    def oldest(self) -> int:
        """The number of the oldest emission that is kept; of the next one where there is none."""
        with self._changed:
            return self._last - len(self._kept) + 1

    def check(self, number: int) -> None:
        """Check that a reader can go on after this number.

        Raises:
            UnknownEventError: no emission here has had it.
        """
        if not self._begin <= number <= self._last:
            raise UnknownEventError(
                f"event {number} is none of this run of the query, whose events are numbered from "
                f"{self._begin + 1}: read without a number to begin with the oldest that is kept"
            )

    def append(self, emission: Emission) -> None:
        """Keep an emission, and wake the readers."""
        with self._changed:
            kept = self._kept
            self._last += 1
            event = Event(self._last, emission)
            kept.append(event)
            self._rows += event.rows
            self._take(event.size)
            while len(kept) > self._limit or (len(kept) > 1 and self._too_much()):
                gone = kept.popleft()
                self._rows -= gone.rows
                self._take(-gone.size)
            self._changed.notify_all()

    def _too_much(self) -> bool:
        memory = self._memory
        return self._rows > self._most_rows or (memory is not None and memory.taken > memory.limit)

    def _take(self, size: int) -> None:
        self._size += size
        if self._memory is not None:
            self._memory.taken += size

    def discard(self) -> None:
        """Nobody will read it any more; what it takes is for others."""
        with self._changed:
            self._take(-self._size)
            self._memory = None

    def close(self, error: ContinuousError | None = None) -> None:
        """There will be no more."""
        with self._changed:
            self._closed = True
            self._error = self._error or error
            self._changed.notify_all()

    def kept(self, encode: Callable[[Emission], str]) -> KeptLog:
        """What is kept, for the log of the same query in a server that is started later."""
        with self._changed:
            events = list(self._kept)
            begin, last = self._begin, self._last
        rows = {event.number: event.rows for event in events}
        texts = self.texts(events, encode)
        return KeptLog(begin, last, tuple((number, rows[number], text) for number, text in texts))

    def take_up(self, kept: KeptLog) -> None:
        """Go on where a log of the same query ended, before anything is appended."""
        with self._changed:
            self._begin, self._last = kept.begin, kept.last
            for number, rows, text in kept.events:
                event = Event.written(number, rows, text)
                self._kept.append(event)
                self._rows += event.rows
                self._take(event.size)

    def texts(
        self, events: Iterable[Event], encode: Callable[[Emission], str]
    ) -> list[tuple[int, str]]:
        """Numbers and texts of emissions; a text is made once for all readers."""
        with self._encoding:
            found = []
            for event in events:
                self.encoded += event.emission is not None
                found.append((event.number, event.text(encode)))
            return found

    def emissions(
        self, events: Iterable[Event], decode: Callable[[str], Emission]
    ) -> list[tuple[int, Emission]]:
        """Numbers and emissions; those that were made into texts are made of these."""
        with self._encoding:
            return [(event.number, event.read(decode)) for event in events]

    def read(self, after: int, seconds: float) -> list[Event] | None:
        """The emissions after this number (at most a thousand), waiting for the first one.

        Returns:
            These; nothing where none came in time; ``None`` at the end.

        Raises:
            BacklogError: some of them are gone.
            ContinuousError: the query was stopped.
        """
        with self._changed:
            if after >= self._last and not self._closed:
                self._changed.wait(seconds)
            first = self.oldest
            if after + 1 < first:
                raise BacklogError(f"results {after + 1} to {first - 1} are no longer kept")
            start = after + 1 - first
            found = list(islice(self._kept, start, start + _PORTION))
            if found:
                return found
            if self._error is not None:
                raise self._error
            return None if self._closed else []
