"""Answers kept up to date: the modes, their servers, and the CPU of all processes."""

import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

from annotations.methods import METHODS
from experiments.errors import MachineLimitError, MeasurementError, UnavailableError, UntriedError
from experiments.harness.estimates import percentile
from experiments.harness.items import Point, ResultRow
from experiments.harness.processes import Process, Usage, child, started
from experiments.harness.results import Results
from experiments.harness.servers import Server
from tpf_server.spark.java import SparkError, find_java
from tpf_server.spark.session import SparkSettings

_PROCESSES = "experiments.studies.processes"
_BEHIND = " behind nginx"


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode: an `engine` on the server (``""``: over fragments), or an annotation method.

    `cache`: nginx in front; `shared`: a process's queries share one client.
    """

    name: str
    engine: str = ""
    method: str = ""
    cache: bool = False
    shared: bool = False
    spark: bool = False
    deltas: bool = True


STREAMER = Mode("query streamer")
WITHOUT_DELTAS = Mode("query streamer, no deltas", deltas=False)
CACHED = Mode(f"query streamer{_BEHIND}", cache=True)
SHARED = Mode("query streamer, shared client", shared=True)
CQELS_MODE = Mode("CQELS mode", engine="cqels")
CSPARQL_MODE = Mode("C-SPARQL mode", engine="csparql")
SPARK_MODE = Mode("C-SPARQL mode on Spark", engine="csparql", spark=True)
PLACES = {
    mode.name: place
    for place, mode in enumerate(
        (STREAMER, CACHED, SHARED, CQELS_MODE, CSPARQL_MODE, SPARK_MODE, WITHOUT_DELTAS)
    )
}
"""In the order of colours: a mode has the same one in all figures of all experiments."""
REWRITING = tuple(
    Mode(f"{method.name}{_BEHIND if cache else ''}", method=method.name, cache=cache)
    for method in METHODS
    for cache in (False, True)
)


def need_java() -> None:
    """Raise `UnavailableError` if Spark cannot run here."""
    try:
        find_java(SparkSettings.from_environment(os.environ).java_home, os.environ)
    except SparkError as error:
        raise UnavailableError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Side:
    """The server's side of a measurement, and the orders for clients and feed."""

    server: Server
    cache: Process | None
    order: Mapping[str, Any]
    queries: Sequence[str]
    feed: Mapping[str, Any]


def engine_settings(mode: Mode, queries: int) -> str:
    """Return settings for so many queries of one machine; none without an engine."""
    if not mode.engine:
        return ""
    engine = 'csparql_engine = "spark"\n' if mode.spark else ""
    return f"continuous = true\nfollowers = {queries + 16}\nfollowers_per_address = 0\n{engine}"


_READY_SECONDS = 60.0
START_SECONDS = 180.0
"""For which clients are waited."""
_STOP_SECONDS = 120.0
SIDES = ("server_percent", "cache_percent", "clients_percent")
"""The columns of what all processes use."""
BUSY = 75.0
"""Percent of each core from which on the machine is the limit."""
COMPLETE = 0.999
"""The share of an answer from which on it counts as complete."""


@dataclass(frozen=True, slots=True)
class Looks:
    """The seconds of starting clients (at least), of observation, and for late updates."""

    first: float
    steady: float
    grace: float


class MachineLimits:
    """Numbers of queries that were too many, by the other parameters."""

    def __init__(self) -> None:
        self._too_many: dict[Hashable, int] = {}

    @contextmanager
    def of(self, what: Hashable, queries: int) -> Iterator[None]:
        """Measure, or raise `UntriedError` if fewer queries were too many already."""
        if (least := self._too_many.get(what, queries)) < queries:
            raise UntriedError(f"not tried, because {least} queries were too many for it")
        try:
            yield
        except MachineLimitError:
            self._too_many[what] = queries
            raise


Arrivals: TypeAlias = Callable[
    [Sequence[Mapping[str, Any]], Sequence[float], tuple[float, float]], ResultRow
]
"""Makes of the reports of the clients, the instants of sending, and a span of time: how much of
what was published in the span arrived, and when.

Raises `MeasurementError` where nothing did."""


