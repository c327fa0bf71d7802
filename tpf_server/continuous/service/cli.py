"""Continuous queries over files."""

import contextlib
import heapq
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BufferedWriter, TextIOWrapper
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, TextIO, TypeAlias, TypeVar, cast

import pyarrow as pa
import typer

from annotations.clock import SystemClock
from annotations.terms import Term
from annotations.wording import counted, how_to_install
from tpf_client.commands import NamedOutput
from tpf_client.dataflow.operators.multiway_join import ROUTINGS, Routing
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.languages.cqels.parser import parse
from tpf_server.continuous.languages.csparql.parser import parse as parse_csparql
from tpf_server.continuous.languages.rspql.parser import parse as parse_rspql
from tpf_server.continuous.languages.rspql.parser import parse_report
from tpf_server.continuous.languages.rspql.rspql_query import (
    TICKS,
    WINDOW_CLOSE,
    RspqlQuery,
    TickPolicy,
)
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.elements.elements import Element, graph_of, read_file
from tpf_server.continuous.runtime.errors import (
    CallbackError,
    ContinuousError,
    ContinuousSyntaxError,
    ElementError,
    UnknownStreamError,
)
from tpf_server.continuous.runtime.instants.csparql_query import CsparqlQuery, PeriodicAnswer
from tpf_server.continuous.runtime.instants.drawing import drawn
from tpf_server.continuous.runtime.instants.instant_queries import InstantSettings
from tpf_server.continuous.runtime.instants.periodic_query import PeriodicQuery
from tpf_server.continuous.runtime.instants.rules import RULES, RULES_ON_SPARK
from tpf_server.continuous.runtime.plans.batch_report import AT_INSTANTS
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.records.record_reading import (
    columns_of_batch,
    elements_of_batch,
    opened_batches,
)
from tpf_server.continuous.runtime.running_query import RunningQuery
from tpf_server.continuous.runtime.semantics import (
    CQELS,
    KERNELS,
    SEMANTICS,
    EngineSettings,
    Kernel,
)
from tpf_server.continuous.runtime.static.static_data import StoreGraph
from tpf_server.continuous.runtime.windows.continuous_query import ContinuousQuery
from tpf_server.continuous.service.changing_graphs import asked_once
from tpf_server.continuous.service.hosting import CSPARQL, RSPQL, called, semantics_of
from tpf_server.errors import ServerError
from tpf_server.spark.folders import Folder, LocalFolder, folder_of, is_url
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import SparkSettings, java_for
from tpf_server.store.static.checking import is_store
from tpf_server.store.static.columnar import open_store

# Streams in files: lines of elements, or records as columns of Arrow (see `record_reading`).

# A file of Arrow that the results of one query are written to while it runs.

_PORTION: Final = 1_000
_ROWS: Final = 1 << 16
"""So many emissions, or about so many rows, are one record batch."""


