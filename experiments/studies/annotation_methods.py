"""``annotation-methods``: what a tick costs the client, by annotation method, labelling and cache.

Source: Taelman et al. 2016, section 6, figure 3.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from annotations.labels import Labelling
from annotations.methods import METHODS
from experiments.errors import MeasurementError
from experiments.harness.in_process import Application, Work, application
from experiments.harness.items import Figure, Finding, Item, Table, Target
from experiments.harness.measurement import Measurement, MeasurementGroup, Row, Run
from experiments.harness.results import Results
from experiments.workloads.trains import Answers, Recording, recording
from tpf_client import Client
from tpf_client.solutions import Solutions

ON_PAGE = "on the page"
REWRITTEN = "by rewritten patterns"
NONE = "-"
POLLING = "polling"
_LABELLINGS: tuple[Labelling, ...] = ("expiration", "interval")
_LATER = ("requests", "bytes", "seconds", "client_cpu_ms", "server_cpu_ms", "late_seconds")
_PAUSE = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        polls: how many polls of the recording are played where labels are on the page, at most;
            the railway's day has 1,284.
        rewritten_polls: how many are played where patterns are rewritten.
        periods: seconds between two evaluations of the naive clients.
    """

    polls: int = 1_300
    rewritten_polls: int = 60
    periods: tuple[float, ...] = (5.0, 15.0, 60.0, 180.0)

    @classmethod
    def quick(cls) -> Self:
        """Some minutes of trains."""
        return cls(polls=12, rewritten_polls=4, periods=(15.0, 60.0))


