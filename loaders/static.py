"""Static facts of a source into a directory of N-Triples files, by Spark or by plain Python.

A file with facts in named graphs is one of N-Quads, and is called so.

Both ways write exactly the same facts; each fact once. A source cuts its input into pieces, and any
worker turns a piece into lines; Spark spreads the pieces over its cores, takes out repetitions by
a shuffle, and every partition becomes a file.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from annotations.terms import Quad
from loaders.jobs import collected
from loaders.outputs import directory_aside
from loaders.progress import Report, Silent, spark_tasks
from loaders.rdf.files import replaced
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


def line_of(quad: Quad) -> str:
    """The N-Quads line of a quad, without its line end; in the default graph, it is N-Triples."""
    graph = f" {quad.graph}" if quad.graph else ""
    return f"{quad.subject} {quad.predicate} {quad.object}{graph} ."


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
        _write(aside / "part-00000", lines)
    return LoadSummary(len(lines), 1)


def load_spark(
    source: StaticSource,
    output: Path,
    context: "SparkContext",
    replace: bool = False,
    report: Report | None = None,
) -> LoadSummary:
    """Write the static facts by Spark.

    The input and the output must be visible to every worker under the same path.

    Raises:
        InputError: the input is malformed.
        OutputError: the output exists or cannot be written.
    """
    report = report or Silent()
    with directory_aside(output, replace) as aside:
        pieces = source.pieces(2 * context.defaultParallelism)
        lines = context.parallelize(pieces, len(pieces)).flatMap(_Lines(source))
        parts = lines.distinct(context.defaultParallelism)
        with spark_tasks(context, report, f"reading {source.name} with Spark"):
            counts = collected(context, parts.mapPartitionsWithIndex(_Writer(aside)))
        triples = sum(counts)
        files = _in_sequence(aside)
    return LoadSummary(triples, files)


class _Lines:
    """Turns a piece of a source into lines; runs in the workers."""

    def __init__(self, source: StaticSource) -> None:
        self.source = source

    def __call__(self, piece: str) -> Iterator[_Line]:
        return _lines(self.source.quads(piece))


class _Writer:
    """Writes the lines of a partition to a file and counts them; runs in the workers."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)

    def __call__(self, number: int, lines: Iterable[_Line]) -> Iterator[int]:
        found = list(lines)
        if found:
            _write(Path(self.directory) / f"part-{number:05}", found)
        yield len(found)


def _lines(quads: Iterable[Quad]) -> Iterator[_Line]:
    return (_Line(line_of(quad), bool(quad.graph)) for quad in quads)


def _write(path: Path, lines: Collection[_Line]) -> None:
    """Write lines in order; the path gets the suffix of what they are."""
    target = path.with_suffix(".nq" if any(line.in_graph for line in lines) else ".nt")
    with replaced(target) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line.text}\n" for line in sorted(lines))


def _in_sequence(directory: Path) -> int:
    """Number the files without gaps; how many there are."""
    files = sorted(directory.glob("part-*"))
    for number, file in enumerate(files):
        file.rename(directory / f"part-{number:05}{file.suffix}")
    return len(files)
