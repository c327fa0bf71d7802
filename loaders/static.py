"""Static facts of a source into a directory of N-Triples files, by Spark or by plain Python.

Both ways write exactly the same facts; each fact once. A source cuts its input into pieces, and any
worker turns a piece into triples; Spark spreads the pieces over its cores, takes out repetitions by
a shuffle, and every partition becomes a file.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotations.terms import Quad
from loaders.errors import OutputError
from loaders.outputs import directory_aside
from loaders.progress import Report, Silent, spark_tasks
from loaders.rdf.build import RdfSummary, load_rdf_local, load_rdf_spark
from loaders.rdf.pieces import input_files
from loaders.session import worker_errors
from loaders.sources.base import StaticSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 20_000


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
    session: "SparkSession",
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
        cores = session.sparkContext.defaultParallelism
        pieces = source.pieces(2 * cores)
        # One partition per piece.
        numbers = session.range(0, len(pieces), 1, len(pieces))
        lines = numbers.mapInArrow(_Reader(source, list(pieces)), "line string")
        with spark_tasks(session, report, f"reading {source.name} with Spark"), worker_errors():
            written = aside / "spark"
            lines.distinct().sortWithinPartitions("line").write.text(str(written))
        files = _collect_parts(written, aside)
        triples = session.read.text([str(file) for file in files]).count() if files else 0
    return LoadSummary(triples, len(files))


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


def store_spark(
    source: StaticSource,
    store: Path,
    session: "SparkSession",
    created: datetime,
    report: Report | None = None,
) -> RdfSummary:
    """Write the static facts as a store, by Spark; see `load_spark`.

    Raises:
        InputError: the input is malformed.
        OutputError: the store cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=f".{store.name}.", dir=_parent(store)) as aside:
        load_spark(source, Path(aside) / "facts", session, report=report)
        return load_rdf_spark(
            input_files([Path(aside) / "facts"]), store, session, created=created, strict=True,
            report=report, source=source.name, prefixes=source.prefixes,
        )  # fmt: skip


def _parent(store: Path) -> Path:
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{store}: {error.strerror or error}") from error
    return store.parent


class _Reader:
    """Turns Arrow batches of numbers of pieces into lines; runs in the workers."""

    def __init__(self, source: StaticSource, pieces: list[str]) -> None:
        self.source = source
        self.pieces = pieces

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        lines: list[str] = []
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for triple in self.source.quads(self.pieces[number]):
                    lines.append(line_of(triple))
                    if len(lines) == _ROWS:
                        yield pa.RecordBatch.from_pydict({"line": lines})
                        lines = []
        yield pa.RecordBatch.from_pydict({"line": pa.array(lines, pa.string())})


def _collect_parts(written: Path, target: Path) -> list[Path]:
    files: list[Path] = []
    for part in sorted(written.glob("part-*")):
        if part.stat().st_size:
            file = target / f"part-{len(files):05}.nt"
            os.replace(part, file)
            files.append(file)
    for rest in (*written.iterdir(),):
        rest.unlink()
    written.rmdir()
    return files
