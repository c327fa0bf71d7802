"""The servers that ``fragments`` compares, with their data, and the process that asks them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from annotations.clock import SystemClock
from experiments.errors import MeasurementError, UnavailableError
from experiments.harness.estimates import percentile
from experiments.harness.measurement import ResultRow
from experiments.harness.processes import Process, python, started
from experiments.harness.servers import (
    ReferenceData,
    Server,
    constant_server,
    fragment_server,
    reference_data,
    reference_server,
)
from experiments.harness.static_loading import StaticLoading
from experiments.studies.fragment_requests import PEOPLE_DATASET
from experiments.workloads.people import People

OURS = "ours"
CONSTANT = "constant Flask view"
REFERENCE = "@ldf/server"
_ANSWER_SECONDS = 240.0
_STORE_FILES = frozenset({".npy", ".arrow", ".hdt"})


@dataclass(frozen=True, slots=True)
class PeopleFiles:
    """The data in the forms that the servers read, made when they are first needed.

    Args:
        people: the data.
        folder: where the files are; those that are there are used again.
        static: makes our store.
    """

    people: People
    folder: Path
    static: StaticLoading

    def triples(self) -> Path:
        """The file of N-Triples."""
        path = self.folder / "people.nt"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.people.write(path)
        return path

    def store(self) -> Path:
        """Our store."""
        store = self.folder / PEOPLE_DATASET
        if not store.exists():
            self.static.load({store: self.triples()}, SystemClock().now())
        return store

    def reference(self) -> ReferenceData:
        """What the reference server reads.

        Raises:
            UnavailableError: no reference server is here.
        """
        return reference_data(self.triples(), self.folder)


def server(name: str, files: PeopleFiles, folder: Path) -> AbstractContextManager[Server]:
    """One of the servers, with one worker.

    Args:
        name: as in the raw data.
        files: what it serves.
        folder: where it keeps what is its own.

    Raises:
        UnavailableError: it is not here.
    """
    if name == CONSTANT:
        return constant_server()
    if name == REFERENCE:
        return reference_server(files.reference(), PEOPLE_DATASET, folder)
    # Without live facts, whose pages are made once for all who ask at the same time: every answer
    # is a page that is made for it, as the other server makes it.
    source = json.dumps(str(files.store().resolve()))
    return fragment_server(
        folder, f"[datasets.{PEOPLE_DATASET}]\nsource = {source}\nlive = false\n"
    )


@dataclass(frozen=True, slots=True)
class Running:
    """The servers of a group by name, and the process that asks them."""

    files: PeopleFiles
    servers: Mapping[str, Server]
    generator: Process
    connections: int

    def server(self, name: str) -> Server:
        """A server by the name in the raw data.

        Raises:
            MeasurementError: it could not be started.
        """
        try:
            return self.servers[name]
        except KeyError:
            raise MeasurementError(f"{name} is not running") from None

    def ask(
        self,
        server: Server,
        requests: Sequence[str],
        seconds: float,
        status: int = 200,
        pause: float = 0.0,
    ) -> ResultRow:
        """Have requests sent, again from the first when all were sent; what that cost.

        Args:
            server: who is asked.
            requests: whole requests.
            seconds: for how long.
            status: that all answers must have.
            pause: seconds between an answer and the next request, over one connection.

        Raises:
            MeasurementError: the server answered otherwise, or not at all.
        """
        order = {
            "port": server.port, "connections": 1 if pause else self.connections,
            "seconds": seconds, "status": status, "requests": requests, "pause": pause,
        }  # fmt: skip
        before = server.process.usage()
        answer = self.generator.ask(order, _ANSWER_SECONDS)
        used = server.process.usage().since(before)
        if "error" in answer:
            raise MeasurementError(str(answer["error"]))
        latencies: list[float] = answer["latencies"]
        count = len(latencies)
        return {
            "requests": count,
            "seconds": answer["seconds"],
            "requests_per_second": count / answer["seconds"],
            "p50_ms": 1000 * percentile(latencies, 50),
            "p99_ms": 1000 * percentile(latencies, 99),
            "cpu_ms": 1000 * used.cpu / count,
            "body_bytes": answer["bytes"] / count,
            "kind": server.name,
        }

    def start_another(self, name: str) -> tuple[float, int]:
        """Start the same server once more: seconds to the first answer, and its memory then."""
        with (
            TemporaryDirectory(dir=self.files.folder) as folder,
            server(name, self.files, Path(folder)) as another,
        ):
            return another.start_seconds, another.worker_memory()


@contextmanager
def running_server(
    files: PeopleFiles, connections: int, names: Sequence[str], say: Callable[[str], None]
) -> Iterator[Running]:
    """Start the servers; one that is not here is left out, and that is said."""
    with ExitStack() as stack:
        servers = {}
        for name in names:
            try:
                opened = server(name, files, files.folder / name.rpartition("/")[2])
                servers[name] = stack.enter_context(opened)
            except UnavailableError as error:
                say(f"{name}: {error}")
        generator = stack.enter_context(
            started("load generator", python("experiments.harness.load_generator"))
        )
        yield Running(files, servers, generator, connections)


def mapped(server: Server) -> int:
    """Bytes of the worker's memory that are pages of a store: those that the system can take back.

    Workers share them, and with the page cache.
    """
    sizes = server.process.resident_each()
    largest = max(sizes, key=lambda pid: sizes[pid])
    return sum(
        region.rss
        for region in psutil.Process(largest).memory_maps()
        if Path(region.path).suffix in _STORE_FILES
    )
