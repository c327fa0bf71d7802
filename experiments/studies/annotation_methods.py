"""``annotation-methods``: client cost of a tick by annotation method, labelling and cache.

Source: Taelman et al. 2016, section 6, figure 3.
"""

import io
import sys
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Self
from urllib.parse import unquote_to_bytes, urlsplit

import requests
from requests.adapters import BaseAdapter
from werkzeug.test import create_environ, run_wsgi_app

from annotations.clock import ManualClock
from annotations.labels import Labelling
from annotations.methods import METHODS
from experiments.errors import MeasurementError
from experiments.harness import items
from experiments.harness.claims import checks
from experiments.harness.report import duration, rounded
from experiments.harness.results import Results
from experiments.workloads.trains import Answers, Recording, recording
from tpf_client import Client
from tpf_client.solutions import Solutions
from tpf_server.app import create_app
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.store import LiveStore, open_live_store
from tpf_server.store.static.columnar import open_dataset

_BASE = "http://server.example/"
_DATASET = "trains"
_ENVIRON: Final[dict[str, Any]] = create_environ(base_url=_BASE)


@dataclass(slots=True)
class ServerWork:
    """Requests, body bytes, CPU and wall seconds of the application."""

    requests: int = 0
    bytes: int = 0
    cpu: float = 0.0
    wall: float = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Add the CPU and wall time of a block."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.cpu += time.process_time() - cpu
            self.wall += time.perf_counter() - wall


@dataclass(slots=True)
class InProcess(BaseAdapter):
    """A transport of requests that calls the application, and adds up its work."""

    app: Any
    work: ServerWork = field(default_factory=ServerWork)

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        environ = _environ(request)
        with self.work.measured():
            chunks, status, fields = run_wsgi_app(self.app, environ, buffered=True)
            body = b"".join(chunks)
        self.work.requests += 1
        self.work.bytes += len(body)
        code, reason = status.split(" ", 1)
        response = requests.Response()
        response.status_code = int(code)
        response.reason = reason
        response.headers.update(fields.items())
        response.url = request.url or ""
        response.request = request
        response.raw = io.BytesIO(body)
        return response

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _environ(request: requests.PreparedRequest) -> dict[str, Any]:
    url = urlsplit(request.url or "")
    environ = _ENVIRON | {
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote_to_bytes(url.path or "/").decode("latin-1"),
        "QUERY_STRING": url.query,
        "wsgi.errors": sys.stderr,
    }
    for name, value in request.headers.items():
        # Bodies are compared as they are; who compresses them pays for it elsewhere.
        if name.lower() != "accept-encoding":
            environ["HTTP_" + name.upper().replace("-", "_")] = str(value)
    return environ


@dataclass(frozen=True, slots=True)
class Application:
    """The application with one dataset, on a manual clock."""

    clock: ManualClock
    live: LiveStore
    session: requests.Session
    work: ServerWork

    def url(self, view: str = "") -> str:
        """Return the URL of the dataset, or of one of its views."""
        return _BASE + _DATASET + (f"/{view}" if view else "")


@contextmanager
def application(
    folder: Path, static: Path, start: datetime, **dataset: Any
) -> Iterator[Application]:
    """Make the application with a dataset of static and live facts."""
    folder.mkdir(parents=True)
    clock = ManualClock(start)
    live = open_live_store(folder / "live.sqlite", LiveSettings())
    served = OpenDataset(
        DatasetSettings(name=_DATASET, **dataset), open_dataset(static, folder), live
    )
    try:
        adapter = InProcess(create_app(Settings(base_url=_BASE), [served], clock))
        with requests.Session() as session:
            session.mount(_BASE, adapter)
            yield Application(clock, live, session, adapter.work)
    finally:
        served.close()


