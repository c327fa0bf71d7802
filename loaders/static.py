"""Static facts of a source into a directory of N-Triples files, by Spark or by plain Python.

Both ways write exactly the same facts; each fact once. A source cuts its input into pieces, and any
worker turns a piece into lines; Spark spreads the pieces over its cores, takes out repetitions by
a shuffle, and every partition becomes a file.
"""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from annotations.terms import Quad
from loaders.errors import OutputError
from loaders.outputs import directory_aside
from loaders.progress import Report, Silent, spark_tasks
from loaders.rdf.files import replaced
from loaders.rdf.local import load_rdf_local
from loaders.rdf.pieces import input_files
from loaders.rdf.summary import RdfSummary
from loaders.session import collected
from loaders.sources.base import StaticSource

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """What was written: how many triples, in how many files."""

    triples: int
    files: int


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
        lines: set[str] = set()
        for number, piece in enumerate(pieces, start=1):
            lines.update(map(line_of, source.quads(piece)))
            report.done(number)
        report.stage("writing", 1)
        with (aside / "part-00000.nt").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in sorted(lines))
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


def store_local(
    source: StaticSource, store: Path, created: datetime, report: Report | None = None
) -> RdfSummary:
    """Write the static facts as a store, by one process; see `load_local`.

    Raises:
        InputError: the input is malformed.
        OutputError: the store cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=f".{store.name}.", dir=_parent(store)) as aside:
        load_local(source, Path(aside) / "facts", report=report)
        return load_rdf_local(
            input_files([Path(aside) / "facts"]), store, created=created, strict=True,
            report=report, source=source.name, prefixes=source.prefixes,
        )  # fmt: skip


def _parent(store: Path) -> Path:
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{store}: {error.strerror or error}") from error
    return store.parent


class _Lines:
    """Turns a piece of a source into lines; runs in the workers."""

    def __init__(self, source: StaticSource) -> None:
        self.source = source

    def __call__(self, piece: str) -> Iterator[str]:
        return map(line_of, self.source.quads(piece))


class _Writer:
    """Writes the lines of a partition to a file and counts them; runs in the workers."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)

    def __call__(self, number: int, lines: Iterable[str]) -> Iterator[int]:
        ordered = sorted(lines)
        if ordered:
            target = Path(self.directory) / f"part-{number:05}.nt"
            with (
                replaced(target) as aside,
                aside.open("w", encoding="utf-8", newline="\n") as file,
            ):
                file.writelines(f"{line}\n" for line in ordered)
        yield len(ordered)


def _in_sequence(directory: Path) -> int:
    """Number the files without gaps; how many there are."""
    files = sorted(directory.glob("part-*"))
    for number, file in enumerate(files):
        file.rename(directory / f"part-{number:05}.nt")
    return len(files)
