"""Comparison of two commits of a small repository with a made-up experiment."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import cli
from experiments.errors import ConfigurationError, MeasurementError, UnavailableError
from experiments.harness.comparison import measure_alternately

# Stands for the command of a commit: writes a run, and notes what it was asked.
COMMAND = """
import json, pathlib, sys
def app(prog_name):
    if {fails}:
        sys.exit("no such thing here")
    arguments = sys.argv[1:]
    name, folder = arguments[1], pathlib.Path(arguments[3], arguments[1])
    with open({log!r}, "a") as log:
        log.write(json.dumps([{time}, arguments, pathlib.Path(arguments[-1]).read_text()]) + "\\n")
    rounds = open({log!r}).read().count("\\n")
    folder.mkdir(parents=True)
    facts = {{"seed": 1, "settings": {{}}, "missing": 0, "left_out": {{}}}}
    (folder / "run.json").write_text(json.dumps(facts))
    row = f"Q1,0,0,1,,{{{time} + rounds / 100}}"
    (folder / "raw.csv").write_text("query,repetition,line,lines,error,us_mean\\n" + row + "\\n")
"""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    command += ["-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a fast, a slow and a broken tagged commit."""
    folder = tmp_path / "project"
    (folder / "experiments").mkdir(parents=True)
    (folder / "experiments/__init__.py").touch()
    git(folder, "init", "-q")
    log = str(tmp_path / "log")
    for tag, time, fails in (("fast", 10.0, False), ("slow", 20.0, False), ("broken", 0.0, True)):
        text = COMMAND.format(time=time, fails=fails, log=log)
        (folder / "experiments/cli.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", tag)
        git(folder, "tag", tag)
    return folder


def test_rounds_alternate_and_leave_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "PROJECT", project)
    arguments = ["compare", "--commits", "fast", "slow", "--rounds", "3", "--at-most", "1.5"]
    result = CliRunner().invoke(cli.app, [*arguments, "--json", "--quick"])
    assert result.exit_code == 1
    (figure,) = json.loads(result.stdout)["figures"]
    assert figure["experiment"] == "conference"
    assert figure["values"]["before"] == pytest.approx([10.01, 10.04, 10.05])
    assert figure["ratio"] == pytest.approx(2.0, rel=0.01)
    assert figure["worse_than_allowed"] is True
    assert "1 of 1 figures got worse by more than 1.5" in result.stderr
    asked = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [time for time, _, _ in asked] == [10.0, 20.0, 20.0, 10.0, 10.0, 20.0]
    assert all("--quick" in arguments for _, arguments, _ in asked)
    assert {sizes for _, _, sizes in asked} == {"repetitions = 1\n"}
    assert git(project, "worktree", "list").count("\n") == 1
    back = ["compare", "--commits", "slow", "fast", "--rounds", "2", "--at-most", "1.5"]
    assert CliRunner().invoke(cli.app, back).exit_code == 0


def test_a_column_that_is_none_is_refused_before_anything_is_measured(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "PROJECT", project)
    arguments = ["compare", "--commits", "fast", "slow", "--experiment", "adaptivity"]
    result = CliRunner().invoke(cli.app, [*arguments, "--column", "tick_ms"])
    assert result.exit_code == 2
    assert "adaptivity measures no 'tick_ms', but held, " in result.stderr
    assert not (tmp_path / "log").exists()


def test_sizes_of_the_user(project: Path, tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    for text, sizes in (
        ("[taxi]\ntrips = 9\n", "repetitions = 1\n[taxi]\ntrips = 9\n"),
        ("repetitions = 2\n", "repetitions = 2\n"),
    ):
        config.write_text(text)
        (tmp_path / "log").unlink(missing_ok=True)
        measure_alternately(project, ("fast", "fast"), "taxi", 1, [], config, lambda _: None)
        asked = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        assert {given for _, _, given in asked} == {sizes}
        assert {arguments[1] for _, arguments, _ in asked} == {"taxi"}


def test_what_cannot_be_measured_is_said(project: Path, tmp_path: Path) -> None:
    def measure(folder: Path, *commits: str, config: Path | None = None) -> None:
        first, second = commits
        measure_alternately(folder, (first, second), "taxi", 2, [], config, lambda _: None)

    with pytest.raises(ConfigurationError, match="no commit '--all'"):
        measure(project, "fast", "--all")
    with pytest.raises(MeasurementError, match="broken: there are no results"):
        measure(project, "fast", "broken")
    assert git(project, "worktree", "list").count("\n") == 1
    with pytest.raises(UnavailableError, match="in a clone of the repository"):
        measure(tmp_path, "fast", "slow")
    config = tmp_path / "mine.toml"
    config.write_text("[")
    with pytest.raises(ConfigurationError, match=r"mine\.toml: "):
        measure(project, "fast", "slow", config=config)
