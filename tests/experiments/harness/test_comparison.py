"""Comparison of two runs: made-up ones, and small real ones."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.cli import app
from experiments.errors import ConfigurationError
from experiments.harness.comparison import RunComparison, compare_runs, read_run, runs_together
from experiments.harness.report import FACTS
from tests.experiments.harness.test_runner import Squares, run

HEADER = "query,size,repetition,line,lines,error,us_mean,events_per_second,rows,kind"


def made_up(folder: Path, times: list[float], name: str = "made", **facts: Any) -> Path:
    """A run in which a query took these times in its repetitions."""
    place = folder / name
    place.mkdir(parents=True)
    known = {"seed": 1, "settings": {"events": 10}, "missing": 0, "left_out": {}, **facts}
    (place / FACTS).write_text(json.dumps(known))
    rows = [f"Q1,10,{n},0,1,,{time},{1000 / time},7,total" for n, time in enumerate(times)]
    (place / "raw.csv").write_text("\n".join([HEADER, *rows, ""]))
    return folder


def compared(before: Path, after: Path) -> RunComparison:
    return compare_runs(read_run(before), read_run(after))


def called(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    return result.exit_code, result.output


def test_ratios_with_intervals_by_column(tmp_path: Path) -> None:
    before = made_up(tmp_path / "a", [10.0, 11.0, 10.5])
    after = made_up(tmp_path / "b", [20.0, 22.0, 21.0])
    found = {figure.name.column: figure for figure in compared(before, after).figures}
    assert found.keys() == {"us_mean", "events_per_second", "rows"}
    assert found["us_mean"].ratio.mean == pytest.approx(2.0)
    assert found["events_per_second"].ratio.mean == pytest.approx(0.5)
    assert dict(found["rows"].name.parameters) == {"query": "Q1", "size": "10", "kind": "total"}
    # Less time and more events are better; of rows nobody knows.
    verdicts = {name: figure.exceeds(1.5) for name, figure in found.items()}
    assert verdicts == {"us_mean": True, "events_per_second": True, "rows": None}
    back = {figure.name.column: figure.exceeds(1.0) for figure in compared(after, before).figures}
    assert back == {"us_mean": False, "events_per_second": False, "rows": None}


@pytest.mark.parametrize("rate", ["", ",requests_per_second"])
def test_requests_are_a_cost_unless_they_were_made_in_a_fixed_time(
    tmp_path: Path, rate: str
) -> None:
    for side, count in (("a", 1000), ("b", 2000)):
        numbers = [str(count + n) for n in range(3)]
        rows = [f"Q1,10,{n},0,1,,{each}{rate and f',{each}'}" for n, each in enumerate(numbers)]
        header = f"query,size,repetition,line,lines,error,requests{rate}"
        raw = made_up(tmp_path / side, [1.0]) / "made/raw.csv"
        raw.write_text("\n".join([header, *rows, ""]))
    (figure,) = compared(tmp_path / "a", tmp_path / "b").figures
    assert figure.name.column == (rate.removeprefix(",") or "requests")
    assert figure.exceeds(1.03) is (rate == "")


def test_noise_does_not_fail_and_a_slowdown_does(tmp_path: Path) -> None:
    noise = random.Random(1)
    for factor, status in ((1.0, 0), (1.2, 1)):
        folder = tmp_path / str(factor)
        before = made_up(folder / "a", [100 + noise.uniform(-4, 4) for _ in range(8)])
        after = made_up(folder / "b", [factor * (100 + noise.uniform(-4, 4)) for _ in range(8)])
        code, output = called(before, after, "--at-most", 1.03)
        assert code == status, output
        assert ("got worse by more than 1.03" in output) == bool(status)
        assert called(before, after)[0] == 0


def test_a_wide_interval_does_not_fail(tmp_path: Path) -> None:
    before = made_up(tmp_path / "a", [10.0, 30.0, 20.0])
    after = made_up(tmp_path / "b", [12.0, 40.0, 22.0])
    (figure, *_) = compared(before, after).figures
    assert figure.ratio.mean > 1.15
    assert figure.exceeds(1.03) is False


def test_what_was_measured_once_is_shown_and_not_judged(tmp_path: Path) -> None:
    before, after = made_up(tmp_path / "a", [10.0]), made_up(tmp_path / "b", [99.0])
    code, output = called(before, after)
    assert code == 0
    assert "us_mean            9.900  once" in output
    code, output = called(before, after, "--at-most", 1.03)
    assert code == 1
    assert "nothing can be judged: every figure was measured only once" in output


def test_json_and_one_column(tmp_path: Path) -> None:
    before = made_up(tmp_path / "a", [10.0, 10.0])
    after = made_up(tmp_path / "b", [15.0, 15.0])
    code, output = called(before, after, "--json", "--column", "us_mean")
    assert code == 0
    (figure,) = json.loads(output)["figures"]
    assert figure["experiment"] == "made"
    assert figure["values"] == {"before": [10.0, 10.0], "after": [15.0, 15.0]}
    assert figure["low"] == figure["high"] == pytest.approx(1.5)
    assert figure["ratio_of_minima"] == figure["ratio_of_medians"] == 1.5
    assert figure["better"] == "less"
    assert figure["worse_than_allowed"] is None


def test_only_the_same_is_compared(tmp_path: Path) -> None:
    before = made_up(made_up(tmp_path / "a", [10.0]), [10.0], "other", settings={"events": 10})
    after = made_up(made_up(tmp_path / "b", [10.0]), [10.0], "other", settings={"events": 20})
    made_up(after, [10.0], "new")
    found = compared(before, after)
    assert {figure.name.experiment for figure in found.figures} == {"made"}
    assert found.skipped == [
        "new: in one of the runs only", "other: events is 10 in the one, and 20 in the other",
    ]  # fmt: skip
    shutil.rmtree(before / "made")
    with pytest.raises(ConfigurationError, match="there is nothing to compare; made: in one of"):
        compared(before, after)
    # A size that only one of two commits has is no difference.
    wider = made_up(tmp_path / "c", [10.0], settings={"events": 10, "more": 1})
    assert compared(made_up(tmp_path / "d", [10.0]), wider).skipped == []


def test_wrong_use_is_said_in_one_line(tmp_path: Path) -> None:
    good = made_up(tmp_path / "good", [10.0, 11.0])
    unended = made_up(tmp_path / "unended", [10.0], missing=None)
    broken = made_up(tmp_path / "broken", [10.0])
    (broken / "made" / FACTS).write_text("{")
    for arguments, said in (
        ([good], "two folders are compared, not 1"),
        ([good, tmp_path / "nowhere"], f"there are no results in {tmp_path / 'nowhere'}"),
        ([good, unended], "the run did not end"),
        ([good, broken], "cannot be read"),
        ([good, good, "--quick"], "--quick and --config are for --commits"),
        ([good, good, "--at-most", "0.5"], "a factor from 1 on, not 0.5"),
        ([good, good, "--at-most", "nan"], "a factor from 1 on, not nan"),
        ([good, good, "--column", "no"], "there is nothing to compare"),
        ([good, good, "--commits", "a", "b"], "not both"),
        (["--commits", "a", "b", "--experiment", "no"], "no experiment 'no'"),
        (["--commits", "no such", "commit"], "tpf-experiments: "),
    ):
        code, output = called(*arguments)
        assert code in (1, 2), arguments
        assert output.count("\n") == 1, output
        assert said in output


def test_rounds_are_repetitions(tmp_path: Path) -> None:
    runs = [read_run(made_up(tmp_path / str(n), [n, n + 2.0])) for n in (1, 2, 3)]
    (times,) = [v for name, v in runs_together(runs).figures.items() if name.column == "us_mean"]
    assert times == [2.0, 3.0, 4.0]


def test_what_the_runner_wrote(tmp_path: Path) -> None:
    for name, factor in (("a", 10.0), ("b", 10.0), ("c", 20.0)):
        run(tmp_path / name, Squares(), tables={"squares": {"factor": factor}})
    # Of squares nobody knows whether less is better.
    code, output = called(tmp_path / "a", tmp_path / "b")
    assert code == 0, output
    (line,) = (line for line in output.splitlines() if line.startswith("squares plain 2 square"))
    assert line.split()[4:] == ["1.000", "1.000…1.000", "1.000", "1.000", "40.5", "40.5"]
    code, output = called(tmp_path / "a", tmp_path / "c")
    assert code == 2
    assert "squares: factor is 10.0 in the one, and 20.0 in the other" in output
