"""The CityBench data: sensors of the city of Aarhus, in ``streams/*.csv`` and ``static/*.n3``.

A sensor's property has an observation, as the queries expect (SSN and Stream Annotation Ontology):

    <observation> a ssn:Observation ; ssn:observedBy <sensor> ;
        ssn:observedProperty <property> ; sao:hasValue value .

Source: Ali, Gao, Mileo 2015, *CityBench: a configurable benchmark to evaluate RSP engines using
smart city datasets*.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

import pyoxigraph as ox

from annotations.errors import NestingError
from annotations.instants import from_micros
from annotations.namespaces import integer
from annotations.terms import DEFAULT_GRAPH, Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.errors import InputError
from loaders.places import InputPlace, input_place, names_below, on_disk
from loaders.sources.base import LatestReadings, Reading, size_of
from loaders.sources.reading import instant_in, lines_of, rows
from tpf_server.store.static.rdf_files import parsed_file

# What the sensors of CityBench observe, by their repository, and how rows become values.

SERVICES = "http://www.insight-centre.org/dataset/SampleEventService#"
CITY = "http://www.insight-centre.org/citytraffic#"
SSN = "http://purl.oclc.org/NET/ssnx/ssn#"
_EARTH = 6_371_000.0


class Property(NamedTuple):
    """A sensor's property: local name of its class, and metres of its road segment (or 0)."""

    name: str
    subject: Term
    metres: float


def double(value: float) -> Term:
    """The ``xsd:double`` literal of a finite number; `ValueError` for others."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no number of a sensor")
    return literal(repr(value), datatype=v.XSD_DOUBLE)


class ValueRule(NamedTuple):
    """A value computed from columns and the road's length."""

    columns: tuple[str, ...]
    term: Callable[[list[str], float], Term]


def _number(cells: list[str], _: float) -> Term:
    return double(float(cells[0]))


def _whole(cells: list[str], _: float) -> Term:
    return integer(int(cells[0]))


def _highest(cells: list[str], _: float) -> Term:
    return integer(max(map(int, cells)))


def _vacant(cells: list[str], _: float) -> Term:
    return integer(int(cells[0]) - int(cells[1]))


def _per_metre(cells: list[str], metres: float) -> Term:
    return double(float(cells[0]) / metres if metres else -1.0)


def _travel_time(cells: list[str], metres: float) -> Term:
    speed = float(cells[0])
    return double(metres / speed if speed else -1.0)


_POLLUTANTS = (
    "ozone", "particullate_matter", "carbon_monoxide", "sulfure_dioxide", "nitrogen_dioxide"
)  # fmt: skip
VALUES = {
    "AvgSpeed": ValueRule(("avgSpeed",), _number),
    "VehicleCount": ValueRule(("vehicleCount",), _number),
    "MeasureTime": ValueRule(("avgMeasuredTime",), _number),
    "EstimatedTime": ValueRule(("avgSpeed",), _travel_time),
    "CongestionLevel": ValueRule(("vehicleCount",), _per_metre),
    "API": ValueRule(_POLLUTANTS, _highest),
    "ParkingVacancy": ValueRule(("totalspaces", "vehiclecount"), _vacant),
    "Temperature": ValueRule(("tempm",), _number),
    "Humidity": ValueRule(("hum",), _whole),
    "WindSpeed": ValueRule(("wspdm",), _number),
}
"""By the class of a property."""


def observed_by_sensors(repository: InputPlace) -> dict[str, list[Property]]:
    """Return each sensor's properties in its rows, by name; `InputError` for a bad coordinate."""
    types: dict[str, str] = {}
    features: dict[str, str] = {}
    observes: list[tuple[str, str]] = []
    coordinates: dict[tuple[str, str], float] = {}
    for quad in _quads_in(repository):
        subject, predicate = str(quad.subject), quad.predicate.value
        if predicate == SSN + "observes":
            observes.append((subject[1:-1], str(quad.object)))
        elif predicate == SSN + "isPropertyOf":
            features[subject] = str(quad.object)
        elif predicate == v.A[1:-1] and str(quad.object).startswith(f"<{CITY}"):
            types[subject] = str(quad.object)[len(CITY) + 1 : -1]
        elif predicate.startswith(CITY + "has") and isinstance(quad.object, ox.Literal):
            degrees = math.nan
            with suppress(ValueError):
                degrees = float(quad.object.value)
            if not math.isfinite(degrees):
                fault = f"no coordinate: {subject} {quad.predicate} {quad.object}"
                raise InputError(fault, str(repository))
            coordinates[subject, predicate[len(CITY) :]] = math.radians(degrees)
    results: dict[str, list[Property]] = {}
    for sensor, subject in observes:
        name = types.get(subject, "")
        if sensor.startswith(SERVICES) and (name in VALUES or name == "Location"):
            metres = _length(features.get(subject, ""), coordinates)
            results.setdefault(sensor[len(SERVICES) :], []).append(
                Property(name, Term(subject), metres)
            )
    return {sensor: sorted(properties) for sensor, properties in results.items()}


