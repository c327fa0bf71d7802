"""Programs of the documentation, in the process of a test."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.running_server import TOKEN


@pytest.fixture
def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Run the text of a program, or a file, with arguments; return what it prints."""

    def run(program: str | Path, *arguments: str) -> str:
        text = program if isinstance(program, str) else program.read_text("utf-8")
        monkeypatch.setenv("TPF_PUBLISH_TOKEN", TOKEN)
        monkeypatch.setattr(sys, "argv", ["program", *arguments])
        exec(compile(text, "program", "exec"), {"__name__": "__main__", "__file__": str(program)})
        said, complained = capsys.readouterr()
        assert complained == ""
        return said

    return run
