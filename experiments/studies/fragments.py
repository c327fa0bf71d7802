"""``fragments``: the server's cost of a fragment, by pattern and format."""

import json
import random
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self
from urllib.parse import quote

import psutil
import requests

from annotations.clock import SystemClock
from experiments.errors import ConfigurationError, MeasurementError, UnavailableError
from experiments.harness.estimates import percentile
from experiments.harness.items import (
    Figure,
    Finding,
    Item,
    Measurement,
    MeasurementGroup,
    ResultRow,
    Run,
    Target,
)
from experiments.harness.processes import LOOPBACK, Process, child, started
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.harness.servers import (
    CONSTANT,
    OURS,
    REFERENCE,
    TOKEN,
    Server,
    constant_server,
    fragment_server,
    reference_data,
    reference_server,
)
from experiments.harness.static_loading import StaticLoading
from experiments.studies.processes import push_facts
from experiments.workloads.board import renewal
from experiments.workloads.people import PEOPLE, People

PEOPLE_DATASET = "people"
_SERVERS = ", ".join((OURS, CONSTANT, REFERENCE))
FORMATS = {
    "TriG": "application/trig",
    "N-Quads": "application/n-quads",
    "JSON-LD": "application/ld+json",
    "HTML": "text/html",
}
"""Media types by what figures call them."""
PATTERNS = (
    "first page", "predicate", "subject", "existence", "predicate+object", "deep page",
)  # fmt: skip
NOT_MODIFIED = "304"
"""Stands where a pattern would: a page that the client has."""
RENEWED = {"renewed page": "br", "renewed page, delta": "br, dcz"}
"""Stand where a pattern would: a live page that was renewed; which encodings are accepted."""
SELDOM = "subject, seldom"
"""Stands where a pattern would: subjects, a few in a second."""
_LIVE = "live"
_renewals = count()
_URLS = 20_000
"""Of patterns with constants: more than a worker keeps pages of."""
_ANSWER_SECONDS = 240.0
_STEADY = 1.04
"""By how much the rates of three rounds of a warm-up may differ."""
_MOST_ROUNDS = 8
_STORE_FILES = frozenset({".npy", ".arrow", ".hdt"})
# CPU milliseconds per request, and the reference server with HDT as measured on a machine like the
# one that the targets were set for.
_TARGETS = {
    ("TriG", "first page"): (0.25, 0.54),
    ("TriG", "predicate"): (0.25, 0.56),
    ("TriG", "subject"): (0.15, 0.28),
    ("TriG", "existence"): (0.10, 0.20),
    ("TriG", "deep page"): (0.25, 6.7),
    ("HTML", "first page"): (1.5, 30.0),
    ("JSON-LD", "first page"): (0.5, 2.3),
    ("TriG", NOT_MODIFIED): (0.08, None),
    ("TriG", SELDOM): (0.5, None),
}

# The same as ratios of medians to the reference server in the same run.
_RATIOS = {
    ("TriG", "first page"): 0.25,
    ("TriG", "predicate"): 0.25,
    ("TriG", "subject"): 0.45,
    ("TriG", "predicate+object"): 0.45,
    ("TriG", "existence"): 0.45,
    ("TriG", "deep page"): 0.05,
    ("JSON-LD", "first page"): 0.15,
    ("HTML", "first page"): 0.03,
}


_COLUMNS = {
    "cpu_ms": "CPU ms", "requests_per_second": "requests/s", "p50_ms": "p50 ms",
    "p99_ms": "p99 ms", "body_bytes": "bytes of the body", "head_bytes": "of the head",
}  # fmt: skip
_START_COLUMNS = {
    "start_seconds": "seconds to the first answer", "start_memory_mib": "MiB of the worker then",
    "memory_mib": "MiB after the requests", "mapped_mib": "of those, pages of the store",
}  # fmt: skip


def request(port: int, path: str, media_type: str, fields: str = "") -> str:
    """Return a complete request; `fields` end its header."""
    return f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nAccept: {media_type}\r\n{fields}\r\n"


def paths(people: People, seed: int, pattern: str) -> Iterator[str]:
    """Yield request paths of a class of patterns, with random constants."""
    chance = random.Random(f"{seed} {pattern}")
    if pattern == "first page":
        yield f"/{PEOPLE_DATASET}"
        return
    if pattern == "predicate":
        yield _path(predicate=f"{PEOPLE}knows")
        return
    for _ in range(_URLS):
        person = people.person(chance)
        subject, city = f"{PEOPLE}person/{person}", f"{PEOPLE}city/{person % people.cities}"
        match pattern:
            case "subject":
                yield _path(subject=subject)
            case "existence":
                yield _path(subject=subject, predicate=f"{PEOPLE}city", object=city)
            case "predicate+object":
                yield _path(predicate=f"{PEOPLE}city", object=city)
            case _:
                yield f"/{PEOPLE_DATASET}?page={chance.randrange(2, max(3, people.triples // 100))}"


