"""What ``tpf-continuous run --semantics csparql`` does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TextIO

from tpf_server.cqels.static_data import StoreGraph
from tpf_server.csparql.denotation import denotational_graph
from tpf_server.csparql.drawing import as_mermaid, as_text
from tpf_server.csparql.engine import CsparqlEngine, term
from tpf_server.csparql.files import Played, play, play_on_spark
from tpf_server.store.opening import is_store, open_store

EngineName = Literal["native", "spark"]


def load(engine: CsparqlEngine, static: Sequence[Path], graphs: Sequence[tuple[str, Path]]) -> None:
    """Give an engine its static data: RDF files, or stores that a loader wrote.

    Raises:
        ContinuousError: a file cannot be read.
        StoreFormatError: a store cannot be opened.
    """
    for name, path in [*((None, path) for path in static), *graphs]:
        if path.is_dir() and is_store(path):
            engine.attach(StoreGraph(open_store(path)), name)
        else:
            engine.load(path, name)


def explain(engine: CsparqlEngine, text: str, *, mermaid: bool = False) -> str:
    """The operator graph of a query as it is written and as it runs, and its denotational graph.

    Args:
        engine: has the static data, which decide what is static.
        text: C-SPARQL.
        mermaid: whether they are drawn as Mermaid flowcharts.

    Raises:
        ContinuousQueryError: the text is no query.
    """
    initial, final = engine.explain(text)
    draw = as_mermaid if mermaid else as_text
    denotation = denotational_graph(final)
    parts = {
        "Operators as written": draw(initial),
        "Operators as they run": draw(final),
        "Static and streaming": denotation.as_mermaid() if mermaid else denotation.as_text(),
    }
    if mermaid:
        return "\n".join(f"### {title}\n\n```mermaid\n{body}```\n" for title, body in parts.items())
    return "\n".join(f"{title}\n\n{body}" for title, body in parts.items())


def run(
    queries: Sequence[str],
    static: Sequence[Path],
    graphs: Sequence[tuple[str, Path]],
    streams: Sequence[tuple[str, Path]],
    output: TextIO,
    *,
    engine: EngineName = "native",
    lateness: int = 0,
    skip_malformed: bool = False,
    master: str = "local[*]",
    work: Path | None = None,
) -> Played:
    """Play streams through C-SPARQL queries; lines of answers go to `output`.

    Args:
        queries: texts.
        static: files or stores of the default graph.
        graphs: IRI and file (or store) of each named graph.
        streams: IRI and file of each stream.
        output: see `tpf_server.csparql.files`.
        engine: ``native`` or ``spark``.
        lateness: how late elements may be, in milliseconds.
        skip_malformed: whether malformed lines are left out.
        master: of Spark.
        work: for Spark: where results and checkpoints are kept; needed there.

    Raises:
        ContinuousError: a query or a line is wrong.
    """
    made = CsparqlEngine(lateness=lateness, strict=not skip_malformed)
    load(made, static, graphs)
    named = {str(term(iri))[1:-1]: path for iri, path in streams}
    if engine == "native":
        return play(made, queries, named, output, skip_malformed=skip_malformed)
    if work is None:
        raise ValueError("Spark needs a directory to work in")
    return play_on_spark(
        made.static,
        queries,
        named,
        output,
        work,
        master=master,
        skip_malformed=skip_malformed,
        lateness=lateness,
    )
