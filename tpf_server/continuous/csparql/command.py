"""What ``tpf-continuous run --semantics csparql`` does."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from annotations.clock import SystemClock
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.denotation import denotational_graph
from tpf_server.continuous.csparql.drawing import as_graphviz, as_mermaid, as_text
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.files import Played, play, play_on_spark
from tpf_server.continuous.csparql.pace import Pace
from tpf_server.continuous.csparql.parser import parse
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.engine.arrow_file import ArrowFile
from tpf_server.continuous.engine.plans.batch_report import AT_INSTANTS
from tpf_server.continuous.engine.static.static_files import load
from tpf_server.continuous.remote_services import asked_once


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

    Args:
        engine: has the static data, which decide what is static.
        query: C-SPARQL, or what was parsed.
        drawing: as text, as Markdown with Mermaid flowcharts, or as three graphs in DOT.

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

    Args:
        queries: texts.
        static: files or stores of the default graph.
        graphs: IRI and file (or store) of each named graph.
        streams: IRI and file of each stream.
        output: for lines, see `tpf_server.continuous.csparql.files`, or, natively and of one query,
            a file of Arrow.
        declared: the predicates of streams that have no others.
        engine: what executes them.
        lateness: how late elements may be, in milliseconds.
        skip_malformed: whether malformed lines or records are left out.
        master: of Spark.
        work: for Spark: where results and checkpoints are kept, a directory or its URL; needed
            there.
        pace: widens steps of queries under load, natively.
        warn: is told of services that do not answer.
        kind: what a query is that runs natively.
        read: reads a query, in whatever language; also given the base of relative IRIs.

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
