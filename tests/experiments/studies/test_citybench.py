"""``citybench``: queries in three languages, expected answers, and a small run."""

from pathlib import Path
from typing import Any

import pytest

from annotations.terms import Quad
from experiments.errors import MachineLimitError, MeasurementError, UnavailableError
from experiments.harness.report import write_report
from experiments.harness.results import MACHINE_LIMIT, Results
from experiments.studies.boards import (
    CQELS_MODE,
    CSPARQL_MODE,
    SPARK_MODE,
    START_SECONDS,
    STREAMER,
    MachineLimits,
)
from experiments.studies.citybench import (
    CITYBENCH_QUERIES,
    CITYBENCH_VARIABLE,
    UNNAMED,
    City,
    CityBenchQueries,
    CityOracle,
    OpenedCity,
    Ticks,
    _arrivals,
    _ticks,
    city,
)
from tests.experiments.harness.test_runner import run
from tests.support.reports import Reported, raw_row
from tpf_client.sparql.parser import parse_query
from tpf_server.continuous.languages.cqels.parser import parse as parse_cqels
from tpf_server.continuous.languages.csparql.parser import parse as parse_csparql

SERVER = "http://server.example/"


@pytest.fixture(scope="module")
def data() -> City:
    try:
        return city()
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", CITYBENCH_QUERIES)
def test_the_same_query_in_three_languages(data: City, name: str) -> None:
    sparql = parse_query(data.sparql(name))
    cqels = parse_cqels(data.cqels(name, SERVER))
    csparql = parse_csparql(data.csparql(name, SERVER, 7))
    assert csparql.registration is not None
    assert csparql.registration.name == f"{name}n7"
    observations = {v for v in sparql.variables if v.startswith("?obId")}
    assert observations
    assert observations == {v for v in cqels.query.variables if v.startswith("?obId")}
    assert observations == {v for v in csparql.query.variables if v.startswith("?obId")}
    sensors = {f"{sensor}>" for sensor in data.sensors(name)}
    assert {clause.stream.rpartition("#")[2] for clause in cqels.windows} == sensors
    assert {clause.stream.rpartition("#")[2] for clause in csparql.streams} == sensors
    # Static data are those of the server's datasets.
    graphs = (*csparql.query.dataset.default, *csparql.query.dataset.named)
    assert all(graph.startswith(f"<{SERVER}") for graph in graphs)


@pytest.mark.parametrize("name", UNNAMED)
def test_those_that_name_no_observation_are_registered_all_the_same(data: City, name: str) -> None:
    assert parse_query(data.sparql(name)).variables
    assert parse_cqels(data.cqels(name, SERVER)).windows
    assert parse_csparql(data.csparql(name, SERVER, 7)).streams


def test_what_an_answer_should_name(data: City) -> None:
    readings = data.readings(data.sensors("Q1"), 3)
    assert [len(tick) for tick in readings] == [2, 2, 2]
    oracle = CityOracle(data, "Q1", readings, 3)
    expected = [oracle.expected(tick) for tick in (2, 0, 1, 2)]
    assert [len(each) for each in expected] == [2, 2, 2, 2]
    assert expected[0] == expected[3]
    assert all("CongestionLevel" in each for each in set.union(*expected))
    # The distance of the user to an event decides.
    oracle = CityOracle(data, "Q4", data.readings(data.sensors("Q4"), 5), 3)
    assert {len(oracle.expected(tick)) for tick in range(5)} == {0, 1}


def test_an_answer_too_large_is_refused_before_it_is_computed(data: City) -> None:
    """Q2 is a product of four windows: 6,834,375 rows of 15 readings each."""
    oracle = CityOracle(data, "Q2", data.readings(data.sensors("Q2"), 16), 15)
    assert len(oracle.expected(3)) == 8
    with pytest.raises(MachineLimitError, match="more than 100,000 rows"):
        oracle.expected(15)
    assert len(oracle.expected(2)) == 8
    # Of a tick nothing is left for the next one.
    assert oracle.rows(2) == oracle.rows(2) == 10_935


def test_completeness_counts_what_was_published_in_the_span() -> None:
    ticks = Ticks([], [{"a"}, {"b", "c"}, {"d"}].__getitem__, [1, 2, 3].__getitem__)
    reports: list[dict[str, Any]] = [
        {"arrivals": [[0, "a", 10.1, 1], [0, "b", 11.5, 1]], "errors": []},
        {"arrivals": [[0, "b", 12.0, 1], [0, "c", 12.0, 1], [0, "d", 13.0, 1]], "errors": []},
    ]
    row = _arrivals(ticks, 2, STREAMER, reports, [10.0, 11.0, 12.0], (10.5, 11.5))
    assert row["expected"] == 4
    assert row["completeness"] == 0.75
    assert row["latency_p50_ms"] == pytest.approx(1000)
    with pytest.raises(MeasurementError, match="nothing was published"):
        _arrivals(ticks, 2, STREAMER, reports, [10.0], (10.5, 11.5))
    silent = [{"arrivals": [], "errors": []}]
    with pytest.raises(MeasurementError, match="nothing arrived") as failed:
        _arrivals(ticks, 2, STREAMER, silent, [10.0], (9.5, 11.5))
    assert not isinstance(failed.value, MachineLimitError)
    with pytest.raises(MachineLimitError, match="not in time"):
        _arrivals(ticks, 2, SPARK_MODE, silent, [10.0], (9.5, 11.5))


