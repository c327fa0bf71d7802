"""An engine whose every answer is compared with the operators on Spark."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.csparql_reference import Clause, Reference, solutions
from tests.support.csparql_spark import settings
from tpf_server.continuous.continuous_engine import Engine, InstantSettings
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.csparql_query import LogicalWindow, PeriodicAnswer
from tpf_server.continuous.runtime.instants.periodic_query import PeriodicQuery
from tpf_server.continuous.runtime.instants.rules import RULES_ON_SPARK, Rule
from tpf_server.continuous.spark.execution import SparkExecution

Timeline = list[tuple[str, int, tuple[str, str, str]]]
CONTENT = "at long, stream string, s string, p string, o string, ts long"


def contents(
    sources: Sequence[Clause], elements: Timeline, instants: Sequence[int]
) -> list[tuple[Any, ...]]:
    """Return the content of the windows at each instant."""
    reference = Reference("", sources)
    for stream, at, triple in elements:
        reference.push(stream, at, [triple])
    result = []
    for instant in instants:
        for clause in sources:
            latest: dict[tuple[str, str, str], int] = {}
            for at, triple in reference.window(clause, instant):
                latest[triple] = max(at, latest.get(triple, at))
            result += [(instant, f"<{clause.stream}>", *t, at) for t, at in latest.items()]
    return result


class EngineBesideSpark(Engine):
    """Records elements and answers for `compare`."""

    def __init__(self, rules: tuple[Rule, ...] = RULES_ON_SPARK, **options: Any) -> None:
        super().__init__(instants=InstantSettings(rules=rules), **options)
        self.rules = rules
        self.elements: Timeline = []
        self.answered: list[tuple[PeriodicQuery, list[PeriodicAnswer]]] = []

    def register_csparql(self, *args: Any, **options: Any) -> PeriodicQuery:
        registered = super().register_csparql(*args, **options)
        answers: list[PeriodicAnswer] = []
        take = registered.take

        def remember(answer: PeriodicAnswer) -> None:
            answers.append(answer)
            if registered.stream is not None and answer.form != "SELECT":
                for row in answer.rows:
                    self.elements.append((registered.stream[1:-1], answer.at, row))  # type: ignore[arg-type]
            take(answer)

        registered.take = remember
        self.answered.append((registered, answers))
        return registered

    def push(
        self, stream: str, element: Sequence[Any], timestamp: Any, graph: str | None = None
    ) -> None:
        super().push(stream, element, timestamp, graph)
        for triple in [element] if isinstance(element[0], str) else element:
            self.elements.append((stream.strip("<>"), timestamp, tuple(triple)))

    def compare(self, spark: Any, directory: Path) -> list[str]:
        """Compare all answers; return why queries cannot run on Spark."""
        settings(spark)
        refused = []
        for registered, expected in self.answered:
            parsed = registered.query
            streams = {clause.stream[1:-1]: directory for clause in parsed.streams}
            try:
                execution = SparkExecution(
                    spark, parsed.text, self.static, streams, directory, rules=self.rules
                )
            except UnsupportedContinuousQueryError as error:
                refused.append(str(error))
                continue
            sources = []
            for clause in parsed.streams:
                assert isinstance(clause.window, LogicalWindow)
                window = clause.window
                sources.append(Clause(clause.stream[1:-1], window.range, window.step))
            instants = [answer.at for answer in expected]
            if not instants:
                continue
            rows = contents(sources, self.elements, instants)
            found = execution.answers(spark.createDataFrame(rows, CONTENT), instants)
            for one, other in zip(found, expected, strict=True):
                assert one.at == other.at
                assert solutions(one.variables, one.rows) == solutions(other.variables, other.rows)
        return refused
