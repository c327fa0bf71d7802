"""The streaming job sends everything exactly once, also when killed."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyoxigraph as ox
import pytest

from experiments.free_port import free_port
from loaders.stream.job import StreamJobSettings, messages_of
from tests.loaders.facts_server import Endpoint, facts_endpoint
from tests.loaders.stream.test_event_source import Events, sse
from tests.loaders.stream.test_event_source import serve as serve
from tests.loaders.stream.test_records import METADATA
from tests.support.eventually import eventually
from tests.support.running_server import TOKEN, RunningServer
from tests.support.spark_cluster import PROJECT, SparkCluster
from tests.support.webhdfs import serving_files
from tpf_client import commands
from tpf_server.spark.java import SparkError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


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


def write_csv(folder: Path, number: int) -> str:
    """A file that arrives complete; returns what its facts look like."""
    aside = folder / f".{number}"
    aside.write_text(f"id,at,value\nsensor{number % 3},2026-01-01T00:00:00Z,{number}\n")
    # One instant per file, so that their sequence is certain.
    os.utime(aside, (time.time() + number / 100,) * 2)
    aside.rename(folder / f"{number:03}.csv")
    integer = "http://www.w3.org/2001/XMLSchema#integer"
    return f'<http://e/sensor{number % 3}> <http://e/value> "{number}"^^<{integer}> .'


@pytest.fixture
def run_here(
    spark: Any, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Run a job in this process, with the Spark of all tests; return its exit status."""
    from pyspark.sql import SparkSession

    session = nullcontext(SparkSession(spark))
    monkeypatch.setattr("loaders.commands.stream.spark_session", lambda *_, **__: session)

    def run(source: Path, token: str, *arguments: object) -> int:
        words = ["stream", source, endpoint.url, "--checkpoint", tmp_path / "checkpoint"]
        words += ["--token", token, "--once", *arguments]
        return commands.run("tpf-load", list(map(str, words)))

    return run


