"""``server-vs-client``: what keeping n answers up to date costs the server, and what the clients.

Source: Taelman et al. 2016, section 6, figures 2a and 2b.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from annotations.clock import SystemClock
from annotations.methods import METHODS
from experiments.cache import http_cache
from experiments.errors import MeasurementError, UnavailableError
from experiments.estimates import percentile
from experiments.experiment import (
    Figure,
    Finding,
    Group,
    Item,
    Measurement,
    Row,
    Run,
    Table,
    Target,
)
from experiments.in_process import static_store
from experiments.processes import LOOPBACK, Process, Usage, free_port, python, started
from experiments.results import Results
from experiments.servers import TOKEN, Server, fragment_server
from experiments.workloads.board import Board, Window, board

STREAMER = "query streamer"
CACHED = "query streamer behind nginx"
CQELS = "CQELS mode"
_REWRITING = f"{STREAMER}, "
_DATASET = "trains"
_STREAM = "streams/trains"
_READY_SECONDS = 60.0
_GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        queries: how many are kept up to date at the same time.
        method_queries: the same, for servers of others: patterns rewritten by annotation method.
        cqels_queries: the same, for queries that the server evaluates: each reader holds a thread.
        methods: the annotation methods.
        processes: over how many client processes the queries are spread.
        departures: on the board, each with three static and two live facts.
        period: seconds until all live facts are renewed.
        lead: seconds by which a renewal is published before the old facts expire.
        jitter: seconds over which clients spread their evaluations.
        seconds: how long each measurement lasts.
        first_seconds: how long the start of the clients is taken to last.
        modes: only these; all where empty.
    """

    queries: tuple[int, ...] = (10, 50, 100, 150, 200, 500, 1000)
    method_queries: tuple[int, ...] = (10, 100, 200)
    cqels_queries: tuple[int, ...] = (10, 50, 100, 150, 200)
    methods: tuple[str, ...] = tuple(method.name for method in METHODS)
    processes: int = 10
    departures: int = 100
    period: float = 10.0
    lead: float = 0.25
    jitter: float = 0.5
    seconds: float = 45.0
    first_seconds: float = 10.0
    modes: tuple[str, ...] = ()

    @classmethod
    def quick(cls) -> Self:
        """Few queries, renewed every three seconds."""
        return cls(
            queries=(10, 40), method_queries=(10,), cqels_queries=(10, 40),
            methods=("named-graph",), processes=5, period=3.0, seconds=7.0, first_seconds=3.0,
        )  # fmt: skip


@dataclass(slots=True)
class Opened:
    """The client processes and the feed, which stay; servers are new for every measurement."""

    board: Board
    store: Path
    folder: Path
    clients: Sequence[Process]
    feed: Process
    settings: Sizes
    seed: int
    numbers: Iterator[int] = field(default_factory=count)


@dataclass(frozen=True, slots=True)
class Side:
    """The server's side of a measurement, and how clients and feed are to use it."""

    server: Server
    cache: Process | None
    order: Mapping[str, Any]
    feed: Mapping[str, Any]


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
        "kind", "second", "server_percent", "client_percent", "cache_percent",
        "client_first_percent", "requests", "bytes", "updates", "failed", "latency_p50_ms",
        "latency_p95_ms", "completeness", "server_memory_mib",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[Group]:
        """One group: the same client processes and the same feed for all modes."""
        departures = board(settings.departures)
        planned = [
            (mode, queries)
            for mode, sizes in (
                (STREAMER, settings.queries),
                (CACHED, settings.queries),
                (CQELS, settings.cqels_queries),
                *((_REWRITING + method, settings.method_queries) for method in settings.methods),
            )
            if not settings.modes or mode in settings.modes
            for queries in sizes
        ]
        measurements = [
            Measurement(
                {"source": departures.source, "mode": mode, "queries": queries},
                partial(_measure, mode, queries),
                repetitions=1,  # each is a series in time
            )
            for mode, queries in planned
        ]
        yield Group("board", partial(_open, settings, run, departures), measurements)

    def report(self, results: Results) -> Iterable[Item]:
        """The server's side, the clients' side, latency, all figures."""
        totals = results.where(kind="total")
        yield from _headlines(totals)
        for name, column, label in (
            ("server-cpu", "server_percent", "CPU of the server, % of a core"),
            ("client-cpu", "client_percent", "CPU of a client process, % of a core"),
            ("latency", "latency_p50_ms", "median from publication to arrival, ms"),
            ("requests", "requests", "requests of all clients"),
            ("bytes", "bytes", "bytes to all clients"),
        ):
            series = dict(totals.series("mode", "queries", column))
            yield Figure(name, label, "concurrent queries", label, series)
        most = _most_common_size(totals)
        over_time = results.where(kind="second", queries=most)
        for side in ("server", "client"):
            yield Figure(
                f"{side}-over-time", f"{most} queries, over time", "second",
                f"CPU of {'the server' if side == 'server' else 'a client process'}, % of a core",
                dict(over_time.series("mode", "second", f"{side}_percent")),
            )  # fmt: skip
        yield _table(totals)
        yield from _targets(totals)


