"""``tpf-continuous``: continuous queries over files, from the command line."""

import heapq
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer

from tpf_server.cqels.delivery import Emission
from tpf_server.cqels.elements import Element, read_lines
from tpf_server.cqels.engine import Engine
from tpf_server.cqels.errors import ContinuousSyntaxError, ElementError
from tpf_server.cqels.semantics import SEMANTICS
from tpf_server.cqels.static_data import StoreGraph
from tpf_server.errors import ServerError
from tpf_server.store.opening import is_store, open_store

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.callback()
def _group() -> None:
    """Continuous queries over files."""


@app.command()
def run(
    queries: Annotated[list[str], typer.Argument(help="files with queries, or queries")],
    static: Annotated[
        list[Path] | None, typer.Option(help="RDF file or store of the default graph")
    ] = None,
    graph: Annotated[list[str] | None, typer.Option(help="IRI=FILE of a named graph")] = None,
    stream: Annotated[list[str] | None, typer.Option(help="IRI=FILE of a stream")] = None,
    semantics: Annotated[str, typer.Option(help=", ".join(SEMANTICS))] = "cqels",
    lateness: Annotated[int, typer.Option(help="milliseconds that an element may be late")] = 0,
    output: Annotated[Path | None, typer.Option(help="file to write to")] = None,
    skip_malformed: Annotated[bool, typer.Option(help="leave malformed lines out")] = False,
) -> None:
    """Play streams through queries; a line ``sequence, query, values`` for each result."""
    try:
        if semantics not in SEMANTICS:
            raise typer.BadParameter(f"{semantics!r} is none of {', '.join(SEMANTICS)}")
        engine = Engine(semantics=SEMANTICS[semantics], lateness=lateness)
        _load(engine, static or [], graph or [])
        files = [_pair(each) for each in stream or []]
        if output is None:
            _play(engine, queries, files, sys.stdout, skip_malformed=skip_malformed)
        else:
            with output.open("w", encoding="utf-8") as file:
                _play(engine, queries, files, file, skip_malformed=skip_malformed)
    except ContinuousSyntaxError as error:
        typer.echo(f"{error}\n{error.pointed}", err=True)
        raise typer.Exit(2) from None
    except (ServerError, OSError) as error:
        typer.echo(f"tpf-continuous: {error}", err=True)
        raise typer.Exit(1) from None


def _pair(text: str) -> tuple[str, Path]:
    iri, equals, path = text.rpartition("=")
    if not equals or not iri:
        raise typer.BadParameter(f"expected IRI=FILE, not {text!r}")
    return iri, Path(path)


def _load(engine: Engine, static: list[Path], graphs: list[str]) -> None:
    for path in static:
        if path.is_dir() and is_store(path):
            engine.attach(StoreGraph(open_store(path)))
        else:
            engine.load(path)
    for each in graphs:
        iri, path = _pair(each)
        if path.is_dir() and is_store(path):
            engine.attach(StoreGraph(open_store(path)), engine.resolve(iri))
        else:
            engine.load(path, engine.resolve(iri))


def _play(
    engine: Engine,
    queries: list[str],
    files: list[tuple[str, Path]],
    output: TextIO,
    *,
    skip_malformed: bool,
) -> None:
    for number, query in enumerate(queries):
        engine.register(_text(query), _Writer(output, number))
    skipped = 0
    for _, name, item in heapq.merge(
        *(_elements(engine.resolve(iri), path) for iri, path in files), key=lambda each: each[0]
    ):
        if isinstance(item, ElementError):
            if not skip_malformed:
                raise item
            skipped += 1
            continue
        engine.push(name, item.triples, item.at)
    engine.finish()
    if skipped or engine.dropped:
        typer.echo(f"{skipped} malformed lines, {engine.dropped} late elements left out", err=True)


def _text(query: str) -> str:
    if "{" in query:
        return query
    return Path(query).read_text(encoding="utf-8")


def _elements(stream: str, path: Path) -> Iterator[tuple[int, str, Element | ElementError]]:
    last = 0
    with path.open(encoding="utf-8") as lines:
        for item in read_lines(lines):
            if isinstance(item, ElementError):
                yield last, stream, ElementError(f"{path}: {item}")
            else:
                last = item.at
                yield item.at, stream, item


class _Writer:
    """Writes the results of one query."""

    def __init__(self, output: TextIO, number: int) -> None:
        self._output = output
        self._number = number

    def __call__(self, emission: Emission) -> None:
        sign = "-" if emission.removed else ""
        for row in emission.rows:
            values = " ".join("UNDEF" if value is None else value for value in row)
            self._output.write(f"{sign}{emission.sequence}\t{self._number}\t{values}\n")


def main() -> None:
    """Run the command."""
    app()
