"""Time as an argument: a `SystemClock` in programs, a `ManualClock` in tests and replays."""

import heapq
import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from annotations.instants import utc


class Clock(Protocol):
    """Tells the time and waits for it."""

    def now(self) -> datetime:
        """The present instant, in UTC."""

    def wait_until(self, instant: datetime, cancelled: threading.Event | None = None) -> bool:
        """Return ``True`` at `instant` (at once if it is past), ``False`` as soon as cancelled."""

    def wait(self, duration: timedelta, cancelled: threading.Event | None = None) -> bool:
        """Wait for a duration, also while the clock is set; ``False`` as soon as cancelled."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wait_until(self, instant: datetime, cancelled: threading.Event | None = None) -> bool:
        """Return ``True`` at `instant`, ``False`` as soon as `cancelled` is set."""
        while (seconds := (instant - self.now()).total_seconds()) > 0:
            # Short naps, because the clock of the machine may be set while we sleep.
            if not self.wait(timedelta(seconds=min(seconds, 60.0)), cancelled):
                return False
        return cancelled is None or not cancelled.is_set()

    def wait(self, duration: timedelta, cancelled: threading.Event | None = None) -> bool:
        return not (cancelled or threading.Event()).wait(duration.total_seconds())


class ManualClock:
    """A clock that moves only when advanced or waited on."""

    def __init__(self, start: datetime) -> None:
        self._now = utc(start)
        self._agenda: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._now

    def schedule(self, instant: datetime, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (utc(instant), next(self._order), action))

    def advance_to(self, instant: datetime) -> None:
        """Call everything scheduled up to `instant`; `ValueError` if it has passed."""
        instant = utc(instant)
        if instant < self._now:
            raise ValueError(f"a clock does not go back: {instant} is before {self._now}")
        while self._agenda and self._agenda[0][0] <= instant:
            due, _, action = heapq.heappop(self._agenda)
            self._now = max(self._now, due)
            action()
        self._now = instant

    def wait_until(self, instant: datetime, cancelled: threading.Event | None = None) -> bool:
        """Advance to `instant`; return ``False`` if cancelled before or meanwhile."""
        if cancelled is not None and cancelled.is_set():
            return False
        if instant > self._now:
            self.advance_to(instant)
        return cancelled is None or not cancelled.is_set()

    def wait(self, duration: timedelta, cancelled: threading.Event | None = None) -> bool:
        return self.wait_until(self._now + duration, cancelled)
