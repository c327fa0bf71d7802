"""``citybench``: completeness and latency of the benchmark's queries, in all modes.

Source: Ali, Gao, Mileo 2015, *CityBench*, section 5.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import pyoxigraph as ox
import requests

from annotations.clock import SystemClock
from annotations.terms import DEFAULT_GRAPH, Quad
from experiments.errors import MachineLimitError, MeasurementError, UnavailableError
from experiments.harness import items
from experiments.harness.estimates import percentile
from experiments.harness.processes import Process
from experiments.harness.report import rounded, shown_value
from experiments.harness.results import MACHINE_LIMIT, Results
from experiments.harness.servers import TOKEN, Server, fragment_server
from experiments.studies import boards
from loaders.sources.citybench import SENSOR_GRAPHS, SERVICES, CityBench

# CityBench: sensors of the city of Aarhus and the benchmark's queries, in three languages.
#
# Source: Ali, Gao, Mileo 2015, *CityBench: a configurable benchmark to evaluate RSP engines using
# smart city datasets*. The data are in ``../shared`` beside the project, or in ``TPF_CITYBENCH``.

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
"""An answer of more is not measured where all its rows come to a client, or where it names so many
observations: Q2 joins readings on nothing, so that its rows grow with the fourth power of the rate,
and Q8 joins two windows and the events of a library."""
COSTLY = 10.0
"""Percent of a core from which on one query's client is one that fragments do not suit."""

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
        result: list[dict[str, list[Quad]]] = [{} for _ in range(_SKIPPED + count)]
        for sensor in sensors:
            for tick, reading in enumerate(source.readings(sensor, _START, until)):
                result[tick][sensor] = list(reading.quads)
        return result[_SKIPPED:]

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
        text = _without_comments((self.folder / "queries/cqels" / f"{name}.rq").read_text())
        return tuple(dict.fromkeys(_STREAM.findall(text)))


class CityOracle:
    """Right answers of a query, by another engine."""

    def __init__(
        self,
        city: City,
        name: str,
        readings: Sequence[Mapping[str, Sequence[Quad]]],
        per_window: int,
    ) -> None:
        self._whole = city.sparql(name)
        self._query = re.sub(r"select\s[^{]*?\bwhere", _distinct, self._whole, flags=re.I | re.S)
        self._readings = readings
        self._per_window = per_window
        self._store = ox.Store()
        text = "".join(_n_quads(quad) for quad in city.static())
        self._store.bulk_load(text.encode(), format=ox.RdfFormat.N_QUADS)
        self._answers: dict[int, set[str]] = {}

    def expected(self, tick: int) -> set[str]:
        """Return the observations of a tick in the answer, up to `MOST_ROWS` rows."""
        if tick not in self._answers:
            with self._window(tick) as window:
                self._answers[tick] = self._named() & {str(quad.subject) for quad in window[-1]}
        return self._answers[tick]

    def rows(self, tick: int) -> int:
        """Return how many rows the whole answer has at a tick, repeated ones included."""
        with self._window(tick):
            rows = self._store.query(self._whole)
            assert isinstance(rows, ox.QuerySolutions)
            return sum(1 for _ in rows)

    @contextmanager
    def _window(self, tick: int) -> Iterator[list[list[ox.Quad]]]:
        window = [self._facts(n) for n in range(max(0, tick + 1 - self._per_window), tick + 1)]
        for quads in window:
            self._store.extend(quads)
        try:
            yield window
        finally:
            for quad in (quad for quads in window for quad in quads):
                self._store.remove(quad)

    def _facts(self, tick: int) -> list[ox.Quad]:
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


def _distinct(match: re.Match[str]) -> str:
    names = dict.fromkeys(re.findall(r"\?obId\d", match[0]))
    return f"select distinct {' '.join(names)} where"


def _without_comments(text: str) -> str:
    return "\n".join(re.sub(r"###.*|(?<=\s)#.*", "", f" {line}") for line in text.splitlines())


def _n_quads(quad: Quad) -> str:
    return f"{' '.join(term for term in quad if term)} .\n"


