"""The report of ``cost-model``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from experiments.harness.items import Figure, Finding, Item, Point, Table
from experiments.harness.report import rounded, sentence_list, shown_value
from experiments.harness.results import Results
from experiments.studies.board_modes import CACHED, CQELS_MODE, CSPARQL_MODE, PLACES, STREAMER
from experiments.studies.cost_formula import (
    Line,
    LineComparison,
    compared_lines,
)

MODES = (STREAMER.name, CACHED.name, CQELS_MODE.name, CSPARQL_MODE.name)
FIT, CHECK, SIZE_PART, SIMULATION = "fit", "held out", "size", "simulation"
"""The parts of the results."""


def cost_model_report(results: Results) -> Iterator[Item]:
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
        series = dict(results.series("mode", "clients", column, part=SIZE_PART))
        yield Figure(name, title, "clients", label, series, log_x=True, log_y=True, places=PLACES)
    yield _both_sides(lines)
    yield _held_out(results)
    yield _simulation_table(results)


def _lines(results: Results) -> Mapping[str, Mapping[str, Line]]:
    """The lines that were fitted, by mode and quantity."""
    found: dict[str, dict[str, Line]] = {}
    for row in results.where(part=FIT).rows:
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
    most = max((int(n) for n in results.where(part=SIZE_PART).distinct("clients")), default=0)
    parts = [
        f"{rounded(float(row['cost_month']))} per month in {row['mode']} "
        f"({row['machines']} machines, {rounded(float(row['gb_month']))} GB; "
        f"{shown_value(float(row['client_cores']))} cores busy at the clients)"
        for row in results.where(part=SIZE_PART, clients=most).rows
    ]
    periods = results.where(part=FIT, mode=STREAMER.name).numbers("period")
    if parts:
        renewed = f" whose facts are renewed every {periods[0]:g} s" if periods else ""
        yield Finding(
            f"Extrapolated to {most:,} clients{renewed}, with the prices of the configuration: "
            f"{'; '.join(parts)}.",
            headline=True,
        )
    for mode in (CQELS_MODE.name, CSPARQL_MODE.name):
        if mode not in lines or STREAMER.name not in lines:
            continue
        for what, total in (
            ("the server alone", _server_side), ("server and clients together", _everything),
        ):  # fmt: skip
            found = compared_lines(total(lines[STREAMER.name]), total(lines[mode]))
            yield Finding(
                f"By the fitted lines, for {what}, {_in_words(found, mode)}.", headline=True
            )


def _in_words(found: LineComparison, mode: str) -> str:
    one, other = ("fragments", mode) if found.below else (mode, "fragments")
    if found.crossing is None:
        return f"{one} take less CPU than {other} at every number of clients".replace(
            f"{mode} take ", f"{mode} takes "
        )
    text = f"{one} take less CPU than {other} above {rounded(found.crossing)} clients"
    return text.replace(f"{mode} take ", f"{mode} takes ") + ", more below"


def _checks(results: Results) -> Iterator[Finding]:
    for mode in MODES:
        rows = results.where(part=CHECK, mode=mode).rows
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
                    f"{rounded(100 * errors[largest])} % (at {largest:,})."
                )
    if results.where(part=FIT).rows and not any(
        row["predicted"] for row in results.where(part=CHECK).rows
    ):
        yield Finding(
            "No larger number of clients was measured than those that the lines were fitted to, "
            "so nothing measured checks them."
        )
    simulation = results.where(part=SIMULATION)
    off = [abs(float(row["predicted_busy"]) / float(row["busy"]) - 1) for row in simulation.rows]
    if off:
        yield Finding(
            f"The simulation's load of an instance differs from the formula's by at most "
            f"{rounded(100 * max(off))} %; 99 of 100 clients are served within "
            f"{shown_value(max(simulation.numbers('wait_p99_s')))} s of their request in every "
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
        for row in results.where(part=FIT).rows
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
        for row in results.where(part=SIZE_PART).rows
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
        "% of a core", series, log_x=True, log_y=True, markers=False, places=PLACES,
    )  # fmt: skip


def _held_out(results: Results) -> Figure:
    series: dict[str, list[Point]] = {}
    for mode in MODES:
        rows = results.where(part=CHECK, mode=mode, quantity="server").rows
        for column in ("measured", "predicted"):
            points = [Point(float(row["clients"]), float(row[column])) for row in rows]
            if points:
                series[f"{mode}, {column}"] = points
    return Figure(
        "held-out", "CPU of the server: measured, and predicted from fewer clients", "clients",
        "% of a core", series, log_x=True, log_y=True,
        places={f"{mode}, measured": place for mode, place in PLACES.items()},
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
        for row in results.where(part=SIMULATION).rows
    ]
    header = (
        "mode", "clients", "instances", "formula: load, %", "simulated, %", "of the busiest, %",
        "wait and service, median s", "99 %, s",
    )  # fmt: skip
    return Table("Simulation: all come within the jitter after a renewal", header, rows)
