"""``cost-model``: the cost of a million clients, extrapolated from measurements of some hundred.

An *instance* is one worker process on one core. With n clients on k instances

    load of an instance    fixed + per_client · n / k           percent of a core
    allowed load           100 · min(utilisation, deadline / period)
    so                     k = ⌈per_client · n / (allowed − fixed)⌉
    memory                 k · memory_fixed + memory_per_client · n
    traffic                bytes_per_client · n
    machines               the most of k / cores, memory / memory of a machine, traffic / network
    cost per month         machines · price + traffic · price

`fixed` is the load without clients. Load bursts at renewals and must be done within the deadline.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from experiments.errors import MeasurementError
from experiments.harness import items
from experiments.harness.report import FACTS, RAW, rounded, shown_value
from experiments.harness.results import RawData, Results
from experiments.studies import boards
from experiments.studies.server_vs_client import ServerVsClient

MODES = (
    boards.STREAMER.name,
    boards.WITHOUT_DELTAS.name,
    boards.CACHED.name,
    boards.CQELS_MODE.name,
    boards.CSPARQL_MODE.name,
)
FIT, CHECK, SIZE_PART, SIMULATION = "fit", "held out", "size", "simulation"
"""The parts of the results."""
_TABLES = {
    FIT: ("Inputs of the formula: fixed + per client · n", ("quantity",), {
        "fixed": "fixed", "per_client": "per client", "period": "period, s",
    }),
    SIZE_PART: ("What it takes", ("clients", "limit"), {
        "instances": "instances", "caches": "caches", "memory_gib": "GiB", "machines": "machines",
        "gb_month": "GB per month", "cost_month": "cost per month",
        "client_cores": "cores at the clients",
    }),
    CHECK: ("Numbers of clients that the fit did not see", ("quantity", "clients"), {
        "predicted": "predicted", "measured": "measured",
    }),
    SIMULATION: ("Simulation: all come within the jitter after a renewal", ("clients",), {
        "instances": "instances", "predicted_busy": "formula: load, %", "busy": "simulated, %",
        "busiest": "of the busiest, %", "wait_p50_s": "wait and service, median s",
        "wait_p99_s": "99 %, s",
    }),
}  # fmt: skip
"""Title, further keys and columns of the table of each part."""
SECONDS_PER_MONTH = 365.25 / 12 * 86_400


@dataclass(frozen=True, slots=True)
class Line:
    """``fixed + per_client · n``; neither is negative."""

    fixed: float
    per_client: float

    def at(self, clients: float) -> float:
        return self.fixed + self.per_client * clients


def fitted(points: Mapping[float, float]) -> Line:
    """Fit a line with the least squared relative errors."""
    from scipy.optimize import nnls  # which takes long to load

    if len(points) < 2:
        raise MeasurementError("a line needs two numbers of clients")
    numbers, values = np.array(list(points.items())).T
    weights = 1 / np.maximum(values, 1e-9)
    (fixed, per_client), _ = nnls(np.stack([weights, weights * numbers], axis=1), weights * values)
    return Line(float(fixed), float(per_client))


@dataclass(frozen=True, slots=True)
class Costs:
    """The measurements of a mode: percent of a core, bytes per second, MiB and seconds."""

    server: Line
    cache: Line | None
    clients: Line
    traffic: Line
    memory: Line
    period: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Requirements and example prices.

    Args:
        fit_most: most clients of the fit; larger numbers check it.
        utilisation: largest mean share of a core in use.
        deadline: seconds until everybody has the answer after a renewal.
        machine_memory: in GiB; the network in Gbit/s.
        machine_price: per month, in any currency.
        traffic_price: of an outgoing gigabyte.
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
        return cls(simulated=(1_000, 100_000), simulated_periods=2)

    def allowed(self, period: float) -> float:
        """Return the allowed mean load of an instance, in percent of a core."""
        return 100 * min(self.utilisation, self.deadline / period)


@dataclass(frozen=True, slots=True)
class Size:
    """The computed resources; `machines` are for server and cache, `limit` binds."""

    instances: int
    caches: int
    memory_gib: float
    machines: int
    client_cores: float
    gb_month: float
    cost_month: float
    limit: str


def instances(line: Line, clients: float, allowed: float) -> int:
    """Return the number of instances; `MeasurementError` if one has no room for a client."""
    room = allowed - line.fixed
    if room <= 0:
        raise MeasurementError("what is published takes all that an instance may use")
    return max(1, math.ceil(line.per_client * clients / room))


def size(costs: Costs, prices: Sizes, clients: float) -> Size:
    """Return the resources for so many clients; caches load the server as measured."""
    allowed = prices.allowed(costs.period)
    if costs.cache is None:
        caches, needed = 0, instances(costs.server, clients, allowed)
    else:
        caches = instances(costs.cache, clients, allowed)
        load = costs.server.fixed * caches + costs.server.per_client * clients
        needed = max(1, math.ceil(load / allowed))
    memory = (needed * costs.memory.fixed + costs.memory.per_client * clients) / 1024
    traffic = costs.traffic.at(clients)
    by_limit = {
        "cores": math.ceil((needed + caches) / prices.machine_cores),
        "memory": math.ceil(memory / prices.machine_memory),
        "network": math.ceil(8 * traffic / (1e9 * prices.machine_network)),
    }
    limit = max(by_limit, key=lambda name: by_limit[name])
    machines = max(1, by_limit[limit])
    gigabytes = traffic * SECONDS_PER_MONTH / 1e9
    cost = machines * prices.machine_price + gigabytes * prices.traffic_price
    cores = costs.clients.at(clients) / 100
    return Size(needed, caches, memory, machines, cores, gigabytes, cost, limit)


@dataclass(frozen=True, slots=True)
class LineComparison:
    """`below`: a line is below another for large n, beyond any `crossing`."""

    below: bool
    crossing: float | None


def compared_lines(one: Line, other: Line) -> LineComparison:
    """Return where `one` is below `other`."""
    slope = other.per_client - one.per_client
    start = other.fixed - one.fixed
    below = slope > 0 or (slope == 0 and start > 0)
    crossing = -start / slope if slope else None
    return LineComparison(below, crossing if crossing is not None and crossing > 0 else None)


def simulated(
    load: Line, clients: int, instances: int, period: float, spread: float, periods: int, seed: int
) -> dict[str, float]:
    """Simulate clients renewed at once, first come, first served, apart from the formula.

    They arrive within `spread` seconds and are served for exponentially distributed times. Returns
    the load of instances (mean, maximum) and seconds to the end of service (median, 99th
    percentile).
    """
    chance = np.random.default_rng(seed)
    assigned = chance.integers(0, instances, clients)
    each = load.per_client / 100 * period
    own = load.fixed / 100 * period
    waits = []
    busy = np.zeros(instances)
    free = np.zeros(instances)
    order = np.argsort(assigned, kind="stable")
    bounds = np.searchsorted(assigned[order], np.arange(instances + 1))
    for number in range(periods + 1):
        begin = number * period
        arrivals = begin + chance.uniform(0, spread, clients)
        services = chance.exponential(each, clients)
        for instance in range(instances):
            mine = order[bounds[instance] : bounds[instance + 1]]
            mine = mine[np.argsort(arrivals[mine])]
            came = np.concatenate(([begin], arrivals[mine]))
            came[0] = max(begin, free[instance])  # the renewal waits for what is left
            took = np.concatenate(([own], services[mine]))
            done = np.cumsum(took)
            # Each begins when it has come and the one before it is done.
            ends = done + np.maximum.accumulate(came - (done - took))
            free[instance] = ends[-1]
            if number:
                busy[instance] += took.sum()
                waits.append(ends[1:] - came[1:])
    every = np.concatenate(waits)
    shares = 100 * busy / (periods * period)
    return {
        "busy": float(shares.mean()),
        "busiest": float(shares.max()),
        "wait_p50_s": float(np.median(every)),
        "wait_p99_s": float(np.percentile(every, 99)),
    }


@dataclass(frozen=True, slots=True)
class MeasuredTotals:
    """The results and settings of ``server-vs-client``."""

    totals: Results
    period: float
    step: float
    spread: float
    settings: Sizes
    seed: int


class CostModel:
    """The experiment; it computes from results of ``server-vs-client`` in the same folder."""

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

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return one group: every part for every mode."""
        parts = {FIT: _fit, CHECK: _check, SIZE_PART: _sizes, SIMULATION: _simulate}
        measurements = [
            items.Measurement({"part": part, "mode": mode}, partial(compute, mode), repetitions=1)
            for part, compute in parts.items()
            for mode in MODES
        ]
        yield items.MeasurementGroup("model", partial(_open, settings, run), measurements)

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return findings, the inputs, the formula's results, the checks."""
        lines: dict[str, dict[str, Line]] = {}
        for row in results.where(part=FIT).rows:
            line = Line(float(row["fixed"]), float(row["per_client"]))
            lines.setdefault(row["mode"], {})[row["quantity"]] = line
        yield from _sentences(results, lines)
        for part, (title, keys, columns) in _TABLES.items():
            yield results.where(part=part).table(
                title, {name: name for name in ("mode", *keys)}, columns
            )
        for name, column, title, label in (
            ("cost", "cost_month", "Cost per month, with the prices of the configuration", "cost"),
            ("instances", "instances", "Instances of the server", "instances (cores)"),
        ):
            series = results.series("mode", "clients", column, part=SIZE_PART)
            yield items.Figure(
                name, title, "clients", label, series, log_x=True, log_y=True, places=boards.PLACES
            )
        both = {
            mode: [
                items.Point(n, _added(each, "clients").at(n)) for n in (1, 10, 100, 1000, 10_000)
            ]
            for mode, each in lines.items()
        }
        yield items.Figure(
            "both-sides", "CPU of server, cache and clients together, by the formula", "clients",
            "% of a core", both, log_x=True, log_y=True, markers=False, places=boards.PLACES,
        )  # fmt: skip
        held_out = results.where(part=CHECK, quantity="server")
        predicted = {
            f"{mode}, {column}": held_out.points("clients", column, mode=mode)
            for mode in held_out.distinct("mode")
            for column in ("measured", "predicted")
        }
        yield items.Figure(
            "held-out", "CPU of the server: measured, and predicted from fewer clients", "clients",
            "% of a core", predicted, log_x=True, log_y=True,
            places={f"{mode}, measured": place for mode, place in boards.PLACES.items()},
        )  # fmt: skip


