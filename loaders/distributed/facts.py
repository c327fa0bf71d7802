"""What a source says as files, by Spark or in one process: static facts, streams, labelled facts.

Static facts go into a directory of N-Triples files, and of N-Quads where some are in named graphs.
Labelled facts are byte for byte those of one process.

Workers sort statements into *shares* by subject and predicate; a task labels a share and knows the
positions of its facts in the history; a task sorts the facts in a range of positions.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from zlib import crc32

from annotations.clock import SystemClock
from annotations.labels import Fact, key_of
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.terms import Quad, Term
from loaders.distributed.shipping import (
    FeedPart,
    FilePiece,
    FileWriter,
    Opener,
    feed_parts,
    join_files,
    packed_rows,
    shipped,
    stream_of,
    timed_statements,
    unpacked_rows,
)
from loaders.dynamic import (
    FactPlace,
    NumberedBatch,
    make_directory,
    placed_history,
    publish_history,
)
from loaders.outputs import directory_aside, line_of, written
from loaders.progress import SILENT, Report
from loaders.publisher import Publisher, element_lines
from loaders.rdf.flow import Flow, Flows, Gathered, Message
from loaders.sources.base import Feed, LatestReadings, StaticSource
from tpf_server.store.static.file_systems import RemoteFolder

if TYPE_CHECKING:
    from pyspark import SparkContext


ResultT = TypeVar("ResultT")
_Span = tuple[datetime | None, datetime | None]
_PER_CORE: Final = 2
"""Parts of a feed, and shares of its statements."""
_CHUNK: Final = 50_000
"""Statements that a task of parsing holds."""
_LINES: Final = 20_000
"""That a task holds before it sends them."""
_NOTHING = Quad(Term(""), Term(""), Term(""), Term(""))
_MICROSECOND = timedelta(microseconds=1)


def load_as_lines(
    source: StaticSource,
    output: Path,
    context: "SparkContext | None",
    replace: bool = False,
    report: Report = SILENT,
) -> list[int]:
    """Write the static facts, executors where they reach the output; return each file's number."""
    with (
        directory_aside(output, replace) as aside,
        TemporaryDirectory(prefix="tpf-load-") as work,
        Flows(context, report) as flows,
    ):
        pieces = source.pieces(max(8, 2 * flows.cores))
        read = partial(_lines, shipped(context, source, Path(work)), flows.cores)
        writer = FileWriter(context, aside)
        lines = flows.of(pieces).map(read).exchanged(flows.cores)
        files = lines.map(partial(_line_file, writer))
        counts = writer.take(files, f"reading {source.name}")
        for number, name in enumerate(counts):
            (aside / name).rename(aside / f"part-{number:05}.{name.rpartition('.')[2]}")
    return list(counts.values())


def _lines(opened: Opener[StaticSource], files: int, piece: str) -> Iterator[Message]:
    with opened() as source:
        quads = source.quads(piece)
        while some := list(islice(quads, _LINES)):
            shares: defaultdict[int, dict[str, bool]] = defaultdict(dict)
            for quad in some:
                line = line_of(quad)
                shares[crc32(line.encode()) % files][line] = bool(quad.graph)
            yield from (Message(*share) for share in shares.items())


def _line_file(writer: FileWriter, of: Gathered) -> Iterator[FilePiece]:
    lines: dict[str, bool] = {}
    for each in of.values:
        lines |= each
    # The first file is there even if there are no facts.
    if lines or not of.partition:
        suffix = "nq" if any(lines.values()) else "nt"
        texts = (f"{line}\n" for line in sorted(lines))
        yield from writer.put(f".{of.partition:05}.{suffix}", texts)


def write_streams(
    source: Feed,
    directory: Path,
    context: "SparkContext | None" = None,
    span: _Span = (None, None),
    report: Report = SILENT,
) -> int:
    """Write each stream as ``NAME.tsv``; return the number of triples.

    A line is ``ts_ms<TAB>s<TAB>p<TAB>o``: milliseconds since 1970 and N-Triples terms.
    """
    make_directory(directory)
    with (
        written(directory),
        TemporaryDirectory(prefix=".pieces-", dir=directory) as work,
        Flows(context, report) as flows,
    ):
        count = 1 if context is None else _PER_CORE * flows.cores
        parts = feed_parts(source, *span, count)
        writer = FileWriter(context, Path(work))
        write = partial(_write_stream, shipped(context, source, Path(work)), writer)
        pieces = flows.of(list(enumerate(parts))).map(write)
        counts = writer.take(pieces, f"writing streams of {source.name}")
        for number, stream in enumerate(source.streams()):
            own = [Path(work, name) for name in counts if name.startswith(f"{number:06}-")]
            join_files(own, directory / f"{stream}.tsv")
    return sum(counts.values())


