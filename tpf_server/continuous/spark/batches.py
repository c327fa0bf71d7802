"""Micro-batches: elements are parsed and kept once for all queries.

The files of streams are the durable log. Parquet is read in each batch; what is parsed from lines
stays in Spark's memory. Small batches are merged. In windows of many batches, filters and groups
keep what they made of each (panes). All answers are one job.

Lines are ``timestamp<TAB>subject<TAB>predicate<TAB>object``; a line with a timestamp alone says
that everything up to it has come (punctuation).
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from annotations.terms import Term
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.algebra import Pattern, Project, Row
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import value_of
from tpf_client.sparql.scopes import in_scope
from tpf_server.continuous.runtime.clock import ENDLESS, NO_WAITS, StreamClock, StreamClocks, Waits
from tpf_server.continuous.runtime.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.builder import TooManyStaticError
from tpf_server.continuous.runtime.instants.csparql_query import (
    CsparqlQuery,
    LogicalWindow,
    PeriodicAnswer,
    StreamClause,
    answer_of,
)
from tpf_server.continuous.runtime.instants.evaluation import EvaluationContext, PeriodicEvaluation
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph
from tpf_server.continuous.runtime.semantics import EngineLimits
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.continuous.runtime.static.static_rows import SharedRows
from tpf_server.continuous.spark.parameters import Shape
from tpf_server.continuous.spark.terms import AT, CONTENT, QUERY
from tpf_server.continuous.spark.translation import (
    BIT,
    INSIDE,
    RANK,
    Evaluations,
    Frame,
    LeafFrames,
    Translation,
    column,
    merged,
)
from tpf_server.spark.folders import Folder
from tpf_server.spark.java import SparkJobError
from tpf_server.spark.session import java_answers

_TERM = (
    r'(?:<<\([^\n]+\)>>|<[^<>"{}|^`\\\x00-\x20]+>|_:\S+|'
    rf'"{CONTENT}"(?:@[A-Za-z0-9-]+|\^\^<[^>]+>)?)'
)
LINE = rf"^-?\d{{1,18}}(?:\t(?:<[^>]+>|_:\S+)\t<[^>]+>\t{_TERM})?$"
_EPOCH: Final = Term('"1970-01-01T00:00:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>')
_BITS: Final = 62
"""Of a number in Spark, one for each instant of a batch."""
_MERGED: Final = 8
"""Batches of one size that are merged."""
_FEW: Final = 2_000
"""Elements of a batch that are merged with others rather than read again from their file."""
_PANED: Final = 5
"""Batches in a window for which there are panes."""
_OF_A_TASK: Final = 20_000
"""Elements in windows for which a further core is used."""
_PARQUET: Final = (
    "stream string, ts bigint, s string, p string, o string, earlier bigint, later bigint"
)
_ELEMENT: Final = ("stream", "ts", "s", "p", "o")
_COMPARED: Final = ("earlier", "later")
_INT64: Final = np.iinfo(np.int64)

_Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
StreamedTriple: TypeAlias = tuple[int, Term, Term, Term]
"""A triple of a stream, after its timestamp."""


class Repetitions:
    """The timestamps of each triple, by a hash of 64 bits.

    With a range of 5 a triple of 10 and 13 is in windows in [10, 15) and [13, 18): with [15, 18) no
    instant is in both, and rows need not be made distinct.
    """

    def __init__(self) -> None:
        self._known: dict[Term, tuple[_Integers, _Integers]] = {}

    def add(self, stream: Term, triples: Sequence[StreamedTriple]) -> tuple[_Integers, _Integers]:
        """Add triples; return the latest known timestamp up to each one's own, and the next.

        `_INT64.min` and `_INT64.max`: there is none.
        """
        # Of ten million triples two have one hash with a probability of three in a million.
        numbers = np.fromiter((hash(triple[1:]) for triple in triples), np.int64, len(triples))
        times = np.fromiter((triple[0] for triple in triples), np.int64, len(triples))
        order = np.lexsort((times, numbers))
        numbers, times = numbers[order], times[order]
        known, known_times = self._known.get(stream, (numbers[:0], times[:0]))
        first, last = np.searchsorted(known, numbers), np.searchsorted(known, numbers, "right")
        # Where a triple's earlier times end: binary search, in all of its own at once.
        index, end, padded = first, last, np.append(known_times, 0)
        while np.any(index < end):
            middle = (index + end) // 2
            before = (index < end) & (padded[middle] <= times)
            index, end = np.where(before, middle + 1, index), np.where(before, end, middle)
        earlier = np.where(index > first, padded[index - 1], _INT64.min)
        later = np.where(index < last, padded[index], _INT64.max)
        same = np.flatnonzero(numbers[1:] == numbers[:-1])
        earlier[same + 1] = np.maximum(earlier[same + 1], times[same])
        self._known[stream] = np.insert(known, index, numbers), np.insert(known_times, index, times)
        back = np.argsort(order)
        return earlier[back], later[back]

    def forget(self, until: int | None) -> None:
        """Forget what came up to a timestamp; ``None``: everything."""
        for stream, (numbers, times) in self._known.items():
            kept = times > (_INT64.max if until is None else until)
            self._known[stream] = numbers[kept], times[kept]


class WindowQuery:
    """A query over batches.

    Attributes:
        since: the number of the first batch that it sees.
        first: the earliest timestamp of its streams, until an instant is answered.
        last: the last instant that is answered.
        shape: equal for queries that differ in constants.
    """

    def __init__(
        self,
        parsed: CsparqlQuery,
        graph: OperatorGraph,
        static: StaticData,
        *,
        reading: AbstractContextManager[Any] | None = None,
        version: int = 0,
    ) -> None:
        self.graph = graph
        self.static = static
        self.reading = reading or nullcontext()
        self.name = "query" if parsed.registration is None else parsed.registration.name
        self.since = 0
        self.first: int | None = None
        self.last: int | None = None
        self.shape, self.constants = Shape.of(graph, version)

    def due(self, clocks: StreamClocks) -> tuple[int, ...]:
        """The instants up to which all elements have come."""
        after = self.last if self.first is None else self.first - 1
        if after is None:
            return ()
        streams = {each.stream for each in self.graph.clauses}
        return tuple(self.graph.instants.between(after, clocks.passed(streams, streams)))

    def answered(self, until: int) -> None:
        self.first, self.last = None, until

    @property
    def needs_after(self) -> int | None:
        """The timestamp after which elements are in windows to come; ``None``: of later batches."""
        after = self.last if self.first is None else self.first - 1
        if after is None:
            return None
        at = self.graph.instants.after(after)
        return min(_window(each).bounds(at)[0] for each in self.graph.clauses)

    def static_rows(self, graph: OperatorGraph, pattern: Pattern) -> list[Row]:
        """Evaluate a pattern over static data, natively."""
        dictionary = TermDictionary()
        now = value_of(_EPOCH)
        assert isinstance(now, DateTime)
        query = replace(graph.query, form="SELECT", pattern=Project(pattern, in_scope(pattern)))
        # Without streams everything is static.
        alone = replace(graph, query=query, clauses=())
        with self.reading:
            try:
                environment = Environment(TypedTerms(dictionary), now)
                evaluation = PeriodicEvaluation(
                    alone,
                    EvaluationContext(
                        self.static,
                        SharedRows(),
                        dictionary,
                        environment,
                        EngineLimits().join_rows,
                    ),
                )
            except UnsupportedQueryError as error:
                raise UnsupportedContinuousQueryError(str(error)) from error
            except TooManyStaticError:
                raise UnsupportedContinuousQueryError(
                    "its static patterns have far more solutions together than triples"
                ) from None
            return list(evaluation.answers(0).rows())


def _window(clause: StreamClause) -> LogicalWindow:
    assert isinstance(clause.window, LogicalWindow)
    return clause.window


@dataclass(frozen=True, slots=True)
class _Retained:
    """Elements of batches, in Spark's memory or in a file of Parquet."""

    numbers: tuple[int, ...]
    frame: DataFrame
    last: int
    count: int
    level: int = 0
    file: str | None = None

    @property
    def is_merged(self) -> bool:
        return self.file is None or self.count < _FEW