_MODES = (boards.STREAMER, boards.CQELS_MODE, boards.CSPARQL_MODE)
_CITY = "city"
_SENSORS = "sensors"
_NAMED_STREAM: Final = re.compile(r"STREAM\s+<(https?://[^>]+)>")
# The queries' own time in seconds: every window holds as many readings as its seconds, whatever
# the rate.
_START_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment; times in seconds.

    Of `varied` queries all rates and instances are measured, of `crowded` ones a `crowd`, too.
    """

    queries: tuple[str, ...] = (*CITYBENCH_QUERIES, *UNNAMED)
    spark_queries: tuple[str, ...] = ("Q1",)
    spark_instances: tuple[int, ...] = (10,)
    rates: tuple[float, ...] = (1.0, 5.0)
    instances: tuple[int, ...] = (1, 10)
    varied: tuple[str, ...] = ("Q1", "Q2", "Q5", "Q8", "Q9")
    crowd: int = 100
    crowded: tuple[str, ...] = ("Q1",)
    lead: float = 0.1
    jitter: float = 0.05
    processes: int = 2
    seconds: float = 5.0
    late: float = 5.0
    spark_grace: float = 15.0

    @classmethod
    def quick(cls) -> Self:
        return cls(
            queries=("Q1",), spark_queries=(), rates=(1.0,), instances=(1, 5), varied=("Q1",),
            crowded=(), processes=1, seconds=2.0,
        )  # fmt: skip

    def planned_on_spark(self) -> Iterator[tuple[str, float, int]]:
        for name in self.spark_queries:
            yield name, self.rates[0], self.instances[0]
        for name in self.spark_queries[:1]:
            for count in self.spark_instances:
                yield name, self.rates[0], count

    def planned(self) -> Iterator[tuple[str, float, int]]:
        """Yield queries with rate and number of instances."""
        for name in self.queries:
            yield name, self.rates[0], self.instances[0]
        for name in self.varied:
            for rate in self.rates[1:]:
                yield name, rate, self.instances[0]
            for count in self.instances[1:]:
                yield name, self.rates[0], count
        for name in self.crowded:
            yield name, self.rates[0], self.crowd


@dataclass(slots=True)
class OpenedCity:
    """Stores, client processes and feed; servers are new for every measurement."""

    city: City
    stores: Mapping[str, Path]
    folder: Path
    clients: Sequence[Process]
    feed: Process
    settings: Sizes
    limits: boards.MachineLimits
    ticks: dict[tuple[str, float, float], "Ticks"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ticks:
    """A query's readings, and the expected observations and number of rows by tick."""

    readings: Sequence[Mapping[str, Sequence[Quad]]]
    expected: Callable[[int], set[str]]
    rows: Callable[[int], int]


