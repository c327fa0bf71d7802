"""CityBench's sensor readings as observations, one per second, and its static data."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyoxigraph as ox

from tests.support.continuous_reference import Arrival
from tpf_server.store.static.ox_terms import ox_term

SERVICE = "http://www.insight-centre.org/dataset/SampleEventService#"
_CT = "http://www.insight-centre.org/citytraffic#"
_SSN = "http://purl.oclc.org/NET/ssnx/ssn#"
_SAO = "http://purl.oclc.org/NET/sao/"
_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_DOUBLE = "^^<http://www.w3.org/2001/XMLSchema#double>"

Triple = tuple[str, str, str]


def static_store(folder: Path) -> ox.Store:
    """Store the sensor repository (default graph) and the events (named graphs)."""
    store = ox.Store()
    for name, graph in (
        ("SensorRepository", ox.DefaultGraph()),
        ("AarhusCulturalEvents", ox.NamedNode("http://localhost/culturalevents")),
        ("AarhusLibraryEvents", ox.NamedNode("http://localhost/libraryevents")),
    ):
        store.bulk_load(
            path=folder / "static" / f"{name}.n3", format=ox.RdfFormat.N3, to_graph=graph
        )
    return store


class SharedGraph:
    """A static graph over a store that the reference reads too."""

    def __init__(self, store: ox.Store, graph: ox.NamedNode | ox.DefaultGraph) -> None:
        self._store, self._graph = store, graph

    def _quads(self, *terms: Any) -> Iterator[ox.Quad]:
        nodes: list[Any] = [None if term is None else ox_term(term) for term in terms]
        return self._store.quads_for_pattern(nodes[0], nodes[1], nodes[2], self._graph)

    def match(self, *terms: Any) -> Iterator[Any]:
        return ((str(q.subject), str(q.predicate), str(q.object)) for q in self._quads(*terms))

    def count(self, *terms: Any) -> int:
        return sum(1 for _ in self._quads(*terms))


class Sensors:
    """Makes observations of a folder; its static store says which properties a sensor observes."""

    def __init__(self, folder: Path, store: ox.Store) -> None:
        self._folder = folder
        self._store = store

    def _properties(self, sensor: str) -> dict[str, str]:
        """Return the properties that a sensor observes, by the local names of their types."""
        found = {}
        service = ox.NamedNode(SERVICE + sensor)
        for quad in self._store.quads_for_pattern(service, ox.NamedNode(_SSN + "observes"), None):
            assert isinstance(quad.object, ox.NamedNode)
            for kind in self._store.quads_for_pattern(quad.object, ox.NamedNode(_TYPE[1:-1]), None):
                found[str(kind.object)[1:-1].removeprefix(_CT)] = str(quad.object)
        return found

    def readings(self, sensor: str, count: int) -> Iterator[Arrival]:
        """Return the first observations of a sensor, one graph per second."""
        path = self._folder / "streams" / f"{sensor}.csv"
        with path.open(newline="") as file:
            if sensor == "UserLocationService":
                lines = [line.strip().replace("|", ",").split(",") for line in file]
                # The user comes near the events after a quarter of an hour.
                for number, (user, latitude, longitude) in enumerate(lines[14 : 14 + count]):
                    yield Arrival(
                        SERVICE + sensor,
                        number * 1000,
                        self._location(user, latitude, longitude, number),
                    )
                return
            properties = self._properties(sensor)
            for number, row in enumerate(csv.DictReader(file)):
                if number == count:
                    return
                triples: list[Triple] = []
                for kind, value in _values(row).items():
                    if kind in properties:
                        node = f"<{SERVICE}{sensor}-{kind}-{number}>"
                        triples += self._observation(
                            node, sensor, properties[kind], f'"{_plain(value)}"{_DOUBLE}'
                        )
                yield Arrival(SERVICE + sensor, number * 1000, tuple(triples))

    @staticmethod
    def _observation(node: str, sensor: str, observed: str, value: str) -> list[Triple]:
        return [
            (node, _TYPE, f"<{_SSN}Observation>"),
            (node, f"<{_SSN}observedProperty>", observed),
            (node, f"<{_SAO}hasValue>", value),
            (node, f"<{_SSN}observedBy>", f"<{SERVICE}{sensor}>"),
        ]

    def _location(
        self, user: str, latitude: str, longitude: str, number: int
    ) -> tuple[Triple, ...]:
        sensor = "UserLocationService"
        node = f"<{SERVICE}{sensor}-{number}>"
        place = f"<{SERVICE}{sensor}-place-{number}>"
        return (
            *self._observation(node, sensor, f"<{user}>", place),
            (place, f"<{_CT}hasLatitude>", f'"{_plain(latitude)}"{_DOUBLE}'),
            (place, f"<{_CT}hasLongitude>", f'"{_plain(longitude)}"{_DOUBLE}'),
        )


def _plain(number: str) -> str:
    """Return the number as pyoxigraph's store writes it back."""
    return repr(float(number)).removesuffix(".0")


def _values(row: dict[str, str]) -> dict[str, str]:
    """Return the values of a row, by the types of properties."""
    if "vehicleCount" in row:
        return {
            "CongestionLevel": row["vehicleCount"],
            "AverageSpeed": row["avgSpeed"],
            "EstimatedTime": row["avgMeasuredTime"],
        }
    if "totalspaces" in row:
        return {"ParkingVacancy": str(int(row["totalspaces"]) - int(row["vehiclecount"]))}
    if "tempm" in row:
        return {"Temperature": row["tempm"], "Humidity": row["hum"], "WindSpeed": row["wspdm"]}
    return {
        "API": row["ozone"],
        "Ozone": row["ozone"],
        "ParticulateMatter": row["particullate_matter"],
        "CarbonMonoxide": row["carbon_monoxide"],
    }
