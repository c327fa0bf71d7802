"""The labelled facts and streams of a feed by Spark, byte for byte those of one process.

Workers sort statements into *shares* by subject and predicate; a task labels a share and knows the
positions of its facts in the history; a task sorts the facts in a range of positions.
"""

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zlib import crc32

import pyarrow as pa

from annotations.clock import SystemClock
from annotations.labels import Fact, key_of
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.terms import Quad, Term
from loaders.distributed.shipping import (
    FeedPart,
    PieceWriter,
    Shipped,
    feed_parts,
    join_files,
    packed_rows,
    shipped,
    stream_of,
    stream_parts,
    timed_statements,
    unpacked_rows,
)
from loaders.dynamic import (
    FactPlace,
    NumberedBatch,
    make_directory,
    placed_history,
    publish_history,
    stream_lines,
)
from loaders.jobs import done_in_thread, rows_of, step
from loaders.outputs import line_of, written
from loaders.progress import Report, spark_tasks
from loaders.publisher import Publisher
from loaders.sources.base import LatestReadings, MeasurableFeed, StreamSource
from tpf_server.store.static.file_systems import RemoteFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ResultT = TypeVar("ResultT")


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
    with written(directory), TemporaryDirectory(prefix=".pieces-", dir=directory) as work:
        writer = PieceWriter(context, Path(work))
        tell = step(_stream_parts, shipped(context, source, Path(work)), parts, writer)
        pieces = session.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(tell, writer.schema)
        with spark_tasks(context, report, f"writing streams of {source.name} with Spark"):
            rows = done_in_thread(context, partial(writer.take, pieces, Path(work)))
        for number, stream in enumerate(streams):
            own = [Path(work, name) for name in rows if name.startswith(f"{number:06}-")]
            join_files(own, directory / f"{stream}.tsv")
    return sum(rows.values())


