"""Where Java has too little memory or disk, one sentence says what to set."""

import os
import subprocess
import sys

import pytest

from tests.support.spark_cluster import PROJECT

_PROGRAM = """
import os, sys
from pyspark.sql import SparkSession
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import SparkSettings, spark_context

try:
    with spark_context(SparkSettings.from_environment(os.environ), os.environ) as context:
        SparkSession(context).range(2).selectExpr("repeat('x', 400000000)").collect()
except SparkError as error:
    print(error)
"""


_FULL = _PROGRAM.replace(
    "SparkSession(context).range(2).selectExpr(\"repeat('x', 400000000)\").collect()",
    "raise Py4JError('java.io.IOException: No space left on device')",
).replace("import os", "from py4j.protocol import Py4JError\nimport os")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("program", "says"),
    [
        (_PROGRAM, "600m are too little memory for Java: set --memory or TPF_"),
        (_FULL, "no space is left for Spark's temporary files: set TPF_SPARK_LOCAL_DIR; see "),
    ],
)
def test_too_little_memory_or_disk_for_java_is_explained(program: str, says: str) -> None:
    environment = {**os.environ, "TPF_SPARK_MASTER": "local[1]", "TPF_SPARK_MEMORY": "600m"}
    job = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False,
        env=environment, timeout=120,
    )  # fmt: skip
    assert job.stdout.startswith(says), job
    assert job.stdout.count("\n") == 1
