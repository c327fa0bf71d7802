"""``cost-model``: what a million clients would take, from measurements of some hundred."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from experiments.errors import MeasurementError, UnavailableError
from experiments.harness.items import Item
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.report import FACTS, RAW
from experiments.harness.results import RawData, Results
from experiments.studies.board_modes import CACHED, CSPARQL_MODE
from experiments.studies.cost_formula import (
    Costs,
    Line,
    Prices,
    fitted,
    size,
)
from experiments.studies.cost_model_report import (
    CHECK,
    FIT,
    MODES,
    SIMULATION,
    SIZE_PART,
    cost_model_report,
)
from experiments.studies.cost_simulation import simulated
from experiments.studies.server_vs_client import ServerVsClient


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is asked, and the prices. Prices are examples: set your own.

    Args:
        clients: for so many it is computed.
        fit_most: the lines are fitted to at most so many clients; with more they are checked.
        utilisation: to which share a core is used at most, in the mean.
        deadline: seconds within which everybody has the answer after a renewal.
        machine_cores: of a rented machine.
        machine_memory: its memory in GiB.
        machine_network: its network in Gbit/s.
        machine_price: for a month, in any currency.
        traffic_price: of a gigabyte that leaves, in the same.
        simulated: for so many clients the formula is checked by a simulation.
        simulated_periods: how many periods are simulated.
    """

    clients: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    fit_most: int = 100
    utilisation: float = 0.6
    deadline: float = 2.0
    machine_cores: int = 8
    machine_memory: float = 32.0
    machine_network: float = 1.0
    machine_price: float = 100.0
    traffic_price: float = 0.05
    simulated: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    simulated_periods: int = 3

    @classmethod
    def quick(cls) -> Self:
        """Fewer clients are simulated."""
        return cls(simulated=(1_000, 100_000), simulated_periods=2)

    def prices(self) -> Prices:
        """The inputs of the formula."""
        return Prices(
            self.utilisation, self.deadline, self.machine_cores, self.machine_memory,
            self.machine_network, self.machine_price, self.traffic_price,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MeasuredTotals:
    """What ``server-vs-client`` measured, and how."""

    totals: Results
    period: float
    step: float
    spread: float
    settings: Sizes
    seed: int


class CostModel:
    """The experiment; it computes from the results of ``server-vs-client`` in the same folder."""

    name = "cost-model"
    question = (
        "What would a million clients take in each mode: servers, traffic, money; and from how "
        "many clients on is one mode cheaper than another, on the server and on both sides "
        "together?"
    )
    settings = Sizes
    keys = ("part", "mode")
    values = (
        "clients", "quantity", "fixed", "per_client", "predicted", "measured", "fitted_to",
        "period", "instances", "caches", "memory_gib", "machines", "limit", "client_cores",
        "gb_month", "cost_month", "predicted_busy", "busy", "busiest", "wait_p50_s", "wait_p99_s",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """One group: every part for every mode."""
        parts = {FIT: _fit, CHECK: _check, SIZE_PART: _sizes, SIMULATION: _simulate}
        measurements = [
            Measurement({"part": part, "mode": mode}, partial(compute, mode), repetitions=1)
            for part, compute in parts.items()
            for mode in MODES
        ]
        yield MeasurementGroup("model", partial(_open, settings, run), measurements)

    def report(self, results: Results) -> Iterable[Item]:
        """Findings, the inputs, the formula's results, the checks."""
        return cost_model_report(results)


@contextmanager
def _open(settings: Sizes, run: Run) -> Iterator[MeasuredTotals]:
    experiment = ServerVsClient()
    folder = (run.output or Path()) / experiment.name
    if run.output is None or not (folder / RAW).is_file():
        raise UnavailableError(
            f"there are no results of {experiment.name} in the same folder: run it first"
        )
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))["settings"]
    totals = RawData(folder / RAW, experiment).results({}).where(kind="total")
    yield MeasuredTotals(
        totals, facts["period"], facts["step"], facts["jitter"], settings, run.seed
    )