@contextmanager
def _open(settings: Sizes, run: Run, departures: Board) -> Iterator[Opened]:
    store = run.folder / _DATASET
    static_store(store, list(departures.static), SystemClock().now())
    with ExitStack() as stack:
        clients = [
            stack.enter_context(started(f"client {n}", python("experiments.board_clients")))
            for n in range(settings.processes)
        ]
        feed = stack.enter_context(started("feed", python("experiments.board_feed")))
        yield Opened(departures, store, run.folder, clients, feed, settings, run.seed)


@contextmanager
def _side(mode: str, windows: Sequence[Window], opened: Opened) -> Iterator[Side]:
    settings = opened.settings
    folder = opened.folder / f"server{next(opened.numbers)}"
    front = free_port() if mode == CACHED else None
    base = f"http://{LOOPBACK}:{front}/" if front else ""
    method = mode.removeprefix(_REWRITING) if mode.startswith(_REWRITING) else "plain"
    labels = "true" if method == "plain" else "false"
    config = (
        f"continuous = {'true' if mode == CQELS else 'false'}\n"
        f'[datasets.{_DATASET}]\nsource = "{opened.store}"\nannotation = "{method}"\n'
        f"page_labels = {labels}\nmax_age = 3600.0\n"
    )
    with ExitStack() as stack:
        server = stack.enter_context(fragment_server(folder, config, base_url=base))
        cache = None
        if front is not None:
            cache = stack.enter_context(http_cache(server.port, front, folder / "nginx"))
        # What is published goes past the cache.
        feed: dict[str, Any] = {
            "period": settings.period, "lead": settings.lead, "token": TOKEN,
            "departures": opened.board.departures,
        }  # fmt: skip
        if mode == CQELS:
            stream = f"{server.url}{_STREAM}"
            # Less than a period, so that a renewal never meets the one before it.
            milliseconds = int(1000 * settings.period / 2)
            queries = [window.stream_query(stream, milliseconds) for window in windows]
            feed |= {"mode": "stream", "url": stream}
            order: dict[str, Any] = {
                "mode": "stream",
                "url": server.url,
                "token": TOKEN,
                "queries": queries,
            }
        else:
            url = f"{base or server.url}{_DATASET}"
            feed |= {"mode": "facts", "url": f"{server.url}{_DATASET}"}
            queries = [window.query() for window in windows]
            order = {"mode": "facts", "url": url, "jitter": settings.jitter}
        yield Side(server, cache, order | {"queries": queries}, feed)


def _measure(mode: str, queries: int, opened: Opened) -> list[Row]:
    windows = opened.board.windows(queries, opened.seed)
    try:
        with _side(mode, windows, opened) as side:
            return _watch(side, windows, opened)
    except UnavailableError as error:
        raise MeasurementError(str(error)) from error


