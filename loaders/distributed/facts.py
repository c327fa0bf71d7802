"""The labelled facts and streams of a feed by Spark, byte for byte those of one process.

Workers sort statements into *shares* by subject and predicate; a task labels a share and knows the
positions of its facts in the history; a task sorts the facts in a range of positions.
"""

import operator
import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa

from annotations.labels import key_of
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.terms import Quad, Term
from loaders.distributed.shipping import (
    FeedPart,
    Shipped,
    feed_parts,
    packed_rows,
    rows_of,
    shipped,
    stream_of,
    stream_parts,
    timed_statements,
    unpacked_rows,
)
from loaders.dynamic import (
    FactPlace,
    NumberedBatch,
    file_aside,
    make_directory,
    placed_history,
    stream_lines,
)
from loaders.jobs import done_in_thread
from loaders.outputs import line_of
from loaders.progress import Report, spark_tasks
from loaders.sources.base import LatestReadings, MeasurableFeed, StreamSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# The streams of a source by Spark: the files that one process writes, byte for byte.
#
# A task tells a part of a stream; no row meets another one. The driver appends what they return.

_LINES = 10_000
"""In a value that goes to the driver."""


def write_streams_spark(
    source: StreamSource,
    directory: Path,
    session: "SparkSession",
    start: datetime | None,
    until: datetime | None,
    report: Report,
) -> int:
    """Write what `loaders.dynamic.write_streams` writes, by Spark."""
    context = session.sparkContext
    streams = source.streams()
    make_directory(directory)
    parts = stream_parts(source, start, until, 2 * context.defaultParallelism)
    with tempfile.TemporaryDirectory(prefix="tpf-load-") as work:
        sources = shipped(context, source, Path(work))
        lines = session.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(
            _LinesOfParts(sources, parts), "stream int, lines bigint, text string"
        )

        def write() -> int:
            count = 0
            groups = groupby(lines.toLocalIterator(), key=attrgetter("stream"))
            group = next(groups, None)
            for number, stream in enumerate(streams):
                with file_aside(directory / f"{stream}.tsv") as file:
                    if group is None or group[0] != number:
                        continue
                    for row in group[1]:
                        count += row.lines
                        file.write(row.text)
                    group = next(groups, None)
            return count

        with spark_tasks(context, report, f"writing streams of {source.name} with Spark"):
            return done_in_thread(context, write)


class _LinesOfParts:
    """Runs in the workers."""

    def __init__(self, sources: Shipped[StreamSource], parts: Sequence[FeedPart]) -> None:
        self._sources = sources
        self._parts = parts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (number,) in rows_of(batches):
            part = self._parts[number]
            assert part.stream is not None
            with self._sources.opened() as source:
                stream = source.streams()[part.stream]
                lines = stream_lines(source, stream, part.start, part.until)
                while some := list(islice(lines, _LINES)):
                    yield pa.record_batch(
                        {
                            "stream": pa.array([part.stream], pa.int32()),
                            "lines": [len(some)],
                            "text": ["".join(some)],
                        }
                    )


_INSTANTS = -1
"""The share of what is said to no fact: at which instants there are batches."""
_CHUNK = 50_000
"""Statements that a task of parsing holds."""
_TEXT = 1 << 20
"""Characters of a value that goes to the driver."""
_SAID = ("at", "place", "subject", "predicate", "object", "graph")
_LABELLED = ("batch", "replaced", "since", "within", "lines")
_NOTHING = Quad(Term(""), Term(""), Term(""), Term(""))
_MICROSECOND = timedelta(microseconds=1)
_Instants = list[tuple[int, int]]
"""When batches are told and until when they hold, in microseconds since 1970, in order."""


