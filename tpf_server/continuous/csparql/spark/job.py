"""A job of Structured Streaming, and the registered queries that it answers."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from annotations.terms import Term, Variable, is_blank_node
from tpf_client.sparql.algebra import Query
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.executor import ExecutedQuery
from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.csparql.spark.run import SparkRun
from tpf_server.continuous.csparql.timestamps import Stamp
from tpf_server.continuous.csparql.windows import Instants, StreamClause
from tpf_server.continuous.engine.errors import ContinuousError
from tpf_server.continuous.engine.plans.batch_report import AT_INSTANTS, batch_report
from tpf_spark.folders import Folder


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """What a job answers: queries for which it is equal have the same answers.

    Args:
        query: the operators.
        clauses: the windows.
        stamps: what the timestamp variables in the operators mean.
        instants: when it is evaluated.
        graphs: what ``GRAPH ?g`` ranges over.
        version: of the static data: patterns are static or not as they have it, and an older job
            may have read them.
    """

    query: Query
    clauses: tuple[StreamClause, ...]
    stamps: tuple[tuple[Variable, Stamp], ...]
    instants: Instants
    graphs: tuple[Term, ...]
    version: int

    @classmethod
    def of(cls, graph: OperatorGraph, version: int) -> "JobQuestion | None":
        """That of a query; ``None``: its answers are its own, because blank nodes in them are."""
        if any(is_blank_node(term) for each in graph.query.template for term in each):
            return None
        return cls(
            graph.query,
            tuple(replace(clause, position=0) for clause in graph.clauses),
            tuple(graph.stamps.items()),
            graph.instants,
            graph.sources.names,
            version,
        )


class _Files(NamedTuple):
    """What came of each stream since the files before."""

    name: str
    lines: list[list[str]]


class SparkJob:
    """Queries that one job answers.

    Args:
        query: the first of them, as it was parsed.
        place: of its elements, results and checkpoint: a directory or its URL.

    Attributes:
        query, place: see above.
        question: what its queries have in common, where it may have several.
        queries: those that want its answers.
        run: once it has started.
        ending: it has failed or ends; it takes no more queries.
        ended: when all that it had is gone.
    """

    def __init__(self, query: CsparqlQuery, place: str) -> None:
        self.query = query
        self.place = place
        self.question: JobQuestion | None = None
        self.queries: list[SparkQuery] = []
        self.run: SparkRun | None = None
        self.ending = False
        self.ended = threading.Event()
        self._reads = frozenset(clause.stream for clause in query.streams)
        self._files = 0
        self._lines: dict[Term, list[str]] = {stream: [] for stream in self._reads}
        self._until: int | None = None
        self._waiting: queue.SimpleQueue[_Files | None] = queue.SimpleQueue()

    @property
    def streams(self) -> dict[str, str]:
        """Where the elements of each stream go that it reads."""
        return {str(each): f"{self.place}/stream{n}" for n, each in enumerate(self._reads)}

    @property
    def active(self) -> bool:
        """Whether any of its queries wants answers."""
        # Of a copy: queries come and go under the lock of the service, which not all have who ask.
        return any(each.active for each in tuple(self.queries))

    def answers(self, question: JobQuestion | None) -> bool:
        """Whether a query that comes now can be one of its own: nothing came before it."""
        same = question is not None and question == self.question
        return same and self._until is None and self.active and self._runs()

    def _runs(self) -> bool:
        """Whether it starts or runs; its thread finds out later that Spark has ended it."""
        try:
            return not self.ending and (self.run is None or self.run.active)
        except ContinuousError:
            return False  # Java has ended

    def reads(self, stream: Term) -> bool:
        """Whether it wants the elements of a stream."""
        return stream in self._reads and self.active

    def arrive(self, stream: Term, lines: Sequence[str], at: int) -> None:
        """An element of one of its streams."""
        self._lines[stream] += lines
        if self._until is None:
            self._until = at - 1

    def advance(self, until: int) -> None:
        """Hand on what has come, and that it is all, where the job has something to do with it."""
        if self._until is None:
            return  # it is evaluated from the first element on
        due = until > self._until and self.query.instants.after(self._until) <= until
        if not due and not any(self._lines.values()):
            return
        self._until = max(self._until, until)
        self._files += 1
        found = [[*lines, f"{self._until}\n"] for lines in self._lines.values()]
        self._waiting.put(_Files(f"{self._files:09d}.tsv", found))
        self._lines = {stream: [] for stream in self._reads}

    def wake(self) -> None:
        """End a wait of `write`."""
        self._waiting.put(None)

    def write(self, folders: Sequence[Folder], seconds: float) -> None:
        """Write what was handed on, or wait so long for something.

        All of it becomes one file of each stream: however long a file takes, no more waits than has
        come meanwhile.
        """
        waiting: list[_Files] = []
        with contextlib.suppress(queue.Empty):
            found = self._waiting.get(timeout=seconds)
            while True:
                if found is not None:
                    waiting.append(found)
                found = self._waiting.get_nowait()
        if waiting:
            for number, folder in enumerate(folders):
                lines = (line for each in waiting for line in each.lines[number])
                folder.write(waiting[-1].name, lines)


class SparkQuery(ExecutedQuery):
    """A query that a job answers.

    Args:
        name, query, callback, close: see `ExecutedQuery`.
        job: gives its answers.
    """

    def __init__(
        self,
        name: str,
        query: CsparqlQuery,
        callback: Callable[[PeriodicAnswer], None],
        close: Callable[[ExecutedQuery], None],
        job: SparkJob,
    ) -> None:
        super().__init__(name, query, callback, close)
        self.state = "starting" if job.run is None else "running"
        self.job = job
        self._last: int | None = None
        registration = query.registration
        self._called = "query" if registration is None else registration.name

    @property
    def active(self) -> bool:
        """Whether it still wants answers."""
        return self.state in ("starting", "running")

    def answer(self, answer: PeriodicAnswer) -> None:
        """Hand on an answer of its job as its own, once: after a failure some come again."""
        if self._last is not None and answer.at <= self._last:
            return
        self._last = answer.at
        self.emitted += 1
        self.take(replace(answer, query=self._called))

    def explain(self) -> dict[str, Any]:
        """Its state, when it is evaluated, and what its job has done."""
        found = {
            **super().explain(),
            "engine": "spark",
            "every_ms": list(self.query.instants.periods),
            "batches": batch_report("off", reason=AT_INSTANTS),
        }
        if self.stream is not None:
            found["stream"] = self.stream[1:-1]
        if self.job.run is not None:
            progress = self.job.run.known
            found["job"] = {
                "batches": progress.batches, "lines": progress.lines, "late": progress.late,
            }  # fmt: skip
        return found