class ArrowFile:
    """Write the emissions of one query as a stream of IPC; `take` is its callback."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._query: RunningQuery[Any] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._taken: list[Any] = []
        self._rows = self._written = 0

    def begin(self, query: RunningQuery[Any]) -> None:
        self._query = query
        self._writer = pa.ipc.new_stream(self._file, query.columns.schema)

    def take(self, emitted: Any) -> None:
        """Take an emission; write as soon as there are many."""
        self._taken.append(emitted)
        self._rows += len(emitted.rows)
        if len(self._taken) >= _PORTION or self._rows >= _ROWS:
            self._write()

    def check(self) -> None:
        """Check that the query runs; else write its earlier emissions, and raise its error."""
        if self._query is not None and self._query.error is not None:
            self._write()
            raise self._query.error

    def finish(self) -> None:
        """Write the rest, and raise the error of a stopped query."""
        self._write()
        self.check()
        if self._writer is not None:
            self._writer.close()

    def _write(self) -> None:
        if self._query is None or self._writer is None or not self._taken:
            return
        taken, self._taken, self._rows = self._taken, [], 0
        some: list[Emission] = []
        for number, each in enumerate(taken, self._written + 1):
            some.append(self._query.emission(each, number))
        self._written += len(taken)
        self._writer.write_batch(self._query.columns.batch(some))


# Static data of an engine from files: RDF, or stores that a loader wrote.


def load(engine: Engine, static: Iterable[Path], graphs: Iterable[tuple[str, Path]]) -> None:
    """Load static data into an engine.

    Args:
        engine: the engine.
        static: files of the default graph, or stores: with their named graphs.
        graphs: IRI and file of each named graph; of a store its default graph.
    """
    for name, path in [*((None, path) for path in static), *graphs]:
        if path.is_dir() and is_store(path):
            store = open_store(path)
            engine.attach(StoreGraph(store), name)
            for graph in store.graphs() if name is None else ():
                engine.attach(StoreGraph(store, graph), graph)
        else:
            engine.load(path, name)


_SUFFIX: Final = ".arrow"


def holds_records(path: Path) -> bool:
    """True if a file of a stream is one of Arrow."""
    return path.suffix == _SUFFIX


@contextmanager
def _record_batches(
    path: Path, name: Callable[[str], Term]
) -> Iterator[tuple[list[Term], Iterator[tuple[str, pa.RecordBatch]]]]:
    """Return the predicates of a file of records, and these, batch by batch.

    An `ElementError` names the file and, after the first one, the batch, in which records are
    counted.
    """
    with (
        pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b"") as file,
        opened_batches(file, str(path), name) as opened,
    ):
        yield opened


_Item = tuple[int, str, Element | ElementError]


def read_stream(stream: str, path: Path, name: Callable[[str], Term]) -> Iterator[_Item]:
    """Return the elements of a file, each with its timestamp and its stream; see `read_file`.

    A malformed record is an error in its place; one of a wrong type is raised.
    """
    if not holds_records(path):
        yield from read_file(stream, path)
        return
    before = last = 0
    with _record_batches(path, name) as (predicates, batches):
        for name_in_errors, batch in batches:
            for row, item in enumerate(elements_of_batch(batch, predicates, before), 1):
                if isinstance(item, ElementError):
                    yield last, stream, ElementError(f"{name_in_errors}: record {row}: {item}")
                else:
                    last = item.at
                    yield last, stream, item
            before += batch.num_rows


_Format: TypeAlias = Literal["text", "arrow"]
ReplayOutput = TextIO | ArrowFile
_Files = Sequence[tuple[str, Path]]
_POLICIES = (*SEMANTICS, CSPARQL, RSPQL)


_SETTINGS: Final = EngineSettings()
_INSTANTS: Final = InstantSettings()
_Read = Callable[[str, str], ContinuousQuery | CsparqlQuery]
"""Parses a text, with what its IRIs are relative to."""


@dataclass(frozen=True, slots=True)
class StreamReplay:
    """Texts of queries, and the files that they read.

    Args:
        streams: IRI and file of each stream.
        static: files or stores of the default graph.
        graphs: IRI and file (or store) of each named graph.
        declared: the predicates of streams that have no others.
        lateness: in milliseconds.
    """

    queries: Sequence[str]
    streams: _Files = ()
    static: Sequence[Path] = ()
    graphs: _Files = ()
    declared: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lateness: int = 0
    skip_malformed: bool = False

    def engine(
        self, settings: EngineSettings = _SETTINGS, instants: InstantSettings = _INSTANTS
    ) -> Engine:
        engine = Engine(settings, instants=instants)
        load(engine, self.static, self.graphs)
        for name, predicates in self.declared.items():
            engine.declare(name, predicates)
        return engine


@dataclass(frozen=True, slots=True)
class _Played:
    elements: int
    malformed: int
    late: int
    answers: int


# Lines of CQELS-QL: ``number of the arrival<TAB>query<TAB>values``, these with spaces between them;
# of C-SPARQL and RSP-QL: ``instant<TAB>query<TAB>values``, with tabulators between them, empty
# where unbound. ASK gives ``true`` or ``false`` at each instant.


def run_native(
    replay: StreamReplay, engine: Engine, output: ReplayOutput, read: _Read = parse_csparql
) -> _Played:
    """Play streams through queries on the native engine."""
    queries = [read(text, engine.base) for text in replay.queries]
    _ask_services(engine, queries)
    started: list[RegisteredQuery | PeriodicQuery] = []
    for number, query in enumerate(queries):
        if isinstance(query, CsparqlQuery):
            lines = _writer(output, partial(_answer_lines, number))
            started.append(engine.start_at_instants(query, lines, name=f"query {number}"))
        else:
            started.append(engine.start(query, _writer(output, partial(_emission_lines, number))))
    files = [(engine.name(iri), path) for iri, path in replay.streams]
    given = {*(name for name, _ in files), *(each.stream for each in started)}
    for number, each in enumerate(started):
        for stream in sorted(each.reads - given):
            raise UnknownStreamError(f"query {number} reads {stream}, which no --stream names")
    # Answers at instants need elements, and errors that name the record.
    columns = len(files) == 1 and not any(isinstance(each, CsparqlQuery) for each in queries)
    if columns and holds_records(files[0][1]) and not replay.skip_malformed:
        steps = _pushed_records(engine, *files[0])
    else:
        steps = _pushed(engine, files)
    played, malformed = _play(engine, started, replay, steps, output)
    late, answers = engine.dropped + engine.late, sum(each.emitted for each in started)
    return _Played(played, malformed, late, answers)


def _emission_lines(number: int, emission: Emission) -> Iterator[str]:
    sign = "-" if emission.removed else ""
    for row in emission.rows:
        values = " ".join("UNDEF" if value is None else value for value in row)
        yield f"{sign}{emission.sequence}\t{number}\t{values}\n"


def _answer_lines(number: int, answer: PeriodicAnswer) -> Iterator[str]:
    if answer.form == "ASK":
        yield f"{answer.at}\t{number}\t{'true' if answer.boolean else 'false'}\n"
        return
    for row in answer.rows:
        values = "\t".join("" if each is None else str(each) for each in row)
        yield f"{answer.at}\t{number}\t{values}\n"


def _run_on_spark(
    replay: StreamReplay, engine: Engine, output: TextIO, work: str, master: str
) -> _Played:
    """Play streams through queries in C-SPARQL on Spark.

    `work` is a directory or URL of inputs, results and checkpoints; the same one again resumes.
    """
    try:
        java_for(SparkSettings.from_environment(os.environ, master=master), os.environ)
    except SparkError as error:
        raise ContinuousError(f"{error}; or take the native engine") from None
    try:
        # Only here are Spark and Java needed.
        from tpf_server.continuous.spark.execution import (
            SparkExecution,
            continuous_session,
            punctuate,
        )
    except ImportError as error:
        raise ContinuousError(
            f"PySpark is not installed: {how_to_install('spark')}; or take the native engine"
        ) from error
    counts: Counter[str] = Counter()
    streams = {str(engine.name(iri))[1:-1]: path for iri, path in replay.streams}

    def lines(iri: str, path: Path) -> Iterator[str]:
        for at, _, item in _declared_elements(engine, iri, path):
            if isinstance(item, ElementError):
                if not replay.skip_malformed:
                    raise item
                counts["malformed"] += 1
                continue
            counts["elements"] += 1
            counts["last"] = max(counts.get("last", at), at)
            for triple in item.triples:
                yield f"{at}\t" + "\t".join(triple) + "\n"

    def copy(into: Folder) -> tuple[dict[str, Path | str], list[int]]:
        folders = [into.inner(f"stream{number}") for number, _ in enumerate(streams)]
        for folder, (iri, path) in zip(folders, streams.items(), strict=True):
            folder.write("elements.tsv", lines(iri, path))
        ends = [parse_csparql(text).instants.first(counts["last"]) for text in replay.queries]
        for folder in folders:
            punctuate(folder, max(ends, default=counts["last"]))
        return {iri: folder.url for iri, folder in zip(streams, folders, strict=True)}, ends

    with contextlib.ExitStack() as stack:
        if is_url(work):
            here = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tpf-spark-")))
            session = stack.enter_context(continuous_session(master, here))
            places, ends = copy(folder_of(work, session))
        else:
            # Malformed input is reported before Spark starts.
            places, ends = copy(LocalFolder(Path(work)))
            session = stack.enter_context(continuous_session(master, Path(work) / "spark"))
        session.sparkContext.setLogLevel("ERROR")
        for number, text in enumerate(replay.queries):
            execution = SparkExecution(
                session,
                text,
                engine.static,
                places,
                f"{work}/query{number}",
                lateness=replay.lateness,
                predicates=engine.instants.declarations.declared,
            )
            counts["late"] += execution.replay().late
            for answer in execution.results.read():
                if answer.at <= ends[number]:
                    counts["answers"] += 1
                    output.writelines(_answer_lines(number, answer))
    return _Played(counts["elements"], counts["malformed"], counts["late"], counts["answers"])


# What all replays have in common.

EmittedT = TypeVar("EmittedT")


def _ask_services(engine: Engine, queries: Iterable[ContinuousQuery | CsparqlQuery]) -> None:
    engine.asks = True
    clauses = (clause for query in queries for clause in query.services)
    for reason in asked_once(engine.static, clauses, SystemClock()):
        typer.echo(f"tpf-continuous: {reason}", err=True)


def _writer(
    output: ReplayOutput, lines: Callable[[EmittedT], Iterator[str]]
) -> Callable[[EmittedT], None]:
    if isinstance(output, ArrowFile):
        return output.take
    return lambda emitted: output.writelines(lines(emitted))


def _declared_elements(engine: Engine, stream: str, path: Path) -> Iterator[_Item]:
    """Read a stream; an element with an undeclared predicate is an error."""
    declarations, name = engine.instants.declarations, engine.name(stream)
    if name not in declarations.declared:
        yield from read_stream(stream, path, engine.name)
        return
    unit = "record" if holds_records(path) else "line"
    for at, _, item in read_stream(stream, path, engine.name):
        try:
            if isinstance(item, Element):
                declarations.check(name, (predicate for _, predicate, _ in item.triples))
        except ElementError as error:
            yield at, stream, ElementError(f"{path}: {ElementError(str(error), item.line, unit)}")
        else:
            yield at, stream, item


def _pushed(engine: Engine, files: _Files) -> Iterator[ElementError | None]:
    """Push elements in the order of their timestamps; yield an error for each malformed one."""
    items = (_declared_elements(engine, *each) for each in files)
    for _, stream, item in heapq.merge(*items, key=itemgetter(0)):
        if isinstance(item, ElementError):
            yield item
        else:
            engine.push(stream, item.triples, item.at, graph_of(item.triples))
            yield None


def _pushed_records(engine: Engine, stream: str, path: Path) -> Iterator[ElementError | None]:
    with _record_batches(path, engine.name) as (predicates, batches):
        feed = engine.record_feed(stream, predicates)
        for _, batch in batches:
            feed.push_batch(*columns_of_batch(batch))
            yield None


def _play(
    engine: Engine,
    started: Sequence[RunningQuery[Any]],
    replay: StreamReplay,
    steps: Iterable[ElementError | None],
    output: ReplayOutput,
) -> tuple[int, int]:
    check: Callable[[], None] = partial(cast("Any", engine.check_running), started)
    if isinstance(output, ArrowFile):
        output.begin(*started)
        check = output.check
    played = malformed = 0
    for item in steps:
        if item is None:
            played += 1
        elif replay.skip_malformed:
            malformed += 1
        else:
            raise item
        check()
    engine.finish()
    check()
    if isinstance(output, ArrowFile):
        output.finish()
    return played, malformed


# The command.

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__)


@app.callback()
def _group() -> None:
    """Continuous queries over files."""


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
        typer.Option(
            help="IRI=PREDICATE: the stream IRI of C-SPARQL has only the given predicates"
        ),
    ] = None,
    semantics: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(_POLICIES)}; default: detected from the queries"),
    ] = None,
    engine: Annotated[
        Literal["native", "spark"], typer.Option(help="spark: for C-SPARQL only")
    ] = "native",
    report: Annotated[
        str, typer.Option(help="report policy of RSP-QL queries that state none")
    ] = str(WINDOW_CLOSE),
    tick: Annotated[
        str, typer.Option(help=f"tick of RSP-QL queries that state none: {', '.join(TICKS)}")
    ] = TICKS[0],
    routing: Annotated[
        str, typer.Option(help=f"of joins in CQELS-QL: {', '.join(ROUTINGS)}")
    ] = "reviewed",
    kernel: Annotated[
        str,
        typer.Option(help=f"kernel for batches of records in CQELS-QL: {', '.join(KERNELS)}"),
    ] = "compiled",
    lateness: Annotated[
        int, typer.Option(min=0, help="milliseconds that an element may be late")
    ] = 0,
    output: Annotated[Path | None, typer.Option(help="file to write to")] = None,
    format: Annotated[  # noqa: A002 (the name of the option)
        _Format, typer.Option(help="of results; arrow: a stream of Arrow, of one query")
    ] = "text",
    skip_malformed: Annotated[
        bool, typer.Option(help="leave malformed lines or records out")
    ] = False,
    explain: Annotated[bool, typer.Option(help="show how queries are evaluated, and stop")] = False,
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
    in milliseconds since 1970), the number of the query and the values, separated by tabulators;
    those of CQELS-QL by blanks.
    """
    if format == "arrow" and (len(queries) > 1 or engine == "spark" or explain):
        raise typer.BadParameter("--format arrow is for one query on the native engine")
    with _errors_in_a_line(), _opened(output, format) as out:
        replay = StreamReplay(
            [_text(each) for each in queries],
            [_pair(each) for each in stream or []],
            static or [],
            [_pair(each) for each in graph or []],
            _declared(declare or []),
            lateness,
            skip_malformed,
        )
        policy = semantics or _language_of(replay.queries)
        _check(policy, _POLICIES)
        if engine == "spark" and policy != CSPARQL:
            raise typer.BadParameter("only C-SPARQL runs on Spark")
        settings = EngineSettings(
            semantics=SEMANTICS.get(policy, CQELS),
            lateness=lateness,
            routing=cast(Routing, _check(routing, ROUTINGS)),
            kernel=cast(Kernel, _check(kernel, KERNELS)),
        )
        tick_policy = cast(TickPolicy, _check(tick, TICKS))
        late, read = "left out", cast("_Read", parse)
        if policy == CSPARQL:
            late, read = "came after the evaluation", parse_csparql
        elif policy == RSPQL:
            late = "came after the evaluation"
            read = partial(parse_rspql, report=parse_report(report), tick=tick_policy)
        instants = InstantSettings(rules=RULES_ON_SPARK if engine == "spark" else RULES)
        native = replay.engine(settings, instants)
        if explain:
            assert not isinstance(out, ArrowFile)
            _explain(replay, native, read, out)
            return
        if engine == "native":
            played = run_native(replay, native, out, read)
        else:
            assert not isinstance(out, ArrowFile)
            with tempfile.TemporaryDirectory(prefix="tpf-continuous-") as temporary:
                played = _run_on_spark(replay, native, out, work or temporary, master)
        _report(played, late)