def _write_stream(
    opened: Opener[Feed], writer: FileWriter, numbered: tuple[int, FeedPart]
) -> Iterator[FilePiece]:
    number, part = numbered
    stream = part.stream or 0
    with opened() as source:
        readings = source.readings(source.streams()[stream], part.start, part.until)
        lines = chain.from_iterable(element_lines(*reading) for reading in readings)
        yield from writer.put(f"{stream:06}-{number:06}", lines)


def write_facts_spark(
    feed: Feed,
    target: Path,
    method: Method,
    naming: Naming,
    context: "SparkContext | None",
    span: _Span,
    report: Report,
) -> int:
    """Write what `loaders.dynamic.write_labelled` writes, by Spark."""
    make_directory(target.parent)
    with written(target), TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as work:
        aside = Path(work)
        facts = write_parts_spark(feed, aside, method, naming, context, span, report)
        join_files((aside / name for name in facts), target)
    return sum(facts.values())


def write_parts_spark(
    feed: Feed,
    folder: Path | RemoteFolder,
    method: Method,
    naming: Naming,
    context: "SparkContext | None",
    span: _Span,
    report: Report,
) -> dict[str, int]:
    """Write facts to files, each a range of time; return how many each has, in order of time."""
    writer = FileWriter(context, folder)

    def write(statements: Flow[Gathered], shares: int, history: _History) -> dict[str, int]:
        labelled = statements.map(partial(_labelled, history, shares, method, naming))
        by_time = labelled.exchanged(2 * shares)
        pieces = by_time.map(partial(_write_range, writer))
        return writer.take(pieces, f"writing facts of {feed.name}")

    return _by_share(feed, context, span, report, write) or {}


def publish_history_spark(
    feed: Feed,
    publisher: Publisher,
    context: "SparkContext | None",
    span: _Span,
    report: Report,
) -> int:
    """Publish what `loaders.dynamic.publish_history` publishes, from the workers.

    Each publishes the facts of some subjects and predicates, whose versions keep their order. A
    repeated task sends the same batches, which count once.
    """
    run = f"history-{token_hex(12)}"

    def publish(statements: Flow[Gathered], _shares: int, history: _History) -> int:
        post = partial(_posted, history, publisher.url, publisher.token, run)
        return sum(statements.map(post).collect(f"publishing {feed.name}"))

    return _by_share(feed, context, span, report, publish) or 0


class _Instants(NamedTuple):
    """The instants at which batches begin and end, in microseconds since 1970."""

    batches: list[tuple[int, int]]


class _Said(NamedTuple):
    """Packed statements of a share, by the part of the feed that they are from."""

    share: int
    part: int
    number: int
    rows: bytes


class _History(NamedTuple):
    """The instants of all batches, in order, and how those of a share are made."""

    instants: list[tuple[int, int]]
    latest: bool

    def of(self, share: Gathered) -> Iterator[tuple[FactPlace, Fact]]:
        """Yield the facts of a share, in order, with their positions."""
        statements = (row for said in sorted(share.values) for row in unpacked_rows(said.rows))
        numbered = _latest if self.latest else _batches
        return placed_history(numbered(statements, self.instants))


def _by_share(
    feed: Feed,
    context: "SparkContext | None",
    span: _Span,
    report: Report,
    work: Callable[[Flow[Gathered], int, _History], ResultT],
) -> ResultT | None:
    """Give the statements of a feed, by share, to some work; ``None``: there are none."""
    with (
        TemporaryDirectory(prefix="tpf-load-") as directory,
        Flows(context, report) as flows,
    ):
        shares = _PER_CORE * flows.cores
        parts = feed_parts(feed, *span, shares)
        if not parts:
            return None
        read = partial(_read_part, shipped(context, feed, Path(directory)), shares)
        told = flows.of(list(enumerate(parts))).map(read).kept()
        instants = told.only(_Instants).collect(f"reading {feed.name}")
        by_share = told.only(_Said).map(_to_share).exchanged(shares)
        latest = isinstance(feed, LatestReadings)
        return work(by_share, shares, _History(_all_instants(instants, feed), latest))


