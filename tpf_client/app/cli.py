"""`tpf-query`: SPARQL over fragments from the command line."""

import json
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from annotations.clock import SystemClock
from annotations.instants import parse_instant
from annotations.namespaces import DCTERMS, HYDRA, VOID
from annotations.seconds import MOST_SECONDS, seconds_from
from annotations.terms import is_iri, is_literal, literal_parts
from annotations.wording import printable
from tpf_client.app.printing import (
    STATIC,
    Format,
    LiveTable,
    OutputConsole,
    named_format,
    print_answer,
    refusal,
)
from tpf_client.client import Client
from tpf_client.errors import ClientError, ClosedError, PageError, ParseError, QuerySyntaxError
from tpf_client.fragments.destinations import is_file, not_a_url
from tpf_client.fragments.fetcher import Request
from tpf_client.fragments.freshness import whole_number
from tpf_client.fragments.responses import Limits
from tpf_client.planner.budget import Allowance, Budget
from tpf_client.planner.explain import explain_plan
from tpf_client.planner.leaves import Step
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


def _in_seconds(help_text: str, least: float = 0.001, most: float = MOST_SECONDS) -> Any:
    return typer.Option(parser=seconds_from(least, most), metavar="SECONDS", help=help_text)


@app.command(
    no_args_is_help=True,
    epilog="tpf-query serve URL... answers queries at a local SPARQL endpoint: see tpf-query serve "
    "--help. tpf-query page --output DIR writes a page that answers queries in the browser.",
)
def query(
    arguments: Annotated[
        list[str],
        typer.Argument(
            help="URLs of datasets, or RDF files, and behind them the query unless -q or -f gives "
            "it; without a query: the datasets of a server",
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
        datetime | None,
        typer.Option(
            "--at",
            parser=parse_instant,
            metavar="INSTANT",
            help="answer as of this instant, as 2015-12-08T10:20:00Z; with --watch, replay from it",
        ),
    ] = None,
    seconds: Annotated[float | None, _in_seconds("stop after so many seconds", 0)] = None,
    min_interval: Annotated[
        float, _in_seconds("with --watch: seconds between two evaluations, at least", 0)
    ] = 0.0,
    max_interval: Annotated[
        float | None, _in_seconds("with --watch: seconds between two evaluations, at most")
    ] = None,
    every: Annotated[
        float | None, _in_seconds("with --watch: seconds between two evaluations, whatever expires")
    ] = None,
    keep_checking: Annotated[
        float | None,
        _in_seconds(
            "with --watch: seconds between looks where nothing is labelled; default: one answer"
        ),
    ] = None,
    grace: Annotated[
        float,
        _in_seconds(
            "with --watch: seconds for which facts that are not renewed in time stay", 0, MOST_GRACE
        ),
    ] = 0.0,
    signal: Annotated[
        bool,
        typer.Option(
            "--signal",
            help="with --watch: evaluate at once when a server says that facts changed",
        ),
    ] = False,
    allow_link: Annotated[
        list[str] | None,
        typer.Option(
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
            help="refuse unknown functions; otherwise a call is an error, as SPARQL has it",
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
    if urls and text is None and file is None and not is_file(last) and not_a_url(last):
        text = last
    else:
        urls.append(last)
    for url in (*urls, *(allow_link or ())):
        if not is_file(url) and (wrong := not_a_url(url)):
            raise typer.BadParameter(wrong, param_hint="URL")
    unasked = text is None and file is None
    if (text and file) or (unasked and (watch or at is not None or explain)):
        raise typer.BadParameter("give the query: behind the URLs, with -q, or with -f")
    of_streams = {
        "--min-interval": min_interval, "--max-interval": max_interval, "--every": every,
        "--keep-checking": keep_checking, "--grace": grace, "--signal": signal,
    }  # fmt: skip
    if not watch and (unused := [option for option, value in of_streams.items() if value]):
        raise typer.BadParameter(f"{', '.join(unused)}: only with --watch")
    if max_interval is not None and min_interval > max_interval:
        raise typer.BadParameter(
            f"--min-interval {min_interval:g} is more than --max-interval {max_interval:g}"
        )
    try:
        asking = Client(
            *urls, limits=limits, allowed_origins=allow_link or (), strict=strict, signal=signal
        )
    except ClientError as error:
        if any(map(is_file, urls)):
            raise
        raise typer.BadParameter(str(error), param_hint="--allow-link") from error
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="URL") from error
    if unasked:
        _list(asking, urls)
        return
    sparql = text if text is not None else _read(file)
    _check_format(sparql, format, watch)
    started = monotonic()
    count = 0
    plan: list[Step] | None = [] if explain else None
    with asking as client, _time_limit(seconds) as budget:
        try:
            if watch:
                board = sys.stdout.isatty() and format is not Format.NDJSON
                stream = client.stream(
                    sparql,
                    start=at,
                    until=None if at is None else client.clock.now(),
                    min_interval=min_interval,
                    max_interval=max_interval,
                    every=every,
                    keep_checking=keep_checking,
                    grace=grace,
                    quiet=board,
                    budgets=None if budget is None else lambda: nullcontext(budget),
                    explain=explain,
                )
                if budget:
                    budget.on_stop(stream.close)
                table = LiveTable(urls, declared_prefixes(sparql)) if board else None
                count = _watch(client, stream, table, explain)
            else:
                if budget:
                    budget.on_stop(client.close)
                options = QueryOptions(plan=plan, budget=budget)
                answer = client.query(sparql, at=at, options=options)
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


def _datasets_at(client: Client, url: str, name: str) -> Iterator[tuple[str, int | None, str]]:
    """URL, number of facts and title."""
    try:
        page = client.fetcher.get(Request(url))
        if page.metadata.form is not None:
            yield name, page.metadata.count, ""
            return
    except (PageError, ParseError):
        page = client.fetcher.get(Request(url, bare=True))
    about: dict[str, dict[str, list[str]]] = {}
    for fact in page.facts:
        subject, predicate, value, _ = fact.quad
        about.setdefault(subject, {}).setdefault(predicate, []).append(value)
    members = [each for node in about.values() for each in node.get(f"<{HYDRA}member>", ())]
    for member in members:
        node = about.get(member, {})
        count, title = (
            literal_parts(next(filter(is_literal, node.get(predicate, ())), '""')).lexical
            for predicate in (f"<{VOID}triples>", f"<{DCTERMS}title>")
        )
        for address in filter(is_iri, node.get(f"<{VOID}subset>", ())):
            yield address[1:-1], whole_number(count), title
    if not members:
        raise PageError(url, "there is neither a dataset nor a list of datasets")


def _list(client: Client, urls: Sequence[str]) -> None:
    with client:
        rows = [
            row
            for url, name in zip(client.urls, urls, strict=True)
            for row in _datasets_at(client, url, name)
        ]
    table = Table("dataset", "facts", "title", highlight=False)
    for url, count, title in rows:
        cells = url, "" if count is None else f"{count:,}", title
        table.add_row(*(Text(printable(each)) for each in cells))
    OutputConsole().print(table)
    if rows:
        example = f"{shlex.quote(rows[0][0])} 'SELECT * {{ ?s ?p ?o }} LIMIT 10'"
        sys.stderr.write(f"tpf-query {printable(example)}\n")


def _read(file: Path | None) -> str:
    assert file is not None
    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return text.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        _fail(f"{file}: {error.strerror if isinstance(error, OSError) else error}")


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


@contextmanager
def _time_limit(seconds: float | None) -> Iterator[Budget | None]:
    """Give a budget that is stopped when the seconds are over; ``None``: no limit."""
    if seconds is None:
        yield None
        return
    budget = Budget(SystemClock(), Allowance())
    timer = threading.Timer(seconds, budget.stop, [ClosedError("its time is over")])
    timer.daemon = True
    timer.start()
    try:
        yield budget
    finally:
        timer.cancel()


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
