"""``load``: what it takes to make a store of N-Triples, with Spark and in one process."""

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Self

from experiments.errors import MeasurementError, ProcessFailedError, UnavailableError
from experiments.harness.items import Figure, Finding, Item, Table, Target
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.processes import Process, started
from experiments.harness.report import rounded, sentence_list
from experiments.harness.results import Results
from experiments.harness.servers import command
from experiments.workloads.people import People
from tpf_server.store.static.manifest import read_manifest
from tpf_spark.errors import JavaNotFoundError
from tpf_spark.java import find_java

ON_SPARK = "Spark"
ONE_CORE = "Spark on one core"
LOCAL = "one process"
_SAMPLE_SECONDS = 0.1
_MOST_SECONDS = 1800.0
_TEN_MILLION = 10_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        triples: sizes of the data.
        repetitions: how often each load is made.
        master: of Spark.
        one_core: sizes of the data with which Spark is measured on one core, too.
    """

    triples: tuple[int, ...] = (1_000_000, 3_000_000, 10_000_000, 30_000_000)
    repetitions: int = 1
    master: str = "local[2]"
    one_core: tuple[int, ...] = (1_000_000, 3_000_000, 10_000_000)

    @classmethod
    def quick(cls) -> Self:
        """A tenth of a million, once."""
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
        """A group per engine, so that a missing Java leaves out only one."""
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
        """Seconds and memory by size; whether both engines write the same."""
        yield from _headlines(results)
        for column, label in (
            ("seconds", "seconds"),
            ("peak_mib", "most memory of all its processes, MiB"),
            ("triples_per_second", "triples per second"),
        ):
            series = dict(results.series("engine", "triples", column))
            yield Figure(column, label, "triples", label, series, log_x=True, log_y=True)
        yield _table(results)
        yield _same(results)
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
    """Most memory, and the CPU, of a process and its children until it ends."""
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


def _headlines(results: Results) -> Iterator[Item]:
    sizes = sorted(int(size) for size in results.distinct("triples"))
    for engine in results.distinct("engine"):
        own = results.where(engine=engine)
        largest = [size for size in sizes if own.numbers("seconds", triples=size)]
        if not largest:
            continue
        seconds = own.mean("seconds", triples=largest[-1])
        peak = own.mean("peak_mib", triples=largest[-1])
        assert seconds is not None
        assert peak is not None
        text = (
            f"{engine.capitalize() if engine == LOCAL else engine} makes a store of "
            f"{largest[-1]:,} triples in {rounded(seconds)} s "
            f"({rounded(largest[-1] / seconds)} triples/s) with at most {rounded(peak)} MiB of "
            "memory"
        )
        first = own.mean("seconds", triples=largest[0])
        if len(largest) > 1 and first:
            text += (
                f"; {largest[-1] / largest[0]:g} times the triples of the smallest size take "
                f"{rounded(seconds / first)} times its seconds"
            )
        yield Finding(text + ".", headline=True)
        steps = []
        for smaller, larger in pairwise(largest):
            more = own.mean("seconds", triples=larger), own.mean("seconds", triples=smaller)
            if more[0] is not None and more[1] is not None:
                each = (more[0] - more[1]) / (larger - smaller) * 1e6
                steps.append(f"{rounded(each)} s from {smaller:,} to {larger:,}")
        if steps:
            yield Finding(
                f"{engine.capitalize() if engine == LOCAL else engine}: each further million "
                f"triples takes {sentence_list(steps)}."
            )
    spark, local = (
        {point.x: point.y for point in results.points("triples", "seconds", engine=engine)}
        for engine in (ON_SPARK, LOCAL)
    )
    faster = [
        f"{int(float(size)):,}" for size in spark if size in local and spark[size] < local[size]
    ]
    both = [size for size in spark if size in local]
    if both:
        yield Finding(
            f"Spark is faster than one process for {sentence_list(faster)} triples."
            if faster
            else "Spark is not faster than one process for "
            f"{sentence_list([f'{int(float(size)):,}' for size in both])} triples."
        )


def _table(results: Results) -> Table:
    rows = [
        (
            f"{int(size):,}",
            engine,
            *(
                results.mean(column, triples=size, engine=engine)
                for column in (
                    "seconds", "triples_per_second", "peak_mib", "cpu_seconds", "input_mib",
                    "store_mib",
                )
            ),
        )
        for size in results.distinct("triples")
        for engine in results.distinct("engine")
        if results.where(triples=size, engine=engine).rows
    ]  # fmt: skip
    header = (
        "triples", "engine", "seconds", "triples/s", "peak MiB", "CPU seconds", "input MiB",
        "store MiB",
    )  # fmt: skip
    return Table("Loads", header, rows)


def _same(results: Results) -> Finding:
    compared, different = [], []
    for size in results.distinct("triples"):
        chosen = results.where(triples=size)
        if len(chosen.distinct("engine")) > 1:
            compared.append(f"{int(size):,}")
            if len(chosen.distinct("version")) > 1:
                different.append(f"{int(size):,}")
    if not compared:
        return Finding("Only one engine was measured, so their stores could not be compared.")
    if different:
        return Finding(f"The engines wrote different stores of {sentence_list(different)} triples.")
    return Finding(
        f"Both engines wrote the same store, byte for byte, of {sentence_list(compared)} triples."
    )
