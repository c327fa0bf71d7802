"""Translate operators to data frames."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial, reduce
from itertools import count
from operator import and_

import pyarrow
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType

from annotations.namespaces import XSD
from annotations.terms import QuadPattern, Term, Variable, is_variable, literal
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
    Aggregated,
    Call,
    Exists,
    Expression,
    Filter,
    Group,
    Path,
    Pattern,
    Row,
    VariableRef,
    variables_of_bgp,
    variables_of_quad,
    walk,
)
from tpf_client.sparql.expressions.operators import add, quotient
from tpf_client.sparql.expressions.values import (
    FALSE,
    TRUE,
    EvaluationError,
    Single,
    divide,
    term_of,
    value_of,
)
from tpf_client.sparql.rewrite.join_order import components, greedy_order
from tpf_client.sparql.rewrite.visitor import conjuncts, first_exists, operands
from tpf_client.sparql.scopes import always_bound, in_scope, mentioned
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph
from tpf_server.continuous.spark import terms
from tpf_server.continuous.spark.expressions import ComputedApart, Expressions
from tpf_server.continuous.spark.parameters import instance_of, parameters_of
from tpf_server.continuous.spark.terms import AT, QUERY

RANK = "rank"
"""The column of the place in the order of the answer."""
INSIDE = "inside"
"""The column of a number with a bit for each instant."""
BIT = "bit"
"""The bit of an instant."""


@dataclass(frozen=True, eq=False, slots=True)
class Evaluations:
    """The instants and queries of a plan.

    Args:
        instants: in a column `AT`, with their `BIT`.
        queries: their numbers, in a column `QUERY`.
        bits: a number has enough of them for all instants.
    """

    instants: DataFrame
    queries: DataFrame
    bits: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """Solutions.

    Args:
        data: a column `column(v)` for each variable, and those of `time`.
        certain: variables that are never null.
        time: when and for which queries a row is there: an instant (`AT`) or bits of instants
            (`INSIDE`), and `QUERY`. Without the one it is there at each instant, without the other
            for all queries.
    """

    data: DataFrame
    schema: tuple[Variable, ...]
    certain: frozenset[Variable]
    of: Evaluations
    time: tuple[str, ...] = ()

    def columns(self) -> dict[Variable, Column]:
        return {name: sql.col(column(name)) for name in self.schema}

    def where(self, condition: Column) -> "Frame":
        return replace(self, data=self.data.where(condition))

    def project(self, names: Sequence[Variable]) -> "Frame":
        """Keep these variables; absent ones are null."""
        columns = [
            sql.col(column(name))
            if name in self.schema
            else sql.lit(None).cast("string").alias(column(name))
            for name in names
        ]
        return replace(
            self,
            data=self.data.select(*self.time, *columns),
            schema=tuple(names),
            certain=self.certain & frozenset(names),
        )

    def extend(self, name: Variable, value: Column) -> "Frame":
        data = self.data.withColumn(column(name), value)
        return replace(self, data=data, schema=(*self.schema, name))

    def by_instant(self) -> "Frame":
        """Repeat rows at each of their instants, if they have bits of them."""
        if INSIDE not in self.time:
            return self
        is_inside = sql.col(INSIDE).bitwiseAND(sql.col(BIT)) != 0
        data = self.data.join(sql.broadcast(self.of.instants), is_inside).drop(INSIDE, BIT)
        return replace(self, data=data, time=(AT, *self.time[1:]))

    def over(self, time: Sequence[str]) -> "Frame":
        """Repeat rows at all instants and for all queries, where they do not depend on them."""
        result = self.by_instant() if AT in time else self
        data, names = result.data, result.time
        if AT in time and AT not in names:
            data, names = data.crossJoin(sql.broadcast(self.of.instants.select(AT))), (AT, *names)
        elif INSIDE in time and not {AT, INSIDE}.intersection(names):
            data, names = data.withColumn(INSIDE, sql.lit(-1).cast("long")), (INSIDE, *names)
        if QUERY in time and QUERY not in names:
            data, names = data.crossJoin(sql.broadcast(self.of.queries)), (*names, QUERY)
        return replace(result, data=data, time=names)


def column(name: Variable) -> str:
    """Name the column of a variable."""
    return "v_" + "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in name[1:])


def join(left: Frame, right: Frame) -> Frame:
    """Join compatible solutions (SPARQL 1.1, section 18.3)."""
    return _joined(*_alike(left, right), "inner", None)


def join_untimed_too(left: Frame, timed: Frame, untimed: Frame) -> Frame:
    """Join with the union of two others, in one join; the second is there at each instant."""
    left, timed = _alike(left, timed)
    always = sql.lit(None if AT in timed.time else -1).cast("long")
    moments = untimed.data.withColumn(timed.time[0], always)
    both = replace(
        timed,
        data=timed.data.unionByName(moments),
        certain=timed.certain & untimed.certain,
    )
    return _joined(left, both, "inner", None, always=True)


def left_join(left: Frame, right: Frame, condition: Column | None) -> Frame:
    """OPTIONAL."""
    return _joined(*_left_repeated(left, right), "left", condition)


def semi_join(left: Frame, right: Frame, *, anti: bool, apart: Sequence[Variable] = ()) -> Frame:
    """Rows of the left with (or without) a compatible one on the right."""
    left, right = _left_repeated(left, right)
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
    """The solutions of both."""
    left, right = _alike(left, right)
    time = tuple(dict.fromkeys((*left.time, *right.time)))
    left, right = left.over(time), right.over(time)
    names = tuple(dict.fromkeys((*left.schema, *right.schema)))
    data = left.project(names).data.unionByName(right.project(names).data)
    certain = left.certain & right.certain
    return replace(left, data=data, schema=names, certain=certain)


def _alike(left: Frame, right: Frame) -> tuple[Frame, Frame]:
    """Let both have instants, or both bits of them, if both depend on them."""
    if AT in left.time or AT in right.time:
        return left.by_instant(), right.by_instant()
    return left, right


def _left_repeated(left: Frame, right: Frame) -> tuple[Frame, Frame]:
    """Let the left side depend on all that the right one depends on, once for each instant."""
    right = right.by_instant()
    return left.over(right.time), right


def _renamed(frame: Frame, names: Sequence[Variable]) -> tuple[Frame, dict[Variable, str]]:
    renamed = {name: "r_" + column(name) for name in names}
    data = frame.data.withColumnsRenamed(
        {column(name): new for name, new in renamed.items()}
        | {name: "r_" + name for name in frame.time}
    )
    return replace(frame, data=data), renamed


def _compatible(
    left: Frame, right: Frame, renamed: dict[Variable, str], *, always: bool = False
) -> Column:
    """True where rows agree; with `always`, right rows without an instant match any."""
    conditions = [sql.lit(True)]
    for name in left.time:
        if name in right.time:
            mine, other = sql.col(name), sql.col("r_" + name)
            if name == INSIDE:
                conditions.append(mine.bitwiseAND(other) != 0)
            elif name == AT and always:
                conditions.append((mine == other) | other.isNull())
            else:
                conditions.append(mine == other)
    for variable in left.schema:
        if variable in renamed:
            mine, yours = sql.col(column(variable)), sql.col(renamed[variable])
            same = mine == yours
            if variable not in left.certain:
                same = same | mine.isNull()
            if variable not in right.certain:
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
    time = [name for name in (AT, INSIDE, QUERY) if name in left.time or name in right.time]
    for name in time:
        mine, other = sql.col(name), sql.col("r_" + name)
        if name not in left.time:
            mine = other
        elif name == INSIDE and name in right.time:
            mine = mine.bitwiseAND(other)
        columns.append(mine.alias(name))
    return replace(
        left,
        data=data.select(*columns, *(column(name) for name in own)),
        schema=(*left.schema, *own),
        certain=left.certain | (right.certain if how == "inner" else frozenset()),
        time=tuple(time),
    )


def distinct(frame: Frame) -> Frame:
    """Each solution once."""
    merged = {INSIDE: sql.bit_or, RANK: sql.min}
    apart = [name for name in merged if name in frame.data.columns]
    if not apart:
        return replace(frame, data=frame.data.dropDuplicates())
    (name,) = apart
    names = [each for each in frame.data.columns if each != name]
    data = frame.data.groupBy(*names).agg(merged[name](name).alias(name))
    # Nothing is grouped to a row of its own where there are no columns.
    return replace(frame, data=data if names else data.where(sql.col(name).isNotNull()))


def sliced(frame: Frame, offset: int, limit: int | None) -> Frame:
    """OFFSET and LIMIT at each instant."""
    frame = frame.by_instant()
    order = RANK if RANK in frame.data.columns else sql.lit(0)
    within = Window.partitionBy(*frame.time).orderBy(order)
    data = frame.data.withColumn(RANK, sql.row_number().over(within))
    index = sql.col(RANK)
    condition = index > offset
    if limit is not None:
        condition = condition & (index <= offset + limit)
    return replace(frame, data=data.where(condition))


# Basic graph patterns to data frames.
#
# Static graph patterns are evaluated once by our own SPARQL engine. A pattern that may match
# static and streaming triples is joined in two parts, so that static rows are not repeated for
# each instant.

StaticAnswers = Callable[[OperatorGraph, Pattern], list[Row]]
"""The solutions of a pattern over static data alone, with its variables in scope as columns."""


Panes = Callable[[Hashable, Callable[["LeafFrames"], Frame]], Frame]
"""Gives named solutions, which are computed once for each batch: there, `INSIDE` is opaque."""


@dataclass(frozen=True)
class LeafFrames:
    """The leaves of a query.

    Args:
        content: elements: stream, ts, s, p, o; the instants at which they are in a window, `from`
            one, before another (`to`); and their bits, in `INSIDE`, if there are bits.
        disjoint: a stream has a triple once at each instant.
        panes: where windows are of many batches.
    """

    session: SparkSession
    graph: OperatorGraph
    static: StaticAnswers
    content: DataFrame
    of: Evaluations
    cache: dict[object, DataFrame]
    disjoint: bool
    panes: Panes | None = None

    def rows(
        self, variables: Sequence[Variable], rows: Sequence[Row], certain: frozenset[Variable]
    ) -> Frame:
        if not variables:
            data = self.session.range(0, len(rows), 1, 1).select()
        else:
            arrays = [
                pyarrow.array([row[index] for row in rows], pyarrow.string())
                for index in range(len(variables))
            ]
            table = pyarrow.table(arrays, names=[column(name) for name in variables])
            data = self.session.createDataFrame(table)
        return Frame(data, tuple(variables), certain, self.of)

    def static_frame(self, pattern: Pattern) -> Frame:
        """Evaluate a static pattern natively, once."""
        variables = in_scope(pattern)
        parameters = parameters_of(pattern)
        data = self.cache.get(pattern)
        if data is None:
            data = self._static_data(pattern, variables, parameters).persist()
            self.cache[pattern] = data
        time = (QUERY,) if parameters else ()
        return Frame(data, variables, frozenset(variables), self.of, time)

    def _static_data(
        self, pattern: Pattern, variables: Sequence[Variable], parameters: Sequence[terms.Parameter]
    ) -> DataFrame:
        if not parameters:
            return self.rows(variables, self.static(self.graph, pattern), frozenset()).data
        rows = [
            (index, *row)
            for index in range(len(parameters[0].values))
            for row in self.static(self.graph, instance_of(pattern, index))
        ]
        names = ", ".join(f"{column(name)} string" for name in variables)
        return self.session.createDataFrame(rows, f"{QUERY} int, {names}".rstrip(", "))

    def bgp(self, patterns: Sequence[QuadPattern]) -> Frame:
        """Join the patterns of a basic graph pattern."""
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
        streaming = self._streaming(pattern)
        plain = pattern._replace(graph=self.graph.graph_of(pattern))
        static = self.static_frame(BGP((plain,)))
        seen = streaming.project(static.schema)
        if frame is None or not set(frame.schema) & set(static.schema):
            both = union(streaming, semi_join(static, seen, anti=True))
            return both if frame is None else join(frame, both)
        if set(frame.time) & {AT, INSIDE} and not is_variable(pattern.graph):
            # A plan that had the frame twice would double with every such pattern.
            return join_untimed_too(frame, semi_join(streaming, static, anti=True), static)
        # A triple with a timestamp stands for the static one.
        beside = semi_join(join(frame, static), seen, anti=True)
        return union(join(frame, streaming), beside)

    def _streaming(self, pattern: QuadPattern) -> Frame:
        source = self.graph.source_of(pattern)
        data = self.content.where(sql.col("stream").isin(*map(str, source.streams)))
        positions: dict[str, str] = {}
        differing: dict[str, terms.Parameter] = {}
        for index, each in zip("spo", pattern[:3], strict=True):
            if isinstance(each, terms.Parameter):
                differing[index] = each
            elif not is_variable(each):
                data = data.where(sql.col(index) == str(each))
            elif each in positions:
                data = data.where(sql.col(index) == sql.col(positions[each]))
            else:
                positions[each] = index
        schema = tuple(Variable(name) for name in positions)
        keys = [sql.col(index).alias(column(Variable(name))) for name, index in positions.items()]
        time: tuple[str, ...] = ()
        if differing:
            table = self.of.queries.select(
                QUERY,
                *(terms.constant(each).alias(f"of_{name}") for name, each in differing.items()),
            )
            equal = [sql.col(name) == sql.col(f"of_{name}") for name in differing]
            data = data.join(sql.broadcast(table), equal)
            keys, time = [sql.col(QUERY), *keys], (QUERY,)
        stamped = is_variable(pattern.graph)
        disjoint = self.disjoint and len(source.streams) == 1
        if self.of.bits and disjoint:
            data = data.select(INSIDE, *keys)
            return Frame(data, schema, frozenset(schema), self.of, (INSIDE, *time))
        if self.of.bits and not stamped:
            # A window is a set: triples are made distinct, also those of several streams.
            data = data.groupBy(*keys).agg(sql.bit_or(INSIDE).alias(INSIDE))
            data = data if keys else data.where(sql.col(INSIDE).isNotNull())
            return Frame(data, schema, frozenset(schema), self.of, (INSIDE, *time))
        at = sql.col(AT)
        is_inside = (sql.col("from") <= at) & (at < sql.col("to"))
        data = data.join(sql.broadcast(self.of.instants.select(AT)), is_inside)
        if not stamped:
            data = data.select(AT, *keys)
            data = data if disjoint else data.dropDuplicates()
            return Frame(data, schema, frozenset(schema), self.of, (AT, *time))
        name = Variable(pattern.graph)
        streams = self.graph.stamps[name].streams
        latest = sql.max(sql.when(sql.col("stream").isin(*map(str, streams)), sql.col("ts")))
        stamp = terms.integer(latest).alias(column(name))
        data = data.groupBy(AT, *keys).agg(stamp)
        return Frame(data, (*schema, name), frozenset(schema), self.of, (AT, *time))


# Set functions in Spark SQL. Sums of integers and decimals are exact; errors are null.

_ARGUMENT = "argument"
_TIMES = "times"
"""The column of how many rows have an argument."""
_PARTS = (_TIMES, "exact", "floating", "highest", "failures", "inexact")
"""Columns of parts of sums and counts; those of several rows make one, see `merged`."""
_BY_VALUE = frozenset({"COUNT", "MIN", "MAX", "SAMPLE"})
"""Set functions that need each argument once, and how often it is there."""
_SUMS = frozenset({"SUM", "AVG"})
_FLOAT = 2
"""The rank of xsd:float; see `terms.rank`."""


def rows_to_group(
    frame: Frame, keys: Sequence[Column], aggregates: Sequence[tuple[Variable, Aggregate]]
) -> list[Frame]:
    """Return time, keys as ``key0``, ``key1``, … and argument for each aggregate."""
    result = []
    named = [key.alias(f"key{index}") for index, key in enumerate(keys)]
    for _, aggregate in aggregates:
        if aggregate.argument is None:
            argument = sql.lit(1)
            if aggregate.distinct:
                visible = [name for name in frame.schema if not name.startswith("?.")]
                argument = sql.struct(*(column(name) for name in visible))
        else:
            argument = Expressions(frame.columns()).binding(aggregate.argument)
            if aggregate.name == "COUNT" and not aggregate.distinct:
                argument = sql.when(argument.isNotNull(), 1)
        rows = frame.data.select(*frame.time, *named, argument.alias(_ARGUMENT))
        if aggregate.distinct:
            rows = distinct(replace(frame, data=rows)).data
        by_value = INSIDE in frame.time and aggregate.name in _BY_VALUE and not aggregate.distinct
        if aggregate.name in _SUMS:
            rows = rows.withColumns(_parts(sql.col(_ARGUMENT))).drop(_ARGUMENT)
        elif by_value:
            rows = rows.withColumn(_TIMES, sql.lit(1))
        if INSIDE in rows.columns:
            # Most rows of a window that slides are inside at the same instants.
            rows = merged(rows)
        result.append(replace(frame, data=rows))
    return result or [distinct(replace(frame, data=frame.data.select(*frame.time, *named)))]


def merged(data: DataFrame) -> DataFrame:
    """Make one row of those that differ in parts of sums and counts alone."""
    parts = [name for name in _PARTS if name in data.columns]
    if not parts:
        return data
    names = [name for name in data.columns if name not in parts]
    return data.groupBy(*names).agg(*(_merged(name).alias(name) for name in parts))


def _merged(part: str) -> Column:
    if part == "exact":
        return sql.try_sum(part)
    if part == "inexact":
        # Of more digits than Spark's decimals have there is no exact sum.
        overflow = (sql.count("exact") > 0) & sql.try_sum("exact").isNull()
        return sql.sum(part) + overflow.cast("long")
    return sql.max(part) if part == "highest" else sql.sum(part)


def _parts(term: Column) -> dict[str, Column]:
    kind, number, exact = terms.rank(term), terms.number(term), terms.exact_number(term)
    inexact = sql.coalesce((kind < _FLOAT) & exact.isNull(), sql.lit(False))
    values = (
        term.isNotNull().cast("long"), exact, number, kind, number.isNull().cast("long"),
        inexact.cast("long"),
    )  # fmt: skip
    return dict(zip(_PARTS, values, strict=True))


def grouped_frame(
    rows: Sequence[Frame], keys: int, aggregates: Sequence[tuple[Variable, Aggregate]]
) -> Frame:
    """One row for each group and time: keys and aggregates."""
    frame = rows[0].by_instant()
    shared = [*frame.time, *(f"key{index}" for index in range(keys))]
    result: DataFrame | None = None
    for (variable, aggregate), each in zip(aggregates, rows, strict=False):
        value = _value(aggregate, _TIMES in each.data.columns).alias(column(variable))
        data = each.by_instant().data.groupBy(*shared).agg(value)
        if result is None:
            result = data
        else:
            data = data.withColumnsRenamed({name: "r_" + name for name in shared})
            same = [sql.col(name).eqNullSafe(sql.col("r_" + name)) for name in shared]
            result = result.join(data, same).drop(*("r_" + name for name in shared))
    return replace(frame, data=frame.data if result is None else result)


def empty_value(aggregate: Aggregate) -> Column:
    """The aggregate of nothing."""
    if aggregate.name in ("COUNT", "SUM", "AVG"):
        return terms.integer(sql.lit(0))
    if aggregate.name == "GROUP_CONCAT":
        return sql.lit('""')
    return sql.lit(None).cast("string")


def _value(aggregate: Aggregate, counted: bool) -> Column:
    term = sql.col(_ARGUMENT)
    match aggregate.name:
        case "COUNT" if counted:
            some = sql.sum(sql.when(term.isNotNull(), sql.col(_TIMES)))
            return terms.integer(sql.coalesce(some, sql.lit(0)))
        case "COUNT":
            return terms.integer(sql.count(term))
        case "MIN" | "MAX":
            choose = sql.min_by if aggregate.name == "MIN" else sql.max_by
            best = choose(term, terms.order_key(term))
            return sql.when(sql.count_if(term.isNull()) == 0, best)
        case "SAMPLE":
            return sql.min(term)
        case "GROUP_CONCAT":
            texts = terms.escaped_lexical(term)
            separator = str(literal(aggregate.separator))[1:-1]
            # SPARQL leaves the order open; this one is the same in every run.
            joined = sql.array_join(sql.sort_array(sql.collect_list(texts)), separator)
            value = sql.concat(sql.lit('"'), joined, sql.lit('"'))
            return sql.when(sql.count_if(texts.isNull()) == 0, value)
    if aggregate.name == "MEDIAN":
        ordered = sql.sort_array(sql.collect_list(sql.struct(terms.order_key(term), term)))
        count = sql.count(term)
        low = sql.get(ordered, sql.floor((count - 1) / 2).cast("int"))[_ARGUMENT]
        high = sql.get(ordered, sql.floor(count / 2).cast("int"))[_ARGUMENT]
        middle = sql.when(low == high, low).otherwise(_called(_middle, low, high))
        return sql.when(sql.count_if(terms.number(term).isNull()) == 0, middle)
    count, total, floating, highest, failures, inexact = map(_merged, _PARTS)
    total = sql.when(inexact == 0, total)
    if aggregate.name == "AVG":
        exact = _called(_average, total.cast("string"), count)
        mean = _called(_floating, floating, highest, count)
        value = sql.when(highest < _FLOAT, exact).otherwise(mean)
    else:
        value = (
            sql.when(highest == 0, terms.integer(total.cast("decimal(38,0)")))
            .when(highest == 1, _decimal(total))
            .otherwise(_called(_floating, floating, highest, sql.lit(1)))
        )
    return sql.when(failures == 0, value)


def _decimal(value: Column) -> Column:
    text = sql.regexp_replace(value.cast("string"), r"\.?0+$", "")
    return sql.concat(sql.lit('"'), text, sql.lit(f'"^^<{XSD}decimal>'))


def _called(function: Callable[..., str | None], *arguments: Column) -> Column:
    # Made for each query: what Spark makes of a function belongs to the Java of one session.
    return sql.udf(function, StringType(), useArrow=False)(*arguments)


def _average(total: str | None, count: int) -> str | None:
    # Once for each group: the quotient has 18 digits behind the point, as everywhere here.
    return None if total is None else str(term_of(divide(Decimal(total), Decimal(count))))


def _floating(total: float | None, kind: int, count: int) -> str | None:
    if total is None:
        return None
    value = Single(total) if kind == _FLOAT else total
    return str(term_of(value if count == 1 else quotient(value, count)))


def _middle(low: str | None, high: str | None) -> str | None:
    if low is None or high is None:
        return None
    try:
        return str(term_of(quotient(add(value_of(Term(low)), value_of(Term(high))), 2)))
    except EvaluationError:
        # Some of them is no number: the caller leaves the whole group out.
        return None


@dataclass(frozen=True)
class Translation:
    """Make the answers of a query at several instants.

    Args:
        outer: in EXISTS, the rows that it is evaluated for.
    """

    leaves: LeafFrames
    outer: Frame | None = None
    fresh: Iterator[int] = field(default_factory=count)

    def answer(self) -> DataFrame:
        """`AT`, `QUERY`, a column for each variable of the query, and `RANK`."""
        pattern = self.leaves.graph.pattern
        if self.leaves.graph.query.form == "ASK":
            pattern = algebra.Distinct(algebra.Project(pattern, ()))
        frame = self.frame(pattern).over((AT, QUERY))
        if RANK not in frame.data.columns:
            return frame.data.withColumn(RANK, sql.lit(0).cast("int"))
        return frame.data

    # ---------------------------------------------------------------------------- patterns

    def frame(self, pattern: Pattern) -> Frame:
        match pattern:
            case BGP(patterns):
                return self._correlated(self.leaves.bgp(patterns))
            case Path():
                return self._correlated(self.leaves.static_frame(pattern))
            case algebra.Values(variables, rows):
                data = [tuple(row) for row in rows]
                return self._correlated(self.leaves.rows(variables, data, always_bound(pattern)))
            case algebra.Join():
                return self._join(pattern)
            case algebra.LeftJoin(left, right, condition):
                return self._left_join(self.frame(left), self.frame(right), condition)
            case algebra.Union(left, right):
                return union(self.frame(left), self.frame(right))
            case algebra.Minus(left, right, apart):
                return self._minus(self.frame(left), self.frame(right), apart)
            case Filter(inner, condition):
                if self._is_of_elements(pattern):
                    return self._of_panes(
                        pattern, lambda each: each._filter(each.frame(inner), condition)
                    )
                return self._filter(self.frame(inner), condition)
            case Aggregated():
                return self._aggregated(pattern)
            case algebra.Extend(inner, variable, expression):
                frame = self._for(expression, self.frame(inner))
                schema = frame.schema
                frame, plain = self.without_exists(frame, expression)
                extended = frame.extend(variable, Expressions(frame.columns()).binding(plain))
                return extended if frame.schema == schema else extended.project((*schema, variable))
            case Group():
                return self._group(pattern)
            case _ if self.outer is not None:
                # A nested SELECT is evaluated by itself, also inside EXISTS.
                frame = replace(self, outer=None).frame(pattern)
                return self._correlated(frame)
            case algebra.Project(algebra.OrderBy(inner, conditions), variables):
                return self._ordered(self.frame(inner), conditions, variables)
            case algebra.Project(inner, variables):
                return self.frame(inner).project(variables)
            case algebra.Distinct(inner):
                return distinct(self.frame(inner))
            case algebra.Reduced(inner) | algebra.OrderBy(inner):
                return self.frame(inner)
            case algebra.Slice(inner, offset, limit, ()):
                return sliced(self.frame(inner), offset, limit)
            case _:
                raise UnsupportedContinuousQueryError(
                    f"{type(pattern).__name__} cannot be run on Spark"
                )

    def _for(self, expression: object, frame: Frame) -> Frame:
        return frame.over((QUERY,)) if parameters_of(expression) else frame

    def _is_of_elements(self, pattern: Pattern) -> bool:
        """True where each solution is of one element, and there are panes."""
        if self.leaves.panes is None or self.outer is not None:
            return False
        graph = self.leaves.graph
        match pattern:
            case BGP(patterns):
                parts = [graph.part_of(each) for each in patterns]
                streams = [
                    stream
                    for each, part in zip(patterns, parts, strict=True)
                    if part == "streaming"
                    for stream in graph.source_of(each).streams
                ]
                return len(streams) == 1 and "mixed" not in parts
            case Filter(inner, expression) | algebra.Extend(inner, _, expression):
                return first_exists(expression) is None and self._is_of_elements(inner)
            case _:
                return False

    def _of_panes(self, name: Hashable, compute: "Callable[[Translation], Frame]") -> Frame:
        assert self.leaves.panes is not None
        return self.leaves.panes(name, lambda leaves: compute(replace(self, leaves=leaves)))

    def _join(self, pattern: algebra.Join) -> Frame:
        frames = [self.frame(each) for each in operands(pattern)]
        return reduce(join, greedy_order(frames, lambda each: each.schema, lambda *_: 0))

    def _left_join(self, left: Frame, right: Frame, condition: Expression | None) -> Frame:
        test: Column | None = None
        left = self._for(condition, left)
        if condition is not None and first_exists(condition) is not None:
            return self._left_join_exists(left, right, condition)
        if condition is not None:
            columns = {name: sql.col(column(name)) for name in (*left.schema, *right.schema)}
            shared = [n for n in left.schema if n in right.schema and n not in left.certain]
            for name in shared:
                own = sql.col(column(name))
                columns[name] = sql.coalesce(own, sql.col("r_" + column(name)))
            test = Expressions(columns).condition(condition)
        return left_join(left, right, test)

    def _left_join_exists(self, left: Frame, right: Frame, condition: Expression) -> Frame:
        """Join distinct rows of the left first; then return to all of them."""
        keyed, key = self._keyed(left.by_instant(), left.schema)
        pairs = self._filter(
            join(replace(keyed, data=keyed.data.dropDuplicates()), right), condition
        )
        loose = [name for name in left.schema if name not in left.certain]
        added = [name for name in right.schema if name not in left.schema]
        joined = left_join(keyed, pairs.project((key, *loose, *added)), None)
        return joined.project((*left.schema, *added))

    def _minus(self, left: Frame, right: Frame, apart: tuple[Variable, ...]) -> Frame:
        shared = [name for name in left.schema if name in right.schema and name not in apart]
        if not shared:
            return left
        if self.outer is not None:
            # What both sides have from outside is no reason to take away.
            apart = (*apart, *self.outer.schema)
        # A pair that shares no bound variable does not remove; the hidden name only says so.
        return semi_join(left, right, anti=True, apart=(*apart, Variable("?.none")))

    def _filter(self, frame: Frame, condition: Expression) -> Frame:
        for each in conjuncts(condition):
            if not isinstance(each, Exists):
                schema = frame.schema
                frame, plain = self.without_exists(frame, each)
                frame = self._where(frame, plain)
                frame = frame if frame.schema == schema else frame.project(schema)
            elif _stands_alone(each.pattern):
                inner = replace(self, outer=None).frame(each.pattern)
                frame = semi_join(frame, inner, anti=each.negated)
            else:
                keyed, result = self._found(frame, each.pattern)
                frame = semi_join(keyed, result, anti=each.negated).project(frame.schema)
        return frame

    def _where(self, frame: Frame, condition: Expression) -> Frame:
        """Keep the rows of which a condition is true.

        What rows are compared by is computed once for all queries, and constants once for all rows.
        """
        if QUERY in frame.time or not parameters_of(condition):
            return self._for(condition, frame).where(
                Expressions(frame.columns()).condition(condition)
            )
        apart = ComputedApart()
        test = Expressions(frame.columns(), apart).condition(condition)
        queries = sql.broadcast(frame.of.queries.withColumns(apart.of_queries))
        data = frame.data.withColumns(apart.of_rows).crossJoin(queries).where(test)
        data = data.drop(*apart.of_rows, *apart.of_queries)
        return replace(frame, data=data, time=(*frame.time, QUERY))

    # ----------------------------------------------------------------------------- EXISTS

    def without_exists(self, frame: Frame, expression: Expression) -> tuple[Frame, Expression]:
        """Replace each EXISTS with a hidden variable of the frame."""
        match expression:
            case Exists(pattern, negated):
                keyed, result = self._found(frame, pattern)
                mark = self._hidden()
                data = result.data.withColumn(column(mark), sql.lit(str(TRUE)))
                there = replace(result, data=data, schema=(*result.schema, mark))
                marked = left_join(keyed, there, None)
                yes, no = (FALSE, TRUE) if negated else (TRUE, FALSE)
                value = sql.when(sql.col(column(mark)).isNotNull(), str(yes)).otherwise(str(no))
                marked = replace(marked, data=marked.data.withColumn(column(mark), value))
                return marked.project((*frame.schema, mark)), VariableRef(mark)
            case Call(_, arguments):
                plain = []
                for each in arguments:
                    frame, one = self.without_exists(frame, each)
                    plain.append(one)
                return frame, replace(expression, arguments=tuple(plain))
            case algebra.Aggregate(_, argument) if argument is not None:
                frame, one = self.without_exists(frame, argument)
                return frame, replace(expression, argument=one)
            case _:
                return frame, expression

    def _found(self, frame: Frame, pattern: Pattern) -> tuple[Frame, Frame]:
        """Key the frame, and find the keys of rows with a match.

        Each leaf is joined with all distinct rows at once (SPARQL 1.1, section 18.6).
        """
        seen = [name for name in frame.schema if name in mentioned(pattern)]
        keyed, key = self._keyed(frame, seen)
        inside = replace(self, outer=distinct(keyed.project((key, *seen))))
        return keyed, distinct(inside.frame(pattern).project((key,)))

    def _keyed(self, frame: Frame, names: Sequence[Variable]) -> tuple[Frame, Variable]:
        key = self._hidden()
        parts = [sql.col(column(name)) for name in names]
        # JSON leaves out what is null, and names the rest.
        value = sql.to_json(sql.struct(*parts)) if parts else sql.lit("")
        extended = frame.extend(key, value)
        return replace(extended, certain=extended.certain | {key}), key

    def _hidden(self) -> Variable:
        return Variable(f"?.e{next(self.fresh)}")

    def _correlated(self, frame: Frame) -> Frame:
        return frame if self.outer is None else join(self.outer, frame)

    # ------------------------------------------------------------------------ aggregation

    def _aggregated(self, pattern: Aggregated) -> Frame:
        frame = self._for(pattern.aggregate, self.frame(pattern.input))
        names = [column(name) for name in pattern.keys if name in frame.schema]
        if not names and not frame.time:
            frame = frame.over((AT,))
        aggregates = [(pattern.variable, pattern.aggregate)]
        rows = rows_to_group(frame, [sql.col(name) for name in names], aggregates)
        groups = grouped_frame(rows, len(names), aggregates)
        frame = frame.by_instant()
        keys = {name: f"key{index}" for index, name in enumerate(names)}
        keys |= {name: "r_" + name for name in groups.time}
        data = groups.data.withColumnsRenamed({name: "r_" + name for name in groups.time})
        same = [sql.col(name).eqNullSafe(sql.col(key)) for name, key in keys.items()]
        data = frame.data.join(data, reduce(and_, same), "left").drop(*keys.values())
        return replace(frame, data=data, schema=(*frame.schema, pattern.variable))

    def _group(self, pattern: Group) -> Frame:
        mergeable = _BY_VALUE | _SUMS
        counted = all(
            each.name in mergeable and not each.distinct for _, each in pattern.aggregates
        )
        simple = all(first_exists(each) is None for _, each in (*pattern.keys, *pattern.aggregates))
        if pattern.aggregates and counted and simple and self._is_of_elements(pattern.input):
            rows = [
                self._of_panes((pattern, index), partial(_rows_of_aggregate, pattern, index))
                for index in range(len(pattern.aggregates))
            ]
        else:
            rows = self._rows_to_group(pattern)
        frame = grouped_frame(rows, len(pattern.keys), pattern.aggregates)
        names = [column(name) for name, _ in pattern.keys]
        data = frame.data.withColumnsRenamed(
            {f"key{index}": name for index, name in enumerate(names)}
        )
        schema = tuple(name for name, _ in (*pattern.keys, *pattern.aggregates))
        if not pattern.keys:
            # Exactly one group, even of nothing.
            alone = self.leaves.rows((), [()], frozenset()).over(frame.time)
            some = data.withColumn("some", sql.lit(1))
            data = alone.data.join(some, [*frame.time], "left")
            for name, aggregate in pattern.aggregates:
                there = sql.when(sql.col("some").isNull(), empty_value(aggregate))
                data = data.withColumn(column(name), there.otherwise(sql.col(column(name))))
            data = data.drop("some")
        return replace(frame, data=data, schema=schema, certain=frozenset())

    def _rows_to_group(self, pattern: Group) -> list[Frame]:
        differing = (pattern.keys, pattern.aggregates)
        frame = self._for(differing, self.frame(pattern.input))
        plain: list[Expression] = []
        for _, expression in pattern.keys:
            frame, one = self.without_exists(frame, expression)
            plain.append(one)
        aggregates = []
        for name, aggregate in pattern.aggregates:
            frame, computed = self.without_exists(frame, aggregate)
            assert isinstance(computed, algebra.Aggregate)
            aggregates.append((name, computed))
        expressions = Expressions(frame.columns())
        keys = [expressions.binding(expression) for expression in plain]
        if not keys and not frame.time:
            frame = frame.over((AT,))
        return rows_to_group(frame, keys, aggregates)

    # -------------------------------------------------------------------------- modifiers

    def _ordered(
        self,
        frame: Frame,
        conditions: Sequence[algebra.OrderCondition],
        variables: Sequence[Variable],
    ) -> Frame:
        keys = []
        frame = self._for(tuple(conditions), frame).by_instant()
        for each in conditions:
            frame, plain = self.without_exists(frame, each.expression)
            key = terms.order_key(Expressions(frame.columns()).binding(plain))
            keys.append(key.desc() if each.descending else key.asc())
        within = Window.partitionBy(*frame.time).orderBy(*keys)
        ranked = frame.data.withColumn(RANK, sql.row_number().over(within))
        names = [*frame.time, *(column(name) for name in variables)]
        absent = [name for name in variables if name not in frame.schema]
        for name in absent:
            ranked = ranked.withColumn(column(name), sql.lit(None).cast("string"))
        return replace(
            frame,
            data=ranked.select(*names, RANK),
            schema=tuple(variables),
            certain=frame.certain & frozenset(variables),
        )


def _rows_of_aggregate(pattern: Group, index: int, translation: Translation) -> Frame:
    return translation._rows_to_group(pattern)[index]


def _stands_alone(pattern: Pattern) -> bool:
    simple = all(isinstance(each, (BGP, algebra.Join, Filter)) for each in walk(pattern))
    return simple and mentioned(pattern) <= always_bound(pattern)
