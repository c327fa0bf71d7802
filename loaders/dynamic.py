"""Dynamic data into files: labelled facts that any server takes, and streams for engines."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from annotations.instants import to_micros
from annotations.labels import Fact, Interval, key_of
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.terms import Quad
from loaders.errors import OutputError
from loaders.progress import Report, Silent
from loaders.sources.base import Feed, FeedBatch, Reading, StreamSource
from loaders.static import line_of


def history(batches: Iterable[FeedBatch]) -> Iterator[Fact]:
    """The statements of a feed with the intervals in which they hold.

    A statement that is repeated before it ceases to hold has one interval. A statement ends where
    another one of the same subject, predicate and graph begins.
    """
    held: dict[tuple[str, ...], tuple[Quad, datetime, datetime]] = {}
    for batch in batches:
        for key, (quad, start, end) in list(held.items()):
            if end < batch.at:
                yield Fact(quad, Interval(start, end))
                del held[key]
        for quad in batch.quads:
            key = key_of(quad)
            before = held.get(key)
            if before is not None and before[0] == quad:
                held[key] = (quad, before[1], max(before[2], batch.end))
                continue
            if before is not None and before[1] < batch.at:
                yield Fact(before[0], Interval(before[1], min(before[2], batch.at)))
            held[key] = (quad, batch.at, batch.end)
    for quad, start, end in held.values():
        yield Fact(quad, Interval(start, end))


def naming_of(dataset: str) -> Naming:
    """How the facts of the dataset at this URL are named."""
    url = dataset.rstrip("/")
    return Naming(f"{url}/facts/", url)


def write_facts(
    feed: Feed,
    target: Path,
    method: Method,
    naming: Naming,
    start: datetime | None = None,
    until: datetime | None = None,
    report: Report | None = None,
) -> int:
    """Write what a feed says as N-Quads, annotated by a method; return how many facts there are.

    The method reads the file back, and so does a server to which it is posted.

    Raises:
        InputError: the feed is malformed.
        OutputError: the file cannot be written.
    """
    report = report or Silent()
    report.stage(f"writing facts of {feed.name}")
    return write_labelled(history(feed.batches(start, until)), target, method, naming, report)


def write_labelled(
    facts: Iterable[Fact],
    target: Path,
    method: Method,
    naming: Naming,
    report: Report | None = None,
) -> int:
    """Write facts as N-Quads, annotated by a method; return how many there are.

    Raises:
        InputError: they come from an input that is malformed.
        OutputError: the file cannot be written.
    """
    report = report or Silent()
    count = 0
    with _file_aside(target) as file:
        for fact in facts:
            file.writelines(f"{line_of(quad)}\n" for quad in method.encode(fact, naming))
            count += 1
            report.done(count)
    return count


def write_streams(
    source: StreamSource,
    directory: Path,
    start: datetime | None = None,
    until: datetime | None = None,
    report: Report | None = None,
) -> int:
    """Write every stream as ``NAME.tsv``; return how many triples there are.

    A line is ``ts_ms<TAB>s<TAB>p<TAB>o``: milliseconds since 1970 and N-Triples terms.

    Raises:
        InputError: the source is malformed.
        OutputError: a file cannot be written.
    """
    report = report or Silent()
    streams = source.streams()
    report.stage(f"writing streams of {source.name}", len(streams))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{directory}: {error.strerror or error}") from error
    count = 0
    for number, stream in enumerate(streams, start=1):
        with _file_aside(directory / f"{stream}.tsv") as file:
            for line in stream_lines(source, stream, start, until):
                file.write(f"{line}\n")
                count += 1
        report.done(number)
    return count


def stream_lines(
    source: StreamSource,
    stream: str,
    start: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[str]:
    """The lines of one stream, in order of time; see `write_streams`."""
    for reading in source.readings(stream, start, until):
        millis = to_micros(reading.at) // 1000
        for quad in reading.quads:
            yield f"{millis}\t{quad.subject}\t{quad.predicate}\t{quad.object}"


class FeedStream:
    """A feed as one stream: what it says at the instants at which it says so.

    Args:
        feed: the feed.
    """

    def __init__(self, feed: Feed) -> None:
        self.name = feed.name
        self._feed = feed

    def streams(self) -> tuple[str]:
        """One stream, named as the feed."""
        return (self.name,)

    def readings(
        self, stream: str, start: datetime | None, until: datetime | None
    ) -> Iterator[Reading]:
        """What the feed says; every batch is a reading."""
        assert stream == self.name
        for batch in self._feed.batches(start, until):
            yield Reading(batch.at, batch.quads)


@contextmanager
def _file_aside(target: Path) -> Iterator[IO[str]]:
    """A file that takes the place of `target` when the block ends well."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        aside.replace(target)
    except OSError as error:
        raise OutputError(f"{target}: {error.strerror or error}") from error
    finally:
        aside.unlink(missing_ok=True)
