"""GTFS Realtime 2.0 messages: delays, cancellations, platforms, positions and alerts.

- A stop's update holds for later stops until the next update, or ``NO_DATA``.
- A delay is that of the departure, else of the arrival.
- Without a day of service, the trip nearest to the timestamp counts.
- Unscheduled trips and runs are left out.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from google.transit import gtfs_realtime_pb2 as rt

from annotations.errors import NestingError
from annotations.instants import format_instant, from_micros, to_micros
from annotations.namespaces import RDFS, integer
from annotations.nesting import bounded_statements
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.errors import InputError
from loaders.sources.base import last_values
from loaders.sources.gtfs import GEO, GTFS, Gtfs
from loaders.sources.gtfs_schedule import StopTime, date_of, seconds

# Service alerts of GTFS Realtime, as statements with one value per property.
#
# So they can be published to datasets that keep one value of a property at a time: what an alert
# is about are things of their own, and a text is told in one language.

_CLASS = iri(v.TRAIN + "Alert")
_AFFECTED = iri(v.TRAIN + "Affected")
_ALERT = iri(v.TRAIN + "alert")
_COMMENT = iri(RDFS + "comment")
_ENUMERATIONS = (
    ("cause", rt.Alert.Cause),
    ("effect", rt.Alert.Effect),
    ("severity_level", rt.Alert.SeverityLevel),
)
_LAST = 253_370_764_799
"""The end of the year 9998, in seconds since 1970: beyond it no label could end."""


def alert_quads(
    names: Gtfs, entity: str, alert: Any, at: datetime, language: str | None
) -> Iterator[Quad]:
    """Yield an alert's statements; none when it is over."""
    now = to_micros(at) // 1_000_000
    periods = sorted((each.start, each.end or _LAST + 1) for each in alert.active_period)
    coming = [period for period in periods if period[1] > now]
    if periods and not coming:
        return
    subject = names.iri("alerts", entity)
    yield Quad(subject, v.A, _CLASS)
    for text, predicate in ((alert.header_text, v.LABEL), (alert.description_text, _COMMENT)):
        if (result := _text(text, language)) is not None:
            yield Quad(subject, predicate, result)
    if (url := _text(alert.url, language)) is not None:
        yield Quad(subject, iri(v.SCHEMA + "url"), url)
    for field, enumeration in _ENUMERATIONS:
        if alert.HasField(field):
            name = enumeration.Name(getattr(alert, field)).lower()
            yield Quad(subject, iri(v.TRAIN + field.partition("_")[0]), literal(name))
    if coming:
        # The period in which it is active, or the one that comes next.
        for name, second in zip(("startDate", "endDate"), coming[0], strict=True):
            if 0 < second <= _LAST:
                instant = format_instant(from_micros(second * 1_000_000))
                yield Quad(subject, iri(v.SCHEMA + name), v.date_time(instant))
    for number, informed in enumerate(alert.informed_entity):
        node = names.iri("alerts", entity, str(number))
        yield Quad(node, v.A, _AFFECTED)
        yield Quad(node, _ALERT, subject)
        for kind, name, identifier in (
            ("agencies", "agency", informed.agency_id),
            ("routes", "route", informed.route_id or informed.trip.route_id),
            ("trips", "trip", informed.trip.trip_id),
            ("stops", "stop", informed.stop_id),
        ):
            if identifier:
                yield Quad(node, iri(GTFS + name), names.iri(kind, identifier))


def _text(translated: Any, language: str | None) -> Term | None:
    texts = list(translated.translation)
    if not texts:
        return None
    requested = (v.language_tag(language) or "").lower()

    def rank(each: Any) -> int:
        tag = (v.language_tag(each.language) or "").lower()
        if tag == requested:
            return 0
        if requested and tag.partition("-")[0] == requested.partition("-")[0]:
            return 1
        return 2 if not tag else 3

    chosen = min(texts, key=rank)
    return literal(chosen.text, language=v.language_tag(chosen.language))


_GROWTH = 16
"""How much larger than JSON or XML the statements of a message may be, which is of bytes."""
_UPDATE = rt.TripUpdate.StopTimeUpdate
_TRIP = rt.TripDescriptor
_OTHER_TRIPS = (_TRIP.ADDED, _TRIP.NEW, _TRIP.REPLACEMENT, _TRIP.DUPLICATED)
_CANCELLED = (_TRIP.CANCELED, _TRIP.DELETED)


class _Known(NamedTuple):
    delay: int | None = None
    skipped: bool = False


