"""``fragments``: what a fragment costs the server, by pattern and format."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import requests

from experiments.errors import MeasurementError
from experiments.harness.items import Item
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.results import Results
from experiments.harness.servers import Server
from experiments.studies.fragment_report import fragments_report
from experiments.studies.fragment_requests import (
    FORMATS,
    NOT_MODIFIED,
    PATTERNS,
    PEOPLE_DATASET,
    SELDOM,
    paths,
    request,
)
from experiments.studies.fragment_servers import (
    CONSTANT,
    OURS,
    REFERENCE,
    PeopleFiles,
    Running,
    mapped,
    running_server,
)
from experiments.workloads.people import People


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        triples: sizes of the data; servers and formats are compared on the first one, ours in the
            first format on the others.
        seconds: how long each measurement lasts.
        warm_up_seconds: how long each server is warmed up for.
        connections: how many are open to the server.
        servers: which are measured.
        formats: which are asked for.
        seldom_rate: requests in a second where they are seldom.
        seldom_requests: how many of those are sent.
        data: a folder that keeps the data for other runs; empty: they are made anew.
    """

    triples: tuple[int, ...] = (1_000_000, 10_000_000)
    seconds: float = 1.0
    warm_up_seconds: float = 2.0
    connections: int = 2
    servers: tuple[str, ...] = (OURS, CONSTANT, REFERENCE)
    formats: tuple[str, ...] = tuple(FORMATS)
    seldom_rate: float = 40.0
    seldom_requests: int = 200
    data: str = ""

    @classmethod
    def quick(cls) -> Self:
        """Few triples, two formats, a fraction of a second."""
        formats = tuple(FORMATS)[:2]
        return cls((50_000,), 0.15, warm_up_seconds=0.2, formats=formats, seldom_requests=20)


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

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """The comparison on the first size; ours alone on the others."""
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
                partial(_warm_up, settings.warm_up_seconds),
            )

    def report(self, results: Results) -> Iterable[Item]:
        """Cost per request by pattern and by format, start and memory, targets."""
        return fragments_report(results)


def _warm_up(seconds: float, opened: Running) -> None:
    for server in opened.servers.values():
        path = "/1000" if server.name == CONSTANT else f"/{PEOPLE_DATASET}"
        opened.ask(server, [request(server.port, path, FORMATS["TriG"])], seconds)


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
                measure = partial(_measure, asked, seconds, name, FORMATS[form])
                yield Measurement(key(name, pattern, form), measure)
    asked = list(paths(people, seed, "subject"))
    pause = 1 / settings.seldom_rate
    for name in names:
        lasts = settings.seldom_requests * pause
        measure = partial(_measure, asked, lasts, name, FORMATS["TriG"], pause=pause)
        yield Measurement(key(name, SELDOM, "TriG"), measure)
    # The reference server sends no entity tags.
    path = next(paths(people, seed, "predicate"))
    not_modified = partial(_measure_not_modified, path, seconds)
    yield Measurement(key(OURS, NOT_MODIFIED, "TriG"), not_modified)
    for name in names:
        yield Measurement(key(name, "start", "-"), partial(_measure_start, name))


def _measure(
    asked: Sequence[str],
    seconds: float,
    name: str,
    media_type: str,
    opened: Running,
    pause: float = 0.0,
) -> Iterator[ResultRow]:
    server = opened.server(name)
    if name == CONSTANT:
        # As many bytes as ours sends for the first of these requests.
        size = len(_page(opened.server(OURS), asked[0], media_type).content)
        asked = [f"/{size}"]
    orders = [request(server.port, path, media_type) for path in asked]
    yield opened.ask(server, orders, seconds, pause=pause)


def _measure_not_modified(path: str, seconds: float, opened: Running) -> Iterator[ResultRow]:
    server = opened.server(OURS)
    tag = _page(server, path, FORMATS["TriG"]).headers.get("ETag")
    if tag is None:
        raise MeasurementError("there is no entity tag")
    order = request(server.port, path, FORMATS["TriG"], f"If-None-Match: {tag}\r\n")
    yield opened.ask(server, [order], seconds, status=304)


def _measure_start(name: str, opened: Running) -> Iterator[ResultRow]:
    server = opened.server(name)
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