def watch(
    side: Side, clients: Sequence[Process], feed: Process, looks: Looks, arrivals: Arrivals
) -> list[ResultRow]:
    """Run feed and clients, sample all processes each second, and collect reports."""
    longest = _READY_SECONDS + START_SECONDS + looks.steady + _STOP_SECONDS
    started = feed.ask({**side.feed, "seconds": longest}, _READY_SECONDS)
    if "error" in started:
        raise MeasurementError(f"the feed did not start: {started['error']}")
    # Where the number of queries is no multiple of that of the processes, some have one more.
    share = len(clients)
    watched = _Watched(side, clients, feed)
    orders = [
        client.order(
            {**side.order, "queries": side.queries[number::share], "patience": START_SECONDS}
        )
        for number, client in enumerate(clients)
    ]
    starts: dict[int, float] = {}
    rows: list[ResultRow] = []
    peaks: list[float] = []

    def look_until(seconds: float) -> None:
        while (now := watched.elapsed()) < seconds:
            time.sleep(max(0.0, min(1 + len(rows), seconds) - now))
            if watched.elapsed() >= 1 + len(rows):
                percents, peak = watched.percents()
                rows.append({"kind": "second", "second": len(rows) + 1, **percents})
                peaks.append(peak)

    while len(starts) < share:
        look_until(watched.elapsed() + 0.1)
        for number, (client, order) in enumerate(zip(clients, orders, strict=True)):
            if number not in starts and client.has_output():
                if not client.answer(order, _READY_SECONDS).get("ready"):
                    kind = _failure(watched.first, watched.usages())
                    raise kind(_why(clients, number, "the clients do not start"))
                starts[number] = watched.elapsed()
        if watched.elapsed() > START_SECONDS:
            kind = _failure(watched.first, watched.usages())
            raise kind(f"{share - len(starts)} client processes do not start")
    look_until(max(looks.first, watched.elapsed()))
    begin, before = _marks(clients), watched.usages()
    began, peaks_before = time.time(), len(peaks)
    look_until(watched.elapsed() + looks.steady)
    end, after = _marks(clients), watched.usages()
    ended = time.time()
    memory = side.server.worker_memory()
    # What was published at the end has time to arrive.
    time.sleep(looks.grace)
    reports = _collected(clients, {"do": "stop"}, _STOP_SECONDS)
    published = feed.ask({"do": "stop"}, _STOP_SECONDS)
    if side.order["mode"] == "stream":
        # It would wait for its readers.
        side.server.process.kill()
    peak = max([*peaks[peaks_before:], _peak(after, before)])
    failure = MachineLimitError if peak > BUSY else _failure(watched.first, before)
    if "error" in published:
        raise failure(f"the feed failed: {published['error']}")
    why = [reason for report in reports for reason in report["errors"]]
    if why and side.order["mode"] == "stream":
        # The server would be measured with fewer readers than are told.
        raise failure(f"clients do not get their results: {'; '.join(why[:2])}")
    try:
        arrived = arrivals(reports, published["sent"], (began, ended))
    except MachineLimitError:
        raise
    except MeasurementError as error:
        raise failure(str(error)) from error
    first = [float(str(row["client_percent"])) for row in rows[: int(looks.first)]]
    rows.append(
        {
            "kind": "total",
            **_shares(after, before),
            "client_first_percent": sum(first) / len(first) if first else None,
            "start_seconds": max(starts.values()),
            "start_server_cpu_s": before[0].since(watched.first[0]).cpu,
            "start_client_cpu_s": sum(
                b.since(f).cpu for b, f in zip(before[2], watched.first[2], strict=True)
            ),
            "start_bytes": sum(mark["bytes"] for mark in begin),
            "seconds": after[0].since(before[0]).wall,
            **{
                name: _sum(end, name) - _sum(begin, name)
                for name in ("requests", "bytes", "head_bytes", "sent_bytes")
            },
            "server_memory_mib": memory / 2**20,
            "cores": len(os.sched_getaffinity(0)),
            "peak_percent": peak,
            **arrived,
            "updates": sum(report["updates"] for report in reports),
            "failed": sum(report["failed"] for report in reports),
            "why": "; ".join(why[:2]) or None,
        }
    )
    return rows


def _sum(marks: Sequence[Mapping[str, Any]], column: str) -> int:
    return sum(mark[column] for mark in marks)


def _marks(clients: Sequence[Process]) -> list[dict[str, Any]]:
    return _collected(clients, {"do": "mark"}, _READY_SECONDS)