class Realtime:
    """Reads messages against a schedule."""

    name = "gtfs-rt"
    suffix = ".pb"

    def __init__(self, schedule: Gtfs, language: str | None = None) -> None:
        self._names = schedule
        self._language = language
        self._schedule = schedule.schedule
        self._timetable = self._schedule.timetable()
        self._templates = self._schedule.frequencies()
        self._platforms = self._schedule.platforms()

    def read(self, content: bytes, source: str) -> tuple[Quad, ...]:
        message = self.parse(content, source)
        try:
            return self.quads(message)
        except NestingError as error:
            raise InputError(f"a GTFS Realtime message that grows ({error})", source) from None

    def instant(self, content: bytes, source: str) -> datetime:
        return timestamp(self.parse(content, source))

    def parse(self, content: bytes, source: str) -> Any:
        """Parse a message, which must have a timestamp."""
        message = rt.FeedMessage()
        try:
            message.ParseFromString(content)
        except DecodeError as error:
            raise InputError(f"not a GTFS Realtime message ({error})", source) from None
        if not message.header.timestamp:
            raise InputError("a GTFS Realtime message without a timestamp", source)
        if message.header.timestamp > _LAST:
            raise InputError(
                f"a GTFS Realtime message of no instant: {message.header.timestamp} seconds "
                "after 1970",
                source,
            )
        return message

    def quads(self, message: Any) -> tuple[Quad, ...]:
        """Return a message's statements; later ones replace earlier ones."""
        size = _GROWTH * message.ByteSize()
        return last_values(bounded_statements(self._statements(message, timestamp(message)), size))

    def _statements(self, message: Any, at: datetime) -> Iterator[Quad]:
        for entity in message.entity:
            if entity.is_deleted:
                continue
            if entity.HasField("trip_update"):
                yield from self._trip(entity.trip_update, at)
            if entity.HasField("vehicle") and entity.vehicle.HasField("position"):
                yield from self._vehicle(entity.id, entity.vehicle)
            if entity.HasField("alert"):
                names, language = self._names, self._language
                yield from alert_quads(names, entity.id, entity.alert, at, language)

    def _trip(self, update: Any, at: datetime) -> Iterator[Quad]:
        trip = update.trip
        stops = self._timetable.get(trip.trip_id)
        # Additions, copies and replacements may have the name of a trip, but not its schedule.
        if stops is None or trip.schedule_relationship in _OTHER_TRIPS:
            return
        try:
            start = seconds(trip.start_time) if trip.trip_id in self._templates else None
            shift = 0 if start is None else start - (stops[0].departure or 0)
            day = date_of(trip.start_date) if trip.start_date else self._day(stops, shift, at)
            self._schedule.instant(day, max(stop.departure or 0 for stop in stops) + shift)
        except (ValueError, OverflowError):
            # No such day, or a run of a template without its start: nobody can say which run.
            return
        cancelled = trip.schedule_relationship in _CANCELLED
        stated = self._by_sequence(update, stops)
        propagated = _Known(update.delay if update.HasField("delay") else None)
        for stop in stops:
            update_ = stated.get(stop.sequence)
            state = propagated
            if update_ is not None:
                state = self._state(update_, stop, day, shift)
                # A skipped stop tells nothing of those behind it.
                propagated = propagated if state.skipped else state
            if stop is stops[-1] or not stop.pick_up or stop.departure is None:
                continue
            subject = self._names.departure(day, trip.trip_id, stop.sequence, start)
            if cancelled or state.skipped:
                yield Quad(subject, v.STATUS, v.CANCELLED)
            elif state.delay is not None:
                yield Quad(subject, v.DELAY, integer(state.delay))
            if update_ is not None and not cancelled:
                assigned = update_.stop_time_properties.assigned_stop_id
                if platform := self._platforms.get(assigned):
                    yield Quad(subject, v.PLATFORM, literal(platform))

    def _day(self, stops: list[StopTime], shift: int, at: datetime) -> date:
        times = [stop.departure + shift for stop in stops if stop.departure is not None]
        today = at.astimezone(self._schedule.zone).date()
        if not times:
            return today

        def distance(day: date) -> timedelta:
            begin = self._schedule.instant(day, min(times))
            end = self._schedule.instant(day, max(times))
            return max(begin - at, at - end, timedelta(0))

        # Trips of more than a day are rare, and those of more than two are none.
        return min((today + timedelta(days=n) for n in (0, -1, -2, 1)), key=distance)

    def _by_sequence(self, update: Any, stops: list[StopTime]) -> dict[int, Any]:
        """Map updates to stops; a name means its next stop."""
        stated: dict[int, Any] = {}
        positions: defaultdict[int | str, list[int]] = defaultdict(list)
        for index, stop in enumerate(stops):
            positions[stop.sequence].append(index)
            positions[stop.stop].append(index)
        position = 0
        for stop_update in update.stop_time_update:
            named = (
                stop_update.stop_sequence
                if stop_update.HasField("stop_sequence")
                else stop_update.stop_id
            )
            at: Sequence[int] = positions.get(named, ())
            following = bisect_left(at, position)
            if following < len(at):
                stated[stops[at[following]].sequence] = stop_update
                position = at[following] + 1
        return stated

    def _state(self, update: Any, stop: StopTime, day: date, shift: int) -> _Known:
        if update.schedule_relationship == _UPDATE.SKIPPED:
            return _Known(skipped=True)
        if update.schedule_relationship == _UPDATE.NO_DATA:
            return _Known()
        events = (update.departure, stop.departure), (update.arrival, stop.arrival)
        for event, planned in events:
            if event.HasField("delay"):
                return _Known(event.delay)
            if event.HasField("time") and 0 <= event.time <= _LAST and planned is not None:
                scheduled = self._schedule.instant(day, planned + shift)
                return _Known(event.time - to_micros(scheduled) // 1_000_000)
        return _Known()

    def _vehicle(self, entity: str, vehicle: Any) -> Iterator[Quad]:
        subject = self._names.iri("vehicles", vehicle.vehicle.id or entity)
        position = vehicle.position
        if not (math.isfinite(position.latitude) and math.isfinite(position.longitude)):
            return
        yield Quad(subject, iri(GEO + "lat"), v.decimal(f"{position.latitude:.6f}"))
        yield Quad(subject, iri(GEO + "long"), v.decimal(f"{position.longitude:.6f}"))
        if vehicle.trip.trip_id:
            trip = self._names.iri("trips", vehicle.trip.trip_id)
            yield Quad(subject, iri(GTFS + "trip"), trip)


def timestamp(message: Any) -> datetime:
    """Return a message's timestamp."""
    return from_micros(message.header.timestamp * 1_000_000)
