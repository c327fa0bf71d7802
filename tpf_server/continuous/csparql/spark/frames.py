"""Solutions as data frames: a column for each variable, and the instant where it matters.

What comes from windows is *timed*: its column `AT` is the instant of the evaluation that sees the
row, so one job evaluates many instants, and joins and groups by the instant beside everything else.
What is static is not timed, and belongs to every instant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import pyarrow
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from annotations.terms import QuadPattern, Variable, is_variable
from tpf_client.sparql.algebra import BGP, Pattern, Row, variables_of_bgp, variables_of_quad
from tpf_client.sparql.rewrite.join_order import components, greedy_order
from tpf_client.sparql.scopes import in_scope
from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.csparql.spark import terms

AT = "at"
RANK = "rank"
"""The column of the place in the order of the answer."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Solutions.

    Args:
        data: a column `column(v)` for each variable, and `AT` where it is timed.
        certain: those that are never null.
        timed: whether the rows belong to instants.
    """

    data: DataFrame
    schema: tuple[Variable, ...]
    certain: frozenset[Variable]
    timed: bool

    @property
    def time(self) -> list[str]:
        """The column of the instant, if there is one."""
        return [AT] if self.timed else []

    def columns(self) -> dict[Variable, Column]:
        """The columns of the variables, for expressions."""
        return {name: sql.col(column(name)) for name in self.schema}

    def where(self, condition: Column) -> "Frame":
        """The rows for which a condition is true."""
        return replace(self, data=self.data.where(condition))

    def project(self, names: Sequence[Variable]) -> "Frame":
        """Only these variables; those that are not there are null."""
        wanted = [
            sql.col(column(name))
            if name in self.schema
            else sql.lit(None).cast("string").alias(column(name))
            for name in names
        ]
        return Frame(
            self.data.select(*self.time, *wanted),
            tuple(names),
            self.certain & frozenset(names),
            self.timed,
        )

    def extend(self, name: Variable, value: Column) -> "Frame":
        """One more variable."""
        return Frame(
            self.data.withColumn(column(name), value),
            (*self.schema, name),
            self.certain,
            self.timed,
        )

    def at_all(self, steps: DataFrame) -> "Frame":
        """The same rows at each instant of `steps`, where they belong to every instant."""
        if self.timed:
            return self
        return replace(self, data=self.data.crossJoin(sql.broadcast(steps)), timed=True)


def column(name: Variable) -> str:
    """The name of a variable's column."""
    return "v_" + "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in name[1:])


def join(left: Frame, right: Frame) -> Frame:
    """Compatible solutions of two frames (SPARQL 1.1, section 18.3)."""
    return _joined(left, right, "inner", None)


def join_untimed_too(left: Frame, timed: Frame, untimed: Frame) -> Frame:
    """A timed frame joined with the solutions of two others, of the same schema, in one join."""
    moments = untimed.data.withColumn(AT, sql.lit(None).cast("long"))
    both = replace(
        timed,
        data=timed.data.unionByName(moments),
        certain=timed.certain & untimed.certain,
    )
    return _joined(left, both, "inner", None, always=True)


def left_join(left: Frame, right: Frame, condition: Column | None) -> Frame:
    """OPTIONAL; both frames are timed or the right one is not."""
    return _joined(left, right, "left", condition)


def semi_join(left: Frame, right: Frame, *, anti: bool, apart: Sequence[Variable] = ()) -> Frame:
    """The solutions of the left with (or without) a compatible one on the right."""
    right, renamed = _renamed(right, right.schema)
    conditions = [_compatible(left, right, renamed)]
    if apart:
        counted = [name for name in left.schema if name in renamed and name not in apart]
        both = [
            sql.col(column(name)).isNotNull() & sql.col(renamed[name]).isNotNull()
            for name in counted
        ]
        conditions.append(reduce(lambda a, b: a | b, both, sql.lit(False)))
    data = left.data.join(
        right.data, reduce(and_, conditions), "left_anti" if anti else "left_semi"
    )
    return replace(left, data=data)


def union(left: Frame, right: Frame) -> Frame:
    """The solutions of both; both are timed or none is."""
    names = tuple(dict.fromkeys((*left.schema, *right.schema)))
    data = left.project(names).data.unionByName(right.project(names).data)
    return Frame(data, names, left.certain & right.certain, left.timed)


