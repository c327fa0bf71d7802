"""What readers of the page cost the server that has it: its workers, and the process beside them.

    ./run exec python -m experiments.studies.page_readers [SECONDS]

200 live facts are all renewed every 10 s. Nobody follows, then 200 readers follow one query, then
200 different ones, over HTTP as the page does; each for so many seconds. Meanwhile pages of
fragments are asked for, whose cost is to stay what it is.
"""

import json
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psutil
import requests

from annotations.instants import format_instant
from experiments.errors import MeasurementError
from experiments.harness.cpu_time import cpu_time
from experiments.harness.load_generator import generate
from experiments.harness.processes import LOOPBACK
from experiments.harness.servers import TOKEN, Server, fragment_server

EX = "http://example.org/"
FACTS = 200
READERS = 200
PERIOD = 10.0
_SETTLE_SECONDS = 1.5 * PERIOD
_PAGES_SECONDS = 5.0
CONFIG = (
    f"query = true\nfollowers = {READERS + 8}\nfollowers_per_address = 0\n"
    "[datasets.trains]\nlive = true\n"
)


class Cost(NamedTuple):
    """What was used in a while.

    Args:
        case: who followed what.
        workers: percent of a core, of the fragment server's workers.
        beside: percent of a core, of the process that answers queries.
        memory: MiB of that process.
        page: milliseconds of the workers' CPU for a page of a fragment, beside what they do anyway.
        events: how many events the readers got.
    """

    case: str
    workers: float
    beside: float
    memory: float
    page: float
    events: int


def _queries(case: str) -> list[str]:
    """A query for each reader."""
    if case == "nobody":
        return []
    same = f"SELECT ?train ?delay {{ ?train <{EX}delay> ?delay }}"
    if case == "one query":
        return [same] * READERS
    return [f"{same[:-1]} FILTER (?delay != {n}) }}" for n in range(-READERS, 0)]


class _Readers:
    """Connections that follow answers: what comes is counted and thrown away."""

    def __init__(self, port: int, queries: Sequence[str]) -> None:
        self.events = 0
        self._over = False
        self._selector = selectors.DefaultSelector()
        self._sockets = []
        for query in queries:
            connection = socket.create_connection((LOOPBACK, port), timeout=120)
            connection.sendall(
                f"GET /trains/sparql?query={quote(query)} HTTP/1.1\r\nHost: localhost\r\n"
                "Accept: text/event-stream\r\n\r\n".encode()
            )
            self._selector.register(connection, selectors.EVENT_READ)
            self._sockets.append(connection)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(0.2) if self._sockets else ():
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                received = connection.recv(2**16)
                self.events += received.count(b"event: ")
                if not received:
                    raise MeasurementError("an answer ended")
            if not self._sockets:
                time.sleep(0.2)

    def close(self) -> None:
        """Follow no more."""
        self._over = True
        self._thread.join()
        for each in self._sockets:
            each.close()


@contextmanager
def _renewing(server: Server) -> Iterator[None]:
    """All facts are renewed, again and again."""
    over = threading.Event()

    def publish(round_: int) -> None:
        ends = format_instant(datetime.now(UTC) + timedelta(seconds=PERIOD + 2))
        lines = "".join(
            f'<{EX}t{n}> <{EX}delay> "{(n + round_) % 60}"^^'
            "<http://www.w3.org/2001/XMLSchema#integer> .\n"
            for n in range(FACTS)
        )
        requests.post(
            f"{server.url}trains/facts", lines, params={"expiration": ends}, timeout=60,
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-triples"},
        ).raise_for_status()  # fmt: skip

    def renew() -> None:
        round_ = 1
        while not over.wait(PERIOD):
            publish(round_)
            round_ += 1

    publish(0)
    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Family:
    """The processes of a server, by what they do."""

    def __init__(self, server: Server) -> None:
        children = psutil.Process(server.process.pid).children(recursive=True)
        self.beside = next(p for p in children if "tpf_client.beside_server" in p.cmdline())
        self._workers = [p for p in children if p.pid != self.beside.pid]

    def workers(self) -> float:
        """Seconds of CPU of the workers."""
        return sum(map(cpu_time, self._workers))


def measure(case: str, seconds: float) -> Cost:
    """What the readers of one case cost.

    Args:
        case: ``nobody``, ``one query`` or ``different queries``.
        seconds: how long to look.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        fragment_server(Path(folder), CONFIG) as server,
        _renewing(server),
    ):
        family = _Family(server)
        readers = _Readers(server.port, _queries(case))
        time.sleep(_SETTLE_SECONDS)
        begin, events = time.perf_counter(), readers.events
        workers, beside = family.workers(), cpu_time(family.beside)
        time.sleep(seconds)
        wall = time.perf_counter() - begin
        workers, beside = family.workers() - workers, cpu_time(family.beside) - beside
        events = readers.events - events
        request = (
            f"GET /trains?predicate={quote(EX)}delay HTTP/1.1\r\nHost: localhost\r\n"
            "Accept: application/trig\r\n\r\n"
        ).encode()
        used = family.workers()
        done = generate(server.port, [request], connections=1, seconds=_PAGES_SECONDS)
        used = family.workers() - used - done["seconds"] * workers / wall
        memory = family.beside.memory_info().rss / 2**20
        readers.close()
    return Cost(
        case, 100 * workers / wall, 100 * beside / wall, memory,
        1000 * used / len(done["latencies"]), events,
    )  # fmt: skip


def main() -> None:
    """Measure all cases, and write a line of JSON for each."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    for case in ("nobody", "one query", "different queries"):
        sys.stdout.write(json.dumps(measure(case, seconds)._asdict()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
