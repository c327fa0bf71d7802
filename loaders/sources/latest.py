"""A feed out of streams: at every instant, the latest reading of every stream."""

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby

from annotations.instants import shifted
from annotations.terms import Quad
from loaders.sources.base import FeedBatch, FeedSpan, Reading, StreamSource

LAST_HOLDS = timedelta(minutes=1)
"""For how long the last batch holds."""


def merged(
    source: StreamSource, start: datetime | None, until: datetime | None
) -> Iterator[tuple[datetime, int, Reading]]:
    """The readings of all streams in order of time, with the number of their stream."""

    def numbered(number: int, stream: str) -> Iterator[tuple[datetime, int, Reading]]:
        for reading in source.readings(stream, start, until):
            yield reading.at, number, reading

    streams = [numbered(number, stream) for number, stream in enumerate(source.streams())]
    return heapq.merge(*streams, key=lambda entry: entry[:2])


def latest_batches(
    source: StreamSource, start: datetime | None, until: datetime | None
) -> Iterator[FeedBatch]:
    """Whenever any stream speaks: the latest reading of every stream.

    The last batch holds for a minute.
    """
    latest: dict[int, tuple[Quad, ...]] = {}
    before: datetime | None = None
    for at, entries in groupby(merged(source, start, until), key=lambda entry: entry[0]):
        if before is not None:
            yield FeedBatch(before, at, _all(latest))
        for _, number, reading in entries:
            latest[number] = reading.quads
        before = at
    if before is not None:
        yield FeedBatch(before, shifted(before, LAST_HOLDS), _all(latest))


def latest_span(
    source: StreamSource, start: datetime | None, until: datetime | None
) -> FeedSpan | None:
    """The span of `latest_batches`; reads everything."""
    instants = sorted({at for at, _, _ in merged(source, start, until)})
    if not instants:
        return None
    return FeedSpan(instants[0], shifted(instants[-1], LAST_HOLDS), len(instants))


def _all(latest: dict[int, tuple[Quad, ...]]) -> tuple[Quad, ...]:
    return tuple(quad for number in sorted(latest) for quad in latest[number])