def _added(lines: Mapping[str, Line], *clients: str) -> Line:
    each = [lines[name] for name in ("server", "cache", *clients) if name in lines]
    return Line(sum(line.fixed for line in each), sum(line.per_client for line in each))


def _sentences(
    results: Results, lines: Mapping[str, Mapping[str, Line]]
) -> Iterator[items.Finding]:
    sizes = results.where(part=SIZE_PART)
    most = max((int(n) for n in sizes.distinct("clients")), default=0)
    parts = [
        f"{rounded(float(row['cost_month']))} in {row['mode']} ({row['machines']} machines)"
        for row in sizes.where(clients=most).rows
    ]
    if parts:
        yield items.Finding(
            f"Extrapolated to {most:,} clients, with the prices of the configuration, a month "
            f"costs {'; '.join(parts)}.",
            headline=True,
        )
    for mode in (boards.CQELS_MODE.name, boards.CSPARQL_MODE.name):
        for what, clients in (("the server alone", ()), ("both sides together", ("clients",))):
            if mode in lines and boards.STREAMER.name in lines:
                ours, theirs = (
                    _added(lines[name], *clients) for name in (boards.STREAMER.name, mode)
                )
                comparison = compared_lines(ours, theirs)
                where = "at every number of clients" if comparison.crossing is None else (
                    f"above {rounded(comparison.crossing)} clients"
                )  # fmt: skip
                less = "less" if comparison.below else "more"
                yield items.Finding(
                    f"By the fitted lines, {what}: fragments take {less} CPU than {mode} {where}.",
                    headline=True,
                )
    errors = [
        abs(float(row["predicted"]) / float(row["measured"]) - 1)
        for row in results.where(part=CHECK).rows
        if row["quantity"] != "memory" and float(row["measured"] or 0)
    ]
    if errors:
        yield items.Finding(
            "At numbers of clients which the fit did not see, the formula is off by at most "
            f"{rounded(100 * max(errors))} %."
        )
    elif lines:
        yield items.Finding(
            "No larger number of clients was measured, so nothing measured checks it."
        )
    simulated_rows = results.where(part=SIMULATION)
    off = [abs(float(r["predicted_busy"]) / float(r["busy"]) - 1) for r in simulated_rows.rows]
    if off:
        yield items.Finding(
            f"The simulation's load of an instance differs from the formula's by at most "
            f"{rounded(100 * max(off))} %; 99 of 100 clients are served within "
            f"{shown_value(max(simulated_rows.numbers('wait_p99_s')))} s in every case."
        )


