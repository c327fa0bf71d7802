"""``tpf-continuous``: continuous queries over files, from the command line."""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from io import BufferedWriter, TextIOWrapper
from pathlib import Path
from typing import Annotated, TextIO

import typer

from annotations.clock import SystemClock
from annotations.wording import counted
from tpf_client.commands import NamedOutput
from tpf_client.dataflow.kernels import KERNELS, Kernel
from tpf_client.dataflow.operators.multiway_join import ROUTINGS, Routing
from tpf_server.continuous.changing_graphs import asked_once
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.cqels.parser import parse
from tpf_server.continuous.csparql import command as csparql
from tpf_server.continuous.csparql.command import Drawing, EngineName
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.parser import parse as parse_csparql
from tpf_server.continuous.csparql.periodic_query import Pace, PeriodicQuery, Widen
from tpf_server.continuous.csparql.rules import RULES, RULES_ON_SPARK
from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.errors import CallbackError, ContinuousSyntaxError, ElementError
from tpf_server.continuous.engine.files import (
    ArrowFile,
    holds_records,
    load,
    merged_streams,
    opened_records,
)
from tpf_server.continuous.engine.plans.registered_query import RegisteredQuery
from tpf_server.continuous.engine.semantics import CQELS, SEMANTICS
from tpf_server.continuous.hosting import CSPARQL, RSPQL, called, semantics_of
from tpf_server.continuous.rspql import parser as rspql
from tpf_server.continuous.rspql.parser import parse_report
from tpf_server.continuous.rspql.reporting_query import ReportingQuery
from tpf_server.continuous.rspql.rspql_query import TICKS, WINDOW_CLOSE, RspqlQuery
from tpf_server.errors import ServerError

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__)


class _Format(StrEnum):
    """How results are written."""

    TEXT = "text"
    ARROW = "arrow"


_Files = list[tuple[str, Path]]
_Read = Callable[[str, str], CsparqlQuery]
_POLICIES = (*SEMANTICS, CSPARQL, RSPQL)


@app.callback()
def _group() -> None:
    """Continuous queries over files."""


@dataclass(frozen=True, slots=True)
class _Task:
    """What is to be done: texts of queries, static data, streams, and the predicates of these."""

    queries: Sequence[str]
    static: Sequence[Path]
    graphs: _Files
    streams: _Files
    declared: Mapping[str, Sequence[str]]
    lateness: int
    skip_malformed: bool