def test_sensors_go_on_for_as_long_as_clients_are_waited_for(tmp_path: Path) -> None:
    class Sensors:
        """Readings without the data."""

        def sensors(self, _name: str) -> tuple[str, ...]:
            return ("one",)

        def readings(self, _sensors: object, count: int) -> list[dict[str, list[Quad]]]:
            return [{}] * count

        def sparql(self, _name: str) -> str:
            return "SELECT ?obId1 WHERE {}"

        def static(self) -> list[Quad]:
            return []

    found: Any = Sensors()
    feed: Any = None
    for rate in (1.0, 5.0):
        settings = CityBenchQueries.settings(seconds=4.0)
        opened = OpenedCity(found, {}, tmp_path, [], feed, settings, MachineLimits())
        ticks = _ticks("Q1", rate, opened, START_SECONDS)
        # Then it is looked for `seconds`.
        assert len(ticks.readings) >= rate * (START_SECONDS + settings.seconds)
        assert ticks.expected(len(ticks.readings) - 1) == set()


def test_all_modes_answer(tmp_path: Path, data: City) -> None:
    sizes: dict[str, Any] = {
        "queries": ["Q1"], "rates": [2.0], "instances": [2], "varied": [], "processes": 1,
        "seconds": 1.5,
    }  # fmt: skip
    results = run(tmp_path, CityBenchQueries(), repetitions=1, tables={"citybench": sizes})
    assert results.failures == {}
    for mode in (STREAMER, CQELS_MODE, CSPARQL_MODE):
        (row,) = results.where(mode=mode.name).rows
        assert int(row["expected"]) >= 4
        assert 0 < float(row["completeness"]) <= 1  # a machine that is busy may be late
        assert row["failed"] == "0"
    assert "CityBench, CQELS mode" in write_report(tmp_path, [CityBenchQueries()]).read_text()


def test_without_the_data_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CITYBENCH_VARIABLE, str(tmp_path))
    results = run(tmp_path / "results", CityBenchQueries())
    assert "are not here" in results.left_out["sensors"]


def test_sentences_follow_the_data() -> None:
    def row(mode: str, completeness: float | str, **others: Any) -> dict[str, str]:
        values = {
            "query": "Q1", "mode": mode, "rate": 1, "instances": 1, "completeness": completeness,
            "latency_p50_ms": 20 if completeness else "", "server_percent": 1, "cores": 2,
            "clients_percent": 2, "peak_percent": 50,
        } | others  # fmt: skip
        return raw_row(CityBenchQueries, **values)

    streamer = STREAMER.name
    rows = [
        row("CQELS mode", 1.0), row("C-SPARQL mode", 0.5), row("CQELS mode", "", query="Q7"),
        row(streamer, 1.0), row(streamer, 0.9, instances=10), row(streamer, 1.0, peak_percent=99),
        row(streamer, 0.2, instances=100, peak_percent=80, clients_percent=120),
        row(streamer, 1.0, query="Q8", instances=2, clients_percent=30),
        # By what two of them take, twelve take more than there is.
        row(streamer, 0.04, query="Q8", instances=12, clients_percent=124, peak_percent=74),
    ]  # fmt: skip
    failures = {
        "query Q8, mode query streamer, rate 5": f"{MACHINE_LIMIT}many rows",
        "query Q2, mode query streamer, rate 5": "something else",
        "query Q2, mode CQELS mode, rate 5": f"{MACHINE_LIMIT}many rows",
    }
    texts = Reported(CityBenchQueries(), Results(rows, {}, failures)).texts
    text = "\n".join(texts)
    assert "CQELS mode: complete in 1 of 1 measurements, the least 100 %; in 1 more the" in text
    assert "C-SPARQL mode: complete in 0 of 1 measurements, the least 50 %" in text
    assert (
        "streamer: complete in 3 of 4 measurements, the least 90 %; in 3 more the machine was the "
        "limit; 1 more failed; median latencies" in text
    )
    # It begins with what fragments are the wrong choice for.
    assert texts[0].startswith("Fragments are the wrong choice")
    assert "Q8: 15 % of a core, 10 clients" in texts[0]
    assert "Q1" not in texts[0]
    assert "Q1: 2 % of a core, 75 clients" in texts[1]