POLLING = "polling"
ON_PAGE = "on the page"
REWRITTEN = "by rewritten patterns"
NO_LABELLING = "-"
LABELLINGS: tuple[Labelling, ...] = ("expiration", "interval")
_KEYS = {
    "method": "method", "labelling": "labelling", "labels": "labels", "cache": "cache",
    "latency_ms": "latency, ms",
}  # fmt: skip
_LATER = {
    "requests": "requests", "bytes": "bytes", "seconds": "seconds",
    "client_cpu_ms": "CPU of client, ms", "server_cpu_ms": "CPU of server, ms",
    "late_seconds": "seconds late", "right": "share of right answers",
}  # fmt: skip
_PAUSE = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes: `polls` replayed with labels on the page (a day has 1,284), or rewritten patterns."""

    polls: int = 1_300
    rewritten_polls: int = 150
    latencies: tuple[float, ...] = (0.0, 0.02)
    periods: tuple[float, ...] = (60.0, 180.0)

    @classmethod
    def quick(cls) -> Self:
        return cls(polls=8, rewritten_polls=3, periods=(60.0,))


@dataclass(slots=True)
class Stage:
    """The shared recording, its static facts and right answers."""

    recorded: Recording
    answers: Answers
    store: Path
    folder: Path
    numbers: Iterator[int] = field(default_factory=count)
    played: tuple[Hashable, list[items.ResultRow]] = (None, [])

    def own_folder(self) -> Path:
        return self.folder / f"live{next(self.numbers)}"


class AnnotationMethods:
    """The experiment."""

    name = "annotation-methods"
    question = (
        "How many requests and bytes, and how much time, does one evaluation of the train query "
        "cost, as history grows: by annotation method, by expiration times or intervals, with "
        "labels on the page or by rewritten patterns, with and without the client's cache, and "
        "next to clients that simply ask again and again?"
    )
    settings = Sizes
    keys = ("source", "method", "labelling", "labels", "cache", "latency_ms")
    values = (
        "tick", "at_seconds", "requests", "bytes", "seconds", "client_cpu_ms", "server_cpu_ms",
        "results", "added", "removed", "right", "late_seconds",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return one group, in this process, on a manual clock."""
        recorded = recording(max(settings.polls, settings.rewritten_polls))
        measurements: list[items.Measurement] = []

        def add(
            method: str, labelling: Labelling, labels: str, cache: str, latency: float, measure: Any
        ) -> None:
            key: dict[str, str | int | float] = {
                "source": recorded.source, "method": method, "labelling": labelling,
                "labels": labels, "cache": cache, "latency_ms": round(1000 * latency),
            }  # fmt: skip
            # Each has hundreds of evaluations.
            measurements.append(items.Measurement(key, measure, repetitions=1))

        for labels, polls in ((ON_PAGE, settings.polls), (REWRITTEN, settings.rewritten_polls)):
            for method in METHODS:
                for labelling in LABELLINGS:
                    for cache in ("on", "off"):
                        for latency in settings.latencies:
                            measure = partial(
                                _delayed, method.name, labelling, labels, cache == "on", latency,
                                polls,
                            )  # fmt: skip
                            add(method.name, labelling, labels, cache, latency, measure)
        for period in settings.periods:
            name = f"{POLLING} every {period:g} s"
            add(
                name, "expiration", NO_LABELLING, "off", 0.0, partial(_poll, period, settings.polls)
            )
        yield items.MeasurementGroup("in process", partial(_open, recorded, run), measurements)

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return first and later evaluations, over time and by latency; claims."""
        near = results.where(latency_ms="0")
        first = Results([row for row in results.rows if row["tick"] == "0"], {}, {})
        after = Results([row for row in results.rows if row["tick"] != "0"], {}, {})
        later = after.where(latency_ms="0")
        yield from _sentences(results, later)
        yield after.table("Evaluations after the first one, in the mean", _KEYS, _LATER)
        yield first.table("First evaluations", _KEYS, _LATER)
        for labels, name in ((ON_PAGE, "labels"), (REWRITTEN, "rewritten")):
            for column in ("requests", "seconds"):
                chosen = near.where(labels=labels, cache="on")
                series = {
                    f"{method}, {labelling}": chosen.points(
                        "tick", column, method=method, labelling=labelling
                    )
                    for method in chosen.distinct("method")
                    for labelling in LABELLINGS
                }
                yield items.Figure(
                    f"{column}-{name}", f"Labels {labels}, with the cache", "evaluation",
                    f"{column} per evaluation", series, markers=False,
                )  # fmt: skip
            if len(results.distinct("latency_ms")) > 1:
                yield items.Figure(
                    f"latency-{name}",
                    f"An evaluation by the distance of the server, labels {labels}",
                    "annotation method", "ms per evaluation after the first",
                    _by_latency(after.where(labels=labels)), kind="bars", log_y=True,
                )  # fmt: skip
        late = near.where(cache="off").points("method", "late_seconds", numeric=False)
        yield items.Figure(
            "late", "How late an answer is", "client", "seconds after the publication",
            {"mean": late}, kind="bars",
        )  # fmt: skip
        means = [
            mean
            for method in results.distinct("method")
            for labelling in LABELLINGS
            if (mean := later.mean(
                "requests", method=method, labelling=labelling, labels=ON_PAGE, cache="on"
            )) is not None
        ]  # fmt: skip
        yield items.Target(
            "requests per evaluation of the train query after the first one, largest mean",
            max(means, default=None), 3.0,
            compared="original query streamer: 6–25 for two departures, growing with history",
        )  # fmt: skip
        yield from checks(
            "annotation-methods",
            {
                "expiration": partial(_growth, later, "expiration"),
                "interval": partial(_growth, later, "interval"),
                "graphs": partial(_of_graphs, later),
            },
        )


def _sentences(results: Results, later: Results) -> Iterator[items.Finding]:
    wrong = sum(row["right"] == "0" for row in results.rows)
    yield items.Finding(
        f"{len(results.rows) - wrong:,} of {len(results.rows):,} evaluations on the "
        f"{results.distinct('source')[0]} recording gave exactly the answer of pyoxigraph over the "
        "facts that were valid at that instant.",
        headline=wrong > 0,
    )
    for labels in (ON_PAGE, REWRITTEN):
        chosen = later.where(labels=labels, cache="on")
        seconds = chosen.mean("seconds")
        if seconds is not None:
            yield items.Finding(
                f"Labels {labels}: an evaluation after the first one takes "
                f"{rounded(chosen.mean('requests') or 0)} requests and "
                f"{duration(1000 * seconds)} in the mean.",
                headline=True,
            )


def _by_latency(later: Results) -> dict[str, list[items.Point]]:
    return {
        f"{latency} ms away, cache {cache}": [
            items.Point(f"{method}, {labelling}", 1000 * mean)
            for method in later.distinct("method")
            for labelling in LABELLINGS
            if (mean := later.mean(
                "seconds", method=method, labelling=labelling, cache=cache, latency_ms=latency
            ))
        ]
        for latency in later.distinct("latency_ms")
        for cache in ("on", "off")
    }  # fmt: skip


def _growth(later: Results, labelling: str) -> float | None:
    ratios = []
    for labels in (ON_PAGE, REWRITTEN):
        chosen = later.where(labels=labels, labelling=labelling, cache="on")
        ticks = sorted({int(row["tick"]) for row in chosen.rows})
        if quarter := len(ticks) // 4:
            first, last = (
                fmean(float(row["requests"]) for row in chosen.rows if int(row["tick"]) in each)
                for each in (set(ticks[:quarter]), set(ticks[-quarter:]))
            )
            ratios += [last / first] if first else []
    return max(ratios, default=None)


def _of_graphs(later: Results) -> float | None:
    chosen = later.where(labels=REWRITTEN, cache="on")
    means = {name: chosen.mean("seconds", method=name) for name in chosen.distinct("method")}
    graphs = means.pop("named-graph", None)
    others = [mean for mean in means.values() if mean]
    return graphs / min(others) if graphs and others else None


@contextmanager
def _open(recorded: Recording, run: items.Run) -> Iterator[Stage]:
    store = run.folder / "static"
    if not store.exists():
        run.static.store(store, recorded.static, recorded.start)
    yield Stage(recorded, Answers(recorded, recorded.query), store, run.folder)


class _Playing:
    def __init__(self, stage: Stage, app: Application, labelling: Labelling, polls: int) -> None:
        self._stage = stage
        self._app = app
        self._feed = ServerWork()
        self._published: list[datetime] = []
        self._seen = 0
        for batch in stage.recorded.batches[:polls]:
            app.clock.schedule(batch.at, partial(self._publish, list(batch.facts(labelling))))
        self.last = stage.recorded.batches[:polls][-1].at
        app.clock.advance_to(stage.recorded.start)
        self._begin()

    def _publish(self, facts: list[Any]) -> None:
        with self._feed.measured():
            self._app.live.publish(facts, self._app.clock.now())
        self._published.append(self._app.clock.now())

    def _begin(self) -> None:
        work, feed = self._app.work, self._feed
        self._before = (work.requests, work.bytes, work.cpu + feed.cpu, work.wall + feed.wall)
        self._server_cpu = work.cpu
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def row(
        self, tick: int, at: datetime, rows: list[tuple[Any, ...]], changes: items.ResultRow
    ) -> items.ResultRow:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        work, feed = self._app.work, self._feed
        requests, size, others_cpu, others_wall = self._before
        unseen = self._published[self._seen :]
        self._seen = len(self._published)
        right = sorted(rows, key=str) == self._stage.answers.after(self._seen - 1)
        result = {
            "tick": tick,
            "at_seconds": (at - self._stage.recorded.start).total_seconds(),
            "requests": work.requests - requests,
            "bytes": work.bytes - size,
            "seconds": wall - (work.wall + feed.wall - others_wall),
            "client_cpu_ms": 1000 * (cpu - (work.cpu + feed.cpu - others_cpu)),
            "server_cpu_ms": 1000 * (work.cpu - self._server_cpu),
            "results": len(rows),
            "right": int(right),
            "late_seconds": (at - unseen[0]).total_seconds() if unseen else None,
            **changes,
        }
        self._begin()
        return result


def _delayed(
    method: str,
    labelling: Labelling,
    labels: str,
    cache: bool,
    latency: float,
    polls: int,
    stage: Stage,
) -> list[items.ResultRow]:
    way = (method, labelling, labels, cache, polls)
    if stage.played[0] != way:
        stage.played = (way, _stream(method, labelling, labels, cache, polls, stage))
    return [
        {**row, "seconds": float(row["seconds"] or 0) + latency * int(row["requests"] or 0)}
        for row in stage.played[1]
    ]


def _stream(
    method: str, labelling: Labelling, labels: str, cache: bool, polls: int, stage: Stage
) -> list[items.ResultRow]:
    settings: dict[str, Any] = {
        "annotation": method, "max_age": 3600.0, "page_labels": labels == ON_PAGE,
    }  # fmt: skip
    result: list[items.ResultRow] = []
    recorded = stage.recorded
    with (
        application(stage.own_folder(), stage.store, recorded.start, **settings) as app,
        Client(
            app.url(), session=app.session, clock=app.clock, parallelism=0,
            cache_bytes=64 * 2**20 if cache else 0,
        ) as client,
    ):  # fmt: skip
        playing = _Playing(stage, app, labelling, polls)
        stream = client.stream(
            recorded.query,
            until=playing.last + _PAUSE,
            static_recheck=60.0 * 60 if cache else 0.0,
            quiet=True,
        )
        for tick, update in enumerate(stream):
            if update.error is not None:
                raise MeasurementError(f"evaluation {tick}: {update.error}")
            rows = [solution.row for solution in update.results]
            changes = {"added": len(update.added), "removed": len(update.removed)}
            result.append(playing.row(tick, app.clock.now(), rows, changes))
    return result


def _poll(period: float, polls: int, stage: Stage) -> list[items.ResultRow]:
    result: list[items.ResultRow] = []
    recorded = stage.recorded
    settings: dict[str, Any] = {"annotation": "plain", "max_age": 3600.0, "page_labels": False}
    with (
        application(stage.own_folder(), stage.store, recorded.start, **settings) as app,
        Client(
            app.url(), session=app.session, clock=app.clock, parallelism=0, cache_bytes=0
        ) as client,
    ):
        playing = _Playing(stage, app, "expiration", polls)
        # A client comes at any time, not just when the feed speaks.
        at = recorded.start + timedelta(seconds=period / 3)
        for tick in count():
            if at > playing.last:
                break
            app.clock.advance_to(at)
            answer = client.query(recorded.query)
            assert isinstance(answer, Solutions)
            rows = [solution.row for solution in answer]
            result.append(playing.row(tick, at, rows, {}))
            at += timedelta(seconds=period)
    return result
