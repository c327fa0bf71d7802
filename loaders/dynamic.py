"""Dynamic data as files: labelled facts, and streams."""

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from heapq import heappop, heappush
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path, PurePath
from typing import IO, Final, NamedTuple

import pyoxigraph as ox

from annotations.errors import AnnotationError
from annotations.instants import from_micros, to_micros
from annotations.labels import Fact, Interval, key_of
from annotations.methods import detect_method, method_named
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.namespaces import DEFAULT_VOCABULARY
from annotations.terms import Quad
from annotations.whole_files import replaced_file
from loaders.errors import InputError
from loaders.outputs import line_of, written
from loaders.places import InputPlace, input_place, names_below, on_disk
from loaders.progress import SILENT, Report
from loaders.publisher import Publisher
from loaders.sources.base import Feed, FeedBatch, is_within
from tpf_server.store.static.ox_terms import read_quads

# The history of what a feed says: each statement with the interval in which it holds.


class FactPlace(NamedTuple):
    """The position of a fact in a history.

    Args:
        batch: number of the batch at which the fact's end is known.
        replaced: that batch ended it; such facts come last.
        since: first batch of its subject and predicate's unbroken run, or `batch` if replaced.
        within: its position in that batch.
    """

    batch: int
    replaced: bool
    since: int
    within: int


class NumberedBatch(NamedTuple):
    """Some of a batch's statements with positions; microseconds since 1970."""

    number: int
    at: int
    end: int
    quads: Iterable[tuple[int, Quad]]


def history(batches: Iterable[FeedBatch]) -> Iterator[Fact]:
    """Yield a feed's statements with the intervals in which they hold.

    Repetitions prolong an interval; another value of the same subject, predicate and graph ends it.
    """
    numbered = (
        NumberedBatch(number, to_micros(batch.at), to_micros(batch.end), enumerate(batch.quads))
        for number, batch in enumerate(batches)
    )
    return (fact for _, fact in placed_history(numbered))


class _Held(NamedTuple):
    quad: Quad
    start: int
    end: int
    since: int
    within: int
    due: int


class _Ending:
    """The facts that may end, by instant."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[tuple[str, ...], None]] = {}
        # Some may have no keys any more.
        self._instants: list[int] = []

    def add(self, key: tuple[str, ...], due: int) -> None:
        if due not in self._keys:
            self._keys[due] = {}
            if len(self._instants) > 2 * len(self._keys):
                self._instants = sorted(self._keys)  # which is a heap
            else:
                heappush(self._instants, due)
        self._keys[due][key] = None

    def discard(self, key: tuple[str, ...], due: int) -> None:
        keys = self._keys[due]
        del keys[key]
        if not keys:
            del self._keys[due]

    def before(self, at: int) -> Iterator[tuple[str, ...]]:
        """Remove and return the facts that end before an instant."""
        while self._instants and self._instants[0] < at:
            yield from self._keys.pop(heappop(self._instants), ())


def placed_history(batches: Iterable[NumberedBatch]) -> Iterator[tuple[FactPlace, Fact]]:
    """Yield the facts of `history` with their positions, in order.

    Histories of some subjects and predicates, merged by position, are the whole.
    """
    held: dict[tuple[str, ...], _Held] = {}
    ending = _Ending()
    number = -1
    for number, at, end, quads in batches:
        over: list[_Held] = []
        for key in ending.before(at):
            fact = held[key]
            if fact.end < at:
                over.append(held.pop(key))
            else:
                # It was renewed meanwhile.
                held[key] = fact._replace(due=fact.end)
                ending.add(key, fact.end)
        # In the order in which they began, whatever ended first.
        for fact in sorted(over, key=_began):
            yield FactPlace(number, False, fact.since, fact.within), _fact(fact, fact.end)
        for within, quad in quads:
            key = key_of(quad)
            before = held.get(key)
            if before is None:
                held[key] = _Held(quad, at, end, number, within, end)
                ending.add(key, end)
            elif before.quad == quad:
                if before.end < end:
                    held[key] = before._replace(end=end)
            else:
                if before.start < at:
                    position = FactPlace(number, True, number, within)
                    yield position, _fact(before, min(before.end, at))
                due = min(before.due, end)
                if due < before.due:
                    ending.discard(key, before.due)
                    ending.add(key, due)
                held[key] = before._replace(quad=quad, start=at, end=end, due=due)
    for fact in held.values():
        yield FactPlace(number + 1, False, fact.since, fact.within), _fact(fact, fact.end)


def _began(held: _Held) -> tuple[int, int]:
    return held.since, held.within


def _fact(held: _Held, end: int) -> Fact:
    return Fact(held.quad, Interval(from_micros(held.start), from_micros(end)))


def naming_of(dataset: str) -> Naming:
    """Return how a dataset's facts are named."""
    url = dataset.rstrip("/")
    return Naming(f"{url}/facts/", url)


