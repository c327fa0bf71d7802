"""Set functions in Spark SQL. Sums of integers and decimals are exact; errors are null."""

from collections.abc import Callable, Sequence
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType

from annotations.namespaces import XSD
from annotations.terms import Term, Variable, literal
from tpf_client.sparql.algebra import Aggregate
from tpf_client.sparql.expressions.operators import add, quotient
from tpf_client.sparql.expressions.values import EvaluationError, Single, divide, term_of, value_of
from tpf_server.continuous.csparql.spark import terms
from tpf_server.continuous.csparql.spark.expressions import Expressions
from tpf_server.continuous.csparql.spark.frames import Frame, column

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
