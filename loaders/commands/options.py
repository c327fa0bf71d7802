"""Options that several commands share, and what all loads have in common."""

import enum
import functools
import inspect
import os
import time
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from annotations.errors import AnnotationError
from annotations.instants import parse_instant
from annotations.seconds import seconds_from
from annotations.wording import counted
from loaders.errors import InputError, LoaderError
from loaders.fetching import host_parts
from loaders.progress import Report, shown_on
from loaders.rdf.summary import RdfSummary
from loaders.sources.base import SMALL
from loaders.sources.gtfs import DEFAULT_BASE as DEFAULT_BASE
from tpf_server.spark.java import SparkMissingError
from tpf_server.spark.session import SparkSettings, spark_context

if TYPE_CHECKING:
    from pyspark import SparkContext


# Options in groups: one parameter of a command for what several commands have in common.

_EMPTY = inspect.Parameter.empty


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: a parameter whose type is a data class stands for its fields.

    Args:
        command: a function with typer's annotations; its parameters are given by name. A field
            without a default is an option that must be given.
    """
    own = inspect.signature(command).parameters
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: hints[name]
        for name in own
        if isinstance(hints[name], type) and is_dataclass(hints[name])
    }
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in own.items():
        if name not in groups:
            parameters[name] = _parameter(name, hints[name], parameter.default)
            continue
        types = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            parameters[field.name] = _parameter(field.name, types[field.name], _default(field))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            of_group = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**of_group)
        command(**values)

    # Typer reads these instead of those of the command.
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _default(field: "Field[Any]") -> Any:
    return _EMPTY if field.default is MISSING else field.default


class LoadEngine(enum.StrEnum):
    """What does the work of a load."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


def instant_option(text: str) -> datetime:
    """An instant that is given on the command line."""
    try:
        return parse_instant(text)
    except AnnotationError as error:
        raise typer.BadParameter(str(error)) from None


OutputOption = Annotated[
    str, typer.Option("--output", "-o", help="Directory to write; of a store, or its URL.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Write the output anew if it exists.")]
