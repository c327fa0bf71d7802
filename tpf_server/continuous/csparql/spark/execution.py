"""A query on Spark: its windows as a streaming query, its operators in each micro-batch.

Structured Streaming keeps the windows (event time, watermark, state store, checkpoint) and gives
the whole content of an instant when that is complete. The operators then run over these contents as
ordinary Spark SQL, grouped by the instant beside everything else. Why not as one streaming plan:
append mode has no joins after aggregations over other keys, no anti-joins between streams, no order
and no limit; over complete contents all of SPARQL's operators are available, and exact.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from annotations.terms import QuadPattern, Term, Variable
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.algebra import Pattern, Project, Row
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import value_of
from tpf_client.sparql.scopes import in_scope
from tpf_server.continuous.csparql.answers import PeriodicAnswer, answer_of
from tpf_server.continuous.csparql.native.evaluation import PeriodicEvaluation
from tpf_server.continuous.csparql.native.leaves import TooManyStaticError, has_static
from tpf_server.continuous.csparql.native.static_tables import StaticTables
from tpf_server.continuous.csparql.operator_graph import Knowledge, OperatorGraph, operator_graph
from tpf_server.continuous.csparql.parser import parse
from tpf_server.continuous.csparql.rules import RULES_ON_SPARK, Rule, optimised
from tpf_server.continuous.csparql.spark.frames import AT, RANK, column
from tpf_server.continuous.csparql.spark.leaf_frames import LeafFrames
from tpf_server.continuous.csparql.spark.results import ResultFiles
from tpf_server.continuous.csparql.spark.run import Progress, SparkRun, asking_java
from tpf_server.continuous.csparql.spark.session import ROCKSDB
from tpf_server.continuous.csparql.spark.support import check_supported
from tpf_server.continuous.csparql.spark.translation import Translation
from tpf_server.continuous.csparql.spark.windowing import (
    all_windows,
    lines,
    malformed,
    window_content,
)
from tpf_server.continuous.engine.base_iri import BASE
from tpf_server.continuous.engine.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.engine.static.static_data import StaticData
from tpf_spark.folders import Folder, LocalFolder, folder_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BatchSink(Protocol):
    """Where answers go beside the files."""

    def write(self, batch: str, answers: Sequence[PeriodicAnswer]) -> None:
        """Take the answers of a micro-batch; the same one may come again, with the same name."""


class SparkExecution:
    """Runs a query on Spark.

    Args:
        session: Spark, configured as `session.configuration` says.
        text: C-SPARQL.
        static: the static data; they are read when the run starts.
        streams: the directory of each stream, or its URL, by IRI: files of lines, more may come.
        directory: where results and the checkpoint are kept; a URL where machines share nothing. A
            second run with the same one goes on where the first one ended.
        predicates: the predicates of streams, where they are known: patterns with others are
            static.
        lateness: how late elements may be, in milliseconds of stream time.
        strict: whether a malformed line stops the query; otherwise it is left out and counted.
        rejects: a directory or its URL, to which malformed lines are copied; then they stop
            nothing.
        rules: that rewrite the operators.
        base: what relative IRIs are relative to.
        on_answer: is called with each answer, after it is on the disk; after a failure it may be
            called again with the same answers.
        sink: gets the answers of each micro-batch, after they are on the disk.
        reading: is entered while static data are read.

    Raises:
        ContinuousSyntaxError: the text is no query.
        UnsupportedContinuousQueryError: it cannot be run on Spark; it names the clause.
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

        def found(pattern: QuadPattern, graphs: tuple[Term, ...]) -> bool:
            return has_static(static, pattern, graphs)

        initial = operator_graph(parsed, static.names, Knowledge(dict(predicates or {}), found))
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
        """Its answers."""
        return ResultFiles(self._folder, stream=self._is_stream)

    # --------------------------------------------------------------------------------- runs

    def replay(self, *, files_per_trigger: int | None = None) -> Progress:
        """Process everything that is there (``availableNow``), and return.

        What is later than the watermark stays open, and is answered by a later run.

        Raises:
            ContinuousError: the run failed; what was answered before is kept.
        """
        with asking_java():
            run = self._started({"availableNow": True}, files_per_trigger)
        run.wait()
        return run.progress()

    def start(self, every: str = "1 second") -> SparkRun:
        """Process what comes, at this interval of processing time, until the run is stopped."""
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
        """PeriodicAnswer every instant that this micro-batch closes."""
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
        """The answer at each of these instants, which are in order.

        Args:
            windows: what is in the windows at them; see `LeafFrames`.
            instants: milliseconds since 1970.
        """
        common = self.graph.instants.greatest_common_period
        steps = self._session.range(instants[0], instants[-1] + 1, common, 1).toDF(AT)
        if len(self.graph.instants.periods) > 1:
            steps = steps.where(
                reduce(or_, [sql.col(AT) % each == 0 for each in self.graph.instants.periods])
            )
        leaves = LeafFrames(
            self._session, self.graph, self._static_rows, windows, steps, self._cache
        )
        found: dict[int, list[tuple[int, Row]]] = {}
        query = self.graph.query
        variables = () if query.form == "ASK" else self._variables()
        for row in Translation(leaves).answer().collect():
            values = tuple(
                None if row[column(name)] is None else Term(row[column(name)]) for name in variables
            )
            found.setdefault(row[AT], []).append((row[RANK], values))
        return [
            answer_of(
                self.name,
                at,
                query,
                variables,
                [values for _, values in sorted(found.get(at, []), key=lambda each: each[0])],
            )
            for at in instants
        ]

    def _variables(self) -> tuple[Variable, ...]:
        return in_scope(self.graph.pattern)

    def _watermark(self, batch: int) -> int:
        """The watermark of a micro-batch in milliseconds, as its checkpoint has it."""
        log = self._folder.inner("checkpoint").inner("offsets").read(str(batch))
        _, metadata, *_ = log.splitlines()
        return int(json.loads(metadata)["batchWatermarkMs"])

    def _identifier(self) -> str:
        """What Spark calls the query, now and after every restart."""
        return str(json.loads(self._folder.inner("checkpoint").read("metadata"))["id"])

    # ------------------------------------------------------------------------------- static

    def _static_rows(self, graph: OperatorGraph, pattern: Pattern) -> list[Row]:
        """What a pattern has over static data alone."""
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
                evaluation = PeriodicEvaluation(alone, tables, dictionary, Environment(typed, now))
            except UnsupportedQueryError as error:
                raise UnsupportedContinuousQueryError(str(error)) from error
            except TooManyStaticError:
                raise UnsupportedContinuousQueryError(
                    "its static patterns have far more solutions together than triples"
                ) from None
            return list(evaluation.at(0, "").rows)


def punctuate(stream: Folder | Path, until: int) -> None:
    """Say that all elements of a stream up to this timestamp are in its directory."""
    folder = LocalFolder(stream) if isinstance(stream, Path) else stream
    folder.write(f"~{until:020d}.punctuation", [f"{until}\n"])
