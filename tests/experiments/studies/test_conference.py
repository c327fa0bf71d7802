"""``conference`` in both engines, and its report."""

from pathlib import Path
from typing import Any

import pytest

from experiments.harness.report import write_report
from experiments.studies.boards import CQELS_MODE, CSPARQL_MODE, PLACES
from experiments.studies.conference import ConferenceQueries, Sizes
from experiments.workloads.conference import CONFERENCE_QUERIES, periodic_query
from tests.experiments.harness.test_runner import run
from tests.support.reports import Reported, raw_row
from tpf_server.continuous.languages.csparql.parser import parse


def test_a_small_run_of_both_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Loaded in this process, which does not have to start Spark for it.
    monkeypatch.setenv("TPF_SPARK_JAVA_HOME", str(tmp_path / "nowhere"))
    sizes: dict[str, Any] = {
        "static": [2000], "events": 300, "periodic_events": 250, "constants": 2, "instances": [3],
        "periodic_instances": [3],
    }  # fmt: skip
    study = ConferenceQueries()
    results = run(tmp_path / "results", study, repetitions=1, tables={"conference": sizes})
    assert results.failures == {}
    for mode in (CQELS_MODE, CSPARQL_MODE):
        one = results.where(engine=mode.name, instances=1)
        assert [len(one.where(query=name).rows) for name in CONFERENCE_QUERIES] == [2, 1, 2, 2, 2]
        assert len(results.where(engine=mode.name, instances=3).rows) == 3
        assert all(int(n) > 0 for n in one.where(query="Q2").distinct("rows"))
    assert "static-Q5.svg" in write_report(tmp_path / "results", [study]).read_text()


@pytest.mark.parametrize("name", CONFERENCE_QUERIES)
def test_queries_of_both_languages_ask_for_the_same(name: str) -> None:
    found = parse(periodic_query(name, 7)).query
    assert ('"Author 7"' in periodic_query(name, 7)) == (name != "Q2")
    assert found.form == ("CONSTRUCT" if name == "Q2" else "SELECT")


def test_a_full_run_has_the_sizes_of_the_claims() -> None:
    sizes = Sizes()
    assert sizes.instances[0] == sizes.periodic_instances[0] == 1
    assert sizes.instances[-1] >= 1000
    assert 10**5 in sizes.static
    assert (sizes.static[0], sizes.constants) == (10**4, 10)


def row(engine: str, us: float, execution: float, **values: Any) -> dict[str, str]:
    given = {
        "engine": engine, "query": "Q1", "static": 100_000, "instances": 1, "constant": 0,
        "us_mean": us, "execution_us": execution,
    }  # fmt: skip
    return raw_row(ConferenceQueries, **(given | values))


def rows(us: float, grown: float, many: float, periodic: float) -> list[dict[str, str]]:
    return [
        row(CQELS_MODE.name, us, us), row(CQELS_MODE.name, us, us, constant=1),
        row(CQELS_MODE.name, grown, grown, static=10_000_000),
        row(CQELS_MODE.name, many, many, instances=1024),
        row(CSPARQL_MODE.name, us, periodic),
    ]  # fmt: skip


def test_every_sentence_and_verdict_follows_the_data() -> None:
    one, other = (
        Reported(ConferenceQueries(), data)
        for data in (rows(4, 4.4, 40, 20_000), rows(900, 9000, 2e6, 1000))
    )
    assert one.texts == [
        "Q1: 4 µs per event in CQELS; on another machine the original engine took 243 µs; 20 ms "
        "per evaluation in C-SPARQL.",
        "Q1: 1,024 queries at the same time take 10 times as long for an event as 1 in CQELS.",
    ]
    assert all(each != opposite for each, opposite in zip(one.texts, other.texts, strict=True))
    looked = ("Q1", "C-SPARQL", "flat", "instances")
    assert [one.verdicts[name] for name in looked] == ["agrees"] * 4
    assert [other.verdicts[name] for name in looked] == ["differs"] * 4
    assert one.verdicts["Q2"] == "not measured here"


def test_one_measurement_that_collects_garbage_changes_no_sentence() -> None:
    """Means over three repetitions made "8,510 times" of 1,000."""
    slow = [row(CSPARQL_MODE.name, 4, periodic) for periodic in (4100, 400_000)]
    report = Reported(ConferenceQueries(), [*rows(4, 4.4, 40, 4000), *slow])
    measured = [each.measured for each in report.checks if each.claim.name == "C-SPARQL"]
    assert measured == [4100 / 4]
    figure = next(iter(report.figures.values()))
    assert [point.y for point in figure.series[CSPARQL_MODE.name]] == [4100]


def test_figures_have_medians_over_constants_and_the_marks_of_others() -> None:
    figures = Reported(ConferenceQueries(), rows(4, 4.4, 40, 20_000)).figures
    assert set(figures) == {"static-Q1", "instances-Q1"}
    static = figures["static-Q1"]
    assert [point.y for point in static.series[CQELS_MODE.name]] == [4, 4.4]
    assert static.places == PLACES
    assert {name for name, _ in static.marks} == {
        "published 2011, another machine", "original, another machine",
    }  # fmt: skip
    assert not Reported(ConferenceQueries(), []).figures
