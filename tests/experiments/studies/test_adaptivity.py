"""The study of routes, with few elements."""

from pathlib import Path
from random import Random

from experiments.harness.report import rounded, write_report
from experiments.studies.adaptivity import DRIFT_CASES, Adaptivity, Workload
from tests.experiments.harness.test_runner import run
from tests.support.reports import Reported
from tpf_client.dataflow.operators.multiway_join import ROUTINGS


def test_what_is_rare_and_who_is_rapid_passes_on() -> None:
    """Within a window of a change two streams have rare values."""
    workload = Workload(streams=3, partners=5.0, rate=8.0, window=60)
    made = workload.elements(Random(1), 3000, 3)
    assert len(made) == 3000
    for phase in range(3):
        part = made[phase * 1000 + 60 : phase * 1000 + 1000]
        count = {s: [t[0] for stream, t in part if stream == f"urn:s{s}"] for s in range(3)}
        assert max(count, key=lambda s: len(count[s])) == (phase + 1) % 3
        assert max(count, key=lambda s: len(set(count[s]))) == phase


def test_a_run_from_the_first_measurement_to_the_report(tmp_path: Path) -> None:
    study = Adaptivity()
    few = {"elements": 40, "phases": 2}
    results = run(tmp_path, study, repetitions=1, tables={"adaptivity": few})
    assert results.complete
    assert [row["case"] for row in results.rows] == list(DRIFT_CASES)
    report = Reported(study, results)
    (figure,) = report.figures.values()
    assert set(figure.series) == {*ROUTINGS}
    assert [each.partition(" cost ")[0] for each in report.texts] == [
        "Routes that are reviewed from time to time", "Routes that are chosen for each row",
    ]  # fmt: skip
    (check,) = report.checks
    assert check.measured is not None
    assert f"cost {rounded(check.measured)} times" in report.texts[0]
    write_report(tmp_path, [study])
    assert any((tmp_path / "adaptivity" / "figures").iterdir())
