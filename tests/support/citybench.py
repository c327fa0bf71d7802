"""CityBench's sensor readings as observations, one per second, and its static data."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyoxigraph as ox

from loaders.outputs import line_of
from loaders.sources.citybench import SERVICES, CityBench
from tests.support.continuous_reference import Arrival
from tpf_server.store.static.ox_terms import ox_term

_START = datetime(2014, 8, 1, 8, tzinfo=UTC)


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


def readings(folder: Path, sensor: str, count: int) -> Iterator[Arrival]:
    """Return observations of a sensor, one graph per second."""
    # The user comes near the events after a quarter of an hour.
    first = 14 if sensor == "UserLocationService" else 0
    until = _START + timedelta(seconds=first + count)
    source = CityBench(folder, start=_START, period=timedelta(seconds=1))
    for number, reading in enumerate(islice(source.readings(sensor, _START, until), first, None)):
        # Numbers are as the reference's store writes them.
        stored = ox.Store()
        text = "".join(f"{line_of(quad)}\n" for quad in reading.quads)
        stored.load(text.encode(), format=ox.RdfFormat.N_QUADS)
        triples = tuple((str(q.subject), str(q.predicate), str(q.object)) for q in stored)
        yield Arrival(SERVICES + sensor, number * 1000, triples)
