"""Assemble the service of a server from its datasets and settings."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, cast

from annotations.clock import Clock
from annotations.terms import DEFAULT_GRAPH, Term
from annotations.wording import how_to_install
from tpf_client.dataflow.operators.multiway_join import Routing
from tpf_client.sparql.iris import resolve
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.languages.rspql.parser import parse_report
from tpf_server.continuous.languages.rspql.rspql_query import TickPolicy
from tpf_server.continuous.runtime.clock import Waits
from tpf_server.continuous.runtime.elements.elements import canonical_term
from tpf_server.continuous.runtime.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.csparql_query import CsparqlQuery, PeriodicAnswer
from tpf_server.continuous.runtime.instants.instant_queries import InstantSettings
from tpf_server.continuous.runtime.instants.periodic_query import (
    ExecutedQuery,
    Executor,
    Pace,
    Widen,
)
from tpf_server.continuous.runtime.semantics import EngineLimits, EngineSettings, Kernel
from tpf_server.continuous.runtime.static.static_data import StoreGraph
from tpf_server.continuous.service.changing_graphs import ChangingGraphs, RemoteGraphs
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.continuous.service.hosting import Policies
from tpf_server.continuous.service.result_log import Registrations
from tpf_server.continuous.service.window_log import WindowLog
from tpf_server.errors import SettingsError
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import Settings
from tpf_server.store.live.store import LiveStore

# Lets stream time pass with the clock, also where no elements come.

_log: Final = logging.getLogger(__name__)
INTERVAL: Final = timedelta(milliseconds=100)


class Ticker:
    """Advance a service in a fixed interval."""

    def __init__(
        self, service: ContinuousService, clock: Clock, interval: timedelta = INTERVAL
    ) -> None:
        self._service = service
        self._clock = clock
        self._interval = interval
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self.run, name="stream time", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        """Tick until `stop`; log an error once while it stays the same."""
        last_error = ""
        while self._clock.wait(self._interval, self._stopped):
            try:
                self._service.advance()
                last_error = ""
            except Exception as error:  # noqa: BLE001 - time would stand still for good
                if repr(error) != last_error:
                    last_error = repr(error)
                    _log.exception("the time of streams cannot be told")


class _Deferred:
    """Make an executor with the first query: its libraries may be large, or missing."""

    def __init__(self, make: Callable[[], Executor]) -> None:
        self._make = make
        self._made: Executor | None = None

    def start(
        self, query: CsparqlQuery, callback: Callable[[PeriodicAnswer], None], *, name: str
    ) -> ExecutedQuery:
        return self._executor().start(query, callback, name=name)

    def prepare(self) -> None:
        self._executor().prepare()

    def _executor(self) -> Executor:
        if self._made is None:
            try:
                self._made = self._make()
            except ImportError as error:
                raise UnsupportedContinuousQueryError(
                    f"PySpark is not installed: {how_to_install('spark')} ({error})"
                ) from error
        return self._made

    def reads(self, stream: Term) -> bool:
        return self._made is not None and self._made.reads(stream)

    def arrive(self, stream: Term, triples: Sequence[Sequence[str]], at: int) -> None:
        if self._made is not None:
            self._made.arrive(stream, triples, at)

    def advance(self, told: int | None, present: int | None) -> None:
        if self._made is not None:
            self._made.advance(told, present)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


SPARK: Final = "spark"


def continuous_service(
    settings: Settings,
    datasets: Sequence[OpenDataset],
    clock: Clock,
) -> ContinuousService:
    """Make an engine over the static data of the datasets, and its service."""
    by_clock = settings.stream_time == "clock"
    limits = EngineLimits(
        queries=settings.max_queries,
        window_rows=settings.max_window,
        join_rows=settings.max_join_rows,
    )
    engine = Engine(
        EngineSettings(
            # So that a stream is called by its URL.
            base=f"{settings.base}streams/",
            lateness=settings.stream_lateness,
            create_streams=settings.create_streams,
            routing=cast(Routing, settings.join_routing),
            kernel=cast(Kernel, settings.stream_kernel),
            # The clock lets queries answer for empty windows, but no replay through years of
            # nothing.
            skip_idle=not by_clock,
        ),
        limits,
        InstantSettings(
            patience=settings.stream_patience,
            eager=by_clock,
            # By CPU: what else the machine does makes no answers rarer.
            pace=Pace(time.thread_time, Widen(settings.widen_steps)),
        ),
    )
    engine.static.exchange(static_graphs(settings, datasets))
    with _errors_of("remote"):
        graphs = {
            canonical_term(engine.name(resolve(settings.base, name))): url
            for name, url in settings.remote.items()
        }
    remote = RemoteGraphs(graphs, clock, timedelta(seconds=settings.remote_interval))
    changing = ChangingGraphs(engine.static, remote)
    changing.follow(live_stores(settings, datasets))
    with _errors_of("rspql_report"):
        report = parse_report(settings.rspql_report)
    policies = Policies(
        time="clock" if by_clock else "elements",
        delay=settings.stream_delay,
        ahead=settings.stream_ahead,
        whole_batches=not settings.skip_malformed,
        backlog=settings.max_results,
        rows=settings.max_result_rows,
        memory=settings.max_result_bytes,
        followers=settings.followers,
        followers_per_address=settings.followers_per_address,
        report=report,
        tick=cast("TickPolicy", settings.rspql_tick),
        services=settings.allow_service,
        streams=settings.allow_streams,
    )
    with _errors_of("declare"):
        for stream, predicates in settings.declare.items():
            engine.create_stream(stream)
            engine.declare(stream, predicates.split())
    registrations = windows = None
    folder = Path(settings.data_dir)
    path = folder / "continuous.sqlite"
    if settings.keep_queries or path.exists():
        earlier = folder / "continuous.json"
        registrations = Registrations(path, steps=settings.keep_windows, earlier=earlier)
    if registrations is not None and settings.keep_windows:
        behind = settings.stream_delay + settings.stream_ahead if by_clock else 0
        slack = settings.stream_lateness + settings.stream_patience + behind
        windows = WindowLog(registrations, slack)
    return ContinuousService(
        engine,
        clock,
        policies,
        registrations if settings.keep_queries else None,
        changing,
        partial(_executors, settings, engine),
        windows,
    )


@contextmanager
def _errors_of(setting: str) -> Iterator[None]:
    try:
        yield
    except ContinuousError as error:
        raise SettingsError(f"{setting}: {error}") from None


def static_graphs(
    settings: Settings, datasets: Iterable[OpenDataset]
) -> Mapping[Term, Sequence[StoreGraph]]:
    """Name the static graphs of queries.

    The default graph merges those of all datasets. ``GRAPH`` names one by the URL of its dataset,
    or a named graph, which may have parts in several datasets.
    """
    graphs: dict[Term, list[StoreGraph]] = {DEFAULT_GRAPH: []}
    for dataset in datasets:
        if dataset.static is not None:
            graph = StoreGraph(dataset.static)
            graphs[DEFAULT_GRAPH].append(graph)
            graphs.setdefault(Term(f"<{settings.base}{dataset.settings.name}>"), []).append(graph)
            for name in dataset.static.graphs():
                graphs.setdefault(name, []).append(StoreGraph(dataset.static, name))
    return graphs


def live_stores(settings: Settings, datasets: Iterable[OpenDataset]) -> Mapping[Term, LiveStore]:
    """Return the live stores by the URLs of their datasets; graphs as in `static_graphs`."""
    return {
        Term(f"<{settings.base}{dataset.settings.name}>"): dataset.live
        for dataset in datasets
        if dataset.live is not None
    }


def _executors(
    settings: Settings, engine: Engine, lock: AbstractContextManager[Any]
) -> tuple[Mapping[str, Executor], str]:
    """Make the executors beside the native engine, which load with their first query.

    The default starts at once.

    Raises:
        SettingsError: the default cannot run.
    """

    def make() -> Executor:
        made: Executor = resolve_name("tpf_server.continuous.spark.executor:SparkExecutor")(
            engine.static,
            (Path(settings.data_dir) / SPARK).resolve(),
            lock,
            base=engine.base,
            waits=Waits(settings.stream_lateness, settings.stream_patience),
            master=settings.spark_master,
            shared=settings.spark_work,
        )
        return made

    spark = _Deferred(make)
    if settings.csparql_engine == SPARK:
        with _errors_of(f"csparql_engine = {SPARK}"):
            spark.prepare()
    return {SPARK: spark}, settings.csparql_engine
