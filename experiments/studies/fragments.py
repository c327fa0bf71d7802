"""``fragments``: the server's cost of a fragment, by pattern and format."""

import json
import random
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial
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
from experiments.harness import items, servers
from experiments.harness.estimates import percentile
from experiments.harness.processes import LOOPBACK, Process, child, started
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.harness.static_loading import StaticLoading
from experiments.studies.processes import push_facts
from experiments.workloads.board import renewal
from experiments.workloads.people import PEOPLE, People

PEOPLE_DATASET = "people"
_SERVERS = ", ".join((servers.OURS, servers.CONSTANT, servers.REFERENCE))
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
START = "start"
"""Stands where a pattern would: a server's start."""
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

# The CPU of a page by that of the reference server in the same run, medians.
_RATIOS = {
    ("first page", "TriG"): 0.25,
    ("predicate", "TriG"): 0.25,
    ("subject", "TriG"): 0.45,
    ("existence", "TriG"): 0.45,
    ("predicate+object", "TriG"): 0.45,
    ("deep page", "TriG"): 0.05,
    ("first page", "JSON-LD"): 0.15,
    ("first page", "HTML"): 0.03,
}
_RATIO_COLUMNS = {"cpu_ms": "CPU", "requests_per_second": "requests/s", "p99_ms": "p99"}

_COLUMNS = {
    "cpu_ms": "CPU ms", "requests_per_second": "requests/s", "p50_ms": "p50 ms",
    "p95_ms": "p95 ms", "p99_ms": "p99 ms", "body_bytes": "bytes of the body",
    "head_bytes": "of the head",
}  # fmt: skip
START_COLUMNS = {
    "start_seconds": "seconds to the first answer", "start_memory_mib": "MiB of the worker then",
    "memory_mib": "MiB after the requests", "mapped_mib": "of those, pages of the store",
}  # fmt: skip


def request(port: int, path: str, media_type: str, fields: str = "") -> str:
    """Return a complete request; `fields` end its header."""
    return f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nAccept: {media_type}\r\n{fields}\r\n"


@lru_cache(1)
def paths(people: People, pattern: str) -> Sequence[str]:
    """Return request paths of a class of patterns, with random constants."""
    if pattern == "first page":
        return [f"/{PEOPLE_DATASET}"]
    if pattern == "predicate":
        return [_path(predicate=f"{PEOPLE}knows")]
    return list(_paths(people, pattern))


def _paths(people: People, pattern: str) -> Iterator[str]:
    chance = random.Random(f"{people.seed} {pattern}")
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

    def made(self) -> Path:
        return self.folder / PEOPLE_DATASET

    def store(self) -> Path:
        store = self.made()
        if not store.exists():
            self.static.load({store: self.triples()}, SystemClock().now())
        return store


def server(name: str, files: PeopleFiles, folder: Path) -> AbstractContextManager[servers.Server]:
    """Start a server with one worker, or raise `UnavailableError`."""
    if name == servers.CONSTANT:
        return servers.constant_server()
    if name == servers.REFERENCE:
        return servers.reference_server(
            servers.reference_data(files.triples(), files.folder), PEOPLE_DATASET, folder
        )
    source = json.dumps(str(files.store().resolve()))
    return servers.fragment_server(
        folder,
        f"[datasets.{PEOPLE_DATASET}]\nsource = {source}\nlive = false\n[datasets.{_LIVE}]\n",
    )


@dataclass(frozen=True, slots=True)
class _Running:
    files: PeopleFiles
    running: Mapping[str, servers.Server]
    generator: Process
    connections: int
    warm: set[tuple[str, str]] = field(default_factory=set)
    """Servers with the first request of what they were asked until the rate was steady."""

    def named(self, name: str) -> servers.Server:
        try:
            return self.running[name]
        except KeyError:
            raise UnavailableError(f"{name} is not running") from None

    def warm_up(self, server: servers.Server, requests: Sequence[str], seconds: float) -> None:
        """Send requests until the rate is steady: a compiler at run time takes its time."""
        rates: list[float] = []
        while len(rates) < _MOST_ROUNDS and not steady(rates):
            row = self.ask(server, requests, seconds)
            rates.append(float(str(row["requests_per_second"])))

    def ask(
        self,
        server: servers.Server,
        requests: Sequence[str],
        seconds: float,
        status: int = 200,
        pause: float = 0.0,
    ) -> items.ResultRow:
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
            "p95_ms": 1000 * percentile(latencies, 95),
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
        running = {}
        for name in names:
            try:
                opened = server(name, files, files.folder / name.rpartition("/")[2])
                running[name] = stack.enter_context(opened)
            except UnavailableError as error:
                say(f"{name}: {error}")
        generator = stack.enter_context(
            started("load generator", child("experiments.harness.load_generator:follow_order"))
        )
        yield _Running(files, running, generator, connections)


