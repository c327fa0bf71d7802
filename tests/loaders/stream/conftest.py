"""Streaming jobs as processes, and what arrives for them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loaders.facts_server import Endpoint, facts_endpoint
from tests.support.spark_cluster import SparkCluster

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with facts_endpoint() as found:
        yield found


@pytest.fixture
def start(java: None, tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    processes: list[subprocess.Popen[bytes]] = []

    def run(
        source: object, url: str, *arguments: object, cluster: SparkCluster | None = None
    ) -> "subprocess.Popen[bytes]":
        command = [
            sys.executable, "-m", "tpf_client.commands", "tpf-load", "stream", source, url,
            "--checkpoint", tmp_path / "checkpoint", "--token", "secret", "--memory", "512m",
            *arguments,
        ]  # fmt: skip
        words = list(map(str, command))
        if cluster is None:
            words += ["--master", "local[2]"]
        with (tmp_path / "job.log").open("ab") as log:
            process = subprocess.Popen(
                words if cluster is None else cluster.command(words), cwd=PROJECT, stderr=log,
                env=None if cluster is None else cluster.environment, start_new_session=True,
            )  # fmt: skip
        processes.append(process)
        return process

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
