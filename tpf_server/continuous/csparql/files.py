"""Replays: C-SPARQL queries over files, on either execution.

A stream is a file of elements (see `tpf_server.continuous.engine.elements`); answers are lines
``instant<TAB>query<TAB>values``: milliseconds since 1970, the number of the query from 0, and the
terms of a row in N-Triples, empty where unbound. ASK gives ``true`` or ``false`` at each instant.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from annotations.terms import Term
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.parser import parse
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.engine.elements.elements import merged_files, read_file
from tpf_server.continuous.engine.elements.named_graphs import graph_of
from tpf_server.continuous.engine.errors import ContinuousError, ElementError
from tpf_server.continuous.engine.static.static_data import StaticData
from tpf_spark.errors import SparkError
from tpf_spark.java import find_java
from tpf_spark.session import SparkSettings


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
    output: TextIO,
    *,
    skip_malformed: bool = False,
    kind: type[PeriodicQuery] = PeriodicQuery,
) -> Played:
    """Play streams through queries on the native engine, in the order of their timestamps.

    Raises:
        ContinuousError: a query is wrong, or (without `skip_malformed`) a line is.
    """
    count = [0]

    def writer(number: int) -> Callable[[PeriodicAnswer], None]:
        def write(answer: PeriodicAnswer) -> None:
            count[0] += 1
            output.writelines(answer_lines(number, answer))

        return write

    for number, query in enumerate(queries):
        engine.start(query, writer(number), name=f"query {number}", kind=kind)
    played = malformed = 0
    files = [(engine.name(iri), path) for iri, path in streams.items()]
    for _, iri, item in merged_files(files):
        if isinstance(item, ElementError):
            if not skip_malformed:
                raise item
            malformed += 1
            continue
        engine.push(iri, item.triples, item.at, graph_of(item.triples))
        played += 1
    engine.finish()
    widened = tuple(
        f"{each.name} was evaluated every {', '.join(map(str, each.instants.periods))} ms in the "
        f"end: {each.every}"
        for each in engine.queries.values()
        if each.instants != each.query.instants
    )
    return Played(played, malformed + engine.refused, engine.late, count[0], widened)


def play_on_spark(
    static: StaticData,
    queries: Sequence[str],
    streams: Mapping[str, Path],
    output: TextIO,
    work: Path,
    *,
    master: str = "local[*]",
    skip_malformed: bool = False,
    lateness: int = 0,
    predicates: Mapping[Term, frozenset[Term]] | None = None,
) -> Played:
    """Play streams through queries on Spark.

    Args:
        static: the static data.
        queries: C-SPARQL texts.
        streams: a file for each stream.
        output: where lines of answers go.
        work: where inputs, results and checkpoints are kept; the same one again goes on.
        master: of Spark.
        skip_malformed: whether malformed lines are left out.
        lateness: how late elements may be, in milliseconds.
        predicates: of streams that declare them.

    Raises:
        ContinuousError: a query is wrong or cannot be run on Spark, or (without `skip_malformed`)
            a line is wrong; or there is no Spark or no Java.
    """
    try:
        find_java(SparkSettings.from_environment(os.environ).java_home, os.environ)
    except SparkError as error:
        raise ContinuousError(f"{error}; or take the native engine") from None
    try:
        # Only here are Spark and Java needed.
        from tpf_server.continuous.csparql.spark.execution import SparkExecution, punctuate
        from tpf_server.continuous.csparql.spark.session import continuous_session
    except ImportError as error:
        raise ContinuousError(
            "PySpark is not installed: pip install 'live-linked-data[loaders]'; "
            "or take the native engine"
        ) from error

    played = malformed = late = count = 0
    last = 0
    directories: dict[str, Path] = {}
    for number, (iri, path) in enumerate(streams.items()):
        directory = work / f"stream{number}"
        directory.mkdir(parents=True, exist_ok=True)
        directories[iri] = directory
        new = work / f"stream{number}.new"
        with new.open("w", encoding="utf-8") as file:
            for at, _, item in read_file(iri, path):
                if isinstance(item, ElementError):
                    if not skip_malformed:
                        raise item
                    malformed += 1
                    continue
                played += 1
                last = max(last, at)
                file.writelines(f"{at}\t" + "\t".join(triple) + "\n" for triple in item.triples)
        new.replace(directory / "elements.tsv")
    ends = [parse(text).instants.first(last) for text in queries]
    for directory in directories.values():
        punctuate(directory, max(ends, default=last))
    with continuous_session(master, work / "spark") as session:
        session.sparkContext.setLogLevel("ERROR")
        for number, text in enumerate(queries):
            execution = SparkExecution(
                session,
                text,
                static,
                directories,
                work / f"query{number}",
                lateness=lateness,
                predicates=predicates,
            )
            late += execution.replay().late
            for answer in execution.results.read():
                if answer.at <= ends[number]:
                    count += 1
                    output.writelines(answer_lines(number, answer))
    return Played(played, malformed, late, count)
