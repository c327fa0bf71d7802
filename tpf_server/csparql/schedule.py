"""Which query is to be evaluated next, and which ones wait for an element to begin with."""

import heapq
from collections.abc import Iterable, Iterator

from annotations.terms import Term
from tpf_server.csparql.registered_query import RegisteredQuery


class Schedule:
    """The next instants of queries, in the order of time, then of who feeds whom.

    Finding the next one costs the logarithm of how many there are.
    """

    def __init__(self) -> None:
        self._due: list[tuple[int, int, int, RegisteredQuery]] = []
        self._idle: dict[RegisteredQuery, None] = {}
        self._idle_readers: dict[Term, dict[RegisteredQuery, None]] = {}

    def plan(self, registered: RegisteredQuery, at: int) -> None:
        """A query is to be evaluated at this instant next."""
        registered.next = at
        heapq.heappush(self._due, (at, registered.rank, registered.number, registered))

    def rest(self, registered: RegisteredQuery) -> None:
        """A query has no next instant before an element comes, or somebody asks."""
        registered.next = None
        self._idle[registered] = None
        for stream in registered.reads:
            self._idle_readers.setdefault(stream, {})[registered] = None

    def wake(self, registered: RegisteredQuery) -> None:
        """It does not wait any more."""
        if registered in self._idle:
            del self._idle[registered]
            for stream in registered.reads:
                del self._idle_readers[stream][registered]

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