def _quads_in(path: InputPlace) -> Iterator[ox.Quad]:
    try:
        with on_disk(path) as file, parsed_file(file, ox.RdfFormat.N3) as parser:
            yield from parser
    except SyntaxError as error:
        raise InputError(str(error.msg), str(path), error.lineno) from None
    except NestingError as error:
        raise InputError(error.reason, str(path), error.line) from None


def _length(feature: str, coordinates: Mapping[tuple[str, str], float]) -> float:
    corners = ("hasStartLatitude", "hasStartLongitude", "hasEndLatitude", "hasEndLongitude")
    if not all((feature, corner) in coordinates for corner in corners):
        return 0.0
    lat1, lon1, lat2, lon2 = (coordinates[feature, corner] for corner in corners)
    half = (
        math.sin((lat2 - lat1) / 2) ** 2
        + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    )
    return round(2 * _EARTH * math.asin(math.sqrt(half)), 1)


SAO = "http://purl.oclc.org/NET/sao/"
SENSOR_GRAPHS = "http://example.org/citybench/"
"""What the relative names of graphs in the queries (``<culturalevents>``) are resolved against."""

LOCATIONS = "UserLocationService"
_OBSERVATION = iri(SSN + "Observation")
_OBSERVED_BY = iri(SSN + "observedBy")
_OBSERVED_PROPERTY = iri(SSN + "observedProperty")
_HAS_VALUE = iri(SAO + "hasValue")
_LATITUDE = iri(CITY + "hasLatitude")
_LONGITUDE = iri(CITY + "hasLongitude")
_STATIC = {
    "SensorRepository.n3": DEFAULT_GRAPH,
    "AarhusCulturalEvents.n3": iri(SENSOR_GRAPHS + "culturalevents"),
    "AarhusLibraryEvents.n3": iri(SENSOR_GRAPHS + "libraryevents"),
}
_REPOSITORY = "SensorRepository.n3"
_LOCATION_PERIOD = timedelta(seconds=1)


