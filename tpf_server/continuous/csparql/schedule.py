"""Which query is to be evaluated next, and which ones wait for an element to begin with."""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from annotations.terms import Term
from tpf_server.continuous.csparql.registered_query import RegisteredQuery

_SPARE: Final = 64


class Schedule:
    """The next instants of queries, in the order of time, then of who feeds whom.

    Finding the next one costs the logarithm of how many there are. An instant that is given up
    stays in the heap until it would be the next one, or most of the heap are such.
    """

    def __init__(self) -> None:
        self._due: list[tuple[int, int, int, RegisteredQuery]] = []
        self._planned = 0
        self._idle: dict[RegisteredQuery, None] = {}
        self._idle_readers: dict[Term, dict[RegisteredQuery, None]] = {}

    def plan(self, registered: RegisteredQuery, at: int) -> None:
        """A query is to be evaluated at this instant next."""
        self._planned += registered.next is None
        registered.next = at
        heapq.heappush(self._due, (at, registered.rank, registered.number, registered))
        self._tidy(_SPARE)

    def rest(self, registered: RegisteredQuery) -> None:
        """A query has no next instant before an element comes, or somebody asks."""
        self._give_up(registered)
        self._idle[registered] = None
        for stream in registered.reads:
            self._idle_readers.setdefault(stream, {})[registered] = None

    def wake(self, registered: RegisteredQuery) -> None:
        """It does not wait any more."""
        if registered in self._idle:
            del self._idle[registered]
            for stream in registered.reads:
                del self._idle_readers[stream][registered]

    def drop(self, registered: RegisteredQuery) -> None:
        """A query is never evaluated again."""
        self.wake(registered)
        self._give_up(registered)

    def _give_up(self, registered: RegisteredQuery) -> None:
        self._planned -= registered.next is not None
        registered.next = None
        self._tidy(0)

    def _tidy(self, spare: int) -> None:
        if len(self._due) > 2 * self._planned + spare:
            self._due = [each for each in self._due if each[3].next == each[0]]
            heapq.heapify(self._due)

    def idle(self, stream: Term | None = None) -> tuple[RegisteredQuery, ...]:
        """Those that wait for an element: of this stream, or of any."""
        return tuple(self._idle if stream is None else self._idle_readers.get(stream, ()))

    def rearrange(self, queries: Iterable[RegisteredQuery]) -> None:
        """Who feeds whom has changed."""
        self._due = [
            (each.next, each.rank, each.number, each) for each in queries if each.next is not None
        ]
        heapq.heapify(self._due)

    def due(self, until: int) -> Iterator[tuple[int, RegisteredQuery]]:
        """Those that are due until an instant; more may be planned meanwhile."""
        while self._due and self._due[0][0] <= until:
            at, _, _, registered = heapq.heappop(self._due)
            # Those that were closed, or rest, stay in the heap until then.
            if registered.next == at and registered.state == "running":
                yield at, registered

    def __len__(self) -> int:
        """How many instants are planned, and how many queries wait."""
        return len(self._due) + len(self._idle)
