"""The same query, data and streams on both executions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.csparql_reference import Solutions, solutions
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.spark.execution import SparkExecution, punctuate

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a Java that does not live long enough for its second compiler to pay."""

Element = tuple[str, int, tuple[str, str, str]]


def settings(session: Any) -> None:
    """Settings for small data."""
    for name, value in {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        # Compiling takes longer than these few rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }.items():
        session.conf.set(name, value)


def write(directory: Path, streams: Sequence[str], elements: Sequence[Element]) -> dict[str, Path]:
    """Write the elements as files, one directory for each stream."""
    result = {}
    for number, stream in enumerate(streams):
        path = directory / f"stream{number}"
        path.mkdir(parents=True, exist_ok=True)
        result[stream] = path
        lines = [
            f"{at}\t" + "\t".join(triple) + "\n" for name, at, triple in elements if name == stream
        ]
        (path / f"{len(list(path.iterdir())):03d}.tsv").write_text("".join(lines))
    return result


def native(
    engine: Engine, text: str, elements: Sequence[Element], until: int
) -> list[PeriodicAnswer]:
    """Return the answers of the native engine."""
    registered = engine.register_csparql(text)
    for stream, at, triple in elements:
        engine.push(stream, triple, at)
    engine.advance(until)
    return list(registered)


def on_spark(
    session: Any,
    engine: Engine,
    text: str,
    elements: Sequence[Element],
    until: int,
    directory: Path,
) -> list[PeriodicAnswer]:
    """Return the answers of Spark."""
    settings(session)
    streams = sorted({clause.stream[1:-1] for clause in _clauses(text)})
    paths = write(directory, streams, elements)
    for path in paths.values():
        punctuate(path, until)
    execution = SparkExecution(session, text, engine.static, paths, directory / "out")
    execution.replay()
    return list(execution.results.read())


def by_instant(answers: Sequence[PeriodicAnswer]) -> dict[int, Solutions]:
    """Group answers by instant, whatever the order of rows."""
    return {answer.at: solutions(answer.variables, answer.rows) for answer in answers}


def _clauses(text: str) -> Sequence[Any]:
    from tpf_server.continuous.languages.csparql.parser import parse

    return parse(text).streams
