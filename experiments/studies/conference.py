"""``conference``: the queries of the CQELS paper, by static size and by number of queries.

Source: paper 000, section 5, table 2, figures 4 and 5.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from experiments.harness.estimates import percentile
from experiments.harness.items import Item
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.results import Results
from experiments.studies.boards import CQELS_MODE, CSPARQL_MODE
from experiments.studies.conference_report import conference_items
from experiments.workloads.conference import (
    BADGES,
    FLOORPLAN,
    Conference,
    conference_query,
    periodic_query,
    quads,
)
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.engine.static.store_graph import StoreGraph

_TEMPLATES = ("Q1", "Q2", "Q3", "Q4", "Q5")
_TOGETHER = ("Q1", "Q3", "Q4")
"""Those that the paper registers many times."""
_LARGE = 1_000_000
_Events = Sequence[tuple[int, tuple[str, str, str]]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        static: triples of the bibliography.
        events: detections that are measured.
        periodic_events: the same for C-SPARQL.
        constants: queries of a template that are measured, one after the other: each with the name
            of another author. Beyond a million static triples three are, at most.
        instances: numbers of queries at the same time, on the second static size.
        periodic_instances: the same for C-SPARQL.
    """

    static: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    events: int = 20_000
    periodic_events: int = 2_000
    constants: int = 10
    instances: tuple[int, ...] = tuple(2**power for power in range(11))
    periodic_instances: tuple[int, ...] = tuple(2**power for power in range(11))

    @classmethod
    def quick(cls) -> Self:
        """Two static sizes and numbers of queries, fewer events."""
        return cls(
            static=(10_000, 100_000), events=1000, periodic_events=300, constants=2,
            instances=(1, 32, 1024), periodic_instances=(1, 32),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Opened:
    """The static graphs, loaded once, and the events."""

    floorplan: StoreGraph
    bibliography: StoreGraph
    events: _Events
    periodic_events: _Events


class ConferenceQueries:
    """The experiment."""

    name = "conference"
    question = (
        "How long does one execution of a query take in the conference scenario, by the size of "
        "the static data and by the number of queries that differ in a constant: in CQELS for each "
        "event, in C-SPARQL each second?"
    )
    settings = Sizes
    keys = ("engine", "query", "static", "instances", "constant")
    values = (
        "execution_us", "us_mean", "us_p50", "us_p99", "rows", "us_per_row",
        "registration_seconds",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """A group for each static size."""
        for place, size in enumerate(settings.static):
            constants = min(settings.constants, 3) if size > _LARGE else settings.constants
            cases = [
                (mode.name, name, 1, constant)
                for mode in (CQELS_MODE, CSPARQL_MODE)
                for name in _TEMPLATES
                # The second has no constant.
                for constant in range(1 if name == "Q2" else constants)
            ]
            if place == min(1, len(settings.static) - 1):
                cases += [
                    (mode.name, name, count, 0)
                    for mode, counts in (
                        (CQELS_MODE, settings.instances),
                        (CSPARQL_MODE, settings.periodic_instances),
                    )
                    for count in counts
                    if count > 1
                    for name in _TOGETHER
                ]  # fmt: skip
            yield MeasurementGroup(
                f"{size} static triples",
                partial(_opened, settings, run, size),
                [
                    Measurement(
                        {
                            "engine": mode, "query": name, "static": size, "instances": count,
                            "constant": constant,
                        },
                        partial(_MEASURES[mode], name, count, constant),
                        # Intervals are over constants, where there are any.
                        1 if count == 1 and name != "Q2" else None,
                    )
                    for mode, name, count, constant in cases
                ],
            )  # fmt: skip

    def report(self, results: Results) -> Iterable[Item]:
        """Figures 4 and 5, table 2, the targets."""
        yield from conference_items(results)


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
        events, others = (
            list(conference.badges(count)) for count in (settings.events, settings.periodic_events)
        )
        yield Opened(floorplan, bibliography, events, others)


def _incremental(name: str, count: int, constant: int, opened: Any) -> Iterable[ResultRow]:
    """In CQELS: an execution for each event."""
    engine = Engine()
    engine.attach(opened.bibliography)
    engine.attach(opened.floorplan, FLOORPLAN)
    rows = 0

    def take(emission: Any) -> None:
        nonlocal rows
        rows += len(emission.rows)

    started = time.perf_counter()
    for author in range(constant, constant + count):
        engine.register(conference_query(name, author), take)
    registered = time.perf_counter()
    stream = f"<{BADGES}>"
    taken, cpu = _pushed(partial(engine.push, stream), opened.events)
    engine.close()
    each = 1e6 * cpu / len(taken)
    yield {
        "execution_us": each,
        **_columns(taken, each, rows),
        "registration_seconds": registered - started,
    }


def _periodic(name: str, count: int, constant: int, opened: Any) -> Iterable[ResultRow]:
    """In C-SPARQL: an execution of all queries each second of the stream."""
    engine = CsparqlEngine()
    engine.attach(opened.bibliography)
    engine.attach(opened.floorplan)
    events = opened.periodic_events
    # Says that people and rooms do not come from the stream.
    engine.declare(BADGES, [events[0][1][1]])
    rows = 0
    instants: dict[int, None] = {}

    def take(answer: Any) -> None:
        nonlocal rows
        rows += len(answer.rows)
        instants[answer.at] = None

    started = time.perf_counter()
    for author in range(constant, constant + count):
        engine.register(periodic_query(name, author), take)
    registered = time.perf_counter()
    taken, cpu = _pushed(partial(engine.push, BADGES), events)
    evaluated = len(instants)
    engine.close()
    yield {
        "execution_us": 1e6 * cpu / evaluated if evaluated else None,
        **_columns(taken, 1e6 * cpu / len(taken), rows),
        "registration_seconds": registered - started,
    }


_MEASURES: dict[str, Callable[..., Iterable[ResultRow]]] = {
    CQELS_MODE.name: _incremental, CSPARQL_MODE.name: _periodic,
}  # fmt: skip


def _pushed(push: Callable[..., object], events: _Events) -> tuple[list[float], float]:
    """The microseconds of each event, by the clock, and the CPU seconds of all."""
    clock = time.perf_counter
    taken = []
    begin = time.process_time()
    for at, triple in events:
        before = clock()
        push(triple, at)
        taken.append((clock() - before) * 1e6)
    return taken, time.process_time() - begin


def _columns(taken: list[float], each: float, rows: int) -> dict[str, float | None]:
    taken.sort()
    return {
        "us_mean": each,
        "us_p50": percentile(taken, 50),
        "us_p99": percentile(taken, 99),
        "rows": rows,
        "us_per_row": each * len(taken) / rows if rows else None,
    }