@dataclass(slots=True)
class Stage:
    """What all measurements have in common: the recording, its static facts, right answers."""

    recorded: Recording
    answers: Answers
    store: Path
    folder: Path
    numbers: Iterator[int] = field(default_factory=count)

    def own_folder(self) -> Path:
        """A folder that nobody has used."""
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
    keys = ("source", "method", "labelling", "labels", "cache")
    values = (
        "tick", "at_seconds", "requests", "bytes", "seconds", "client_cpu_ms", "server_cpu_ms",
        "results", "added", "removed", "right", "late_seconds",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """One group: everything runs in this process, on a clock of its own."""
        recorded = recording(max(settings.polls, settings.rewritten_polls))
        measurements: list[Measurement] = []

        def add(method: str, labelling: Labelling, labels: str, cache: str, measure: Any) -> None:
            key = {
                "source": recorded.source, "method": method, "labelling": labelling,
                "labels": labels, "cache": cache,
            }  # fmt: skip
            measurements.append(Measurement(key, measure))

        for labels, polls in ((ON_PAGE, settings.polls), (REWRITTEN, settings.rewritten_polls)):
            for method in METHODS:
                for labelling in _LABELLINGS:
                    for cache in ("on", "off"):
                        measure = partial(
                            _stream, method.name, labelling, labels, cache == "on", polls
                        )
                        add(method.name, labelling, labels, cache, measure)
        for period in settings.periods:
            name = f"{POLLING} every {period:g} s"
            add(name, "expiration", NONE, "off", partial(_poll, period, settings.polls))
        yield MeasurementGroup("in process", partial(_open, recorded, run), measurements)

    def report(self, results: Results) -> Iterable[Item]:
        """Per tick in the mean, then over time."""
        yield from _headlines(results)
        yield _table(results)
        for labels in (ON_PAGE, REWRITTEN):
            for column, label in (
                ("requests", "requests per evaluation"),
                ("seconds", "seconds per evaluation"),
            ):
                yield Figure(
                    f"{column}-{'labels' if labels == ON_PAGE else 'rewritten'}",
                    f"Labels {labels}, with the cache", "evaluation", label,
                    dict(_over_time(results, column, labels=labels, cache="on")), markers=False,
                )  # fmt: skip
        yield Figure(
            "late", "How late an answer is", "client", "seconds after the publication",
            {"mean": results.where(cache="off").points("method", "late_seconds", numeric=False)},
            kind="bars",
        )  # fmt: skip
        yield from _targets(results)


@contextmanager
def _open(recorded: Recording, run: Run) -> Iterator[Stage]:
    store = run.folder / "static"
    if not store.exists():
        run.static.store(store, recorded.static, recorded.start)
    yield Stage(recorded, Answers(recorded, recorded.query), store, run.folder)


class _Playing:
    """A recording that is being played to an application, and the measurement of evaluations."""

    def __init__(self, stage: Stage, app: Application, labelling: Labelling, polls: int) -> None:
        self._stage = stage
        self._app = app
        self._feed = Work()
        self._published: list[datetime] = []
        self._seen = 0
        for batch in stage.recorded.batches[:polls]:
            app.clock.schedule(batch.at, partial(self._publish, list(batch.facts(labelling))))
        self._last = stage.recorded.batches[:polls][-1].at
        app.clock.advance_to(stage.recorded.start)
        self._begin()

    @property
    def last(self) -> datetime:
        """The instant of the last poll that is played."""
        return self._last

    def _publish(self, facts: list[Any]) -> None:
        with self._feed.measured():
            self._app.live.publish(facts, self._app.clock.now())
        self._published.append(self._app.clock.now())

    def _begin(self) -> None:
        work, feed = self._app.work, self._feed
        self._before = (work.requests, work.bytes, work.cpu + feed.cpu, work.wall + feed.wall)
        self._server_cpu = work.cpu
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def row(self, tick: int, at: datetime, rows: list[tuple[Any, ...]], changes: Row) -> Row:
        """The row of an evaluation; what follows belongs to the next one."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        work, feed = self._app.work, self._feed
        requests, size, others_cpu, others_wall = self._before
        unseen = self._published[self._seen :]
        self._seen = len(self._published)
        right = sorted(rows, key=str) == self._stage.answers.after(self._seen - 1)
        found = {
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
        return found


def _stream(
    method: str, labelling: Labelling, labels: str, cache: bool, polls: int, stage: Stage
) -> list[Row]:
    """A continuous query, evaluated when something expires."""
    settings = {"annotation": method, "max_age": 3600.0, "page_labels": labels == ON_PAGE}
    found: list[Row] = []
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
            found.append(playing.row(tick, app.clock.now(), rows, changes))
    return found


def _poll(period: float, polls: int, stage: Stage) -> list[Row]:
    """A client without memory that asks the whole query in a fixed period."""
    found: list[Row] = []
    recorded = stage.recorded
    settings = {"annotation": "plain", "max_age": 3600.0, "page_labels": False}
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
            found.append(playing.row(tick, at, rows, {}))
            at += timedelta(seconds=period)
    return found


def _after_the_first(results: Results) -> Results:
    rows = [row for row in results.rows if row["tick"] != "0"]
    return Results(rows, results.left_out, results.failures, results.missing)


def _combinations(results: Results) -> list[tuple[str, str, str, str]]:
    return list(
        dict.fromkeys(
            (row["method"], row["labelling"], row["labels"], row["cache"]) for row in results.rows
        )
    )


def _table(results: Results) -> Table:
    later = _after_the_first(results)
    rows: list[Sequence[Any]] = []
    for method, labelling, labels, cache in _combinations(results):
        wanted = {"method": method, "labelling": labelling, "labels": labels, "cache": cache}
        right = results.numbers("right", **wanted)
        later_means = [later.mean(column, **wanted) for column in _LATER]
        first = results.mean("requests", tick=0, **wanted)
        answers = f"{sum(right):.0f} of {len(right)}"
        rows.append((method, labelling, labels, cache, first, *later_means, answers))
    header = (
        "method", "labelling", "labels", "cache", "requests, first", "requests, later",
        "bytes, later", "seconds, later", "CPU of client, ms", "CPU of server, ms", "seconds late",
        "right answers",
    )  # fmt: skip
    return Table("Evaluations: the first one, and the later ones in the mean", header, rows)


def _over_time(results: Results, column: str, **wanted: str) -> Iterator[tuple[str, Any]]:
    chosen = results.where(**wanted)
    for method in chosen.distinct("method"):
        for labelling in chosen.distinct("labelling"):
            each = chosen.where(method=method, labelling=labelling)
            if points := each.points("tick", column):
                yield f"{method}, {labelling}", points


def _headlines(results: Results) -> Iterator[Item]:
    later = _after_the_first(results)
    source = results.distinct("source")[0]
    streamed = {
        method: later.mean("requests", method=method, labels=ON_PAGE, cache="on")
        for method in (each.name for each in METHODS)
    }
    known = {name: value for name, value in streamed.items() if value is not None}
    if known:
        low, high = min(known.values()), max(known.values())
        span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
        yield Finding(
            f"With labels on the page, an evaluation of the train query on the {source} recording "
            f"after the first one takes {span} requests in the mean, over {len(known)} annotation "
            "methods and both labellings.",
            headline=True,
        )
    yield from _growth(later)
    for name in later.distinct("method"):
        if name.startswith(POLLING):
            requests = results.numbers("requests", method=name)
            late = results.mean("late_seconds", method=name)
            if requests and late is not None:
                yield Finding(
                    f"A client that polls ({name.removeprefix(f'{POLLING} ')}) sends "
                    f"{sum(requests) / len(requests):.1f} requests per evaluation, and shows "
                    f"a change {late:.1f} s after its publication in the mean."
                )
    wrong = sum(1 for row in results.rows if row["right"] == "0")
    yield Finding(
        f"{len(results.rows) - wrong} of {len(results.rows)} evaluations gave exactly the answer "
        "of pyoxigraph over the facts that were valid at that instant."
    )


def _growth(later: Results) -> Iterator[Item]:
    """Whether intervals make evaluations slower with history, in requests."""
    for labels in (ON_PAGE, REWRITTEN):
        chosen = later.where(labels=labels, labelling="interval", cache="on")
        ticks = sorted({int(row["tick"]) for row in chosen.rows})
        if len(ticks) < 4:
            continue
        quarter = max(1, len(ticks) // 4)
        first = [float(r["requests"]) for r in chosen.rows if int(r["tick"]) in ticks[:quarter]]
        last = [float(r["requests"]) for r in chosen.rows if int(r["tick"]) in ticks[-quarter:]]
        before, after = sum(first) / len(first), sum(last) / len(last)
        yield Finding(
            f"Intervals, labels {labels}: {before:.2f} requests per evaluation in the first "
            f"quarter of the time, {after:.2f} in the last one."
        )


def _targets(results: Results) -> Iterator[Target]:
    later = _after_the_first(results)
    means = [
        later.mean("requests", method=method, labelling=labelling, labels=ON_PAGE, cache="on")
        for method in results.distinct("method")
        for labelling in _LABELLINGS
    ]
    known = [mean for mean in means if mean is not None]
    yield Target(
        "requests per evaluation of the train query after the first one, largest mean",
        max(known, default=None), 3.0,
        compared="original query streamer: 6–25 for two departures, growing with history",
    )  # fmt: skip
