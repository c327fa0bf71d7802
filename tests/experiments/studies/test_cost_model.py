"""The cost model: formula, simulation and report."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.errors import MeasurementError
from experiments.harness.items import Measurement, ResultRow
from experiments.harness.report import FACTS, RAW
from experiments.harness.results import RawData
from experiments.studies.boards import CACHED, CQELS_MODE, CSPARQL_MODE, STREAMER, WITHOUT_DELTAS
from experiments.studies.cost_model import (
    CostModel,
    Costs,
    Line,
    LineComparison,
    Sizes,
    compared_lines,
    fitted,
    instances,
    simulated,
    size,
)
from experiments.studies.server_vs_client import ServerVsClient
from tests.experiments.harness.test_runner import run
from tests.support.reports import Reported

PRICES = Sizes(
    utilisation=0.5, deadline=2.0, machine_cores=4, machine_memory=8.0, machine_network=1.0,
    machine_price=100.0, traffic_price=0.1,
)  # fmt: skip
numbers = st.floats(0, 1e3)


@given(numbers, numbers, st.sets(st.integers(1, 1000), min_size=2, max_size=6))
def test_a_line_is_found_again(fixed: float, per_client: float, sizes: set[int]) -> None:
    line = Line(fixed, per_client)
    found = fitted({float(n): line.at(n) for n in sizes})
    for n in sizes:
        assert found.at(n) == pytest.approx(line.at(n), rel=1e-3, abs=1e-6)


def test_lines_are_never_negative() -> None:
    falling = fitted({10: 5.0, 20: 3.0})
    assert falling.per_client == 0
    assert 3 < falling.fixed < 5
    steep = fitted({10: 1.0, 20: 3.0})
    assert steep.fixed == 0
    assert 0.1 < steep.per_client < 0.15
    with pytest.raises(MeasurementError, match="two numbers"):
        fitted({10: 1.0})


def test_instances_by_hand() -> None:
    # 20 % of a core may be used (2 s of 10 s), 2 % are taken by publishing: 18 % for clients.
    assert PRICES.allowed(10.0) == pytest.approx(20.0)
    assert PRICES.allowed(1.0) == pytest.approx(50.0)
    assert instances(Line(2.0, 0.01), 1800, 20.0) == 1
    assert instances(Line(2.0, 0.01), 1801, 20.0) == 2
    assert instances(Line(2.0, 0.01), 1_000_000, 20.0) == math.ceil(10_000 / 18)
    with pytest.raises(MeasurementError, match="published"):
        instances(Line(20.0, 0.01), 1, 20.0)


def costs(cache: Line | None = None, traffic: float = 100.0, memory: float = 0.5) -> Costs:
    return Costs(
        Line(2.0, 0.01), cache, Line(0.0, 0.1), Line(0.0, traffic), Line(100.0, memory), 10.0
    )


def test_what_limits_the_machines() -> None:
    few = size(costs(), PRICES, 100)
    assert (few.instances, few.caches, few.machines) == (1, 0, 1)
    assert few.client_cores == pytest.approx(0.1)
    assert few.memory_gib == pytest.approx(150 / 1024)
    cores = size(costs(), PRICES, 18_000)
    assert (cores.instances, cores.machines, cores.limit) == (10, 3, "cores")
    memory = size(costs(memory=10.0), PRICES, 18_000)
    assert (memory.machines, memory.limit) == (math.ceil((1000 + 180_000) / 1024 / 8), "memory")
    network = size(costs(traffic=100_000.0), PRICES, 18_000)
    assert (network.machines, network.limit) == (15, "network")
    month = 365.25 / 12 * 86_400
    assert network.gb_month == pytest.approx(1.8 * month)
    assert network.cost_month == pytest.approx(1500 + 0.18 * month)


def test_every_cache_asks_the_server() -> None:
    found = size(costs(cache=Line(0.0, 0.001)), PRICES, 100_000)
    assert found.caches == 5
    # Each cache causes the 2 % that the measured one did; the rest grows with the clients.
    assert found.instances == math.ceil((5 * 2 + 1000) / 20)


def test_break_even() -> None:
    assert compared_lines(Line(1, 2), Line(3, 1)) == LineComparison(below=False, crossing=2)
    assert compared_lines(Line(3, 1), Line(1, 2)) == LineComparison(below=True, crossing=2)
    assert compared_lines(Line(1, 1), Line(2, 2)) == LineComparison(below=True, crossing=None)
    assert compared_lines(Line(1, 1), Line(2, 1)) == LineComparison(below=True, crossing=None)


def test_the_simulation_has_the_load_of_the_formula() -> None:
    load = Line(5.0, 0.02)
    waits = simulated(load, 20_000, 10, period=10.0, spread=0.5, periods=3, seed=1)
    assert waits["busy"] == pytest.approx(load.at(2000), rel=0.03)
    assert waits["busiest"] >= waits["busy"]


def test_a_burst_is_worked_off_in_its_own_time() -> None:
    # One instance, and all come within no time: the last one waits for the work of all.
    load = Line(0.0, 0.02)
    waits = simulated(load, 1000, 1, period=10.0, spread=1e-9, periods=2, seed=1)
    work = 1000 * 0.02 / 100 * 10
    assert waits["wait_p99_s"] == pytest.approx(work, rel=0.1)
    assert waits["wait_p50_s"] == pytest.approx(work / 2, rel=0.1)
    # Spread over the whole period nearly nobody waits.
    assert (
        simulated(load, 1000, 1, period=10.0, spread=10.0, periods=2, seed=1)["wait_p99_s"] < 0.05
    )


def measured(folder: Path, per_client: dict[str, float]) -> None:
    """Results of the other experiment, with costs on exact lines."""
    experiment = ServerVsClient()
    place = folder / experiment.name
    place.mkdir()
    raw = RawData(place / RAW, experiment)
    for mode, each in per_client.items():
        for n in (10, 50, 100, 200):
            key = {"source": "irail", "mode": mode, "queries": n}
            row: ResultRow = {
                "kind": "total", "server_percent": 1 + each * n, "clients_percent": n / 10,
                "bytes": 1000 * n, "head_bytes": 500 * n, "seconds": 20.0,
                "server_memory_mib": 100 + n / 10,
                "cache_percent": n / 1000 if mode == CACHED.name else None,
            }  # fmt: skip
            raw.add(Measurement(key, lambda _: []), 0, [row])
    settings = {"period": 10.0, "step": 1.0, "jitter": 0.5}
    (place / FACTS).write_text(json.dumps({"settings": settings}))


def test_the_model_from_measurements(tmp_path: Path) -> None:
    modes = {STREAMER.name: 0.01, CACHED.name: 0.0, CQELS_MODE.name: 0.03, CSPARQL_MODE.name: 0.5}
    modes[WITHOUT_DELTAS.name] = 0.01
    measured(tmp_path, modes)
    sizes = {"clients": [1000], "simulated": [1000], "simulated_periods": 1}
    results = run(tmp_path, CostModel(), tables={"cost-model": sizes})
    assert results.complete
    for mode, each in modes.items():
        (row,) = results.where(part="fit", mode=mode, quantity="server").rows
        assert float(row["per_client"]) == pytest.approx(each, abs=1e-6)
        assert row["fitted_to"] == "10 50 100"
    (check,) = results.where(part="held out", mode=CQELS_MODE.name, quantity="server").rows
    assert check["clients"] == "200"
    assert float(check["predicted"]) == pytest.approx(7.0)
    (row,) = results.where(part="size", mode=CQELS_MODE.name).rows
    assert row["instances"] == "2"  # 30 % of a core, of which an instance may use 20 - 1
    assert float(row["gb_month"]) == pytest.approx(1000 * 50 * 365.25 / 12 * 86_400 / 1e9)
    text = "\n".join(Reported(CostModel(), results).texts)
    assert "which the fit did not see, the formula is off by at most 0 %" in text
    assert "server alone: fragments take less CPU than CQELS mode at every number" in text


def test_without_measurements_it_says_so(tmp_path: Path) -> None:
    results = run(tmp_path, CostModel())
    assert not results.complete
    assert "run it first" in results.left_out["model"]


def test_a_mode_that_was_measured_once_is_left_out(tmp_path: Path) -> None:
    measured(tmp_path, {STREAMER.name: 0.01})
    sizes = {"clients": [1000], "simulated": [1000], "simulated_periods": 1, "fit_most": 1000}
    results = run(tmp_path, CostModel(), tables={"cost-model": sizes})
    assert all("measured with 0 numbers" in reason for reason in results.failures.values())
    assert len(results.failures) == 16
    assert "so nothing measured checks it" in "\n".join(Reported(CostModel(), results).texts)
