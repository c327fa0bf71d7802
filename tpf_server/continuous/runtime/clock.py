"""The clocks of streams: how far each of them is, and what its readers need not wait for.

All streams of an engine have one time, the *front*, which the newest element moves on. A stream
whose element is older than that is behind the others: its windows are set back to this element, and
stay as far behind as the stream was then, until it has caught up or is told its time. A stream that
is ahead of the present moves its own windows, and no others.
"""

import heapq
import itertools
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from annotations.terms import Term

NEVER: Final = -(2**63)
"""Before every instant."""
ENDLESS: Final = -NEVER
"""After every instant, and longer than any time."""


class Hiding(Protocol):
    """A window that keeps what others have pushed out of it, because its stream may be behind."""

    def trim(self) -> bool:
        """Expire what its stream has passed; True: nothing is left."""


class StreamClock:
    """The time of a stream.

    Attributes:
        newest: the timestamp of its newest element.
        latest: the stream is complete up to then; older elements are late.
        lag: how far it was behind the front when its newest element came, in milliseconds.
        hiding: windows over it that keep what the time of others has pushed out of them.
        plain: it is neither behind nor ahead, and nothing is hidden.
    """

    def __init__(self) -> None:
        self.newest = self.latest = NEVER
        self.lag = 0
        self.hiding: list[Hiding] = []
        self.plain = True

    def came(self, at: int) -> None:
        if at > self.newest:
            self.newest = at

    def at(self, front: int) -> int:
        """Return the time of the stream when that of the engine is `front`."""
        own = front - self.lag
        return own if own > self.latest else self.latest

    def settle(self, front: int) -> None:
        """Catch up with the front: nothing older than its newest element will come."""
        if self.hiding:
            self.hiding[:] = [each for each in self.hiding if not each.trim()]
        self.plain = not self.lag and not self.hiding and self.latest <= front

    def hide(self, window: Hiding) -> None:
        self.plain = False
        if window not in self.hiding:
            self.hiding.append(window)

    def tell(self, at: int, front: int) -> None:
        """Set the time up to which the stream is complete.

        It may go back, where a clock was set back; later elements are then not late.
        """
        self.latest = max(at, self.newest)
        self.settle(front)


class Waits(NamedTuple):
    """How long answers at instants wait, in milliseconds of stream time.

    Args:
        lateness: for late elements.
        patience: where several streams are read, for those that are behind the foremost, while the
            present is not known.
    """

    lateness: int = 0
    patience: int = 0


NO_WAITS: Final = Waits()


class StreamClocks:
    """The clocks of all streams, and how far their readers are.

    Args:
        streams: the clocks by name; others may come.
        waits: of readers.

    Attributes:
        front: the newest instant of elements (none beyond the present) or that was told.
        told: all elements up to this instant have come, of all streams.
        present: elements of later instants move no other stream.
    """

    def __init__(self, streams: Mapping[Term, StreamClock], waits: Waits) -> None:
        self.front = self.told = NEVER
        self.present = ENDLESS
        self.waits = waits
        self._streams = streams

    @property
    def newest(self) -> int:
        """The newest instant of elements or that was told."""
        return max([self.front, *(each.newest for each in self._streams.values())])

    def newest_of(self, streams: Iterable[Term]) -> int:
        """The newest instant of elements of these streams."""
        clocks = map(self._streams.get, streams)
        return max([each.newest for each in clocks if each is not None], default=NEVER)

    def passed(
        self, streams: Collection[Term], awaited: Collection[Term], told: int = NEVER
    ) -> int:
        """The instant up to which all has come of some streams, `awaited` of them from outside.

        An element says that everything before it has come of its stream. A reader of several
        streams has passed an instant when all of them have, or one by more than the patience, or
        by the clock.
        """
        told = max(told, self.told)
        if len(streams) == 1:
            (stream,) = streams
            return max(self._before(stream), told) - self.waits.lateness
        foremost = max(map(self._before, streams), default=NEVER)
        last = min(map(self._before, awaited), default=NEVER)
        known = self.present != ENDLESS
        bound = min(foremost, self.present - 1) if known else foremost - self.waits.patience
        return max(last, bound, told) - self.waits.lateness

    def _before(self, stream: Term) -> int:
        clock = self._streams.get(stream)
        return NEVER if clock is None else clock.newest - 1


class StreamPosition(NamedTuple):
    """The state of time before an element: of the engine, its stream, and its reorder buffer."""

    arrivals: int
    front: int
    latest: int
    newest: int | None


# Put items that come out of order into the order of time, as long as they are not too late.

ItemT = TypeVar("ItemT")


class ReorderBuffer(Generic[ItemT]):
    """Hold items back until no older one may come.

    Items of all streams share one order. Those of a stream that is behind the others by more than
    the lateness (milliseconds) get their own, until it has caught up.
    """

    def __init__(self, lateness: int) -> None:
        self.lateness = lateness
        self._waiting: list[tuple[int, int, ItemT]] = []
        self._behind: dict[Hashable, list[tuple[int, int, ItemT]]] = {}
        self._order = itertools.count()
        self.newest: int | None = None
        self._newest_of: dict[Hashable, int] = {}

    def add(self, stream: Hashable, at: int, item: ItemT) -> Iterator[tuple[int, ItemT]]:
        """Add an item of a stream; yield those that need not wait any longer."""
        newest = at if self.newest is None else max(self.newest, at)
        own = self._newest_of[stream] = max(self._newest_of.get(stream, at), at)
        if own < newest - self.lateness:
            waiting = self._behind.setdefault(stream, [])
            heapq.heappush(waiting, (at, next(self._order), item))
            return _until(waiting, own - self.lateness)
        self.newest = newest
        for each in (*self._behind.pop(stream, ()), (at, next(self._order), item)):
            heapq.heappush(self._waiting, each)
        return _until(self._waiting, newest - self.lateness)

    def until(self, at: int) -> Iterator[tuple[int, ItemT]]:
        """Yield those up to an instant, in the order of time; of equal times, as they came."""
        for waiting in self._behind.values():
            # What is later goes on to wait in the order of its stream.
            while waiting and waiting[0][0] <= at:
                heapq.heappush(self._waiting, heapq.heappop(waiting))
        return _until(self._waiting, at)

    def drop(self, stream: Hashable) -> None:
        """Drop what a stream has in an order of its own, and its time."""
        self._behind.pop(stream, None)
        self._newest_of.pop(stream, None)

    def rest(self) -> Iterator[tuple[int, ItemT]]:
        return iter(()) if self.newest is None else self.until(self.newest)


def _until(waiting: list[tuple[int, int, ItemT]], at: int) -> Iterator[tuple[int, ItemT]]:
    while waiting and waiting[0][0] <= at:
        time, _, item = heapq.heappop(waiting)
        yield time, item
