"""CityBench: sensors of the city of Aarhus and the benchmark's queries, in three languages.

Source: Ali, Gao, Mileo 2015, *CityBench: a configurable benchmark to evaluate RSP engines using
smart city datasets*. The data are in ``../shared`` beside the project, or in ``TPF_CITYBENCH``.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyoxigraph as ox

from annotations.terms import Quad
from experiments.errors import MachineLimitError, UnavailableError
from loaders.sources.citybench import SENSOR_GRAPHS, SERVICES, CityBench

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
MOST_ROWS = 100_000
"""An answer of more is not measured: Q2 joins four windows on nothing, so that its rows grow with
the fourth power of the rate."""

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
    """The data in the benchmark's folder."""

    folder: Path

    def static(self) -> Iterator[Quad]:
        """Yield the sensor repository (default graph) and the events (named graphs)."""
        source = CityBench(self.folder)
        for piece in source.pieces(1):
            yield from source.quads(piece)

    def readings(self, sensors: Sequence[str], count: int) -> list[dict[str, list[Quad]]]:
        """Return each sensor's reading at so many ticks, row by row of its file."""
        source = CityBench(self.folder, start=_START, period=timedelta(seconds=1))
        until = _START + timedelta(seconds=_SKIPPED + count)
        found: list[dict[str, list[Quad]]] = [{} for _ in range(_SKIPPED + count)]
        for sensor in sensors:
            for tick, reading in enumerate(source.readings(sensor, _START, until)):
                found[tick][sensor] = list(reading.quads)
        return found[_SKIPPED:]

    def cqels(self, name: str, server: str) -> str:
        """Return a query in CQELS-QL, over a server's datasets."""
        text = _without_comments((self.folder / "queries/cqels" / f"{name}.rq").read_text())
        for events in EVENT_FEEDS:
            text = text.replace(f"<{events}>", f"<{server}{events}>")
        return text

    def csparql(self, name: str, server: str, number: int) -> str:
        """Return a query in C-SPARQL, over a server's datasets."""
        text = _without_comments((self.folder / "queries/csparql" / f"{name}.rq").read_text())
        text = text.replace(_ABSENT, _PRESENT)
        for file, dataset in _FILES.items():
            text = re.sub(rf"<[^>]*/{file}\.rdf>", f"<{server}{dataset}>", text)
        return f"REGISTER QUERY {name}n{number} AS {text}"

    def sparql(self, name: str) -> str:
        """Return the query without windows, over facts that hold as long."""
        text = _without_comments((self.folder / "queries/cqels" / f"{name}.rq").read_text())
        text = re.sub(r"from named\s*<\w+>", "", _STREAM.sub("", text), flags=re.IGNORECASE)
        for events in EVENT_FEEDS:
            text = text.replace(f"<{events}>", f"<{SENSOR_GRAPHS}{events}>")
        return text

    def sensors(self, name: str) -> tuple[str, ...]:
        """Return the sensors that a query reads."""
        text = _without_comments((self.folder / "queries/cqels" / f"{name}.rq").read_text())
        return tuple(dict.fromkeys(_STREAM.findall(text)))


class CityOracle:
    """Right answers of a query, by another engine.

    `readings` are by tick, of which `per_window` are in a window.
    """

    def __init__(
        self,
        city: City,
        name: str,
        readings: Sequence[Mapping[str, Sequence[Quad]]],
        per_window: int,
    ) -> None:
        self._query = re.sub(
            r"select\s[^{]*?\bwhere", _distinct, city.sparql(name), flags=re.I | re.S
        )
        self._readings = readings
        self._per_window = per_window
        self._store = ox.Store()
        text = "".join(_n_quads(quad) for quad in city.static())
        self._store.bulk_load(text.encode(), format=ox.RdfFormat.N_QUADS)
        self._found: dict[int, set[str]] = {}

    def expected(self, tick: int) -> set[str]:
        """Return the observations of a tick in the answer, up to `MOST_ROWS` rows."""
        if tick not in self._found:
            window = [self._said(n) for n in range(max(0, tick + 1 - self._per_window), tick + 1)]
            for quads in window:
                self._store.extend(quads)
            try:
                named = self._named()
            finally:
                for quads in window:
                    for quad in quads:
                        self._store.remove(quad)
            self._found[tick] = named & {str(quad.subject) for quad in window[-1]}
        return self._found[tick]

    def _said(self, tick: int) -> list[ox.Quad]:
        readings = self._readings[tick].values()
        text = "".join(_n_quads(quad) for quads in readings for quad in quads)
        return list(ox.parse(text.encode(), format=ox.RdfFormat.N_QUADS))

    def _named(self) -> set[str]:
        rows = self._store.query(self._query)
        assert isinstance(rows, ox.QuerySolutions)
        named: set[str] = set()
        for number, row in enumerate(rows):
            if number == MOST_ROWS:
                raise MachineLimitError(f"an answer has more than {MOST_ROWS:,} rows")
            named.update(map(str, row))
        return named


def city() -> City:
    """Return the data, or raise `UnavailableError`."""
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
