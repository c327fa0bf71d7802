"""An archive of Java's classes: the tests' own is made by this setting."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.java_classes import FOLDER, PROJECT

_PROGRAM = """
import os
import sys
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import SparkSettings, spark_context

for classes in (os.environ["TPF_SPARK_CLASSES"], sys.executable):
    settings = SparkSettings.from_environment(os.environ, master="local[1]", classes=classes)
    try:
        with spark_context(settings) as context:
            print(context.range(3).sum())
    except SparkError as error:
        print(error)
"""


@pytest.mark.spark
def test_java_maps_an_archive_of_its_classes(java: None, tmp_path: Path) -> None:
    archives = sorted(FOLDER.glob("*.jsa"))
    log = tmp_path / "log"
    more = {"TPF_SPARK_CLASSES": str(FOLDER), "TPF_SPARK_LOG": str(log)}
    environment = os.environ | more | {"JAVA_TOOL_OPTIONS": "-Xlog:cds"}
    environment.pop("SPARK_SUBMIT_OPTS", None)  # the tests' own way
    job = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=PROJECT, capture_output=True, text=True, check=False,
        env=environment, timeout=120,
    )  # fmt: skip
    total, error = job.stdout.splitlines()
    assert total == "3", job
    assert error.startswith("TPF_SPARK_CLASSES is a directory to write to, not "), job
    assert "Mapped dynamic" in log.read_text(errors="replace")
    assert sorted(FOLDER.glob("*.jsa")) == archives
