"""Lines of a stream to the content of windows, as a streaming data frame.

Every element goes to each instant whose window has it, and each instant's content is collected
under the watermark: in append mode Structured Streaming gives it once, when nothing that is not too
late can come any more, and keeps what is open in its state store. The key is the instant plus one
millisecond, because a watermark closes what is not after it, and elements of the instant itself
still belong to it.

Lines are ``timestamp<TAB>subject<TAB>predicate<TAB>object``; a line with a timestamp alone says
that everything up to it has come (punctuation).
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from annotations.terms import is_variable
from tpf_client.sparql.algebra import BGP
from tpf_client.sparql.rewrite.visitor import patterns_in
from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.csparql.spark.frames import AT
from tpf_server.continuous.csparql.windows import LogicalWindow, StreamClause

KEY = "closes"
_TERM = (
    r'(?:<<\(.+\)>>|<[^<>"{}|^`\\\x00-\x20]+>|_:\S+|'
    r'"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^>]+>)?)'
)
LINE = rf"^-?\d{{1,18}}(?:\t(?:<[^>]+>|_:\S+)\t<[^>]+>\t{_TERM})?$"


def lines(session: SparkSession, directory: str, *, files_per_trigger: int | None) -> DataFrame:
    """The lines of the files that are in a directory and that come into it, a column ``value``."""
    reader = session.readStream.option("latestFirst", "false")
    if files_per_trigger is not None:
        reader = reader.option("maxFilesPerTrigger", str(files_per_trigger))
    return reader.text(directory)


def window_content(
    graph: OperatorGraph, clause: StreamClause, text: DataFrame, *, lateness: int, strict: bool
) -> DataFrame:
    """The content of the windows of one stream at each instant: `KEY`, stream, s, p, o and ts.

    Rows without terms mark the first instant after an element, and punctuation.

    Args:
        graph: the query.
        clause: the stream.
        text: its lines.
        lateness: how late elements may be, in milliseconds.
        strict: whether a malformed line stops the query; otherwise it is left out.
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
    wanted = _wanted(graph, clause)
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
        .when(wanted, sql.concat(sql.array(marks), entries))
        .otherwise(sql.array(marks))
    )
    exploded = elements.select("ts", sql.explode(rows).alias("row")).select(
        sql.timestamp_millis(sql.col("row.at") + 1).alias(KEY),
        sql.lit(str(clause.stream)).alias("stream"),
        "row.s", "row.p", "row.o", "ts",
    )  # fmt: skip
    return exploded.withWatermark(KEY, f"{delay} milliseconds")


def malformed(texts: Sequence[DataFrame]) -> DataFrame:
    """The lines that are none."""
    return reduce(DataFrame.unionByName, texts).where(~sql.col("value").rlike(LINE))


def all_windows(parts: Sequence[DataFrame]) -> DataFrame:
    """The content of all windows at each instant, `AT`.

    Each triple of a stream is there once, with its latest timestamp.
    """
    result = reduce(DataFrame.unionByName, parts)
    found = result.groupBy(KEY, "stream", "s", "p", "o").agg(sql.max("ts").alias("ts"))
    # Without `KEY` Spark knows no partitioning of this. With one, uses of it in a join are no
    # longer the frame that a micro-batch keeps, and each reads and commits the state anew.
    return found.select((sql.unix_millis(KEY) - 1).alias(AT), "stream", "s", "p", "o", "ts")


def _wanted(graph: OperatorGraph, clause: StreamClause) -> Column:
    """Whether a triple can match any pattern: conditions pushed to the source."""
    predicates: set[str] = set()
    for each in patterns_in(graph.pattern):
        for quad in each.patterns if isinstance(each, BGP) else ():
            if clause.stream in graph.source_of(quad).streams:
                if is_variable(quad.predicate):
                    return sql.lit(True)
                predicates.add(str(quad.predicate))
    return sql.col("p").isin(*sorted(predicates)) if predicates else sql.lit(False)
