"""Executors that are missing or die are counted; the web pages of Spark are where they say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_cluster import PROJECT, SparkCluster
from tests.support.webhdfs import serving_files
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


_SERVER = """
import os, sys, time
from contextlib import nullcontext
from pathlib import Path
from threading import RLock
from annotations.terms import Term
from tpf_server.continuous.languages.csparql.parser import parse
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.continuous.spark.executor import SparkExecutor

url, work = sys.argv[1:]
executor = SparkExecutor(
    StaticData(), Path(work), RLock(), base="http://e/", master=os.environ["TPF_SPARK_MASTER"],
    shared=url, every=0.1,
)
text = "SELECT ?s FROM STREAM <s> [RANGE 20ms STEP 10ms] { ?s <http://e/p> ?o FILTER(?o > %d) }"
answers, end = {1: [], 5: []}, time.monotonic() + 200
for least, found in answers.items():
    query = parse(text % least, "http://e/")
    made = executor.start(query, found.append, name=f"q{least}")
at = 0
while min(map(len, answers.values())) < 7:
    assert time.monotonic() < end and made.active, (made.state, made.error)
    if made.state == "running":
        at += 10
        number = f'"{at // 10}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        executor.arrive(Term("<http://e/s>"), [[f"<http://e/{at}>", "<http://e/p>", number]], at)
        executor.advance(at, None)
    time.sleep(0.3)
for found in answers.values():
    print(*(f"{each.at}:{len(each.rows)}" for each in found[:7]))
os._exit(0)
"""


@pytest.mark.spark
def test_executors_read_the_elements_of_a_server_at_a_url(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    with serving_files(spark_cluster, tmp_path / "files") as url:
        done = subprocess.run(
            spark_cluster.command([sys.executable, "-c", _SERVER, f"{url}/work", tmp_path / "own"]),
            cwd=PROJECT, capture_output=True, text=True, env=spark_cluster.environment,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    # A window has the elements of the two steps before its instant.
    assert done.stdout.splitlines() == [
        "10:0 20:1 30:2 40:2 50:2 60:2 70:2",
        "10:0 20:0 30:0 40:0 50:0 60:1 70:2",
    ]
    assert (tmp_path / "files" / "work" / "queries1").is_dir()


@pytest.mark.parametrize("port", ["-1", "65536", "on", ""])
def test_a_wrong_port_is_quoted(port: str) -> None:
    with pytest.raises(SparkSettingError, match=f"a port from 0 to 65535, not '{port}'"):
        SparkSettings.from_environment({"TPF_SPARK_UI": port})
