"""Operators to data frames."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import reduce
from itertools import count
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType

from annotations.namespaces import XSD
from annotations.terms import Term, Variable, literal
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
    VariableRef,
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
from tpf_client.sparql.rewrite.join_order import greedy_order
from tpf_client.sparql.rewrite.visitor import conjuncts, first_exists, operands
from tpf_client.sparql.scopes import always_bound, mentioned
from tpf_server.continuous.csparql.spark import terms
from tpf_server.continuous.csparql.spark.expressions import Expressions
from tpf_server.continuous.csparql.spark.frames import (
    AT,
    RANK,
    Frame,
    LeafFrames,
    column,
    distinct,
    join,
    left_join,
    semi_join,
    sliced,
    union,
)
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError

# Set functions in Spark SQL. Sums of integers and decimals are exact; errors are null.

_ARGUMENT = "argument"
_FLOAT = 2
"""The rank of xsd:float; see `terms.rank`."""


def grouped_frame(
    frame: Frame, keys: Sequence[Column], aggregates: Sequence[tuple[Variable, Aggregate]]
) -> DataFrame:
    """One row for each group: the keys, and a column for each aggregate."""
    result: DataFrame | None = None
    names = [f"key{place}" for place in range(len(keys))]
    named = [key.alias(name) for key, name in zip(keys, names, strict=True)]
    for variable, aggregate in aggregates:
        data = frame.data
        if aggregate.argument is None:
            argument = sql.lit(1)
            if aggregate.distinct:
                visible = [name for name in frame.schema if not name.startswith("?.")]
                argument = sql.struct(*(column(name) for name in visible))
        else:
            argument = Expressions(frame.columns()).binding(aggregate.argument)
        data = data.select(*named, argument.alias(_ARGUMENT))
        if aggregate.distinct:
            data = data.dropDuplicates()
        one = data.groupBy(*names).agg(_value(aggregate).alias(column(variable)))
        if result is None:
            result = one
        else:
            one = one.withColumnsRenamed({name: "r_" + name for name in names})
            same = [sql.col(name).eqNullSafe(sql.col("r_" + name)) for name in names]
            result = result.join(one, same).drop(*("r_" + name for name in names))
    if result is None:
        result = frame.data.select(*named).dropDuplicates()
    return result


def empty_value(aggregate: Aggregate) -> Column:
    """The aggregate of nothing."""
    if aggregate.name in ("COUNT", "SUM", "AVG"):
        return terms.integer(sql.lit(0))
    if aggregate.name == "GROUP_CONCAT":
        return sql.lit('""')
    return sql.lit(None).cast("string")


def _value(aggregate: Aggregate) -> Column:
    term = sql.col(_ARGUMENT)
    match aggregate.name:
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
    kind = terms.rank(term)
    total = sql.sum(terms.exact_number(term))
    floating = sql.sum(terms.number(term))
    highest = sql.max(kind)
    failures = sql.count_if(kind.isNull())
    if aggregate.name == "MEDIAN":
        ordered = sql.sort_array(sql.collect_list(sql.struct(terms.order_key(term), term)))
        count = sql.count(term)
        low = sql.get(ordered, sql.floor((count - 1) / 2).cast("int"))[_ARGUMENT]
        high = sql.get(ordered, sql.floor(count / 2).cast("int"))[_ARGUMENT]
        middle = sql.when(low == high, low).otherwise(_called(_middle, low, high))
        return sql.when(failures == 0, middle)
    if aggregate.name == "AVG":
        exact = _called(_average, total.cast("string"), sql.count(term))
        mean = _called(_floating, floating, highest, sql.count(term))
        value = sql.when(highest < 2, exact).otherwise(mean)
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
    """Makes the answer of a query at several instants.

    Args:
        outer: where a pattern in EXISTS is translated: the rows that it is evaluated for.
        fresh: numbers of hidden variables.
    """

    leaves: LeafFrames
    outer: Frame | None = None
    fresh: Iterator[int] = field(default_factory=count)

    def answer(self) -> DataFrame:
        """`AT`, a column for each variable of the query, and `RANK`."""
        pattern = self.leaves.graph.pattern
        if self.leaves.graph.query.form == "ASK":
            pattern = algebra.Distinct(algebra.Project(pattern, ()))
        frame = self.frame(pattern).at_all(self.leaves.steps)
        if RANK not in frame.data.columns:
            return frame.data.withColumn(RANK, sql.lit(0).cast("int"))
        return frame.data

    # ---------------------------------------------------------------------------- patterns

    def frame(self, pattern: Pattern) -> Frame:
        """The solutions of a pattern."""
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
                return union(*self._alike(self.frame(left), self.frame(right)))
            case algebra.Minus(left, right, apart):
                return self._minus(self.frame(left), self.frame(right), apart)
            case Filter(inner, condition):
                return self._filter(self.frame(inner), condition)
            case Aggregated():
                return self._aggregated(pattern)
            case algebra.Extend(inner, variable, expression):
                frame = self.frame(inner)
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

    def _alike(self, left: Frame, right: Frame) -> tuple[Frame, Frame]:
        if left.timed == right.timed:
            return left, right
        return left.at_all(self.leaves.steps), right.at_all(self.leaves.steps)

    def _join(self, pattern: algebra.Join) -> Frame:
        frames = [self.frame(each) for each in operands(pattern)]
        return reduce(join, greedy_order(frames, lambda each: each.schema, lambda *_: 0))

    def _left_join(self, left: Frame, right: Frame, condition: Expression | None) -> Frame:
        if right.timed:
            left = left.at_all(self.leaves.steps)
        test: Column | None = None
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
        """The pairs first, for distinct rows of the left; then they come back to each of these."""
        keyed, key = self._keyed(left, left.schema)
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
        if right.timed:
            left = left.at_all(self.leaves.steps)
        # A pair that shares no bound variable does not remove; the hidden name only says so.
        return semi_join(left, right, anti=True, apart=(*apart, Variable("?.none")))

    def _filter(self, frame: Frame, condition: Expression) -> Frame:
        for each in conjuncts(condition):
            if not isinstance(each, Exists):
                schema = frame.schema
                frame, plain = self.without_exists(frame, each)
                frame = frame.where(Expressions(frame.columns()).condition(plain))
                frame = frame if frame.schema == schema else frame.project(schema)
            elif _stands_alone(each.pattern):
                inner = replace(self, outer=None).frame(each.pattern)
                if inner.timed:
                    frame = frame.at_all(self.leaves.steps)
                frame = semi_join(frame, inner, anti=each.negated)
            else:
                keyed, found = self._found(frame, each.pattern)
                frame = semi_join(keyed, found, anti=each.negated).project(frame.schema)
        return frame

    # ----------------------------------------------------------------------------- EXISTS

    def without_exists(self, frame: Frame, expression: Expression) -> tuple[Frame, Expression]:
        """The expression with each EXISTS replaced by a hidden variable that the frame has then."""
        match expression:
            case Exists(pattern, negated):
                keyed, found = self._found(frame, pattern)
                mark = self._hidden()
                data = found.data.withColumn(column(mark), sql.lit(str(TRUE)))
                there = replace(found, data=data, schema=(*found.schema, mark))
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
        """The frame with a key, and the keys of those of its rows for which a pattern matches.

        The pattern is evaluated for all of them at once: each of its leaves is joined with what is
        different in these rows, so that everything in it sees them (SPARQL 1.1, section 18.6).
        """
        seen = [name for name in frame.schema if name in mentioned(pattern)]
        keyed, key = self._keyed(frame, seen)
        rows = keyed.project((key, *seen))
        inside = replace(self, outer=replace(rows, data=rows.data.dropDuplicates()))
        found = inside.frame(pattern).project((key,))
        if found.timed:
            keyed = keyed.at_all(self.leaves.steps)
        return keyed, replace(found, data=found.data.dropDuplicates())

    def _keyed(self, frame: Frame, names: Sequence[Variable]) -> tuple[Frame, Variable]:
        """One more variable: what a row has for these."""
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
        """As the paper does it: the aggregates by themselves, then joined to the solutions."""
        frame = self.frame(pattern.input)
        names = [*frame.time, *(column(name) for name in pattern.keys if name in frame.schema)]
        if not names:
            frame = frame.at_all(self.leaves.steps)
            names = frame.time
        groups = grouped_frame(
            frame, [sql.col(name) for name in names], [(pattern.variable, pattern.aggregate)]
        )
        same = [
            sql.col(name).eqNullSafe(sql.col(f"key{place}")) for place, name in enumerate(names)
        ]
        data = frame.data.join(groups, reduce(and_, same), "left")
        data = data.drop(*(f"key{place}" for place in range(len(names))))
        return Frame(data, (*frame.schema, pattern.variable), frame.certain, frame.timed)

    def _group(self, pattern: Group) -> Frame:
        frame = self.frame(pattern.input)
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
        keys = [sql.col(name) for name in frame.time]
        keys += [expressions.binding(expression) for expression in plain]
        if not keys:
            frame = frame.at_all(self.leaves.steps)
            keys = [sql.col(AT)]
        names = [*frame.time, *(column(name) for name, _ in pattern.keys)]
        data = grouped_frame(frame, keys, aggregates).withColumnsRenamed(
            {f"key{place}": name for place, name in enumerate(names)}
        )
        schema = tuple(name for name, _ in (*pattern.keys, *pattern.aggregates))
        if not pattern.keys:
            # Exactly one group, even of nothing.
            data = self.leaves.steps.join(data.withColumn("some", sql.lit(1)), AT, "left")
            for name, aggregate in pattern.aggregates:
                there = sql.when(sql.col("some").isNull(), empty_value(aggregate))
                data = data.withColumn(column(name), there.otherwise(sql.col(column(name))))
            data = data.drop("some")
        return Frame(data, schema, frozenset(), frame.timed)

    # -------------------------------------------------------------------------- modifiers

    def _ordered(
        self,
        frame: Frame,
        conditions: Sequence[algebra.OrderCondition],
        variables: Sequence[Variable],
    ) -> Frame:
        keys = []
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
        certain = frame.certain & frozenset(variables)
        return Frame(ranked.select(*names, RANK), tuple(variables), certain, frame.timed)


def _stands_alone(pattern: Pattern) -> bool:
    """Whether a pattern in EXISTS sees nothing of the row outside but what its matches bind."""
    simple = all(isinstance(each, (BGP, algebra.Join, Filter)) for each in walk(pattern))
    return simple and mentioned(pattern) <= always_bound(pattern)
