"""`tpf-query`: SPARQL over fragments from the command line."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, NoReturn, Self

import typer
from rich.live import Live

from annotations.clock import SystemClock
from annotations.errors import InstantError
from annotations.instants import parse_instant
from annotations.seconds import seconds_from
from tpf_client.client import Client
from tpf_client.commands import printable
from tpf_client.errors import ClientError, ClosedError, QuerySyntaxError
from tpf_client.fragments.destinations import not_a_url
from tpf_client.fragments.responses import Limits
from tpf_client.planner.budget import Allowance, Budget
from tpf_client.planner.explain import explain_plan
from tpf_client.planner.leaves import Step
from tpf_client.printing import (
    STATIC,
    Format,
    LiveTable,
    OutputConsole,
    named_format,
    print_answer,
    refusal,
)
from tpf_client.queries import MOST_GRACE, QueryOptions
from tpf_client.sparql.parser import declared_prefixes, parse_query

if TYPE_CHECKING:
    from tpf_client.stream import Stream, Update

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _format_option(name: str) -> Format:
    format_ = named_format(name)
    if format_ is None:
        raise typer.BadParameter(f"no format {name!r}: {', '.join(Format)}, or a media type")
    return format_


def _rate(text: str) -> Limits:
    return Limits(max_requests_per_second=float(text))


@app.command(
    no_args_is_help=True,
    epilog="tpf-query serve URL... answers queries at a local SPARQL endpoint: see tpf-query serve "
    "--help. tpf-query page --output DIR writes a page that answers queries in the browser.",
)
def query(
    arguments: Annotated[
        list[str],
        typer.Argument(
            help="URLs of datasets, and behind them the query unless -q or -f gives it",
            metavar="URL... [QUERY]",
        ),
    ],
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
    seconds: Annotated[
        float | None,
        typer.Option(parser=seconds_from(0), metavar="SECONDS", help="stop after so many seconds"),
    ] = None,
    min_interval: Annotated[
        float,
        typer.Option(
            parser=seconds_from(0),
            metavar="SECONDS",
            help="with --watch: seconds between two evaluations, at least",
        ),
    ] = 0.0,
    max_interval: Annotated[
        float | None,
        typer.Option(
            parser=seconds_from(0.001),
            metavar="SECONDS",
            help="with --watch: seconds between two evaluations, at most",
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            parser=seconds_from(0.001),
            metavar="SECONDS",
            help="with --watch: seconds between two evaluations, whatever expires",
        ),
    ] = None,
    keep_checking: Annotated[
        float | None,
        typer.Option(
            parser=seconds_from(0.001),
            metavar="SECONDS",
            help="with --watch: seconds between looks at a dataset in which "
            "nothing is labelled; by default it is answered once",
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            parser=seconds_from(0, MOST_GRACE),
            metavar="SECONDS",
            help="with --watch: seconds for which what is not renewed in time stays, as late",
        ),
    ] = 0.0,
    signal: Annotated[
        bool,
        typer.Option(
            "--signal",
            help="with --watch: look at once where a server tells that something has changed",
        ),
    ] = False,
    allow_link: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-link",
            metavar="URL",
            help="an origin that links, forms and redirects may lead to, beside that of each "
            "dataset; can be repeated",
        ),
    ] = None,
    limits: Annotated[
        Limits | None,
        typer.Option(
            "--requests-per-second",
            parser=_rate,
            metavar="NUMBER",
            help="requests to one host, on average; this machine gets as many as it takes "
            f"[default: {Limits().max_requests_per_second:g}]",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="refuse functions that are not known, instead of taking an error for their value",
        ),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="print the plan on standard error")
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="print a JSON line on standard error at the end")
    ] = False,
    format: Annotated[  # noqa: A002 - the name of the flag
        Format | None,
        typer.Option(
            "--format",
            parser=_format_option,
            metavar="FORMAT",
            help=f"format of the answer: {', '.join(Format)}, another usual name, or a media type",
        ),
    ] = None,
) -> None:
    """Answer a SPARQL query over Triple Pattern Fragments, once or continuously."""
    *urls, last = arguments
    if urls and text is None and file is None and not_a_url(last):
        text = last
    else:
        urls.append(last)
    for url in (*urls, *(allow_link or ())):
        if wrong := not_a_url(url):
            raise typer.BadParameter(wrong, param_hint="URL")
    if (text is None) == (file is None):
        raise typer.BadParameter("give the query: behind the URLs, with -q, or with -f")
    try:
        asking = Client(
            *urls, limits=limits, allowed_origins=allow_link or (), strict=strict, signal=signal
        )
    except ClientError as error:
        raise typer.BadParameter(str(error), param_hint="--allow-link") from error
    sparql = text if text is not None else _read(file)
    instant = None if at is None else _instant(at)
    _check_format(sparql, format, watch)
    started = monotonic()
    count = 0
    plan: list[Step] | None = [] if explain else None
    with asking as client, _TimeLimit(seconds) as limit:
        try:
            if watch:
                board = sys.stdout.isatty() and format is not Format.NDJSON
                stream = client.stream(
                    sparql,
                    start=instant,
                    until=None if instant is None else client.clock.now(),
                    min_interval=min_interval,
                    max_interval=max_interval,
                    every=every,
                    keep_checking=keep_checking,
                    grace=grace,
                    quiet=board,
                    budgets=None if seconds is None else limit.budget,
                    explain=explain,
                )
                limit.ends.append(stream.close)
                table = LiveTable(urls, declared_prefixes(sparql)) if board else None
                count = _watch(client, stream, table, explain)
            else:
                limit.ends.append(client.close)
                with limit.budget() as budget:
                    options = QueryOptions(plan=plan, budget=None if seconds is None else budget)
                    answer = client.query(sparql, at=instant, options=options)
                    count = print_answer(answer, format, declared_prefixes(sparql))
        except QuerySyntaxError as error:
            _fail(f"{error}\n{error.pointed}")
        except ClosedError:
            _fail(f"no complete answer within {seconds} s")
        except ClientError as error:
            _fail(str(error))
        if plan is not None and not watch:
            sys.stderr.write(printable(explain_plan(plan)) + "\n")
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


def _check_format(sparql: str, format_: Format | None, watch: bool) -> None:
    try:
        form = parse_query(sparql).form
    except ClientError:
        # What is wrong with the query is said when it is asked.
        return
    reason = refusal(form, format_, watch=watch, terminal=sys.stdout.isatty())
    if reason is not None:
        raise typer.BadParameter(reason, param_hint="--format")


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"tpf-query: {printable(message)}\n")
    raise typer.Exit(1)


class _TimeLimit:
    """Ends evaluations, and what `ends` says, when seconds are over; ``None``: never."""

    def __init__(self, seconds: float | None) -> None:
        self._timer = None if seconds is None else threading.Timer(seconds, self._end)
        self._budget = Budget(SystemClock(), Allowance())
        self.ends: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @contextmanager
    def budget(self) -> Iterator[Budget]:
        """Give the budget of one evaluation."""
        self._budget, before = Budget(SystemClock(), Allowance()), self._budget
        if before.error is not None:
            self._budget.stop(before.error)
        yield self._budget

    def _end(self) -> None:
        self._budget.stop(ClosedError("its time is over"))
        for end in self.ends:
            end()


def _watch(client: Client, stream: "Stream", table: LiveTable | None, explain: bool) -> int:
    count = 0
    with ExitStack() as ending:
        ending.callback(stream.close)
        ending.enter_context(suppress(KeyboardInterrupt))
        show: Callable[[Update], None] | None = None
        for update in stream:
            count += 1
            if explain and update.error is None:
                sys.stderr.write(printable(stream.explain()) + "\n")
                explain = False
            # A board is opened below what was explained.
            show = show or (_board(client, table, ending) if table else _write_line)
            show(update)
    return count


def _board(client: Client, table: LiveTable, ending: ExitStack) -> "Callable[[Update], None]":
    console = OutputConsole()
    live = ending.enter_context(Live(console=console, auto_refresh=False))
    return lambda update: live.update(table.render(update, client.statistics), refresh=True)


def _write_line(update: "Update") -> None:
    sys.stdout.write(json.dumps(update.to_json(), ensure_ascii=False) + "\n")
    sys.stdout.flush()
    if not update.dynamic:
        sys.stderr.write(f"tpf-query: {STATIC}\n")
