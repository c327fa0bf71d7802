"""CityBench: sensors of the city of Aarhus and the benchmark's queries, in three languages.

Source: Ali, Gao, Mileo 2015, *CityBench: a configurable benchmark to evaluate RSP engines using
smart city datasets*. The data are read from ``../shared`` beside the project, or from where
``TPF_CITYBENCH`` leads.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyoxigraph as ox

from annotations.terms import Quad
from experiments.errors import UnavailableError
from loaders.sources.citybench import SENSOR_GRAPHS, CityBench
from loaders.sources.citybench_sensors import SERVICES

CITYBENCH_VARIABLE = "TPF_CITYBENCH"
CITYBENCH_WINDOW = 3.0
"""Seconds that the windows of the queries hold."""
EVENT_FEEDS = ("culturalevents", "libraryevents")
CITYBENCH_QUERIES = ("Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q8", "Q9", "Q10")
"""Those whose answers name observations, so that completeness and latency can be told."""
UNNAMED = {
    "Q7": "no car park of the data has less than one vacancy",
    "Q11": "it asks for what has no observation, and is ASK in C-SPARQL",
    "Q12": "it counts",
}
"""The others, whose answers name none in these data, and why."""

_DATA = Path(__file__).parents[3] / "shared/data/citybench"
_START = datetime(2014, 8, 1, 8, 0, tzinfo=UTC)
_SKIPPED = 15  # rows, until the user comes near the events
# The published data lack this sensor; another one of its kind stands in.
_ABSENT, _PRESENT = "AarhusPollutionData184892", "AarhusPollutionData197626"
_FILES = {
    "SensorRepository": "sensors", "AarhusCulturalEvents": "culturalevents",
    "AarhusLibraryEvents": "libraryevents",
}  # fmt: skip
_STREAM = re.compile(rf"stream\s*<{re.escape(SERVICES)}(\w+)>\s*\[[^\]]*\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class City:
    """The data.

    Args:
        folder: the benchmark's.
    """

    folder: Path

    def static(self) -> Iterator[Quad]:
        """The sensor repository (default graph) and the events (named graphs)."""
        source = CityBench(self.folder)
        for piece in source.pieces(1):
            yield from source.quads(piece)

    def readings(self, sensors: Sequence[str], count: int) -> list[dict[str, list[Quad]]]:
        """What each sensor says at each of so many ticks, row by row of its file."""
        source = CityBench(self.folder, start=_START, period=timedelta(seconds=1))
        until = _START + timedelta(seconds=_SKIPPED + count)
        found: list[dict[str, list[Quad]]] = [{} for _ in range(_SKIPPED + count)]
        for sensor in sensors:
            for tick, reading in enumerate(source.readings(sensor, _START, until)):
                found[tick][sensor] = list(reading.quads)
        return found[_SKIPPED:]

    def cqels(self, name: str, server: str) -> str:
        """A query in CQELS-QL, over the datasets of a server (its root, with a slash)."""
        text = _without_comments((self.folder / "queries/cqels" / f"{name}.rq").read_text())
        for events in EVENT_FEEDS:
            text = text.replace(f"<{events}>", f"<{server}{events}>")
        return text

    def csparql(self, name: str, server: str, number: int) -> str:
        """A query in C-SPARQL, over the datasets of a server (its root, with a slash)."""
        text = _without_comments((self.folder / "queries/csparql" / f"{name}.rq").read_text())
        text = text.replace(_ABSENT, _PRESENT)
        for file, dataset in _FILES.items():
            text = re.sub(rf"<[^>]*/{file}\.rdf>", f"<{server}{dataset}>", text)
        return f"REGISTER QUERY {name}n{number} AS {text}"

    def sparql(self, name: str) -> str:
        """The same over facts that hold as long as the windows do: the query without windows."""
        text = _without_comments((self.folder / "queries/cqels" / f"{name}.rq").read_text())
        text = re.sub(r"from named\s*<\w+>", "", _STREAM.sub("", text), flags=re.IGNORECASE)
        for events in EVENT_FEEDS:
            text = text.replace(f"<{events}>", f"<{SENSOR_GRAPHS}{events}>")
        return text

    def sensors(self, name: str) -> tuple[str, ...]:
        """The sensors that a query reads."""
        text = _without_comments((self.folder / "queries/cqels" / f"{name}.rq").read_text())
        return tuple(dict.fromkeys(_STREAM.findall(text)))

    def expected(
        self, name: str, readings: Sequence[Mapping[str, Sequence[Quad]]], per_window: int
    ) -> list[set[str]]:
        """For each tick, the observations of it that are in the answer then, by another engine."""
        store = ox.Store()
        text = "".join(_n_quads(quad) for quad in self.static())
        store.bulk_load(text.encode(), format=ox.RdfFormat.N_QUADS)
        query = re.sub(r"select\s[^{]*?\bwhere", _distinct, self.sparql(name), flags=re.I | re.S)
        found: list[set[str]] = []
        kept: list[list[ox.Quad]] = []
        for tick in readings:
            text = "".join(_n_quads(quad) for quads in tick.values() for quad in quads)
            kept.append(list(ox.parse(text.encode(), format=ox.RdfFormat.N_QUADS)))
            store.extend(kept[-1])
            for quad in kept[-1 - per_window] if len(kept) > per_window else ():
                store.remove(quad)
            rows = store.query(query)
            assert isinstance(rows, ox.QuerySolutions)
            mine = {str(quad.subject) for quad in kept[-1]}
            found.append({str(term) for row in rows for term in row} & mine)
        return found


def city() -> City:
    """The data.

    Raises:
        UnavailableError: they are not here.
    """
    folder = Path(os.environ.get(CITYBENCH_VARIABLE, _DATA))
    if not (folder / "queries").is_dir():
        raise UnavailableError(
            f"the data of CityBench are not here; {CITYBENCH_VARIABLE} may name a folder"
        )
    return City(folder)


def _distinct(found: re.Match[str]) -> str:
    names = dict.fromkeys(re.findall(r"\?obId\d", found[0]))
    return f"select distinct {' '.join(names)} where"


def _without_comments(text: str) -> str:
    return "\n".join(re.sub(r"###.*|(?<=\s)#.*", "", f" {line}") for line in text.splitlines())


def _n_quads(quad: Quad) -> str:
    return f"{' '.join(term for term in quad if term)} .\n"
