"""Executors that are missing or die are counted; the web pages of Spark are where they say."""

import json
import subprocess
import sys

import pytest

from tests.support.spark_cluster import PROJECT, SparkCluster
from tpf_server.spark.java import SparkSettingError
from tpf_server.spark.session import SparkSettings

_PROGRAM = """
import json, os, sys, time
from tpf_server.spark.session import ExecutorWatch, SparkSettings, spark_context

with spark_context(SparkSettings.from_environment(os.environ), os.environ) as context:
    watch = ExecutorWatch(context)
    for line in sys.stdin:
        key, number = line.split()
        end = time.monotonic() + 200
        while watch.look() or watch.report[key] < int(number):
            assert time.monotonic() < end, watch.report
            time.sleep(0.1)
        print(json.dumps(watch.report), flush=True)
"""


@pytest.mark.spark
def test_executors_are_counted(spark_cluster: SparkCluster) -> None:
    environment = spark_cluster.environment
    command = spark_cluster.command([sys.executable, "-c", _PROGRAM])
    none = subprocess.run(
        command, input="lost 0\n", cwd=PROJECT, capture_output=True, text=True, check=True,
        env=environment | {"TPF_SPARK_EXECUTOR_MEMORY": "900g"},
    )  # fmt: skip
    assert json.loads(none.stdout) == {"executors": 0, "lost": 0, "waiting": True}
    with subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=environment | {"TPF_SPARK_UI": "0"},
    ) as job:  # fmt: skip
        assert job.stdin is not None
        assert job.stdout is not None
        assert job.stderr is not None
        try:
            job.stdin.write("executors 2\n")
            job.stdin.flush()
            before = json.loads(job.stdout.readline())
            spark_cluster.executors()[0].kill()
            job.stdin.write("lost 1\n")
            job.stdin.flush()
            after = json.loads(job.stdout.readline())
        finally:
            job.stdin.close()
            said = job.stderr.read()
    address = before.pop("ui")
    assert said == f"Spark's web pages: {address}\n"
    assert after["ui"] == address
    assert before == {"executors": 2, "lost": 0, "waiting": False}
    assert (after["executors"], after["lost"]) == (1, 1)


@pytest.mark.parametrize("port", ["-1", "65536", "on", ""])
def test_a_wrong_port_is_quoted(port: str) -> None:
    with pytest.raises(SparkSettingError, match=f"a port from 0 to 65535, not '{port}'"):
        SparkSettings.from_environment({"TPF_SPARK_UI": port})
