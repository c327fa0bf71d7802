"""``load``: the cost of making a store from N-Triples, with Spark and in one process."""

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from experiments.errors import MeasurementError, ProcessFailedError, UnavailableError
from experiments.harness.items import (
    Figure,
    Finding,
    Item,
    Measurement,
    MeasurementGroup,
    ResultRow,
    Run,
    Target,
)
from experiments.harness.processes import Process, started
from experiments.harness.report import rounded, sentence_list
from experiments.harness.results import Results
from experiments.harness.servers import command
from experiments.workloads.people import People
from tpf_server.spark.java import JavaNotFoundError, find_java
from tpf_server.store.static.manifest import read_manifest

ON_SPARK = "Spark"
ONE_CORE = "Spark on one core"
LOCAL = "one process"
_SAMPLE_SECONDS = 0.1
_MOST_SECONDS = 1800.0
_TEN_MILLION = 10_000_000
_COLUMNS = {
    "seconds": "seconds", "triples_per_second": "triples per second",
    "peak_mib": "most memory of all its processes, MiB", "cpu_seconds": "CPU seconds",
    "input_mib": "input MiB", "store_mib": "store MiB",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment; `one_core` are those also measured with Spark on one core."""

    triples: tuple[int, ...] = (1_000_000, 3_000_000, 10_000_000, 30_000_000)
    repetitions: int = 1
    master: str = "local[2]"
    one_core: tuple[int, ...] = (1_000_000, 3_000_000, 10_000_000)

    @classmethod
    def quick(cls) -> Self:
        return cls(triples=(100_000,), repetitions=1, one_core=())


class Load:
    """The experiment."""

    name = "load"
    question = (
        "How many seconds, and how much memory, does it take to make a store of N-Triples, with "
        "Spark and with the writer that works in one process, and how does that grow?"
    )
    settings = Sizes
    keys = ("triples", "engine")
    values = (
        "seconds", "triples_per_second", "peak_mib", "cpu_seconds", "input_mib", "store_mib",
        "quads", "version",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """Return a group per engine, so that a missing Java leaves out only one."""
        for engine, sizes in (
            (ON_SPARK, settings.triples),
            (ONE_CORE, settings.one_core),
            (LOCAL, settings.triples),
        ):
            measurements = [
                Measurement(
                    {"triples": triples, "engine": engine},
                    partial(_load, engine, People(triples, run.seed), settings),
                    settings.repetitions,
                )
                for triples in sizes
            ]
            if measurements:
                yield MeasurementGroup(engine, partial(_open, engine, run.folder), measurements)

    def report(self, results: Results) -> Iterable[Item]:
        """Return seconds and memory by size; compare the engines' stores."""
        for engine, points in results.series("engine", "triples", "seconds").items():
            yield Finding(
                f"{engine}: a store of {points[-1].x:,.0f} triples in {rounded(points[-1].y)} s, "
                f"with at most {rounded(max(results.numbers('peak_mib', engine=engine)))} MiB of "
                "memory.",
                headline=True,
            )
        for column in ("seconds", "peak_mib", "triples_per_second"):
            series = results.series("engine", "triples", column)
            label = _COLUMNS[column]
            yield Figure(column, label, "triples", label, series, log_x=True, log_y=True)
        yield results.table("Loads", {"triples": "triples", "engine": "engine"}, _COLUMNS)
        different = [
            f"{int(size):,}"
            for size in results.distinct("triples")
            if len(results.where(triples=size).distinct("version")) > 1
        ]
        if len(results.distinct("engine")) > 1:
            yield Finding(
                f"The engines wrote different stores of {sentence_list(different)} triples."
                if different
                else "All engines wrote the same stores, byte for byte."
            )
        seconds = results.mean("seconds", triples=_TEN_MILLION, engine=ON_SPARK)
        yield Target("seconds to load 10,000,000 triples with Spark", seconds, 75.0)


@contextmanager
def _open(engine: str, folder: Path) -> Iterator[Path]:
    if engine != LOCAL:
        try:
            find_java(None, os.environ)
        except JavaNotFoundError as error:
            raise UnavailableError(str(error)) from error
    yield folder


def _load(engine: str, people: People, settings: Sizes, folder: Path) -> Iterator[ResultRow]:
    source = folder / f"people-{people.triples}.nt"
    if not source.exists():
        people.write(source)
    store = folder / "store"
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
        if process.popen.returncode:
            process.check()
    manifest = read_manifest(store)
    size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    yield {
        "seconds": seconds,
        "triples_per_second": people.triples / seconds,
        "peak_mib": peak / 2**20,
        "cpu_seconds": cpu,
        "input_mib": source.stat().st_size / 2**20,
        "store_mib": size / 2**20,
        "quads": manifest.quads,
        "version": manifest.version,
    }


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