@contextmanager
def _open(settings: Sizes, run: items.Run) -> Iterator[MeasuredTotals]:
    experiment = ServerVsClient()
    folder = (run.output or Path()) / experiment.name
    if run.output is None or not (folder / RAW).is_file():
        raise MeasurementError(
            f"there are no results of {experiment.name} in the same folder: run it first"
        )
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))["settings"]
    totals = RawData(folder / RAW, experiment).results({}).where(kind="total")
    yield MeasuredTotals(
        totals, facts["period"], facts["step"], facts["jitter"], settings, run.seed
    )


def _points(opened: MeasuredTotals, mode: str, column: str) -> dict[float, float]:
    points = opened.totals.points("queries", column, mode=mode)
    return {float(point.x): point.y for point in points}


def _quantities(opened: MeasuredTotals, mode: str) -> dict[str, dict[float, float]]:
    seconds = _points(opened, mode, "seconds")
    received, heads = (_points(opened, mode, name) for name in ("bytes", "head_bytes"))
    result = {
        "server": _points(opened, mode, "server_percent"),
        "clients": _points(opened, mode, "clients_percent"),
        "traffic": {n: received[n] / seconds[n] for n in received},
        "of which heads": {n: heads[n] / seconds[n] for n in heads},
        "memory": _points(opened, mode, "server_memory_mib"),
    }
    if mode == boards.CACHED.name:
        result["cache"] = _points(opened, mode, "cache_percent")
    return result