EngineOption = Annotated[
    LoadEngine,
    typer.Option(
        "--engine",
        help=f"auto: one process up to {SMALL >> 20} MB of input, not compressed; beyond, Spark "
        "where it is installed and there is a Java.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark master; default: TPF_SPARK_MASTER, or all cores here."),
]
Memory = Annotated[
    str | None,
    typer.Option("--memory", help="Memory of Spark's driver; default: TPF_SPARK_MEMORY, or 2g."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")]
From = Annotated[
    datetime | None,
    typer.Option("--from", parser=instant_option, metavar="T", help="First instant, in ISO 8601."),
]
Until = Annotated[
    datetime | None,
    typer.Option(
        "--until", parser=instant_option, metavar="T", help="First instant no longer wanted."
    ),
]
Base = Annotated[str, typer.Option("--base", metavar="IRI", help="What the names begin with.")]
Liveboards = Annotated[
    str, typer.Argument(metavar="INPUT", help="Zip file or directory, or its URL.")
]
SensorsArgument = Annotated[
    str, typer.Argument(metavar="INPUT", help="Directory with folders streams and static; or URL.")
]
Trips = Annotated[str, typer.Argument(metavar="INPUT", help="CSV of trips, or .csv.gz; or URL.")]
Messages = Annotated[
    str, typer.Argument(metavar="INPUT", help="File, directory of .pb files, or URL to poll.")
]
SiriMessages = Annotated[
    str, typer.Argument(metavar="INPUT", help="File, directory of .xml files, or URL to poll.")
]
SiriBase = Annotated[
    str, typer.Option("--base", metavar="IRI", help="What names begin with that are no IRIs.")
]
ScheduleOption = Annotated[
    str, typer.Option("--schedule", metavar="FEED", help="The GTFS feed that is spoken of; or URL.")
]
Period = Annotated[
    float,
    typer.Option(
        "--period", parser=seconds_from(0), metavar="S", help="Seconds between two polls."
    ),
]
PaceOption = Annotated[
    float | None,
    typer.Option(
        "--period",
        parser=seconds_from(0),
        metavar="S",
        help="A row every S seconds, whatever its time.",
    ),
]


class OutputForm(enum.StrEnum):
    """What a source is written as."""

    STORE = "store"
    NTRIPLES = "ntriples"


FormOption = Annotated[
    OutputForm,
    typer.Option(
        "--format", help="A store that the server opens, or files: N-Triples, in graphs N-Quads."
    ),
]


@dataclass(frozen=True, slots=True)
class InputSpan:
    """The part of an input that is wanted."""

    start: From = None
    until: Until = None


@dataclass(frozen=True)
class LoadWork:
    """What does the work, and what is told of it."""

    engine: EngineOption = LoadEngine.AUTO
    master: Master = None
    memory: Memory = None
    quiet: Quiet = False

    def run(
        self,
        name: str,
        size: int,
        spark: Callable[["SparkContext", Report], list[str]],
        local: Callable[[Report], list[str]],
        *,
        timed: bool = True,
    ) -> None:
        """Do it with Spark or without, and print the lines that come back.

        Args:
            name: of what is loaded.
            size: of the input, in bytes, not compressed.
            spark: does it with Spark.
            local: does it in this process.
            timed: say how long it took, also where it was done in this process.
        """
        settings = SparkSettings.from_environment(
            os.environ, master=self.master, memory=self.memory
        )
        begun = time.monotonic()
        lines: list[str] | None = None
        engine = LoadEngine.SPARK
        with shown_on(Console(stderr=True), self.quiet) as report:
            if self.engine is LoadEngine.SPARK or (self.engine is LoadEngine.AUTO and size > SMALL):
                try:
                    report.stage("starting Spark")
                    with spark_context(
                        settings, os.environ, f"tpf-load {name}", harmless=(LoaderError,)
                    ) as context:
                        lines = spark(context, report)
                except SparkMissingError as error:
                    if self.engine is LoadEngine.SPARK:
                        raise type(error)(f"{error}; or use --engine local") from None
                    typer.echo(f"tpf-load: without Spark: {error}", err=True)
            if lines is None:
                engine = LoadEngine.LOCAL
                lines = local(report)
        if not self.quiet:
            if timed or engine is LoadEngine.SPARK:
                lines.append(f"{time.monotonic() - begun:.1f} s, engine: {engine}")
            typer.echo("\n".join(lines), err=True)


@dataclass(frozen=True)
class LoadJob(LoadWork):
    """What all loads have in common."""

    replace: Replace = False


def is_web_url(text: str) -> bool:
    """Whether an input is to be fetched from a web server."""
    return text.lower().startswith(("http://", "https://")) and host_parts(text) is not None


def is_listener(text: str) -> bool:
    """Whether an input is what others send here."""
    return text.startswith("listen://")


NO_TRIPLES = "warning: there are no triples in the input, so the store is empty"


def load_lines(summary: RdfSummary, output: str, aside: Path | str) -> list[str]:
    """The lines that tell the user what a load did."""
    manifest = summary.manifest
    lines = [
        str(InputError(f"{reject.message}: {reject.text}".rstrip(": "), reject.path, reject.line))
        for reject in summary.first_rejects
    ]
    if summary.rejects:
        lines.append(f"{summary.rejects} malformed, left out; all of them in {aside}")
    if not manifest.quads:
        lines.append(NO_TRIPLES)
    graphs = f", {counted(manifest.graphs, 'named graph')}" if manifest.graphs else ""
    size = f"{manifest.size / 1e6:.1f} MB"
    lines.append(
        f"{counted(manifest.quads, 'triple')}, {counted(manifest.terms - 1, 'term')}, "
        f"{counted(summary.predicates, 'predicate')}{graphs}, {size} in {output}"
    )
    return lines