def _renamed(frame: Frame, names: Sequence[Variable]) -> tuple[Frame, dict[Variable, str]]:
    """The frame with other names for these columns and its instant, and the names."""
    renamed = {name: "r_" + column(name) for name in names}
    data = frame.data.withColumnsRenamed(
        {column(name): new for name, new in renamed.items()} | {AT: "r_" + AT}
    )
    return replace(frame, data=data), renamed


def _compatible(
    left: Frame, right: Frame, renamed: dict[Variable, str], *, always: bool = False
) -> Column:
    """Whether two rows agree; with `always` a row of the right without an instant is at each."""
    conditions = [sql.lit(True)]
    if left.timed and right.timed:
        other = sql.col("r_" + AT)
        conditions = [(sql.col(AT) == other) | other.isNull()] if always else [sql.col(AT) == other]
    for name in left.schema:
        if name in renamed:
            mine, yours = sql.col(column(name)), sql.col(renamed[name])
            same = mine == yours
            if name not in left.certain:
                same = same | mine.isNull()
            if name not in right.certain:
                same = same | yours.isNull()
            conditions.append(same)
    return reduce(and_, conditions)


def _joined(
    left: Frame, right: Frame, how: str, condition: Column | None, *, always: bool = False
) -> Frame:
    shared = [name for name in left.schema if name in right.schema]
    own = tuple(name for name in right.schema if name not in left.schema)
    renamed_right, renamed = _renamed(right, shared)
    matches = _compatible(left, renamed_right, renamed, always=always)
    if condition is not None:
        matches = matches & condition
    data = left.data.join(renamed_right.data, matches, how)
    columns = [
        sql.coalesce(sql.col(column(name)), sql.col(renamed[name])).alias(column(name))
        if name in renamed and name not in left.certain
        else sql.col(column(name))
        for name in left.schema
    ]
    timed = left.timed or right.timed
    at = [sql.col(AT if left.timed else "r_" + AT).alias(AT)] if timed else []
    certain = left.certain | (right.certain if how == "inner" else frozenset())
    return Frame(
        data.select(*at, *columns, *(column(name) for name in own)),
        (*left.schema, *own),
        certain,
        timed,
    )


def distinct(frame: Frame) -> Frame:
    """Each solution once."""
    if RANK not in frame.data.columns:
        return replace(frame, data=frame.data.dropDuplicates())
    names = [name for name in frame.data.columns if name != RANK]
    return replace(frame, data=frame.data.groupBy(*names).agg(sql.min(RANK).alias(RANK)))


def sliced(frame: Frame, offset: int, limit: int | None) -> Frame:
    """OFFSET and LIMIT, at each instant."""
    order = RANK if RANK in frame.data.columns else sql.lit(0)
    within = Window.partitionBy(*frame.time).orderBy(order)
    data = frame.data.withColumn(RANK, sql.row_number().over(within))
    place = sql.col(RANK)
    condition = place > offset
    if limit is not None:
        condition = condition & (place <= offset + limit)
    return replace(frame, data=data.where(condition))


# Basic graph patterns to data frames.
#
# Static graph patterns are evaluated once by our own SPARQL engine. A pattern that may match
# static and streaming triples is joined in two parts, so that static rows are not repeated for
# each instant.

StaticAnswers = Callable[[OperatorGraph, Pattern], list[Row]]
"""The solutions of a pattern over static data alone, with its variables in scope as columns."""


