"""Basic graph patterns to data frames.

Static graph patterns are evaluated once by our own SPARQL engine. A pattern that may match static
and streaming triples is joined in two parts, so that static rows are not repeated for each instant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from annotations.terms import QuadPattern, Variable, is_variable
from tpf_client.sparql.algebra import BGP, Pattern, Row, variables_of_bgp, variables_of_quad
from tpf_client.sparql.rewrite.components import components
from tpf_client.sparql.rewrite.join_order import greedy_order
from tpf_client.sparql.scopes import in_scope
from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.csparql.spark import terms
from tpf_server.continuous.csparql.spark.frames import (
    AT,
    Frame,
    column,
    join,
    join_untimed_too,
    semi_join,
    union,
)

StaticAnswers = Callable[[OperatorGraph, Pattern], list[Row]]
"""The solutions of a pattern over static data alone, with its variables in scope as columns."""


@dataclass(frozen=True)
class LeafFrames:
    """The leaves of a query.

    Args:
        session: Spark.
        graph: the operators.
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
