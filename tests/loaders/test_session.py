"""What a user reads when Spark does not start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loaders.errors import JavaNotFoundError
from loaders.java import find_java

PROJECT = Path(__file__).parents[2]


@pytest.mark.spark
def test_the_reason_is_said_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    try:
        find_java(None, os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    (tmp_path / "a.nt").write_text('<http://e/a> <http://e/p> "x" .\n')
    command = [sys.executable, "-m", "commands", "tpf-load", "rdf"]
    command += [str(tmp_path / "a.nt"), "-o", str(tmp_path / "store"), "--engine", "spark"]
    environment = os.environ | {"TPF_SPARK_MEMORY": "banana", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("tpf-load: Spark did not start (Invalid maximum heap size: -Xmxbanana);")
    # The log that it points to is there.
    assert Path(line.rpartition("see ")[2]).exists()
    assert not (tmp_path / "store").exists()
