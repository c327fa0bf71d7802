import re

import pytest
import typer

from loaders.cli import load_app
from loaders.commands.replay import app as replay_app
from tests.loaders.test_cli import run

PROGRAMS = {"load": load_app, "replay": replay_app}
OF_SECONDS = [
    (name, command.name, parameter.opts[0])
    for name, app in PROGRAMS.items()
    for command in typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    for parameter in command.params
    if parameter.metavar == "S"
]


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
