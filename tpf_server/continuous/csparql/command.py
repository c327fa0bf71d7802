"""What ``tpf-continuous run --semantics csparql`` does."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TextIO

from annotations.clock import SystemClock
from annotations.terms import Term
from annotations.wording import how_to_install
from tpf_server.continuous.changing_graphs import asked_once
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery, PeriodicAnswer
from tpf_server.continuous.csparql.drawing import (
    as_graphviz,
    as_mermaid,
    as_text,
    denotational_graph,
)
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.parser import parse
from tpf_server.continuous.csparql.periodic_query import Pace, PeriodicQuery
from tpf_server.continuous.engine.elements.elements import graph_of
from tpf_server.continuous.engine.errors import ContinuousError, ElementError
from tpf_server.continuous.engine.files import (
    ArrowFile,
    absolute_name,
    load,
    merged_streams,
    read_stream,
)
from tpf_server.continuous.engine.plans.batch_report import AT_INSTANTS
from tpf_server.continuous.engine.static.static_data import StaticData
from tpf_server.spark.folders import Folder, LocalFolder, folder_of, is_url
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import SparkSettings, java_for

# Replays: C-SPARQL queries over files, on either execution.
#
# A stream is a file of elements (see `record_files`); answers are lines
# ``instant<TAB>query<TAB>values``: milliseconds since 1970, the number of the query from 0, and the
# terms of a row in N-Triples, empty where unbound. ASK gives ``true`` or ``false`` at each
# instant.


@dataclass(frozen=True, slots=True)
class Played:
    """What a replay did.

    Args:
        elements: how many were played.
        malformed: how many lines were left out.
        late: how many elements came too late for an evaluation.
        answers: how many there were.
        widened: which queries ended with steps that had grown under load, and why.
    """

    elements: int
    malformed: int
    late: int
    answers: int
    widened: tuple[str, ...] = ()


def answer_lines(number: int, answer: PeriodicAnswer) -> Iterator[str]:
    """An answer as lines of output."""
    if answer.form == "ASK":
        yield f"{answer.at}\t{number}\t{'true' if answer.boolean else 'false'}\n"
        return
    for row in answer.rows:
        values = "\t".join("" if each is None else str(each) for each in row)
        yield f"{answer.at}\t{number}\t{values}\n"


def play(
    engine: CsparqlEngine,
    queries: Sequence[CsparqlQuery],
    streams: Mapping[str, Path],
    output: TextIO | ArrowFile,
    *,
    skip_malformed: bool = False,
    kind: type[PeriodicQuery] = PeriodicQuery,
) -> Played:
    """Play streams through queries on the native engine, in the order of their timestamps.

    Raises:
        ContinuousError: a query is wrong or was stopped, or (without `skip_malformed`) a line or
            record is wrong.
    """
    columns = output if isinstance(output, ArrowFile) else None

    def writer(number: int) -> Callable[[PeriodicAnswer], None]:
        if isinstance(output, ArrowFile):
            return output.take
        return lambda answer: output.writelines(answer_lines(number, answer))

    started = [
        engine.start(query, writer(number), name=f"query {number}", kind=kind)
        for number, query in enumerate(queries)
    ]
    if columns is not None:
        columns.begin(*started)
    check = partial(engine.check_running, started) if columns is None else columns.check
    played = malformed = 0
    files = [(engine.name(iri), path) for iri, path in streams.items()]
    for _, iri, item in merged_streams(files, engine.name):
        if isinstance(item, ElementError):
            if not skip_malformed:
                raise item
            malformed += 1
            continue
        engine.push(iri, item.triples, item.at, graph_of(item.triples))
        played += 1
        check()
    engine.finish()
    check()
    if columns is not None:
        columns.finish()
    answers = sum(each.emitted for each in started)
    widened = tuple(
        f"{each.name} was evaluated every {', '.join(map(str, each.instants.periods))} ms in the "
        f"end: {each.every}"
        for each in engine.queries.values()
        if each.instants != each.query.instants
    )
    return Played(played, malformed + engine.refused, engine.late, answers, widened)


class _Copied:
    """Streams in the files that Spark reads."""

    def __init__(self, skip_malformed: bool, name: Callable[[str], Term]) -> None:
        self.elements = 0
        self.malformed = 0
        self.last = 0
        self._skip_malformed = skip_malformed
        self._name = name

    def lines(self, iri: str, path: Path) -> Iterator[str]:
        """The lines of a stream.

        Raises:
            ElementError: one is malformed, and that is not to be passed over.
        """
        for at, _, item in read_stream(iri, path, self._name):
            if isinstance(item, ElementError):
                if not self._skip_malformed:
                    raise item
                self.malformed += 1
                continue
            self.elements += 1
            self.last = max(self.last, at)
            for triple in item.triples:
                yield f"{at}\t" + "\t".join(triple) + "\n"


def play_on_spark(
    static: StaticData,
    queries: Sequence[str],
    streams: Mapping[str, Path],
    output: TextIO,
    work: Path | str,
    *,
    master: str = "local[*]",
    skip_malformed: bool = False,
    lateness: int = 0,
    predicates: Mapping[Term, frozenset[Term]] | None = None,
    name: Callable[[str], Term] = absolute_name,
) -> Played:
    """Play streams through queries on Spark.

    Raises:
        ContinuousError: a query is wrong or cannot be run on Spark, or (without `skip_malformed`)
            a line or record is wrong; or there is no Spark or no Java, or it ended.
    """
    try:
        java_for(SparkSettings.from_environment(os.environ, master=master), os.environ)
    except SparkError as error:
        raise ContinuousError(f"{error}; or take the native engine") from None
    try:
        # Only here are Spark and Java needed.
        from tpf_server.continuous.csparql.spark.execution import SparkExecution, punctuate
        from tpf_server.continuous.csparql.spark.session import continuous_session
    except ImportError as error:
        raise ContinuousError(
            f"PySpark is not installed: {how_to_install('loaders')}; or take the native engine"
        ) from error

    copied = _Copied(skip_malformed, name)

    def copy(into: Folder) -> tuple[dict[str, Path | str], list[int]]:
        """Write the streams; where they are, and until when each query is answered."""
        folders = [into.inner(f"stream{number}") for number, _ in enumerate(streams)]
        for folder, (iri, path) in zip(folders, streams.items(), strict=True):
            folder.write("elements.tsv", copied.lines(iri, path))
        ends = [parse(text).instants.first(copied.last) for text in queries]
        for folder in folders:
            punctuate(folder, max(ends, default=copied.last))
        return {iri: folder.url for iri, folder in zip(streams, folders, strict=True)}, ends

    late = count = 0
    with contextlib.ExitStack() as stack:
        if is_url(work):
            here = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tpf-spark-")))
            session = stack.enter_context(continuous_session(master, here))
            places, ends = copy(folder_of(work, session))
        else:
            # What is malformed is found before Spark starts.
            places, ends = copy(LocalFolder(Path(work)))
            session = stack.enter_context(continuous_session(master, Path(work) / "spark"))
        session.sparkContext.setLogLevel("ERROR")
        for number, text in enumerate(queries):
            execution = SparkExecution(
                session,
                text,
                static,
                places,
                f"{work}/query{number}",
                lateness=lateness,
                predicates=predicates,
            )
            late += execution.replay().late
            for answer in execution.results.read():
                if answer.at <= ends[number]:
                    count += 1
                    output.writelines(answer_lines(number, answer))
    return Played(copied.elements, copied.malformed, late, count)


class EngineName(StrEnum):
    """What executes a query."""

    NATIVE = "native"
    SPARK = "spark"


class Drawing(StrEnum):
    """How graphs are shown."""

    TEXT = "text"
    MERMAID = "mermaid"
    GRAPHVIZ = "graphviz"


def explain(
    engine: CsparqlEngine, query: str | CsparqlQuery, drawing: Drawing = Drawing.TEXT
) -> str:
    """The operator graph of a query as it is written and as it runs, and its denotational graph.

    What of it is compiled is said, too: nothing.

    Raises:
        ContinuousQueryError: the text is no query.
    """
    initial, final = engine.explain(query)
    compiled = f"Compiled: nothing; {AT_INSTANTS}."
    denotation = denotational_graph(final)
    titles = ("Operators as written", "Operators as they run", "Static and streaming")
    match drawing:
        case Drawing.MERMAID:
            bodies = (as_mermaid(initial), as_mermaid(final), denotation.as_mermaid())
            pieces = [
                f"### {t}\n\n```mermaid\n{b}```\n" for t, b in zip(titles, bodies, strict=True)
            ]
        case Drawing.GRAPHVIZ:
            bodies = (as_graphviz(initial), as_graphviz(final), denotation.as_graphviz())
            pieces = [f"// {t}\n{b}" for t, b in zip(titles, bodies, strict=True)]
        case Drawing.TEXT:
            bodies = (as_text(initial), as_text(final), denotation.as_text())
            pieces = [f"{t}\n\n{b}" for t, b in zip(titles, bodies, strict=True)]
    sign = "# " if drawing is Drawing.GRAPHVIZ else ""
    return "\n".join([*pieces, f"{sign}{compiled}\n"])


def run_queries(
    queries: Sequence[str],
    static: Sequence[Path],
    graphs: Sequence[tuple[str, Path]],
    streams: Sequence[tuple[str, Path]],
    output: TextIO | ArrowFile,
    *,
    declared: Mapping[str, Sequence[str]] | None = None,
    engine: EngineName = EngineName.NATIVE,
    lateness: int = 0,
    skip_malformed: bool = False,
    master: str = "local[*]",
    work: Path | str | None = None,
    pace: Pace | None = None,
    warn: Callable[[str], None] = print,
    kind: type[PeriodicQuery] = PeriodicQuery,
    read: Callable[[str, str], CsparqlQuery] = parse,
) -> Played:
    """Play streams through C-SPARQL queries; answers go to `output`.

    Raises:
        ContinuousError: a query or a line is wrong.
    """
    made = CsparqlEngine(lateness=lateness, strict=not skip_malformed, pace=pace)
    load(made, static, graphs)
    for stream, predicates in (declared or {}).items():
        made.declare(stream, predicates)
    named = {str(made.name(iri))[1:-1]: path for iri, path in streams}
    if engine is EngineName.NATIVE:
        made.asks = True
        parsed = [read(text, made.base) for text in queries]
        asked = (each for query in parsed for each in query.services)
        for reason in asked_once(made.static, asked, SystemClock()):
            warn(reason)
        return play(made, parsed, named, output, skip_malformed=skip_malformed, kind=kind)
    if work is None or isinstance(output, ArrowFile):
        raise ValueError("Spark needs a directory to work in, and writes lines")
    return play_on_spark(
        made.static,
        queries,
        named,
        output,
        work,
        master=master,
        skip_malformed=skip_malformed,
        lateness=lateness,
        predicates=made.learning.declared,
        name=made.name,
    )
