"""An archive of Java's classes: the tests' own is made by this command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.java_classes import FOLDER, PROJECT

_PROGRAM = """
import os
from tpf_server.spark.session import SparkSettings, spark_context

with spark_context(SparkSettings.from_environment(os.environ, master="local[1]")) as context:
    print(context.range(3).sum())
"""


@pytest.mark.spark
def test_java_maps_an_archive_of_its_classes(java: None, tmp_path: Path) -> None:
    log = tmp_path / "log"
    more = {"TPF_SPARK_CLASSES": str(FOLDER), "TPF_SPARK_LOG": str(log)}
    environment = os.environ | more | {"JAVA_TOOL_OPTIONS": "-Xlog:cds"}
    environment.pop("SPARK_SUBMIT_OPTS", None)  # the tests' own way
    job = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=PROJECT, capture_output=True, text=True, check=False,
        env=environment, timeout=120,
    )  # fmt: skip
    assert job.stdout == "3\n", job
    assert "Mapped dynamic" in log.read_text(errors="replace")


@pytest.mark.spark
def test_a_folder_that_cannot_be_written_is_named(java: None, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = str(tmp_path / "file")
    command = [sys.executable, "-m", "tpf_client.commands", "tpf-load", "classes", file]
    job = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=60
    )
    assert job.returncode == 2
    assert job.stderr == f"tpf-load: {file} is no directory to write to: File exists\n"