def _check(value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(allowed)}")
    return value


@contextmanager
def _errors_in_a_line() -> Iterator[None]:
    try:
        yield
    except ContinuousSyntaxError as error:
        typer.echo(f"tpf-continuous: {error}\n{error.pointed}", err=True)
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
        yield sys.stdout if kind == "text" else ArrowFile(sys.stdout.buffer)
        return
    with BufferedWriter(NamedOutput(output, str(output))) as file:
        if kind == "arrow":
            yield ArrowFile(file)
        else:
            with TextIOWrapper(file, encoding="utf-8") as lines:
                yield lines


def _text(query: str) -> str:
    if "{" in query or not query.strip():
        return query
    try:
        return Path(query).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{query}: {error}") from None


def _pair(text: str) -> tuple[str, Path]:
    iri, equals, path = text.rpartition("=")
    if not equals or not iri:
        raise typer.BadParameter(f"expected IRI=FILE, not {text!r}")
    return iri, Path(path)


def _declared(pairs: Sequence[str]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for each in pairs:
        iri, equals, predicate = each.partition("=")
        if not equals or not iri or not predicate:
            raise typer.BadParameter(f"expected IRI=PREDICATE, not {each!r}")
        result.setdefault(iri, []).append(predicate)
    return result


def _language_of(queries: Sequence[str]) -> str:
    result = {semantics_of(text) for text in queries}
    if len(result) > 1:
        written = " and some ".join(
            called(each) for each in (None, CSPARQL, RSPQL) if each in result
        )
        raise typer.BadParameter(f"some of the queries are {written}")
    return result.pop() or CQELS.name


def _explain(replay: StreamReplay, engine: Engine, read: _Read, output: TextIO) -> None:
    """Write how queries are evaluated: the plans of CQELS-QL, the operators of the others."""
    engine.asks = True
    for text in replay.queries:
        query = read(text, engine.base)
        if isinstance(query, CsparqlQuery):
            if isinstance(query, RspqlQuery):
                output.write(f"{query.said}\n\n")
            written, rewritten = map(drawn, engine.explain(query))
            output.write(f"Operators as written\n\n{written}\n")
            output.write(f"Operators as they run\n\n{rewritten}\n")
            output.write(f"Compiled: nothing; {AT_INSTANTS}.\n")
        else:
            state = engine.start(query, lambda _: None).explain()
            output.write(json.dumps(state, indent=2) + "\n")


def _report(played: _Played, what: str) -> None:
    wrong = counted(played.malformed, "malformed line or record", "malformed lines or records")
    if played.malformed and not played.elements:
        raise ElementError(f"nothing but {wrong}")
    if played.malformed or played.late:
        late = counted(played.late, "late element")
        typer.echo(f"{wrong} left out, {late} {what}", err=True)
