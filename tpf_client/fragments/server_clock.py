"""The clock of a server, as far as its responses tell.

A ``Date`` field has a resolution of one second, so one response bounds the offset between the two
clocks by a second and its round trip; the bounds of several responses are intersected. Bounds grow
with time, because clocks drift.
"""

import threading
from datetime import datetime, timedelta

from annotations.clock import Clock
from annotations.instants import shifted

_SECOND = timedelta(seconds=1)
_DRIFT = 2e-4
_ZERO = timedelta(0)


class ServerClock:
    """Bounds of the offset of a server's clock from ours. Thread-safe.

    Args:
        clock: our clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._low: timedelta | None = None
        self._high = _ZERO
        self._updated: datetime | None = None

    def observe_date(self, date: datetime, sent: datetime, received: datetime) -> None:
        """A response that was made between `sent` and `received` (ours) carries this ``Date``."""
        self._observe(date - received, date - sent + _SECOND)

    def observe_instant(self, instant: datetime, sent: datetime, received: datetime) -> None:
        """The server's clock stood at exactly `instant` between `sent` and `received` (ours)."""
        self._observe(instant - received, instant - sent)

    def _observe(self, low: timedelta, high: timedelta) -> None:
        with self._lock:
            now = self._clock.now()
            if self._low is not None and self._updated is not None:
                slack = abs(now - self._updated) * _DRIFT
                old_low, old_high = self._low - slack, self._high + slack
                if old_low <= high and low <= old_high:
                    low, high = max(low, old_low), min(high, old_high)
                # Otherwise somebody set a clock: only what we just saw counts.
            self._low, self._high, self._updated = low, high, now

    @property
    def known(self) -> bool:
        """Whether any response told the time."""
        return self._low is not None

    def now(self) -> datetime:
        """The instant that the server's clock has surely reached.

        The earliest that the bounds allow, so that we never take a fact for ended that the server
        still shows.
        """
        with self._lock:
            return shifted(self._clock.now(), _ZERO if self._low is None else self._low)

    def local(self, instant: datetime) -> datetime:
        """The instant on our clock at which the server's has surely reached `instant`."""
        with self._lock:
            return shifted(instant, _ZERO if self._low is None else -self._low)

    def bounded(self, date: datetime, sent: datetime) -> datetime:
        """Our best estimate of when the server answered a request that we sent at `sent`.

        Not before its ``Date``, and within the same second.
        """
        with self._lock:
            offset = _ZERO if self._low is None else self._low
            latest = shifted(date, _SECOND - timedelta(microseconds=1))
            return min(max(date, shifted(sent, offset)), latest)
