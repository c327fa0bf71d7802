"""The streams of a source by Spark: the files that one process writes, byte for byte.

A task tells a part of a stream; no row meets another one. The driver appends what they return.
"""

import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from loaders.distributed.packing import rows_of
from loaders.distributed.parts import FeedPart, stream_parts
from loaders.distributed.shipping import Shipped, shipped
from loaders.dynamic import file_aside, make_directory, stream_lines
from loaders.jobs import done_in_thread
from loaders.progress import Report, spark_tasks
from loaders.sources.base import StreamSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """Write what `loaders.dynamic.write_streams` writes, by Spark.

    Raises:
        InputError: the source is malformed.
        OutputError: a file cannot be written.
    """
    context = session.sparkContext
    streams = source.streams()
    make_directory(directory)
    parts = stream_parts(source, start, until, 2 * context.defaultParallelism)
    with tempfile.TemporaryDirectory(prefix="tpf-load-") as work:
        sources = shipped(context, source, Path(work))
        told = session.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(
            _LinesOfParts(sources, parts), "stream int, lines bigint, text string"
        )

        def write() -> int:
            count = 0
            groups = groupby(told.toLocalIterator(), key=attrgetter("stream"))
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
    """The lines of parts of streams; runs in the workers."""

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
