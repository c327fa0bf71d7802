"""``page-readers``: what those who follow answers cost the server that has the page of queries.

Live facts are all renewed every period. Nobody follows, then readers follow one query, then as many
different ones, over HTTP as the page does. Meanwhile pages of fragments are asked for, whose cost
is to stay what it is.
"""

import selectors
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Self
from urllib.parse import quote

import psutil
import requests

from annotations.instants import format_instant
from experiments.errors import MeasurementError
from experiments.harness.cpu_time import cpu_time
from experiments.harness.items import Finding, Item, Table, Target
from experiments.harness.load_generator import generate
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.processes import LOOPBACK, await_answer
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.harness.servers import TOKEN, Server, fragment_server

_EX = "http://example.org/"
NOBODY: Final = "nobody"
ONE: Final = "one query"
DIFFERENT: Final = "different queries"
READER_CASES: Final = (NOBODY, ONE, DIFFERENT)
_PATIENCE: Final = 120.0
_SPARE: Final = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        readers: how many follow answers.
        facts: live facts, each a row of every answer.
        period: seconds between two renewals of all facts, with other values.
        settle: seconds before one looks.
        seconds: that are looked at.
        pages_seconds: for which pages of fragments are asked for, after that.
    """

    readers: int = 200
    facts: int = 200
    period: float = 10.0
    settle: float = 15.0
    seconds: float = 30.0
    pages_seconds: float = 5.0

    @classmethod
    def quick(cls) -> Self:
        """Few readers of few facts."""
        return cls(readers=10, facts=20, period=1.0, settle=1.0, seconds=2.0, pages_seconds=0.3)


class PageReaders:
    """The experiment."""

    name = "page-readers"
    question = (
        "What do readers who follow answers cost the server that computes them, by one query and "
        "by many, and what does a page of a fragment cost beside them?"
    )
    settings = Sizes
    keys = ("readers", "facts", "case")
    values = (
        "first_ms", "all_ms", "workers_percent", "beside_percent", "beside_memory_mib", "page_ms",
        "events",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """A new server for each case."""
        yield MeasurementGroup(
            "servers",
            nullcontext,
            [
                Measurement(
                    {"readers": settings.readers, "facts": settings.facts, "case": case},
                    partial(_measure, settings, run, case),
                )
                for case in READER_CASES
            ],
        )

    def report(self, results: Results) -> Iterable[Item]:
        """What each case costs."""
        readers = max(results.distinct("readers"), key=int, default="0")
        alone = results.mean("page_ms", case=NOBODY)
        for case in (ONE, DIFFERENT):
            beside = results.mean("beside_percent", case=case)
            page = results.mean("page_ms", case=case)
            if beside is None or page is None:
                continue
            workers = results.mean("workers_percent", case=case) or 0.0
            kept = f", {rounded(page / alone)} times that without readers" if alone else ""
            yield Finding(
                f"{readers} readers of {case}: {rounded(beside)} % of a core for the process that "
                f"answers queries and {rounded(workers)} % for the workers; a page of a fragment "
                f"takes {rounded(page)} ms of CPU{kept}.",
                headline=True,
            )
        firsts = results.numbers("first_ms")
        yield Target("ms until the first rows, on loopback", max(firsts, default=None), 1000.0)
        header = (*self.keys, *self.values)
        rows = [[row.get(key) for key in header] for row in results.rows]
        yield Table("By who follows", header, rows)


def _queries(case: str, readers: int) -> list[str]:
    """A query for each reader."""
    if case == NOBODY:
        return []
    same = f"SELECT ?train ?delay {{ ?train <{_EX}delay> ?delay }}"
    if case == ONE:
        return [same] * readers
    return [f"{same[:-1]} FILTER (?delay != {n}) }}" for n in range(-readers, 0)]


class _Readers:
    """Connections that follow answers: what comes is counted and thrown away."""

    def __init__(self, port: int, queries: Sequence[str]) -> None:
        self.events = 0
        self.first: float | None = None
        self.all: float | None = None
        self._over = False
        self._waiting: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._last: dict[socket.socket, bytes] = {}
        begin = time.perf_counter()
        for query in queries:
            connection = socket.create_connection((LOOPBACK, port), timeout=_PATIENCE)
            self._selector.register(connection, selectors.EVENT_READ)
            self._sockets.append(connection)
            self._waiting.add(connection)
            connection.sendall(
                f"GET /trains/sparql?query={quote(query)} HTTP/1.1\r\nHost: localhost\r\n"
                "Accept: text/event-stream\r\n\r\n".encode()
            )
            if self.first is None:
                self._await_rows(begin)
                self.first = time.perf_counter() - begin
        self._await_rows(begin)
        if queries:
            self.all = time.perf_counter() - begin
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _await_rows(self, begin: float) -> None:
        """Read until everybody has an answer."""
        while self._waiting:
            self._take(1.0)
            if time.perf_counter() - begin > _PATIENCE:
                raise MeasurementError(f"{len(self._waiting)} readers have no answer")

    def _take(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            received = connection.recv(2**16)
            self.events += received.count(b"event: ")
            if b"event: initial" in received:
                self._waiting.discard(connection)
            if not received:
                end = self._last.get(connection, b"")[-200:].decode(errors="replace")
                raise MeasurementError(f"an answer ended with {end!r}")
            self._last[connection] = received

    def _read(self) -> None:
        while not self._over:
            if self._sockets:
                self._take(0.2)
            else:
                time.sleep(0.2)

    def close(self) -> None:
        """Follow no more."""
        self._over = True
        self._thread.join()
        for each in self._sockets:
            each.close()


@contextmanager
def _renewing(server: Server, settings: Sizes) -> Iterator[None]:
    """All facts are renewed, again and again."""
    over = threading.Event()

    def publish(round_: int) -> None:
        # Longer by what a busy machine may take.
        lasting = settings.period + max(5.0, settings.period / 5)
        ends = format_instant(datetime.now(UTC) + timedelta(seconds=lasting))
        lines = "".join(
            f'<{_EX}t{n}> <{_EX}delay> "{(n + round_) % 60}"^^'
            "<http://www.w3.org/2001/XMLSchema#integer> .\n"
            for n in range(settings.facts)
        )
        requests.post(
            f"{server.url}trains/facts", lines, params={"expiration": ends}, timeout=60,
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-triples"},
        ).raise_for_status()  # fmt: skip

    def renew() -> None:
        round_ = 1
        while not over.wait(settings.period):
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


def _measure(settings: Sizes, run: Run, case: str, _opened: None) -> list[ResultRow]:
    config = (
        f"query = true\nfollowers = {settings.readers + _SPARE}\nfollowers_per_address = 0\n"
        f"max_connections_per_address = {settings.readers + _SPARE}\n"
        "[datasets.trains]\nlive = true\n"
    )
    with fragment_server(run.folder, config) as server, _renewing(server, settings):
        await_answer(server.process, f"{server.url}query/page.json", _PATIENCE)
        family = _Family(server)
        readers = _Readers(server.port, _queries(case, settings.readers))
        time.sleep(settings.settle)
        begin, events = time.perf_counter(), readers.events
        workers, beside = family.workers(), cpu_time(family.beside)
        time.sleep(settings.seconds)
        wall = time.perf_counter() - begin
        workers, beside = family.workers() - workers, cpu_time(family.beside) - beside
        events = readers.events - events
        request = (
            f"GET /trains?predicate={quote(_EX)}delay HTTP/1.1\r\nHost: localhost\r\n"
            "Accept: application/trig\r\n\r\n"
        ).encode()
        used = family.workers()
        done = generate(server.port, [request], connections=1, seconds=settings.pages_seconds)
        used = family.workers() - used - done["seconds"] * workers / wall
        memory = family.beside.memory_info().rss / 2**20
        readers.close()
    row: ResultRow = {
        "first_ms": None if readers.first is None else 1000 * readers.first,
        "all_ms": None if readers.all is None else 1000 * readers.all,
        "workers_percent": 100 * workers / wall,
        "beside_percent": 100 * beside / wall,
        "beside_memory_mib": memory,
        "page_ms": 1000 * used / len(done["latencies"]),
        "events": events,
    }
    return [row]