@app.command()
def run(
    queries: Annotated[list[str], typer.Argument(help="files with queries, or queries")],
    static: Annotated[
        list[Path] | None,
        typer.Option(help="RDF file of the default graph, or store with its graphs"),
    ] = None,
    graph: Annotated[
        list[str] | None, typer.Option(help="IRI=FILE (or store) of a named graph")
    ] = None,
    stream: Annotated[
        list[str] | None, typer.Option(help="IRI=FILE of a stream: lines, or *.arrow")
    ] = None,
    declare: Annotated[
        list[str] | None,
        typer.Option(help="IRI=PREDICATE of a stream in C-SPARQL: it has those given, no others"),
    ] = None,
    semantics: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(_POLICIES)}; where it is not given the queries tell"),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="spark: for C-SPARQL only")
    ] = EngineName.NATIVE,
    widen_steps: Annotated[
        Widen,
        typer.Option(help="whose steps grow while evaluations take longer than they, in C-SPARQL"),
    ] = Widen.NEVER,
    report: Annotated[
        str, typer.Option(help="when queries in RSP-QL answer that do not say it")
    ] = str(WINDOW_CLOSE),
    tick: Annotated[
        str, typer.Option(help=f"where it is looked for that: {', '.join(TICKS)}")
    ] = TICKS[0],
    routing: Annotated[
        str, typer.Option(help=f"of joins in CQELS-QL: {', '.join(ROUTINGS)}")
    ] = "reviewed",
    kernel: Annotated[
        str,
        typer.Option(help=f"what takes batches of records in CQELS-QL: {', '.join(KERNELS)}"),
    ] = "compiled",
    lateness: Annotated[int, typer.Option(help="milliseconds that an element may be late")] = 0,
    output: Annotated[Path | None, typer.Option(help="file to write to")] = None,
    format: Annotated[  # noqa: A002 (the name of the option)
        _Format, typer.Option(help="of results; arrow: a stream of Arrow, of one query")
    ] = _Format.TEXT,
    skip_malformed: Annotated[
        bool, typer.Option(help="leave malformed lines or records out")
    ] = False,
    explain: Annotated[bool, typer.Option(help="show how queries are evaluated, and stop")] = False,
    drawing: Annotated[Drawing, typer.Option(help="how --explain shows C-SPARQL")] = Drawing.TEXT,
    master: Annotated[str, typer.Option(help="of Spark: local[*], spark://…")] = "local[*]",
    work: Annotated[
        str | None,
        typer.Option(
            help="directory or URL where Spark keeps its checkpoints; the same one again goes on"
        ),
    ] = None,
) -> None:
    """Play streams through queries; a line for each result, or a row of Arrow.

    A line has the number of the arrival (in C-SPARQL and RSP-QL: the instant of the evaluation,
    in milliseconds since 1970), the number of the query and the values, separated by tabulators.
    """
    if format is _Format.ARROW and (len(queries) > 1 or engine is EngineName.SPARK or explain):
        raise typer.BadParameter("the results of one query on the native engine are written so")
    with _errors_in_a_line(), _opened(output, format) as out:
        task = _Task(
            [_text(each) for each in queries],
            static or [],
            [_pair(each) for each in graph or []],
            [_pair(each) for each in stream or []],
            _declared(declare or []),
            lateness,
            skip_malformed,
        )
        policy = semantics or _told(task.queries)
        if policy not in _POLICIES:
            raise typer.BadParameter(f"{policy!r} is none of {', '.join(_POLICIES)}")
        if engine is EngineName.SPARK and policy != CSPARQL:
            raise typer.BadParameter("only C-SPARQL runs on Spark")
        if widen_steps is not Widen.NEVER and (policy != CSPARQL or engine is EngineName.SPARK):
            raise typer.BadParameter("steps are widened in C-SPARQL on the native engine only")
        if policy not in (CSPARQL, RSPQL):
            if routing not in ROUTINGS:
                raise typer.BadParameter(f"{routing!r} is none of {', '.join(ROUTINGS)}")
            if kernel not in KERNELS:
                raise typer.BadParameter(f"{kernel!r} is none of {', '.join(KERNELS)}")
            _run_cqels(task, policy, routing, kernel, out, explain=explain)
            return
        if tick not in TICKS:
            raise typer.BadParameter(f"{tick!r} is none of {', '.join(TICKS)}")
        reads_rspql = partial(rspql.parse, report=parse_report(report), tick=tick)
        read, kind = (
            (reads_rspql, ReportingQuery) if policy == RSPQL else (parse_csparql, PeriodicQuery)
        )
        if explain:
            assert not isinstance(out, ArrowFile)
            _explain(task, read, drawing, engine, out)
        else:
            pace = None if widen_steps is Widen.NEVER else Pace(time.thread_time, widen_steps)
            _run_periodic(task, read, kind, engine, master, work, out, pace)