def _stream_parts(
    sources: Shipped[StreamSource],
    parts: Sequence[FeedPart],
    writer: PieceWriter,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for (number,) in rows_of(batches):
        part = parts[number]
        assert part.stream is not None
        with sources.opened() as source:
            stream = source.streams()[part.stream]
            lines = stream_lines(source, stream, part.start, part.until)
            yield from writer.put(f"{part.stream:06}-{number:06}", lines)


_INSTANTS = -1
"""The share of what is said to no fact: at which instants there are batches."""
_CHUNK = 50_000
"""Statements that a task of parsing holds."""
_SAID = ("at", "place", "subject", "predicate", "object", "graph")
_PARTS: Final = "part int, number int, share int, content binary"
_RANGES: Final = "range int, content binary"
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
    make_directory(target.parent)
    with written(target), TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as work:
        aside = Path(work)
        facts = write_parts_spark(feed, aside, method, naming, session, span, report)
        join_files((aside / name for name in facts), target)
    return sum(facts.values())


def write_parts_spark(
    feed: MeasurableFeed,
    folder: Path | RemoteFolder,
    method: Method,
    naming: Naming,
    session: "SparkSession",
    span: tuple[datetime | None, datetime | None],
    report: Report,
) -> dict[str, int]:
    """Write facts to files, each a range of time; return how many each has, in order of time."""
    shares = 2 * session.sparkContext.defaultParallelism
    writer = PieceWriter(session.sparkContext, folder)

    def write(statements: "DataFrame", history: _History) -> dict[str, int]:
        label = step(_labelled, history, shares, method, naming)
        labelled = statements.mapInArrow(label, _RANGES)
        by_time = labelled.repartitionById(2 * shares, _column("range"))
        return writer.take(by_time.mapInArrow(step(_merged, writer), writer.schema), folder)

    with spark_tasks(session.sparkContext, report, f"writing facts of {feed.name} with Spark"):
        return _by_share(session, feed, span, write, {})


def publish_history_spark(
    feed: MeasurableFeed,
    publisher: Publisher,
    session: "SparkSession",
    span: tuple[datetime | None, datetime | None],
    report: Report,
) -> int:
    """Publish what `loaders.dynamic.publish_history` publishes, from the workers.

    Each publishes the facts of some subjects and predicates, whose versions keep their order. A
    repeated task sends the same batches, which count once.
    """
    run = f"history-{token_hex(12)}"

    def publish(statements: "DataFrame", history: _History) -> int:
        post = step(_posted, history, publisher.url, publisher.token, run)
        return sum(row.facts for row in statements.mapInArrow(post, "facts bigint").collect())

    with spark_tasks(session.sparkContext, report, f"publishing {feed.name} with Spark"):
        return _by_share(session, feed, span, publish, 0)


def _by_share(
    session: "SparkSession",
    feed: MeasurableFeed,
    span: tuple[datetime | None, datetime | None],
    work: "Callable[[DataFrame, _History], ResultT]",
    nothing: ResultT,
) -> ResultT:
    """Give the statements of a feed, by share and time, to some work of Spark."""
    from pyspark import StorageLevel

    context = session.sparkContext
    shares = 2 * context.defaultParallelism
    parts = feed_parts(feed, *span, shares)

    def done(feeds: Shipped[MeasurableFeed]) -> ResultT:
        statements = (
            session.range(0, len(parts), 1, len(parts))
            .mapInArrow(_PartReader(feeds, parts, shares), _PARTS)
            .persist(StorageLevel.DISK_ONLY)
        )
        try:
            instants = context.broadcast(_instants(statements, feed))
            by_share = (
                statements.where(f"share != {_INSTANTS}")
                .repartitionById(shares, _column("share"))
                .sortWithinPartitions("share", "part", "number")
            )
            return work(by_share, _History(instants, isinstance(feed, LatestReadings)))
        finally:
            statements.unpersist()

    if not parts:
        return nothing
    with TemporaryDirectory(prefix="tpf-load-") as directory:
        return done_in_thread(context, partial(done, shipped(context, feed, Path(directory))))


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


class _History:
    """The facts of each share, in order, with their positions; runs in the workers."""

    def __init__(self, instants: Any, latest: bool) -> None:
        self._instants = instants
        self._latest = latest

    @property
    def batches(self) -> int:
        return len(self._instants.value)

    def of(
        self, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[int, Iterator[tuple[FactPlace, Fact]]]]:
        rows = ((share, content) for _, _, share, content in rows_of(batches))
        instants: _Instants = self._instants.value
        numbered = _latest if self._latest else _batches
        for share, group in groupby(rows, key=operator.itemgetter(0)):
            statements = (row for _, content in group for row in unpacked_rows(content))
            yield share, placed_history(numbered(statements, instants))


def _posted(
    history: _History, url: str, token: str | None, run: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with closing(Publisher(url, SystemClock(), token)) as publisher:
        for share, placed in history.of(batches):
            facts = (fact for _, fact in placed)
            count = publish_history(facts, publisher, f"{run}-{share}")
            yield pa.record_batch({"facts": [count]})


def _labelled(
    history: _History,
    ranges: int,
    method: Method,
    naming: Naming,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for _, placed in history.of(batches):
        results: dict[int, list[tuple[Any, ...]]] = {}
        held = 0
        for position, fact in placed:
            lines = "".join(f"{line_of(q)}\n" for q in method.encode(fact, naming))
            number = _range(position, history.batches, ranges)
            results.setdefault(number, []).append((*position, lines))
            held += 1
            if held >= _CHUNK:
                yield _ranges(results)
                results, held = {}, 0
        if results:
            yield _ranges(results)


def _range(position: FactPlace, batches: int, ranges: int) -> int:
    if position.batch < batches:
        return position.batch * ranges // batches
    # What ends with the feed, which may be most of it.
    return ranges + position.since * ranges // batches


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


def _merged(writer: PieceWriter, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ranges: dict[int, list[tuple[Any, ...]]] = {}
    for number, content in rows_of(batches):
        ranges.setdefault(number, []).extend(unpacked_rows(content))
    for number, rows in ranges.items():
        rows.sort()
        yield from writer.put(f"part-{number:05}.nq", (lines for *_, lines in rows))
