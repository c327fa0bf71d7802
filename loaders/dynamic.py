"""Dynamic data into files: labelled facts that any server takes, and streams for engines."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from annotations.instants import to_micros
from annotations.labels import Fact
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.whole_files import replaced_file
from loaders.errors import OutputError
from loaders.history import history
from loaders.outputs import line_of
from loaders.progress import Report, Silent
from loaders.sources.base import Feed, FeedBatch, FeedSpan, MeasurableFeed, Reading, StreamSource


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
    with file_aside(target) as file:
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
    make_directory(directory)
    count = 0
    for number, stream in enumerate(streams, start=1):
        with file_aside(directory / f"{stream}.tsv") as file:
            for line in stream_lines(source, stream, start, until):
                file.write(line)
                count += 1
        report.done(number)
    return count


def stream_lines(
    source: StreamSource,
    stream: str,
    start: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[str]:
    """The lines of one stream with their ends, in order of time; see `write_streams`."""
    for reading in source.readings(stream, start, until):
        millis = to_micros(reading.at) // 1000
        for quad in reading.quads:
            yield f"{millis}\t{quad.subject}\t{quad.predicate}\t{quad.object}\n"


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

    def batches(self, start: datetime | None, until: datetime | None) -> Iterable[FeedBatch]:
        """What the feed says."""
        return self._feed.batches(start, until)

    def span(self, start: datetime | None, until: datetime | None) -> FeedSpan | None:
        """The span of the feed, which must be measurable."""
        assert isinstance(self._feed, MeasurableFeed)
        return self._feed.span(start, until)


def make_directory(directory: Path) -> None:
    """Make a directory for files, unless it is there.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{directory}: {error.strerror or error}") from error


@contextmanager
def file_aside(target: Path) -> Iterator[IO[str]]:
    """A file that takes the place of `target` when the block ends well.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(target, durable=False) as file:
            yield file
    except OSError as error:
        raise OutputError(f"{target}: {error.strerror or error}") from error
