"""A real server closes idle and excess connections."""

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from annotations.labels import Expiration, Fact
from tests.support.running_server import STOP_SECONDS, TOKEN, RunningServer, workers_of
from tests.support.served import NOON, quad
from tpf_server.connections import Connections, most_connections
from tpf_server.store.live.store import open_live_store
from tpf_server.supervisor import RespawnBackoff

CONFIG = """
idle_timeout = 1
body_timeout = 2
[datasets.trains]
live = true
"""
ASKED = b"GET /trains HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = (
    f"POST /trains/facts?expiration=2999-01-01T00:00:00Z HTTP/1.1\r\nHost: x\r\n"
    f"Authorization: Bearer {TOKEN}\r\nContent-Type: text/turtle\r\nContent-Length: 99\r\n\r\n"
).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("server"), CONFIG) as running:
        yield running


def connect(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def is_ended(connection: socket.socket) -> bool:
    """Return once the other end closes it, perhaps after an answer."""
    with suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


@pytest.mark.parametrize(
    "sent", [b"", b"GET", b"GET /trains HTTP/1.1\r\nX: y\r\n", ASKED, BODY, BODY + b"<a:b>"]
)
def test_whoever_sends_nothing_more_is_let_go(server: RunningServer, sent: bytes) -> None:
    with closing(connect(server)) as connection:
        connection.sendall(sent)
        assert is_ended(connection)


def test_a_body_that_drips_is_not_waited_for(server: RunningServer) -> None:
    with closing(connect(server)) as connection:
        connection.sendall(BODY)
        connection.settimeout(0.2)
        for _ in range(300):
            with suppress(TimeoutError):
                assert not connection.recv(100).startswith(b"HTTP/1.1 2")
                break
            with suppress(OSError):
                connection.sendall(b" ")
        else:
            pytest.fail("it is waited for")
    assert requests.get(f"{server.origin}trains", timeout=30).status_code == 200


def test_an_address_has_so_many_connections_and_no_more() -> None:
    said: list[str] = []
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        port: int = listener.getsockname()[1]
        watching = Connections(port, 3, 60.0, said.append)

        def come(count: int) -> list[socket.socket]:
            made = []
            for _ in range(count):
                made.append(held.enter_context(socket.create_connection(("127.0.0.1", port))))
                held.enter_context(listener.accept()[0])
            return made

        first = come(2)
        watching.look()
        assert not said
        second = come(4)
        watching.look()
        assert said == [
            "3 connections of 127.0.0.1 are closed: it has more than 3 "
            "(max_connections_per_address)"
        ]
        for connection in first + second:
            connection.settimeout(0.5)
        # Those that were there before stay.
        assert [is_open(connection) for connection in first] == [True, True]
        assert sum(is_open(connection) for connection in second) == 1


def is_open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1))
    except TimeoutError:
        return True


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """This process may have thousands of descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"a process may have {hard} descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_clients_that_stay_connected_keep_nobody_out(tmp_path: Path) -> None:
    """1,500 idle clients with fresh answers."""
    config = "idle_timeout = 200\n[datasets.trains]\nlive = true\n"
    with RunningServer(tmp_path, config) as server, ExitStack() as held:
        for _ in range(1500):
            connection = held.enter_context(closing(connect(server)))
            connection.sendall(ASKED)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("limit", "most"),
    [(300, 150), (1200, 688), (20_000, 19_488), (2**30, 2**20), (resource.RLIM_INFINITY, 2**20)],
)
def test_connections_leave_descriptors_for_files(
    monkeypatch: pytest.MonkeyPatch, limit: int, most: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert most_connections() == most


def test_descriptors_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    watching = Connections(1, 1, 1.0, said.append)

    def takes_some() -> bool:
        used = len(os.listdir("/proc/self/fd"))
        watching.look()
        return len(os.listdir("/proc/self/fd")) > used

    # Others in this process may open some meanwhile.
    assert not all(takes_some() for _ in range(3)), "watching takes some itself"
    assert not said
    used = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("resource.getrlimit", lambda _: (used, used))
    watching.look()
    watching.look()
    assert len(said) == 1
    assert f"of {used} file descriptors are in use" in said[0]


def test_a_look_leaves_the_locks_of_files_alone(tmp_path: Path) -> None:
    """Otherwise another process that closes the log would remove its file."""
    path = tmp_path / "live.sqlite"
    with closing(open_live_store(path)) as store:
        store.publish([Fact(quad("a", "p", "1"), Expiration(NOON + timedelta(days=1)))], NOON)
        Connections(1, 1, 1.0, print).look()
        other = (
            "import sqlite3, sys; log = sqlite3.connect(sys.argv[1]); "
            "log.execute('SELECT 1 FROM batches'); log.close()"
        )
        subprocess.run([sys.executable, "-c", other, str(path)], check=True)
        assert path.with_name("live.sqlite-wal").exists()


def test_a_worker_that_dies_again_and_again_is_waited_for(tmp_path: Path) -> None:
    config = "workers = 2\n[datasets.trains]\nlive = true\n"
    with RunningServer(tmp_path, config) as server:
        staying = workers_of(server.process.pid)[0]
        for _ in range(3):
            deadline = time.monotonic() + 60
            while not (
                others := [each for each in workers_of(server.process.pid) if each != staying]
            ):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            others[0].kill()
            others[0].wait(60)
        assert server.process.poll() is None
        assert staying.is_running()
        assert requests.get(f"{server.origin}trains", timeout=30).status_code == 200


def test_a_server_ends_that_waits_until_it_replaces_a_worker(tmp_path: Path) -> None:
    with RunningServer(tmp_path, "[datasets.trains]\nlive = true\n") as server:
        dead: list[int] = []
        # After the second of them that dies soon it waits for a second, after the third for two.
        while len(dead) < 3:
            deadline = time.monotonic() + 60
            while not (found := [w for w in workers_of(server.process.pid) if w.pid not in dead]):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            found[0].kill()
            dead.append(found[0].pid)
        time.sleep(0.6)
        server.process.terminate()
        server.process.wait(STOP_SECONDS)


def test_pauses_grow_once_a_worker_has_answered() -> None:
    waited: list[float] = []
    ready = [False]
    deaths = RespawnBackoff(lambda: ready[0], lambda: False, waited.append)
    assert deaths.get(0, 0) == 0
    deaths[0] = time.monotonic() - 10
    # Where none has ever answered, one that was replaced ends the server, however long it took;
    # after hours, it has answered others.
    assert deaths.get(0, 0) == pytest.approx(time.monotonic(), abs=5)
    deaths[0] = time.monotonic() - 10_000
    assert deaths.get(0, 0) == 0
    ready[0] = True
    pauses = []
    for _ in range(8):
        deaths[0] = time.monotonic()
        assert deaths.get(0, 0) == 0
        pauses.append(round(sum(waited)))
        waited.clear()
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_kill_leaves_no_token_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (tmp_path / "run").mkdir()
    with RunningServer(tmp_path / "run", CONFIG) as server:
        server.process.send_signal(signal.SIGHUP)
        assert requests.get(f"{server.origin}trains", timeout=30).status_code == 200
        server.process.kill()
        server.process.wait(60)
    left = [file for file in temporary.rglob("*") if file.is_file()]
    assert all(TOKEN.encode() not in file.read_bytes() for file in left)


def test_a_look_without_a_descriptor_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "fd"
    folder.mkdir()
    said: list[str] = []
    failures = iter([OSError(errno.EMFILE, "Too many open files")])

    def listed(_: str) -> list[str]:
        for failure in failures:
            raise failure
        folder.rmdir()  # which ends it
        said.append("looked")
        return []

    monkeypatch.setattr("tpf_server.connections._DESCRIPTORS", str(folder))
    monkeypatch.setattr("tpf_server.connections._LOOK_SECONDS", 0)
    with monkeypatch.context() as failing:
        failing.setattr(os, "listdir", listed)
        Connections(3000, 0, 60, said.append)._follow()
    assert said == ["looked"]
