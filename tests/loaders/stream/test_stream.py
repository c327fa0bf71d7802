"""The streaming job as a process: killed and started again, it sends everything exactly once."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest

from annotations.clock import SystemClock
from loaders.errors import JavaNotFoundError
from loaders.java import find_java
from tests.loaders.facts_server import FactsServer
from tests.loaders.stream.test_records import METADATA
from tests.support.running_server import free_port

PROJECT = Path(__file__).parents[3]
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


class Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


class Endpoint:
    """A server of facts on a port."""

    def __init__(self) -> None:
        self.facts = FactsServer(SystemClock())
        self.server: WSGIServer = make_server("127.0.0.1", 0, self._call, handler_class=Quiet)
        self.url = f"http://127.0.0.1:{self.server.server_port}/sensors"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def _call(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        # The input of this server does not end at the end of the body.
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        return self.facts(environ | {"wsgi.input": io.BytesIO(body)}, start_response)

    def wait_for(self, batches: int, process: "subprocess.Popen[bytes]") -> None:
        end = time.monotonic() + 240
        while len(self.facts.accepted) < batches:
            assert process.poll() is None, "the job ended"
            assert time.monotonic() < end, "nothing came"
            time.sleep(0.05)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    pytest.importorskip("pyspark")
    try:
        find_java(None, os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    found = Endpoint()
    yield found
    found.server.shutdown()
    found.server.server_close()
    found.thread.join()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    processes: list[subprocess.Popen[bytes]] = []

    def run(source: object, url: str, *arguments: object) -> "subprocess.Popen[bytes]":
        command = [
            sys.executable, "-c", "from loaders.cli import load; load()", "stream", source, url,
            "--checkpoint", tmp_path / "checkpoint", "--token", "secret", "--master", "local[2]",
            "--memory", "512m", *arguments,
        ]  # fmt: skip
        with (tmp_path / "job.log").open("ab") as log:
            process = subprocess.Popen(
                list(map(str, command)), cwd=PROJECT, stderr=log, start_new_session=True
            )
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


def test_killed_and_started_again(
    tmp_path: Path, endpoint: Endpoint, start: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    (tmp_path / "m.json").write_text(json.dumps(METADATA))
    arguments = ["--mapping", tmp_path / "m.json", "--holds", "3600", "--per-batch", "3"]
    wanted = [write_csv(arriving, number) for number in range(9)]
    bad = arriving / "bad.csv"
    bad.write_text("id,at,value\nx,soon,1\n")
    os.utime(bad, (time.time() - 60,) * 2)
    # Slow enough to be killed in the middle of a micro-batch.
    endpoint.facts.takes = lambda: time.sleep(0.3)
    job = start(arriving, endpoint.url, *arguments)
    endpoint.wait_for(4, job)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert len(endpoint.facts.accepted) < 9
    # More arrives while the job is away, and the answers of some batches get lost.
    wanted += [write_csv(arriving, number) for number in range(9, 12)]
    endpoint.facts.faults = ["lost", 503]
    job = start(arriving, endpoint.url, *arguments, "--once")
    assert job.wait(300) == 0, (tmp_path / "job.log").read_text()
    assert [posted.lines for posted in endpoint.facts.accepted] == [[line] for line in wanted]
    assert len({posted.batch for posted in endpoint.facts.accepted}) == 12
    # What was sent before the kill was sent again under the same name, and ignored.
    assert endpoint.facts.repeated
    log = (tmp_path / "job.log").read_text()
    assert "left out: bad.csv: bad.csv, line 2" in log
    # Nothing is left to do.
    before = endpoint.facts.requests
    job = start(arriving, endpoint.url, *arguments, "--once")
    assert job.wait(300) == 0
    assert endpoint.facts.requests == before


def test_a_refusal_ends_the_job(
    tmp_path: Path, endpoint: Endpoint, start: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.nt").write_text('<http://e/a> <http://e/b> "c" .\n')
    job = start(tmp_path / "in", endpoint.url, "--holds", "60", "--token", "wrong", "--once")
    assert job.wait(300) == 1
    log = (tmp_path / "job.log").read_text()
    assert "tpf-load: " in log.splitlines()[-1]
    assert "refused a batch: 401" in log.splitlines()[-1]


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
    (tmp_path / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    with (tmp_path / "broker.log").open("wb") as log:
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
        end = time.monotonic() + 240
        while "as tpf-load-checkpoint" not in (tmp_path / "broker.log").read_text():
            assert job.poll() is None, (tmp_path / "job.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.1)
        time.sleep(1)  # the subscription follows the connection
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
        job.send_signal(signal.SIGTERM)
        assert job.wait(120) == 0, (tmp_path / "job.log").read_text()
        assert sorted(line for posted in endpoint.facts.accepted for line in posted.lines) == lines
        assert len(list(spool.glob("*.nt"))) == 8
    finally:
        broker.terminate()
        broker.wait()