def _path(**terms: str) -> str:
    query = "&".join(f"{name}={quote(term, safe='')}" for name, term in terms.items())
    return f"/{PEOPLE_DATASET}?{query}"


@dataclass(frozen=True, slots=True)
class PeopleFiles:
    """The data in the servers' forms, made on first use."""

    people: People
    folder: Path
    static: StaticLoading

    def triples(self) -> Path:
        path = self.folder / "people.nt"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.people.write(path)
        return path

    def store(self) -> Path:
        store = self.folder / PEOPLE_DATASET
        if not store.exists():
            self.static.load({store: self.triples()}, SystemClock().now())
        return store


def server(name: str, files: PeopleFiles, folder: Path) -> AbstractContextManager[Server]:
    """Start a server with one worker, or raise `UnavailableError`."""
    if name == CONSTANT:
        return constant_server()
    if name == REFERENCE:
        return reference_server(
            reference_data(files.triples(), files.folder), PEOPLE_DATASET, folder
        )
    source = json.dumps(str(files.store().resolve()))
    return fragment_server(
        folder,
        f"[datasets.{PEOPLE_DATASET}]\nsource = {source}\nlive = false\n[datasets.{_LIVE}]\n",
    )


@dataclass(frozen=True, slots=True)
class _Running:
    files: PeopleFiles
    servers: Mapping[str, Server]
    generator: Process
    connections: int
    warm: set[tuple[str, str]] = field(default_factory=set)
    """Servers with the first request of what they were asked until the rate was steady."""

    def named(self, name: str) -> Server:
        """Return a server by its name in the raw data, if it did start."""
        try:
            return self.servers[name]
        except KeyError:
            raise UnavailableError(f"{name} is not running") from None

    def warm_up(self, server: Server, requests: Sequence[str], seconds: float) -> None:
        """Send requests until the rate is steady: a compiler at run time takes its time."""
        rates: list[float] = []
        while len(rates) < _MOST_ROUNDS and not steady(rates):
            row = self.ask(server, requests, seconds)
            rates.append(float(str(row["requests_per_second"])))

    def ask(
        self,
        server: Server,
        requests: Sequence[str],
        seconds: float,
        status: int = 200,
        pause: float = 0.0,
    ) -> ResultRow:
        """Send requests in a loop and return their cost."""
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
            "head_bytes": answer["head_bytes"] / count,
            "kind": server.name,
        }

    def start_another(self, name: str) -> tuple[float, int]:
        """Start the server again; return seconds to the first answer, and memory."""
        with (
            TemporaryDirectory(dir=self.files.folder) as folder,
            server(name, self.files, Path(folder)) as another,
        ):
            return another.start_seconds, another.worker_memory()


@contextmanager
def running_server(
    files: PeopleFiles, connections: int, names: Sequence[str], say: Callable[[str], None]
) -> Iterator[_Running]:
    """Start the servers; leave out those not installed, and say so."""
    with ExitStack() as stack:
        servers = {}
        for name in names:
            try:
                opened = server(name, files, files.folder / name.rpartition("/")[2])
                servers[name] = stack.enter_context(opened)
            except UnavailableError as error:
                say(f"{name}: {error}")
        generator = stack.enter_context(
            started("load generator", child("experiments.harness.load_generator:follow_order"))
        )
        yield _Running(files, servers, generator, connections)


