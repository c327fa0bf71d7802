"""Datasets are added, replaced and removed at run time, and no request fails meanwhile."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import requests

from tests.support.running_server import RunningServer
from tests.support.stores import CREATED
from tpf_server.store.indexing import index_files

TRAINS = '[datasets.trains]\nsource = "trains.store"\n'
STOPS = '[datasets.stops]\nsource = "stops.nt"\n'


def write_store(folder: Path, lines: int) -> None:
    """Make the store anew, where a running server has it open."""
    source = folder / "trains.nt"
    source.write_text("".join(f"<x:t{n}> <x:stop> <x:s> .\n" for n in range(lines)))
    index_files([source], folder / "trains.store", created=CREATED)


def test_datasets_come_change_and_go_under_load(tmp_path: Path) -> None:
    write_store(tmp_path, 3)
    (tmp_path / "stops.nt").write_text("<x:s> <x:name> <x:n> .\n")
    counts: list[int] = []
    finished = threading.Event()

    with RunningServer(tmp_path, TRAINS, "--workers", "2") as server:

        def load(keep_alive: bool) -> None:
            session = requests.Session()
            while not finished.is_set():
                response = (session if keep_alive else requests).get(
                    f"{server.origin}trains.nq", timeout=30
                )
                counts.append(response.text.count("<x:stop>"))
                assert response.status_code == 200
                time.sleep(0.002)

        def reload_until(
            config: str, path: str, holds: Callable[[requests.Response], bool]
        ) -> None:
            (tmp_path / "server.toml").write_text(config)
            server.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 60
            # Two workers are replaced one after the other.
            answers = 0
            while answers < 20:
                assert time.monotonic() < deadline
                # Another connection each time, perhaps to another worker.
                held = holds(requests.get(f"{server.origin}{path}", timeout=30))
                answers = answers + 1 if held else 0
                time.sleep(0.05)

        failures: list[BaseException] = []

        def clients(keep_alive: bool) -> None:
            try:
                load(keep_alive)
            except (requests.RequestException, AssertionError) as error:
                failures.append(error)

        threads = [threading.Thread(target=clients, args=(kept,)) for kept in (True, False)]
        for thread in threads:
            thread.start()
        try:
            write_store(tmp_path, 5)
            reload_until(
                TRAINS + STOPS,
                "trains.nq",
                lambda answer: answer.text.count("<x:stop>") == 5,
            )
            assert requests.get(f"{server.origin}stops", timeout=30).status_code == 200
            reload_until(TRAINS, "stops", lambda answer: answer.status_code == 404)
        finally:
            finished.set()
            for thread in threads:
                thread.join()
    assert failures == []
    assert set(counts) == {3, 5}
