"""``conference``: the queries of the CQELS paper, by static size and by number of queries."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from experiments.harness.estimates import percentile
from experiments.harness.items import Finding, Item, Table, Target
from experiments.harness.measurement import Measurement, MeasurementGroup, Row, Run
from experiments.harness.results import Results
from experiments.workloads.conference import FLOORPLAN, STREAM, Conference, quads, query
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.engine.static.store_graph import StoreGraph

# Microseconds per event of the original engine (paced at 100 events per second, 10^5 triples), and
# with 1,000 queries.
_ORIGINAL = {"Q1": 243.0, "Q2": 553.0, "Q3": 371.0, "Q4": 417.0, "Q5": 1058.0}
_ORIGINAL_1000 = {"Q1": 53_000.0, "Q3": 80_000.0, "Q4": 118_000.0}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        static: triples of the bibliography.
        events: detections that are measured.
        instances: numbers of queries at the same time, on the second static size.
    """

    static: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    events: int = 20_000
    instances: tuple[int, ...] = (10, 100, 1000)

    @classmethod
    def quick(cls) -> Self:
        """Two sizes, fewer events."""
        return cls(static=(10_000, 100_000), events=5000, instances=(10, 1000))


@dataclass(frozen=True, slots=True)
class Opened:
    """The static graphs, loaded once, and the events."""

    floorplan: StoreGraph
    bibliography: StoreGraph
    events: Sequence[tuple[int, tuple[str, str, str]]]


class ConferenceQueries:
    """The experiment."""

    name = "conference"
    question = (
        "How long does one arriving triple take in the conference scenario, by query, by the size "
        "of the static data and by the number of queries that differ in a constant?"
    )
    settings = Sizes
    keys = ("query", "static", "instances")
    values = (
        "us_mean", "us_p50", "us_p99", "rows", "us_per_row", "registration_seconds",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """A group for each static size."""
        for place, size in enumerate(settings.static):
            cases = [(name, 1) for name in ("Q1", "Q2", "Q3", "Q4", "Q5")]
            if place == min(1, len(settings.static) - 1):
                cases += [(name, n) for n in settings.instances for name in ("Q1", "Q3", "Q4")]
            yield MeasurementGroup(
                f"{size} static triples",
                partial(_opened, settings, run, size),
                [
                    Measurement(
                        {"query": name, "static": size, "instances": count},
                        partial(_measure, name, count),
                    )
                    for name, count in cases
                ],
            )

    def report(self, results: Results) -> Iterable[Item]:
        """A table and the targets."""
        rows = [row for row in results.rows if row.get("us_mean") is not None]
        header = (*self.keys, *self.values)
        yield Table("Per arriving triple", header, [[row.get(k) for k in header] for row in rows])
        for name, original in _ORIGINAL.items():
            single = _lowest(rows, name, 1)
            what = f"{name}: µs per row" if name == "Q2" else f"{name}: µs per event"
            column = "us_per_row" if name == "Q2" else "us_mean"
            measured = _lowest(rows, name, 1, column)
            compared = f"original engine: {original:.0f} µs per event"
            yield Target(what, measured, 3.0 if name == "Q2" else 10.0, compared=compared)
            if single:
                yield Finding(f"{name}: {original / single:.0f} times the original's speed.")
        for name, original in _ORIGINAL_1000.items():
            measured = _lowest(rows, name, 1000)
            compared = f"original engine: {original:.0f}"
            yield Target(f"{name}, 1,000 queries: µs per event", measured, 100.0, compared=compared)


def _lowest(
    rows: Sequence[Row], name: str, instances: int, column: str = "us_mean"
) -> float | None:
    found = [
        float(row[column] or 0)
        for row in rows
        if row["query"] == name and int(row["instances"] or 0) == instances
    ]
    return min(found, default=None)


@contextmanager
def conference_graphs(
    conference: Conference, run: Run, size: int
) -> Iterator[tuple[StoreGraph, StoreGraph]]:
    """The floor plan and a bibliography of this size, loaded and open."""
    parts = {
        "floorplan": quads(conference.floorplan()),
        "bibliography": quads(conference.bibliography(size)),
    }
    with run.static.graphs(run.folder / f"static{size}", parts) as (floorplan, bibliography):
        yield floorplan, bibliography


@contextmanager
def _opened(settings: Sizes, run: Run, size: int) -> Iterator[Opened]:
    conference = Conference(run.seed)
    with conference_graphs(conference, run, size) as (floorplan, bibliography):
        yield Opened(floorplan, bibliography, list(conference.badges(settings.events)))


def _measure(name: str, count: int, opened: Any) -> Iterable[Row]:
    engine = Engine()
    engine.attach(opened.bibliography)
    engine.attach(opened.floorplan, FLOORPLAN)
    rows = 0

    def take(emission: Any) -> None:
        nonlocal rows
        rows += len(emission.rows)

    started = time.perf_counter()
    for author in range(count):
        engine.register(query(name, author), take)
    registered = time.perf_counter()
    stream = f"<{STREAM}>"
    push, clock = engine.push, time.perf_counter
    taken = []
    for at, triple in opened.events:
        before = clock()
        push(stream, triple, at)
        taken.append((clock() - before) * 1e6)
    engine.close()
    ordered = sorted(taken)
    yield {
        "us_mean": sum(taken) / len(taken),
        "us_p50": percentile(ordered, 50),
        "us_p99": percentile(ordered, 99),
        "rows": rows,
        "us_per_row": sum(taken) / rows if rows else None,
        "registration_seconds": registered - started,
    }
