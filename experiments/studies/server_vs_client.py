"""``server-vs-client``: the cost of keeping n answers up to date, for server and clients.

Source: Taelman et al. 2016, section 6, figures 2a and 2b.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from annotations.clock import SystemClock
from annotations.methods import METHODS
from experiments.free_port import free_port
from experiments.harness import items
from experiments.harness.claims import checks
from experiments.harness.processes import LOOPBACK, Process
from experiments.harness.report import duration, rounded, sentence_list
from experiments.harness.results import Results
from experiments.harness.servers import TOKEN, fragment_server, http_cache
from experiments.studies import boards
from experiments.workloads.board import Board, DepartureWindow, board

_DATASET = "trains"
_STREAM = "streams/trains"
_MAIN_SIZE = "200"
_ENGINES = (boards.CQELS_MODE.name, boards.CSPARQL_MODE.name)
_MAIN = (boards.STREAMER.name, boards.CACHED.name, *_ENGINES)
_METHODS = tuple(mode.name for mode in boards.REWRITING)
_COLUMNS = {
    "server_percent": "server, % of a core", "cache_percent": "cache, %",
    "client_first_percent": "a client process at first, %", "client_percent": "and later, %",
    "start_seconds": "until all had answers, s", "start_server_cpu_s": "server CPU for that, s",
    "latency_p50_ms": "latency, median ms", "latency_p95_ms": "95 %",
    "completeness": "completeness", "requests": "requests", "bytes": "bytes",
    "seconds": "in so many seconds", "look_requests": "requests per look",
    "look_sent": "bytes sent per look", "look_heads": "of heads per look",
    "look_bodies": "of bodies per look", "failed": "failed", "server_memory_mib": "server MiB",
}  # fmt: skip
_CPU = "% of a core"
_FIGURES = (
    ("server-cpu", "server_percent", "CPU of the server", _CPU),
    ("client-cpu", "client_percent", "CPU of a client process after the start", _CPU),
    ("client-cpu-first", "client_first_percent", "CPU of a client process at first", _CPU),
    ("latency", "latency_p50_ms", "From publication to the answer, median", "ms"),
    ("memory", "server_memory_mib", "Memory of the server's largest process", "MiB"),
)
"""Name, column, title and unit of the figures by the number of queries."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment: numbers of simultaneous queries, and times in seconds.

    Args:
        queries: with a client each; likewise the others.
        periodic_queries: in C-SPARQL mode; two cores are too slow for 1,000 of them.
        method_queries: over servers of others.
        departures: on the board, each with three static and two live facts.
        period: until all live facts are renewed.
        lead: from a renewal's publication to the old facts' expiry.
        jitter: over which clients spread their evaluations.
        step: between two evaluations of a C-SPARQL query.
        first_seconds: least time until clients have their first, whole pages.
        periods: observed after the start.
        modes: only these; all where empty.
    """

    queries: tuple[int, ...] = (10, 100, 200, 1000)
    cached_queries: tuple[int, ...] = (10, 100, 200)
    shared_queries: tuple[int, ...] = (1000,)
    whole_queries: tuple[int, ...] = (10, 100)
    engine_queries: tuple[int, ...] = (10, 100, 200, 1000)
    periodic_queries: tuple[int, ...] = (10, 100, 200)
    spark_queries: tuple[int, ...] = (10, 50)
    method_queries: tuple[int, ...] = (50,)
    methods: tuple[str, ...] = tuple(method.name for method in METHODS)
    cached_methods: bool = False
    processes: int = 10
    departures: int = 100
    period: float = 10.0
    lead: float = 0.25
    jitter: float = 0.5
    step: float = 1.0
    first_seconds: float = 20.0
    periods: int = 2
    grace: float = 3.0
    spark_grace: float = 30.0
    modes: tuple[str, ...] = ()

    @classmethod
    def quick(cls) -> Self:
        return cls(
            queries=(10, 30), cached_queries=(10, 30), shared_queries=(), whole_queries=(10, 30),
            engine_queries=(10, 30), periodic_queries=(10, 30), spark_queries=(1,),
            method_queries=(), methods=(), processes=2, period=2.0, first_seconds=3.0, periods=1,
            grace=1.5, spark_grace=25.0,
        )  # fmt: skip

    def planned(self) -> Iterator[tuple[boards.Mode, int]]:
        """Return the modes with their numbers of queries."""
        for mode, sizes in (
            (boards.STREAMER, self.queries),
            (boards.CACHED, self.cached_queries),
            (boards.SHARED, self.shared_queries),
            (boards.WITHOUT_DELTAS, self.whole_queries),
            (boards.CQELS_MODE, self.engine_queries),
            (boards.CSPARQL_MODE, self.periodic_queries),
            (boards.SPARK_MODE, self.spark_queries),
            *(
                (mode, self.method_queries)
                for mode in boards.REWRITING
                if mode.method in self.methods and (self.cached_methods or not mode.cache)
            ),
        ):
            if not self.modes or mode.name in self.modes:
                for queries in sizes:
                    yield mode, queries


@dataclass(frozen=True, slots=True)
class OpenedBoard:
    """Client processes and feed; servers are new for every measurement."""

    board: Board
    store: Path
    folder: Path
    clients: Sequence[Process]
    feed: Process
    settings: Sizes
    seed: int
    limits: boards.MachineLimits


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
        "latency_p95_ms", "completeness", "server_memory_mib", "cores", "why", "head_bytes",
        "sent_bytes", "look_requests", "look_sent", "look_heads", "look_bodies", "peak_percent",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return groups with the same processes; Spark's may be left out."""
        departures, limits = board(settings.departures), boards.MachineLimits()
        for name, on_spark in (("board", False), ("board, on Spark", True)):
            measurements = [
                items.Measurement(
                    {"source": departures.source, "mode": mode.name, "queries": queries},
                    partial(_measure, mode, queries),
                    repetitions=1,  # each is a series in time
                )
                for mode, queries in settings.planned()
                if mode.spark == on_spark
            ]
            opened = partial(_open, settings, run, departures, limits, spark=on_spark)
            yield items.MeasurementGroup(name, opened, measurements)

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return the answer, the server's side, the clients' side, latency, claims."""
        totals = results.where(kind="total")
        kept_up = Results([row for row in totals.rows if _kept_up(row)], {}, {})
        size = _main_size(kept_up)
        if totals.rows and not kept_up.rows:
            yield items.Finding("No measurement kept the answers up to date.", headline=True)
        yield from _answers(kept_up, size)
        for mode in _ENGINES:
            ours, theirs = (_cpu(kept_up, each) for each in (boards.STREAMER.name, mode))
            if cheaper := [n for n in theirs if n in ours and ours[n] < theirs[n]]:
                sizes = sentence_list([f"{n:,.0f}" for n in cheaper])
                ends = [rounded(choose(ours[n] for n in cheaper)) for choose in (min, max)]
                yield items.Finding(
                    f"The server's CPU is lower with fragments than in {mode} at {sizes} queries: "
                    f"{' to '.join(dict.fromkeys(ends))} % of a core.",
                    headline=True,
                )
        yield from _figures(results, totals)
        yield totals.table("All modes", {"mode": "mode", "queries": "queries"}, _COLUMNS)
        yield from _targets(kept_up)
        yield from _claims(kept_up, size)


def _kept_up(row: Mapping[str, str]) -> bool:
    """True where answers were up to date: clients that come too late cost the server nothing."""
    return not boards.is_busy(row) and float(row["completeness"] or 1) >= boards.COMPLETE


def _main_size(totals: Results) -> str | None:
    measured = [mode for mode in _ENGINES if totals.where(mode=mode).rows]
    modes = (boards.STREAMER.name, *measured)
    common = set.intersection(*(set(totals.where(mode=mode).distinct("queries")) for mode in modes))
    return _MAIN_SIZE if _MAIN_SIZE in common else max(common, key=int, default=None)


def _figures(results: Results, totals: Results) -> Iterator[items.Figure]:
    main = Results([row for row in totals.rows if row["mode"] not in _METHODS], {}, {})
    for name, column, title, label in _FIGURES:
        yield items.Figure(
            name, title, "concurrent queries", label,
            boards.marked(main, "queries", main.series("mode", "queries", column)),
            log_x=True, log_y=name == "server-cpu", places=boards.PLACES,
            answer=name == "server-cpu",
        )  # fmt: skip
    methods = Results([row for row in totals.rows if row["mode"] in _METHODS], {}, {})
    for size in methods.distinct("queries"):
        series = {
            what: methods.points("mode", column, numeric=False, queries=size)
            for what, column in (("server", "server_percent"), ("all clients", "clients_percent"))
        }
        yield items.Figure(
            f"methods-{size}", f"{size} queries, patterns rewritten by annotation method",
            "annotation method", "CPU, % of a core", series, kind="bars",
        )  # fmt: skip
    seconds = results.where(kind="second", queries=_MAIN_SIZE)
    rows = Results([row for row in seconds.rows if row["mode"] in _MAIN], {}, {})
    for what, name in (
        (("server", "the server"), ("client", "a client process")) if rows.rows else ()
    ):
        yield items.Figure(
            f"{what}-over-time", f"CPU of {name} over time, {_MAIN_SIZE} queries", "second", _CPU,
            rows.series("mode", "second", f"{what}_percent"), markers=False, places=boards.PLACES,
        )  # fmt: skip


def _targets(totals: Results) -> Iterator[items.Target]:
    main = totals.where(queries=_MAIN_SIZE)
    ours = main.mean("server_percent", mode=boards.STREAMER.name)
    for mode, limit in ((boards.STREAMER.name, 2.0), (boards.CACHED.name, 0.5)):
        yield items.Target(
            f"CPU of the server with 200 queries, % of a core, {mode}",
            main.mean("server_percent", mode=mode), limit, compared="paper: < 1 % of 12 cores",
        )  # fmt: skip
    for mode in (*_ENGINES, boards.SPARK_MODE.name):
        if ours and (other := main.mean("server_percent", mode=mode)):
            yield items.Target(
                f"CPU of {mode} by that of fragments, 200 queries", other / ours, 10.0,
                at_most=False, compared="paper: more than ten times on average",
            )  # fmt: skip


def _answers(totals: Results, size: str | None) -> Iterator[items.Finding]:
    engines = [mode for mode in _ENGINES if totals.where(mode=mode, queries=size or "").rows]
    if size is None or not engines:
        return
    for text in (
        *_of_the_server(totals, size, engines),
        *_of_a_client(totals, size, engines),
        _choice(totals, (boards.STREAMER.name, *engines)),
    ):
        if text:
            yield items.Finding(text, answer=True)
    server, cache = (
        totals.mean(column, mode=boards.CACHED.name, queries=size)
        for column in ("server_percent", "cache_percent")
    )
    if server is not None and cache is not None:
        yield items.Finding(
            f"With {size} clients behind a cache, the server of fragments takes {rounded(server)} "
            f"% of a core and the cache {rounded(cache)} %.",
            headline=True,
        )


def _of_the_server(totals: Results, size: str, engines: Sequence[str]) -> Iterator[str]:
    ours = totals.mean("server_percent", mode=boards.STREAMER.name, queries=size)
    if not ours:
        return
    yield (
        f"To keep the answers of {size} clients up to date, a server of fragments works "
        f"{_a_minute(ours)} of every minute on one core ({rounded(ours)} %)."
    )
    others = {mode: totals.mean("server_percent", mode=mode, queries=size) for mode in engines}
    parts = [
        f"{_a_minute(other)} in {mode} ({rounded(other / ours)} times)"
        for mode, other in others.items()
        if other is not None
    ]
    yield (
        f"A server that evaluates the same queries itself works {sentence_list(parts)} of every "
        "minute."
    )


def _of_a_client(totals: Results, size: str, engines: Sequence[str]) -> Iterator[str]:
    mean = partial(totals.mean, queries=size)
    modes = (boards.STREAMER.name, *engines)
    cpu = [mean("clients_percent", mode=mode) for mode in modes]
    delays = [mean("latency_p50_ms", mode=mode) for mode in modes]
    received, seconds = (mean(name, mode=boards.STREAMER.name) for name in ("bytes", "seconds"))
    if None in cpu or None in delays or not received or not seconds:
        return
    works, *reads = (_a_minute(each / int(size)) for each in cpu if each is not None)
    named = [f"{each} in {mode}" for each, mode in zip(reads, engines, strict=True)]
    yield (
        f"The clients do the work instead: each one works {works} of every minute and receives "
        f"{rounded(received / seconds * 60 / int(size) / 1000)} kB; to read results takes it "
        f"{sentence_list(named)}."
    )
    sees, *others = (duration(each) for each in delays if each is not None)
    named = [f"{each} in {mode}" for each, mode in zip(others, engines, strict=True)]
    yield (
        f"In the median, a client of fragments sees a change {sees} after its publication, "
        f"{sentence_list(named)}."
    )


def _a_minute(percent: float) -> str:
    return duration(600 * percent)


def _choice(totals: Results, modes: Sequence[str]) -> str:
    names = {mode: "fragments" if mode == boards.STREAMER.name else mode for mode in modes}
    parts = []
    for what, columns in (
        ("to save the server's CPU", ("server_percent",)),
        ("to save CPU of server and clients together", ("server_percent", "clients_percent")),
        ("for a short delay", ("latency_p50_ms",)),
    ):
        sums = {mode: _sums(totals, mode, columns) for mode in modes}
        sizes = sorted(set.intersection(*(set(each) for each in sums.values())))
        best = _in_turn(
            sizes, {n: min((sums[mode][n], names[mode]) for mode in modes)[1] for n in sizes}
        )
        if len(best) > 1:
            choice = sentence_list([f"{name} for {sentence_list(n)}" for name, n in best.items()])
            parts.append(f"{what}, choose {choice} clients")
        parts += [f"{what}, choose {name}" for name in best if len(best) == 1]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _in_turn(sizes: Sequence[float], winners: Mapping[float, str]) -> dict[str, list[str]]:
    best: dict[str, list[str]] = {}
    for name, group in groupby(sizes, winners.__getitem__):
        run = [f"{n:,.0f}" for n in group]
        best.setdefault(name, []).append(" to ".join(dict.fromkeys((run[0], run[-1]))))
    return best


def _sums(totals: Results, mode: str, columns: Sequence[str]) -> Mapping[float, float]:
    sums: dict[float, float] = {}
    for column in columns:
        for point in totals.points("queries", column, mode=mode):
            sums[float(point.x)] = sums.get(float(point.x), 0.0) + point.y
    return sums


def _claims(totals: Results, size: str | None) -> Iterator[items.Check]:
    ours = partial(totals.mean, mode=boards.STREAMER.name, queries=size or "")
    return checks(
        "server-vs-client",
        {
            "server": partial(ours, "server_percent"),
            "engines": partial(_times, totals),
            "growth": partial(_growth, totals),
            "start": lambda: _ratio(ours("client_percent"), ours("client_first_percent")),
            "idle": partial(_idle, totals, size or ""),
        },
    )


def _cpu(totals: Results, mode: str) -> Mapping[float, float]:
    return _sums(totals, mode, ("server_percent",))


def _times(totals: Results) -> float | None:
    ours = _cpu(totals, boards.STREAMER.name)
    ratios = [
        other / ours[size]
        for mode in _ENGINES
        for size, other in _cpu(totals, mode).items()
        if ours.get(size)
    ]
    return fmean(ratios) if ratios else None


def _growth(totals: Results) -> float | None:
    ours, *others = (_slope(_cpu(totals, mode)) for mode in (boards.STREAMER.name, *_ENGINES))
    slopes = [slope for slope in others if slope is not None]
    return _ratio(ours, min(slopes, default=None))


def _slope(by_size: Mapping[float, float]) -> float | None:
    if len(by_size) < 2:
        return None
    few, many = min(by_size), max(by_size)
    return (by_size[many] - by_size[few]) / (many - few)


def _idle(totals: Results, size: str) -> float | None:
    ours = totals.mean("clients_percent", mode=boards.STREAMER.name, queries=size)
    theirs = [totals.mean("clients_percent", mode=mode, queries=size) for mode in _ENGINES]
    return _ratio(max((cpu for cpu in theirs if cpu is not None), default=None), ours)


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


@contextmanager
def _open(
    settings: Sizes, run: items.Run, departures: Board, limits: boards.MachineLimits, *, spark: bool
) -> Iterator[OpenedBoard]:
    if spark:
        boards.need_java()
    store = run.static.store(run.folder / "board", departures.static, SystemClock().now())
    with boards.client_processes(settings.processes) as (clients, feed):
        yield OpenedBoard(departures, store, run.folder, clients, feed, settings, run.seed, limits)


def _with_looks(total: items.ResultRow, queries: int, period: float) -> items.ResultRow:
    """Add what a client's look at a renewal takes of requests and bytes, by part."""
    wire = ("requests", "sent_bytes", "head_bytes", "bytes", "seconds")
    asked, sent, heads, received, seconds = (float(str(total[name])) for name in wire)
    looks = queries * seconds / period
    return {
        **total,
        "look_requests": asked / looks,
        "look_sent": sent / looks,
        "look_heads": heads / looks,
        "look_bodies": (received - heads) / looks,
    }


