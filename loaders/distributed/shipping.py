"""Send an object to the workers with the files that it reads, and let them write files.

Local files go as one archive, because workers may share no directory; errors name the user's paths.
"""

import io
import os
import pickle
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path, PurePath
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from annotations.instants import to_micros
from annotations.terms import Quad
from annotations.whole_files import replaced_file, replaced_path
from loaders.errors import InputError
from loaders.jobs import rows_of
from loaders.outputs import output_errors, written
from loaders.places import InputPlace, RemotePlace
from loaders.rdf.flow import Flow
from loaders.sources.base import Feed, LatestReadings
from tpf_server.store.static.file_systems import RemoteFolder

if TYPE_CHECKING:
    from pyspark import SparkContext


# Many small rows as one binary value: Java moves few large values, whatever is in them.


def packed_rows(rows: Sequence[tuple[Any, ...]]) -> bytes:
    """Pack rows of integers and texts as an Arrow stream."""
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    batch = pa.record_batch(columns, list(map(str, range(len(columns)))))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked_rows(content: bytes) -> Iterator[tuple[Any, ...]]:
    """The rows."""
    with pa.ipc.open_stream(content) as reader:
        yield from rows_of(reader)


_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


# How a feed is cut into parts, each of which a worker reads without the others.

_OF_A_STREAM = 32
"""Bits of a place that number what a stream says at one instant."""


class FeedPart(NamedTuple):
    """A span of a feed, or of one of its streams; ``None``: unbounded."""

    stream: int | None
    start: datetime | None
    until: datetime | None


class TimedStatements(NamedTuple):
    """The statements of a part at one instant, in microseconds since 1970.

    `end` is until when they hold, or `at`; `place` their first position at this instant.
    """

    at: int
    end: int
    place: int
    quads: tuple[Quad, ...]


def feed_parts(
    feed: Feed, start: datetime | None, until: datetime | None, count: int
) -> list[FeedPart]:
    """Cut a feed into about `count` spans, or streams.

    Streams with latest readings stay whole: an earlier reading would still hold.
    """
    if isinstance(feed, LatestReadings):
        return [FeedPart(number, start, until) for number, _ in enumerate(feed.streams())]
    if count == 1:
        return [FeedPart(None, start, until)]
    span = feed.span(start, until)
    if span is None:
        return []
    count = max(1, min(count, span.polls))
    width = (span.end - span.start) / count
    cuts = [start, *(span.start + number * width for number in range(1, count)), until]
    return [FeedPart(None, *ends) for ends in pairwise(cuts)]


def timed_statements(feed: Feed, part: FeedPart) -> Iterator[TimedStatements]:
    """Return the statements of a part by time."""
    if part.stream is None:
        for batch in feed.batches(part.start, part.until):
            yield TimedStatements(to_micros(batch.at), to_micros(batch.end), 0, batch.quads)
        return
    assert isinstance(feed, LatestReadings)
    stream = feed.streams()[part.stream]
    readings = feed.readings(stream, part.start, part.until)
    for instant, simultaneous in groupby(readings, key=attrgetter("at")):
        *_, latest = simultaneous
        at = to_micros(instant)
        yield TimedStatements(at, at, part.stream << _OF_A_STREAM, latest.quads)


def stream_of(position: int) -> int:
    """Return the number of the stream at a position."""
    return position >> _OF_A_STREAM


# Files that workers write as a whole, each under its own name: a repeated task changes nothing.


class FilePiece(NamedTuple):
    """How many items of a file were written, or a text of it for the driver to write."""

    name: str
    items: int
    text: str = ""


class FileWriter:
    """Writes files into a folder that workers reach; else hands their texts to the driver."""

    def __init__(self, context: "SparkContext | None", folder: Path | RemoteFolder) -> None:
        self._folder = folder
        self._reached = _shares_files(context) or isinstance(folder, RemoteFolder)

    def put(self, name: str, items: Iterable[str]) -> Iterator[FilePiece]:
        """Write a file; yield what the driver needs of it. Runs in the workers."""
        count = 0

        def texts() -> Iterator[str]:
            nonlocal count
            some: list[str] = []
            size = 0
            for item in items:
                some.append(item)
                size += len(item)
                count += 1
                if size >= _TEXT:
                    yield "".join(some)
                    some, size = [], 0
            yield "".join(some)

        if not self._reached:
            yield from (FilePiece(name, 0, text) for text in texts())
        elif isinstance(self._folder, RemoteFolder):
            with output_errors():
                self._folder.write(name, map(str.encode, texts()))
        else:
            target = self._folder / name
            with written(target), replaced_file(target, durable=False) as file:
                file.writelines(texts())
        yield FilePiece(name, count)

    def take(self, pieces: Flow[FilePiece], description: str) -> dict[str, int]:
        """Write the files, in the driver if workers do not reach them; count their items."""
        result: Counter[str] = Counter()
        # Where texts come, some at a time.
        for piece in (pieces.collect if self._reached else pieces.each)(description):
            if not self._reached:
                assert isinstance(self._folder, Path)
                file = self._folder / piece.name
                with file.open("a", encoding="utf-8", newline="\n") as written_to:
                    written_to.write(piece.text)
            result[piece.name] += piece.items
        return dict(sorted(result.items()))