def write_labelled(
    facts: Iterable[Fact],
    target: Path,
    method: Method,
    naming: Naming,
    report: Report = SILENT,
) -> int:
    """Write facts as annotated N-Quads; return their number."""
    count = 0
    with file_aside(target) as file:
        for fact in facts:
            file.writelines(f"{line_of(quad)}\n" for quad in method.encode(fact, naming))
            count += 1
            report.done(count)
    return count


def publish_history(facts: Iterable[Fact], publisher: Publisher, run: str) -> int:
    """Publish facts in order; return their number. What is sent again under `run` counts once."""
    method, naming = method_named("rdf-1.2"), naming_of(publisher.url)
    remaining = iter(facts)
    count = 0
    while some := list(islice(remaining, _PUBLISHED)):
        quads = (quad for fact in some for quad in method.encode(fact, naming))
        body = "".join(f"{line_of(quad)}\n" for quad in quads)
        publisher.publish_body(body.encode(), None, f"{run}-{count}")
        count += len(some)
    return count


_PUBLISHED: Final = 2_000
"""Facts of a batch."""


def make_directory(directory: Path) -> None:
    """Make a directory for files, unless it exists."""
    with written(directory):
        directory.mkdir(parents=True, exist_ok=True)


@contextmanager
def file_aside(target: Path) -> Iterator[IO[str]]:
    """Open a file that replaces `target` on success."""
    with written(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(target, durable=False) as file:
            yield file


# What `write_labelled` wrote, as a feed.

_MOST: Final = 10_000
"""Facts of a batch."""
_MICROSECOND: Final = timedelta(microseconds=1)
_NAMING: Final = Naming("urn:fact:", "")


class LabelledFacts(Feed):
    """The facts of N-Quads files as a feed: each is told when it begins to hold.

    A path of a file, or of a folder of them; all are held in memory, as they are ordered by when
    they end.

    Raises:
        InputError: no such file, no N-Quads, or a fact without an interval.
    """

    name = "facts"

    def __init__(self, path: str) -> None:
        self._place = input_place(path)

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        """Yield a batch for facts with the same interval, microseconds apart where need be."""
        return (each for each in self._batches if is_within(each.at, start, until))

    @cached_property
    def _batches(self) -> list[FeedBatch]:
        facts = sorted(fact for place in self._places() for fact in _facts(place))
        batches: list[FeedBatch] = []
        for label, group in groupby(facts, itemgetter(0)):
            quads = tuple(quad for _, quad in group)
            for first in range(0, len(quads), _MOST):
                at = max(label.start, batches[-1].at + _MICROSECOND) if batches else label.start
                some = quads[first : first + _MOST]
                batches.append(FeedBatch(at, label.end, some, since=label.start))
        return batches

    def _places(self) -> list[InputPlace]:
        if self._place.is_dir():
            names = [name for name in names_below(self._place) if _is_n_quads(name)]
            if names:
                return [self._place / name for name in names]
            raise InputError("a folder without .nq files", str(self._place))
        return [self._place]


def _is_n_quads(name: str) -> bool:
    from tpf_server.store.static.rdf_files import rdf_format  # which loads pyarrow

    return rdf_format(PurePath(name)) == ox.RdfFormat.N_QUADS


def _facts(place: InputPlace) -> Iterator[tuple[Interval, Quad]]:
    from tpf_server.store.static.rdf_files import open_rdf

    source = str(place)
    try:
        with on_disk(place) as path, open_rdf(path) as file:
            quads = list(read_quads(file.read(), ox.RdfFormat.N_QUADS))
        method = detect_method(quads, DEFAULT_VOCABULARY)
        facts = method.decode(quads, _NAMING, key="triple") if method else map(Fact, quads)
    except SyntaxError as error:
        raise InputError(str(error.msg), source, error.lineno) from None
    except AnnotationError as error:
        raise InputError(str(error), source) from None
    except (EOFError, zlib.error, OSError) as error:
        raise InputError(getattr(error, "strerror", None) or str(error), source) from None
    for quad, label in facts:
        if not isinstance(label, Interval):
            raise InputError(f"a fact without an interval: {' '.join(quad).strip()}", source)
        yield label, quad
