import re

import pytest
import typer

from loaders.cli import load_app
from loaders.commands.replay import app as replay_app
from tests.loaders.test_cli import run

PROGRAMS = {"load": load_app, "replay": replay_app}
OPTIONS = [
    (name, command.name, parameter.opts[0], parameter.metavar)
    for name, app in PROGRAMS.items()
    for command in typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    for parameter in command.params
]
OF_SECONDS = [option[:3] for option in OPTIONS if option[3] == "S"]
OF_IRIS = [option[:3] for option in OPTIONS if option[3] == "IRI" or option[2] == "--dataset"]


def test_all_options_of_seconds_are_found() -> None:
    names = {option for _, _, option in OF_SECONDS}
    assert names == {"--period", "--holds", "--hold", "--interval", "--lead"}
    assert len(OF_SECONDS) == 22


@pytest.mark.parametrize(("program", "command", "option"), OF_SECONDS)
def test_numbers_that_nobody_can_wait_for(
    capsys: pytest.CaptureFixture[str], program: str, command: str, option: str
) -> None:
    # Which others are refused: tests/annotations/test_seconds.py.
    for value in ("inf", "-1"):
        assert run(program, command, f"{option}={value}") == 2, value
        said = " ".join(re.sub("[│╭╰─╮╯]", " ", capsys.readouterr().err).split())
        assert f"'{option}': " in said
        assert value in said


def test_all_options_of_iris_are_found() -> None:
    assert {option for _, _, option in OF_IRIS} == {"--base", "--clock", "--dataset"}
    assert len(OF_IRIS) == 25


@pytest.mark.parametrize(("program", "command", "option"), OF_IRIS)
def test_what_is_no_iri_is_refused_before_anything_is_named(
    capsys: pytest.CaptureFixture[str], program: str, command: str, option: str
) -> None:
    for value in ("relative/", "", "http://e/ x"):
        assert run(program, command, f"{option}={value}") == 2, value
        said = " ".join(re.sub("[│╭╰─╮╯]", " ", capsys.readouterr().err).split())
        assert f"'{option}': " in said
        assert f"IRI: '{value}'" in said or "cannot hold ' '" in said
