"""`tpf-query`: SPARQL over fragments from the command line."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Annotated, NoReturn

import rdflib
import typer
from rich.console import Console
from rich.live import Live

from annotations.errors import InstantError
from annotations.instants import parse_instant
from tpf_client.board import STATIC, Board, solution_table
from tpf_client.client import Client
from tpf_client.errors import ClientError, ClosedError, QuerySyntaxError
from tpf_client.planner.explain import explain_plan
from tpf_client.planner.leaves import Step
from tpf_client.solutions import Solutions
from tpf_client.stream import Stream, Update

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Format(StrEnum):
    """Formats of answers."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    XML = "xml"
    NDJSON = "ndjson"
    TTL = "ttl"
    NT = "nt"


@app.command(no_args_is_help=True)
def query(
    urls: Annotated[list[str], typer.Argument(help="URLs of datasets", metavar="URL...")],
    text: Annotated[str | None, typer.Option("-q", "--query", help="the query")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "-f", "--file", help="file with the query; - for standard input", allow_dash=True
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="keep the answer up to date: a table on a terminal, "
            "else one JSON object per update",
        ),
    ] = False,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="INSTANT",
            help="answer as of this instant, as 2015-12-08T10:20:00Z; with --watch, replay from it",
        ),
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="stop after so many seconds")] = None,
    min_interval: Annotated[
        float, typer.Option(min=0, help="with --watch: seconds between two evaluations, at least")
    ] = 0.0,
    max_interval: Annotated[
        float | None,
        typer.Option(min=0.001, help="with --watch: seconds between two evaluations, at most"),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="with --watch: seconds between two evaluations, whatever expires"
        ),
    ] = None,
    keep_checking: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="with --watch: seconds between looks at a dataset in which "
            "nothing is labelled; by default it is answered once",
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="print the plan on standard error")
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="print a JSON line on standard error at the end")
    ] = False,
    format: Annotated[  # noqa: A002 - the name of the flag
        Format | None, typer.Option("--format", help="format of the answer")
    ] = None,
) -> None:
    """Answer a SPARQL query over Triple Pattern Fragments, once or continuously."""
    if (text is None) == (file is None):
        raise typer.BadParameter("give the query with -q or with -f")
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise typer.BadParameter(f"not an http(s) URL: {url}", param_hint="URL")
    sparql = text if text is not None else _read(file)
    instant = None if at is None else _instant(at)
    started = monotonic()
    count = 0
    plan: list[Step] | None = [] if explain else None
    with Client(*urls) as client:
        try:
            if watch:
                stream = client.stream(
                    sparql,
                    start=instant,
                    until=None if instant is None else client.clock.now(),
                    min_interval=min_interval,
                    max_interval=max_interval,
                    every=every,
                    keep_checking=keep_checking,
                    quiet=sys.stdout.isatty(),
                )
                count = _watch(client, stream, seconds, explain)
            else:
                with _time_limit(seconds, client):
                    count = _answer(client, sparql, format, plan, instant)
        except QuerySyntaxError as error:
            _fail(f"{error}\n{error.pointed}")
        except ClosedError:
            _fail(f"no complete answer within {seconds} s")
        except ClientError as error:
            _fail(str(error))
        if plan is not None and not watch:
            sys.stderr.write(explain_plan(plan) + "\n")
        if stats:
            done = client.statistics
            line = {
                "requests": done.requests,
                "bytes": done.bytes,
                "results": count,
                "seconds": round(monotonic() - started, 3),
                **{k: v for k, v in asdict(done).items() if k not in ("requests", "bytes")},
            }
            sys.stderr.write(json.dumps(line) + "\n")


def _read(file: Path | None) -> str:
    assert file is not None
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _fail(f"{file}: {error.strerror if isinstance(error, OSError) else error}")


def _instant(text: str) -> datetime:
    try:
        return parse_instant(text)
    except InstantError as error:
        raise typer.BadParameter(str(error), param_hint="--at") from error


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"tpf-query: {message}\n")
    raise typer.Exit(1)


@contextmanager
def _time_limit(seconds: float | None, client: Client) -> Iterator[None]:
    timer = None if seconds is None else threading.Timer(seconds, client.close)
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


def _answer(
    client: Client,
    sparql: str,
    form: Format | None,
    plan: list[Step] | None,
    at: datetime | None,
) -> int:
    """Print the answer; the number of its solutions or triples."""
    answer = client.query(sparql, plan=plan, at=at)
    out = sys.stdout
    if isinstance(answer, bool):
        document = {"head": {}, "boolean": answer}
        out.write((json.dumps(document) if form is Format.JSON else str(answer).lower()) + "\n")
        return 1
    if isinstance(answer, rdflib.Graph):
        out.write(answer.serialize(format="nt" if form is Format.NT else "turtle"))
        return len(answer)
    if form is None:
        form = Format.TABLE if out.isatty() else Format.JSON
    count = _solutions(answer, form)
    out.flush()
    return count


def _solutions(answer: Solutions, form: Format) -> int:
    out = sys.stdout
    count = 0
    if form is Format.NDJSON:
        for solution in answer:
            count += 1
            out.write(json.dumps(solution.to_json(), ensure_ascii=False) + "\n")
            out.flush()
    elif form is Format.TABLE:
        console = Console()
        with console.status("asking…") if console.is_terminal else nullcontext():
            rows = list(answer)
        console.print(solution_table(answer.variables, rows))
        count = len(rows)
    elif form in (Format.TTL, Format.NT):
        _fail(f"a SELECT query has no answer in {form.value}: json, xml, csv, tsv, ndjson or table")
    else:
        rows = list(answer)
        out.write(answer.serialize(form.value).rstrip("\n") + "\n")
        count = len(rows)
    return count


def _watch(client: Client, stream: Stream, seconds: float | None, explain: bool) -> int:
    """Show updates until the time is over or somebody presses Ctrl-C; how many there were."""
    timer = None if seconds is None else threading.Timer(seconds, stream.close)
    if timer is not None:
        timer.daemon = True
        timer.start()
    count = 0
    with ExitStack() as ending:
        ending.callback(stream.close)
        if timer is not None:
            ending.callback(timer.cancel)
        ending.enter_context(suppress(KeyboardInterrupt))
        show: Callable[[Update], None] | None = None
        for update in stream:
            count += 1
            if count == 1 and explain:
                sys.stderr.write(stream.explain() + "\n")
            # A board is opened below what was explained.
            show = show or (_board(client, ending) if sys.stdout.isatty() else _write_line)
            show(update)
    return count


def _board(client: Client, ending: ExitStack) -> Callable[[Update], None]:
    console = Console()
    board = Board(console.height - 6)
    live = ending.enter_context(Live(console=console, auto_refresh=False))
    return lambda update: live.update(board.render(update, client.statistics), refresh=True)


def _write_line(update: Update) -> None:
    sys.stdout.write(json.dumps(update.to_json(), ensure_ascii=False) + "\n")
    sys.stdout.flush()
    if not update.dynamic:
        sys.stderr.write(f"tpf-query: {STATIC}\n")
