"""``taxi``: the two queries of the DEBS 2015 challenge, by the length of their windows."""

import gc
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from heapq import heappop, heappush
from typing import Any, Self

from experiments.harness.estimates import percentile
from experiments.harness.items import Item, Table, Target
from experiments.harness.measurement import Measurement, MeasurementGroup, Row, Run
from experiments.harness.results import Results
from experiments.workloads.taxi import (
    PREDICATES,
    STREAM,
    SUBJECTS,
    Trip,
    batches,
    frequent_routes,
    profitable_areas,
)
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.semantics import PAPER

_QUERIES = {
    "Q1": (frequent_routes,),
    "Q2": (profitable_areas,),
    "Q1 and Q2": (frequent_routes, profitable_areas),
}
_BATCH = 1000
_RECOMPUTED = 5
_REPEATED = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        trips: how many are pushed.
        minutes: lengths of the windows.
    """

    trips: int = 40_000
    minutes: tuple[int, ...] = (30, 60, 120, 240)

    @classmethod
    def quick(cls) -> Self:
        """Fewer trips, two windows."""
        return cls(trips=6000, minutes=(30, 60))


class TaxiQueries:
    """The experiment."""

    name = "taxi"
    question = (
        "How many taxi trips per second do the DEBS 2015 queries take, how long after a trip is "
        "the result there, and how many times faster is that than computing it anew?"
    )
    settings = Sizes
    keys = ("query", "minutes")
    values = (
        "trips_per_second", "one_by_one_per_second", "us_mean", "us_p50", "us_p99", "rows",
        "recomputation_us", "factor",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """One group: the trips are made once."""
        yield MeasurementGroup(
            "trips",
            partial(_opened, settings, run),
            [
                Measurement({"query": name, "minutes": minutes}, partial(_measure, name, minutes))
                for minutes in settings.minutes
                for name in _QUERIES
            ],
        )

    def report(self, results: Results) -> Iterable[Item]:
        """A table and the targets."""
        rows = [row for row in results.rows if row.get("trips_per_second") is not None]
        header = (*self.keys, *self.values)
        yield Table("By window", header, [[row.get(k) for k in header] for row in rows])
        for name, limit in (("Q1", 150_000.0), ("Q2", 60_000.0)):
            found = [
                float(row["trips_per_second"] or 0)
                for row in rows
                if row["query"] == name and int(row["minutes"] or 0) == 30
            ]
            yield Target(
                f"{name}: trips per second",
                max(found, default=None),
                limit,
                at_most=False,
                compared="CQELS, published: about 30,000",
            )


@contextmanager
def _opened(settings: Sizes, run: Run) -> Iterator[list[Trip]]:
    yield list(trips(settings.trips, run.seed))


def trips(count: int, seed: int, per_second: float = 1.16, taxis: int = 13_000) -> Iterator[Trip]:
    """Trips between busy places, in the order of their ends, at the rate of the challenge."""
    chance = random.Random(seed)
    places = [(-73.986, 40.748), (-73.977, 40.753), (-74.006, 40.713), (-73.778, 40.641)]
    start = datetime(2013, 1, 1, tzinfo=UTC)
    free = list(range(taxis))
    under_way: list[tuple[float, int, int, float]] = []
    second, made, order = 0.0, 0, 0

    def point() -> tuple[Decimal, Decimal]:
        if chance.random() < 0.015:
            return Decimal(0), Decimal(0)
        longitude, latitude = chance.choice(places)
        return (
            Decimal(f"{chance.gauss(longitude, 0.01):.6f}"),
            Decimal(f"{chance.gauss(latitude, 0.01):.6f}"),
        )

    while made < count:
        second += chance.expovariate(per_second)
        while under_way and under_way[0][0] <= second and made < count:
            end, _, taxi, begin = heappop(under_way)
            free.append(taxi)
            made += 1
            dropoff = start + timedelta(minutes=end // 60)
            pickup = start + timedelta(minutes=begin // 60)
            fare = Decimal(f"{2.5 + (end - begin) / 60:.2f}")
            tip = Decimal(f"{chance.choice((0, 1.5, 2, 3)):.2f}")
            at = int(dropoff.timestamp() * 1000)
            yield Trip(at, f'"T{taxi}"', pickup, dropoff, *point(), *point(), fare, tip)
        taxi = free.pop(chance.randrange(len(free)))
        order += 1
        heappush(under_way, (second + chance.uniform(120, 1800), order, taxi, second))


def _engine(name: str, minutes: int, take: Callable[[Emission], None]) -> Engine:
    engine = Engine(semantics=PAPER)
    for text in _QUERIES[name]:
        engine.register(text(minutes), take)
    return engine


@contextmanager
def _set_aside() -> Iterator[None]:
    """What is there already is not looked through for garbage: a source keeps no trips."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _delays(name: str, minutes: int, some: Sequence[Trip]) -> tuple[list[float], int]:
    """The seconds from each trip to the result that it makes, and the rows that were emitted."""
    rows = 0

    def take(emission: Emission) -> None:
        nonlocal rows
        rows += len(emission.rows)

    engine = _engine(name, minutes, take)
    push = engine.record_feed(STREAM, PREDICATES, SUBJECTS).push
    records = [(number, trip[1:], trip.at) for number, trip in enumerate(some)]
    clock = time.perf_counter
    taken = []
    with _set_aside():
        for number, values, at in records:
            before = clock()
            push(number, values, at)
            taken.append(clock() - before)
    engine.close()
    return taken, rows