def write_facts_spark(
    feed: MeasurableFeed,
    target: Path,
    method: Method,
    naming: Naming,
    session: "SparkSession",
    span: tuple[datetime | None, datetime | None],
    report: Report,
) -> int:
    """Write what `loaders.dynamic.write_facts` writes, by Spark."""
    context = session.sparkContext
    shares = 2 * context.defaultParallelism
    parts = feed_parts(feed, *span, shares)
    with file_aside(target) as file, tempfile.TemporaryDirectory(prefix="tpf-load-") as work:
        if not parts:
            return 0
        feeds = shipped(context, feed, Path(work))
        with spark_tasks(context, report, f"writing facts of {feed.name} with Spark"):

            def write() -> int:
                count = 0
                for facts, text in _facts(session, feeds, feed, parts, shares, method, naming):
                    count += facts
                    file.write(text)
                return count

            return done_in_thread(context, write)


def _facts(
    session: "SparkSession",
    feeds: Shipped[MeasurableFeed],
    feed: MeasurableFeed,
    parts: Sequence[FeedPart],
    shares: int,
    method: Method,
    naming: Naming,
) -> Iterator[tuple[int, str]]:
    from pyspark import StorageLevel

    numbers = session.range(0, len(parts), 1, len(parts))
    statements = numbers.mapInArrow(
        _PartReader(feeds, parts, shares), "part int, number int, share int, content binary"
    ).persist(StorageLevel.DISK_ONLY)
    labelled: DataFrame | None = None
    try:
        instants = _instants(statements, feed)
        latest = isinstance(feed, LatestReadings)
        labelled = (
            statements.where(f"share != {_INSTANTS}")
            .repartitionById(shares, _column("share"))
            .sortWithinPartitions("share", "part", "number")
            .mapInArrow(
                _Labeller(session.sparkContext.broadcast(instants), latest, shares, method, naming),
                "range int, content binary",
            )
            .persist(StorageLevel.DISK_ONLY)
        )
        merged = labelled.repartitionById(2 * shares, _column("range")).mapInArrow(
            _merged, "facts bigint, text string"
        )
        for row in merged.toLocalIterator():
            yield row.facts, row.text
    finally:
        if labelled is not None:
            labelled.unpersist()
        statements.unpersist()


def _column(name: str) -> Any:
    from pyspark.sql import functions

    return functions.col(name)


def _instants(statements: "DataFrame", feed: MeasurableFeed) -> _Instants:
    result: set[tuple[int, int]] = set()
    for row in statements.where(f"share = {_INSTANTS}").select("content").collect():
        result.update(unpacked_rows(row.content))
    if not isinstance(feed, LatestReadings):
        return sorted(result)
    # A batch holds until the next one, whichever stream speaks then.
    times = sorted({at for at, _ in result})
    if not times:
        return []
    last = times[-1] + feed.last_holds // _MICROSECOND
    return list(zip(times, [*times[1:], last], strict=True))


class _PartReader:
    """Runs in the workers."""

    def __init__(
        self, feeds: Shipped[MeasurableFeed], parts: Sequence[FeedPart], shares: int
    ) -> None:
        self._feeds = feeds
        self._parts = parts
        self._shares = shares

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (number,) in rows_of(batches):
            with self._feeds.opened() as feed:
                yield from self._statements(feed, number)

    def _statements(self, feed: MeasurableFeed, part: int) -> Iterator[pa.RecordBatch]:
        results: dict[int, list[tuple[Any, ...]]] = {}
        held = number = 0
        for at, end, position, quads in timed_statements(feed, self._parts[part]):
            results.setdefault(_INSTANTS, []).append((at, end))
            for within, quad in enumerate(quads, position):
                share = self._share(quad, within, part)
                results.setdefault(share, []).append((at, within, *quad))
            if not quads and self._parts[part].stream is not None:
                # Of this stream nothing holds from now on.
                share = self._share(_NOTHING, position, part)
                results.setdefault(share, []).append((at, position, *_NOTHING))
            held += len(quads) + 1
            if held >= _CHUNK:
                yield self._rows(part, number, results)
                results, held, number = {}, 0, number + 1
        if results:
            yield self._rows(part, number, results)

    def _share(self, quad: Quad, position: int, part: int) -> int:
        if self._parts[part].stream is not None:
            return stream_of(position) % self._shares
        return crc32("\0".join(key_of(quad)).encode()) % self._shares

    def _rows(
        self, part: int, number: int, shares: dict[int, list[tuple[Any, ...]]]
    ) -> pa.RecordBatch:
        contents = [packed_rows(_SAID, rows) for rows in shares.values()]
        same = len(shares)
        return pa.record_batch(
            {
                "part": pa.array([part] * same, pa.int32()),
                "number": pa.array([number] * same, pa.int32()),
                "share": pa.array(list(shares), pa.int32()),
                "content": pa.array(contents, pa.binary()),
            }
        )


