"""``cost-model``: what a million clients would take, from measurements of some hundred."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from experiments.errors import MeasurementError, UnavailableError
from experiments.harness.items import Figure, Finding, Item, Point, Table
from experiments.harness.measurement import Measurement, MeasurementGroup, Row, Run
from experiments.harness.report import FACTS, RAW, sentence_list, show
from experiments.harness.results import RawData, Results
from experiments.studies.board_modes import CACHED, CQELS, CSPARQL, STREAMER
from experiments.studies.cost_formula import (
    Costs,
    Line,
    LineComparison,
    Prices,
    compared,
    fitted,
    size,
)
from experiments.studies.cost_simulation import simulated
from experiments.studies.server_vs_client import ServerVsClient

_MODES = (STREAMER.name, CACHED.name, CQELS.name, CSPARQL.name)
_FIT, _CHECK, _SIZE, _SIMULATION = "fit", "held out", "size", "simulation"


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
        parts = {_FIT: _fit, _CHECK: _check, _SIZE: _sizes, _SIMULATION: _simulate}
        measurements = [
            Measurement({"part": part, "mode": mode}, partial(compute, mode), repetitions=1)
            for part, compute in parts.items()
            for mode in _MODES
        ]
        yield MeasurementGroup("model", partial(_open, settings, run), measurements)

    def report(self, results: Results) -> Iterable[Item]:
        """Findings, the inputs, the formula's results, the checks."""
        lines = _lines(results)
        yield from _headlines(results, lines)
        yield from _checks(results)
        yield _fits_table(results)
        yield _sizes_table(results)
        for name, column, title, label in (
            ("cost", "cost_month", "Cost per month, with the prices of the configuration", "cost"),
            ("instances", "instances", "Instances of the server", "instances (cores)"),
            ("traffic", "gb_month", "Traffic per month", "GB"),
        ):
            series = dict(results.series("mode", "clients", column, part=_SIZE))
            yield Figure(name, title, "clients", label, series, log_x=True, log_y=True)
        yield _both_sides(lines)
        yield _held_out(results)
        yield _simulation_table(results)


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
    return opened.step if mode == CSPARQL.name else opened.period


def _fit(mode: str, opened: Any) -> Iterator[Row]:
    fitted_to = [
        f"{n:g}" for n in _points(opened, mode, "server_percent") if n <= opened.settings.fit_most
    ]
    for name, line in _fit_lines(opened, mode).items():
        yield {
            "quantity": name, "fixed": line.fixed, "per_client": line.per_client,
            "fitted_to": " ".join(fitted_to), "period": _burst(opened, mode),
        }  # fmt: skip


def _check(mode: str, opened: Any) -> Iterator[Row]:
    lines = _fit_lines(opened, mode)
    for name, points in _quantities(opened, mode).items():
        for n, y in points.items():
            if n > opened.settings.fit_most:
                yield {
                    "clients": int(n), "quantity": name, "predicted": lines[name].at(n),
                    "measured": y,
                }  # fmt: skip


def _sizes(mode: str, opened: Any) -> Iterator[Row]:
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


def _simulate(mode: str, opened: Any) -> Iterator[Row]:
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


def _lines(results: Results) -> Mapping[str, Mapping[str, Line]]:
    """The lines that were fitted, by mode and quantity."""
    found: dict[str, dict[str, Line]] = {}
    for row in results.where(part=_FIT).rows:
        line = Line(float(row["fixed"]), float(row["per_client"]))
        found.setdefault(row["mode"], {})[row["quantity"]] = line
    return found


def _server_side(lines: Mapping[str, Line]) -> Line:
    return _added(lines[name] for name in ("server", "cache") if name in lines)


def _everything(lines: Mapping[str, Line]) -> Line:
    return _added(lines[name] for name in ("server", "cache", "clients") if name in lines)


def _added(lines: Iterable[Line]) -> Line:
    each = list(lines)
    return Line(sum(line.fixed for line in each), sum(line.per_client for line in each))


def _headlines(results: Results, lines: Mapping[str, Mapping[str, Line]]) -> Iterator[Finding]:
    most = max((int(n) for n in results.where(part=_SIZE).distinct("clients")), default=0)
    parts = [
        f"{float(row['cost_month']):,.0f} per month in {row['mode']} ({row['machines']} machines, "
        f"{float(row['gb_month']):,.0f} GB; {show(float(row['client_cores']))} cores busy at the "
        "clients)"
        for row in results.where(part=_SIZE, clients=most).rows
    ]
    periods = results.where(part=_FIT, mode=STREAMER.name).numbers("period")
    if parts:
        renewed = f" whose facts are renewed every {periods[0]:g} s" if periods else ""
        yield Finding(
            f"Extrapolated to {most:,} clients{renewed}, with the prices of the configuration: "
            f"{'; '.join(parts)}.",
            headline=True,
        )
    for mode in (CQELS.name, CSPARQL.name):
        if mode not in lines or STREAMER.name not in lines:
            continue
        for what, total in (
            ("the server alone", _server_side), ("server and clients together", _everything),
        ):  # fmt: skip
            found = compared(total(lines[STREAMER.name]), total(lines[mode]))
            yield Finding(
                f"By the fitted lines, for {what}, {_in_words(found, mode)}.", headline=True
            )


