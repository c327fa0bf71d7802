"""Readiness, metrics, log and end of a running server."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import requests
from click.testing import CliRunner

from tests.support.running_server import STOP_SECONDS, TOKEN, RunningServer, workers_of
from tests.support.served import Served
from tests.support.stores import CREATED
from tests.tpf_server.conftest import STATIC
from tests.tpf_server.test_cli import COMMAND, environment
from tpf_server.claimed_port import claimed_port
from tpf_server.cli import main
from tpf_server.errors import ListenError
from tpf_server.store.static.indexing import index_files

LINE = "<http://example.org/a> <http://example.org/p> <x:o> .\n"
BODY = b'<x:s> <x:p> "1" .\n'


@contextmanager
def logged(folder: Path, *arguments: str) -> Iterator[tuple[str, Path]]:
    """A server whose standard error is a file."""
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*COMMAND, *arguments, "--port", "0"], cwd=folder, env=environment(), stderr=file
        )
    try:
        deadline = time.monotonic() + 60
        while not (ready := re.search(r"tpf-server: (http://\S+)", log.read_text())):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield ready[1], log
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def test_the_access_log_has_a_line_per_request(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text(LINE)
    with logged(tmp_path, "a.nt", "--access-log") as (url, log):
        requests.get(f"{url}a?page=0", timeout=30)
        requests.head(f"{url}a", timeout=30)
    lines = [line for line in log.read_text().splitlines() if "readyz" not in line]
    assert sum('"GET /a HTTP/1.1" 400' in line for line in lines) == 1
    assert sum('"HEAD /a HTTP/1.1" 200' in line for line in lines) == 1


def test_metrics_are_summed_over_the_workers(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text(LINE)
    with RunningServer(tmp_path, '[datasets.a]\nsource = "a.nt"\n', "--workers", "2") as server:
        for _ in range(20):
            # Another connection each time, perhaps to another worker.
            assert requests.get(f"{server.url}a", timeout=30).status_code == 200
        assert requests.get(f"{server.url}nothing", timeout=30).status_code == 404
        deadline = time.monotonic() + 30
        while True:
            text = requests.get(f"{server.url}metrics", timeout=30).text
            count = re.search(r'tpf_requests_total{method="GET",status="200"} (\d+)', text)
            # The first one asked whether the server is ready.
            if count is not None and int(count[1]) >= 20 and 'status="404"} 1.0' in text:
                break
            # A worker that is not asked itself adds up what it has answered every second.
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert re.search(r"^tpf_request_seconds_bucket", text, re.MULTILINE)


def test_requests_of_a_worker_that_was_told_to_stop_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text(LINE)
    with RunningServer(tmp_path, '[datasets.a]\nsource = "a.nt"\n') as server:
        (worker,) = workers_of(server.process.pid)
        for _ in range(20):
            assert requests.head(f"{server.url}a", timeout=30).status_code == 200
        worker.terminate()
        deadline = time.monotonic() + 60
        while workers_of(server.process.pid) in ([], [worker]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while True:
            try:
                text = requests.get(f"{server.url}metrics", timeout=30).text
                break
            except requests.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert 'tpf_requests_total{method="HEAD",status="200"} 20.0' in text


def test_requests_under_way_are_finished_before_the_end(tmp_path: Path) -> None:
    with RunningServer(tmp_path, "[datasets.trains]\nlive = true\n") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(
                b"POST /trains/facts?expiration=2999-01-01T00:00:00Z HTTP/1.1\r\nHost: x\r\n"
                b"Authorization: Bearer %b\r\nContent-Type: text/turtle\r\n"
                b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (TOKEN.encode(), len(BODY))
            )
            # Now it is under way: the application reads the body.
            assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(BODY[:5])
            server.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + 30
            while _accepts(server.port):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert server.process.poll() is None
            connection.sendall(BODY[5:])
            assert connection.recv(4096).startswith(b"HTTP/1.1 201 ")
        assert server.process.wait(STOP_SECONDS) == 0
    with RunningServer(tmp_path, "[datasets.trains]\nlive = true\n") as server:
        assert BODY in requests.get(f"{server.url}trains.nt", timeout=30).content


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except OSError:
        return False
    return True


def test_a_worker_that_was_killed_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text(LINE)
    with RunningServer(tmp_path, '[datasets.a]\nsource = "a.nt"\n') as server:
        (worker,) = workers_of(server.process.pid)
        worker.kill()
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline
            try:
                if requests.get(f"{server.url}a", timeout=30).status_code == 200:
                    break
            except requests.ConnectionError:
                time.sleep(0.05)
        assert workers_of(server.process.pid) != [worker]
        server.process.terminate()
        assert server.process.wait(STOP_SECONDS) == 0


def test_a_server_whose_stores_do_not_answer_is_not_ready(tmp_path: Path) -> None:
    with Served(tmp_path, STATIC) as served:
        assert served.get("readyz").status_code == 200
        assert served.dataset.static is not None
        served.dataset.static.close()
        response = served.get("readyz")
        assert response.status_code == 503
        assert "trains" in response.json()["detail"]
        assert response.headers["Cache-Control"] == "no-store"
        # The process lives.
        assert served.get("healthz").status_code == 200


@pytest.mark.parametrize("damage", ["cut short", "altered", "half-written"])
def test_a_damaged_store_is_refused_at_the_start_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    source, store = tmp_path / "a.nt", tmp_path / "a.store"
    source.write_text(LINE * 3)
    index_files([source], store, created=CREATED)
    monkeypatch.chdir(tmp_path)
    if damage == "half-written":
        (store / "manifest.json").unlink()
        damaged = store
    else:
        damaged = max(store.glob("*/*.npy"), key=lambda file: file.stat().st_size)
        data = damaged.read_bytes()
        written = damaged.stat().st_mtime_ns
        damaged.write_bytes(data[:-1] if damage == "cut short" else data[:-1] + b"\xff")
        # A file system may not tell two instants apart that are this close.
        os.utime(damaged, ns=(written + 10**9, written + 10**9))
    result = CliRunner().invoke(main, ["a.store"])
    assert result.exit_code == 1
    assert damaged.name in result.output
    assert "Traceback" not in result.output
    assert len(result.output.splitlines()) == 1


def test_a_worker_that_was_told_to_stop_ends_although_its_parent_is_killed(tmp_path: Path) -> None:
    """A second signal would block its WSGI server."""
    with RunningServer(tmp_path, "[datasets.trains]\nlive = true\n") as server:
        (worker,) = workers_of(server.process.pid)
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(
                b"POST /trains/facts?expiration=2999-01-01T00:00:00Z HTTP/1.1\r\nHost: x\r\n"
                b"Authorization: Bearer %b\r\nContent-Type: text/turtle\r\n"
                b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n" % TOKEN.encode()
            )
            # A request is under way, and stays so: its body never comes.
            assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
            server.process.terminate()
            deadline = time.monotonic() + 30
            while _accepts(server.port):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            server.process.kill()
            _, alive = psutil.wait_procs([worker], timeout=60)
        for process in alive:
            process.kill()
    assert not alive


_WORKER = """
import socket, sys
from tpf_server.claimed_port import mark_worker
with socket.create_server(("127.0.0.1", 0), reuse_port=True) as here:
    port = here.getsockname()[1]
    mark_worker("127.0.0.1", port)
    print(port, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are not known by name")
def test_a_server_waits_for_the_workers_of_one_that_was_killed() -> None:
    looks = 0

    def wait() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            worker.kill()
            worker.wait(60)

    with subprocess.Popen(
        [sys.executable, "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        port = int(worker.stdout.readline())
        with claimed_port("127.0.0.1", port, wait) as claimed:
            assert (claimed, looks) == (port, 3)


def test_a_port_is_refused_at_once_where_nobody_is_about_to_end(tmp_path: Path) -> None:
    def wait() -> None:
        raise AssertionError("it waits")

    with (
        RunningServer(tmp_path, "[datasets.trains]\nlive = true\n") as server,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        if sys.platform == "linux":
            (worker,) = workers_of(server.process.pid)
            mark = f"@tpf-server/127.0.0.1/{server.port}/{worker.pid}\n"
            assert mark in Path("/proc/net/unix").read_text()
        for port in (server.port, other.getsockname()[1]):
            with (
                pytest.raises(ListenError, match="Address already in use"),
                claimed_port("127.0.0.1", port, wait),
            ):
                pass
