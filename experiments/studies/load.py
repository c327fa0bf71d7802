"""``load``: the cost of making a store from N-Triples, and of serving it, by its size."""

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import log
from signal import SIGKILL
from typing import Any, Self

from experiments.errors import MachineLimitError, MeasurementError, ProcessFailedError
from experiments.harness import items
from experiments.harness.processes import Process, started
from experiments.harness.report import duration, rounded, sentence_list
from experiments.harness.results import Results
from experiments.harness.servers import OURS, command
from experiments.studies import boards, fragments
from experiments.workloads.people import People
from tpf_server.store.static.manifest import read_manifest

ON_SPARK = "Spark"
ONE_CORE = "Spark on one core"
LOCAL = "one process"
SERVED = "served"
"""Stands where an engine would: the store is served, and pages are asked for."""
LOADED = "-"
"""Stands where a pattern would: the store is made."""
_SAMPLE_SECONDS = 0.1
_MOST_SECONDS = 1800.0
_TEN_MILLION = 10_000_000
_DISK_BYTES = 350
"""Of a triple: as N-Triples, in two stores, in Spark's files."""
_MOST_PAGE_MS = 5.0
_BLOCK = 2**24
_PROPORTIONAL = 1.25
"""By how much the cost of a further triple may differ from that of earlier ones."""
_COLUMNS = {
    "seconds": "seconds", "triples_per_second": "triples per second",
    "peak_mib": "most memory of all its processes, MiB", "cpu_seconds": "CPU seconds",
    "input_mib": "input MiB", "store_mib": "store MiB",
}  # fmt: skip
_PAGE_COLUMNS = {
    "p50_ms": "p50 ms", "p95_ms": "p95 ms", "p99_ms": "p99 ms", "cpu_ms": "CPU ms",
    "requests_per_second": "requests/s", "body_bytes": "bytes of the body",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment; `one_core` are those also measured with Spark on one core.

    Stores are then served: `page_seconds` of each kind of page, so many `rounds`.
    """

    triples: tuple[int, ...] = (1_000_000, 10_000_000, 100_000_000)
    repetitions: int = 1
    master: str = "local[2]"
    one_core: tuple[int, ...] = (10_000_000,)
    page_seconds: float = 2.0
    warm_up_seconds: float = 1.0
    connections: int = 4
    rounds: int = 3

    @classmethod
    def quick(cls) -> Self:
        return cls(
            triples=(100_000,), one_core=(), page_seconds=0.15, warm_up_seconds=0.1, rounds=1
        )


class Load:
    """The experiment."""

    name = "load"
    question = (
        "How many seconds, and how much memory, does it take to make a store of N-Triples, with "
        "Spark and with the writer that works in one process; how long does a page of it take, by "
        "pattern; and how does that grow?"
    )
    settings = Sizes
    keys = ("triples", "engine", "pattern")
    values = (
        "seconds", "triples_per_second", "peak_mib", "cpu_seconds", "input_mib", "store_mib",
        "quads", "version", "requests", "requests_per_second", "p50_ms", "p95_ms", "p99_ms",
        "cpu_ms", "body_bytes", "head_bytes", "start_seconds", "start_memory_mib", "memory_mib",
        "mapped_mib", "kind",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return a group per engine, so that a missing Java leaves out only one; then servers."""
        files = {
            triples: fragments.PeopleFiles(
                People(triples, run.seed), run.folder / str(triples), run.static
            )
            for triples in (*settings.triples, *settings.one_core)
        }
        for engine, sizes in (
            (ON_SPARK, settings.triples),
            (ONE_CORE, settings.one_core),
            (LOCAL, settings.triples),
        ):
            measurements = [
                items.Measurement(
                    {"triples": triples, "engine": engine, "pattern": LOADED},
                    partial(_load, engine, files[triples], settings),
                    settings.repetitions,
                )
                for triples in sizes
            ]
            if measurements:
                yield items.MeasurementGroup(engine, partial(_open, engine), measurements)
        for triples in settings.triples:
            yield items.MeasurementGroup(
                f"pages of {triples:,} triples",
                partial(_server, files[triples], settings.connections, run),
                list(_pages(files[triples].people, settings)),
            )

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return seconds and memory by size; compare the engines' stores; pages by size."""
        # Of pages, rounds are in turn, and a median is no outlier.
        served = results.where(engine=SERVED).medians(self.keys, self.values[:-1])
        results = results.where(pattern=LOADED)
        for engine, points in results.series("engine", "triples", "seconds").items():
            yield items.Finding(
                f"{engine}: a store of {points[-1].x:,.0f} triples in {rounded(points[-1].y)} s, "
                f"with at most {rounded(max(results.numbers('peak_mib', engine=engine)))} MiB of "
                "memory.",
                headline=True,
            )
        for column in ("seconds", "peak_mib", "triples_per_second"):
            series = results.series("engine", "triples", column)
            label = _COLUMNS[column]
            yield items.Figure(column, label, "triples", label, series, log_x=True, log_y=True)
        yield results.table("Loads", {"triples": "triples", "engine": "engine"}, _COLUMNS)
        loads = {size: results.where(triples=size) for size in results.distinct("triples")}
        both = [size for size, each in loads.items() if len(each.distinct("engine")) > 1]
        different = [size for size in both if len(loads[size].distinct("version")) > 1]
        if both:
            sizes = sentence_list([f"{int(size):,}" for size in different or both])
            yield items.Finding(
                f"The engines wrote different stores of {sizes} triples."
                if different
                else f"The engines wrote the same stores of {sizes} triples, byte for byte.",
                headline=bool(different),
            )
        seconds = results.mean("seconds", triples=_TEN_MILLION, engine=ON_SPARK)
        yield items.Target("seconds to load 10,000,000 triples with Spark", seconds, 75.0)
        yield from _extrapolated(results)
        if served.rows:
            yield from _served(served, results)


def _extrapolated(loads: Results) -> Iterator[items.Finding]:
    memory = loads.series("engine", "triples", "peak_mib")
    for engine, seconds in loads.series("engine", "triples", "seconds").items():
        if len(seconds) < 2:
            continue
        most = seconds[-1].x
        each, before = (
            (b.y - a.y) / (float(b.x) - float(a.x))
            for a, b in (seconds[-2:], (items.Point(0, 0.0), seconds[-2]))
        )
        if each <= 0:
            continue  # other load: this says nothing of more triples
        growth = f"A triple beyond {seconds[-2].x:,.0f} took {rounded(1e6 * each)} µs"
        reason = (
            "as the work is one pass over pieces and a merge of sorted ones, this goes on"
            if each <= _PROPORTIONAL * before
            else f"before it were {rounded(1e6 * before)} µs, so that it will be more than this"
        )
        yield items.Finding(
            f"Extrapolated to {10 * float(most):,.0f} triples, {engine}: "
            f"{duration(1000 * _at_ten_times(seconds))} and "
            f"{rounded(_at_ten_times(memory[engine]) / 1024)} GiB of memory. {growth}; {reason}."
        )


def _at_ten_times(points: Sequence[items.Point]) -> float:
    """The value at ten times the last x, by the last two points."""
    (x1, y1), (x2, y2) = ((float(point.x), point.y) for point in points[-2:])
    return y2 + (y2 - y1) / (x2 - x1) * 9 * x2


def _served(served: Results, loads: Results) -> Iterator[items.Item]:
    asked = Results([row for row in served.rows if row["pattern"] != fragments.START], {}, {})
    series = asked.series("pattern", "triples", "p95_ms")
    most = max(float(row["triples"]) for row in served.rows)
    last = {name: points[-1].y for name, points in series.items() if points[-1].x == most}
    started_servers = served.where(pattern=fragments.START, triples=int(most))
    yield from fragments.start_targets(started_servers, int(most))
    worst = max(last, key=last.__getitem__, default="")
    seconds, mib = (started_servers.mean(name) for name in ("start_seconds", "start_memory_mib"))
    if worst and seconds is not None and mib is not None:
        median = asked.mean("p50_ms", pattern=worst, triples=int(most)) or 0.0
        yield items.Finding(
            f"Of {most:,.0f} triples, a server answers {duration(1000 * seconds)} after its start "
            f"with {rounded(mib)} MiB; the slowest kind of page ({worst}) takes "
            f"{duration(median)} in the median, {duration(last[worst])} at most for 95 of 100.",
            headline=True,
        )
    for name, points in series.items():
        if name == worst and len(points) > 1:
            (x1, y1), (x2, y2) = ((float(point.x), point.y) for point in points[-2:])
            factor = max(1.0, y2 / y1) ** (log(10) / log(x2 / x1))
            store = max(loads.numbers("store_mib", triples=int(most)), default=0.0)
            yield items.Finding(
                f"Extrapolated to {10 * most:,.0f} triples: {duration(factor * y2)}, the factor "
                f"{rounded(factor)} for each ten times as many again. A page is found by binary "
                "search and read from mapped files: this holds while what is asked for is in "
                f"memory, of a store of {rounded(10 * store / 1024)} GiB."
            )
    yield items.Target(
        f"p95 of a page of {most:,.0f} triples, the slowest pattern, ms", last.get(worst),
        _MOST_PAGE_MS,
    )  # fmt: skip
    label = "p95, ms"
    yield items.Figure("p95", "Pages by size, TriG", "triples", label, series, log_x=True)
    keys = {"triples": "triples", "pattern": "pattern"}
    yield asked.table("Pages, four connections, one worker (medians)", keys, _PAGE_COLUMNS)
    yield served.where(pattern=fragments.START).table(
        "Start, and memory", {"triples": "triples"}, fragments.START_COLUMNS
    )


@contextmanager
def _open(engine: str) -> Iterator[None]:
    if engine != LOCAL:
        boards.need_java()
    yield


@contextmanager
def _server(files: fragments.PeopleFiles, connections: int, run: items.Run) -> Iterator[Any]:
    """Serve the store, whose files are in memory as far as there is some."""
    for path in files.store().rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(_BLOCK):
                    pass
    with fragments.running_server(files, connections, (OURS,), run.say) as opened:
        yield opened


def _pages(people: People, settings: Sizes) -> Iterator[items.Measurement]:
    times = fragments.RoundTimes(settings.page_seconds, settings.warm_up_seconds)
    measures = {fragments.START: partial(fragments.measured_start, OURS)} | {
        pattern: partial(
            fragments.measured_pages, people, pattern, times, OURS, fragments.FORMATS["TriG"]
        )
        for pattern in fragments.PATTERNS
    }
    for pattern, measure in measures.items():
        yield items.Measurement(
            {"triples": people.triples, "engine": SERVED, "pattern": pattern}, measure,
            settings.rounds,
        )  # fmt: skip


def _load(
    engine: str, files: fragments.PeopleFiles, settings: Sizes, _: None
) -> Iterator[items.ResultRow]:
    triples, folder = files.people.triples, files.folder
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < _DISK_BYTES * triples:
        raise MachineLimitError(f"the disk has no {_DISK_BYTES * triples / 2**30:.0f} GiB free")
    source, store = files.triples(), folder / "made"
    shutil.rmtree(store, ignore_errors=True)
    order = [
        command("tpf-load"), "rdf", str(source), "--output", str(store), "--quiet",
        "--engine", "local" if engine == LOCAL else "spark",
    ]  # fmt: skip
    if engine != LOCAL:
        order += ["--master", "local[1]" if engine == ONE_CORE else settings.master]
    begin = time.perf_counter()
    with started(f"tpf-load with {engine}", order) as process:
        peak, cpu = _watch(process)
        seconds = time.perf_counter() - begin
        if process.popen.returncode == -SIGKILL:
            raise MachineLimitError(f"{process.name} was killed, with {peak / 2**30:.1f} GiB")
        if process.popen.returncode:
            process.check()
    manifest = read_manifest(store)
    size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    yield {
        "seconds": seconds,
        "triples_per_second": triples / seconds,
        "peak_mib": peak / 2**20,
        "cpu_seconds": cpu,
        "input_mib": source.stat().st_size / 2**20,
        "store_mib": size / 2**20,
        "quads": manifest.quads,
        "version": manifest.version,
    }
    # What is served then is the first one: all engines make the same.
    if not files.made().exists():
        store.rename(files.made())


def _watch(process: Process) -> tuple[int, float]:
    peak, cpu = 0, 0.0
    until = time.perf_counter() + _MOST_SECONDS
    while process.popen.poll() is None:
        if time.perf_counter() > until:
            raise MeasurementError(f"{process.name} takes more than {_MOST_SECONDS:g} s")
        try:
            peak = max(peak, process.resident())
            cpu = process.usage().cpu
        except ProcessFailedError:
            break  # it has just ended; its status tells how
        time.sleep(_SAMPLE_SECONDS)
    process.popen.wait()
    return peak, cpu
