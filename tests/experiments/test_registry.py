"""The registry, the command line and the documentation agree."""

import re
from dataclasses import asdict, is_dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import cli
from experiments.cli import app
from experiments.harness import machine
from experiments.harness.items import Run
from experiments.harness.results import Experiment, _text
from experiments.harness.runner import read_run_configuration
from tests.experiments.studies.test_annotation_methods import liveboards
from tests.support.reports import Reported

__all__ = ["liveboards"]
PAGE = Path(__file__).parents[2] / "docs/experiments.md"
every_experiment = pytest.mark.parametrize(
    "experiment", cli.EXPERIMENTS, ids=lambda experiment: experiment.name
)


def test_names_are_unique_and_documented() -> None:
    names = cli.names()
    assert len(set(names)) == len(names)
    documented = PAGE.read_text()
    for name in names:
        assert f"`{name}`" in documented, name


@every_experiment
def test_measurements_are_named_by_the_keys_once(experiment: Experiment, tmp_path: Path) -> None:
    assert experiment.question.endswith("?")
    assert not set(experiment.keys) & set(experiment.values)
    for settings in (experiment.settings(), experiment.settings.quick()):
        assert is_dataclass(settings)
        assert asdict(settings)
        groups = list(experiment.groups(settings, Run(1, tmp_path, lambda _text: None)))
        keys = [m.key for group in groups for m in group.measurements]
        assert keys
        assert all(tuple(key) == experiment.keys for key in keys)
        assert len({tuple(key.values()) for key in keys}) == len(keys)
        assert len({group.name for group in groups}) == len(groups)


_WORDS = {"kind": ("total", "total"), "why": ("", ""), "right": ("1", "0"), "error": ("", "")}
"""Columns that hold no free number: their values, and the opposite ones."""


def made_up(experiment: Experiment, folder: Path, *, opposite: bool) -> list[dict[str, str]]:
    """Raw data of a full run."""
    rows = []
    groups = experiment.groups(experiment.settings(), Run(1, folder, lambda _text: None))
    keys = [measurement.key for group in groups for measurement in group.measurements]
    for number, key in enumerate(keys):
        row = {name: _text(value) for name, value in key.items()} | {"repetition": "0"}
        for place, column in enumerate(experiment.values):
            if column in _WORDS:
                row[column] = _WORDS[column][opposite]
            elif column in ("tick", "clients", "second"):
                row[column] = str(1 + number + opposite)
            elif column == "version":
                row[column] = str(number * opposite)
            else:
                # What was much becomes little, in all columns and measurements.
                value = 3.0 ** (place % 7) * (1 + number / len(keys))
                row[column] = str(5000 / value if opposite else value)
        rows.append(row)
    return rows


# What the cost model says it computes of another's data: `test_cost_model` turns those round.
every_measured = pytest.mark.parametrize(
    "experiment",
    [each for each in cli.EXPERIMENTS if each.name != "cost-model"],
    ids=lambda experiment: experiment.name,
)


@every_measured
def test_opposite_data_change_every_sentence_and_numbers_have_three_digits(
    experiment: Experiment, tmp_path: Path
) -> None:
    sentences = []
    for opposite in (False, True):
        rows = made_up(experiment, tmp_path, opposite=opposite)
        sizes = {float(value) for row in rows for value in row.values() if value.isdecimal()}
        sentences.append(Reported(experiment, rows).texts)
        for sentence in sentences[-1]:
            # Evaluations that failed are counted.
            for text in re.findall(
                r"(?<![\w.^])\d[\d,]*(?:\.\d+)?(?! evaluations)(?![\w.,])", sentence
            ):
                number = float(text.replace(",", ""))
                digits = text.replace(",", "").replace(".", "").strip("0")
                assert len(digits) <= 3 or number in sizes | {len(rows)}, (text, sentence)
                assert number < 10_000 or "," in text, (text, sentence)
    one, other = sentences
    assert one
    assert other
    assert not set(one) & set(other)


def test_the_documented_configurations_are_some(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) >= 2
    for number, example in enumerate(examples):
        file = tmp_path / f"{number}.toml"
        file.write_text(example)
        configuration = read_run_configuration(file, quick=False, names=cli.names())
        for experiment in cli.EXPERIMENTS:
            assert is_dataclass(configuration.settings(experiment))


def test_the_command_lists_and_refuses() -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in cli.names())
    wrong = runner.invoke(app, ["run", "nothing", "--output", "nowhere-at-all", "--quick"])
    assert wrong.exit_code == 2
    assert "no experiment 'nothing'" in wrong.output
    assert not Path("nowhere-at-all").exists()


def test_the_report_of_an_empty_folder_says_so(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", "--output", str(tmp_path)])
    assert done.exit_code == 0
    assert "There are no results" in (tmp_path / "report.html").read_text()
    absent = CliRunner().invoke(app, ["report", "--output", str(tmp_path / "nowhere")])
    assert absent.exit_code == 2
    assert f"there are no results in {tmp_path / 'nowhere'}" in absent.output.replace("\n", "")


def test_the_machine_is_described_without_its_name() -> None:
    import platform

    said = {**machine.describe_machine(), **machine.describe_versions()}
    assert said["numpy"][0].isdigit()
    assert all(said.values())
    assert platform.node() not in " ".join(said.values())