class CityBenchQueries:
    """The experiment."""

    name = "citybench"
    question = (
        "How complete are the answers of CityBench's queries, and how late, as a query streamer "
        "over fragments, in CQELS mode and in C-SPARQL mode, natively and on Spark, by the rate of "
        "the sensors and by the number of concurrent queries?"
    )
    settings = Sizes
    keys = ("query", "mode", "rate", "instances")
    values = (
        "completeness", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "expected",
        "server_percent", "clients_percent", "server_memory_mib", "requests", "bytes", "seconds",
        "updates", "failed", "start_seconds", "cores", "peak_percent", "why",
        "head_bytes", "sent_bytes",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return groups on the same stores and processes; Spark's is optional."""
        limits = boards.MachineLimits()
        for group, modes, planned in (
            ("sensors", _MODES, settings.planned()),
            ("sensors, on Spark", (boards.SPARK_MODE,), settings.planned_on_spark()),
        ):
            measurements = [
                items.Measurement(
                    {"query": name, "mode": mode.name, "rate": rate, "instances": count},
                    partial(_measure, name, mode, rate, count),
                    repetitions=1,  # each is a series in time
                )
                for name, rate, count in planned
                for mode in modes
            ]
            opened = partial(_open, settings, run, limits, spark=modes == (boards.SPARK_MODE,))
            if measurements:
                yield items.MeasurementGroup(group, opened, measurements)

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return completeness and latency by query, rate and number of queries."""
        one = min(results.distinct("instances"), key=float, default="")
        slow = min(results.distinct("rate"), key=float, default="")
        yield from _costly(results, slow)
        for mode in results.distinct("mode"):
            yield from _completeness(results, mode)
        for rate, instances in [
            *((rate, one) for rate in sorted(results.distinct("rate"), key=float)),
            *((slow, n) for n in sorted(results.distinct("instances"), key=float) if n != one),
        ]:
            chosen = results.where(rate=rate, instances=instances)
            for name, column, title, label in (
                ("completeness", "completeness", "Completeness", "share of the observations"),
                ("latency", "latency_p50_ms", "Latency, median", "ms"),
                ("server", "server_percent", "CPU of the server", "% of a core"),
            ):
                yield items.Figure(
                    f"{name}-{instances}-at-{rate}",
                    f"{title}: {instances} times each query, readings per second: {rate}", "query",
                    label, boards.marked(
                        chosen, "query", chosen.series("mode", "query", column, numeric=False)
                    ),
                    kind="bars", log_y=name != "completeness", places=boards.PLACES,
                )  # fmt: skip
        columns = (*self.keys, *self.values)
        rows = [[row[name] or None for name in columns] for row in results.rows]
        yield items.Table("All measurements", columns, rows)


def _costly(results: Results, rate: str) -> Iterator[items.Finding]:
    """Say where fragments are the wrong choice, and how many clients a machine carries."""
    ours = results.where(mode=boards.STREAMER.name, rate=rate)
    costs = {name: cost for name in ours.distinct("query") if (cost := _cost(ours, name))}
    if not costs:
        return
    cores = float(ours.rows[0]["cores"])
    carried = {
        query: f"{query}: {rounded(cost)} % of a core, "
        f"{rounded(int(boards.BUSY * cores / cost))} clients"
        for query, cost in sorted(costs.items(), key=lambda each: -each[1])
    }
    costly = [text for query, text in carried.items() if costs[query] >= COSTLY]
    others = [text for query, text in carried.items() if costs[query] < COSTLY]
    machine = f"a machine of {rounded(cores)} cores whose clients get new readings each second"
    if costly:
        yield items.Finding(
            "Fragments are the wrong choice for joins of which most rows change with each reading: "
            "every client computes all of them anew. What one query costs its client, and how "
            f"many such clients fill {machine}: {'; '.join(costly)}. Register these queries on "
            "the server.",
            headline=True,
        )
    if others:
        yield items.Finding(
            f"The other queries cost a client little, but many clients fill {machine}, where "
            f"queries on the server would not: {'; '.join(others)}.",
            headline=True,
        )


def _cost(chosen: Results, query: str) -> float:
    """The most of complete clients, in % of a core."""
    return max(
        (
            float(row["clients_percent"]) / float(row["instances"])
            for row in chosen.where(query=query).rows
            if _complete(row)
        ),
        default=0.0,
    )


def _exceeds(row: Mapping[str, str], results: Results) -> bool:
    """True if so many clients need more than the machine has, by what fewer took."""
    alike = results.where(mode=row["mode"], rate=row["rate"])
    return _cost(alike, row["query"]) * float(row["instances"]) > boards.BUSY * float(row["cores"])


def _complete(row: Mapping[str, str]) -> bool:
    return bool(row["completeness"]) and float(row["completeness"]) >= boards.COMPLETE


def _completeness(results: Results, mode: str) -> Iterator[items.Finding]:
    measured = [row for row in results.where(mode=mode).rows if row["completeness"]]
    fitting = [
        row for row in measured
        if _complete(row) or not (boards.is_busy(row) or _exceeds(row, results))
    ]  # fmt: skip
    failures = [why for name, why in results.failures.items() if f", mode {mode}, " in name]
    not_answered = sum(why.startswith(MACHINE_LIMIT) for why in failures)
    limited, failed = len(measured) - len(fitting) + not_answered, len(failures) - not_answered
    more = f"; in {limited} more the machine was the limit" if limited else ""
    more += f"; {failed} more failed" if failed else ""
    if not fitting:
        if limited:
            yield items.Finding(f"CityBench, {mode}: the machine was the limit in all {limited}.")
        return
    least = min(float(row["completeness"]) for row in fitting)
    latency = [float(row["latency_p50_ms"]) for row in fitting]
    yield items.Finding(
        f"CityBench, {mode}: complete in {sum(map(_complete, fitting))} of {len(fitting)} "
        f"measurements, the least {rounded(100 * least)} %{more}; median latencies of "
        f"{shown_value(min(latency))} to {shown_value(max(latency))} ms.",
        headline=True,
    )


@contextmanager
def _open(
    settings: Sizes, run: items.Run, limits: boards.MachineLimits, *, spark: bool
) -> Iterator[OpenedCity]:
    if spark:
        boards.need_java()
    data = city()
    now = SystemClock().now()
    quads = list(data.static())
    parts = {
        _CITY: quads,
        _SENSORS: [quad for quad in quads if quad.graph == DEFAULT_GRAPH],
        **{
            name: [
                q._replace(graph=DEFAULT_GRAPH)
                for q in quads
                if q.graph == f"<{SENSOR_GRAPHS}{name}>"
            ]
            for name in EVENT_FEEDS
        },
    }
    stores = run.static.stores(run.folder, parts, now)
    with boards.client_processes(settings.processes) as (clients, feed):
        yield OpenedCity(data, stores, run.folder, clients, feed, settings, limits)


@contextmanager
def _server(mode: boards.Mode, count: int, opened: OpenedCity) -> Iterator[Server]:
    names = (_SENSORS, *EVENT_FEEDS) if mode.engine else (_CITY,)
    config = boards.engine_settings(mode, count)
    for name in names:
        config += f'[datasets.{name}]\nsource = "{opened.stores[name]}"\nmax_age = 3600.0\n'
    with fragment_server(opened.folder, config) as server:
        yield server


def _measure(
    name: str, mode: boards.Mode, rate: float, count: int, opened: Any
) -> list[items.ResultRow]:
    settings: Sizes = opened.settings
    ticks = _ticks(name, rate, opened, boards.START_SECONDS if mode.spark else _START_PATIENCE)
    if name not in UNNAMED:
        # An answer too large to be told is found before anybody is asked for it.
        full = round(CITYBENCH_WINDOW * rate)
        ticks.expected(full)
        if not mode.engine and (size := ticks.rows(full)) > MOST_ROWS:
            raise MachineLimitError(
                f"each client's answer has {size:,} rows, most of them new {rate:g} times a second"
            )
    with (
        opened.limits.of((name, mode.name, rate), count),
        _server(mode, count, opened) as server,
    ):
        feed = {
            "do": "start", "period": 1 / rate, "lead": settings.lead, "window": CITYBENCH_WINDOW,
            "token": TOKEN, "ticks": ticks.readings,
        }  # fmt: skip
        order: dict[str, Any] = {"do": "start", "shared": False}
        if mode.engine:
            streams = f"{server.url}streams/{quote(SERVICES, safe='')}"
            feed |= {"mode": "stream", "url": streams}
            order |= {"mode": "stream", "url": server.url, "token": TOKEN}
        else:
            feed |= {"mode": "facts", "url": f"{server.url}{_CITY}"}
            order |= {"mode": "facts", "url": f"{server.url}{_CITY}", "jitter": settings.jitter}
        order |= {"whole": mode.engine == "csparql", "answered": mode.spark}
        grace = settings.spark_grace if mode.spark else CITYBENCH_WINDOW
        if not mode.engine:
            # A client of which the last evaluation took long has another one to make.
            grace = settings.late
        if name in UNNAMED:
            grace = 0.0
        queries = [_text(name, mode, server, number, opened) for number in range(count)]
        for stream in {each for text in queries for each in _NAMED_STREAM.findall(text)}:
            url = f"{server.url}streams/{quote(stream, safe='')}"
            authorized = {"Authorization": f"Bearer {TOKEN}"}
            requests.put(url, headers=authorized, timeout=60).raise_for_status()
        rows = boards.watch(
            boards.Side(server, None, order, queries, feed), opened.clients, opened.feed,
            boards.Looks(1 / rate, settings.seconds, grace),
            _no_arrivals if name in UNNAMED else partial(_arrivals, ticks, count, mode),
        )  # fmt: skip
    whole = CityBenchQueries.values
    return [{name: value for name, value in rows[-1].items() if name in whole}]


def _text(name: str, mode: boards.Mode, server: Server, number: int, opened: OpenedCity) -> str:
    if mode.engine == "cqels":
        return opened.city.cqels(name, server.url)
    if mode.engine == "csparql":
        return opened.city.csparql(name, server.url, number)
    return opened.city.sparql(name)


def _ticks(name: str, rate: float, opened: OpenedCity, start: float) -> Ticks:
    if (name, rate, start) not in opened.ticks:
        seconds = 2 * opened.settings.seconds + start
        readings = opened.city.readings(opened.city.sensors(name), int(rate * seconds))
        oracle = CityOracle(opened.city, name, readings, round(CITYBENCH_WINDOW * rate))
        opened.ticks[name, rate, start] = Ticks(readings, oracle.expected, oracle.rows)
    return opened.ticks[name, rate, start]


def _no_arrivals(*_: object) -> items.ResultRow:
    return {"expected": 0}


def _arrivals(
    ticks: Ticks,
    count: int,
    mode: boards.Mode,
    reports: Sequence[Mapping[str, Any]],
    sent: Sequence[float],
    within: tuple[float, float],
) -> items.ResultRow:
    published: dict[str, float] = {}
    for tick, at in enumerate(sent):
        if within[0] <= at <= within[1]:
            published |= dict.fromkeys(ticks.expected(tick), at)
    if not published:
        raise MeasurementError("nothing was published that an answer should name")
    latencies = [
        1000 * (at - published[what])
        for report in reports
        for _, what, at, _ in report["arrivals"]
        if what in published
    ]
    if mode.spark and not latencies and not any(report["errors"] for report in reports):
        raise MachineLimitError("Spark's answers were not in time")
    return {
        **boards.timed(latencies, reports),
        "latency_p99_ms": percentile(latencies, 99),
        "expected": len(published) * count,
        "completeness": len(latencies) / (len(published) * count),
    }
