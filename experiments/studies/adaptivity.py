"""``adaptivity``: the benefit of reviewing join routes when streams drift."""

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import geometric_mean
from typing import Any, Final, Literal, Self

from experiments.harness import items
from experiments.harness.claims import checks
from experiments.harness.report import rounded
from experiments.harness.results import Results
from tpf_client.dataflow.operators.multiway_join import ROUTINGS, Routing
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.delivery import Emission

_Element = tuple[str, tuple[str, str, str]]
_WHEN: Final[dict[Routing, str]] = {
    "reviewed": "reviewed from time to time",
    "per-tuple": "chosen for each row",
}
_LABEL: Final = "µs of CPU per element, least of the rounds"
_BLOCK: Final = 200
"""Elements that an engine takes before another one does."""
_COLD: Final = 1000
"""A row of the stream whose values are rare finds so many times fewer partners."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Streams that are joined on one value.

    Args:
        drift: the roles that move to the next stream in each phase.
        partners: average matches of a row in another window.
        rate: elements of the fastest stream relative to each other one.
        window: elements in all windows.
        rare: the stream with rare values, unless moving.
    """

    drift: Literal["nothing", "selectivity", "rate", "both"] = "both"
    streams: int = 4
    partners: float = 16.0
    rate: float = 4.0
    window: int = 400
    rare: int = 0

    @property
    def query(self) -> str:
        clauses = (
            f"STREAM <urn:s{each}> [RANGE {self.window}ms] {{ ?k <urn:p{each}> ?v{each} }}"
            for each in range(self.streams)
        )
        return f"SELECT * {{ {' '.join(clauses)} }}"

    def elements(self, random: Random, count: int, phases: int) -> list[_Element]:
        """Return elements, one each millisecond: the stream and the triple."""
        made = []
        for number in range(count):
            phase = number * phases // count
            cold = {self.rare}
            if self.drift in ("selectivity", "both"):
                # Until the window has nothing else, the one of before has rare values, too.
                before = max(0, number - self.window) * phases // count
                cold = {phase % self.streams, before % self.streams}
            rapid = (phase + 1) % self.streams if self.drift in ("rate", "both") else 1
            weights = [self.rate if each == rapid else 1.0 for each in range(self.streams)]
            (stream,) = random.choices(range(self.streams), weights)
            values = max(1, round(self.window / self.streams / self.partners))
            value = random.randrange(values * _COLD if stream in cold else values)
            triple = (f"<urn:k{value}>", f"<urn:p{stream}>", f'"{number % 100}"')
            made.append((f"urn:s{stream}", triple))
        return made


_BASE: Final = Workload()
DRIFT_CASES: Final = {
    "nothing drifts": replace(_BASE, drift="nothing"),
    "the rare one is written last": replace(_BASE, drift="nothing", rare=3),
    "selectivity drifts": replace(_BASE, drift="selectivity"),
    "rate drifts": replace(_BASE, drift="rate"),
    "both drift": _BASE,
    "3 streams": replace(_BASE, streams=3),
    "6 streams": replace(_BASE, streams=6, partners=8.0),
    "4 partners": replace(_BASE, partners=4.0),
    "32 partners": replace(_BASE, partners=32.0),
    "equal rates": replace(_BASE, rate=1.0, drift="selectivity"),
    "rate 16 times": replace(_BASE, rate=16.0),
    "100 in windows": replace(_BASE, window=100),
    "1600 in windows": replace(_BASE, window=1600),
}
"""One of the parameters other than in the middle, each."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Measured elements, and phases, after each of which something drifts."""

    elements: int = 60_000
    phases: int = 12

    @classmethod
    def quick(cls) -> Self:
        return cls(elements=4_000, phases=4)


class Adaptivity:
    """The experiment."""

    name = "adaptivity"
    question = (
        "What does an element of a join of streams cost where their rates and selectivities drift, "
        "if routes are fixed, reviewed from time to time, or chosen for each row?"
    )
    settings = Sizes
    keys = ("case",)
    values = (
        "us_fixed", "us_reviewed", "us_per_tuple", "rows", "rerouted_reviewed",
        "rerouted_per_tuple", "held",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        yield items.MeasurementGroup(
            "joins of streams",
            nullcontext,
            [
                items.Measurement({"case": name}, partial(_measure, settings, run.seed, workload))
                for name, workload in DRIFT_CASES.items()
            ],
        )

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return a table, a figure, and the cheapest routing."""
        costs = {
            routing: {
                case: min(results.numbers(_column(routing), case=case))
                for case in results.distinct("case")
            }
            for routing in ROUTINGS
        }
        yield results.table("Per element", {"case": "case"}, {name: name for name in self.values})
        bars: dict[str, list[items.Point]] = {
            routing: [items.Point(case, cost) for case, cost in each.items()]
            for routing, each in costs.items()
        }
        title = "An element of a join, by when routes are chosen"
        yield items.Figure("adaptivity", title, "streams", _LABEL, bars, kind="bars")
        means = {
            routing: geometric_mean([each[case] / cost for case, cost in costs["fixed"].items()])
            for routing, each in costs.items()
            if each
        }
        for routing, when in _WHEN.items():
            if routing in means:
                yield items.Finding(
                    f"Routes that are {when} cost {rounded(means[routing])} times the CPU of "
                    "fixed ones in the geometric mean of all cases.",
                    headline=True,
                )
        yield from checks("adaptivity", {"adaptive": lambda: means.get("reviewed")})


def _column(routing: Routing) -> str:
    return f"us_{routing.replace('-', '_')}"


class _Side:
    def __init__(self, workload: Workload, routing: Routing) -> None:
        self.engine = Engine(EngineSettings(routing=routing))
        self.rows = 0
        self.seconds = 0.0
        self.query = self.engine.register(workload.query, self.take)

    def take(self, emission: Emission) -> None:
        self.rows += len(emission.rows)

    def push(self, begin: int, elements: Sequence[_Element]) -> None:
        push, started = self.engine.push, time.thread_time()
        for at, (stream, triple) in enumerate(elements, start=begin):
            push(stream, triple, at)
        self.seconds += time.thread_time() - started


def _measure(
    settings: Sizes, seed: int, workload: Workload, _opened: Any
) -> Iterable[items.ResultRow]:
    elements = workload.elements(Random(seed), settings.elements, settings.phases)
    sides = {routing: _Side(workload, routing) for routing in ROUTINGS}
    for begin in range(0, len(elements), _BLOCK):
        for side in sides.values():
            side.push(begin, elements[begin : begin + _BLOCK])
    (rows,) = {side.rows for side in sides.values()}
    joins = {routing: side.query.explain()["joins"] for routing, side in sides.items()}
    rerouted = {routing: sum(join["rerouted"] for join in each) for routing, each in joins.items()}
    yield {
        **{_column(each): side.seconds / len(elements) * 1e6 for each, side in sides.items()},
        "rows": rows,
        "rerouted_reviewed": rerouted["reviewed"],
        "rerouted_per_tuple": rerouted["per-tuple"],
        "held": sum(entry["rows"] for join in joins["fixed"] for entry in join["inputs"]),
    }
    for side in sides.values():
        side.engine.close()
