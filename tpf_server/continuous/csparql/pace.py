"""How often queries are evaluated where the system is to say it: as often as it can keep up with.

Where a query does not say COMPUTED EVERY, its windows say when it is evaluated, and the load by how
much rarer. Source: paper 003, section 2.4 with footnote 4.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from tpf_server.continuous.csparql.periodic_query import PeriodicQuery

MOST_FACTOR: Final = 64
"""Times the step of a query, at most."""
_TOO_MUCH: Final = 0.75
_LITTLE: Final = 0.5


class Widen(StrEnum):
    """Whose steps grow."""

    NEVER = "never"
    UNSTATED = "unstated"
    """Those of queries that do not say COMPUTED EVERY."""
    ALL = "all"


class Pace:
    """Widens the steps of queries by a factor, the same for all, while evaluations take too long.

    The load is the sum over all queries of what an evaluation takes by its step. The factor doubles
    where that is above three quarters, and halves where half of it would still do with less than a
    half. Of the last two evaluations of a query the shorter one counts, so that a single long one,
    as the first may be, does not.

    Args:
        seconds: tells the seconds that were worked so far.
        whose: steps that are widened.

    Attributes:
        factor: by which steps are wider than they are written.
    """

    def __init__(self, seconds: Callable[[], float], whose: Widen = Widen.UNSTATED) -> None:
        self.seconds = seconds
        self.factor = 1
        self._whose = whose
        self._because = ""
        self._queries: dict[PeriodicQuery, None] = {}
        self._last: dict[PeriodicQuery, float] = {}
        self._loads: dict[PeriodicQuery, float] = {}
        self._fixed = 0.0
        self._free = 0.0

    def add(self, registered: PeriodicQuery) -> None:
        """A query is registered."""
        if (registered.widens and registered.query.instants.periods) and (
            self._whose is Widen.ALL
            or (self._whose is Widen.UNSTATED and not registered.states_period)
        ):
            self._queries[registered] = None
            registered.widen(self.factor, self._because)

    def remove(self, registered: PeriodicQuery) -> None:
        """It is registered no more."""
        self.rest(registered)
        self._queries.pop(registered, None)

    def rest(self, registered: PeriodicQuery) -> None:
        """It is not evaluated for now, and so no load."""
        if self._last.pop(registered, None) is not None:
            self._load(registered, 0.0)
            del self._loads[registered]
            self._adapt()

    def evaluated(self, registered: PeriodicQuery, seconds: float) -> None:
        """An evaluation took so long."""
        if registered.state != "running":
            return  # what it took had an end with it
        cost = min(seconds, self._last.get(registered, 0.0))
        self._last[registered] = seconds
        self._load(
            registered, sum(1000 * cost / each for each in registered.query.instants.periods)
        )
        self._adapt()

    def _load(self, registered: PeriodicQuery, load: float) -> None:
        more = load - self._loads.get(registered, 0.0)
        self._loads[registered] = load
        if registered in self._queries:
            self._free += more
        else:
            self._fixed += more

    def _at(self, factor: float) -> float:
        return self._fixed + self._free / factor

    def _adapt(self) -> None:
        factor = self.factor
        while self._at(factor) > _TOO_MUCH and self._free > 0 and factor < MOST_FACTOR:
            factor *= 2
        while factor > 1 and self._at(factor / 2) < _LITTLE:
            factor //= 2
        if factor != self.factor:
            self.factor = factor
            self._because = (
                f"evaluations would take {self._at(1):.2f} seconds of CPU per second, "
                f"and take {self._at(factor):.2f}"
            )
            for each in self._queries:
                each.widen(factor, self._because)