def mapped(server: Server) -> int:
    """Return bytes of the worker's memory that are pages of a store, shared and reclaimable."""
    sizes = server.process.resident_each()
    largest = max(sizes, key=lambda pid: sizes[pid])
    return sum(
        region.rss
        for region in psutil.Process(largest).memory_maps()
        if Path(region.path).suffix in _STORE_FILES
    )


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment. The first of `triples` compares servers and formats."""

    triples: tuple[int, ...] = (1_000_000, 10_000_000)
    seconds: float = 1.0
    warm_up_seconds: float = 1.0
    connections: int = 4
    rounds: int = 5
    servers: tuple[str, ...] = (OURS, CONSTANT, REFERENCE)
    formats: tuple[str, ...] = tuple(FORMATS)
    seldom_rate: float = 40.0
    seldom_requests: int = 200
    data: str = ""

    @classmethod
    def quick(cls) -> Self:
        """Use few triples, two formats, a fraction of a second."""
        formats = tuple(FORMATS)[:2]
        return cls((50_000,), 0.15, 0.1, rounds=1, formats=formats, seldom_requests=20)


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
        "start_seconds", "start_memory_mib", "memory_mib", "mapped_mib", "kind", "head_bytes",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """Return the comparison on the first size; ours alone on the others."""
        for name in settings.servers:
            if name not in (OURS, CONSTANT, REFERENCE):
                raise ConfigurationError(f"servers: {name!r}; there are {_SERVERS}")
        folder = Path(settings.data) if settings.data else run.folder
        for number, triples in enumerate(settings.triples):
            people = People(triples, run.seed)
            files = PeopleFiles(people, folder / f"{triples}-{run.seed}", run.static)
            names = settings.servers if number == 0 else (OURS,)
            formats = settings.formats if number == 0 else settings.formats[:1]
            yield MeasurementGroup(
                f"{triples:,} triples",
                partial(running_server, files, settings.connections, names, run.say),
                list(_measurements(people, run.seed, names, formats, settings)),
            )

    def report(self, results: Results) -> Iterable[Item]:
        """Return cost per request by pattern and by format, start and memory, targets."""
        first, largest = results.distinct("triples")[0], results.distinct("triples")[-1]
        # Rounds are in turn, and a median is no outlier.
        results = results.medians(self.keys, [name for name in self.values if name != "kind"])
        main = results.where(triples=first)
        page = main.where(pattern="first page", format="TriG")
        ours = page.mean("cpu_ms", server=OURS)
        others = {
            name: mean / ours
            for name in (REFERENCE, CONSTANT)
            if ours and (mean := page.mean("cpu_ms", server=name))
        }
        if ours is not None:
            yield Finding(
                f"The first page of {int(first):,} triples (TriG, 100 triples) costs one worker "
                f"{rounded(ours)} ms of CPU"
                + "".join(f"; {rounded(ratio)} times as much: {n}" for n, ratio in others.items())
                + ".",
                headline=True,
            )
        cpu = "server CPU per request, ms"
        for name, x, column, label, wanted in (
            ("cpu-by-pattern", "pattern", "cpu_ms", cpu, {"format": "TriG"}),
            ("cpu-by-format", "format", "cpu_ms", cpu, {"pattern": "first page"}),
            (
                "requests-per-second", "pattern", "requests_per_second", "requests per second",
                {"format": "TriG"},
            ),
        ):  # fmt: skip
            yield Figure(
                name, f"{' '.join(wanted.values())}, {int(first):,} triples, one worker", x, label,
                main.series("server", x, column, numeric=False, **wanted), kind="bars",
                log_y=column == "cpu_ms",
            )  # fmt: skip
        if first != largest:
            series = results.series("pattern", "triples", "cpu_ms", server=OURS, format="TriG")
            yield Figure("cpu-by-size", "TriG, ours", "triples", cpu, series, log_x=True)
        asked = Results([row for row in main.rows if row["cpu_ms"]], {}, {})
        keys = {"pattern": "pattern", "format": "format", "kind": "server"}
        yield asked.table("Every kind of request", keys, _COLUMNS)
        yield results.where(pattern="start").table(
            "Start, and memory", {"triples": "triples", "kind": "server"}, _START_COLUMNS
        )
        yield from _targets(main, int(first))
        started_ours = results.where(triples=largest, server=OURS)
        yield Target(
            f"seconds until the server answers, {int(largest):,} triples",
            started_ours.mean("start_seconds"), 1.0, compared="reference server: 2",
        )  # fmt: skip
        yield Target(
            f"MiB of memory of the worker at its start, {int(largest):,} triples",
            started_ours.mean("start_memory_mib"), 120.0,
            compared="reference server: 130–300 on 1 M",
        )  # fmt: skip


def _targets(main: Results, triples: int) -> Iterator[Target]:
    for (form, pattern), (limit, reference) in _TARGETS.items():
        compared = "" if reference is None else f"reference server with HDT on 1 M: {reference:g}"
        measured = main.mean("cpu_ms", server=OURS, pattern=pattern, format=form)
        what = f"CPU ms per request, {form}, {pattern}, {triples:,} triples"
        yield Target(what, measured, limit, compared=compared)
    for (form, pattern), limit in _RATIOS.items():
        asked = main.where(pattern=pattern, format=form)
        ours, theirs = (asked.mean("cpu_ms", server=name) for name in (OURS, REFERENCE))
        ratio = ours / theirs if ours and theirs else None
        what = f"CPU of a request by that of the reference server, {form}, {pattern}"
        yield Target(what, ratio, limit)


def steady(rates: Sequence[float]) -> bool:
    """True if the last three rounds of a warm-up were equally fast."""
    last = rates[-3:]
    return len(last) == 3 and max(last) <= _STEADY * min(last)


def _measurements(
    people: People, seed: int, names: Sequence[str], formats: Sequence[str], settings: Sizes
) -> Iterator[Measurement]:
    def key(server: str, pattern: str, form: str) -> dict[str, str | int | float]:
        return {"triples": people.triples, "server": server, "pattern": pattern, "format": form}

    seconds = settings.seconds
    for pattern in PATTERNS:
        asked = list(paths(people, seed, pattern))
        for form in formats:
            for name in names:
                measure = partial(
                    _measure, asked, seconds, name, FORMATS[form], settings.warm_up_seconds
                )
                yield Measurement(key(name, pattern, form), measure, settings.rounds)
    asked = list(paths(people, seed, "subject"))
    pause = 1 / settings.seldom_rate
    for name in names:
        lasts = settings.seldom_requests * pause
        measure = partial(_measure, asked, lasts, name, FORMATS["TriG"], 0.0, pause=pause)
        yield Measurement(key(name, SELDOM, "TriG"), measure)
    # The reference server sends no entity tags.
    path = next(paths(people, seed, "predicate"))
    not_modified = partial(_measure_not_modified, path, seconds)
    yield Measurement(key(OURS, NOT_MODIFIED, "TriG"), not_modified)
    for pattern, encodings in RENEWED.items():
        yield Measurement(key(OURS, pattern, "TriG"), partial(_measure_renewed, encodings, seconds))
    for name in names:
        yield Measurement(key(name, "start", "-"), partial(_measure_start, name))


def _measure(
    asked: Sequence[str],
    seconds: float,
    name: str,
    media_type: str,
    warm_up: float,
    opened: _Running,
    pause: float = 0.0,
) -> Iterator[ResultRow]:
    server = opened.named(name)
    if name == CONSTANT:
        # As many bytes as ours sends for the first of these requests.
        size = len(_page(opened.named(OURS), asked[0], media_type).content)
        asked = [f"/{size}"]
    orders = [request(server.port, path, media_type) for path in asked]
    if warm_up and (key := (name, orders[0])) not in opened.warm:
        opened.warm.add(key)
        opened.warm_up(server, orders, warm_up)
    yield opened.ask(server, orders, seconds, pause=pause)


def _measure_not_modified(path: str, seconds: float, opened: _Running) -> Iterator[ResultRow]:
    server = opened.named(OURS)
    tag = _page(server, path, FORMATS["TriG"]).headers.get("ETag")
    if tag is None:
        raise MeasurementError("there is no entity tag")
    order = request(server.port, path, FORMATS["TriG"], f"If-None-Match: {tag}\r\n")
    yield opened.ask(server, [order], seconds, status=304)


def _measure_renewed(encodings: str, seconds: float, opened: _Running) -> Iterator[ResultRow]:
    """Renew 100 facts, of which the client has the page before."""
    server = opened.named(OURS)
    order = {"url": f"{server.url}{_LIVE}", "token": TOKEN}
    subjects = [f"<{PEOPLE}person/{n}>" for n in range(50)]
    end = SystemClock().now() + timedelta(hours=1)
    asked = {"Accept": FORMATS["TriG"], "Accept-Encoding": "dcz"}
    for _ in range(2):
        number = next(_renewals)
        before = requests.get(order["url"], headers=asked, timeout=30).content
        push_facts(order, list(renewal(subjects, number)), end, number)
    named = b64encode(sha256(before).digest()).decode()
    fields = f"Accept-Encoding: {encodings}\r\nAvailable-Dictionary: :{named}:\r\n"
    yield opened.ask(server, [request(server.port, f"/{_LIVE}", FORMATS["TriG"], fields)], seconds)


def _measure_start(name: str, opened: _Running) -> Iterator[ResultRow]:
    server = opened.named(name)
    start_seconds, start_memory = opened.start_another(name)
    yield {
        "start_seconds": start_seconds,
        "start_memory_mib": start_memory / 2**20,
        "memory_mib": server.worker_memory() / 2**20,
        "mapped_mib": mapped(server) / 2**20,
        "kind": server.name,
    }


def _page(server: Server, path: str, media_type: str) -> requests.Response:
    response = requests.get(
        server.url + path.lstrip("/"),
        headers={"Accept": media_type, "Accept-Encoding": "identity"}, timeout=30,
    )  # fmt: skip
    if response.status_code != 200:
        raise MeasurementError(f"{path} is answered with {response.status_code}")
    return response
