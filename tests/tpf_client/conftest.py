"""Commands that run in the process of a test."""

import os
import signal
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tpf_client import commands


class Done(NamedTuple):
    """Status and output of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def called(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process, without a start of Python."""

    def to_its_end(name: str, *arguments: str, output: str | int = "", **environment: str) -> Done:
        capfd.readouterr()
        handler, descriptor = signal.getsignal(signal.SIGINT), os.dup(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [*name.split(), *arguments])
            patch.setattr(sys, "stdout", sys.stdout)
            for variable, value in environment.items():
                patch.setenv(variable, value)
            try:
                if output:  # a path, or the descriptor of a pipe
                    with open(output, "w") as file:
                        os.dup2(file.fileno(), 1)
                with pytest.raises(SystemExit) as ended:
                    commands.main()
            finally:
                # What had no place goes where the command has led it, not to the next reader.
                sys.stdout.flush()
                os.dup2(descriptor, 1)
                os.close(descriptor)
                signal.signal(signal.SIGINT, handler)
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, *capfd.readouterr())

    return to_its_end