def _points(opened: MeasuredTotals, mode: str, column: str) -> dict[float, float]:
    found = opened.totals.points("queries", column, mode=mode)
    return {float(point.x): point.y for point in found}


def _quantities(opened: MeasuredTotals, mode: str) -> dict[str, dict[float, float]]:
    """What is fitted, by numbers of clients."""
    seconds = _points(opened, mode, "seconds")
    received = _points(opened, mode, "bytes")
    found = {
        "server": _points(opened, mode, "server_percent"),
        "clients": _points(opened, mode, "clients_percent"),
        "traffic": {n: received[n] / seconds[n] for n in received},
        "memory": _points(opened, mode, "server_memory_mib"),
    }
    if mode == CACHED.name:
        found["cache"] = _points(opened, mode, "cache_percent")
    return found


def _fit_lines(opened: MeasuredTotals, mode: str) -> dict[str, Line]:
    lines = {}
    for name, points in _quantities(opened, mode).items():
        few = {n: y for n, y in points.items() if n <= opened.settings.fit_most}
        try:
            lines[name] = fitted(few)
        except ValueError as error:
            raise MeasurementError(
                f"{mode} was measured with {len(few)} numbers of clients up to "
                f"{opened.settings.fit_most}: {error}"
            ) from None
    return lines


def _costs(opened: MeasuredTotals, mode: str) -> Costs:
    lines = _fit_lines(opened, mode)
    return Costs(
        lines["server"], lines.get("cache"), lines["clients"], lines["traffic"], lines["memory"],
        _burst(opened, mode),
    )  # fmt: skip


def _burst(opened: MeasuredTotals, mode: str) -> float:
    """Seconds between two instants at which everybody's answer is due."""
    return opened.step if mode == CSPARQL_MODE.name else opened.period


def _fit(mode: str, opened: Any) -> Iterator[ResultRow]:
    fitted_to = [
        f"{n:g}" for n in _points(opened, mode, "server_percent") if n <= opened.settings.fit_most
    ]
    for name, line in _fit_lines(opened, mode).items():
        yield {
            "quantity": name, "fixed": line.fixed, "per_client": line.per_client,
            "fitted_to": " ".join(fitted_to), "period": _burst(opened, mode),
        }  # fmt: skip


def _check(mode: str, opened: Any) -> Iterator[ResultRow]:
    lines = _fit_lines(opened, mode)
    for name, points in _quantities(opened, mode).items():
        for n, y in points.items():
            if n > opened.settings.fit_most:
                yield {
                    "clients": int(n), "quantity": name, "predicted": lines[name].at(n),
                    "measured": y,
                }  # fmt: skip


def _sizes(mode: str, opened: Any) -> Iterator[ResultRow]:
    costs, prices = _costs(opened, mode), opened.settings.prices()
    for clients in opened.settings.clients:
        found = _sized(costs, prices, clients)
        yield {
            "clients": clients, "instances": found.instances, "caches": found.caches,
            "memory_gib": found.memory, "machines": found.machines, "limit": found.limit,
            "client_cores": found.client_cores, "gb_month": found.gigabytes,
            "cost_month": found.cost,
        }  # fmt: skip


def _sized(costs: Costs, prices: Prices, clients: int) -> Any:
    try:
        return size(costs, prices, clients)
    except ValueError as error:
        raise MeasurementError(str(error)) from None


def _simulate(mode: str, opened: Any) -> Iterator[ResultRow]:
    costs, settings = _costs(opened, mode), opened.settings
    # Behind a cache it is the cache that clients wait for.
    load = costs.server if costs.cache is None else costs.cache
    for clients in settings.simulated:
        found = _sized(costs, settings.prices(), clients)
        count = found.caches or found.instances
        waits = simulated(
            load, clients, count, costs.period, min(opened.spread, costs.period),
            settings.simulated_periods, opened.seed,
        )  # fmt: skip
        yield {
            "clients": clients, "instances": count,
            "predicted_busy": load.fixed + load.per_client * clients / count,
            "busy": waits.busy, "busiest": waits.busiest, "wait_p50_s": waits.median,
            "wait_p99_s": waits.late, "period": costs.period,
        }  # fmt: skip