@dataclass(frozen=True)
class LeafFrames:
    """The leaves of a query.

    Args:
        static: evaluates what is static.
        content: what is in the windows: `AT`, ``stream``, ``s``, ``p``, ``o`` and ``ts``, the
            latest timestamp of the triple in milliseconds; a triple of a stream is there once.
        steps: the instants, in a column `AT`.
        cache: static frames, kept from one use to the next.
    """

    session: SparkSession
    graph: OperatorGraph
    static: StaticAnswers
    content: DataFrame
    steps: DataFrame
    cache: dict[object, DataFrame]

    def rows(
        self, variables: Sequence[Variable], rows: Sequence[Row], certain: frozenset[Variable]
    ) -> Frame:
        """Solutions that are there."""
        if not variables:
            data = self.session.range(0, len(rows), 1, 1).select()
        else:
            arrays = [
                pyarrow.array([row[place] for row in rows], pyarrow.string())
                for place in range(len(variables))
            ]
            table = pyarrow.table(arrays, names=[column(name) for name in variables])
            data = self.session.createDataFrame(table)
        return Frame(data, tuple(variables), certain, timed=False)

    def static_frame(self, pattern: Pattern) -> Frame:
        """What a SPARQL engine answers over static data, materialised once."""
        variables = in_scope(pattern)
        data = self.cache.get(pattern)
        if data is None:
            rows = self.static(self.graph, pattern)
            data = self.rows(variables, rows, frozenset()).data.persist()
            self.cache[pattern] = data
        return Frame(data, variables, frozenset(variables), timed=False)

    def bgp(self, patterns: Sequence[QuadPattern]) -> Frame:
        """The solutions of a basic graph pattern."""
        if not patterns:
            return self.rows((), [()], frozenset())
        static = [
            each._replace(graph=self.graph.graph_of(each))
            for each in patterns
            if self.graph.part_of(each) == "static"
        ]
        streaming = [each for each in patterns if self.graph.part_of(each) == "streaming"]
        mixed = [each for each in patterns if self.graph.part_of(each) == "mixed"]
        parts: list[Frame | QuadPattern] = [self._streaming(each) for each in streaming]
        parts += [
            self.static_frame(BGP(tuple(each))) for each in components(static, variables_of_quad)
        ]
        result: Frame | None = None
        # Patterns that may match both come after the frames that are connected.
        for each in greedy_order(
            [*parts, *mixed],
            lambda each: each.schema if isinstance(each, Frame) else variables_of_quad(each),
            lambda each, _: not isinstance(each, Frame),
        ):
            if isinstance(each, Frame):
                result = each if result is None else join(result, each)
            else:
                result = self._join_mixed(result, each)
        assert result is not None
        return result.project(variables_of_bgp(tuple(patterns)))

    def _join_mixed(self, frame: Frame | None, pattern: QuadPattern) -> Frame:
        """Join the matches of a pattern: those in windows, and the static ones beside them."""
        streaming = self._streaming(pattern)
        plain = pattern._replace(graph=self.graph.graph_of(pattern))
        static = self.static_frame(BGP((plain,)))
        seen = streaming.project(static.schema)
        if frame is None or not set(frame.schema) & set(static.schema):
            beside = semi_join(static.at_all(self.steps), seen, anti=True)
            both = union(streaming, beside)
            return both if frame is None else join(frame, both)
        if frame.timed and not is_variable(pattern.graph):
            # A plan that had the frame twice would double with every such pattern.
            return join_untimed_too(frame, semi_join(streaming, static, anti=True), static)
        # A triple with a timestamp stands for the static one.
        inside = join(frame, streaming)
        beside = semi_join(join(frame, static).at_all(self.steps), seen, anti=True)
        return union(inside, beside)

    def _streaming(self, pattern: QuadPattern) -> Frame:
        """The matches of a triple pattern in windows."""
        source = self.graph.source_of(pattern)
        data = self.content.where(sql.col("stream").isin(*map(str, source.streams)))
        places: dict[str, str] = {}
        for place, each in zip("spo", pattern[:3], strict=True):
            if not is_variable(each):
                data = data.where(sql.col(place) == str(each))
            elif each in places:
                data = data.where(sql.col(place) == sql.col(places[each]))
            else:
                places[each] = place
        columns = [sql.col(place).alias(column(Variable(name))) for name, place in places.items()]
        schema = tuple(Variable(name) for name in places)
        certain = frozenset(schema)
        if is_variable(pattern.graph):
            name = Variable(pattern.graph)
            streams = self.graph.stamps[name].streams
            counts = sql.col("stream").isin(*map(str, streams))
            stamp = sql.max(sql.when(counts, sql.col("ts")))
            data = data.groupBy(AT, "s", "p", "o").agg(stamp.alias("ts"))
            columns.append(terms.integer(sql.col("ts")).alias(column(name)))
            schema = (*schema, name)
        elif len(source.streams) > 1:
            data = data.dropDuplicates([AT, "s", "p", "o"])
        return Frame(data.select(AT, *columns), schema, certain, timed=True)
