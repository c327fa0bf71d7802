"""A query on Spark: windows as a streaming query, operators in each micro-batch.

Structured Streaming keeps the windows (event time, watermark, state store, checkpoint) and gives
the content of complete instants, over which operators run as Spark SQL, grouped by instant. One
streaming plan cannot do it: append mode has no joins after aggregations over other keys, no
anti-joins between streams, no order and no limit.
"""

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Any, Final, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from annotations.terms import QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import BGP, Pattern, Project, Row
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import value_of
from tpf_client.sparql.rewrite.visitor import exists_in, patterns_in
from tpf_client.sparql.scopes import in_scope
from tpf_client.sparql.tokens import tokenize
from tpf_server.continuous.languages.csparql.parser import parse
from tpf_server.continuous.runtime.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.builder import TooManyStaticError, has_static
from tpf_server.continuous.runtime.instants.csparql_query import (
    CsparqlQuery,
    LogicalWindow,
    PeriodicAnswer,
    StreamClause,
    answer_of,
)
from tpf_server.continuous.runtime.instants.evaluation import EvaluationContext, PeriodicEvaluation
from tpf_server.continuous.runtime.instants.operator_graph import (
    Knowledge,
    OperatorGraph,
    operator_graph,
)
from tpf_server.continuous.runtime.instants.rules import RULES_ON_SPARK, Rule, optimised
from tpf_server.continuous.runtime.instants.static_table import StaticTables
from tpf_server.continuous.runtime.semantics import BASE, EngineLimits, says_now
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.continuous.spark.translation import (
    AT,
    RANK,
    LeafFrames,
    Translation,
    column,
)
from tpf_server.spark.folders import Folder, LocalFolder, folder_of
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import SparkSettings, java_answers, spark_session

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextlib.contextmanager
def continuous_session(
    master: str, work: Path, *, memory: str | None = None, partitions: int = 2
) -> Iterator[SparkSession]:
    """Start a Spark session for the block; the environment has further settings."""
    settings = SparkSettings.from_environment(
        os.environ,
        master=master,
        memory=memory,
        executor_memory=memory,
        local_dir=str(work),
    )
    options = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        # Plans are small and many: adapting each of them costs more than it brings.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        # Java works for long here: it is to compile all that it can.
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={work}",
    }
    try:
        with spark_session(settings, name="tpf-continuous", options=options) as session:
            yield session
    except SparkError as error:
        raise ContinuousError(str(error)) from error


# A run on Spark: what it does, how far it is, and how it ends.

_REASON = re.compile(r"(malformed line|ContinuousError|SparkError): [^\n]*")
_OWN = re.compile("^(?:ContinuousError|SparkError): ")