def _shares_files(context: "SparkContext | None") -> bool:
    return context is None or str(context.master).startswith("local")


def join_files(files: Iterable[Path], target: Path) -> None:
    """Replace a file by the content of others."""
    with written(target), replaced_path(target, durable=False) as aside, aside.open("wb") as joined:
        for file in files:
            with file.open("rb") as content:
                shutil.copyfileobj(content, joined, _TEXT)


_TEXT: Final = 1 << 20
"""Characters that are written, or go to the driver, at once."""


Thing = TypeVar("Thing")
_opened: dict[str, Any] = {}
"""The last object of this worker: its tasks come one by one, and mostly want the same."""


Opener: TypeAlias = Callable[[], AbstractContextManager[Thing]]
"""Gives an object in any worker."""


def shipped(context: "SparkContext | None", thing: Thing, directory: Path) -> Opener[Thing]:
    """Give an object to the workers; errors name the user's paths."""
    if context is None:
        return lambda: nullcontext(thing)
    name = f"input-{token_hex(8)}"
    packed: dict[Path, str] = {}
    if not _shares_files(context):
        local = (each for each in input_places(thing) if isinstance(each, Path))
        packed = {path: f"{number}/{path.name}" for number, path in enumerate(local)}
    if packed:
        archive = directory / f"{name}.zip"
        _pack(packed, archive)
        context.addArchive(f"{archive}#{name}")
    shown = {inside: str(path) for path, inside in packed.items()}
    return partial(_opened_here, name, _pickled(thing, name, packed), shown)


@contextmanager
def _opened_here(name: str, content: bytes, paths: Mapping[str, str]) -> Iterator[Any]:
    try:
        if name not in _opened:
            _opened.clear()
            # Nobody but our driver sends it.
            _opened[name] = pickle.loads(content)  # noqa: S301
        yield _opened[name]
    except InputError as error:
        text = str(error)
        for packed, path in paths.items():
            text = text.replace(str(_located(name, packed)), path)
        raise InputError(text) from None


def input_places(thing: object) -> list[InputPlace]:
    """Return the files and directories of an object."""
    result: set[Path] = set()
    remote: dict[int, RemotePlace] = {}

    class Finder(pickle.Pickler):
        def reducer_override(self, each: Any) -> Any:
            if isinstance(each, Path):
                result.add(Path(os.path.abspath(each)))
            elif isinstance(each, RemotePlace):
                remote[id(each.tree)] = RemotePlace(each.tree)
            return NotImplemented

    with Path(os.devnull).open("wb") as nowhere:
        Finder(nowhere, pickle.HIGHEST_PROTOCOL).dump(thing)
    local = sorted(path for path in result if path.exists() and not result & set(path.parents))
    return [*local, *remote.values()]


def _pickled(thing: object, name: str, packed: Mapping[Path, str]) -> bytes:
    class Moving(pickle.Pickler):
        def reducer_override(self, each: Any) -> Any:
            if isinstance(each, PurePath):
                absolute = Path(os.path.abspath(each))
                for path, inside in packed.items():
                    if absolute.is_relative_to(path):
                        return _located, (name, str(Path(inside, absolute.relative_to(path))))
            return NotImplemented

    content = io.BytesIO()
    Moving(content, pickle.HIGHEST_PROTOCOL).dump(thing)
    return content.getvalue()


def _located(name: str, packed: str) -> Path:
    from pyspark import SparkFiles

    return Path(SparkFiles.get(name), packed)


def _pack(paths: Mapping[Path, str], archive: Path) -> None:
    # Inputs are mostly compressed, and the network of a cluster is fast.
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED, strict_timestamps=False) as packed:
        for path, inside in paths.items():
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    packed.write(file, str(Path(inside, file.relative_to(path))))
