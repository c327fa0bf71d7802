"""Readiness, metrics, log and end of a running server."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
import requests
from click.testing import CliRunner

from tests.support.eventually import eventually, listens
from tests.support.running_server import STOP_SECONDS, TOKEN, RunningServer, workers_of
from tests.support.served import Served
from tests.support.stores import CREATED
from tests.tpf_server.conftest import STATIC
from tpf_server.claimed_port import claimed_port
from tpf_server.cli import main
from tpf_server.store.static.indexing import index_files

LINE = "<http://example.org/a> <http://example.org/p> <x:o> .\n"
BODY = b'<x:s> <x:p> "1" .\n'


def test_the_access_log_has_a_line_per_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.nt").write_text(LINE)
    told = ""

    def is_told(part: str) -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return part in told

    with RunningServer(tmp_path, "", "a.nt", "--access-log") as server:
        requests.get(f"{server.url}a?page=0", timeout=30)
        requests.head(f"{server.url}a", timeout=30)
        requests.get(f"{server.url}%0aforged%1b[2J", timeout=30)
        for request, status in (
            ("GET /a", 400), ("HEAD /a", 200), (r"GET /\nforged\x1b[2J", 404),
        ):  # fmt: skip
            line = f'"{request} HTTP/1.1" {status}'
            eventually(partial(is_told, line))
            assert told.count(line) == 1


@pytest.mark.parametrize("end", [psutil.Process.terminate, psutil.Process.kill])
def test_a_worker_that_ends_is_replaced_and_what_it_answered_is_counted(
    tmp_path: Path, end: Callable[[psutil.Process], None]
) -> None:
    (tmp_path / "a.nt").write_text(LINE)
    with RunningServer(tmp_path, '[datasets.a]\nsource = "a.nt"\n') as server:

        def metrics() -> str | None:
            with suppress(requests.ConnectionError):
                return requests.get(f"{server.url}metrics", timeout=30).text
            return None

        for _ in range(20):
            assert requests.head(f"{server.url}a", timeout=30).status_code == 200
        (worker,) = workers_of(server.process.pid)
        end(worker)
        eventually(lambda: workers_of(server.process.pid) not in ([], [worker]))
        text = eventually(metrics)
        if end is psutil.Process.terminate:
            assert 'tpf_requests_total{method="HEAD",status="200"} 20.0' in text
        assert requests.get(f"{server.url}a", timeout=30).status_code == 200
        server.process.terminate()
        assert server.process.wait(STOP_SECONDS) == 0


LIVE = "[datasets.trains]\nlive = true\n"


@contextmanager
def publishing(server: RunningServer, length: int) -> Iterator[socket.socket]:
    """A request under way when its server is told to stop: the application reads the body."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(
            b"POST /trains/facts?expiration=2999-01-01T00:00:00Z HTTP/1.1\r\nHost: x\r\n"
            b"Authorization: Bearer %b\r\nContent-Type: text/turtle\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (TOKEN.encode(), length)
        )
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY[:5])
        server.process.terminate()
        eventually(lambda: not listens(server.port))
        yield connection


def test_requests_under_way_are_finished_before_the_end_unless_the_parent_is_killed(
    tmp_path: Path,
) -> None:
    with RunningServer(tmp_path, LIVE) as server:
        with publishing(server, len(BODY)) as connection:
            assert server.process.poll() is None
            connection.sendall(BODY[5:])
            assert connection.recv(4096).startswith(b"HTTP/1.1 201 ")
        assert server.process.wait(STOP_SECONDS) == 0
    with RunningServer(tmp_path, LIVE) as server:
        assert BODY in requests.get(f"{server.url}trains.nt", timeout=30).content
        (worker,) = workers_of(server.process.pid)
        # This one stays under way. A second signal would block the WSGI server of the worker.
        with publishing(server, 1000):
            server.process.kill()
            _, alive = psutil.wait_procs([worker], timeout=60)
        for process in alive:
            process.kill()
    assert not alive


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


def test_a_damaged_store_is_refused_at_the_start_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store = tmp_path / "a.nt", tmp_path / "a.store"
    source.write_text(LINE * 3)
    index_files([source], store, created=CREATED)
    monkeypatch.chdir(tmp_path)
    damaged = max(store.glob("*/*.npy"), key=lambda file: file.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    result = CliRunner().invoke(main, ["a.store"])
    assert result.exit_code == 1
    assert damaged.name in result.output
    assert "Traceback" not in result.output
    assert len(result.output.splitlines()) == 1


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
