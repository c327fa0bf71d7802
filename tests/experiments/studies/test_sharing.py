"""The study of shared plans, with few queries."""

from pathlib import Path

import pytest

from experiments.harness.measurement import Run
from experiments.studies.sharing import CASES, UNLIKE, Sharing, Sizes


@pytest.mark.parametrize("name", [*CASES, "unlike queries"])
def test_both_sides_are_measured(name: str, tmp_path: Path) -> None:
    """Whatever queries differ in; some are told something."""
    sizes = Sizes(queries=(10,), before=20, events=20)
    groups = {each.name: each for each in Sharing().groups(sizes, Run(1, tmp_path, print))}
    rows = [row for each in groups[name].measurements for row in each.measure(None)]
    assert len(rows) == (3 if name in CASES else len(UNLIKE))
    for row in rows:
        assert float(row["ratio"] or 0) > 0
        assert 1 <= int(row["plans"] or 0) <= 11