@contextmanager
def _side(
    mode: boards.Mode, windows: Sequence[DepartureWindow], opened: OpenedBoard
) -> Iterator[boards.Side]:
    """Start a new server of a mode, with its cache."""
    settings = opened.settings
    front = free_port() if mode.cache else None
    base = f"http://{LOOPBACK}:{front}/" if front else ""
    with ExitStack() as stack:
        config = _configuration(mode, opened.store, len(windows))
        server = stack.enter_context(fragment_server(opened.folder, config, base_url=base))
        cache = None
        if front is not None:
            cache = stack.enter_context(http_cache(server.port, front, opened.folder))
        feed = {
            "do": "start", "period": settings.period, "lead": settings.lead,
            "window": settings.period, "token": TOKEN, "departures": opened.board.departures,
        }  # fmt: skip
        order: dict[str, Any] = {
            "do": "start", "shared": mode.shared, "whole": False, "deltas": mode.deltas,
        }  # fmt: skip
        if mode.engine:
            stream = f"{server.url}{_STREAM}"
            feed |= {"mode": "stream", "url": stream}
            order |= {"mode": "stream", "url": server.url, "token": TOKEN}
            order["whole"] = mode.engine == "csparql"
            # Spark starts with the first query, which is followed long before it has answers.
            order["answered"] = mode.spark
            queries = [
                _query(mode, window, stream, settings, number)
                for number, window in enumerate(windows)
            ]
        else:
            # What is published goes past the cache.
            feed |= {"mode": "facts", "url": f"{server.url}{_DATASET}"}
            order |= {"mode": "facts", "url": f"{base or server.url}{_DATASET}"}
            order["jitter"] = settings.jitter
            queries = [window.query() for window in windows]
        yield boards.Side(server, cache, order, queries, feed)


