"""When to evaluate next."""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from annotations.instants import shifted

_ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often a continuous query may and must be evaluated.

    Args:
        min_interval: the least time between two evaluations.
        max_interval: the most time between two evaluations; ``None``: as long as nothing expires.
        every: evaluate in this period, whatever expires; ``None``: when something expires.
        jitter: up to this much is added at random, so that many clients do not come at once.
        least: the least time between two evaluations whatever anybody says: no busy loop.
        retry: the first pause after a failure, doubled for each further one.
        max_retry: the longest pause after a failure.
        chance: where jitter comes from.
    """

    min_interval: timedelta = _ZERO
    max_interval: timedelta | None = None
    every: timedelta | None = None
    jitter: timedelta = _ZERO
    least: timedelta = timedelta(milliseconds=100)
    retry: timedelta = timedelta(seconds=1)
    max_retry: timedelta = timedelta(minutes=1)
    chance: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def next(self, evaluated_at: datetime, due: datetime | None) -> datetime | None:
        """The instant of the next evaluation; ``None``: never.

        Args:
            evaluated_at: the instant of the last one.
            due: when the first fact that was looked at expires.
        """
        if self.every is not None:
            instant: datetime | None = shifted(evaluated_at, self.every)
        else:
            instant = due
            if self.max_interval is not None:
                latest = shifted(evaluated_at, self.max_interval)
                instant = latest if instant is None else min(instant, latest)
        if instant is None:
            return None
        earliest = shifted(evaluated_at, max(self.min_interval, self.least))
        return shifted(max(instant, earliest), self._some(self.jitter))

    def pause(self, failures: int) -> timedelta:
        """How long to wait after so many failures in a row: a half of it at random."""
        longest: timedelta = min(self.retry * 2 ** min(failures - 1, 16), self.max_retry)
        return longest / 2 + self._some(longest / 2)

    def _some(self, most: timedelta) -> timedelta:
        part: float = self.chance.random()
        return most * part
