"""A GTFS feed: stops, routes and trips, and the departures of every day of service.

Source: General Transit Feed Specification, reference of `gtfs.org`. What matters here:

- A time is counted from *noon minus twelve hours* of the day of service, in the agency's time zone.
  So ``25:10:00`` is ten past one on the next day, and on the days on which clocks change a time
  after noon is what the clock on the wall shows.
- A service runs on the weekdays of ``calendar.txt`` between its dates, plus and minus the days of
  ``calendar_dates.txt``; a feed may have only one of the two.
- A trip in ``frequencies.txt`` is a template: it starts every `headway_secs` from `start_time`, and
  not at or after `end_time`; its own times only tell how long it takes.

The last stop of a trip, stops without pick-up and stops without a time are no departures.
"""

import csv
import io
import json
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from annotations.errors import TermError
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.errors import InputError

GTFS = "http://vocab.gtfs.org/terms#"
FOAF = "http://xmlns.com/foaf/0.1/"
GEO = "http://www.w3.org/2003/01/geo/wgs84_pos#"
DEFAULT_BASE = "http://example.org/gtfs/"

_NAME = iri(FOAF + "name")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class StopTime(NamedTuple):
    """A stop of a trip; times in seconds since the beginning of the day of service."""

    sequence: int
    stop: str
    departure: int | None
    head_sign: str
    pick_up: bool


class Frequency(NamedTuple):
    """A trip starts every `headway` seconds from `start` to before `end`."""

    start: int
    end: int
    headway: int


@dataclass(slots=True)
class Service:
    """The days on which a service runs."""

    weekdays: frozenset[int] = frozenset()
    first: date = date.max
    last: date = date.min
    added: set[date] = field(default_factory=set)
    removed: set[date] = field(default_factory=set)

    def days(self, earliest: date | None, latest: date | None) -> list[date]:
        """The days from `earliest` to `latest`, both inclusive."""
        days = set(self.added)
        day = self.first if earliest is None else max(self.first, earliest)
        end = self.last if latest is None else min(self.last, latest)
        while day <= end:
            if day.weekday() in self.weekdays:
                days.add(day)
            day += timedelta(days=1)
        return sorted(
            day
            for day in days - self.removed
            if (earliest is None or earliest <= day) and (latest is None or day <= latest)
        )