def _fit_lines(opened: MeasuredTotals, mode: str) -> dict[str, Line]:
    lines = {}
    for name, points in _quantities(opened, mode).items():
        few = {n: y for n, y in points.items() if n <= opened.settings.fit_most}
        try:
            lines[name] = fitted(few)
        except MeasurementError as error:
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
    return opened.step if mode == boards.CSPARQL_MODE.name else opened.period


def _fit(mode: str, opened: Any) -> Iterator[items.ResultRow]:
    fitted_to = [
        f"{n:g}" for n in _points(opened, mode, "server_percent") if n <= opened.settings.fit_most
    ]
    for name, line in _fit_lines(opened, mode).items():
        yield {
            "quantity": name, "fixed": line.fixed, "per_client": line.per_client,
            "fitted_to": " ".join(fitted_to), "period": _burst(opened, mode),
        }  # fmt: skip


def _check(mode: str, opened: Any) -> Iterator[items.ResultRow]:
    lines = _fit_lines(opened, mode)
    for name, points in _quantities(opened, mode).items():
        for n, y in points.items():
            if n > opened.settings.fit_most:
                yield {
                    "clients": int(n), "quantity": name, "predicted": lines[name].at(n),
                    "measured": y,
                }  # fmt: skip


def _sizes(mode: str, opened: Any) -> Iterator[items.ResultRow]:
    costs = _costs(opened, mode)
    for clients in opened.settings.clients:
        yield {"clients": clients, **asdict(size(costs, opened.settings, clients))}


def _simulate(mode: str, opened: Any) -> Iterator[items.ResultRow]:
    costs, settings = _costs(opened, mode), opened.settings
    # Behind a cache it is the cache that clients wait for.
    load = costs.server if costs.cache is None else costs.cache
    for clients in settings.simulated:
        computed = size(costs, settings, clients)
        count = computed.caches or computed.instances
        waits = simulated(
            load, clients, count, costs.period, min(opened.spread, costs.period),
            settings.simulated_periods, opened.seed,
        )  # fmt: skip
        yield {
            "clients": clients, "instances": count,
            "predicted_busy": load.fixed + load.per_client * clients / count,
            "period": costs.period, **waits,
        }  # fmt: skip
