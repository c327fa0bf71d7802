"""A query on Spark over files: batches, answers as files, and how a run resumes.

A batch is a set of new files. Structured Streaming would have a row for each instant of an element,
a plan that is fixed, and no joins after aggregations over other keys, anti-joins, order or limit.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from annotations.terms import QuadPattern, Term, Variable
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Pattern
from tpf_client.sparql.rewrite.visitor import exists_in, patterns_in
from tpf_client.sparql.scopes import in_scope
from tpf_client.sparql.tokens import tokenize
from tpf_server.continuous.languages.csparql.parser import parse
from tpf_server.continuous.runtime.clock import ENDLESS, Waits
from tpf_server.continuous.runtime.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.builder import has_static
from tpf_server.continuous.runtime.instants.csparql_query import (
    CsparqlQuery,
    LogicalWindow,
    PeriodicAnswer,
)
from tpf_server.continuous.runtime.instants.operator_graph import (
    Knowledge,
    OperatorGraph,
    operator_graph,
)
from tpf_server.continuous.runtime.instants.rules import RULES_ON_SPARK, Rule, optimised
from tpf_server.continuous.runtime.semantics import BASE, says_now
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.continuous.spark.batches import (
    MicroBatches,
    Progress,
    SharedPlan,
    WindowQuery,
)
from tpf_server.spark.folders import Folder, LocalFolder, folder_of
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import SparkSettings, java_answers, spark_session


@contextlib.contextmanager
def continuous_session(master: str, work: Path, *, partitions: int = 2) -> Iterator[SparkSession]:
    """Start a Spark session for the block; the environment has further settings."""
    settings = SparkSettings.from_environment(os.environ, master=master, local_dir=str(work))
    options = {
        "spark.sql.shuffle.partitions": str(partitions),
        # Plans are small and many: adapting each of them costs more than it brings.
        "spark.sql.adaptive.enabled": "false",
        # A job to list files takes longer than to list those of a window.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        # Tasks of 128 MB would leave cores without work; small files share one.
        "spark.sql.files.maxPartitionBytes": "16m",
        "spark.sql.files.openCostInBytes": "1m",
    }
    try:
        with spark_session(settings, name="tpf-continuous", options=options) as session:
            yield session
    except SparkError as error:
        raise ContinuousError(str(error)) from error


@contextlib.contextmanager
def asking_java() -> Iterator[None]:
    """Raise a `ContinuousError` where Java has ended or a job fails."""
    try:
        with java_answers():
            yield
    except SparkError as error:
        raise ContinuousError(str(error)) from error


class SparkRun:
    """Batches in a thread, at an interval in seconds, until it is stopped."""

    def __init__(self, step: Callable[[], bool], batches: MicroBatches, every: float) -> None:
        self._step = step
        self._batches = batches
        self._every = every
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="Spark run", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        try:
            with asking_java(), contextlib.closing(self._batches):
                while not self._stopping.is_set():
                    if not self._step():
                        self._stopping.wait(self._every)
        except BaseException as error:  # noqa: BLE001 (raised where it is awaited)
            self._error = error

    @property
    def active(self) -> bool:
        return self._thread.is_alive()

    def progress(self) -> Progress:
        return self._batches.progress

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most `seconds`; true if it has ended.

        Raises:
            ContinuousError: it failed; earlier answers are kept.
        """
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop after the present batch; a later run in the same directory resumes."""
        self._stopping.set()
        self._thread.join()


# AnswerRows as files: for each micro-batch one, that is there as a whole or not at all.
#
# ``results/<batch>.ndjson`` has a line for each instant that the micro-batch closed, answers of
# nothing included: ``{"at": …, "form": …, "variables": […], "rows": [[…], …]}``. When Spark
# repeats a micro-batch after a failure the file is written again with the same content, so nothing
# is lost and nothing is there twice. For a registered stream ``elements/<batch>.tsv`` has its
# triples with their timestamps and, at its end, the timestamp up to which everything has come, so
# that another query can read it as its stream.


class ResultFiles:
    """Files of the answers of one query."""

    def __init__(self, folder: Folder, *, stream: bool = False) -> None:
        self._results = folder.inner("results")
        self._elements = folder.inner("elements") if stream else None

    def make(self) -> None:
        self._results.make()
        if self._elements is not None:
            self._elements.make()

    def write(self, batch: int, answers: Iterable[PeriodicAnswer]) -> None:
        written = list(answers)
        if self._elements is not None:
            lines = [
                f"{answer.at}\t" + "\t".join(str(term) for term in row) + "\n"
                for answer in written
                for row in answer.rows
            ]
            lines += [f"{answer.at}\n" for answer in written[-1:]]
            self._elements.write(f"{batch:09d}.tsv", lines)
        self._results.write(f"{batch:09d}.ndjson", map(_line, written))

    def last_before(self, batch: int) -> int | None:
        for name in reversed(self._files()):
            if int(name.partition(".")[0]) < batch:
                lines = self._lines(name)
                if lines:
                    return int(json.loads(lines[-1])["at"])
        return None

    def read(self, query: str = "") -> Iterator[PeriodicAnswer]:
        for name in self._files():
            for line in self._lines(name):
                value = json.loads(line)
                yield PeriodicAnswer(
                    query,
                    value["at"],
                    value["form"],
                    tuple(Variable(name) for name in value["variables"]),
                    tuple(
                        tuple(None if each is None else Term(each) for each in row)
                        for row in value["rows"]
                    ),
                )

    def _lines(self, name: str) -> list[str]:
        # Not `splitlines`: literals may have what that takes for line ends, as U+2028.
        return self._results.read(name).decode().split("\n")[:-1]

    def _files(self) -> list[str]:
        return [name for name in self._results.names() if name.endswith(".ndjson")]


def _line(answer: PeriodicAnswer) -> str:
    value = {
        "at": answer.at,
        "form": answer.form,
        "variables": answer.variables,
        "rows": answer.rows,
    }
    return json.dumps(value, ensure_ascii=False) + "\n"


# What Spark cannot run, refused before anything starts, by clause and place in the text.


def check_supported(parsed: CsparqlQuery, graph: OperatorGraph) -> None:
    """Refuse what Spark cannot run."""
    if not parsed.streams:
        raise UnsupportedContinuousQueryError("a query without FROM STREAM cannot be run on Spark")
    for clause in parsed.streams:
        if not isinstance(clause.window, LogicalWindow):
            index = _place(parsed.text, clause.position)
            raise UnsupportedContinuousQueryError(
                f"{index}{clause}: windows that count triples cannot be run on Spark, which keeps "
                "no order of arrival; only natively"
            )
    if graph.query.form == "DESCRIBE":
        raise UnsupportedContinuousQueryError(
            f"{_word(parsed.text, 'DESCRIBE')}DESCRIBE follows blank nodes to any depth, which "
            "Spark SQL cannot; only natively"
        )
    if says_now(parsed.query):
        raise UnsupportedContinuousQueryError(
            f"{_word(parsed.text, 'NOW')}NOW() cannot be evaluated on Spark; only natively"
        )
    for service in parsed.services:
        raise UnsupportedContinuousQueryError(
            f"{_word(parsed.text, 'SERVICE')}SERVICE {service.endpoint} cannot be asked on Spark; "
            "only natively"
        )
    for pattern in patterns_in(graph.pattern):
        if isinstance(pattern, algebra.Path):
            source = graph.sources.of(Term(pattern.graph))
            if source is not None and source.streams:
                position = next((at for path, at in parsed.paths if path == pattern.path), None)
                index = "" if position is None else _place(parsed.text, position)
                raise UnsupportedContinuousQueryError(
                    f"{index}a path from {pattern.subject} to {pattern.object} over streams: "
                    "Spark SQL has no closure; only natively"
                )
        _check_bindings(pattern)


def _check_bindings(pattern: Pattern) -> None:
    """Refuse BIND in EXISTS of a variable from outside, as natively."""
    outside = {name for child in algebra.children(pattern) for name in in_scope(child)}
    for expression in algebra.expressions_of(pattern):
        for exists in exists_in(expression):
            for inner in algebra.walk(exists.pattern):
                if isinstance(inner, algebra.Extend) and inner.variable in outside:
                    raise UnsupportedContinuousQueryError(
                        f"BIND of {inner.variable} inside EXISTS, which has a value outside"
                    )


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"line {line}, column {column}: "


def _word(text: str, word: str) -> str:
    for token in tokenize(text):
        if token.kind == "word" and token.text.upper() == word:
            return _place(text, token.position)
    return ""


class BatchSink(Protocol):
    """Takes answers beside the files."""

    def write(self, batch: str, answers: Sequence[PeriodicAnswer]) -> None:
        """Take a micro-batch; it may come again, with the same name."""


def window_query(
    text: str,
    static: StaticData,
    *,
    base: str = BASE,
    predicates: Mapping[Term, frozenset[Term]] | None = None,
    rules: tuple[Rule, ...] = RULES_ON_SPARK,
    reading: AbstractContextManager[Any] | None = None,
    version: int = 0,
) -> tuple[CsparqlQuery, WindowQuery]:
    """Make operators of a query; `reading` is entered while static data are read.

    `predicates` of streams are given if declared, `version` is that of the static data.

    Raises:
        UnsupportedContinuousQueryError: Spark cannot run it; with the clause.
    """
    parsed = parse(text, base)

    def matches_static(pattern: QuadPattern, graphs: tuple[Term, ...]) -> bool:
        return has_static(static, pattern, graphs)

    initial = operator_graph(
        parsed, static.names, Knowledge(dict(predicates or {}), matches_static)
    )
    graph = optimised(initial, rules)
    check_supported(parsed, graph)
    return parsed, WindowQuery(parsed, graph, static, reading=reading, version=version)


_STATE: Final = "state.json"
_NAME: Final = "identity"


class SparkExecution:
    """Run a query over files on Spark.

    Each batch is noted with its files in ``batches`` before it starts, and in ``state.json`` when
    its answers are written. One that was interrupted is repeated.

    Args:
        static: read when the run starts.
        streams: directory or URL of each stream, by IRI; files may be added.
        directory: of results and state, or its URL; a second run resumes.
        lateness: in milliseconds of stream time.
        strict: a malformed line stops the query; otherwise it is counted.
        rejects: directory or URL for malformed lines, which then stop nothing.
        on_answer: takes written answers; after a failure some come again.
        sink: takes those of a batch, likewise.

    Raises:
        UnsupportedContinuousQueryError: Spark cannot run it; with the clause.
        ContinuousError: a stream has no directory.
    """

    def __init__(
        self,
        session: SparkSession,
        text: str,
        static: StaticData,
        streams: Mapping[str, Path | str],
        directory: Path | str,
        *,
        lateness: int = 0,
        strict: bool = True,
        rejects: Path | str | None = None,
        on_answer: Callable[[PeriodicAnswer], None] | None = None,
        sink: BatchSink | None = None,
        **options: Any,
    ) -> None:
        self._window_query = partial(window_query, text, static, **options)
        parsed, self._query = self._window_query()
        self._streams: dict[Term, Path | str] = {}
        for clause in self._query.graph.clauses:
            path = streams.get(clause.stream[1:-1]) or streams.get(clause.stream)
            if path is None:
                raise ContinuousError(f"{clause}: there is no directory for this stream")
            self._streams[clause.stream] = path
        form = self._query.graph.query.form
        if sink is not None and form not in ("CONSTRUCT", "DESCRIBE"):
            raise ContinuousError(f"{form} gives no triples for a stream")
        registration = parsed.registration
        is_stream = registration is not None and registration.stream is not None
        self._is_stream = is_stream and form != "SELECT"
        self._session = session
        self._directory = directory
        # Of files that are there nobody says how far they are behind others.
        self._waits = Waits(lateness, ENDLESS)
        self._strict = strict and rejects is None
        self._rejects = rejects
        self._on_answer = on_answer
        self._sink = sink

    @cached_property
    def _folder(self) -> Folder:
        return folder_of(self._directory, self._session)

    @cached_property
    def results(self) -> ResultFiles:
        return ResultFiles(self._folder, stream=self._is_stream)

    def replay(self, *, files_per_trigger: int | None = None) -> Progress:
        """Process present files, in the order of their names; other instants stay open.

        Raises:
            ContinuousError: the run failed; earlier answers are kept.
        """
        with asking_java():
            batches, step = self._opened(files_per_trigger)
            with contextlib.closing(batches):
                while step():
                    pass
            return batches.progress

    def start(self, every: float = 1.0) -> SparkRun:
        """Process files as they come, at this interval, until the run is stopped."""
        with asking_java():
            batches, step = self._opened(None)
        return SparkRun(step, batches, every)

    def answers(self, windows: DataFrame, instants: Sequence[int]) -> list[PeriodicAnswer]:
        """Answer at each of these instants, from the content of windows."""
        plan = SharedPlan(self._session, [self._query])
        with contextlib.closing(plan):
            content = windows.selectExpr("*", "at AS `from`", "at + 1 AS `to`")
            rows = plan.frame_of(content, instants).collect()
        ((_, answers),) = plan.answers([tuple(row) for row in rows], instants)
        return answers

    # ------------------------------------------------------------------------------ batches

    def _opened(self, most: int | None) -> tuple[MicroBatches, Callable[[], bool]]:
        """Resume; return what takes the next batch, and tells if there was one."""
        _, query = self._window_query()
        batches = MicroBatches(
            self._session, self._folder.inner("answers"), self._waits, strict=self._strict
        )
        self.results.make()
        folders = {stream: folder_of(path, self._session) for stream, path in self._streams.items()}
        for folder in folders.values():
            if isinstance(folder, LocalFolder) and not folder.path.is_dir():
                raise ContinuousError(f"{folder.url}: there is no such directory")
        log = self._folder.inner("batches")
        log.make()
        names = self._folder.names()
        if "checkpoint" in names and _STATE not in names:
            raise ContinuousError(
                f"{self._folder.url}: a run of an earlier version, which cannot be resumed; "
                "take another directory"
            )
        if _NAME not in names:
            self._folder.write(_NAME, [token_hex(12)])
        identity = self._folder.read(_NAME).decode()
        noted: dict[int, dict[Term, list[str]]] = {
            int(name.partition(".")[0]): json.loads(log.read(name)) for name in log.names()
        }
        seen = {
            stream: {name for files in noted.values() for name in files.get(stream, ())}
            for stream in folders
        }

        def paths(files: Mapping[Term, Sequence[str]]) -> dict[Term, list[str]]:
            return {
                stream: [f"{folders[stream].url}/{name}" for name in each]
                for stream, each in files.items()
            }

        number = 0
        if _STATE in names:
            state = json.loads(self._folder.read(_STATE))
            number = state["batch"] + 1
            query.last = self.results.last_before(number)
            for each in state["retained"]:
                batches.restore(each, paths(noted[each]), [query])
            for stream, until in state["closed"].items():
                batches.complete(Term(stream), until)

        def step() -> bool:
            nonlocal number
            with asking_java():
                files = noted.get(number)
                if files is None:
                    files = {}
                    for stream, folder in folders.items():
                        new = [
                            name
                            for name in folder.names()
                            if name not in seen[stream] and not name.startswith("_")
                        ]
                        files[stream] = new[:most]
                        seen[stream].update(files[stream])
                    if not any(files.values()):
                        return False
                    log.write(f"{number:09d}.json", [json.dumps(files)])
                self._process(batches, query, (number, f"{identity}-{number}"), paths(files))
                number += 1
                return True

        return batches, step

    def _process(
        self,
        batches: MicroBatches,
        query: WindowQuery,
        names: tuple[int, str],
        files: Mapping[Term, Sequence[str]],
    ) -> None:
        number, name = names
        for _, answers in batches.process(number, files, [query]):
            if isinstance(answers, ContinuousError):
                raise answers
            self.results.write(number, answers)
            if self._on_answer is not None:
                for answer in answers:
                    self._on_answer(answer)
            if self._sink is not None:
                self._sink.write(name, answers)
        if self._rejects is not None and batches.malformed is not None:
            lines = (f"{row[0]}\n" for row in batches.malformed.toLocalIterator())
            folder_of(self._rejects, self._session).write(f"{number:09d}.txt", lines)
        state = {"batch": number, "closed": batches.completed, "retained": batches.retained}
        self._folder.write(_STATE, [json.dumps(state)])


def punctuate(stream: Folder | Path, until: int) -> None:
    """Declare that all elements of a stream up to a timestamp are there."""
    folder = LocalFolder(stream) if isinstance(stream, Path) else stream
    folder.write(f"~{until:020d}.punctuation", [f"{until}\n"])
