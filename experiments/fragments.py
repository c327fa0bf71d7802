"""``fragments``: what a fragment costs the server, by pattern and format."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil
import requests

from experiments.errors import MeasurementError, UnavailableError
from experiments.estimates import percentile
from experiments.experiment import (
    Figure,
    Finding,
    Group,
    Item,
    Measurement,
    Row,
    Run,
    Table,
    Target,
    Value,
)
from experiments.processes import LOOPBACK, Process, python, started
from experiments.results import Results
from experiments.servers import (
    ReferenceData,
    Server,
    constant_server,
    fragment_server,
    index,
    reference_data,
    reference_server,
)
from experiments.workloads.people import EX, People

OURS = "ours"
CONSTANT = "constant Flask view"
REFERENCE = "@ldf/server"
FORMATS = {
    "TriG": "application/trig",
    "N-Quads": "application/n-quads",
    "JSON-LD": "application/ld+json",
    "HTML": "text/html",
}
PATTERNS = (
    "first page", "predicate", "subject", "existence", "predicate+object", "deep page",
)  # fmt: skip
_NOT_MODIFIED = "304"
_DATASET = "people"
_RATE = "requests_per_second"
_ANSWER_SECONDS = 240.0
_URLS = 200
_STORE_FILES = frozenset({".npy", ".arrow", ".hdt"})

# DESIGN targets in CPU milliseconds per request, and the reference server with HDT as measured on
# a machine like the one that the targets were set for.
_TARGETS = {
    ("TriG", "first page"): (0.25, 0.54),
    ("TriG", "predicate"): (0.25, 0.56),
    ("TriG", "subject"): (0.15, 0.28),
    ("TriG", "existence"): (0.10, 0.20),
    ("TriG", "deep page"): (0.25, 6.7),
    ("HTML", "first page"): (1.5, 30.0),
    ("JSON-LD", "first page"): (0.5, 2.3),
    ("TriG", _NOT_MODIFIED): (0.08, None),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        triples: sizes of the data; servers are compared on the first one.
        seconds: how long each measurement lasts.
        warm_up_seconds: how long each server is warmed up for.
        connections: how many are open to the server.
        servers: which are measured.
        formats: which are asked for.
    """

    triples: tuple[int, ...] = (1_000_000, 10_000_000)
    seconds: float = 2.0
    warm_up_seconds: float = 2.0
    connections: int = 2
    servers: tuple[str, ...] = (OURS, CONSTANT, REFERENCE)
    formats: tuple[str, ...] = tuple(FORMATS)

    @classmethod
    def quick(cls) -> Self:
        """A fifth of a million triples, a fraction of a second."""
        return cls(triples=(200_000,), seconds=0.35, warm_up_seconds=0.5)


@dataclass(frozen=True, slots=True)
class Opened:
    """The servers of a group, by name, their memory before the first page, and who asks them."""

    servers: Mapping[str, Server]
    start_memory: Mapping[str, int]
    generator: Process
    settings: Sizes

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
        self, server: Server, orders: Sequence[str], seconds: float, status: int = 200
    ) -> Mapping[str, Any]:
        """Have the requests sent for so many seconds.

        Raises:
            MeasurementError: the server answered otherwise, or not at all.
        """
        order = {
            "port": server.port, "connections": self.settings.connections, "seconds": seconds,
            "status": status, "requests": orders,
        }  # fmt: skip
        answer = self.generator.ask(order, _ANSWER_SECONDS)
        if "error" in answer:
            raise MeasurementError(str(answer["error"]))
        return answer


