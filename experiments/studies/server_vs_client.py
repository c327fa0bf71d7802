"""``server-vs-client``: what keeping n answers up to date costs the server, and what the clients.

Source: Taelman et al. 2016, section 6, figures 2a and 2b.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from annotations.clock import SystemClock
from annotations.methods import METHODS
from experiments.errors import MeasurementError, UnavailableError
from experiments.harness.items import Item
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.processes import Process, python, started
from experiments.harness.results import Results
from experiments.studies.board_modes import (
    CACHED,
    CQELS_MODE,
    CSPARQL_MODE,
    REWRITING,
    SHARED,
    SPARK_MODE,
    STREAMER,
    Mode,
    Times,
    need_java,
    side,
)
from experiments.studies.board_report import board_items
from experiments.studies.board_watch import Looks, MachineLimits, renewals, watch
from experiments.workloads.board import Board, board


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        queries: how many are kept up to date at the same time, by query streamers with a client
            each; figures mark where that is more than the machine can run.
        cached_queries: the same, with nginx in front.
        shared_queries: the same, where the queries of a process share one client.
        engine_queries: the same, where the server evaluates the queries; each reader holds a
            thread of the server.
        spark_queries: the same, where Spark does, which has a job for each.
        method_queries: the same, for servers of others: patterns rewritten by annotation method.
        methods: the annotation methods.
        cached_methods: whether they are measured with nginx in front, too.
        processes: over how many client processes the queries are spread.
        departures: on the board, each with three static and two live facts.
        period: seconds until all live facts are renewed.
        lead: seconds by which a renewal is published before the old facts expire.
        jitter: seconds over which clients spread their evaluations.
        step: seconds between two evaluations of a C-SPARQL query.
        first_seconds: how long the start of the clients takes at least.
        periods: how many periods are looked at when all clients have started.
        grace: seconds in which what was published at the end may still arrive.
        spark_grace: the same for Spark, whose answers come by micro-batches.
        modes: only these; all where empty.
    """

    queries: tuple[int, ...] = (10, 50, 100, 200, 500, 1000)
    cached_queries: tuple[int, ...] = (10, 50, 100, 200, 500, 1000)
    shared_queries: tuple[int, ...] = (10, 200, 1000)
    engine_queries: tuple[int, ...] = (10, 50, 100, 200, 500, 1000)
    spark_queries: tuple[int, ...] = (1, 10, 50, 100, 200, 500, 1000)
    method_queries: tuple[int, ...] = (50,)
    methods: tuple[str, ...] = tuple(method.name for method in METHODS)
    cached_methods: bool = False
    processes: int = 10
    departures: int = 100
    period: float = 10.0
    lead: float = 0.25
    jitter: float = 0.5
    step: float = 1.0
    first_seconds: float = 10.0
    periods: int = 2
    grace: float = 3.0
    spark_grace: float = 30.0
    modes: tuple[str, ...] = ()

    @classmethod
    def quick(cls) -> Self:
        """Few queries, renewed every two seconds."""
        return cls(
            queries=(10, 30), cached_queries=(10, 30), shared_queries=(),
            engine_queries=(10, 30), spark_queries=(1,), method_queries=(), methods=(),
            processes=2, period=2.0, first_seconds=1.0, periods=1, grace=1.5, spark_grace=25.0,
        )  # fmt: skip

    def planned(self) -> Iterator[tuple[Mode, int]]:
        """The modes, with their numbers of queries."""
        for mode, sizes in (
            (STREAMER, self.queries),
            (CACHED, self.cached_queries),
            (SHARED, self.shared_queries),
            (CQELS_MODE, self.engine_queries),
            (CSPARQL_MODE, self.engine_queries),
            (SPARK_MODE, self.spark_queries),
            *(
                (mode, self.method_queries)
                for mode in REWRITING
                if mode.method in self.methods and (self.cached_methods or not mode.cache)
            ),
        ):
            if not self.modes or mode.name in self.modes:
                for queries in sizes:
                    yield mode, queries


@dataclass(frozen=True, slots=True)
class OpenedBoard:
    """The client processes and the feed, which stay; servers are new for every measurement."""

    board: Board
    store: Path
    folder: Path
    clients: Sequence[Process]
    feed: Process
    settings: Sizes
    seed: int
    limits: MachineLimits


class ServerVsClient:
    """The experiment."""

    name = "server-vs-client"
    question = (
        "What does it cost to keep n answers up to date, on the server and on the client: by "
        "fragments that clients ask for when facts expire, and by a server that evaluates the "
        "queries itself?"
    )
    settings = Sizes
    keys = ("source", "mode", "queries")
    values = (
        "kind", "second", "server_percent", "cache_percent", "client_percent", "clients_percent",
        "client_first_percent", "start_seconds", "start_server_cpu_s", "start_client_cpu_s",
        "start_bytes", "seconds", "requests", "bytes", "updates", "failed", "latency_p50_ms",
        "latency_p95_ms", "completeness", "server_memory_mib", "cores", "why",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """The same client processes and the same feed for all modes; Spark's may be left out."""
        departures, limits = board(settings.departures), MachineLimits()
        for name, on_spark in (("board", False), ("board, on Spark", True)):
            measurements = [
                Measurement(
                    {"source": departures.source, "mode": mode.name, "queries": queries},
                    partial(_measure, mode, queries),
                    repetitions=1,  # each is a series in time
                )
                for mode, queries in settings.planned()
                if mode.spark == on_spark
            ]
            opened = partial(_open, settings, run, departures, limits, spark=on_spark)
            yield MeasurementGroup(name, opened, measurements)

    def report(self, results: Results) -> Iterable[Item]:
        """The server's side, the clients' side, latency, all figures."""
        yield from board_items(results)


@contextmanager
def _open(
    settings: Sizes, run: Run, departures: Board, limits: MachineLimits, *, spark: bool
) -> Iterator[OpenedBoard]:
    if spark:
        need_java()
    store = run.static.store(run.folder / "board", departures.static, SystemClock().now())
    with ExitStack() as stack:
        clients = [
            stack.enter_context(started(f"client {n}", python("experiments.studies.board_clients")))
            for n in range(settings.processes)
        ]
        feed = stack.enter_context(started("feed", python("experiments.studies.board_feed")))
        yield OpenedBoard(departures, store, run.folder, clients, feed, settings, run.seed, limits)


def _measure(mode: Mode, queries: int, opened: OpenedBoard) -> list[ResultRow]:
    settings = opened.settings
    windows = opened.board.windows(queries, opened.seed)
    times = Times(settings.period, settings.lead, settings.jitter, settings.step)
    looks = Looks(
        settings.first_seconds,
        settings.periods * settings.period,
        settings.spark_grace if mode.spark else settings.grace,
    )
    try:
        with (
            opened.limits.of(mode.name, queries),
            side(mode, windows, opened.board, opened.store, opened.folder, times) as opposite,
        ):
            arrivals = partial(renewals, windows)
            return watch(opposite, opened.clients, opened.feed, looks, arrivals)
    except UnavailableError as error:
        raise MeasurementError(str(error)) from error