def _one_by_one(name: str, minutes: int, some: Sequence[Trip]) -> float:
    """The CPU time of all trips, each pushed by itself, nothing else measured beside it."""
    engine = _engine(name, minutes, lambda _emission: None)
    push = engine.record_feed(STREAM, PREDICATES, SUBJECTS).push
    records = [(number, trip[1:], trip.at) for number, trip in enumerate(some)]
    with _set_aside():
        before = time.process_time()
        for number, values, at in records:
            push(number, values, at)
        taken = time.process_time() - before
    engine.close()
    return taken


def _cpu_seconds(name: str, minutes: int, some: Sequence[Trip]) -> float:
    """The CPU time of all trips in batches: each is processed by itself, but not encoded so."""
    engine = _engine(name, minutes, lambda _emission: None)
    push = engine.record_feed(STREAM, PREDICATES, SUBJECTS).push_batch
    parts = list(batches(some, _BATCH))
    with _set_aside():
        before = time.process_time()
        for part in parts:
            push(*part)
        taken = time.process_time() - before
    engine.close()
    return taken


def _measure(name: str, minutes: int, every: Any) -> Iterable[Row]:
    taken, rows = _delays(name, minutes, every)
    ordered = sorted(taken)
    mean = min(_cpu_seconds(name, minutes, every) for _ in range(_REPEATED)) / len(every)
    single = min(_one_by_one(name, minutes, every) for _ in range(_REPEATED)) / len(every)
    # What computing the result anew costs: a new engine that takes in a whole window.
    anew = []
    for part in range(1, _RECOMPUTED + 1):
        last = len(every) * part // _RECOMPUTED - 1
        window = [
            trip for trip in every[: last + 1] if trip.at >= every[last].at - minutes * 60_000
        ]
        anew.append(_cpu_seconds(name, minutes, window))
    recomputation = sum(anew) / len(anew)
    yield {
        "trips_per_second": 1 / mean,
        "one_by_one_per_second": 1 / single,
        "us_mean": sum(taken) / len(taken) * 1e6,
        "us_p50": percentile(ordered, 50) * 1e6,
        "us_p99": percentile(ordered, 99) * 1e6,
        "rows": rows,
        "recomputation_us": recomputation * 1e6,
        "factor": recomputation / mean,
    }