def _query(
    mode: boards.Mode, window: DepartureWindow, stream: str, settings: Sizes, number: int
) -> str:
    period = int(1000 * settings.period)
    if mode.engine == "csparql":
        return window.csparql_query(stream, period, int(1000 * settings.step), number)
    # Less than a period, so that a renewal never meets the one before it.
    return window.cqels_query(stream, period // 2)


def _configuration(mode: boards.Mode, store: Path, queries: int) -> str:
    return (
        f'{boards.engine_settings(mode, queries)}[datasets.{_DATASET}]\nsource = "{store}"\n'
        f'annotation = "{mode.method or "plain"}"\n'
        f"page_labels = {'false' if mode.method else 'true'}\nmax_age = 3600.0\n"
    )


def _renewals(
    windows: Sequence[DepartureWindow],
    reports: Sequence[Mapping[str, Any]],
    sent: Sequence[float],
    within: tuple[float, float],
) -> items.ResultRow:
    """Return delays from publication of renewals to their arrival in answers."""
    counted = [number for number, at in enumerate(sent) if within[0] <= at <= within[1]]
    latencies: list[float] = []
    arrived = 0
    for number, report in enumerate(reports):
        for query, renewal, at, rows in report["arrivals"]:
            if renewal in counted:
                latencies.append(1000 * (at - sent[renewal]))
                arrived += min(rows, windows[number + query * len(reports)].departures)
    expected = len(counted) * sum(window.departures for window in windows)
    return {**boards.timed(latencies, reports), "completeness": arrived / expected}


def _measure(mode: boards.Mode, queries: int, opened: OpenedBoard) -> list[items.ResultRow]:
    settings = opened.settings
    windows = opened.board.windows(queries, opened.seed)
    looks = boards.Looks(
        settings.first_seconds,
        settings.periods * settings.period,
        settings.spark_grace if mode.spark else settings.grace,
    )
    with (
        opened.limits.of(mode.name, queries),
        _side(mode, windows, opened) as side,
    ):
        arrivals = partial(_renewals, windows)
        rows = boards.watch(side, opened.clients, opened.feed, looks, arrivals)
        return [*rows[:-1], _with_looks(rows[-1], queries, settings.period)]
