"""Datasets change at run time without a failed request."""

import signal
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import psutil
import requests

from tests.support.eventually import eventually
from tests.support.running_server import RunningServer
from tests.support.stores import CREATED
from tpf_server.store.static.indexing import index_files

TRAINS = '[datasets.trains]\nsource = "trains.store"\n'
STOPS = '[datasets.stops]\nsource = "stops.nt"\n'


def write_store(folder: Path, lines: int) -> None:
    """Make the store anew, where a running server has it open."""
    source = folder / "trains.nt"
    source.write_text("".join(f"<x:t{n}> <x:stop> <x:s> .\n" for n in range(lines)))
    index_files([source], folder / "trains.store", created=CREATED)


class Load:
    """Clients that ask for the dataset continuously; `lasting` of them keep one connection."""

    def __init__(self, server: RunningServer, lasting: int) -> None:
        self.counts: set[int] = set()
        self.failures: list[Exception] = []
        self._server = server
        self._finished = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(lasts,))
            for lasts in (True, False)
            for _ in range(lasting)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._finished.set()
        for thread in self._threads:
            thread.join()

    def _run(self, lasts: bool) -> None:
        try:
            connection = self._connected()
            while not self._finished.is_set():
                connection.request("GET", "/trains.nq")
                response = connection.getresponse()
                self.counts.add(response.read().count(b"<x:stop>"))
                assert response.status == 200
                if not lasts:
                    connection.close()
                    connection = self._connected()
                time.sleep(0.002)
            connection.close()
        except (OSError, HTTPException, AssertionError) as error:
            self.failures.append(error)

    def _connected(self) -> HTTPConnection:
        """A connection that is lost where the server closes it."""
        connection = HTTPConnection("127.0.0.1", self._server.port, timeout=60)
        connection.connect()
        connection.auto_open = 0
        return connection


def test_datasets_come_change_and_go_under_load(tmp_path: Path) -> None:
    write_store(tmp_path, 3)
    (tmp_path / "stops.nt").write_text("<x:s> <x:name> <x:n> .\n")
    with RunningServer(tmp_path, TRAINS, "--workers", "2") as server:

        def reload_until(
            config: str, path: str, holds: Callable[[requests.Response], bool]
        ) -> None:
            (tmp_path / "server.toml").write_text(config)
            server.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 60
            # The workers read the settings one by one.
            answers = 0
            while answers < 20:
                assert time.monotonic() < deadline
                # Another connection each time, perhaps to another worker.
                held = holds(requests.get(f"{server.origin}{path}", timeout=30))
                answers = answers + 1 if held else 0
                time.sleep(0.02)

        with Load(server, lasting=2) as load:
            workers = psutil.Process(server.process.pid).children()
            write_store(tmp_path, 5)
            reload_until(
                TRAINS + STOPS,
                "trains.nq",
                lambda answer: answer.text.count("<x:stop>") == 5,
            )
            assert requests.get(f"{server.origin}stops", timeout=30).status_code == 200
            reload_until(TRAINS, "stops", lambda answer: answer.status_code == 404)
            # Settings that make no sense change nothing.
            reload_until("page_size = 0", "trains", lambda answer: answer.status_code == 200)
            # Neither does a change of what counts at the next start.
            reload_until(
                f'title = "New"\nport = 1\nworkers = 1\n{TRAINS}',
                "trains.html",
                lambda answer: "New" in answer.text and server.origin in answer.text,
            )
            assert psutil.Process(server.process.pid).children() == workers
            # Whatever asked before is answered from them still.
            eventually(lambda: not any(map(_keeps_old_files, workers)))
    assert load.failures == []
    assert load.counts == {3, 5}


def _keeps_old_files(worker: psutil.Process) -> bool:
    """True while a process has a deleted store file open."""
    # psutil leaves out that they are deleted.
    maps = Path(f"/proc/{worker.pid}/maps").read_text().splitlines()
    return any(".store" in line and line.endswith("(deleted)") for line in maps)
