"""Servers are killed while they publish; acknowledged batches are there afterwards, complete.

`TPF_KILLS=300 ./run test tests/faults/test_kills.py` kills more often.
"""

import os
import random
import signal
import threading
import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
import requests

from tests.support.eventually import eventually
from tests.support.peers import POSTGRES
from tests.support.postgres import PostgresServer
from tests.support.running_server import TOKEN, RunningServer

KILLS = int(os.environ.get("TPF_KILLS", "2"))
PUBLISHERS = 3
FACTS = 7
WITHDRAWN = 3
"""How many of its facts every second batch loses again."""
BEGINNING = "<http://x/s/"


def config(live: str) -> str:
    return f"workers = 2\n[datasets.trains]\nlive = {live}\n"


def facts_of_batches(origin: str) -> dict[str, int]:
    """Count the facts of each batch that a server shows."""
    found: defaultdict[str, int] = defaultdict(int)
    page = 1
    while True:
        answer = requests.get(
            f"{origin}trains",
            params={"page": str(page), "limit": "1000"},
            headers={"Accept": "application/n-triples"},
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        lines = [line for line in answer.text.splitlines() if line.startswith(BEGINNING)]
        if not lines:
            return found
        for line in lines:
            found[line[len(BEGINNING) :].split("/", 1)[0]] += 1
        page += 1


class Publishers:
    """Threads that publish batches until their server is gone."""

    def __init__(self, origin: str, name: str) -> None:
        self.acknowledged: list[str] = []
        self.withdrawn: list[str] = []
        self.refused: list[str] = []
        self._threads = [
            threading.Thread(target=self._publish, args=(origin, f"{name}-{number}"))
            for number in range(PUBLISHERS)
        ]
        for thread in self._threads:
            thread.start()

    def _publish(self, origin: str, name: str) -> None:
        with requests.Session() as session, suppress(requests.RequestException):
            for number in range(1_000_000):
                batch = f"{name}-{number}"
                lines = [f'{BEGINNING}{batch}/{n}> <http://x/p> "{n}" .\n' for n in range(FACTS)]
                label = {"expiration": "2999-01-01T00:00:00Z"}
                for method, parameters, body, done in (
                    ("POST", label | {"batch": batch}, lines, self.acknowledged),
                    ("DELETE", {"batch": f"-{batch}"}, lines[:WITHDRAWN], self.withdrawn),
                )[: 1 + number % 2]:
                    answer = session.request(
                        method,
                        f"{origin}trains/facts",
                        params=parameters,
                        data="".join(body),
                        headers={
                            "Content-Type": "application/n-quads",
                            "Authorization": f"Bearer {TOKEN}",
                        },
                        timeout=30,
                    )
                    if answer.status_code != 201:
                        self.refused.append(answer.text)
                        return
                    done.append(batch)

    def has_published(self, count: int) -> bool:
        return len(self.acknowledged) >= count

    def join(self) -> None:
        """Wait for all threads."""
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def kill(server: RunningServer, chance: random.Random) -> None:
    """Kill a server and its workers; sometimes a worker before the rest."""
    parent = psutil.Process(server.process.pid)
    family = [parent, *parent.children(recursive=True)]
    if chance.random() < 0.5:
        first = chance.choice(family[1:])
        os.kill(first.pid, signal.SIGKILL)
        time.sleep(chance.random() * 0.3)
        family += [each for each in parent.children(recursive=True) if each not in family]
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    server.process.wait(60)
    _, left = psutil.wait_procs(family, 60)
    assert not left


@pytest.mark.timeout(120 + 30 * KILLS)
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgres", marks=[pytest.mark.peers, POSTGRES.skip])]
)
def test_killed_servers_lose_nothing_acknowledged(tmp_path: Path, kind: str) -> None:
    with ExitStack() as stack:
        database = stack.enter_context(PostgresServer()) if kind == "postgres" else None
        check_kills(tmp_path, database)


def check_kills(folder: Path, database: PostgresServer | None) -> None:
    live = "true" if database is None else f'"{database.url}"'
    chance = random.Random(11)
    acknowledged: set[str] = set()
    withdrawn: set[str] = set()
    for number in range(KILLS):
        with RunningServer(folder, config(live)) as server:
            publishers = Publishers(server.origin, f"{number}")
            wanted = chance.randrange(3, 12)
            eventually(partial(publishers.has_published, wanted))
            if database is not None and chance.random() < 0.5:
                database.stop()
                database.start()
            kill(server, chance)
            publishers.join()
        acknowledged.update(publishers.acknowledged)
        withdrawn.update(publishers.withdrawn)
        assert database is not None or not publishers.refused
    with RunningServer(folder, config(live)) as server:
        found = facts_of_batches(server.origin)
    assert acknowledged <= set(found), "lost"
    assert set(found.values()) <= {FACTS, FACTS - WITHDRAWN}, "half of a batch"
    assert withdrawn
    assert {found[batch] for batch in withdrawn} == {FACTS - WITHDRAWN}, "a withdrawal was lost"
