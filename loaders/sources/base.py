"""Interfaces of sources: static facts in pieces, and feeds of batches."""

import heapq
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from annotations.instants import shifted
from annotations.labels import Expiration, Fact, Interval, Labelling
from annotations.terms import Quad
from loaders.errors import InputError
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
    """Estimate the uncompressed bytes of files and directories."""
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


ItemT = TypeVar("ItemT")


def is_within(at: datetime, start: datetime | None, until: datetime | None) -> bool:
    """True from `start` to before `until`; ``None``: unbounded."""
    return (start is None or start <= at) and (until is None or at < until)


class FeedBatch(NamedTuple):
    """The statements at one instant; they hold until `holds` or the next batch (`until`).

    `refused` is called where a server refuses what they say; ``None``: that ends their replay.
    `since`: they hold from then on, not from `at`.
    """

    at: datetime
    until: datetime
    quads: tuple[Quad, ...]
    holds: datetime | None = None
    refused: Callable[[str], None] | None = None
    since: datetime | None = None

    @property
    def end(self) -> datetime:
        """The instant at which the statements cease to hold."""
        return self.holds or self.until

    def facts(self, labelling: Labelling) -> Iterator[Fact]:
        """Label the statements by expiration or interval."""
        start = self.since or self.at
        label = Expiration(self.end) if labelling == "expiration" else Interval(start, self.end)
        return (Fact(quad, label) for quad in self.quads)


def last_values(quads: Iterable[Quad]) -> tuple[Quad, ...]:
    """Keep the last statement of each subject and predicate, in the place of the first."""
    return tuple({(quad.subject, quad.predicate): quad for quad in quads}.values())


class Items:
    """The items of a document; the malformed ones are left out, and are its error."""

    def __init__(self, name: str, source: str) -> None:
        self._name = name
        self._source = source
        self._errors: list[InputError] = []

    @contextmanager
    def item(self) -> Iterator[None]:
        """Leave an item out if it is malformed."""
        try:
            yield
        except InputError as error:
            self._errors.append(error)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            lacks = f"a {self._name} without {error}"
            fault = lacks if isinstance(error, KeyError) else f"a malformed {self._name} ({error})"
            self._errors.append(InputError(fault, self._source))

    def result(self, quads: Sequence[Quad]) -> Sequence[Quad]:
        """Return their quads; `InputError` with these in `rest` where items are malformed."""
        if not self._errors:
            return quads
        error, others = self._errors[0], len(self._errors) - 1
        raise InputError(f"{error} (and {others} more)" if others else str(error), rest=quads)


class StaticSource(Protocol):
    """A source whose static facts are read in pieces, by any worker."""

    name: str
    prefixes: Mapping[str, str]
    """Prefix to namespace, for display."""

    def pieces(self, count: int) -> Sequence[str]:
        """Cut the work into about `count` texts for this source."""

    def size(self) -> int:
        """Estimate the uncompressed bytes of the static input."""

    def quads(self, piece: str) -> Iterator[Quad]:
        """Yield a piece's static facts; pieces may overlap."""


class FeedSpan(NamedTuple):
    """First instant, end of the last batch, and number of batches."""

    start: datetime
    end: datetime
    polls: int


class Reading(NamedTuple):
    """The statements of a stream at one instant."""

    at: datetime
    quads: tuple[Quad, ...]


class Feed(ABC):
    """A source of statements in batches; as a stream, a batch is a reading.

    A `live` one is read once, as it speaks.
    """

    name: str
    live: ClassVar[bool] = False

    @abstractmethod
    def batches(self, start: datetime | None, until: datetime | None) -> Iterable[FeedBatch]:
        """Yield batches from `start` to before `until`."""

    def span(self, start: datetime | None, until: datetime | None) -> FeedSpan | None:
        """Return the span of `batches`, if there are any."""
        spans = [(batch.at, batch.end) for batch in self.batches(start, until)]
        if not spans:
            return None
        return FeedSpan(spans[0][0], max(end for _, end in spans), len(spans))

    def streams(self) -> Sequence[str]:
        """The names of the streams."""
        return (self.name,)

    def readings(
        self,
        stream: str,  # noqa: ARG002 - subclasses may have several
        start: datetime | None,
        until: datetime | None,
    ) -> Iterator[Reading]:
        """Yield readings of a stream from `start` to before `until`."""
        return (Reading(batch.at, batch.quads) for batch in self.batches(start, until))


class LatestReadings(Feed):
    """Streams, and the latest readings of all at every reading as a feed."""

    last_holds: timedelta
    """For how long what is said last holds."""

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        """Yield, at every reading, the latest of every stream."""

        def numbered(number: int, stream: str) -> Iterator[tuple[datetime, int, Reading]]:
            for reading in self.readings(stream, start, until):
                yield reading.at, number, reading

        def told() -> Iterator[tuple[datetime, tuple[Quad, ...]]]:
            latest: dict[int, tuple[Quad, ...]] = {}
            streams = [numbered(number, stream) for number, stream in enumerate(self.streams())]
            merged = heapq.merge(*streams, key=itemgetter(0, 1))
            for at, entries in groupby(merged, key=itemgetter(0)):
                latest |= {number: reading.quads for _, number, reading in entries}
                yield at, tuple(quad for number in sorted(latest) for quad in latest[number])

        for at, end, quads in until_next(told(), self.last_holds):
            yield FeedBatch(at, end, quads)


def until_next(
    items: Iterable[tuple[datetime, ItemT]], last: timedelta
) -> Iterator[tuple[datetime, datetime, ItemT]]:
    """Give each item an interval: until the next item, the last one for `last`."""
    remaining = iter(items)
    one = next(remaining, None)
    while one is not None:
        following = next(remaining, None)
        at, item = one
        yield at, shifted(at, last) if following is None else following[0], item
        one = following