def mapped(server: servers.Server) -> int:
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
    """Sizes of the experiment: all `formats` are asked for first pages, else the first one."""

    triples: int = 1_000_000
    seconds: float = 1.0
    warm_up_seconds: float = 1.0
    connections: int = 4
    rounds: int = 5
    servers: tuple[str, ...] = (servers.OURS, servers.CONSTANT, servers.REFERENCE)
    formats: tuple[str, ...] = tuple(FORMATS)
    seldom_rate: float = 40.0
    seldom_requests: int = 200
    data: str = ""

    @classmethod
    def quick(cls) -> Self:
        """Use few triples, two formats, a fraction of a second."""
        formats = tuple(FORMATS)[:2]
        return cls(50_000, 0.15, 0.1, rounds=1, formats=formats, seldom_requests=20)


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
        "requests", "seconds", "requests_per_second", "p50_ms", "p95_ms", "p99_ms", "cpu_ms",
        "body_bytes", "start_seconds", "start_memory_mib", "memory_mib", "mapped_mib", "kind",
        "head_bytes",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return the comparison: servers and formats in turn."""
        for name in settings.servers:
            if name not in (servers.OURS, servers.CONSTANT, servers.REFERENCE):
                raise ConfigurationError(f"servers: {name!r}; there are {_SERVERS}")
        folder = Path(settings.data) if settings.data else run.folder
        people = People(settings.triples, run.seed)
        files = PeopleFiles(people, folder / f"{people.triples}-{run.seed}", run.static)
        yield items.MeasurementGroup(
            f"{people.triples:,} triples",
            partial(running_server, files, settings.connections, settings.servers, run.say),
            list(_measurements(people, settings)),
        )

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return cost per request by pattern and by format, start and memory, targets."""
        triples = int(results.distinct("triples")[0])
        # Rounds are in turn, and a median is no outlier.
        results = results.medians(self.keys, [name for name in self.values if name != "kind"])
        page = results.where(pattern="first page", format="TriG")
        ours = page.mean("cpu_ms", server=servers.OURS)
        others = {
            name: mean / ours
            for name in (servers.REFERENCE, servers.CONSTANT)
            if ours and (mean := page.mean("cpu_ms", server=name))
        }
        if ours is not None:
            yield items.Finding(
                f"The first page of {triples:,} triples (TriG, 100 triples) costs one worker "
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
            yield items.Figure(
                name, f"{' '.join(wanted.values())}, {triples:,} triples, one worker", x, label,
                results.series("server", x, column, numeric=False, **wanted), kind="bars",
                log_y=column == "cpu_ms",
            )  # fmt: skip
        asked = Results([row for row in results.rows if row["cpu_ms"]], {}, {})
        keys = {"pattern": "pattern", "format": "format", "kind": "server"}
        yield asked.table("Every kind of request", keys, _COLUMNS)
        yield results.where(pattern=START).table(
            "Start, and memory", {"kind": "server"}, START_COLUMNS
        )
        yield from _by_reference(asked)
        for (form, pattern), (limit, reference) in _TARGETS.items():
            compared = "" if reference is None else f"reference server with HDT: {reference:g}"
            measured = results.mean("cpu_ms", server=servers.OURS, pattern=pattern, format=form)
            what = f"CPU ms per request, {form}, {pattern}, {triples:,} triples"
            yield items.Target(what, measured, limit, compared=compared)
        yield from start_targets(results.where(server=servers.OURS), triples)


def start_targets(ours: Results, triples: int) -> Iterator[items.Target]:
    """Return targets of time and memory of the server's start."""
    yield items.Target(
        f"seconds until the server answers, {triples:,} triples",
        ours.mean("start_seconds"), 1.0, compared="reference server: 2 on 1 M",
    )  # fmt: skip
    yield items.Target(
        f"MiB of memory of the worker at its start, {triples:,} triples",
        ours.mean("start_memory_mib"), 120.0, compared="reference server: 130–300 on 1 M",
    )  # fmt: skip


def _by_reference(asked: Results) -> Iterator[items.Item]:
    pairs = {}
    for row in asked.where(server=servers.REFERENCE).rows:
        page, form = row["pattern"], row["format"]
        if page in PATTERNS and (
            same := asked.where(server=servers.OURS, pattern=page, format=form).rows
        ):
            pairs[f"{page} {form}"] = same[0], row
    ratios = {
        kind: [float(one[name] or "nan") / float(other[name] or "nan") for name in _RATIO_COLUMNS]
        for kind, (one, other) in pairs.items()
    }
    if ratios:
        cheapest, dearest = (choose(ratios, key=ratios.__getitem__) for choose in (min, max))
        yield items.Finding(
            "By that of the reference server in the same run, the CPU of a page is "
            f"{rounded(ratios[cheapest][0])} ({cheapest}) to {rounded(ratios[dearest][0])} "
            f"({dearest}).",
            headline=True,
        )
        header = ("page", *_RATIO_COLUMNS.values())
        rows: list[tuple[items.CellValue, ...]] = [(kind, *each) for kind, each in ratios.items()]
        yield items.Table("Ours by the reference server, medians of rounds in turn", header, rows)
    for (pattern, form), limit in _RATIOS.items():
        kind = f"{pattern} {form}"
        yield items.Target(
            f"CPU of a page by that of the reference server, {kind}",
            ratios[kind][0] if kind in ratios else None, limit,
        )  # fmt: skip


def steady(rates: Sequence[float]) -> bool:
    """True if the last three rounds of a warm-up were equally fast."""
    last = rates[-3:]
    return len(last) == 3 and max(last) <= _STEADY * min(last)


def _measurements(people: People, settings: Sizes) -> Iterator[items.Measurement]:
    def key(server: str, pattern: str, form: str) -> dict[str, str | int | float]:
        return {"triples": people.triples, "server": server, "pattern": pattern, "format": form}

    seconds, names = settings.seconds, settings.servers
    for pattern in PATTERNS:
        for form in settings.formats if pattern == PATTERNS[0] else settings.formats[:1]:
            for name in names:
                measure = partial(
                    measured_pages, people, pattern, RoundTimes(seconds, settings.warm_up_seconds),
                    name, FORMATS[form],
                )  # fmt: skip
                yield items.Measurement(key(name, pattern, form), measure, settings.rounds)
    pause = 1 / settings.seldom_rate
    for name in names:
        lasts = settings.seldom_requests * pause
        measure = partial(
            measured_pages, people, "subject", RoundTimes(lasts, pause=pause), name, FORMATS["TriG"]
        )
        yield items.Measurement(key(name, SELDOM, "TriG"), measure)
    # The reference server sends no entity tags.
    (path,) = paths(people, "predicate")
    not_modified = partial(_measure_not_modified, path, seconds)
    yield items.Measurement(key(servers.OURS, NOT_MODIFIED, "TriG"), not_modified)
    for pattern, encodings in RENEWED.items():
        yield items.Measurement(
            key(servers.OURS, pattern, "TriG"), partial(_measure_renewed, encodings, seconds)
        )
    for name in names:
        yield items.Measurement(key(name, START, "-"), partial(measured_start, name))


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Seconds of a round, of each round before it until the rate is steady, between requests."""

    round: float
    warm_up: float = 0.0
    pause: float = 0.0


def measured_pages(
    people: People, pattern: str, times: RoundTimes, name: str, media_type: str, opened: _Running
) -> Iterator[items.ResultRow]:
    """Ask a server for pages in a loop, after a warm-up before the first round."""
    server, asked = opened.named(name), paths(people, pattern)
    if name == servers.CONSTANT:
        # As many bytes as ours sends for the first of these requests.
        size = len(_page(opened.named(servers.OURS), asked[0], media_type).content)
        asked = [f"/{size}"]
    orders = [request(server.port, path, media_type) for path in asked]
    if times.warm_up and (key := (name, orders[0])) not in opened.warm:
        opened.warm.add(key)
        opened.warm_up(server, orders, times.warm_up)
    yield opened.ask(server, orders, times.round, pause=times.pause)


def _measure_not_modified(path: str, seconds: float, opened: _Running) -> Iterator[items.ResultRow]:
    server = opened.named(servers.OURS)
    tag = _page(server, path, FORMATS["TriG"]).headers.get("ETag")
    if tag is None:
        raise MeasurementError("there is no entity tag")
    order = request(server.port, path, FORMATS["TriG"], f"If-None-Match: {tag}\r\n")
    yield opened.ask(server, [order], seconds, status=304)


def _measure_renewed(encodings: str, seconds: float, opened: _Running) -> Iterator[items.ResultRow]:
    """Renew 100 facts, of which the client has the page before."""
    server = opened.named(servers.OURS)
    order = {"url": f"{server.url}{_LIVE}", "token": servers.TOKEN}
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


def measured_start(name: str, opened: _Running) -> Iterator[items.ResultRow]:
    """Start a server again: seconds and memory; and its memory after what was asked."""
    server = opened.named(name)
    start_seconds, start_memory = opened.start_another(name)
    yield {
        "start_seconds": start_seconds,
        "start_memory_mib": start_memory / 2**20,
        "memory_mib": server.worker_memory() / 2**20,
        "mapped_mib": mapped(server) / 2**20,
        "kind": server.name,
    }


def _page(server: servers.Server, path: str, media_type: str) -> requests.Response:
    response = requests.get(
        server.url + path.lstrip("/"),
        headers={"Accept": media_type, "Accept-Encoding": "identity"}, timeout=30,
    )  # fmt: skip
    if response.status_code != 200:
        raise MeasurementError(f"{path} is answered with {response.status_code}")
    return response