class _Pane(NamedTuple):
    level: int
    batches: frozenset[int]
    frame: Frame


class KeptPanes:
    """What is computed of batches for many windows, merged as in a log-structured tree.

    A local checkpoint is lost with its executor: what needs it fails.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, list[_Pane]] = {}

    def clear(self) -> bool:
        """Compute everything anew; false: nothing was kept."""
        had = bool(self._known)
        self._known.clear()
        return had

    def frame(
        self,
        name: Hashable,
        batches: Sequence[_Retained],
        compute: Callable[[Sequence[_Retained]], Frame],
    ) -> Frame:
        """Return what is computed of batches; compute what is not kept."""
        numbers = {number for each in batches for number in each.numbers}
        panes = [each for each in self._known.get(name, ()) if each.batches & numbers]
        kept = {number for each in panes for number in each.batches}
        new = [each for each in batches if not kept.issuperset(each.numbers)]
        if any(kept.intersection(each.numbers) for each in new):
            panes, new = [], list(batches)
        if new:
            seen = frozenset(number for each in new for number in each.numbers)
            panes.append(_Pane(0, seen, _checkpointed(compute(new))))
        for level in itertools.count():
            same = [each for each in panes if each.level == level]
            if len(same) < _MERGED:
                break
            seen = frozenset(number for each in same for number in each.batches)
            frame = _united(same)
            larger = _Pane(level + 1, seen, _checkpointed(replace(frame, data=merged(frame.data))))
            panes = [larger, *(each for each in panes if each.level != level)]
        self._known[name] = panes
        return _united(panes)


def _united(panes: Sequence[_Pane]) -> Frame:
    frame = panes[0].frame
    data = reduce(DataFrame.unionAll, [each.frame.data for each in panes])
    return replace(frame, data=data.coalesce(data.sparkSession.sparkContext.defaultParallelism))


def _checkpointed(frame: Frame) -> Frame:
    return replace(frame, data=frame.data.localCheckpoint(eager=False))


class SharedPlan:
    """Queries of one shape, evaluated together."""

    def __init__(self, session: SparkSession, queries: Sequence[WindowQuery]) -> None:
        self._session = session
        self.queries: dict[tuple[Term, ...], list[WindowQuery]] = {}
        for each in queries:
            self.queries.setdefault(each.constants, []).append(each)
        (self._query, *_), *_ = self.queries.values()
        self.graph = Shape.parameterised(self._query.graph, list(self.queries))
        self.variables = () if self.graph.query.form == "ASK" else in_scope(self.graph.pattern)
        self._cache: dict[object, DataFrame] = {}
        self._panes = KeptPanes()

    def forget(self) -> bool:
        """Compute panes anew; false: there are none."""
        return self._panes.clear()

    def close(self) -> None:
        """Free what Spark keeps for it."""
        for each in self._cache.values():
            each.unpersist()

    def frame(
        self,
        batches: Sequence[_Retained],
        elements: Callable[[Sequence[_Retained]], DataFrame],
        instants: Sequence[int],
    ) -> DataFrame:
        """Answer at each of these instants: `AT`, `QUERY`, `RANK`, and the values of variables.

        With the columns `earlier` and `later` (see `Repetitions`), nothing is made distinct.
        """
        every = elements(batches)
        streams = {each.stream for each in self.graph.clauses}
        disjoint = (
            "earlier" in every.columns
            and not self.graph.stamps
            and len(streams) == len(self.graph.clauses)
        )

        def kept(name: Hashable, compute: Callable[[DataFrame], Frame]) -> Frame:
            def computed(part: Sequence[_Retained]) -> Frame:
                tasks = max(1, sum(each.count for each in part) // _OF_A_TASK)
                content = self._content(elements(part), disjoint, rounded=True)
                return compute(content.coalesce(tasks))

            return self._panes.frame(name, batches, computed)

        paned = kept if disjoint and len(batches) >= _PANED else None
        return self.frame_of(self._content(every, disjoint), instants, disjoint, paned)

    def _content(self, elements: DataFrame, disjoint: bool, *, rounded: bool = False) -> DataFrame:
        """Add the instants at which elements are in a window; `rounded`: to its own."""
        parts = []
        for clause in self.graph.clauses:
            window = _window(clause)
            begin, end = "ts", f"ts + {window.range}L"
            if disjoint:
                begin = f"greatest({begin}, earlier + {window.range}L)"
                end = f"greatest({begin}, least({end}, later))"
            if rounded or window.step != self.graph.instants.greatest_common_period:
                # There are instants of others, between those of this window.
                begin, end = (f"{at} + pmod(-({at}), {window.step}L)" for at in (begin, end))
            part = elements.where(sql.col("stream") == str(clause.stream))
            part = part.selectExpr(*_ELEMENT, f"{begin} AS `from`", f"{end} AS `to`")
            parts.append(part)
        return reduce(DataFrame.unionAll, parts)

    def frame_of(
        self,
        content: DataFrame,
        instants: Sequence[int],
        disjoint: bool = False,
        kept: Callable[[Hashable, Callable[[DataFrame], Frame]], Frame] | None = None,
    ) -> DataFrame:
        """Answer from elements: stream, ts, s, p, o, and the instants `from` and before (`to`).

        `disjoint`: see `LeafFrames`; `kept` computes of the elements of each batch once.
        """
        first, common = instants[0], self.graph.instants.greatest_common_period
        bits = (instants[-1] - first) // common < _BITS
        moments = ", ".join(f"({at}L, {1 << (at - first) // common % _BITS}L)" for at in instants)
        # As data: literals would be compiled.
        table = self._values(moments, f"{AT}, {BIT}")
        since = sql.broadcast(self._values(f"({first}L)", "first"))
        content = content.select(*_ELEMENT, "from", "to")
        if bits:
            content = _with_bits(content.crossJoin(since), common, "`from`", "`to`")
        queries = self._session.range(0, len(self.queries), 1, 1).selectExpr(
            f"CAST(id AS int) AS {QUERY}"
        )
        leaves = LeafFrames(
            self._session, self.graph, self._query.static_rows, content,
            Evaluations(table, queries, bits), self._cache, disjoint,
        )  # fmt: skip

        def panes(name: Hashable, compute: Callable[[LeafFrames], Frame]) -> Frame:
            def computed(part: DataFrame) -> Frame:
                own = part.select(*_ELEMENT, sql.struct("from", "to").alias(INSIDE))
                return compute(replace(leaves, content=own))

            assert kept is not None
            frame = kept(name, computed)
            data = frame.data.crossJoin(since)
            data = _with_bits(data, common, f"{INSIDE}.from", f"{INSIDE}.to")
            return replace(frame, data=data, of=leaves.of)

        if kept is not None and bits:
            data = Translation(replace(leaves, panes=panes)).answer()
        else:
            data = Translation(leaves).answer()
        values = [sql.col(column(name)) for name in self.variables]
        return data.select(
            AT, QUERY, RANK, sql.array(*values).cast("array<string>").alias("values")
        )

    def answers(
        self,
        rows: Sequence[tuple[int, int, int, Sequence[str | None]]],
        instants: Sequence[int],
    ) -> Iterator[tuple[WindowQuery, list[PeriodicAnswer]]]:
        """Split the rows by query and instant."""
        result: dict[tuple[int, int], list[tuple[int, Row]]] = {}
        for at, query, rank, values in rows:
            row = tuple([None if each is None else Term(each) for each in values])
            result.setdefault((at, query), []).append((rank, row))
        for index, queries in enumerate(self.queries.values()):
            solutions = {}
            for at in instants:
                ranked = result.get((at, index), [])
                solutions[at] = [row for _, row in sorted(ranked, key=lambda each: each[0])]
            for each in queries:
                yield (
                    each,
                    [
                        answer_of(each.name, at, each.graph.query, self.variables, solutions[at])
                        for at in instants
                    ],
                )

    def _values(self, rows: str, names: str) -> DataFrame:
        return self._session.sql(f"SELECT * FROM VALUES {rows} AS data({names})")  # noqa: S608


def _with_bits(data: DataFrame, period: int, begin: str, end: str) -> DataFrame:
    before = (
        f"shiftleft(1L, CAST(greatest(0, least({_BITS}, "
        f"({{}} - first + {period - 1}) div {period})) AS int))"
    )
    names = [f"`{name}`" for name in data.columns if name not in (INSIDE, "first")]
    bits = f"{before.format(end)} - {before.format(begin)} AS {INSIDE}"
    return data.selectExpr(*names, bits).where(f"{INSIDE} <> 0")


class _StreamCounts(NamedTuple):
    stream: Term
    lines: int
    malformed: int
    late: int
    first: int | None
    last: int | None
    until: int | None
    wrong: str | None


def _elements(stream: Term, at: Sequence[int], ends: Mapping[Term, int]) -> _StreamCounts:
    end = ends.get(stream)
    late = 0 if end is None else sum(each <= end for each in at)
    return _StreamCounts(stream, len(at), 0, late, min(at), max(at), None, None)


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of a run.

    Args:
        late: elements that came after an instant of theirs.
        malformed: lines that were left out.
    """

    batches: int = 0
    lines: int = 0
    late: int = 0
    malformed: int = 0