class CityBench(LatestReadings):
    """The sensors of CityBench.

    Times without a zone are UTC; the user's locations come once a second from the start.
    """

    name = "citybench"
    last_holds = timedelta(minutes=1)
    prefixes: Mapping[str, str] = MappingProxyType(
        {"ssn": SSN, "sao": SAO, "ct": CITY, "ses": SERVICES}
    )

    def __init__(
        self,
        directory: str | InputPlace,
        start: datetime | None = None,
        period: timedelta | None = None,
    ) -> None:
        self.directory = input_place(directory)
        self.start = start
        self.period = period
        if not (self.directory / "static" / _REPOSITORY).is_file():
            raise InputError("no such file", str(self.directory / "static" / _REPOSITORY))
        streams = self.directory / "streams"
        self._files = {
            name.removesuffix(".csv"): streams / name
            for name in names_below(streams)
            if name.endswith(".csv") and "/" not in name
        }
        if not self._files:
            raise InputError("holds no sensor (files like AarhusWeatherData0.csv)", str(directory))
        self._observed: dict[str, list[Property]] = {}

    # The static side.

    def size(self) -> int:
        """Estimate the bytes of the static files."""
        return size_of(self.directory / "static" / name for name in _STATIC)

    def pieces(self, count: int) -> Sequence[str]:  # noqa: ARG002 - there are three files
        return [name for name in _STATIC if (self.directory / "static" / name).is_file()]

    def quads(self, piece: str) -> Iterator[Quad]:
        """Yield a file's facts, events in named graphs."""
        for quad in _quads_in(self.directory / "static" / piece):
            subject, object_ = (Term(_scoped(term, piece)) for term in (quad.subject, quad.object))
            yield Quad(subject, Term(str(quad.predicate)), object_, _STATIC[piece])

    # The streams.

    def streams(self) -> Sequence[str]:
        """Return the sensors' names; `SERVICES` prefixes a stream's IRI."""
        return tuple(self._files)

    def readings(
        self, stream: str, start: datetime | None, until: datetime | None
    ) -> Iterator[Reading]:
        start = self.start if start is None else start
        first = start
        if first is None and (stream == LOCATIONS or self.period is not None):
            first = self._first()
        latest = None
        for number, (at, row) in enumerate(self._rows(stream, first), start=1):
            instant = at
            if self.period is not None:
                assert first is not None
                instant = first + (number - 1) * self.period
            if latest is not None and instant < latest:
                continue  # the sensor has said something newer
            latest = instant
            if until is not None and instant >= until:
                return
            if start is None or instant >= start:
                yield Reading(instant, tuple(self._observations(stream, number, row)))

    def _first(self) -> datetime:
        firsts = (next(self._rows(n, None), None) for n in self._files if n != LOCATIONS)
        return min((first[0] for first in firsts if first), default=from_micros(0))

    def _rows(
        self, stream: str, first: datetime | None
    ) -> Iterator[tuple[datetime, Mapping[str, str]]]:
        path = self._files[stream]
        with path.open(encoding="utf-8-sig", newline="") as text:
            if stream == LOCATIONS:
                assert first is not None
                for number, line in lines_of(text, str(path)):
                    _, _, position = line.strip().partition("|")
                    latitude, _, longitude = position.partition(",")
                    row = {"lat": latitude, "lon": longitude}
                    yield first + (number - 1) * _LOCATION_PERIOD, row
                return
            time = _time_of(stream, path)
            table = rows(text, str(path))
            _, header = next(table, (1, []))
            for line_number, values in table:
                if not values:
                    continue
                row = dict(zip(header, values, strict=False))
                try:
                    at = instant_in(row[time])
                except (KeyError, ValueError):
                    raise InputError(
                        f"no time in the column {time}", str(path), line_number
                    ) from None
                yield at, row

    def _observations(self, stream: str, number: int, row: Mapping[str, str]) -> Iterator[Quad]:
        sensor = iri(SERVICES + stream)
        for observed in self._properties(stream):
            name = f"{SERVICES}{stream}-{number}"
            try:
                if observed.name == "Location":
                    value = iri(f"{name}-place")
                    yield Quad(value, _LATITUDE, double(float(row["lat"])))
                    yield Quad(value, _LONGITUDE, double(float(row["lon"])))
                else:
                    columns, term = VALUES[observed.name]
                    cells = [row[column] for column in columns]
                    if "" in cells:
                        continue  # the sensor did not say
                    value = term(cells, observed.metres)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"no value of {observed.name} in row {number} ({error})",
                    str(self._files[stream]),
                ) from None
            subject = iri(f"{name}-{observed.name}")
            yield Quad(subject, v.A, _OBSERVATION)
            yield Quad(subject, _OBSERVED_BY, sensor)
            yield Quad(subject, _OBSERVED_PROPERTY, observed.subject)
            yield Quad(subject, _HAS_VALUE, value)

    def _properties(self, stream: str) -> list[Property]:
        if not self._observed:
            self._observed = observed_by_sensors(self.directory / "static" / _REPOSITORY)
        entry = self._observed.get(stream)
        if entry is None:
            raise InputError("the sensor repository does not know this", str(self._files[stream]))
        return entry


_TIMES = {
    "AarhusTraffic": "TIMESTAMP", "AarhusPollution": "timestamp", "AarhusParking": "updatetime",
    "AarhusWeather": "TIMESTAMP",
}  # fmt: skip
"""The columns of times, by how the names of sensors begin."""


def _time_of(stream: str, path: InputPlace) -> str:
    for beginning, column in _TIMES.items():
        if stream.startswith(beginning):
            return column
    raise InputError("no sensor of CityBench (its name tells which kind it is)", str(path))


def _scoped(term: object, scope: str) -> str:
    if isinstance(term, ox.BlankNode):
        return f"_:{scope.removesuffix('.n3')}{term.value}"
    return str(term)
