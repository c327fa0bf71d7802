"""Static facts of a source into a directory of N-Triples files, by Spark or by plain Python.

A file with facts in named graphs is one of N-Quads. Both write the same facts: a worker reads a
piece of the input, a shuffle takes out repetitions, a partition becomes a file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from loaders.distributed.shipping import PieceWriter, Shipped, shipped
from loaders.jobs import done_in_thread, rows_of, step
from loaders.outputs import directory_aside, line_of
from loaders.progress import SILENT, Report, spark_tasks
from loaders.sources.base import StaticSource

if TYPE_CHECKING:
    from pyspark import SparkContext

_LINES: Final = 20_000
"""In a batch that goes to Java."""


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """The numbers of written triples and files."""

    triples: int
    files: int


def load_local(
    source: StaticSource, output: Path, replace: bool = False, report: Report = SILENT
) -> LoadSummary:
    """Write the static facts in one process."""
    with directory_aside(output, replace) as aside:
        pieces = source.pieces(8)
        report.stage(f"reading {source.name}", len(pieces))
        lines: dict[str, bool] = {}
        for number, piece in enumerate(pieces, start=1):
            lines.update((line_of(quad), bool(quad.graph)) for quad in source.quads(piece))
            report.done(number)
        report.stage("writing", 1)
        suffix = "nq" if any(lines.values()) else "nt"
        text = "".join(f"{line}\n" for line in sorted(lines))
        (aside / f"part-00000.{suffix}").write_bytes(text.encode())
    return LoadSummary(len(lines), 1)


def load_spark(
    source: StaticSource,
    output: Path,
    context: "SparkContext",
    replace: bool = False,
    report: Report = SILENT,
) -> LoadSummary:
    """Write the static facts with Spark: every executor its files, where it reaches the output."""
    from pyspark.sql import SparkSession

    with directory_aside(output, replace) as aside, TemporaryDirectory(prefix="tpf-load-") as work:
        pieces = source.pieces(2 * context.defaultParallelism)
        read = step(_lines, shipped(context, source, Path(work)), pieces)
        writer = PieceWriter(context, aside)
        lines = (
            SparkSession(context)
            .range(0, len(pieces), 1, len(pieces))
            .mapInArrow(read, "line string, in_graph boolean")
            .repartition(context.defaultParallelism, "line")
            .dropDuplicates(["line"])
            .sortWithinPartitions("line")
        )
        files = lines.mapInArrow(step(_line_file, writer), writer.schema)
        with spark_tasks(context, report, f"reading {source.name} with Spark"):
            counts = done_in_thread(context, partial(writer.take, files, aside))
        for number, name in enumerate(counts):
            (aside / name).rename(aside / f"part-{number:05}.{name.rpartition('.')[2]}")
    return LoadSummary(sum(counts.values()), len(counts))


def _lines(
    sources: Shipped[StaticSource], pieces: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with sources.opened() as source:
        for (number,) in rows_of(batches):
            quads = source.quads(pieces[number])
            while some := list(islice(quads, _LINES)):
                lines, in_graph = map(line_of, some), (bool(quad.graph) for quad in some)
                yield pa.record_batch({"line": list(lines), "in_graph": list(in_graph)})


def _line_file(writer: PieceWriter, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    task = TaskContext.get()
    if rows := list(rows_of(batches)):
        assert task is not None
        suffix = "nq" if any(in_graph for _, in_graph in rows) else "nt"
        name = f".{task.partitionId():05}.{suffix}"
        yield from writer.put(name, (f"{line}\n" for line, _ in rows))
