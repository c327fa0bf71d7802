"""Static facts of a source into a directory of N-Triples files, by Spark or in one process.

A file with facts in named graphs is one of N-Quads. A worker reads a piece of the input, an
exchange takes out repetitions, a partition becomes a file.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from loaders.distributed.shipping import FilePiece, FileWriter, Opener, shipped
from loaders.outputs import directory_aside, line_of
from loaders.progress import SILENT, Report
from loaders.rdf.flow import Flows, Gathered, Message
from loaders.sources.base import StaticSource

if TYPE_CHECKING:
    from pyspark import SparkContext

_LINES: Final = 20_000
"""That a task holds before it sends them."""


class LoadSummary(NamedTuple):
    """The numbers of written triples and files."""

    triples: int
    files: int


def load_lines(
    source: StaticSource,
    output: Path,
    context: "SparkContext | None",
    replace: bool = False,
    report: Report = SILENT,
) -> LoadSummary:
    """Write the static facts: every executor its files, where it reaches the output."""
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
    return LoadSummary(sum(counts.values()), len(counts))


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
