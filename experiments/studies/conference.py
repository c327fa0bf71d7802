"""``conference``: the queries of the CQELS paper, by static size and number of queries.

Source: paper 000, section 5, table 2, figures 4 and 5.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from experiments.harness import items
from experiments.harness.claims import checks
from experiments.harness.estimates import percentile
from experiments.harness.report import duration, rounded
from experiments.harness.results import Results
from experiments.studies import boards
from experiments.workloads.conference import (
    BADGES,
    FLOORPLAN,
    Conference,
    conference_query,
    periodic_query,
    quads,
)
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.static.static_data import StoreGraph

_TEMPLATES = ("Q1", "Q2", "Q3", "Q4", "Q5")
_TOGETHER = ("Q1", "Q3", "Q4")
"""Those that the paper registers many times."""
_LARGE = 1_000_000
# Microseconds of the original engines, on other machines, with 10^5 static triples: CQELS for each
# event, published in 2011, measured again (paced at 100 events per second); C-SPARQL for each
# evaluation.
_PUBLISHED = {"Q1": 470.0, "Q2": 3900.0, "Q3": 510.0, "Q4": 530.0, "Q5": 21_830.0}
_ORIGINAL = {"Q1": 243.0, "Q2": 553.0, "Q3": 371.0, "Q4": 417.0, "Q5": 1058.0}
_PUBLISHED_PERIODIC = {
    "Q1": 332_460.0, "Q2": 99_840.0, "Q3": 331_680.0, "Q4": 395_180.0, "Q5": 322_640.0,
}  # fmt: skip
# The original CQELS, with 10, 100 and 1,000 queries at the same time.
_ORIGINAL_TOGETHER = {
    "Q1": (2_300.0, 10_500.0, 53_000.0),
    "Q3": (3_200.0, 16_200.0, 80_000.0),
    "Q4": (3_500.0, 13_100.0, 118_000.0),
}
_STATIC = 100_000.0
_BY_PAPER = "published 2011, another machine"
_ORIGINALLY = "original, another machine"
_LABEL = "CPU per execution (µs)"
_COLUMNS = {
    "execution_us": "CPU per execution, µs", "us_mean": "CPU per event, µs",
    "us_p50": "event, median µs", "us_p99": "99 %", "rows": "rows",
    "us_per_row": "CPU per row, µs", "registration_seconds": "registration, s",
}  # fmt: skip
_Events = Sequence[tuple[int, tuple[str, str, str]]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment."""

    static: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    events: int = 20_000
    periodic_events: int = 2_000
    constants: int = 10
    instances: tuple[int, ...] = (1, 8, 64, 512, 1024)
    periodic_instances: tuple[int, ...] = (1, 8, 64, 256)

    @classmethod
    def quick(cls) -> Self:
        """Use two static sizes and numbers of queries, fewer events."""
        return cls(
            static=(10_000, 100_000), events=1000, periodic_events=300, constants=2,
            instances=(1, 32, 1024), periodic_instances=(1, 32),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Opened:
    """The loaded static graphs, and the events."""

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

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        for number, size in enumerate(settings.static):
            constants = min(settings.constants, 3) if size > _LARGE else settings.constants
            cases = [
                (mode.name, name, 1, constant)
                for mode in (boards.CQELS_MODE, boards.CSPARQL_MODE)
                for name in _TEMPLATES
                # The second has no constant.
                for constant in range(1 if name == "Q2" else constants)
            ]
            if number == min(1, len(settings.static) - 1):
                cases += [
                    (mode.name, name, count, 0)
                    for mode, counts in (
                        (boards.CQELS_MODE, settings.instances),
                        (boards.CSPARQL_MODE, settings.periodic_instances),
                    )
                    for count in counts
                    if count > 1
                    for name in _TOGETHER
                ]  # fmt: skip
            yield items.MeasurementGroup(
                f"{size} static triples",
                partial(_opened, settings, run, size),
                [
                    items.Measurement(
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

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return figures 4 and 5, table 2, targets, claims."""
        keys = {
            "engine": "engine", "query": "query", "static": "static triples",
            "instances": "queries",
        }  # fmt: skip
        results = results.medians(list(keys), list(_COLUMNS))
        single = results.where(instances=1)
        ours = single.where(engine=boards.CQELS_MODE.name)
        many = {row["static"] for row in results.rows if row["instances"] != "1"}
        together = Results([row for row in results.rows if row["static"] in many], {}, {})
        yield from _figures(single, together)
        yield from _sentences(single, together)
        yield results.table("Executions (medians)", keys, _COLUMNS)
        for name, original in _ORIGINAL.items():
            column, what = ("us_per_row", "row") if name == "Q2" else ("us_mean", "event")
            points = ours.points("static", column, query=name)
            least = min((point.y for point in points), default=None)
            yield items.Target(
                f"{name}: µs per {what}, least of all static sizes", least,
                3.0 if name == "Q2" else 10.0,
                compared=f"original engine, on another machine: {original:.0f} µs per event",
            )  # fmt: skip
        for name, (_, _, last) in _ORIGINAL_TOGETHER.items():
            points = together.points(
                "instances", "us_mean", engine=boards.CQELS_MODE.name, query=name
            )
            yield items.Target(
                f"{name}, 1,000 queries: µs per event",
                min((point.y for point in points if float(point.x) >= 1000), default=None), 100.0,
                compared=f"original engine, on another machine: {last:,.0f}",
            )  # fmt: skip
        at_paper = ours.where(static=int(_STATIC))
        yield from checks(
            "conference",
            {
                **{name: partial(at_paper.mean, "us_mean", query=name) for name in _PUBLISHED},
                "C-SPARQL": partial(_periodic_ratio, single.where(static=int(_STATIC))),
                "flat": partial(_growth, ours),
                "instances": partial(_with_most, together),
            },
        )


def _figures(single: Results, together: Results) -> Iterator[items.Figure]:
    for query in single.distinct("query"):
        yield items.Figure(
            f"static-{query}", f"{query} by the size of the static data", "static triples", _LABEL,
            single.series("engine", "static", "execution_us", query=query),
            log_x=True, log_y=True, places=boards.PLACES,
            marks={
                (whose, mode.name): [items.Point(_STATIC, published[query])]
                for whose, mode, published in (
                    (_BY_PAPER, boards.CQELS_MODE, _PUBLISHED),
                    (_ORIGINALLY, boards.CQELS_MODE, _ORIGINAL),
                    (_BY_PAPER, boards.CSPARQL_MODE, _PUBLISHED_PERIODIC),
                )
            },
        )  # fmt: skip
    for query, measured in _ORIGINAL_TOGETHER.items():
        series = together.series("engine", "instances", "execution_us", query=query)
        if any(len(points) > 1 for points in series.values()):
            points = [items.Point(n, us) for n, us in zip((10, 100, 1000), measured, strict=True)]
            yield items.Figure(
                f"instances-{query}", f"{query} by the number of queries at the same time",
                "queries", _LABEL, series, log_x=True, log_y=True, places=boards.PLACES,
                marks={(_ORIGINALLY, boards.CQELS_MODE.name): points},
            )  # fmt: skip


def _sentences(single: Results, together: Results) -> Iterator[items.Finding]:
    at_paper = single.where(static=int(_STATIC))
    for name in single.distinct("query"):
        ours = at_paper.mean("us_mean", engine=boards.CQELS_MODE.name, query=name)
        theirs = at_paper.mean("execution_us", engine=boards.CSPARQL_MODE.name, query=name)
        if ours:
            text = (
                f"{name}: {rounded(ours)} µs per event in CQELS; on another machine the original "
                f"engine took {rounded(_ORIGINAL[name])} µs"
            )
            if theirs is not None:
                text += f"; {duration(theirs / 1000)} per evaluation in C-SPARQL"
            yield items.Finding(f"{text}.")
    for name in together.distinct("query"):
        points = together.points("instances", "us_mean", engine=boards.CQELS_MODE.name, query=name)
        if len(points) > 1 and points[0].y:
            yield items.Finding(
                f"{name}: {points[-1].x:,.0f} queries at the same time take "
                f"{rounded(points[-1].y / points[0].y)} times as long for an event as "
                f"{points[0].x:,.0f} in CQELS.",
                headline=True,
            )


def _periodic_ratio(at_paper: Results) -> float | None:
    by_engine = at_paper.series("query", "engine", "execution_us", numeric=False)
    pairs = [{point.x: point.y for point in points} for points in by_engine.values()]
    names = (boards.CQELS_MODE.name, boards.CSPARQL_MODE.name)
    ratios = [pair[names[1]] / pair[names[0]] for pair in pairs if pair.keys() >= set(names)]
    return max(ratios, default=None)


def _growth(ours: Results) -> float | None:
    series = ours.series("query", "static", "us_mean")
    ratios = [points[-1].y / points[0].y for points in series.values() if len(points) > 1]
    return max(ratios, default=None)


def _with_most(together: Results) -> float | None:
    series = together.series("query", "instances", "us_mean", engine=boards.CQELS_MODE.name)
    ends = [points[-1] for points in series.values()]
    return max((end.y / 1000 for end in ends if float(end.x) >= 1000), default=None)


@contextmanager
def conference_graphs(
    conference: Conference, run: items.Run, size: int
) -> Iterator[tuple[StoreGraph, StoreGraph]]:
    """Load and open the floor plan and a bibliography of this size."""
    parts = {
        "floorplan": quads(conference.floorplan()),
        "bibliography": quads(conference.bibliography(size)),
    }
    with run.static.graphs(run.folder / f"static{size}", parts) as (floorplan, bibliography):
        yield floorplan, bibliography


@contextmanager
def _opened(settings: Sizes, run: items.Run, size: int) -> Iterator[Opened]:
    conference = Conference(run.seed)
    with conference_graphs(conference, run, size) as (floorplan, bibliography):
        events, others = (
            list(conference.badges(count)) for count in (settings.events, settings.periodic_events)
        )
        yield Opened(floorplan, bibliography, events, others)


def _incremental(name: str, count: int, constant: int, opened: Any) -> Iterable[items.ResultRow]:
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


def _periodic(name: str, count: int, constant: int, opened: Any) -> Iterable[items.ResultRow]:
    engine = Engine()
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
        engine.register_csparql(periodic_query(name, author), take)
    registered = time.perf_counter()
    taken, cpu = _pushed(partial(engine.push, BADGES), events)
    evaluated = len(instants)
    engine.close()
    yield {
        "execution_us": 1e6 * cpu / evaluated if evaluated else None,
        **_columns(taken, 1e6 * cpu / len(taken), rows),
        "registration_seconds": registered - started,
    }


_MEASURES: dict[str, Callable[..., Iterable[items.ResultRow]]] = {
    boards.CQELS_MODE.name: _incremental, boards.CSPARQL_MODE.name: _periodic,
}  # fmt: skip


def _pushed(push: Callable[..., object], events: _Events) -> tuple[list[float], float]:
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
