"""What a source is: static facts in pieces that can be read in parallel, and a feed of batches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from annotations.labels import Expiration, Fact, Interval, Labelling
from annotations.terms import Quad, Triple


class FeedBatch(NamedTuple):
    """What a feed says at one instant.

    Args:
        at: when it says so.
        until: when it speaks next; what it says holds until then.
        quads: the dynamic statements.
    """

    at: datetime
    until: datetime
    quads: tuple[Quad, ...]

    def facts(self, labelling: Labelling) -> Iterator[Fact]:
        """The statements with their label: until the next poll, or from this poll to the next."""
        label = (
            Expiration(self.until) if labelling == "expiration" else Interval(self.at, self.until)
        )
        return (Fact(quad, label) for quad in self.quads)


class StaticSource(Protocol):
    """Something whose static facts are read in pieces, each by any worker.

    A source and its pieces are pickled to the workers of a cluster.
    """

    name: str
    prefixes: Mapping[str, str]
    """Prefix to namespace, for display."""

    def pieces(self, count: int) -> Sequence[str]:
        """About `count` pieces of work, as texts that only this source understands.

        Raises:
            InputError: the input is missing or malformed.
        """

    def triples(self, piece: str) -> Iterator[Triple]:
        """The static facts of one piece; pieces may repeat each other's facts.

        Raises:
            InputError: the input is malformed.
        """


class Feed(Protocol):
    """Something that speaks from time to time."""

    name: str

    def batches(self, start: datetime | None, until: datetime | None) -> Iterable[FeedBatch]:
        """What it says at every instant from `start` (inclusive) to `until` (exclusive), in order.

        Raises:
            InputError: the input is malformed.
        """


class FeedSpan(NamedTuple):
    """First instant of a feed, end of what it says last, and how often it speaks."""

    start: datetime
    end: datetime
    polls: int


class MeasurableFeed(Feed, Protocol):
    """A feed that knows its span without being read: for a progress bar."""

    def span(self, start: datetime | None, until: datetime | None) -> FeedSpan | None:
        """The span of `batches` with the same arguments; ``None`` where there are none."""
