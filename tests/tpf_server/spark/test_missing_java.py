"""A command reports a missing Java in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def test_without_java_a_command_says_so(tmp_path: Path) -> None:
    """That of continuous queries is tested with its service."""
    pytest.importorskip("pyspark")
    (tmp_path / "a.nt").write_text('<http://e/a> <http://e/p> "x" .\n')
    command = ["tpf-load", "rdf", "a.nt", "-o", "store", "--engine", "spark"]
    java = {"PYTHONPATH": str(PROJECT), "TPF_SPARK_JAVA_HOME": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-m", "tpf_client.commands", *command],
        cwd=tmp_path,
        env=os.environ | java,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == (
        f"tpf-load: no Java in {tmp_path / 'none'} (there is no bin/java that runs); "
        "or use --engine local\n"
    )
    assert done.returncode == 1