class Fragments:
    """The experiment."""

    name = "fragments"
    question = (
        "How much CPU does one fragment cost the server, by pattern and format, next to a Flask "
        "view that answers with as many constant bytes, and to the reference server on Node?"
    )
    settings = Sizes
    keys = ("triples", "server", "pattern", "format")
    values = (
        "requests", "seconds", "requests_per_second", "p50_ms", "p99_ms", "cpu_ms", "body_bytes",
        "start_seconds", "start_memory_mib", "memory_mib", "mapped_mib", "kind",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[Group]:
        """The comparison on the first size; ours alone on the others."""
        for number, triples in enumerate(settings.triples):
            people = People(triples, run.seed)
            files = _Files(people, run.folder / str(triples), run.say)
            names = settings.servers if number == 0 else (OURS,)
            yield Group(
                f"{triples:,} triples",
                partial(_open, files, settings, names, run.say),
                list(_measurements(people, run.seed, names, settings.formats)),
                _warm_up,
            )

    def report(self, results: Results) -> Iterable[Item]:
        """Cost per request by pattern and by format, start and memory, targets."""
        first = results.distinct("triples")[0]
        main = results.where(triples=first)
        yield from _headlines(main)
        yield Figure(
            "cpu-by-pattern", f"TriG, {int(first):,} triples, pages of 100", "pattern",
            "server CPU per request, ms",
            dict(main.series("server", "pattern", "cpu_ms", numeric=False, format="TriG")),
            kind="bars", log_y=True,
        )  # fmt: skip
        yield Figure(
            "cpu-by-format", f"First page, {int(first):,} triples", "format",
            "server CPU per request, ms",
            dict(main.series("server", "format", "cpu_ms", numeric=False, pattern="first page")),
            kind="bars", log_y=True,
        )  # fmt: skip
        yield Figure(
            "requests-per-second", f"TriG, {int(first):,} triples, one worker", "pattern",
            "requests per second",
            dict(main.series("server", "pattern", _RATE, numeric=False, format="TriG")),
            kind="bars",
        )  # fmt: skip
        if len(results.distinct("triples")) > 1:
            yield Figure(
                "cpu-by-size", "TriG, ours", "triples", "server CPU per request, ms",
                dict(results.series("pattern", "triples", "cpu_ms", server=OURS, format="TriG")),
                log_x=True,
            )  # fmt: skip
        yield _all_requests(main)
        yield _starts(results)
        for (form, pattern), (limit, reference) in _TARGETS.items():
            known = "" if reference is None else f"reference server with HDT on 1 M: {reference:g}"
            yield Target(
                f"CPU ms per request, {form}, {pattern}, {int(first):,} triples",
                main.mean("cpu_ms", server=OURS, pattern=pattern, format=form),
                limit,
                compared=known,
            )
        largest = results.distinct("triples")[-1]
        yield Target(
            f"seconds until the server answers, {int(largest):,} triples",
            results.mean("start_seconds", triples=largest, server=OURS), 1.0,
            compared="reference server: 2",
        )  # fmt: skip
        yield Target(
            f"MiB of memory of the worker at its start, {int(largest):,} triples",
            results.mean("start_memory_mib", triples=largest, server=OURS), 120.0,
            compared="reference server: 130–300 on 1 M",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Files:
    """The data in the forms that the servers read, made when they are first needed."""

    people: People
    folder: Path
    say: Callable[[str], None]

    def triples(self) -> Path:
        path = self.folder / "people.nt"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.people.write(path)
        return path

    def store(self) -> Path:
        store = self.folder / _DATASET
        index(self.triples(), store)
        return store

    def reference(self) -> ReferenceData:
        return reference_data(self.triples(), self.folder)


@contextmanager
def _open(
    files: _Files, settings: Sizes, names: Sequence[str], say: Callable[[str], None]
) -> Iterator[Opened]:
    with ExitStack() as stack:
        # Without live facts, whose pages are made once for all who ask at the same time: every
        # answer is a page that is made for it, as the other server makes it.
        source = json.dumps(str(files.store().resolve()))
        config = f"[datasets.{_DATASET}]\nsource = {source}\nlive = false\n"
        servers = {OURS: stack.enter_context(fragment_server(files.folder / OURS, config))}
        if CONSTANT in names:
            servers[CONSTANT] = stack.enter_context(constant_server())
        if REFERENCE in names:
            try:
                data = files.reference()
                folder = files.folder / "reference"
                servers[REFERENCE] = stack.enter_context(reference_server(data, _DATASET, folder))
            except UnavailableError as error:
                say(f"{REFERENCE}: {error}")
        generator = stack.enter_context(
            started("load generator", python("experiments.load_generator"))
        )
        memory = {name: server.worker_memory() for name, server in servers.items()}
        yield Opened(servers, memory, generator, settings)


def _warm_up(opened: Opened) -> None:
    for server in opened.servers.values():
        path = "/1000" if server.name == CONSTANT else f"/{_DATASET}"
        order = _request(server, path, "application/trig")
        opened.ask(server, [order], opened.settings.warm_up_seconds)


def _measurements(
    people: People, seed: int, names: Sequence[str], formats: Sequence[str]
) -> Iterator[Measurement]:
    for pattern in PATTERNS:
        for form in formats:
            for name in names:
                key = _key(people, name, pattern, form)
                yield Measurement(key, partial(_measure, people, seed, name, pattern, form))
    # The reference server sends no entity tags.
    yield Measurement(
        _key(people, OURS, _NOT_MODIFIED, "TriG"), partial(_measure_not_modified, people, seed)
    )
    for name in names:
        memory = _key(people, name, "start", "-")
        yield Measurement(memory, partial(_measure_start, name), repetitions=1)


def _key(people: People, server: str, pattern: str, form: str) -> dict[str, str | int | float]:
    return {"triples": people.triples, "server": server, "pattern": pattern, "format": form}


def _measure(
    people: People, seed: int, name: str, pattern: str, form: str, opened: Opened
) -> Iterator[Row]:
    server = opened.server(name)
    paths = list(_paths(people, seed, pattern))
    if name == CONSTANT:
        # As many bytes as ours sends for the first of these requests.
        size = len(_body(opened.server(OURS), paths[0], FORMATS[form]).content)
        paths = [f"/{size}"]
    yield _sample(opened, server, [_request(server, path, FORMATS[form]) for path in paths])


def _measure_not_modified(people: People, seed: int, opened: Opened) -> Iterator[Row]:
    server = opened.server(OURS)
    path = next(_paths(people, seed, "predicate"))
    tag = _body(server, path, FORMATS["TriG"]).headers.get("ETag")
    if tag is None:
        raise MeasurementError("there is no entity tag")
    request = _request(server, path, FORMATS["TriG"], f"If-None-Match: {tag}\r\n")
    yield _sample(opened, server, [request], status=304)


def _measure_start(name: str, opened: Opened) -> Iterator[Row]:
    server = opened.server(name)
    yield {
        "start_seconds": server.start_seconds,
        "start_memory_mib": opened.start_memory[name] / 2**20,
        "memory_mib": server.worker_memory() / 2**20,
        "mapped_mib": _mapped(server) / 2**20,
        "kind": server.name,
    }


def _mapped(server: Server) -> int:
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


def _sample(opened: Opened, server: Server, orders: Sequence[str], status: int = 200) -> Row:
    before = server.process.usage()
    answer = opened.ask(server, orders, opened.settings.seconds, status)
    used = server.process.usage().since(before)
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


def _body(server: Server, path: str, media_type: str) -> requests.Response:
    response = requests.get(
        server.url + path.lstrip("/"),
        headers={"Accept": media_type, "Accept-Encoding": "identity"}, timeout=30,
    )  # fmt: skip
    if response.status_code != 200:
        raise MeasurementError(f"{path} is answered with {response.status_code}")
    return response


def _request(server: Server, path: str, media_type: str, fields: str = "") -> str:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{server.port}\r\nAccept: {media_type}\r\n"
        f"{fields}\r\n"
    )


def _paths(people: People, seed: int, pattern: str) -> Iterator[str]:
    """Paths of requests of a class of patterns; with random constants where it has some."""
    chance = random.Random(f"{seed} {pattern}")
    if pattern == "first page":
        yield f"/{_DATASET}"
        return
    if pattern == "predicate":
        yield _path(predicate=f"{EX}knows")
        return
    for _ in range(_URLS):
        person = people.person(chance)
        subject, city = f"{EX}person/{person}", f"{EX}city/{person % people.cities}"
        match pattern:
            case "subject":
                yield _path(subject=subject)
            case "existence":
                yield _path(subject=subject, predicate=f"{EX}city", object=city)
            case "predicate+object":
                yield _path(predicate=f"{EX}city", object=city)
            case _:
                yield f"/{_DATASET}?page={chance.randrange(2, max(3, people.triples // 100))}"


def _path(**terms: str) -> str:
    query = "&".join(f"{name}={quote(term, safe='')}" for name, term in terms.items())
    return f"/{_DATASET}?{query}"


def _headlines(main: Results) -> Iterator[Item]:
    ours = main.mean("cpu_ms", server=OURS, pattern="first page", format="TriG")
    other = main.mean("cpu_ms", server=REFERENCE, pattern="first page", format="TriG")
    floor = main.mean("cpu_ms", server=CONSTANT, pattern="first page", format="TriG")
    triples = int(main.distinct("triples")[0])
    if ours is not None:
        text = (
            f"One worker of the fragment server spends {ours:.2f} ms of CPU on the first page of "
            f"{triples:,} triples (TriG, 100 triples)"
        )
        if floor:
            text += f", {ours / floor:.1f} times what a constant Flask view of that size takes"
        if other:
            kind = main.where(server=REFERENCE).distinct("kind")[0]
            text += f"; {kind} spends {other:.2f} ms, {other / ours:.1f} times as much"
        yield Finding(text + ".", headline=True)
    ratios = {
        (row.x, form): row.y / theirs
        for form in FORMATS
        for row in main.points("pattern", "cpu_ms", numeric=False, server=REFERENCE, format=form)
        if (theirs := main.mean("cpu_ms", server=OURS, pattern=str(row.x), format=form))
    }
    if ratios:
        low, high = min(ratios, key=lambda k: ratios[k]), max(ratios, key=lambda k: ratios[k])
        yield Finding(
            f"Over {len(ratios)} pairs of pattern and format the reference server's CPU per "
            f"request is between {ratios[low]:.2f} ({low[0]}, {low[1]}) and {ratios[high]:.1f} "
            f"times ours ({high[0]}, {high[1]})."
        )


def _all_requests(main: Results) -> Table:
    rows: list[Sequence[Any]] = []
    for pattern in (*PATTERNS, _NOT_MODIFIED):
        for form in FORMATS:
            ours = main.mean("cpu_ms", server=OURS, pattern=pattern, format=form)
            for name in main.distinct("server"):
                chosen = main.where(server=name, pattern=pattern, format=form)
                if chosen.rows:
                    figures = (
                        "cpu_ms", "requests_per_second", "p50_ms", "p99_ms", "body_bytes",
                    )  # fmt: skip
                    means = [chosen.mean(column) for column in figures]
                    times = means[0] / ours if means[0] is not None and ours else None
                    rows.append((pattern, form, chosen.distinct("kind")[0], times, *means))
    header = (
        "pattern", "format", "server", "times our CPU", "CPU ms", "requests/s", "p50 ms", "p99 ms",
        "bytes",
    )  # fmt: skip
    return Table("Every kind of request", header, rows)


def _starts(results: Results) -> Table:
    columns = ("start_seconds", "start_memory_mib", "memory_mib", "mapped_mib")
    rows: list[Sequence[Value]] = [
        (
            f"{int(row['triples']):,}",
            row["kind"],
            *(float(row[column]) for column in columns),
        )
        for row in results.where(pattern="start").rows
    ]
    header = (
        "triples", "server", "seconds to the first answer", "MiB of the worker then",
        "MiB after the requests", "of those, pages of the store",
    )  # fmt: skip
    return Table("Start, and memory", header, rows)
