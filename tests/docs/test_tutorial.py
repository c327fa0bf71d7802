"""The tutorial runs as it stands, on ports of its own, and shows what it says."""

import os
import re
import shutil
from pathlib import Path

import pytest

from experiments.free_port import free_port
from tests.docs.test_readme import bash
from tpf_server.spark.java import JavaNotFoundError, find_java

DOCS = Path(__file__).parents[2] / "docs"
_SECTION = re.compile(r"^## \d+\. (.*?)$(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def left_out(script: str) -> bool:
    """True for what needs a program that is not here."""
    if "nginx -c" in script:
        return shutil.which("nginx") is None
    try:
        return "spark" in script and not find_java(None, {})
    except JavaNotFoundError:
        return True


@pytest.mark.spark
def test_each_step_shows_what_it_says(tmp_path: Path) -> None:
    text = (DOCS / "tutorial.md").read_text("utf-8")
    nginx = (DOCS / "nginx.conf").read_text("utf-8")
    for port in ("3000", "8080"):
        chosen = str(free_port())
        text, nginx = text.replace(port, chosen), nginx.replace(port, chosen)
    if os.geteuid() == 0:
        # The folder of a test is its user's alone.
        text = text.replace("events {}", "user root; events {}")
    steps = []
    for title, section in _SECTION.findall(text):
        blocks = _BLOCK.findall(section)
        assert [kind for kind, _ in blocks] == ["sh", "text"], title
        steps.append((title, blocks[0][1], blocks[1][1].splitlines()))
    assert len(steps) == 9
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "nginx.conf").write_text(nginx)
    (tmp_path / "tutorial").mkdir()
    lines = ["trap 'kill $(jobs -p); wait' EXIT"]
    for title, script, _ in steps:
        lines += [f"echo '## {title}'", "" if left_out(script) else script]
    done = bash("\n".join(lines), tmp_path / "tutorial")
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    parts = re.split(r"^## (.*)\n", done.stdout, flags=re.MULTILINE)[1:]
    printed = dict(zip(parts[::2], parts[1::2], strict=True))
    for title, script, expected in steps:
        if not left_out(script):
            assert [line for line in expected if line not in printed[title]] == [], printed[title]
