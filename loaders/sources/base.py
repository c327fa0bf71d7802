"""What a source is: static facts in pieces that can be read in parallel, and a feed of batches."""

import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from annotations.labels import Expiration, Fact, Interval, Labelling
from annotations.terms import Quad
from loaders.places import RemoteFile, RemotePlace
from loaders.sources.reading import archive

# How large an input is: decides whether starting Spark for it pays.

SMALL = 64 << 20
"""Bytes of input, not compressed, that one process loads sooner than Spark has started and loaded.

See "When Spark pays" in the documentation of loading.
"""

_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".xz", ".hdt"})
_RATIO = 8
"""How many times as large tables and RDF usually are when they are not compressed."""


def size_of(paths: Iterable[Path | RemoteFile | RemotePlace]) -> int:
    """About how many bytes files and directories hold, not compressed; what is missing has none."""
    total = 0
    for path in paths:
        if isinstance(path, RemoteFile):
            packed = path.path.suffix.lower() in {".zip", *_COMPRESSED}
            total += path.size * (_RATIO if packed else 1)
        elif isinstance(path, RemotePlace):
            total += size_of(path.files())
        elif path.is_dir():
            total += size_of(path.iterdir())
        elif path.suffix.lower() == ".zip" and zipfile.is_zipfile(path):
            with archive(path) as opened:
                total += sum(each.file_size for each in opened.infolist())
        elif path.is_file():
            total += path.stat().st_size * (_RATIO if path.suffix.lower() in _COMPRESSED else 1)
    return total


class FeedBatch(NamedTuple):
    """What a feed says at one instant.

    Args:
        at: when it says so.
        until: when it speaks next.
        quads: the dynamic statements.
        holds: until when they hold; ``None``: until it speaks next.
    """

    at: datetime
    until: datetime
    quads: tuple[Quad, ...]
    holds: datetime | None = None

    @property
    def end(self) -> datetime:
        """The instant at which the statements cease to hold."""
        return self.holds or self.until

    def facts(self, labelling: Labelling) -> Iterator[Fact]:
        """The statements with their label: until they cease to hold, or from now until then."""
        label = Expiration(self.end) if labelling == "expiration" else Interval(self.at, self.end)
        return (Fact(quad, label) for quad in self.quads)


class StaticSource(Protocol):
    """Something whose static facts are read in pieces, each by any worker.

    A source and its pieces are pickled to the workers of a cluster.
    """

    name: str
    prefixes: Mapping[str, str]
    """Prefix to namespace, for display."""

    def pieces(self, count: int) -> Sequence[str]:
        """About `count` pieces of work, as texts that only this source understands.

        Raises:
            InputError: the input is missing or malformed.
        """

    def size(self) -> int:
        """About how many bytes of input, not compressed, the static facts are made of."""

    def quads(self, piece: str) -> Iterator[Quad]:
        """The static facts of one piece; pieces may repeat each other's facts.

        Raises:
            InputError: the input is malformed.
        """


class Feed(Protocol):
    """Something that speaks from time to time."""

    name: str

    def batches(self, start: datetime | None, until: datetime | None) -> Iterable[FeedBatch]:
        """What it says at every instant from `start` (inclusive) to `until` (exclusive), in order.

        Raises:
            InputError: the input is malformed.
        """


class FeedSpan(NamedTuple):
    """First instant of a feed, end of what it says last, and how often it speaks."""

    start: datetime
    end: datetime
    polls: int


class Reading(NamedTuple):
    """What a sensor says once.

    Args:
        at: when.
        quads: what it says.
    """

    at: datetime
    quads: tuple[Quad, ...]


@runtime_checkable
class MeasurableFeed(Feed, Protocol):
    """A feed that knows its span without being told as a whole: for a progress bar, and to be cut.

    What it says from one instant to another is what it says then as a whole.
    """

    def span(self, start: datetime | None, until: datetime | None) -> FeedSpan | None:
        """The span of `batches` with the same arguments; ``None`` where there are none."""


@runtime_checkable
class StreamSource(Protocol):
    """Something that can be told as streams of timestamped triples."""

    name: str

    def streams(self) -> Sequence[str]:
        """The names of the streams."""

    def readings(
        self, stream: str, start: datetime | None, until: datetime | None
    ) -> Iterator[Reading]:
        """What one stream says from `start` (inclusive) to `until` (exclusive), in order of time.

        Raises:
            InputError: the input is malformed.
        """


@runtime_checkable
class LatestReadings(StreamSource, Protocol):
    """Streams as a feed: whenever one speaks, the latest reading of each.

    No two streams speak of the same fact.
    """

    last_holds: timedelta
    """For how long what is said last holds."""
