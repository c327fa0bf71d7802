"""A real server closes idle connections."""

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from annotations.labels import Expiration, Fact
from tests.support.running_server import TOKEN, RunningServer
from tests.support.served import NOON, quad
from tpf_server.connections import Connections, most_connections
from tpf_server.store.live.store import open_live_store

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


def test_whoever_sends_nothing_more_is_let_go(server: RunningServer) -> None:
    head = b"GET /trains HTTP/1.1\r\nX: y\r\n"
    with ExitStack() as held:
        silent = []
        for sent in (b"", b"GET", head, ASKED, BODY, BODY + b"<a:b>"):
            silent.append(held.enter_context(closing(connect(server))))
            silent[-1].sendall(sent)
        assert all(map(is_ended, silent))


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
    watching = Connections(1, 1.0, said.append)

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
        Connections(1, 1.0, print).look()
        other = (
            "import sqlite3, sys; log = sqlite3.connect(sys.argv[1]); "
            "log.execute('SELECT 1 FROM batches'); log.close()"
        )
        subprocess.run([sys.executable, "-c", other, str(path)], check=True)
        assert path.with_name("live.sqlite-wal").exists()


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
        Connections(3000, 60, said.append)._follow()
    assert said == ["looked"]