def test_what_is_sent_again_is_sent_under_the_same_name(
    tmp_path: Path, endpoint: Endpoint, run_here: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    (tmp_path / "m.json").write_text(json.dumps(METADATA))
    arguments = ["--mapping", tmp_path / "m.json", "--holds", "3600", "--per-batch", "3"]
    wanted = [write_csv(arriving, number) for number in range(9)]
    bad = arriving / "bad.csv"
    bad.write_text("id,at,value\nx,soon,1\n")
    latin = arriving / "latin.csv"
    latin.write_bytes("id,at,value\né,soon,1\n".encode("latin-1"))
    for left_out in (bad, latin):
        os.utime(left_out, (time.time() - 60,) * 2)
    # The answers of some batches get lost.
    endpoint.facts.faults = ["lost", 503, "lost"]
    assert run_here(arriving, "secret", *arguments) == 0
    assert [posted.lines for posted in endpoint.facts.accepted] == [[line] for line in wanted]
    assert len({posted.batch for posted in endpoint.facts.accepted}) == 9
    assert len(endpoint.facts.repeated) == 2
    said = capsys.readouterr().err
    assert "left out: bad.csv: bad.csv, line 2" in said
    assert "left out: latin.csv: not UTF-8" in said


LIVE = """
data_dir = "."
[datasets.sensors]
live = true
"""


def receipts(folder: Path) -> tuple[int, int]:
    """Return the number of batches with a receipt, and of the last change."""
    with closing(sqlite3.connect(folder / "live" / "sensors.sqlite")) as log:
        (found,) = log.execute("SELECT count(*), max(sequence) FROM receipts").fetchall()
    return found[0], found[1]


def fetched(cluster: SparkCluster, url: str) -> bytes:
    """A page, asked for where the server can be reached."""
    program = """import sys, urllib.request as r
request = r.Request(sys.argv[1], headers={"Accept": "text/turtle"})
sys.stdout.buffer.write(r.urlopen(request, timeout=60).read())"""
    command = cluster.command([sys.executable, "-c", program, url])
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout


def test_executors_job_and_server_killed_in_between_on_a_cluster(
    tmp_path: Path,
    start: Callable[..., "subprocess.Popen[bytes]"],
    spark_cluster: SparkCluster,
) -> None:
    """Input and checkpoint are at a URL."""
    files = tmp_path / "files"
    arriving = files / "arriving"
    arriving.mkdir(parents=True)
    (tmp_path / "m.json").write_text(json.dumps(METADATA))
    count = 24
    last = dict(
        line.removesuffix(" .").rsplit(" ", 1)
        for line in (write_csv(arriving, number) for number in range(count))
    )

    def wait_for(receipt: int, job: "subprocess.Popen[bytes]") -> None:
        eventually(lambda: receipts(tmp_path)[0] >= receipt, job)

    with serving_files(spark_cluster, files) as place:
        there = ("--host", spark_cluster.host)
        arguments = [
            "--mapping", tmp_path / "m.json", "--holds", "3600", "--token", TOKEN,
            "--checkpoint", f"{place}/checkpoint", "--publish-from", "executors",
        ]  # fmt: skip
        job_of = partial(start, f"{place}/arriving", cluster=spark_cluster)
        with RunningServer(tmp_path, LIVE, *there, within=spark_cluster.command) as server:
            url = f"{server.url}sensors"
            assert fetched(spark_cluster, url)
            job = job_of(url, *arguments, "--per-batch", "4")
            wait_for(4, job)
            executors = spark_cluster.executors()
            assert executors
            for each in executors:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            wait_for(receipts(tmp_path)[0] + 4, job)
            workers = psutil.Process(server.process.pid).children(recursive=True)
            server.process.kill()
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            server.process.wait()
            # They notice it by and by, and have the port until then.
            assert not psutil.wait_procs(workers, 60)[1]
        assert 8 <= receipts(tmp_path)[0] < count
        with RunningServer(tmp_path, LIVE, *there, port=server.port, within=spark_cluster.command):
            job = job_of(url, *arguments, "--once")
            assert job.wait(300) == 0, (tmp_path / "job.log").read_text()
            page = fetched(spark_cluster, f"{url}/plain?predicate=http%3A%2F%2Fe%2Fvalue")
            # Every batch counted once, so none of them came after a later one.
            assert receipts(tmp_path) == (count, count)
            shown = {
                f"{quad.subject} {quad.predicate}": str(quad.object)
                for quad in ox.parse(page, ox.RdfFormat.TURTLE)
                if quad.predicate.value == "http://e/value"
            }
            assert shown == last


def test_a_refusal_ends_the_job(
    tmp_path: Path, run_here: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.nt").write_text('<http://e/a> <http://e/b> "c" .\n')
    assert run_here(tmp_path / "in", "wrong", "--holds", "60") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("tpf-load: ")
    assert "refused a batch: 401" in last


@pytest.mark.peers
def test_messages_of_mosquitto(
    tmp_path: Path, endpoint: Endpoint, start: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    from shutil import which

    import paho.mqtt.publish as publish

    program = which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed")
    port = free_port()
    (tmp_path / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nlog_type all\n"
    )
    broker_log = tmp_path / "broker.log"
    with broker_log.open("wb") as log:
        broker = subprocess.Popen(
            [program, "-c", tmp_path / "mosquitto.conf"], stdout=log, stderr=log
        )
    try:
        arguments = ["--topic", "sensors/+", "--holds", "3600", "--suffix", "nt"]
        source = f"mqtt://127.0.0.1:{port}"
        job = start(source, endpoint.url, *arguments)
        lines = [f'<http://e/{n}> <http://e/value> "{n}" .' for n in range(8)]

        def send(number: int) -> None:
            publish.single(
                f"sensors/{number}", lines[number] + "\n", qos=1, hostname="127.0.0.1", port=port
            )

        spool = tmp_path / "checkpoint" / "spool"
        subscribed = "Sending SUBACK to tpf-load-checkpoint"
        eventually(lambda: subscribed in broker_log.read_text(), job)
        for number in range(4):
            send(number)
        endpoint.wait_for(2, job)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        # The broker keeps what comes while the job is away.
        for number in range(4, 8):
            send(number)
        job = start(source, endpoint.url, *arguments)
        endpoint.wait_for(8, job)
        # What was read leaves the spool when the next micro-batch was published.
        removed = tmp_path / "checkpoint" / "spool-read"
        eventually(lambda: any(removed.iterdir()), job)
        job.send_signal(signal.SIGINT)
        assert job.wait(120) == 0, (tmp_path / "job.log").read_text()
        assert sorted(line for posted in endpoint.facts.accepted for line in posted.lines) == lines
        read = {path.name for path in removed.iterdir()}
        assert len(read | {path.name for path in spool.iterdir()}) == 8
        assert not read & {path.name for path in spool.iterdir()}
    finally:
        broker.terminate()
        broker.wait()


def test_server_sent_events(
    tmp_path: Path, endpoint: Endpoint, start: Callable[..., "subprocess.Popen[bytes]"],
    serve: Callable[[list[tuple[int, str, bytes]]], str],
) -> None:  # fmt: skip
    lines = [f'<http://e/{n}> <http://e/value> "{n}" .' for n in range(3)]
    first = f"retry: 1\nid: 0\ndata: {lines[0]}\n\nid: x\ndata: no fact\n\nid: 1\ndata: cut"
    # The server repeats what it was not asked for, too.
    again = "".join(f"id: {n}\ndata: {line}\n\n" for n, line in enumerate(lines))
    source = serve([sse(first), sse(again)])
    arguments = ["--holds", "3600", "--suffix", "nt", "--publish-from", "driver"]
    job = start(source, endpoint.url, *arguments)
    endpoint.wait_for(3, job)
    job.send_signal(signal.SIGINT)
    log = tmp_path / "job.log"
    assert job.wait(120) == 0, log.read_text()
    assert sorted(line for posted in endpoint.facts.accepted for line in posted.lines) == lines
    assert Events.resumed == [None, "x"]
    assert log.read_text().count("left out: ") == 1


def test_a_missing_source_of_kafka_is_named(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    with pytest.raises(SparkError) as raised:
        messages_of(session, "127.0.0.1:9", "sensors", StreamJobSettings(tmp_path))
    said = str(raised.value)
    assert len(said.splitlines()) == 1
    assert f"TPF_SPARK_PACKAGES=org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}" in said