class Gtfs:
    """A feed in a zip file or a directory.

    Args:
        path: the feed.
        start: only departures that are scheduled at this instant or later.
        until: only departures that are scheduled before this instant.
        base: the IRI that the names of stops, routes, trips and departures begin with.

    Raises:
        InputError: the feed is missing or no feed, or its time zone is unknown.
    """

    name = "gtfs"
    prefixes: Mapping[str, str] = {
        **v.PREFIXES, "gtfs": GTFS, "foaf": FOAF, "geo": GEO,
    }  # fmt: skip

    def __init__(
        self,
        path: str | Path,
        start: datetime | None = None,
        until: datetime | None = None,
        base: str = DEFAULT_BASE,
    ) -> None:
        self.path = Path(path)
        self.start = start
        self.until = until
        self.base = base
        agencies = [row for _, row in self._rows("agency.txt", ("agency_timezone",))]
        if not agencies:
            raise InputError("no agency", self._place("agency.txt"))
        try:
            self.zone = ZoneInfo(agencies[0]["agency_timezone"])
        except (ZoneInfoNotFoundError, ValueError):
            raise InputError(
                f"unknown time zone {agencies[0]['agency_timezone']!r}",
                self._place("agency.txt"),
                2,
            ) from None

    # What a loader asks for.

    def pieces(self, count: int) -> Sequence[str]:
        """The stops, routes and trips, and `count` shares of the departures (by trip)."""
        shares = max(count, 1)
        return [json.dumps(None), *(json.dumps([share, shares]) for share in range(shares))]

    def quads(self, piece: str) -> Iterator[Quad]:
        """The static facts of a piece."""
        share = json.loads(piece)
        if share is None:
            yield from self._stops()
            yield from self._routes()
            yield from self._trips()
        else:
            yield from self._departures(*share)

    def _stops(self) -> Iterator[Quad]:
        for line, row in self._rows("stops.txt", ("stop_id",)):
            with self._line("stops.txt", line):
                stop = self.iri("stops", row["stop_id"])
                yield Quad(stop, v.A, iri(GTFS + "Stop"))
                if row.get("stop_name"):
                    yield Quad(stop, _NAME, literal(row["stop_name"]))
                if row.get("stop_lat") and row.get("stop_lon"):
                    yield Quad(stop, iri(GEO + "lat"), v.decimal(row["stop_lat"]))
                    yield Quad(stop, iri(GEO + "long"), v.decimal(row["stop_lon"]))
                if row.get("parent_station"):
                    parent = self.iri("stops", row["parent_station"])
                    yield Quad(stop, iri(GTFS + "parentStation"), parent)

    def _routes(self) -> Iterator[Quad]:
        names = {"route_short_name": "shortName", "route_long_name": "longName"}
        for line, row in self._rows("routes.txt", ("route_id",)):
            with self._line("routes.txt", line):
                route = self.iri("routes", row["route_id"])
                yield Quad(route, v.A, iri(GTFS + "Route"))
                for column, name in names.items():
                    if row.get(column):
                        yield Quad(route, iri(GTFS + name), literal(row[column]))

    def _trips(self) -> Iterator[Quad]:
        for line, row in self._rows("trips.txt", ("trip_id", "route_id", "service_id")):
            with self._line("trips.txt", line):
                trip = self.iri("trips", row["trip_id"])
                yield Quad(trip, v.A, iri(GTFS + "Trip"))
                yield Quad(trip, iri(GTFS + "route"), self.iri("routes", row["route_id"]))
                if row.get("trip_headsign"):
                    yield Quad(trip, iri(GTFS + "headsign"), literal(row["trip_headsign"]))

    def _departures(self, share: int, shares: int) -> Iterator[Quad]:
        stops = {row["stop_id"]: row for _, row in self._rows("stops.txt", ("stop_id",))}
        labels = {
            row["route_id"]: row.get("route_short_name") or row.get("route_long_name") or ""
            for _, row in self._rows("routes.txt", ("route_id",))
        }
        services = self.services()
        frequencies = self._frequencies()
        times = self._stop_times(share, shares)
        days: dict[str, list[date]] = {}
        for line, row in self._rows("trips.txt", ("trip_id", "route_id", "service_id")):
            trip, service = row["trip_id"], row["service_id"]
            if trip not in times:
                continue
            with self._line("trips.txt", line):
                if service not in services:
                    raise ValueError(f"the service {service!r} has no calendar")
                if row["route_id"] not in labels:
                    raise ValueError(f"there is no route {row['route_id']!r}")
                if service not in days:
                    days[service] = services[service].days(*self._day_span())
                stations = sorted(times[trip])
                if missing := {stop.stop for stop in stations} - stops.keys():
                    raise ValueError(f"there is no stop {min(missing)!r}")
                terminus = stops[stations[-1].stop].get("stop_name") or stations[-1].stop
                head_sign = row.get("trip_headsign") or terminus
                for day, start, shift in self._runs(
                    stations, days[service], frequencies.get(trip, ())
                ):
                    for stop in stations[:-1]:
                        if stop.departure is None or not stop.pick_up:
                            continue
                        at = self.instant(day, stop.departure + shift)
                        if self._is_wanted(at):
                            subject = self.departure(day, trip, stop.sequence, start)
                            yield from self._departure(
                                subject, trip, labels[row["route_id"]],
                                stop.head_sign or head_sign, stops[stop.stop], at,
                            )  # fmt: skip

    def _departure(
        self, subject: Term, trip: str, label: str, head_sign: str, stop: dict[str, str],
        at: datetime,
    ) -> Iterator[Quad]:  # fmt: skip
        yield Quad(subject, v.A, v.DEPARTURE)
        yield Quad(subject, v.ROUTE_LABEL, literal(label))
        yield Quad(subject, v.HEAD_SIGN, literal(head_sign))
        local = at.astimezone(self.zone).isoformat()
        yield Quad(subject, v.DEPARTURE_TIME, v.date_time(local))
        yield Quad(subject, v.STOP, self.iri("stops", stop["stop_id"]))
        yield Quad(subject, iri(GTFS + "trip"), self.iri("trips", trip))
        if stop.get("platform_code"):
            yield Quad(subject, v.PLATFORM, literal(stop["platform_code"]))

    # Names and times.

    def iri(self, kind: str, *parts: str) -> Term:
        """The name of something in this feed."""
        return iri(f"{self.base}{kind}/{'/'.join(quote(part, safe='') for part in parts)}")

    def departure(self, day: date, trip: str, sequence: int, start: int | None = None) -> Term:
        """The name of a departure; `start` of the run where the trip is a template."""
        run = () if start is None else (clock(start),)
        return self.iri("departures", f"{day:%Y%m%d}", trip, *run, str(sequence))

    def instant(self, day: date, seconds: int) -> datetime:
        """The instant so many seconds after noon minus twelve hours of a day, in UTC."""
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=self.zone).astimezone(UTC)
        return noon + timedelta(seconds=seconds - 12 * 3600)

    def _is_wanted(self, at: datetime) -> bool:
        return (self.start is None or self.start <= at) and (self.until is None or at < self.until)

    def _day_span(self) -> tuple[date | None, date | None]:
        # A trip may run on for days: a week before is surely enough.
        earliest = None if self.start is None else self.start.date() - timedelta(days=7)
        latest = None if self.until is None else self.until.date() + timedelta(days=1)
        return earliest, latest

    def _runs(
        self, stations: list[StopTime], days: list[date], frequencies: Sequence[Frequency]
    ) -> Iterator[tuple[date, int | None, int]]:
        """Day, start (of a template) and shift in seconds of every run of a trip."""
        if not frequencies:
            yield from ((day, None, 0) for day in days)
            return
        begin = stations[0].departure
        if begin is None:
            raise ValueError("a trip with frequencies needs a time at its first stop")
        for day in days:
            for frequency in frequencies:
                for start in range(frequency.start, frequency.end, frequency.headway):
                    yield day, start, start - begin

    # Reading.

    def services(self) -> dict[str, Service]:
        """The services by their identifiers.

        Raises:
            InputError: there is neither ``calendar.txt`` nor ``calendar_dates.txt``.
        """
        services: defaultdict[str, Service] = defaultdict(Service)
        weekly = ("service_id", "start_date", "end_date", *_WEEKDAYS)
        has_calendar = False
        for line, row in self._rows("calendar.txt", weekly, optional=True):
            has_calendar = True
            with self._line("calendar.txt", line):
                service = services[row["service_id"]]
                service.weekdays = frozenset(
                    number for number, name in enumerate(_WEEKDAYS) if row[name] == "1"
                )
                service.first, service.last = _date(row["start_date"]), _date(row["end_date"])
        exceptions = ("service_id", "date", "exception_type")
        for line, row in self._rows("calendar_dates.txt", exceptions, optional=True):
            has_calendar = True
            with self._line("calendar_dates.txt", line):
                kinds = {"1": services[row["service_id"]].added,
                         "2": services[row["service_id"]].removed}  # fmt: skip
                if row["exception_type"] not in kinds:
                    raise ValueError(f"no exception_type: {row['exception_type']!r}")
                kinds[row["exception_type"]].add(_date(row["date"]))
        if not has_calendar:
            raise InputError("neither calendar.txt nor calendar_dates.txt", str(self.path))
        return dict(services)

    def timetable(self) -> dict[str, list[StopTime]]:
        """The stops of every trip, in their sequence.

        Raises:
            InputError: a table is malformed.
        """
        return {trip: sorted(stops) for trip, stops in self._stop_times(0, 1).items()}

    def templates(self) -> frozenset[str]:
        """The trips that are templates of runs (see ``frequencies.txt``)."""
        return frozenset(self._frequencies())

    def platforms(self) -> dict[str, str]:
        """The platform codes of the stops that have one."""
        return {
            row["stop_id"]: row["platform_code"]
            for _, row in self._rows("stops.txt", ("stop_id",))
            if row.get("platform_code")
        }

    def _frequencies(self) -> dict[str, list[Frequency]]:
        frequencies: defaultdict[str, list[Frequency]] = defaultdict(list)
        columns = ("trip_id", "start_time", "end_time", "headway_secs")
        for line, row in self._rows("frequencies.txt", columns, optional=True):
            with self._line("frequencies.txt", line):
                headway = int(row["headway_secs"])
                if headway <= 0:
                    raise ValueError(f"headway_secs is {headway}")
                frequencies[row["trip_id"]].append(
                    Frequency(seconds(row["start_time"]), seconds(row["end_time"]), headway)
                )
        return dict(frequencies)

    def _stop_times(self, share: int, shares: int) -> dict[str, list[StopTime]]:
        times: defaultdict[str, list[StopTime]] = defaultdict(list)
        columns = ("trip_id", "stop_id", "stop_sequence", "departure_time")
        for line, row in self._rows("stop_times.txt", columns):
            if zlib.crc32(row["trip_id"].encode()) % shares != share:
                continue
            with self._line("stop_times.txt", line):
                time = row["departure_time"] or row.get("arrival_time", "")
                times[row["trip_id"]].append(
                    StopTime(
                        int(row["stop_sequence"]), row["stop_id"],
                        seconds(time) if time else None,
                        row.get("stop_headsign", ""), row.get("pickup_type", "") != "1",
                    )
                )  # fmt: skip
        return dict(times)

    def _rows(
        self, name: str, columns: tuple[str, ...], optional: bool = False
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """The rows of a table with their line numbers."""
        with self._open(name, optional) as text:
            if text is None:
                return
            reader = csv.reader(text)
            header = [column.strip() for column in next(reader, [])]
            if missing := [column for column in columns if column not in header]:
                raise InputError(f"no column {', '.join(missing)}", self._place(name), 1)
            for row in reader:
                if row:
                    # Rows may be shorter: empty values at the end may be left out.
                    values = [value.strip() for value in row]
                    values += [""] * (len(header) - len(values))
                    yield reader.line_num, dict(zip(header, values, strict=False))

    @contextmanager
    def _open(self, name: str, optional: bool) -> Iterator[io.TextIOBase | None]:
        try:
            if self.path.is_dir():
                if optional and not (self.path / name).exists():
                    yield None
                    return
                with (self.path / name).open(encoding="utf-8-sig", newline="") as text:
                    yield text
                return
            with zipfile.ZipFile(self.path) as archive:
                if name not in archive.namelist():
                    if not optional:
                        raise InputError(f"holds no {name}", str(self.path))
                    yield None
                    return
                with archive.open(name) as raw:
                    yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        except zipfile.BadZipFile:
            raise InputError("is neither a directory nor a zip file", str(self.path)) from None
        except UnicodeDecodeError as error:
            raise InputError(f"not UTF-8 ({error})", self._place(name)) from None
        except OSError as error:
            raise InputError(error.strerror or str(error), self._place(name)) from error

    def _place(self, name: str) -> str:
        return str(self.path / name) if self.path.is_dir() else f"{self.path}: {name}"

    @contextmanager
    def _line(self, name: str, line: int) -> Iterator[None]:
        try:
            yield
        except (ValueError, TermError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"a malformed row ({error})", self._place(name), line) from None


def seconds(text: str) -> int:
    """The seconds of a GTFS time ``H:MM:SS``, which may be beyond 24 hours.

    Raises:
        ValueError: it is no such time.
    """
    hours, minutes, rest = text.split(":") if text.count(":") == 2 else ("", "", "")
    if not (hours.isdigit() and minutes.isdigit() and rest.isdigit()):
        raise ValueError(f"not a time: {text!r}")
    if int(minutes) > 59 or int(rest) > 59:
        raise ValueError(f"not a time: {text!r}")
    return int(hours) * 3600 + int(minutes) * 60 + int(rest)


def clock(total: int) -> str:
    """The GTFS time of so many seconds."""
    return f"{total // 3600:02}:{total // 60 % 60:02}:{total % 60:02}"


def _date(text: str) -> date:
    if len(text) != 8 or not text.isdigit():
        raise ValueError(f"not a date: {text!r}")
    return date(int(text[:4]), int(text[4:6]), int(text[6:]))
