"""The examples of the README run unchanged, on a port of their own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.free_port import free_port

README = Path(__file__).parents[2] / "README.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """The examples in a language."""
    return [text for name, text in _BLOCK.findall(README.read_text("utf-8")) if name == language]


@pytest.fixture
def port() -> str:
    return str(free_port())


def bash(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script and its background processes."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=240)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_publish_and_query(tmp_path: Path, port: str) -> None:
    (tmp_path / "example.py").write_text(blocks("python")[0].replace("3000", port))
    pasted = [text.replace("3000", port) for text in blocks("sh")]
    # In the background a server stays, as it does where somebody pastes this.
    script = ["trap 'kill $!; wait' EXIT", *pasted, "echo '--'", "python example.py"]
    done = bash("\n".join(script), tmp_path)
    assert done.returncode == 0, done.stderr
    _, _, answers = done.stdout.partition("headSign,delay\n")
    assert answers, done.stdout
    answers, python = f"headSign,delay\n{answers}".split("--\n")
    (expected,) = blocks("text")
    table, _, updates = answers.partition("{")
    assert sorted(table.split()) == sorted(expected.split())
    assert '"added": [{"headSign"' in updates
    assert "Oostende 300" in python
    assert "Brugge 0" in python
