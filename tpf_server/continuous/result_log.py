"""The latest emissions of a query, for readers that come and go and resume."""

import threading
from collections import deque
from itertools import islice

from tpf_server.cqels.delivery import Emission
from tpf_server.cqels.errors import BacklogError, ContinuousError, UnknownEventError

_PORTION = 1_000


class ResultLog:
    """Keeps the last emissions; every one has a number.

    Readers remember where they are; the log remembers no readers. One that stopped reading for so
    long that what it needs next is gone meets a `BacklogError`. Thread-safe.

    Args:
        limit: how many emissions are kept.
        rows: how many rows these may have together; the last emission is kept whatever it has.
        begin: the number before that of the first emission.
    """

    def __init__(self, limit: int, rows: int, begin: int = 0) -> None:
        self._kept: deque[Emission] = deque()
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
            kept.append(emission)
            self._rows += len(emission.rows)
            while len(kept) > self._limit or (self._rows > self._most_rows and len(kept) > 1):
                self._rows -= len(kept.popleft().rows)
            self._last += 1
            self._changed.notify_all()

    def close(self, error: ContinuousError | None = None) -> None:
        """There will be no more."""
        with self._changed:
            self._closed = True
            self._error = self._error or error
            self._changed.notify_all()

    def read(self, after: int, seconds: float) -> list[tuple[int, Emission]] | None:
        """The emissions after this number (at most a thousand), waiting for the first one.

        Returns:
            Them with their numbers; nothing where none came in time; ``None`` at the end.

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
                return list(enumerate(found, after + 1))
            if self._error is not None:
                raise self._error
            return None if self._closed else []
