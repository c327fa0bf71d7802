"""Taxi trips in New York, as in the DEBS Grand Challenge 2015: one trip per line of CSV.

17 columns without header: medallion, hack license, pickup and drop-off time, seconds, miles, pickup
longitude and latitude, drop-off longitude and latitude, payment (``CSH`` or ``CRD``), fare,
surcharge, tax, tip, tolls, total. Sorted by drop-off, a trip's instant; local times are read as
UTC.

Source: Jerzak and Ziekow 2015; terms of Le-Phuoc et al. 2015, Examples 1 to 5.
"""

import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

from annotations.errors import TermError
from annotations.instants import instant_term, shifted
from annotations.terms import Quad, iri, literal
from loaders import vocabulary as v
from loaders.errors import InputError, SettingError
from loaders.places import InputPlace, input_place
from loaders.sources.base import Feed, FeedBatch, Reading, size_of, until_next
from loaders.sources.reading import instant_in, rows

TAXI = "http://example.org/taxi#"
TRIPS = "http://example.org/taxi/trips/"
_STREAM = "trips"
_COLUMNS = 17
_TRIP = iri(TAXI + "Trip")
_TAXI, _LICENSE, _PAYMENT = (iri(TAXI + n) for n in ("taxi", "license", "payment"))
_PICKUP, _DROPOFF = (iri(TAXI + n) for n in ("pickupTime", "dropoffTime"))
_NUMBERS = tuple(
    (column, iri(TAXI + name))
    for column, name in (
        (5, "distance"), (6, "pickLon"), (7, "pickLat"), (8, "dropLon"), (9, "dropLat"),
        (11, "fare"), (14, "tip"), (16, "total"),
    )
)  # fmt: skip


class Taxi(Feed):
    """Taxi trips."""

    name = "taxi"
    prefixes: Mapping[str, str] = MappingProxyType({"": TAXI, "trip": TRIPS})

    def __init__(
        self,
        path: str | InputPlace,
        start: datetime | None = None,
        until: datetime | None = None,
        holds: timedelta = timedelta(minutes=30),
    ) -> None:
        if holds <= timedelta(0):
            raise SettingError("a trip must hold for a positive time")
        self.path = input_place(path)
        self.start = start
        self.until = until
        self.holds = holds
        if not self.path.is_file():
            raise InputError("no such file", str(self.path))

    # The static side: every trip, for queries over the past.

    def size(self) -> int:
        """About how many bytes the trips have."""
        return size_of([self.path])

    def pieces(self, count: int) -> Sequence[str]:
        count = max(count, 1)
        return [f"{share}/{count}" for share in range(count)]

    def quads(self, piece: str) -> Iterator[Quad]:
        share, _, shares = piece.partition("/")
        for _, trip in self._trips(self.start, self.until, int(share), int(shares)):
            yield from trip

    # The stream.

    def streams(self) -> Sequence[str]:
        return (_STREAM,)

    def readings(
        self,
        stream: str,  # noqa: ARG002 - there is one
        start: datetime | None,
        until: datetime | None,
    ) -> Iterator[Reading]:
        for at, trip in self._trips(start, until):
            yield Reading(at, trip)

    # The feed.

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        """Yield the trips that end at each instant."""
        readings = groupby(self.readings(_STREAM, start, until), key=attrgetter("at"))
        ended = (
            (at, tuple(quad for trip in trips for quad in trip.quads)) for at, trips in readings
        )
        for at, following, quads in until_next(ended, self.holds):
            yield FeedBatch(at, following, quads, shifted(at, self.holds))

    # Reading.

    def _trips(
        self, start: datetime | None, until: datetime | None, share: int = 0, shares: int = 1
    ) -> Iterator[tuple[datetime, tuple[Quad, ...]]]:
        before: datetime | None = None
        with self._open() as text:
            for number, row in rows(text, str(self.path)):
                if (number - 1) % shares != share:
                    continue
                try:
                    if len(row) != _COLUMNS:
                        raise ValueError(f"{len(row)} values instead of {_COLUMNS}")
                    at = instant_in(row[3])
                    if before is not None and at < before:
                        raise ValueError("ends before the trip on the line above")
                    before = at
                    if until is not None and at >= until:
                        return
                    if start is None or at >= start:
                        yield at, tuple(_trip(number, row))
                except (ValueError, OverflowError, TermError) as error:
                    raise InputError(f"no trip: {error}", str(self.path), number) from None

    @contextmanager
    def _open(self) -> Iterator[io.TextIOBase]:
        try:
            with self.path.open("rb") as raw:
                zipped = raw.read(2) == b"\x1f\x8b"
                raw.seek(0)
                source = gzip.GzipFile(fileobj=raw) if zipped else raw
                yield io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
        except (EOFError, zlib.error, OSError) as error:
            raise InputError(str(error), str(self.path)) from error


def _trip(number: int, row: list[str]) -> Iterator[Quad]:
    subject = iri(f"{TRIPS}{number}")
    yield Quad(subject, v.A, _TRIP)
    yield Quad(subject, _TAXI, literal(row[0]))
    yield Quad(subject, _LICENSE, literal(row[1]))
    yield Quad(subject, _PICKUP, instant_term(instant_in(row[2])))
    yield Quad(subject, _DROPOFF, instant_term(instant_in(row[3])))
    for column, predicate in _NUMBERS:
        yield Quad(subject, predicate, v.decimal(row[column]))
    yield Quad(subject, _PAYMENT, literal(row[10]))
