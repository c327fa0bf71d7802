"""Static facts of a source into a directory of N-Triples files, by Spark or by plain Python.

A file with facts in named graphs is one of N-Quads, and is called so.

Both ways write exactly the same facts; each fact once. A source cuts its input into pieces, and any
worker turns a piece into lines; Spark spreads the pieces over its cores, takes out repetitions by
a shuffle, and every partition becomes a file.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from annotations.terms import Quad
from loaders.jobs import made_by_workers, one_by_one
from loaders.outputs import directory_aside, line_of
from loaders.progress import Report, Silent, spark_tasks
from loaders.sources.base import StaticSource

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """What was written: how many triples, in how many files."""

    triples: int
    files: int


class _Line(NamedTuple):
    """A line of N-Quads, and whether it names a graph; else it is one of N-Triples."""

    text: str
    in_graph: bool


def load_local(
    source: StaticSource, output: Path, replace: bool = False, report: Report | None = None
) -> LoadSummary:
    """Write the static facts by one process, without Spark.

    Raises:
        InputError: the input is malformed.
        OutputError: the output exists or cannot be written.
    """
    report = report or Silent()
    with directory_aside(output, replace) as aside:
        pieces = source.pieces(8)
        report.stage(f"reading {source.name}", len(pieces))
        lines: set[_Line] = set()
        for number, piece in enumerate(pieces, start=1):
            lines.update(_lines(source.quads(piece)))
            report.done(number)
        report.stage("writing", 1)
        (part,) = _part(lines)
        part.write(aside, 0)
    return LoadSummary(len(lines), 1)


def load_spark(
    source: StaticSource,
    output: Path,
    context: "SparkContext",
    replace: bool = False,
    report: Report | None = None,
) -> LoadSummary:
    """Write the static facts by Spark.

    The input must be visible to every worker under the same path; the output is written here.

    Raises:
        InputError: the input is malformed.
        OutputError: the output exists or cannot be written.
    """
    from pyspark import StorageLevel

    report = report or Silent()
    with directory_aside(output, replace) as aside:
        pieces = source.pieces(2 * context.defaultParallelism)
        lines = context.parallelize(pieces, len(pieces)).flatMap(_Lines(source))
        parts = lines.distinct(context.defaultParallelism)
        with spark_tasks(context, report, f"reading {source.name} with Spark"):
            found = parts.mapPartitions(_part).persist(StorageLevel.DISK_ONLY)
            counts = made_by_workers(context, found.map(_count))
        try:
            files = (part for part in one_by_one(context, found) if part.lines)
            for number, part in enumerate(files):
                part.write(aside, number)
        finally:
            found.unpersist()
    return LoadSummary(sum(counts), sum(map(bool, counts)))


class _Lines:
    """Turns a piece of a source into lines; runs in the workers."""

    def __init__(self, source: StaticSource) -> None:
        self.source = source

    def __call__(self, piece: str) -> Iterator[_Line]:
        return _lines(self.source.quads(piece))


class _Part(NamedTuple):
    """The text of a file, how many lines it has, and whether any is in a named graph."""

    text: bytes
    lines: int
    in_graphs: bool

    def write(self, directory: Path, number: int) -> None:
        """Make it a file, called after what it has."""
        suffix = "nq" if self.in_graphs else "nt"
        (directory / f"part-{number:05}.{suffix}").write_bytes(self.text)


def _part(lines: Iterable[_Line]) -> Iterator[_Part]:
    """The lines of a partition, in order; runs in the workers."""
    found = sorted(lines)
    text = "".join(f"{line.text}\n" for line in found)
    yield _Part(text.encode(), len(found), any(line.in_graph for line in found))


def _count(part: _Part) -> int:
    return part.lines


def _lines(quads: Iterable[Quad]) -> Iterator[_Line]:
    return (_Line(line_of(quad), bool(quad.graph)) for quad in quads)
