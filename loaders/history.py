"""The history of what a feed says: each statement with the interval in which it holds."""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from annotations.instants import from_micros, to_micros
from annotations.labels import Fact, Interval, key_of
from annotations.terms import Quad
from loaders.sources.base import FeedBatch


class FactPlace(NamedTuple):
    """Where a fact is in a history: facts are told in this order.

    Args:
        batch: the number of the batch at which it is known when the fact ended.
        replaced: whether a statement of that batch ended it; such facts come after the others.
        since: the number of the batch since which its subject and predicate are spoken of
            without a break; of what was replaced, `batch`.
        within: the place, in that batch, of what was said.
    """

    batch: int
    replaced: bool
    since: int
    within: int


class NumberedBatch(NamedTuple):
    """Some of the statements of a batch.

    Args:
        number: of the batch.
        at, end: when it was told, and until when it holds, in microseconds since 1970.
        quads: statements with their places in the batch.
    """

    number: int
    at: int
    end: int
    quads: Iterable[tuple[int, Quad]]


def history(batches: Iterable[FeedBatch]) -> Iterator[Fact]:
    """The statements of a feed with the intervals in which they hold.

    A statement that is repeated before it ceases to hold has one interval. A statement ends where
    another one of the same subject, predicate and graph begins.
    """
    numbered = (
        NumberedBatch(number, to_micros(batch.at), to_micros(batch.end), enumerate(batch.quads))
        for number, batch in enumerate(batches)
    )
    return (fact for _, fact in placed_history(numbered))


class _Held(NamedTuple):
    quad: Quad
    start: int
    end: int
    since: int
    within: int
    due: int


class _Ending:
    """Which facts may end when: each is here once, however often it is renewed."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[tuple[str, ...], None]] = {}
        # Some may have no keys any more.
        self._instants: list[int] = []

    def add(self, key: tuple[str, ...], due: int) -> None:
        """This one is to be looked at."""
        if due not in self._keys:
            self._keys[due] = {}
            if len(self._instants) > 2 * len(self._keys):
                self._instants = sorted(self._keys)  # which is a heap
            else:
                heappush(self._instants, due)
        self._keys[due][key] = None

    def discard(self, key: tuple[str, ...], due: int) -> None:
        """It is not."""
        keys = self._keys[due]
        del keys[key]
        if not keys:
            del self._keys[due]

    def before(self, at: int) -> Iterator[tuple[str, ...]]:
        """Those that are due before an instant, which are not here any more."""
        while self._instants and self._instants[0] < at:
            yield from self._keys.pop(heappop(self._instants), ())


def placed_history(batches: Iterable[NumberedBatch]) -> Iterator[tuple[FactPlace, Fact]]:
    """The facts of `history` with their places, in this order.

    Of all batches, but perhaps only what they say of some subjects and predicates: the histories
    of all of these, put together by their places, are that of the whole.
    """
    held: dict[tuple[str, ...], _Held] = {}
    ending = _Ending()
    number = -1
    for number, at, end, quads in batches:
        over: list[_Held] = []
        for key in ending.before(at):
            fact = held[key]
            if fact.end < at:
                over.append(held.pop(key))
            else:
                # It was renewed meanwhile.
                held[key] = fact._replace(due=fact.end)
                ending.add(key, fact.end)
        # In the order in which they began, whatever ended first.
        for fact in sorted(over, key=_began):
            yield FactPlace(number, False, fact.since, fact.within), _fact(fact, fact.end)
        for within, quad in quads:
            key = key_of(quad)
            before = held.get(key)
            if before is None:
                held[key] = _Held(quad, at, end, number, within, end)
                ending.add(key, end)
            elif before.quad == quad:
                if before.end < end:
                    held[key] = before._replace(end=end)
            else:
                if before.start < at:
                    place = FactPlace(number, True, number, within)
                    yield place, _fact(before, min(before.end, at))
                due = min(before.due, end)
                if due < before.due:
                    ending.discard(key, before.due)
                    ending.add(key, due)
                held[key] = before._replace(quad=quad, start=at, end=end, due=due)
    for fact in held.values():
        yield FactPlace(number + 1, False, fact.since, fact.within), _fact(fact, fact.end)


def _began(held: _Held) -> tuple[int, int]:
    return held.since, held.within


def _fact(held: _Held, end: int) -> Fact:
    return Fact(held.quad, Interval(from_micros(held.start), from_micros(end)))