class _Labeller:
    """Runs in the workers."""

    def __init__(
        self, instants: Any, latest: bool, ranges: int, method: Method, naming: Naming
    ) -> None:
        self._instants = instants
        self._latest = latest
        self._ranges = ranges
        self._method = method
        self._naming = naming

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = ((share, content) for _, _, share, content in rows_of(batches))
        for _, group in groupby(rows, key=operator.itemgetter(0)):
            statements = (row for _, content in group for row in unpacked_rows(content))
            yield from self._labelled(statements)

    def _labelled(self, statements: Iterator[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
        instants: _Instants = self._instants.value
        shared = _latest(statements, instants) if self._latest else _batches(statements, instants)
        results: dict[int, list[tuple[Any, ...]]] = {}
        held = 0
        for position, fact in placed_history(shared):
            lines = "".join(f"{line_of(q)}\n" for q in self._method.encode(fact, self._naming))
            results.setdefault(self._range(position, len(instants)), []).append((*position, lines))
            held += 1
            if held >= _CHUNK:
                yield _ranges(results)
                results, held = {}, 0
        if results:
            yield _ranges(results)

    def _range(self, position: FactPlace, batches: int) -> int:
        if position.batch < batches:
            return position.batch * self._ranges // batches
        # What ends with the feed, which may be most of it.
        return self._ranges + position.since * self._ranges // batches


def _ranges(ranges: dict[int, list[tuple[Any, ...]]]) -> pa.RecordBatch:
    contents = [packed_rows(_LABELLED, rows) for rows in ranges.values()]
    return pa.record_batch(
        {"range": pa.array(list(ranges), pa.int32()), "content": pa.array(contents, pa.binary())}
    )


def _batches(statements: Iterator[tuple[Any, ...]], instants: _Instants) -> Iterator[NumberedBatch]:
    groups = groupby(statements, key=operator.itemgetter(0))
    group = next(groups, None)
    for number, (at, end) in enumerate(instants):
        quads: Iterable[tuple[int, Quad]] = ()
        if group is not None and group[0] == at:
            quads = sorted((row[1], _quad(row)) for row in group[1])
        yield NumberedBatch(number, at, end, quads)
        if quads:
            group = next(groups, None)


def _latest(statements: Iterator[tuple[Any, ...]], instants: _Instants) -> Iterator[NumberedBatch]:
    times = [at for at, _ in instants]
    # By the number of the batch, then by the stream.
    readings: dict[int, dict[int, list[tuple[int, Quad]]]] = {}
    for (at, stream), rows in groupby(statements, key=lambda row: (row[0], stream_of(row[1]))):
        heard = readings.setdefault(bisect_left(times, at), {})
        quads = [(row[1], _quad(row)) for row in rows]
        heard[stream] = [] if quads[0][1] == _NOTHING else quads
    latest: dict[int, list[tuple[int, Quad]]] = {}
    for number, (at, end) in enumerate(instants):
        latest |= readings.pop(number, {})
        said_now = [each for stream in sorted(latest) for each in latest[stream]]
        yield NumberedBatch(number, at, end, said_now)


def _quad(row: tuple[Any, ...]) -> Quad:
    return Quad(*row[2:])


def _merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in the workers."""
    rows = sorted(row for _, content in rows_of(batches) for row in unpacked_rows(content))
    texts: list[str] = []
    size = 0
    for *_, lines in rows:
        texts.append(lines)
        size += len(lines)
        if size >= _TEXT:
            yield _text(texts)
            texts, size = [], 0
    if texts:
        yield _text(texts)


def _text(texts: Sequence[str]) -> pa.RecordBatch:
    return pa.record_batch({"facts": [len(texts)], "text": ["".join(texts)]})