def _watch(side: Side, windows: Sequence[Window], opened: Opened) -> list[Row]:
    """Let feed and clients go, look at all processes once a second, and take their reports."""
    settings = opened.settings
    share = len(opened.clients)
    feed = opened.feed.order({**side.feed, "seconds": settings.seconds + 1})
    said = opened.feed.answer(feed, _READY_SECONDS)
    if "started" not in said:
        raise MeasurementError(f"the feed did not start: {said.get('error')}")
    orders = []
    for number, client in enumerate(opened.clients):
        queries = side.order["queries"][number::share]
        orders.append(client.order({**side.order, "seconds": settings.seconds, "queries": queries}))
    watched = _Watched(side, opened.clients)
    rows: list[Row] = []
    while watched.elapsed() < settings.seconds - 0.5:
        time.sleep(max(0.0, 1 + len(rows) - watched.elapsed()))
        rows.append({"kind": "second", "second": len(rows) + 1, **watched.percents()})
    memory = side.server.worker_memory()
    whole = watched.whole()
    patience = _GRACE_SECONDS + settings.seconds
    reports = [
        client.answer(order, patience) for client, order in zip(opened.clients, orders, strict=True)
    ]
    published = opened.feed.answer(feed, patience)
    if "error" in published:
        raise MeasurementError(f"the feed failed: {published['error']}")
    later = [row for row in rows if float(str(row["second"])) > settings.first_seconds]
    first = rows[: int(settings.first_seconds)]
    rows.append(
        {
            "kind": "total",
            "server_percent": whole["server_percent"],
            "cache_percent": whole["cache_percent"],
            "client_percent": _mean(later, "client_percent"),
            "client_first_percent": _mean(first, "client_percent"),
            "server_memory_mib": memory / 2**20,
            **_arrivals(reports, published["sent"], windows, share, settings),
        }
    )
    return rows


class _Watched:
    """The CPU of server, cache and clients, since the beginning and since the last look."""

    def __init__(self, side: Side, clients: Sequence[Process]) -> None:
        self._server, self._cache, self._clients = side.server.process, side.cache, clients
        self._first = self._last = self._usages()

    def _usages(self) -> tuple[Usage, Usage | None, list[Usage]]:
        cache = None if self._cache is None else self._cache.usage()
        return self._server.usage(), cache, [client.usage() for client in self._clients]

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._first[0].wall

    def percents(self) -> dict[str, float | None]:
        """Percent of a core since the last look; of clients in the mean over the processes."""
        now, before = self._usages(), self._last
        self._last = now
        return _percents(now, before)

    def whole(self) -> dict[str, float | None]:
        """Percent of a core since the beginning."""
        return _percents(self._usages(), self._first)


def _percents(
    now: tuple[Usage, Usage | None, list[Usage]], before: tuple[Usage, Usage | None, list[Usage]]
) -> dict[str, float | None]:
    clients = [
        one.since(other).percent_of_core for one, other in zip(now[2], before[2], strict=True)
    ]
    return {
        "server_percent": now[0].since(before[0]).percent_of_core,
        "cache_percent": (
            None if now[1] is None or before[1] is None
            else now[1].since(before[1]).percent_of_core
        ),
        "client_percent": sum(clients) / len(clients),
    }  # fmt: skip


def _mean(rows: Sequence[Row], column: str) -> float | None:
    known = [value for row in rows if isinstance(value := row[column], float)]
    return sum(known) / len(known) if known else None


def _arrivals(
    reports: Sequence[Mapping[str, Any]],
    sent: Sequence[float],
    windows: Sequence[Window],
    share: int,
    settings: Sizes,
) -> Row:
    """When renewals reached the answers, and how much of them did.

    The renewal at the beginning does not count: clients were not there yet. Nor does what was
    published so late that its facts had no time to arrive.
    """
    end = sent[0] + settings.seconds
    wanted = [n for n, at in enumerate(sent) if n and at + settings.period / 2 <= end]
    latencies: list[float] = []
    arrived = 0
    for number, report in enumerate(reports):
        for query, renewal, at, rows in report["arrivals"]:
            if renewal in wanted:
                latencies.append(1000 * (at - sent[renewal]))
                expected = windows[number + query * share].departures
                arrived += min(rows, expected)
    expected = len(wanted) * sum(window.departures for window in windows)
    problems = [problem for report in reports for problem in report["errors"]]
    if not latencies:
        raise MeasurementError(
            f"no renewal arrived: {'; '.join(problems[:2]) or 'nobody says why'}"
        )
    return {
        "latency_p50_ms": percentile(latencies, 50),
        "latency_p95_ms": percentile(latencies, 95),
        "completeness": arrived / expected,
        **{
            column: sum(report[column] for report in reports)
            for column in ("requests", "bytes", "updates", "failed")
        },
    }