def _in_words(found: LineComparison, mode: str) -> str:
    one, other = ("fragments", mode) if found.below else (mode, "fragments")
    if found.crossing is None:
        return f"{one} take less CPU than {other} at every number of clients".replace(
            f"{mode} take ", f"{mode} takes "
        )
    text = f"{one} take less CPU than {other} above {found.crossing:,.0f} clients"
    return text.replace(f"{mode} take ", f"{mode} takes ") + ", more below"


def _checks(results: Results) -> Iterator[Finding]:
    for mode in _MODES:
        rows = results.where(part=_CHECK, mode=mode).rows
        for quantity in ("server", "cache", "clients", "traffic"):
            errors = {
                int(row["clients"]): abs(float(row["predicted"]) / float(row["measured"]) - 1)
                for row in rows
                if row["quantity"] == quantity and float(row["measured"] or 0)
            }
            if errors:
                largest = max(errors, key=lambda n: errors[n])
                yield Finding(
                    f"{mode}, {quantity}: at {sentence_list([f'{n:,}' for n in errors])} clients, "
                    "which the fit did not see, the formula is off by at most "
                    f"{100 * errors[largest]:.0f} % (at {largest:,})."
                )
    if results.where(part=_FIT).rows and not any(
        row["predicted"] for row in results.where(part=_CHECK).rows
    ):
        yield Finding(
            "No larger number of clients was measured than those that the lines were fitted to, "
            "so nothing measured checks them."
        )
    simulation = results.where(part=_SIMULATION)
    off = [abs(float(row["predicted_busy"]) / float(row["busy"]) - 1) for row in simulation.rows]
    if off:
        yield Finding(
            f"The simulation's load of an instance differs from the formula's by at most "
            f"{100 * max(off):.1f} %; 99 of 100 clients are served within "
            f"{show(max(simulation.numbers('wait_p99_s')))} s of their request in every "
            f"simulated case."
        )


def _fits_table(results: Results) -> Table:
    units = {
        "server": "% of a core", "cache": "% of a core", "clients": "% of a core",
        "traffic": "bytes/s", "memory": "MiB",
    }  # fmt: skip
    rows: list[Sequence[Any]] = [
        (
            row["mode"], row["quantity"], float(row["fixed"]), float(row["per_client"]),
            units[row["quantity"]], row["fitted_to"], float(row["period"]),
        )
        for row in results.where(part=_FIT).rows
    ]  # fmt: skip
    header = ("mode", "quantity", "fixed", "per client", "unit", "fitted to clients", "period, s")
    return Table("Inputs of the formula: fixed + per client · n", header, rows)


def _sizes_table(results: Results) -> Table:
    rows: list[Sequence[Any]] = [
        (
            row["mode"], int(row["clients"]), int(row["instances"]), int(row["caches"]),
            float(row["memory_gib"]), int(row["machines"]), row["limit"], float(row["gb_month"]),
            float(row["cost_month"]), float(row["client_cores"]),
        )
        for row in results.where(part=_SIZE).rows
    ]  # fmt: skip
    header = (
        "mode", "clients", "instances", "caches", "GiB", "machines", "limited by", "GB per month",
        "cost per month", "cores at the clients",
    )  # fmt: skip
    return Table("What it takes (the formula is in the documentation)", header, rows)


def _both_sides(lines: Mapping[str, Mapping[str, Line]]) -> Figure:
    series = {
        mode: [Point(n, _everything(each).at(n)) for n in (1, 10, 100, 1000, 10_000, 100_000)]
        for mode, each in lines.items()
    }
    return Figure(
        "both-sides", "CPU of server, cache and clients together, by the formula", "clients",
        "% of a core", series, log_x=True, log_y=True, markers=False,
    )  # fmt: skip


def _held_out(results: Results) -> Figure:
    series: dict[str, list[Point]] = {}
    for mode in _MODES:
        rows = results.where(part=_CHECK, mode=mode, quantity="server").rows
        for column in ("measured", "predicted"):
            points = [Point(float(row["clients"]), float(row[column])) for row in rows]
            if points:
                series[f"{mode}, {column}"] = points
    return Figure(
        "held-out", "CPU of the server: measured, and predicted from fewer clients", "clients",
        "% of a core", series, log_x=True, log_y=True,
    )  # fmt: skip


def _simulation_table(results: Results) -> Table:
    columns = ("predicted_busy", "busy", "busiest", "wait_p50_s", "wait_p99_s")
    rows: list[Sequence[Any]] = [
        (
            row["mode"],
            int(row["clients"]),
            int(row["instances"]),
            *(float(row[name]) for name in columns),
        )
        for row in results.where(part=_SIMULATION).rows
    ]
    header = (
        "mode", "clients", "instances", "formula: load, %", "simulated, %", "of the busiest, %",
        "wait and service, median s", "99 %, s",
    )  # fmt: skip
    return Table("Simulation: all come within the jitter after a renewal", header, rows)
