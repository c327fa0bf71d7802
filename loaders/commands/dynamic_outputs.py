"""Where ``tpf-load`` puts the dynamic side of a source: labelled facts, and streams."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from annotations.methods import METHODS, method_named
from annotations.wording import counted
from loaders.commands.options import InputSpan
from loaders.dynamic import FeedStream, naming_of, write_facts, write_streams
from loaders.progress import shown_on
from loaders.sources.base import Feed, StreamSource

MethodChoice = enum.StrEnum(  # type: ignore[misc]  # the names are known at run time alone
    "MethodChoice", {method.name: method.name for method in METHODS}
)
_NAMED_GRAPH = MethodChoice("named-graph")
Facts = Annotated[
    Path | None,
    typer.Option("--facts", metavar="FILE", help="Write the dynamic facts as N-Quads to FILE."),
]
MethodName = Annotated[MethodChoice, typer.Option("--method", help="How --facts are annotated.")]
DatasetUrl = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="URL",
        help="What minted names begin with; default: http://example.org/NAME.",
    ),
]
Streams = Annotated[
    Path | None,
    typer.Option("--streams", metavar="DIR", help="Write timestamped triples to DIR/STREAM.tsv."),
]


@dataclass(frozen=True, slots=True)
class DynamicOutputs:
    """Where the dynamic side of a source goes."""

    facts: Facts = None
    method: MethodName = _NAMED_GRAPH
    dataset: DatasetUrl = None
    streams: Streams = None

    @property
    def wanted(self) -> int:
        """How many outputs are asked for."""
        return (self.facts is not None) + (self.streams is not None)

    def write(self, make_source: Callable[[], Feed], span: InputSpan, quiet: bool) -> None:
        """Write what is asked for, and tell the user."""
        lines = []
        with shown_on(Console(stderr=True), quiet) as report:
            if self.facts is not None:
                source = make_source()
                naming = naming_of(self.dataset or f"http://example.org/{source.name}")
                method = method_named(self.method)
                count = write_facts(
                    source, self.facts, method, naming, span.start, span.until, report
                )
                lines.append(
                    f"{counted(count, 'fact')}, annotated by {method.name}, in {self.facts}"
                )
            if self.streams is not None:
                source = make_source()
                stream: StreamSource = (
                    source if isinstance(source, StreamSource) else FeedStream(source)
                )
                count = write_streams(stream, self.streams, span.start, span.until, report)
                lines.append(f"{counted(count, 'triple')} of streams in {self.streams}")
        if lines and not quiet:
            typer.echo("\n".join(lines), err=True)