class _Due(NamedTuple):
    plan: SharedPlan
    instants: tuple[int, ...]
    answer: Callable[[], DataFrame]
    frame: DataFrame


Answered = tuple[WindowQuery, list[PeriodicAnswer] | ContinuousError]
"""The answers of a query in a batch, or why there are none."""


class MicroBatches:
    """The elements of streams, and the queries over them.

    Args:
        answers: where executors write them.
        waits: of queries.
        strict: a malformed line is an error; otherwise it is counted.

    Attributes:
        malformed: the malformed lines of the last batch.
    """

    def __init__(
        self,
        session: SparkSession,
        answers: Folder,
        waits: Waits = NO_WAITS,
        *,
        strict: bool = True,
    ) -> None:
        self.progress = Progress()
        self._written = answers
        self.malformed: DataFrame | None = None
        self._session = session
        self._streams: defaultdict[Term, StreamClock] = defaultdict(StreamClock)
        self._clocks = StreamClocks(self._streams, waits)
        self._strict = strict
        self._retained: list[_Retained] = []
        self._plans: dict[tuple[WindowQuery, ...], SharedPlan] = {}
        self._repetitions = Repetitions()
        self._compared_from: int | None = None

    def admit(self, query: WindowQuery, number: int) -> None:
        """Let a query see batches from this number on, the next."""
        query.since = number
        # What only others see must not hide what comes again.
        self._repetitions = Repetitions()
        self._compared_from = number

    def parquet(self, triples: Mapping[Term, Sequence[StreamedTriple]]) -> pa.Buffer:
        """Make the file of the next batch."""
        columns = zip(*itertools.chain.from_iterable(triples.values()), strict=True)
        names = pa.array([str(stream) for stream, each in triples.items() for _ in each])
        earlier, later = map(
            np.concatenate,
            zip(*(self._repetitions.add(*each) for each in triples.items()), strict=True),
        )
        arrays = [
            names,
            *map(pa.array, columns),
            pa.array(earlier, mask=earlier == _INT64.min),
            pa.array(later, mask=later == _INT64.max),
        ]
        written = pa.BufferOutputStream()
        pq.write_table(pa.table(arrays, names=[*_ELEMENT, *_COMPARED]), written)
        return written.getvalue()

    @property
    def retained(self) -> tuple[int, ...]:
        """The numbers of batches that windows need."""
        return tuple(number for each in self._retained for number in each.numbers)

    def restore(
        self, number: int, files: Mapping[Term, Sequence[str]], queries: Sequence[WindowQuery]
    ) -> None:
        """Take a batch whose instants are answered."""
        self._read(number, files, queries)

    def process(
        self,
        number: int,
        files: Mapping[Term, Sequence[str]],
        queries: Sequence[WindowQuery],
        told: int | None = None,
        present: int | None = None,
        timestamps: Mapping[Term, Sequence[int]] | None = None,
    ) -> list[Answered]:
        """Take files of streams, of which all up to `told` have come; answer what is due.

        With `timestamps` of all elements there is one file, of `parquet`.

        Raises:
            ContinuousError: a malformed line.
        """
        counts = self._read(number, files, queries, timestamps)
        for each in counts:
            if each.last is not None:
                self._streams[each.stream].came(each.last)
            if each.until is not None:
                self.complete(each.stream, each.until)
        self._clocks.told = self._clocks.told if told is None else told
        self._clocks.present = ENDLESS if present is None else present
        before = self.progress
        self.progress = Progress(
            before.batches + 1,
            before.lines + sum(each.lines for each in counts),
            before.late + sum(each.late for each in counts),
            before.malformed + sum(each.malformed for each in counts),
        )
        answers = self._answers(queries)
        self._forget(queries)
        return answers

    def close(self) -> None:
        """Free what Spark keeps of elements and plans."""
        for each in self._retained:
            each.frame.unpersist()
        for plan in self._plans.values():
            plan.close()

    @property
    def completed(self) -> dict[Term, int]:
        """The timestamp up to which all elements of each stream have come."""
        return {each: self._clocks.passed((each,), ()) for each in self._streams}

    def complete(self, stream: Term, until: int) -> None:
        """Note that all elements of a stream up to a timestamp came."""
        self._streams[stream].came(until + 1 + self._clocks.waits.lateness)

    def _read(
        self,
        number: int,
        files: Mapping[Term, Sequence[str]],
        queries: Sequence[WindowQuery],
        timestamps: Mapping[Term, Sequence[int]] | None = None,
    ) -> list[_StreamCounts]:
        paths = [path for each in files.values() for path in each]
        if not paths:
            return []
        ends, file = self._ends(queries), None
        if timestamps is None:
            texts = [
                _parsed(self._session.read.schema("value string").text(list(each)), stream)
                for stream, each in files.items()
                if each
            ]
            frame = reduce(DataFrame.unionAll, texts).persist()
            counts = self._counted(frame, ends)
        else:
            (file,) = paths
            frame = self._session.read.schema(_PARQUET).parquet(file)
            counts = [_elements(stream, each, ends) for stream, each in timestamps.items()]
        wrong = [each.wrong for each in counts if each.wrong is not None]
        if wrong and self._strict:
            frame.unpersist()
            raise ContinuousError(f"the run on Spark failed: malformed line: {wrong[0]}")
        self.malformed = frame.where("malformed IS NOT NULL").select("malformed") if wrong else None
        firsts = {each.stream: each.first for each in counts if each.first is not None}
        for query in queries:
            if query.last is None and query.since <= number:
                mine = [firsts[c.stream] for c in query.graph.clauses if c.stream in firsts]
                known = [] if query.first is None else [query.first]
                query.first = min([*mine, *known], default=None)
        lasts = [each.last for each in counts if each.last is not None]
        if lasts:
            count = sum(each.lines for each in counts)
            self._retained.append(_Retained((number,), frame, max(lasts), count, file=file))
        else:
            frame.unpersist()
        return counts

    def _counted(self, frame: DataFrame, ends: Mapping[Term, int]) -> list[_StreamCounts]:
        is_element = sql.col("s").isNotNull()
        # As Arrow: of a list, a worker of Python would make the one row.
        row = pa.array([list(ends.items())], pa.map_(pa.string(), pa.int64()))
        known = self._session.createDataFrame(pa.table({"ends": row}))
        rows = (
            frame.crossJoin(sql.broadcast(known))
            .groupBy("stream")
            .agg(
                sql.count("*"),
                sql.count("malformed"),
                sql.count_if(is_element & (sql.col("ts") <= sql.try_element_at("ends", "stream"))),
                sql.min(sql.when(is_element, sql.col("ts"))),
                sql.max(sql.when(is_element, sql.col("ts"))),
                sql.max(sql.when(~is_element, sql.col("ts"))),
                sql.min("malformed"),
            )
        )
        return [_StreamCounts(*row) for row in rows.collect()]

    def _ends(self, queries: Sequence[WindowQuery]) -> dict[Term, int]:
        ends: dict[Term, int] = {}
        for query in queries:
            for clause in query.graph.clauses if query.last is not None else ():
                assert query.last is not None
                _, end = _window(clause).bounds(query.last)
                ends[clause.stream] = max(end, ends.get(clause.stream, end))
        return ends

    # ------------------------------------------------------------------------------ answers

    def _answers(self, queries: Sequence[WindowQuery]) -> list[Answered]:
        groups: dict[tuple[Shape, tuple[int, ...], int], list[WindowQuery]] = {}
        oldest = min(self.retained, default=0)
        for query in queries:
            if instants := query.due(self._clocks):
                key = (query.shape, instants, max(query.since, oldest))
                groups.setdefault(key, []).append(query)
        plans = {
            members: self._plans.get(members) or SharedPlan(self._session, members)
            for members in [tuple(group) for group in groups.values()]
        }
        # Those whose queries are not due now will be.
        waiting = set(queries).difference(*plans)
        kept = {of: plan for of, plan in self._plans.items() if waiting.issuperset(of)} | plans
        for members in self._plans.keys() - kept.keys():
            self._plans[members].close()
        self._plans = kept
        result: list[Answered] = []
        due: list[_Due] = []
        for ((_, instants, since), group), plan in zip(groups.items(), plans.values(), strict=True):
            seen = [each for each in self._retained if each.numbers[0] >= since]
            answer = partial(plan.frame, seen, self._elements, instants)
            try:
                due.append(_Due(plan, instants, answer, answer()))
            except ContinuousError as error:
                result += [(each, error) for each in group]
        for each, rows in zip(due, self._rows(due), strict=True):
            if isinstance(rows, ContinuousError):
                result += [(query, rows) for of in each.plan.queries.values() for query in of]
            else:
                result += each.plan.answers(rows, each.instants)
        for query, answers in result:
            if not isinstance(answers, ContinuousError):
                query.answered(answers[-1].at)
        return result

    def _elements(self, seen: Sequence[_Retained]) -> DataFrame:
        files = [each.file for each in seen if each.file is not None]
        # Of lines with a timestamp alone there is no subject.
        frames = [each.frame.where("s IS NOT NULL") for each in seen if each.file is None]
        if not seen:
            return self._session.createDataFrame([], _PARQUET)
        if files:
            frames.append(self._session.read.schema(_PARQUET).parquet(*files))
        names = [*_ELEMENT]
        if self._compared_from is not None and seen[0].numbers[0] >= self._compared_from:
            names += _COMPARED
        return reduce(DataFrame.unionAll, [each.select(*names) for each in frames])

    def _rows(self, due: Sequence["_Due"]) -> list[Any]:
        """Run all in one job; if it fails, one by one."""
        if not due:
            return []
        numbered = [
            each.frame.withColumn("plan", sql.lit(number)) for number, each in enumerate(due)
        ]
        result: list[Any] = [[] for _ in due]
        tasks = sum(each.count for each in self._retained) // _OF_A_TASK
        if tasks > 1:
            # A cluster has more cores than a small batch is worth to be sent to.
            tasks = min(tasks, self._session.sparkContext.defaultParallelism)
            self._session.conf.set("spark.sql.shuffle.partitions", str(tasks))
        try:
            # Not to the driver, whose Java could not hold them all.
            with java_answers():
                frame = reduce(DataFrame.unionAll, numbered)
                frame.write.parquet(self._written.url, mode="overwrite")
        except SparkJobError as error:
            if len(due) > 1:
                return [self._rows([each])[0] for each in due]
            if due[0].plan.forget():
                # An executor may be lost, and what it had of batches.
                return self._rows([due[0]._replace(frame=due[0].answer())])
            return [ContinuousError(str(error))]
        for name in self._written.names():
            if name.endswith(".parquet"):
                table = pq.read_table(pa.BufferReader(self._written.read(name)))
                for *row, number in zip(*(each.to_pylist() for each in table), strict=True):
                    result[number].append(row)
        self._written.remove()
        return result

    # ------------------------------------------------------------------------------ elements

    def _forget(self, queries: Sequence[WindowQuery]) -> None:
        needs = [each.needs_after for each in queries]
        after = min((each for each in needs if each is not None), default=None)
        self._repetitions.forget(after)
        for each in self._retained:
            if after is None or each.last <= after:
                each.frame.unpersist()
        if after is None:
            self._retained = []
            return
        self._retained = [each for each in self._retained if each.last > after]
        starts = {each.since for each in queries}
        for level in range(max((each.level for each in self._retained), default=-1) + 1):
            same = [e for e in self._retained if e.level == level and e.is_merged][:_MERGED]
            low, high = same[0].numbers[0] if same else 0, same[-1].numbers[-1] if same else 0
            if len(same) < _MERGED or any(low < start <= high for start in starts):
                continue
            frame = reduce(DataFrame.unionAll, [each.frame for each in same])
            frame = frame.where(sql.col("ts") > after).coalesce(2).persist()
            frame.count()
            for each in same:
                each.frame.unpersist()
            numbers = tuple(number for each in same for number in each.numbers)
            last, count = max(each.last for each in same), sum(each.count for each in same)
            merged = _Retained(numbers, frame, last, count, level + 1)
            index = self._retained.index(same[0])
            rest = [each for each in self._retained if each not in same]
            self._retained = [*rest[:index], merged, *rest[index:]]


def _parsed(text: DataFrame, stream: Term) -> DataFrame:
    # One text each: to make columns one by one takes Spark longer than to read a small batch.
    lines = text.selectExpr(
        "value", f"value RLIKE r'{LINE}' AS well", r"split(value, '\t', 4) AS parts"
    )
    return lines.select(
        sql.lit(str(stream)).alias("stream"),
        sql.expr("CASE WHEN well THEN try_cast(get(parts, 0) AS bigint) END AS ts"),
        sql.expr("CASE WHEN well THEN get(parts, 1) END AS s"),
        sql.expr("CASE WHEN well THEN get(parts, 2) END AS p"),
        sql.expr("CASE WHEN well THEN get(parts, 3) END AS o"),
        sql.expr("CASE WHEN NOT well THEN value END AS malformed"),
    )