def _all_instants(told: list[_Instants], feed: Feed) -> list[tuple[int, int]]:
    batches = {batch for each in told for batch in each.batches}
    if not isinstance(feed, LatestReadings):
        return sorted(batches)
    # A batch holds until the next one, whichever stream speaks then.
    times = sorted({at for at, _ in batches})
    if not times:
        return []
    last = times[-1] + feed.last_holds // _MICROSECOND
    return list(zip(times, [*times[1:], last], strict=True))


def _read_part(
    opened: Opener[Feed], shares: int, numbered: tuple[int, FeedPart]
) -> Iterator[_Instants | _Said]:
    number, part = numbered
    instants: list[tuple[int, int]] = []
    results: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    held = chunk = 0

    def told() -> Iterator[_Instants | _Said]:
        yield _Instants(instants)
        for share, rows in results.items():
            yield _Said(share, number, chunk, packed_rows(rows))

    with opened() as feed:
        for at, end, position, quads in timed_statements(feed, part):
            instants.append((at, end))
            if part.stream is not None:
                # Without any, nothing of this stream holds from now on.
                rows = results[stream_of(position) % shares]
                rows += ((at, place, *q) for place, q in enumerate(quads or [_NOTHING], position))
            else:
                for place, quad in enumerate(quads, position):
                    share = crc32("\0".join(key_of(quad)).encode()) % shares
                    results[share].append((at, place, *quad))
            held += len(quads) + 1
            if held >= _CHUNK:
                yield from told()
                instants, held, chunk = [], 0, chunk + 1
                results.clear()
    yield from told()


def _to_share(said: _Said) -> Iterator[Message]:
    yield Message(said.share, said)


def _posted(
    history: _History, url: str, token: str | None, run: str, share: Gathered
) -> Iterator[int]:
    with closing(Publisher(url, SystemClock(), token)) as publisher:
        facts = (fact for _, fact in history.of(share))
        yield publish_history(facts, publisher, f"{run}-{share.partition}")


def _labelled(
    history: _History, ranges: int, method: Method, naming: Naming, share: Gathered
) -> Iterator[Message]:
    results: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    held = 0
    for place, fact in history.of(share):
        lines = "".join(f"{line_of(q)}\n" for q in method.encode(fact, naming))
        results[_range(place, len(history.instants), ranges)].append((*place, lines))
        held += 1
        if held >= _CHUNK:
            yield from (Message(number, packed_rows(rows)) for number, rows in results.items())
            results.clear()
            held = 0
    yield from (Message(number, packed_rows(rows)) for number, rows in results.items())


def _range(place: FactPlace, batches: int, ranges: int) -> int:
    if place.batch < batches:
        return place.batch * ranges // batches
    # What ends with the feed, which may be most of it.
    return ranges + place.since * ranges // batches


def _write_range(writer: FileWriter, by_time: Gathered) -> Iterator[FilePiece]:
    if by_time.values:
        rows = sorted(row for packed in by_time.values for row in unpacked_rows(packed))
        yield from writer.put(f"part-{by_time.partition:05}.nq", (lines for *_, lines in rows))


def _batches(
    statements: Iterator[tuple[Any, ...]], instants: list[tuple[int, int]]
) -> Iterator[NumberedBatch]:
    groups = groupby(statements, key=itemgetter(0))
    group = next(groups, None)
    for number, (at, end) in enumerate(instants):
        quads: Iterable[tuple[int, Quad]] = ()
        if group is not None and group[0] == at:
            quads = sorted((row[1], _quad(row)) for row in group[1])
        yield NumberedBatch(number, at, end, quads)
        if quads:
            group = next(groups, None)


def _latest(
    statements: Iterator[tuple[Any, ...]], instants: list[tuple[int, int]]
) -> Iterator[NumberedBatch]:
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