def _collected(
    clients: Sequence[Process], order: Mapping[str, Any], patience: float
) -> list[dict[str, Any]]:
    numbers = [client.order(order) for client in clients]
    return [
        client.answer(number, patience) for client, number in zip(clients, numbers, strict=True)
    ]


def _why(clients: Sequence[Process], number: int, what: str) -> str:
    reports = _collected(clients, {"do": "stop"}, START_SECONDS + _STOP_SECONDS)
    problems = reports[number]["errors"]
    return f"{what}: {'; '.join(problems[:2]) or 'they tell of no error'}"


_Usages = tuple[Usage, Usage | None, list[Usage], Usage]


class _Watched:
    def __init__(self, side: Side, clients: Sequence[Process], feed: Process) -> None:
        self._server, self._cache, self._clients = side.server.process, side.cache, clients
        self._feed = feed
        self.first = self._last = self.usages()

    def usages(self) -> _Usages:
        cache = None if self._cache is None else self._cache.usage()
        clients = [client.usage() for client in self._clients]
        return self._server.usage(), cache, clients, self._feed.usage()

    def elapsed(self) -> float:
        return time.perf_counter() - self.first[0].wall

    def percents(self) -> tuple[ResultRow, float]:
        """Return percent of a core, and the peak, since the last sample."""
        now, before = self.usages(), self._last
        self._last = now
        return _shares(now, before), _peak(now, before)


def _shares(now: _Usages, before: _Usages) -> dict[str, float | None]:
    each = [one.since(other).percent_of_core for one, other in zip(now[2], before[2], strict=True)]
    cache = None if now[1] is None or before[1] is None else now[1].since(before[1])
    return {
        "server_percent": now[0].since(before[0]).percent_of_core,
        "cache_percent": None if cache is None else cache.percent_of_core,
        "client_percent": sum(each) / len(each),
        "clients_percent": sum(each),
    }


def _failure(*looks: _Usages) -> type[MeasurementError]:
    filled = any(_peak(now, before) > BUSY for before, now in pairwise(looks))
    return MachineLimitError if filled else MeasurementError


def _peak(now: _Usages, before: _Usages) -> float:
    """Percent of the cores; of one client's core where that is more."""
    shares = _shares(now, before)
    used = sum(shares[side] or 0 for side in SIDES) + now[3].since(before[3]).percent_of_core
    each = [one.since(other).percent_of_core for one, other in zip(now[2], before[2], strict=True)]
    return max(used / len(os.sched_getaffinity(0)), *each)


def timed(latencies: Sequence[float], reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return median and 95th percentile of latencies; `MeasurementError` without any."""
    if not latencies:
        problems = [problem for report in reports for problem in report["errors"]]
        came = sum(report.get("updates", 0) for report in reports)
        why = "; ".join(problems[:2]) or (
            f"no process tells of an error; {came} updates came in all, too late or of something "
            "that was published before"
        )
        raise MeasurementError(f"nothing arrived of what was published meanwhile: {why}")
    return {
        "latency_p50_ms": percentile(latencies, 50),
        "latency_p95_ms": percentile(latencies, 95),
    }


@contextmanager
def client_processes(count: int) -> Iterator[tuple[Sequence[Process], Process]]:
    """Start client processes, and that of a feed."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(started(f"client {n}", child(f"{_PROCESSES}:BoardClients")))
            for n in range(count)
        ]
        yield clients, stack.enter_context(started("feed", child(f"{_PROCESSES}:FollowedFeed")))


def is_busy(row: Mapping[str, str]) -> bool:
    """True if the machine was the limit.

    Its cores were nearly busy all the time, or in one second of a measurement that is incomplete.
    """
    cores = float(row["cores"] or 0)
    late = float(row.get("completeness") or 1) < COMPLETE
    peak = float(row.get("peak_percent") or 0) if late else 0.0
    used = sum(float(row.get(column) or 0) for column in SIDES)
    return peak > BUSY or (bool(cores) and used > BUSY * cores)


def marked(
    results: Results, x: str, series: Mapping[str, Sequence[Point]]
) -> dict[str, list[Point]]:
    """Return the points of modes, marked where the machine was the limit."""
    busy = {
        (row["mode"], place)
        for row in results.rows
        if is_busy(row)
        for place in (row[x], float(row[x]) if row[x].isdecimal() else None)
    }
    return {
        mode: [replace(point, limited=(mode, point.x) in busy) for point in points]
        for mode, points in series.items()
    }