@contextmanager
def _errors_in_a_line() -> Iterator[None]:
    try:
        yield
    except ContinuousSyntaxError as error:
        typer.echo(f"{error}\n{error.pointed}", err=True)
        raise typer.Exit(2) from None
    except ServerError as error:
        if isinstance(error, CallbackError) and isinstance(error.__cause__, OSError):
            # The callbacks are ours: results cannot be written.
            raise error.__cause__ from None
        typer.echo(f"tpf-continuous: {error}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _opened(output: Path | None, kind: _Format) -> Iterator[TextIO | ArrowFile]:
    if output is None:
        yield sys.stdout if kind is _Format.TEXT else ArrowFile(sys.stdout.buffer)
        return
    with BufferedWriter(NamedOutput(output, str(output))) as file:
        if kind is _Format.ARROW:
            yield ArrowFile(file)
        else:
            with TextIOWrapper(file, encoding="utf-8") as lines:
                yield lines


def _text(query: str) -> str:
    if "{" in query:
        return query
    try:
        return Path(query).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{query}: {error}") from None


def _pair(text: str) -> tuple[str, Path]:
    iri, equals, path = text.rpartition("=")
    if not equals or not iri:
        raise typer.BadParameter(f"expected IRI=FILE, not {text!r}")
    return iri, Path(path)


def _declared(pairs: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in pairs:
        iri, equals, predicate = each.partition("=")
        if not equals or not iri or not predicate:
            raise typer.BadParameter(f"expected IRI=PREDICATE, not {each!r}")
        found.setdefault(iri, []).append(predicate)
    return found


def _told(queries: Sequence[str]) -> str:
    """The semantics that the language of the queries has."""
    found = {semantics_of(text) for text in queries}
    if len(found) > 1:
        written = " and some ".join(
            called(each) for each in (None, CSPARQL, RSPQL) if each in found
        )
        raise typer.BadParameter(f"some of the queries are {written}")
    return found.pop() or CQELS.name


def _explain(
    task: _Task, read: _Read, drawing: Drawing, engine: EngineName, output: TextIO
) -> None:
    """Draw queries that answer at instants."""
    made = CsparqlEngine(rules=RULES_ON_SPARK if engine is EngineName.SPARK else RULES)
    load(made, task.static, task.graphs)
    for name, predicates in task.declared.items():
        made.declare(name, predicates)
    for text in task.queries:
        query = read(text, made.base)
        if isinstance(query, RspqlQuery):
            output.write(f"{query.said}\n\n")
        output.write(csparql.explain(made, query, drawing))


def _run_periodic(
    task: _Task,
    read: _Read,
    kind: type[PeriodicQuery],
    engine: EngineName,
    master: str,
    work: str | None,
    output: TextIO | ArrowFile,
    pace: Pace | None,
) -> None:
    """Run queries that answer at instants."""
    with tempfile.TemporaryDirectory(prefix="tpf-continuous-") as temporary:
        played = csparql.run_queries(
            task.queries,
            task.static,
            task.graphs,
            task.streams,
            output,
            declared=task.declared,
            engine=engine,
            lateness=task.lateness,
            skip_malformed=task.skip_malformed,
            master=master,
            work=work or temporary,
            pace=pace,
            kind=kind,
            read=read,
            warn=_warn,
        )
    for each in played.widened:
        typer.echo(each, err=True)
    _report(played.elements, played.malformed, played.late, "came after the evaluation")


def _run_cqels(
    task: _Task,
    policy: str,
    routing: Routing,
    kernel: Kernel,
    output: TextIO | ArrowFile,
    *,
    explain: bool,
) -> None:
    engine = Engine(
        semantics=SEMANTICS[policy], lateness=task.lateness, routing=routing, kernel=kernel
    )
    load(engine, task.static, task.graphs)
    engine.asks = True
    if not explain:
        asked = (each for text in task.queries for each in parse(text, engine.base).services)
        for reason in asked_once(engine.static, asked, SystemClock()):
            _warn(reason)
    columns = output if isinstance(output, ArrowFile) else None
    started = []
    for number, text in enumerate(task.queries):
        writer = output.take if isinstance(output, ArrowFile) else _Writer(output, number)
        registered = engine.register(text, writer)
        started.append(registered)
        if columns is not None:
            columns.begin(registered)
        elif explain and isinstance(writer, _Writer):
            writer.explain(registered)
    if explain:
        return
    check = partial(engine.check_running, started) if columns is None else columns.check
    files: _Files = [(engine.name(iri), path) for iri, path in task.streams]
    skipped = 0
    steps: Iterator[ElementError | None]
    if len(files) == 1 and holds_records(files[0][1]) and not task.skip_malformed:
        steps = _push_records(engine, *files[0])
    else:
        steps = _push_elements(engine, files)
    for item in steps:
        if isinstance(item, ElementError):
            if not task.skip_malformed:
                raise item
            skipped += 1
        check()
    engine.finish()
    check()
    if columns is not None:
        columns.finish()
    _report(engine.arrivals + engine.dropped, skipped, engine.dropped, "left out")


def _push_elements(engine: Engine, files: _Files) -> Iterator[ElementError | None]:
    """Play streams, element by element."""
    for _, stream, item in merged_streams(files, engine.name):
        if isinstance(item, ElementError):
            yield item
        else:
            engine.push(stream, item.triples, item.at)
            yield None


def _push_records(engine: Engine, stream: str, path: Path) -> Iterator[None]:
    """Play a stream that is alone, record batch by record batch."""
    with opened_records(path, engine.name) as (predicates, batches):
        feed = engine.record_feed(stream, predicates)
        for each in batches:
            feed.push_batch(*each)
            yield None


def _warn(reason: str) -> None:
    typer.echo(f"tpf-continuous: {reason}", err=True)


def _report(played: int, malformed: int, late: int, what: str) -> None:
    wrong = counted(malformed, "malformed line or record", "malformed lines or records")
    if malformed and not played:
        raise ElementError(f"nothing but {wrong}")
    if malformed or late:
        typer.echo(f"{wrong} left out, {counted(late, 'late element')} {what}", err=True)


class _Writer:
    """Writes the results of one query."""

    def __init__(self, output: TextIO, number: int) -> None:
        self._output = output
        self._number = number

    def explain(self, query: RegisteredQuery) -> None:
        """Write how it is evaluated, instead."""
        self._output.write(json.dumps(query.explain(), indent=2) + "\n")

    def __call__(self, emission: Emission) -> None:
        sign = "-" if emission.removed else ""
        for row in emission.rows:
            values = " ".join("UNDEF" if value is None else value for value in row)
            self._output.write(f"{sign}{emission.sequence}\t{self._number}\t{values}\n")
