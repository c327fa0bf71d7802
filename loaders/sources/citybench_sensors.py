"""What the sensors of CityBench observe, by their repository, and how rows become values."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyoxigraph as ox

from annotations.errors import NestingError
from annotations.namespaces import integer
from annotations.terms import Term, literal
from loaders import vocabulary as v
from loaders.errors import InputError
from loaders.places import InputPlace, on_disk
from tpf_server.store.static.rdf_files import parsed_file

SERVICES = "http://www.insight-centre.org/dataset/SampleEventService#"
CITY = "http://www.insight-centre.org/citytraffic#"
SSN = "http://purl.oclc.org/NET/ssnx/ssn#"
_EARTH = 6_371_000.0


class Property(NamedTuple):
    """A property that a sensor observes.

    Args:
        name: the local name of its class: ``CongestionLevel``.
        subject: its IRI.
        metres: length of the segment of the road that it belongs to; 0: unknown, or no road.
    """

    name: str
    subject: Term
    metres: float


def double(value: float) -> Term:
    """The ``xsd:double`` literal of a number."""
    return literal(repr(value), datatype=v.XSD_DOUBLE)


class ValueRule(NamedTuple):
    """Columns of a row, and how their texts (and the length of the road) become a value."""

    columns: tuple[str, ...]
    term: Callable[[list[str], float], Term]


def _number(cells: list[str], _: float) -> Term:
    return double(float(cells[0]))


def _whole(cells: list[str], _: float) -> Term:
    return integer(int(cells[0]))


def _highest(cells: list[str], _: float) -> Term:
    """The air pollution index of the benchmark: the largest of the measured values."""
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
    """What every sensor observes, as far as its rows can tell, sorted by name.

    Raises:
        InputError: the file is malformed.
    """
    types: dict[str, str] = {}
    features: dict[str, str] = {}
    observes: list[tuple[str, str]] = []
    places: dict[tuple[str, str], float] = {}
    try:
        for quad in _quads_in(repository):
            subject, predicate = str(quad.subject), quad.predicate.value
            if predicate == SSN + "observes":
                observes.append((subject[1:-1], str(quad.object)))
            elif predicate == SSN + "isPropertyOf":
                features[subject] = str(quad.object)
            elif predicate == v.A[1:-1] and str(quad.object).startswith(f"<{CITY}"):
                types[subject] = str(quad.object)[len(CITY) + 1 : -1]
            elif predicate.startswith(CITY + "has") and isinstance(quad.object, ox.Literal):
                places[subject, predicate[len(CITY) :]] = float(quad.object.value)
    except SyntaxError as error:
        raise InputError(str(error.msg), str(repository), error.lineno) from None
    except NestingError as error:
        raise InputError(error.reason, str(repository), error.line) from None
    found: dict[str, list[Property]] = {}
    for sensor, subject in observes:
        name = types.get(subject, "")
        if sensor.startswith(SERVICES) and (name in VALUES or name == "Location"):
            metres = _length(features.get(subject, ""), places)
            found.setdefault(sensor[len(SERVICES) :], []).append(
                Property(name, Term(subject), metres)
            )
    return {sensor: sorted(properties) for sensor, properties in found.items()}


def _quads_in(repository: InputPlace) -> Iterator[ox.Quad]:
    with on_disk(repository) as file, parsed_file(file, ox.RdfFormat.N3) as parser:
        yield from parser


def _length(feature: str, places: Mapping[tuple[str, str], float]) -> float:
    """Metres along a great circle from the start to the end of a segment of a road; 0: unknown."""
    corners = ("hasStartLatitude", "hasStartLongitude", "hasEndLatitude", "hasEndLongitude")
    if not all((feature, corner) in places for corner in corners):
        return 0.0
    lat1, lon1, lat2, lon2 = (math.radians(places[feature, corner]) for corner in corners)
    half = (
        math.sin((lat2 - lat1) / 2) ** 2
        + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    )
    return round(2 * _EARTH * math.asin(math.sqrt(half)), 1)
