"""The plan of a GTFS feed: the days of service, the times of trips, and their runs.

- Times count from *noon minus twelve hours* in the agency's zone, for clock changes; ``25:10:00``
is the next day.
- Either of ``calendar.txt`` and ``calendar_dates.txt`` may be absent.
- A trip in ``frequencies.txt`` is a template of runs; its own times give only durations.
"""

import io
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from loaders.errors import InputError
from loaders.places import InputPlace
from loaders.sources.base import size_of
from loaders.sources.reading import archive, member, row_of, rows

# The tables of a GTFS feed: CSV files in a zip file or a directory.


class Tables:
    """The tables of a feed."""

    def __init__(self, path: InputPlace) -> None:
        self.path = path

    def size(self, name: str | None = None) -> int:
        """Return the uncompressed bytes of a table, or of all."""
        if self.path.is_dir():
            return size_of([self.path / name if name else self.path])
        with archive(self.path) as opened:
            members = opened.infolist()
        return sum(each.file_size for each in members if name in (None, each.filename))

    def rows(
        self, name: str, columns: tuple[str, ...], optional: bool = False
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield a table's rows with line numbers."""
        source = self.place(name)
        with self._open(name, optional) as text:
            if text is None:
                return
            table = rows(text, source)
            header = [column.strip() for column in next(table, (1, []))[1]]
            if len(header) > _MOST_COLUMNS:
                raise InputError(f"more than {_MOST_COLUMNS} columns", source, 1)
            if missing := [column for column in columns if column not in header]:
                raise InputError(f"no column {', '.join(missing)}", source, 1)
            for line, row in table:
                values = [value.strip() for value in row]
                if any(values):
                    # Rows may be shorter: empty values at the end may be left out.
                    values += [""] * (len(header) - len(values))
                    yield line, dict(zip(header, values, strict=False))

    def place(self, name: str) -> str:
        return str(self.path / name) if self.path.is_dir() else f"{self.path}: {name}"

    def line(self, name: str, line: int) -> AbstractContextManager[None]:
        return row_of(self.place(name), line)

    @contextmanager
    def _open(self, name: str, optional: bool) -> Iterator[io.TextIOBase | None]:
        if self.path.is_dir():
            if optional and not (self.path / name).is_file():
                yield None
                return
            try:
                with (self.path / name).open(encoding="utf-8-sig", newline="") as text:
                    yield text
            except OSError as error:
                raise InputError(error.strerror or str(error), self.place(name)) from None
            return
        with archive(self.path) as opened:
            if name not in opened.namelist():
                if not optional:
                    raise InputError(f"holds no {name}", str(self.path))
                yield None
                return
            with member(opened, name) as raw:
                yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")


_MOST_COLUMNS = 1_000
"""Of a table: a row may be shorter than the header, and is as long when it is read."""
_MOST_DAYS = 3700
_MOST_HOURS = 240
_MOST_RUNS = 10_000
"""What no timetable has: more than ten years of a service, trips that last more than ten days, and
more than a run in ten seconds. Without these bounds a line could mean departures without end."""

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class StopTime(NamedTuple):
    """A stop of a trip, in seconds of the day of service."""

    sequence: int
    stop: str
    departure: int | None
    head_sign: str
    pick_up: bool
    arrival: int | None = None


class Frequency(NamedTuple):
    """A trip every `headway` seconds from `start` to before `end`."""

    start: int
    end: int
    headway: int

    def hours(self) -> Counter[int]:
        result: Counter[int] = Counter()
        for hour in range(self.start // 3600, -(-self.end // 3600)):
            first = max(self.start, 3600 * hour)
            result[hour] = self._before(3600 * hour + 3600) - self._before(first)
        return result

    def _before(self, end: int) -> int:
        return -(-(min(end, self.end) - self.start) // self.headway)


@dataclass(slots=True)
class ServiceDays:
    """The days on which a service runs."""

    weekdays: frozenset[int] = frozenset()
    first: date = date.max
    last: date = date.min
    added: set[date] = field(default_factory=set)
    removed: set[date] = field(default_factory=set)

    def days(self, earliest: date | None, latest: date | None) -> list[date]:
        """Return the days from `earliest` to `latest`, both inclusive."""
        days = set(self.added)
        first = self.first if earliest is None else max(self.first, earliest)
        last = self.last if latest is None else min(self.last, latest)
        if (last - first).days > _MOST_DAYS:
            raise ValueError(f"a service from {first} to {last}: choose a part of it")
        for number in range((last - first).days + 1):
            day = first + timedelta(days=number)
            if day.weekday() in self.weekdays:
                days.add(day)
        return sorted(
            day
            for day in days - self.removed
            if (earliest is None or earliest <= day) and (latest is None or day <= latest)
        )


class GtfsSchedule:
    """The plan of a feed."""

    def __init__(self, path: InputPlace) -> None:
        self.tables = Tables(path)
        agencies = [row for _, row in self.tables.rows("agency.txt", ("agency_timezone",))]
        source = self.tables.place("agency.txt")
        if not agencies:
            raise InputError("no agency", source)
        name = agencies[0]["agency_timezone"]
        try:
            self.zone = ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            # Of a directory of zones it is an OSError.
            raise InputError(f"unknown time zone {name!r}", source, 2) from None

    def instant(self, day: date, seconds_of_day: int) -> datetime:
        """Return the UTC instant of a time of service."""
        return schedule_instant(day, seconds_of_day, self.zone)

    def services(self) -> dict[str, ServiceDays]:
        services: defaultdict[str, ServiceDays] = defaultdict(ServiceDays)
        weekly = ("service_id", "start_date", "end_date", *_WEEKDAYS)
        has_calendar = False
        for line, row in self.tables.rows("calendar.txt", weekly, optional=True):
            has_calendar = True
            with self.tables.line("calendar.txt", line):
                service = services[row["service_id"]]
                service.weekdays = frozenset(
                    number for number, name in enumerate(_WEEKDAYS) if row[name] == "1"
                )
                service.first, service.last = date_of(row["start_date"]), date_of(row["end_date"])
        exceptions = ("service_id", "date", "exception_type")
        for line, row in self.tables.rows("calendar_dates.txt", exceptions, optional=True):
            has_calendar = True
            with self.tables.line("calendar_dates.txt", line):
                kinds = {"1": services[row["service_id"]].added,
                         "2": services[row["service_id"]].removed}  # fmt: skip
                if row["exception_type"] not in kinds:
                    raise ValueError(f"no exception_type: {row['exception_type']!r}")
                kinds[row["exception_type"]].add(date_of(row["date"]))
        if not has_calendar:
            raise InputError("neither calendar.txt nor calendar_dates.txt", str(self.tables.path))
        return dict(services)

    def timetable(self) -> dict[str, list[StopTime]]:
        """Return the stops of every trip, in their sequence."""
        times = self.stop_times(0, 1)
        try:
            return {trip: in_sequence(stops) for trip, stops in times.items()}
        except ValueError as error:
            raise InputError(str(error), self.tables.place("stop_times.txt")) from None

    def platforms(self) -> dict[str, str]:
        """The platform codes of the stops that have one."""
        return {
            row["stop_id"]: row["platform_code"]
            for _, row in self.tables.rows("stops.txt", ("stop_id",))
            if row.get("platform_code")
        }

    def frequencies(self) -> dict[str, list[Frequency]]:
        """Return the frequencies of the trips that are templates."""
        frequencies: defaultdict[str, list[Frequency]] = defaultdict(list)
        columns = ("trip_id", "start_time", "end_time", "headway_secs")
        for line, row in self.tables.rows("frequencies.txt", columns, optional=True):
            with self.tables.line("frequencies.txt", line):
                headway = int(row["headway_secs"])
                if headway <= 0:
                    raise ValueError(f"headway_secs is {headway}")
                start, end = seconds(row["start_time"]), seconds(row["end_time"])
                if (end - start) // headway > _MOST_RUNS:
                    raise ValueError(f"{(end - start) // headway} runs a day")
                frequencies[row["trip_id"]].append(Frequency(start, end, headway))
        return dict(frequencies)

    def stop_times(self, share: int, shares: int) -> dict[str, list[StopTime]]:
        """Return the stops of a share of trips, unordered."""
        times: defaultdict[str, list[StopTime]] = defaultdict(list)
        for trip, stop in self.calls(share, shares):
            times[trip].append(stop)
        return dict(times)

    def calls(self, share: int = 0, shares: int = 1) -> Iterator[tuple[str, StopTime]]:
        columns = ("trip_id", "stop_id", "stop_sequence", "departure_time")
        for line, row in self.tables.rows("stop_times.txt", columns):
            if zlib.crc32(row["trip_id"].encode()) % shares != share:
                continue
            with self.tables.line("stop_times.txt", line):
                arrival = row.get("arrival_time", "")
                departure = row["departure_time"] or arrival
                arrival = arrival or departure
                stop = StopTime(
                    int(row["stop_sequence"]), row["stop_id"],
                    seconds(departure) if departure else None, row.get("stop_headsign", ""),
                    row.get("pickup_type", "") != "1", seconds(arrival) if arrival else None,
                )  # fmt: skip
            yield row["trip_id"], stop


def in_sequence(stops: Sequence[StopTime]) -> list[StopTime]:
    """Sort a trip's stops; `ValueError` for a repeated number."""
    ordered = sorted(stops, key=lambda stop: stop.sequence)
    for one, other in pairwise(ordered):
        if one.sequence == other.sequence:
            raise ValueError(f"stop_sequence {one.sequence} twice, at {one.stop} and {other.stop}")
    return ordered


def schedule_instant(day: date, seconds_of_day: int, zone: ZoneInfo) -> datetime:
    """Return the UTC instant of a time of service."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=zone).astimezone(UTC)
    return noon + timedelta(seconds=seconds_of_day - 12 * 3600)


def runs(
    stations: Sequence[StopTime], days: Sequence[date], frequencies: Sequence[Frequency]
) -> Iterator[tuple[date, int | None, int]]:
    """Yield a trip's runs: day, template start, shift in seconds."""
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


def seconds(text: str) -> int:
    """Parse a GTFS time ``H:MM:SS``, perhaps beyond 24 hours."""
    hours, minutes, rest = text.split(":") if text.count(":") == 2 else ("", "", "")
    if not (hours.isdigit() and minutes.isdigit() and rest.isdigit()):
        raise ValueError(f"not a time: {text!r}")
    if int(minutes) > 59 or int(rest) > 59:
        raise ValueError(f"not a time: {text!r}")
    if len(hours) > 3 or int(hours) > _MOST_HOURS:
        raise ValueError(f"a time more than {_MOST_HOURS} hours after the day began: {text!r}")
    return int(hours) * 3600 + int(minutes) * 60 + int(rest)


def clock(total: int) -> str:
    """The GTFS time of so many seconds."""
    return f"{total // 3600:02}:{total // 60 % 60:02}:{total % 60:02}"


def date_of(text: str) -> date:
    """Parse a GTFS date ``YYYYMMDD``."""
    if len(text) != 8 or not text.isdigit():
        raise ValueError(f"not a date: {text!r}")
    return date(int(text[:4]), int(text[4:6]), int(text[6:]))