@contextlib.contextmanager
def asking_java() -> Iterator[None]:
    """Raise a `ContinuousError` where Java has ended."""
    try:
        with java_answers():
            yield
    except SparkError as error:
        raise ContinuousError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of a run.

    Args:
        batches: completed micro-batches.
        late: entries of windows that came after their instant.
        malformed: lines that were left out.
    """

    batches: int = 0
    lines: int = 0
    late: int = 0
    malformed: int = 0

    def after(self, batch: Any) -> "Progress":
        """Add what Spark reports of a micro-batch."""
        late = sum(int(state["numRowsDroppedByWatermark"]) for state in batch["stateOperators"])
        malformed = sum(int(each["malformed"] or 0) for each in batch["observedMetrics"].values())
        return Progress(
            self.batches + 1,
            self.lines + int(batch["numInputRows"] or 0),
            self.late + late,
            self.malformed + malformed,
        )


class SparkRun:
    """A running query."""

    def __init__(self, queries: Sequence[StreamingQuery]) -> None:
        self._queries = tuple(queries)
        self._progress = Progress()
        self._seen = ""
        # Whoever asks, and the thread of the micro-batches.
        self._lock = threading.Lock()

    @property
    def active(self) -> bool:
        with asking_java():
            return self._queries[0].isActive

    @property
    def last_progress(self) -> Progress:
        """The last known progress, without asking Spark."""
        return self._progress

    def progress(self) -> Progress:
        """Return the progress, but for micro-batches that end after `stop`.

        Spark remembers a hundred of them, so the execution asks after each.
        """
        with self._lock, asking_java():
            for each in self._queries[0].recentProgress:
                # A trigger that finds nothing to do reports the micro-batch that would come next.
                ended = "addBatch" in each["durationMs"]
                if ended and each["timestamp"] > self._seen:
                    self._seen = each["timestamp"]
                    self._progress = self._progress.after(each)
            return self._progress

    def wait(self, seconds: int | None = None) -> bool:
        """Wait for the end, at most `seconds` (at least one); true if it has ended.

        Raises:
            ContinuousError: it failed; earlier answers are kept.
        """
        try:
            with asking_java():
                if seconds is None:
                    for each in self._queries:
                        each.awaitTermination()
                    return True
                return all(bool(each.awaitTermination(seconds)) for each in self._queries)
        except StreamingQueryException as error:
            self.stop()
            result = _REASON.search(str(error))
            reason = str(error).strip().splitlines()[0] if result is None else result.group()
            raise ContinuousError(f"the run on Spark failed: {_OWN.sub('', reason)}") from error

    def stop(self) -> None:
        """Stop; a later run in the same directory resumes."""
        with asking_java():
            for each in self._queries:
                each.stop()


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
        """Write the answers of a micro-batch, durably."""
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
        return self._results.read(name).split("\n")[:-1]

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
            f"{_word(parsed.text, 'NOW')}NOW() cannot be said on Spark, which evaluates many "
            "instants at once; only natively"
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


# Lines of a stream to the content of windows, as a streaming data frame.
#
# Every element goes to each instant whose window has it, and each instant's content is collected
# under the watermark: in append mode Structured Streaming gives it once, when nothing that is not
# too late can come any more, and keeps what is open in its state store. The key is the instant
# plus one millisecond, because a watermark closes what is not after it, and elements of the
# instant itself still belong to it.
#
# Lines are ``timestamp<TAB>subject<TAB>predicate<TAB>object``; a line with a timestamp alone says
# that everything up to it has come (punctuation).

KEY = "closes"
_TERM = (
    r'(?:<<\(.+\)>>|<[^<>"{}|^`\\\x00-\x20]+>|_:\S+|'
    r'"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^>]+>)?)'
)
LINE = rf"^-?\d{{1,18}}(?:\t(?:<[^>]+>|_:\S+)\t<[^>]+>\t{_TERM})?$"


def lines(session: SparkSession, directory: str, *, files_per_trigger: int | None) -> DataFrame:
    """Read the files of a directory, also later ones, as a column ``value``."""
    reader = session.readStream.option("latestFirst", "false")
    if files_per_trigger is not None:
        reader = reader.option("maxFilesPerTrigger", str(files_per_trigger))
    return reader.text(directory)


def window_content(
    graph: OperatorGraph, clause: StreamClause, text: DataFrame, *, lateness: int, strict: bool
) -> DataFrame:
    """Read the content of one stream's windows at each instant: `KEY`, stream, s, p, o, ts.

    Rows without terms mark the first instant after an element, and punctuation.
    """
    window = clause.window
    assert isinstance(window, LogicalWindow)
    well = sql.col("value").rlike(LINE)
    text = text.observe(str(clause.stream), sql.count_if(~well).alias("malformed"))
    if strict:
        wrong = sql.raise_error(sql.concat(sql.lit("malformed line: "), sql.col("value")))
        text = text.where(sql.when(well, True).otherwise(wrong.cast("boolean")))
    else:
        text = text.where(well)
    parts = sql.split(sql.col("value"), "\t", 4)
    elements = text.select(
        sql.get(parts, sql.lit(0)).try_cast("long").alias("ts"),
        sql.get(parts, sql.lit(1)).alias("s"),
        sql.get(parts, sql.lit(2)).alias("p"),
        sql.get(parts, sql.lit(3)).alias("o"),
    )
    periods = graph.instants.periods
    delay = window.range + lateness + (0 if periods == (window.step,) else window.step)
    step, common = window.step, graph.instants.greatest_common_period
    is_instant = " or ".join(f"t % {period} = 0" for period in periods)
    first = "least(" + ", ".join(f"ceil(ts / {p}) * {p}" for p in (*periods, *periods)) + ")"
    seen = (
        f"filter(sequence(ceil(ts / {common}) * {common}, ts + {window.range + step}, {common}), "
        f"t -> ({is_instant}) and t - t % {step} >= ts and t - t % {step} - {window.range} < ts)"
    )
    may_match = _may_match(graph, clause)
    nothing = sql.lit(None).cast("string")
    marks = sql.struct(
        sql.expr(f"cast({first} as bigint)").alias("at"),
        nothing.alias("s"), nothing.alias("p"), nothing.alias("o"),
    )  # fmt: skip
    punctuation = sql.struct(
        (sql.col("ts") + delay).alias("at"),
        nothing.alias("s"), nothing.alias("p"), nothing.alias("o"),
    )  # fmt: skip
    entries = sql.transform(
        sql.expr(seen),
        lambda at: sql.struct(
            at.cast("long").alias("at"), sql.col("s"), sql.col("p"), sql.col("o")
        ),
    )
    rows = (
        sql.when(sql.col("s").isNull(), sql.array(punctuation))
        .when(may_match, sql.concat(sql.array(marks), entries))
        .otherwise(sql.array(marks))
    )
    exploded = elements.select("ts", sql.explode(rows).alias("row")).select(
        sql.timestamp_millis(sql.col("row.at") + 1).alias(KEY),
        sql.lit(str(clause.stream)).alias("stream"),
        "row.s", "row.p", "row.o", "ts",
    )  # fmt: skip
    return exploded.withWatermark(KEY, f"{delay} milliseconds")


def malformed(texts: Sequence[DataFrame]) -> DataFrame:
    """Return the malformed lines."""
    return reduce(DataFrame.unionByName, texts).where(~sql.col("value").rlike(LINE))


def all_windows(parts: Sequence[DataFrame]) -> DataFrame:
    """Return the content of all windows at each instant `AT`, with latest timestamps."""
    result = reduce(DataFrame.unionByName, parts)
    results = result.groupBy(KEY, "stream", "s", "p", "o").agg(sql.max("ts").alias("ts"))
    # Without `KEY` Spark knows no partitioning of this. With one, uses of it in a join are no
    # longer the frame that a micro-batch keeps, and each reads and commits the state anew.
    return results.select((sql.unix_millis(KEY) - 1).alias(AT), "stream", "s", "p", "o", "ts")


def _may_match(graph: OperatorGraph, clause: StreamClause) -> Column:
    """True for triples that may match: conditions pushed to the source."""
    predicates: set[str] = set()
    for each in patterns_in(graph.pattern):
        for quad in each.patterns if isinstance(each, BGP) else ():
            if clause.stream in graph.source_of(quad).streams:
                if is_variable(quad.predicate):
                    return sql.lit(True)
                predicates.add(str(quad.predicate))
    return sql.col("p").isin(*sorted(predicates)) if predicates else sql.lit(False)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BatchSink(Protocol):
    """Takes answers beside the files."""

    def write(self, batch: str, answers: Sequence[PeriodicAnswer]) -> None:
        """Take a micro-batch; it may come again, with the same name."""


class SparkExecution:
    """Run a query on Spark.

    Args:
        session: a `continuous_session`.
        text: C-SPARQL.
        static: read when the run starts.
        streams: directory or URL of each stream, by IRI; files may be added.
        directory: of results and checkpoint, or its URL; a second run there resumes.
        predicates: of streams, if declared.
        lateness: in milliseconds of stream time.
        strict: a malformed line stops the query; otherwise it is counted.
        rejects: directory or URL that gets malformed lines, which then stop nothing.
        on_answer: takes each answer that is on the disk; after a failure some come again.
        sink: takes the answers of each micro-batch, likewise.
        reading: entered while static data are read.

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
        predicates: Mapping[Term, frozenset[Term]] | None = None,
        lateness: int = 0,
        strict: bool = True,
        rejects: Path | str | None = None,
        rules: tuple[Rule, ...] = RULES_ON_SPARK,
        base: str = BASE,
        on_answer: Callable[[PeriodicAnswer], None] | None = None,
        sink: BatchSink | None = None,
        reading: AbstractContextManager[Any] | None = None,
    ) -> None:
        parsed = parse(text, base)

        def matches_static(pattern: QuadPattern, graphs: tuple[Term, ...]) -> bool:
            return has_static(static, pattern, graphs)

        initial = operator_graph(
            parsed, static.names, Knowledge(dict(predicates or {}), matches_static)
        )
        self.graph = optimised(initial, rules)
        check_supported(parsed, self.graph)
        self._streams: dict[Term, Path | str] = {}
        for clause in self.graph.clauses:
            path = streams.get(clause.stream[1:-1]) or streams.get(clause.stream)
            if path is None:
                raise ContinuousError(f"{clause}: there is no directory for this stream")
            self._streams[clause.stream] = path
        registration = parsed.registration
        if sink is not None and self.graph.query.form not in ("CONSTRUCT", "DESCRIBE"):
            raise ContinuousError(f"{self.graph.query.form} gives no triples for a stream")
        self.name = "query" if registration is None else registration.name
        is_stream = registration is not None and registration.kind == "stream"
        self._is_stream = is_stream and self.graph.query.form != "SELECT"
        self._session = session
        self._static = static
        self._directory = directory
        self._lateness = lateness
        self._strict = strict and rejects is None
        self._rejects = rejects
        self._on_answer = on_answer
        self._sink = sink
        self._reading = reading or nullcontext()
        self._run: SparkRun | None = None
        self._cache: dict[object, DataFrame] = {}

    @cached_property
    def _folder(self) -> Folder:
        return folder_of(self._directory, self._session)

    @cached_property
    def results(self) -> ResultFiles:
        return ResultFiles(self._folder, stream=self._is_stream)

    # --------------------------------------------------------------------------------- runs

    def replay(self, *, files_per_trigger: int | None = None) -> Progress:
        """Process present files (``availableNow``); instants after the watermark stay open.

        Raises:
            ContinuousError: the run failed; earlier answers are kept.
        """
        with asking_java():
            run = self._started({"availableNow": True}, files_per_trigger)
        run.wait()
        return run.progress()

    def start(self, every: str = "1 second") -> SparkRun:
        """Process files as they come, at this interval, until the run is stopped."""
        with asking_java():
            return self._started({"processingTime": every}, None)

    def _started(self, trigger: dict[str, Any], files_per_trigger: int | None) -> SparkRun:
        self._session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        self._run = None
        self.results.make()
        read = {
            clause: lines(
                self._session,
                str(self._streams[clause.stream]),
                files_per_trigger=files_per_trigger,
            )
            for clause in self.graph.clauses
        }
        parts = [
            window_content(self.graph, clause, text, lateness=self._lateness, strict=self._strict)
            for clause, text in read.items()
        ]
        queries = [
            all_windows(parts)
            .writeStream.outputMode("append")
            .option("checkpointLocation", self._folder.inner("checkpoint").url)
            .foreachBatch(self._batch)
            .trigger(**trigger)
            .start()
        ]
        if self._rejects is not None:
            queries.append(
                malformed(list(read.values()))
                .writeStream.format("text")
                .option("path", str(self._rejects))
                .option("checkpointLocation", self._folder.inner("checkpoint-rejects").url)
                .trigger(**trigger)
                .start()
            )
        self._run = SparkRun(queries)
        return self._run

    # ------------------------------------------------------------------------------ batches

    def _batch(self, data: DataFrame, batch: int) -> None:
        watermark = self._watermark(batch)
        data = data.persist()
        try:
            # In any case the windows must be read: that is what writes their state. One job does,
            # before others that run beside each other find them kept.
            (row,) = data.agg(sql.min(AT)).collect()
            last = self.results.last_before(batch)
            if last is None:
                if row[0] is None:
                    return
                # The instant before the first one that anything belongs to.
                last = int(row[0]) - 1
            instants = list(self.graph.instants.between(last, watermark - 1))
            if instants:
                answers = self.answers(data.where(sql.col("s").isNotNull()), instants)
                self.results.write(batch, answers)
                if self._on_answer is not None:
                    for answer in answers:
                        self._on_answer(answer)
                if self._sink is not None:
                    self._sink.write(f"{self._identifier()}-{batch}", answers)
        finally:
            data.unpersist()
            if self._run is not None:
                self._run.progress()

    def answers(self, windows: DataFrame, instants: Sequence[int]) -> list[PeriodicAnswer]:
        """Answer at each of these instants, from the content of windows."""
        common = self.graph.instants.greatest_common_period
        steps = self._session.range(instants[0], instants[-1] + 1, common, 1).toDF(AT)
        if len(self.graph.instants.periods) > 1:
            steps = steps.where(
                reduce(or_, [sql.col(AT) % each == 0 for each in self.graph.instants.periods])
            )
        leaves = LeafFrames(
            self._session, self.graph, self._static_rows, windows, steps, self._cache
        )
        result: dict[int, list[tuple[int, Row]]] = {}
        query = self.graph.query
        variables = () if query.form == "ASK" else self._variables()
        for row in Translation(leaves).answer().collect():
            values = tuple(
                None if row[column(name)] is None else Term(row[column(name)]) for name in variables
            )
            result.setdefault(row[AT], []).append((row[RANK], values))
        return [
            answer_of(
                self.name,
                at,
                query,
                variables,
                [values for _, values in sorted(result.get(at, []), key=lambda each: each[0])],
            )
            for at in instants
        ]

    def _variables(self) -> tuple[Variable, ...]:
        return in_scope(self.graph.pattern)

    def _watermark(self, batch: int) -> int:
        log = self._folder.inner("checkpoint").inner("offsets").read(str(batch))
        _, metadata, *_ = log.splitlines()
        return int(json.loads(metadata)["batchWatermarkMs"])

    def _identifier(self) -> str:
        return str(json.loads(self._folder.inner("checkpoint").read("metadata"))["id"])

    # ------------------------------------------------------------------------------- static

    def _static_rows(self, graph: OperatorGraph, pattern: Pattern) -> list[Row]:
        """Evaluate a pattern over static data, natively."""
        dictionary = TermDictionary()
        typed = TypedTerms(dictionary)
        now = value_of(
            Term(f'"{_EPOCH:%Y-%m-%dT%H:%M:%SZ}"^^<http://www.w3.org/2001/XMLSchema#dateTime>')
        )
        assert isinstance(now, DateTime)
        query = replace(graph.query, form="SELECT", pattern=Project(pattern, in_scope(pattern)))
        # Without streams everything is static.
        sources = graph.sources.without_streams()
        alone = replace(graph, query=query, clauses=(), sources=sources)
        with self._reading:
            try:
                tables = StaticTables(self._static, dictionary)
                environment = Environment(typed, now)
                evaluation = PeriodicEvaluation(
                    alone,
                    EvaluationContext(tables, dictionary, environment, EngineLimits().join_rows),
                )
            except UnsupportedQueryError as error:
                raise UnsupportedContinuousQueryError(str(error)) from error
            except TooManyStaticError:
                raise UnsupportedContinuousQueryError(
                    "its static patterns have far more solutions together than triples"
                ) from None
            return list(evaluation.answers(0).rows())


def punctuate(stream: Folder | Path, until: int) -> None:
    """Declare that all elements of a stream up to a timestamp are there."""
    folder = LocalFolder(stream) if isinstance(stream, Path) else stream
    folder.write(f"~{until:020d}.punctuation", [f"{until}\n"])