def _most_common_size(totals: Results) -> str:
    """The largest number of queries that most modes were measured with."""
    modes = {
        size: len(totals.where(queries=size).distinct("mode"))
        for size in totals.distinct("queries")
    }
    return max(modes, key=lambda size: (modes[size], int(size)), default="0")


def _compared_size(totals: Results, mode: str) -> str | None:
    """200 queries, or as many as both the query streamer and this mode were measured with."""
    both = set(totals.where(mode=STREAMER).distinct("queries")) & set(
        totals.where(mode=mode).distinct("queries")
    )
    if not both:
        return None
    return "200" if "200" in both else max(both, key=int)


def _headlines(totals: Results) -> Iterator[Item]:
    for mode in (CQELS, CACHED):
        size = _compared_size(totals, mode)
        if size is None:
            continue
        ours = totals.where(mode=STREAMER, queries=size)
        other = totals.where(mode=mode, queries=size)
        cpu, other_cpu = ours.mean("server_percent"), other.mean("server_percent")
        client, other_client = ours.mean("client_percent"), other.mean("client_percent")
        latency, other_latency = ours.mean("latency_p50_ms"), other.mean("latency_p50_ms")
        figures = (cpu, other_cpu, client, other_client, latency, other_latency)
        if any(figure is None for figure in figures) or not cpu:
            continue
        yield Finding(
            f"With {size} queries, {mode} takes {other_cpu:.1f} % of a core on the server, "
            f"the query streamer {cpu:.1f} % ({(other_cpu or 0) / cpu:.1f} times as much with "
            f"{mode}); a client process takes {other_client:.1f} % and {client:.1f} %; an answer "
            f"follows a publication after {other_latency:.0f} ms and {latency:.0f} ms "
            "in the median.",
            headline=True,
        )
    yield from _break_even(totals)
    for mode in totals.distinct("mode"):
        chosen = totals.where(mode=mode)
        complete = chosen.numbers("completeness")
        failed = sum(chosen.numbers("failed"))
        if complete and (min(complete) < 0.999 or failed):
            yield Finding(
                f"{mode}: at least {100 * min(complete):.1f} % of the expected rows of each "
                f"renewal arrived; {failed:.0f} evaluations failed."
            )


def _break_even(totals: Results) -> Iterator[Finding]:
    """From how many queries on the server's CPU is lower with fragments than in CQELS mode."""
    fragments = {p.x: p.y for p in totals.points("queries", "server_percent", mode=STREAMER)}
    engine = {p.x: p.y for p in totals.points("queries", "server_percent", mode=CQELS)}
    both = sorted(float(x) for x in fragments if x in engine)
    if not both:
        return
    cheaper = [f"{x:,.0f}" for x in both if fragments[x] < engine[x]]
    dearer = [f"{x:,.0f}" for x in both if fragments[x] >= engine[x]]
    text = "The server's CPU, publishing included, is lower with the query streamer than in "
    text += f"{CQELS} at {', '.join(cheaper) or 'none'} of the measured numbers of queries"
    text += f", and not lower at {', '.join(dearer)}." if dearer else "."
    yield Finding(text, headline=True)


def _table(totals: Results) -> Table:
    columns = (
        "server_percent", "cache_percent", "client_first_percent", "client_percent",
        "latency_p50_ms", "latency_p95_ms", "completeness", "requests", "bytes", "updates",
        "failed", "server_memory_mib",
    )  # fmt: skip
    rows: list[Sequence[Any]] = []
    for mode in totals.distinct("mode"):
        for size in totals.where(mode=mode).distinct("queries"):
            chosen = totals.where(mode=mode, queries=size)
            rows.append((mode, int(size), *(chosen.mean(column) for column in columns)))
    header = (
        "mode", "queries", "server, % of a core", "cache, %", "a client process at first, %",
        "and later, %", "latency, median ms", "95 %", "completeness", "requests", "bytes",
        "updates", "failed", "server MiB",
    )  # fmt: skip
    return Table("All modes", header, rows)


def _targets(totals: Results) -> Iterator[Target]:
    for mode, limit in ((STREAMER, 2.0), (CACHED, 0.5)):
        chosen = totals.where(mode=mode, queries=200)
        yield Target(
            f"CPU of the server with 200 queries, % of a core, {mode}",
            chosen.mean("server_percent"), limit,
            compared="paper: < 1 % of 12 cores",
        )  # fmt: skip
