"""The same load on a standalone cluster: a master and two workers on the loopback interface."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tpf_server.store.static.manifest import read_manifest
from tpf_spark.errors import JavaNotFoundError
from tpf_spark.java import find_java

pytestmark = pytest.mark.spark


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(log: Path, text: str, count: int = 1) -> None:
    for _ in range(600):
        if log.exists() and log.read_text().count(text) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{text!r} did not come: {log.read_text()[-2000:]}")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    pyspark = pytest.importorskip("pyspark")
    try:
        java = find_java(None, os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    home = Path(pyspark.__file__).parent
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    environment = os.environ | {
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    deploy = "org.apache.spark.deploy"
    address = ["--host", "127.0.0.1", "--webui-port", str(free_port())]
    commands = {"master": [f"{deploy}.master.Master", *address, "--port", str(port)]}
    for name in ("one", "two"):
        commands[name] = [
            f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", str(free_port()),
            "--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / name), url,
        ]  # fmt: skip
    with ExitStack() as stack:
        for name, command in commands.items():
            log = stack.enter_context((tmp_path / f"{name}.log").open("wb"))
            process = stack.enter_context(
                subprocess.Popen(
                    [home / "bin" / "spark-class", *command],
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
            )
            # Ended before Popen's own exit waits for it.
            stack.callback(process.terminate)
            if name == "master":
                wait_for(tmp_path / "master.log", "I have been elected leader")
        wait_for(tmp_path / "master.log", "Registering worker", 2)
        yield url


def test_a_cluster_writes_the_same_store(master: str, tmp_path: Path) -> None:
    source = tmp_path / "data.nt"
    source.write_text(
        "".join(
            f'<http://e/s{n % 700}> <http://e/p{n % 7}> "value {n % 900}"@en .\n'
            for n in range(20_000)
        )
    )
    environment = os.environ | {"TPF_SPARK_EXECUTOR_MEMORY": "512m", "TPF_SPARK_MEMORY": "512m"}
    program = [sys.executable, "-m", "commands", "tpf-load", "rdf", str(source)]
    loads = {
        "cluster": ["--engine", "spark", "--master", master],
        "local": ["--engine", "local"],
    }
    for name, arguments in loads.items():
        done = subprocess.run(
            [*program, "-o", str(tmp_path / name), *arguments], env=environment,
            capture_output=True, text=True, timeout=200, check=False,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert re.search(r"^6300 triples, 1607 terms, 7 predicates", done.stderr, re.MULTILINE)
    cluster, local = (read_manifest(tmp_path / name) for name in loads)
    assert (cluster.version, cluster.files.keys()) == (local.version, local.files.keys())
    # Both workers ran an executor of it.
    for name in ("one", "two"):
        assert list((tmp_path / name).glob("app-*/*/stderr"))
