"""How a feed is cut into parts that any worker tells, without what the other parts say."""

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from annotations.instants import to_micros
from annotations.terms import Quad
from loaders.sources.base import LatestReadings, MeasurableFeed, StreamSource

_OF_A_STREAM = 32
"""Bits of a place that number what a stream says at one instant."""


class FeedPart(NamedTuple):
    """A span of time of a feed, or of one of its streams.

    Args:
        stream: the number of the stream; ``None``: of the feed itself.
        start: first instant; ``None``: from the beginning.
        until: first instant that is not part of it; ``None``: to the end.
    """

    stream: int | None
    start: datetime | None
    until: datetime | None


class Telling(NamedTuple):
    """What a part says at one instant.

    Args:
        at: when, in microseconds since 1970.
        end: until when it holds; of a stream whose latest reading counts, `at`.
        place: of the first statement among all that are said at this instant.
        quads: the statements.
    """

    at: int
    end: int
    place: int
    quads: tuple[Quad, ...]


def feed_parts(
    feed: MeasurableFeed, start: datetime | None, until: datetime | None, count: int
) -> list[FeedPart]:
    """About `count` parts of a feed: spans of time, or streams.

    Where the latest readings of streams count, one for each: what a stream said before a span
    would still hold in it.
    """
    if isinstance(feed, LatestReadings):
        return [FeedPart(number, start, until) for number, _ in enumerate(feed.streams())]
    return _spans(feed, None, start, until, count)


def stream_parts(
    source: StreamSource, start: datetime | None, until: datetime | None, count: int
) -> list[FeedPart]:
    """About `count` parts of the streams of a source, in the order of streams, then of time."""
    streams = source.streams()
    if len(streams) == 1 and isinstance(source, MeasurableFeed):
        return _spans(source, 0, start, until, count)
    return [FeedPart(number, start, until) for number, _ in enumerate(streams)]


def tellings(feed: MeasurableFeed, part: FeedPart) -> Iterator[Telling]:
    """What a part of a feed says, in order of time.

    Raises:
        InputError: the feed is malformed.
    """
    if part.stream is None:
        for batch in feed.batches(part.start, part.until):
            yield Telling(to_micros(batch.at), to_micros(batch.end), 0, batch.quads)
        return
    assert isinstance(feed, LatestReadings)
    stream = feed.streams()[part.stream]
    readings = feed.readings(stream, part.start, part.until)
    for instant, said in groupby(readings, key=attrgetter("at")):
        *_, latest = said
        at = to_micros(instant)
        yield Telling(at, at, part.stream << _OF_A_STREAM, latest.quads)


def stream_of(place: int) -> int:
    """The number of the stream that said what has this place."""
    return place >> _OF_A_STREAM


def _spans(
    feed: MeasurableFeed,
    stream: int | None,
    start: datetime | None,
    until: datetime | None,
    count: int,
) -> list[FeedPart]:
    span = feed.span(start, until)
    if span is None:
        return []
    count = max(1, min(count, span.polls))
    width = (span.end - span.start) / count
    cuts = [start, *(span.start + number * width for number in range(1, count)), until]
    return [FeedPart(stream, *ends) for ends in pairwise(cuts)]
