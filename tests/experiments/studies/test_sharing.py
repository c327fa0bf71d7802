"""The study of shared plans, with few queries."""

from pathlib import Path

import pytest

from experiments.harness.items import Figure, Finding
from experiments.harness.measurement import Run
from experiments.harness.report import write_report
from experiments.studies.sharing import SHARING_CASES, UNLIKE, Sharing, Sizes
from tests.experiments.harness.test_runner import run


@pytest.mark.parametrize("name", [*SHARING_CASES, "unlike queries"])
def test_both_sides_are_measured(name: str, tmp_path: Path) -> None:
    """Whatever queries differ in; some are told something."""
    sizes = Sizes(queries=(10,), before=20, events=20)
    groups = {each.name: each for each in Sharing().groups(sizes, Run(1, tmp_path, print))}
    rows = [row for each in groups[name].measurements for row in each.measure(None)]
    assert len(rows) == (3 if name in SHARING_CASES else len(UNLIKE))
    for row in rows:
        assert float(row["ratio"] or 0) > 0
        assert 1 <= int(row["plans"] or 0) <= 11


def test_a_run_from_the_first_measurement_to_the_report(tmp_path: Path) -> None:
    """With a figure of all kinds of constants, and what no engine can do without."""
    study = Sharing()
    few = {"queries": [10], "before": 20, "events": 20}
    results = run(tmp_path, study, repetitions=1, tables={"sharing": few})
    assert results.complete
    items = list(study.report(results))
    (figure,) = (each for each in items if isinstance(each, Figure))
    assert set(figure.series) == {"first", "late", "between"}
    for points in figure.series.values():
        assert [each.x for each in points] == list(SHARING_CASES)
    sentences = [each.text for each in items if isinstance(each, Finding)]
    (alone,) = (each for each in sentences if "written for this query alone" in each)
    assert all(f"({when})" in alone for when in ("first", "late", "between"))
    page = write_report(tmp_path, [study])
    drawn = {each.name for each in (tmp_path / "sharing" / "figures").iterdir()}
    assert {"sharing.png", "sharing.svg"} <= drawn
    assert "times what a loop over the windows takes" in page.read_text(encoding="utf-8")
