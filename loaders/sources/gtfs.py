"""A GTFS feed: stops, routes and trips, and the departures of every day of service.

Last stops, and stops without pick-up or time, are no departures.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from urllib.parse import quote

from annotations.namespaces import FOAF
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.places import InputPlace, input_place
from loaders.sources.base import is_within
from loaders.sources.gtfs_schedule import GtfsSchedule, clock, in_sequence, runs

GTFS = "http://vocab.gtfs.org/terms#"
GEO = "http://www.w3.org/2003/01/geo/wgs84_pos#"
DEFAULT_BASE = "http://example.org/gtfs/"

_NAME = iri(FOAF + "name")
_HOUR = timedelta(hours=1)


class Gtfs:
    """A feed in a zip file or a directory."""

    name = "gtfs"
    prefixes: Mapping[str, str] = {
        **v.PREFIXES, "gtfs": GTFS, "foaf": FOAF, "geo": GEO,
    }  # fmt: skip

    def __init__(
        self,
        path: str | InputPlace,
        start: datetime | None = None,
        until: datetime | None = None,
        base: str = DEFAULT_BASE,
    ) -> None:
        self.path = input_place(path)
        self.start = start
        self.until = until
        self.base = base
        self.schedule = GtfsSchedule(self.path)
        self._tables = self.schedule.tables

    # What a loader asks for.

    def size(self) -> int:
        """Estimate the bytes of all departures as a table."""
        services = self.schedule.services().values()
        with self._tables.line("calendar.txt", 1):
            days = {day for service in services for day in service.days(*self._day_span())}
        return self._tables.size() + self._tables.size("stop_times.txt") * len(days)

    def planned(self) -> int:
        """Estimate the number of departures by trips' hours."""
        services, hours = self.schedule.services(), self._departures_by_hour()
        days: dict[str, list[date]] = {}
        with self._tables.line("calendar.txt", 1):
            for service, _ in hours:
                if service in services and service not in days:
                    days[service] = services[service].days(*self._day_span())
        total = 0
        for (service, hour), count in hours.items():
            for day in days.get(service, ()):
                first = self.schedule.instant(day, 3600 * hour)
                began = self.until is None or first < self.until
                total += count * (began and (self.start is None or first + _HOUR > self.start))
        return total

    def _departures_by_hour(self) -> Counter[tuple[str, int]]:
        columns = ("trip_id", "service_id")
        services = {
            r["trip_id"]: r["service_id"] for _, r in self._tables.rows("trips.txt", columns)
        }
        starts = {
            trip: sum((each.hours() for each in templates), Counter())
            for trip, templates in self.schedule.frequencies().items()
        }
        result: Counter[tuple[str, int]] = Counter()
        for trip, stop in self.schedule.calls():
            if stop.departure is not None and stop.pick_up and trip in services:
                runs = starts.get(trip) or {stop.departure // 3600: 1}
                for hour, count in runs.items():
                    result[services[trip], hour] += count
        return result

    def pieces(self, count: int) -> Sequence[str]:
        """Return stops, routes and trips, and `count` shares of departures."""
        shares = max(count, 1)
        return [json.dumps(None), *(json.dumps([share, shares]) for share in range(shares))]

    def quads(self, piece: str) -> Iterator[Quad]:
        share = json.loads(piece)
        if share is None:
            yield from self._stops()
            yield from self._routes()
            yield from self._trips()
        else:
            yield from self._departures(*share)

    def _stops(self) -> Iterator[Quad]:
        for line, row in self._tables.rows("stops.txt", ("stop_id",)):
            with self._tables.line("stops.txt", line):
                stop = self._named("stops", row, "stop_id")
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
        for line, row in self._tables.rows("routes.txt", ("route_id",)):
            with self._tables.line("routes.txt", line):
                route = self._named("routes", row, "route_id")
                yield Quad(route, v.A, iri(GTFS + "Route"))
                for column, name in names.items():
                    if row.get(column):
                        yield Quad(route, iri(GTFS + name), literal(row[column]))

    def _trips(self) -> Iterator[Quad]:
        for line, row in self._tables.rows("trips.txt", ("trip_id", "route_id", "service_id")):
            with self._tables.line("trips.txt", line):
                trip = self._named("trips", row, "trip_id")
                yield Quad(trip, v.A, iri(GTFS + "Trip"))
                route = self._named("routes", row, "route_id")
                yield Quad(trip, iri(GTFS + "route"), route)
                if row.get("trip_headsign"):
                    yield Quad(trip, iri(GTFS + "headsign"), literal(row["trip_headsign"]))

    def _departures(self, share: int, shares: int) -> Iterator[Quad]:
        stops = {row["stop_id"]: row for _, row in self._tables.rows("stops.txt", ("stop_id",))}
        labels = {
            row["route_id"]: row.get("route_short_name") or row.get("route_long_name") or ""
            for _, row in self._tables.rows("routes.txt", ("route_id",))
        }
        services = self.schedule.services()
        frequencies = self.schedule.frequencies()
        times = self.schedule.stop_times(share, shares)
        days: dict[str, list[date]] = {}
        for line, row in self._tables.rows("trips.txt", ("trip_id", "route_id", "service_id")):
            trip, service = row["trip_id"], row["service_id"]
            if trip not in times:
                continue
            with self._tables.line("trips.txt", line):
                if service not in services:
                    raise ValueError(f"the service {service!r} has no calendar")
                if row["route_id"] not in labels:
                    raise ValueError(f"there is no route {row['route_id']!r}")
                if service not in days:
                    days[service] = services[service].days(*self._day_span())
                stations = in_sequence(times[trip])
                if missing := {stop.stop for stop in stations} - stops.keys():
                    raise ValueError(f"there is no stop {min(missing)!r}")
                terminus = stops[stations[-1].stop].get("stop_name") or stations[-1].stop
                head_sign = row.get("trip_headsign") or terminus
                for day, start, shift in runs(stations, days[service], frequencies.get(trip, ())):
                    for stop in stations[:-1]:
                        if stop.departure is None or not stop.pick_up:
                            continue
                        at = self.schedule.instant(day, stop.departure + shift)
                        if is_within(at, self.start, self.until):
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
        local = at.astimezone(self.schedule.zone).isoformat()
        yield Quad(subject, v.DEPARTURE_TIME, v.date_time(local))
        yield Quad(subject, v.STOP, self.iri("stops", stop["stop_id"]))
        yield Quad(subject, iri(GTFS + "trip"), self.iri("trips", trip))
        if stop.get("platform_code"):
            yield Quad(subject, v.PLATFORM, literal(stop["platform_code"]))

    # Names and times.

    def iri(self, kind: str, *parts: str) -> Term:
        """The name of something in this feed."""
        return iri(f"{self.base}{kind}/{'/'.join(quote(part, safe='') for part in parts)}")

    def _named(self, kind: str, row: Mapping[str, str], column: str) -> Term:
        if not row[column]:
            raise ValueError(f"no {column}")
        return self.iri(kind, row[column])

    def departure(self, day: date, trip: str, sequence: int, start: int | None = None) -> Term:
        """Return a departure's name; `start` is a template run's."""
        run = () if start is None else (clock(start),)
        return self.iri("departures", f"{day:%Y%m%d}", trip, *run, str(sequence))

    def _day_span(self) -> tuple[date | None, date | None]:
        # Times reach 240:59:59, and the start may be of another zone: eleven days before.
        earliest = None if self.start is None else _days_from(self.start.date(), -11)
        latest = None if self.until is None else _days_from(self.until.date(), 1)
        return earliest, latest


def _days_from(day: date, days: int) -> date:
    return date.fromordinal(min(max(day.toordinal() + days, 1), date.max.toordinal()))
