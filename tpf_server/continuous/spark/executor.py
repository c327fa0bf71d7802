"""Run registered queries as jobs of Structured Streaming in one Spark session.

A batch of elements becomes a file in the folder of each job that reads their stream. Spark starts
with the first query. Equal queries share a job if neither an element nor a change of static data
came between their registrations.
"""

import contextlib
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from annotations.terms import Term, Variable, is_blank_node
from tpf_client.sparql.algebra import Query
from tpf_server.continuous.runtime.elements.elements import canonical_term
from tpf_server.continuous.runtime.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.csparql_query import (
    CsparqlQuery,
    Instants,
    PeriodicAnswer,
    StreamClause,
)
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph, Stamp
from tpf_server.continuous.runtime.instants.periodic_query import ExecutedQuery
from tpf_server.continuous.runtime.plans.batch_report import AT_INSTANTS, batch_report
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.continuous.spark.execution import (
    SparkExecution,
    SparkRun,
    continuous_session,
)
from tpf_server.spark.folders import Folder, folder_of, is_url
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import JAVA_ENDED, ExecutorWatch, SparkSettings, java_for

# A job of Structured Streaming, and the registered queries that it answers.


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """Equal for queries with the same answers."""

    query: Query
    clauses: tuple[StreamClause, ...]
    stamps: tuple[tuple[Variable, Stamp], ...]
    instants: Instants
    graphs: tuple[Term, ...]
    version: int

    @classmethod
    def of(cls, graph: OperatorGraph, version: int) -> "JobQuestion | None":
        """Return the question of a query without blank nodes of its own."""
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
    """Lines of each stream for a file."""

    name: str
    lines: list[list[str]]


class SparkJob:
    """Queries that one job answers.

    Attributes:
        ending: it takes no more queries.
        ended: set when everything is removed.
    """

    def __init__(self, query: CsparqlQuery, position: str) -> None:
        self.query = query
        self.place = position
        self.question: JobQuestion | None = None
        self.queries: list[SparkQuery] = []
        self.run: SparkRun | None = None
        self.watch: ExecutorWatch | None = None
        self.ending = False
        self.ended = threading.Event()
        self._reads = frozenset(clause.stream for clause in query.streams)
        self._files = 0
        self._lines: dict[Term, list[str]] = {stream: [] for stream in self._reads}
        self._until: int | None = None
        self._waiting: queue.SimpleQueue[_Files | None] = queue.SimpleQueue()

    @property
    def streams(self) -> dict[str, str]:
        return {str(each): f"{self.place}/stream{n}" for n, each in enumerate(self._reads)}

    @property
    def active(self) -> bool:
        # Of a copy: queries come and go under the lock of the service, which not all have who ask.
        return any(each.active for each in tuple(self.queries))

    def answers(self, question: JobQuestion | None) -> bool:
        """True where a new query can join: no element came yet."""
        same = question is not None and question == self.question
        return same and self._until is None and self.active and self._runs()

    def _runs(self) -> bool:
        try:
            return not self.ending and (self.run is None or self.run.active)
        except ContinuousError:
            return False  # Java has ended

    def reads(self, stream: Term) -> bool:
        return stream in self._reads and self.active

    def arrive(self, stream: Term, lines: Sequence[str], at: int) -> None:
        self._lines[stream] += lines
        if self._until is None:
            self._until = at - 1

    def advance(self, until: int) -> None:
        """Hand on elements and progress, where they matter to the job."""
        if self._until is None:
            return  # it is evaluated from the first element on
        due = until > self._until and self.query.instants.after(self._until) <= until
        if not due and not any(self._lines.values()):
            return
        self._until = max(self._until, until)
        self._files += 1
        result = [[*lines, f"{self._until}\n"] for lines in self._lines.values()]
        self._waiting.put(_Files(f"{self._files:09d}.tsv", result))
        self._lines = {stream: [] for stream in self._reads}

    def wake(self) -> None:
        """End a wait of `write`."""
        self._waiting.put(None)

    def write(self, folders: Sequence[Folder], seconds: float) -> None:
        """Write pending elements as one file of each stream; wait for it if need be."""
        waiting: list[_Files] = []
        with contextlib.suppress(queue.Empty):
            result = self._waiting.get(timeout=seconds)
            while True:
                if result is not None:
                    waiting.append(result)
                result = self._waiting.get_nowait()
        if waiting:
            for number, folder in enumerate(folders):
                lines = (line for each in waiting for line in each.lines[number])
                folder.write(waiting[-1].name, lines)


class SparkQuery(ExecutedQuery):
    """A query that a job answers."""

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
        return self.state in ("starting", "running")

    def answer(self, answer: PeriodicAnswer) -> None:
        """Hand on an answer of the job, once."""
        if self._last is not None and answer.at <= self._last:
            return
        self._last = answer.at
        self.emitted += 1
        self.take(replace(answer, query=self._called))

    def explain(self) -> dict[str, Any]:
        """State, instants, and counts of the job."""
        result = {
            **super().explain(),
            "engine": "spark",
            "every_ms": list(self.query.instants.periods),
            "batches": batch_report("off", reason=AT_INSTANTS),
        }
        if self.stream is not None:
            result["stream"] = self.stream[1:-1]
        if self.job.watch is not None:
            result["spark"] = self.job.watch.report
        if self.job.run is not None:
            progress = self.job.run.last_progress
            result["job"] = {
                "batches": progress.batches, "lines": progress.lines, "late": progress.late,
            }  # fmt: skip
        return result


_EVERY: Final = "1 second"
_LOOK: Final = 1.0
"""Seconds after which a thread that has nothing to write looks whether its job still runs."""


class SparkExecutor:
    """See `Executor`; `shared` is the URL of a folder to use in place of `work`."""

    def __init__(
        self,
        static: StaticData,
        work: Path,
        lock: AbstractContextManager[Any],
        *,
        base: str,
        session: Callable[[], AbstractContextManager[Any]] | None = None,
        master: str = "local[*]",
        shared: str = "",
        every: str = _EVERY,
    ) -> None:
        self._static = static
        self._place = shared.rstrip("/") or str(work)
        self._lock = lock
        self._base = base
        self._own = session is None
        self._master = master
        self._open = session or (lambda: continuous_session(master, work / "spark"))
        self._every = every
        self._jobs: list[SparkJob] = []
        self._number = 0
        self._version = 0
        # It is there as long as the static data are.
        static.on_change(lambda _change: self._static_changed)
        self._opened = contextlib.ExitStack()
        self._session: Any = None
        self._watch: ExecutorWatch | None = None
        self._starting = threading.Lock()
        self._closed = False
        shutil.rmtree(work, ignore_errors=True)

    def start(
        self, query: CsparqlQuery, callback: Callable[[PeriodicAnswer], None], *, name: str
    ) -> SparkQuery:
        """Start a query; see `Executor`."""
        if not query.streams:
            raise UnsupportedContinuousQueryError("without FROM STREAM Spark has nothing to do")
        if self._own:
            try:
                settings = SparkSettings.from_environment(os.environ, master=self._master)
                java_for(settings, os.environ)
            except SparkError as error:
                raise UnsupportedContinuousQueryError(str(error)) from error
        self._number += 1
        new = SparkJob(query, f"{self._place}/query{self._number}")
        # Whatever cannot be run is found here; Spark is not asked yet.
        new.question = JobQuestion.of(self._execution(new, None).graph, self._version)
        job = next((each for each in self._jobs if each.answers(new.question)), new)
        made = SparkQuery(name, query, callback, self._let_go, job)
        job.queries.append(made)
        if job is new:
            self._jobs.append(job)
            life = threading.Thread(target=self._run, args=(job,), name=f"Spark: {name}")
            life.daemon = True
            life.start()
        return made

    def _execution(self, job: SparkJob, session: Any) -> SparkExecution:
        return SparkExecution(
            session, job.query.text, self._static, job.streams, job.place,
            base=self._base, on_answer=lambda answer: self._answer(job, answer),
            reading=self._lock,
        )  # fmt: skip

    def _static_changed(self) -> None:
        self._version += 1

    def _answer(self, job: SparkJob, answer: PeriodicAnswer) -> None:
        with self._lock:
            for each in tuple(job.queries):
                if not each.active:
                    continue
                try:
                    each.answer(answer)
                except ContinuousError as error:
                    each.stop(error)
                except Exception as error:  # noqa: BLE001 (whatever it is, it is this query's alone)
                    each.fail(error)

    def _run(self, job: SparkJob) -> None:
        reason: ContinuousError | None = None
        folder: Folder | None = None
        try:
            with self._taking_queries(job):
                with self._started() as session:
                    folder = folder_of(job.place, session)
                    folders = [folder_of(each, session) for each in job.streams.values()]
                    for each in folders:
                        each.make()
                    with self._lock:
                        execution = self._execution(job, session)
                    job.run = execution.start(self._every)
                job.watch = self._watch
                with self._lock:
                    for made in job.queries:
                        if made.state == "starting":
                            made.state = "running"
                while job.active and job.run.active:
                    if job.watch is not None:
                        job.watch.look()
                    job.write(folders, _LOOK)
            job.run.wait(1)
            reason = ContinuousError("its job on Spark has ended")
        except (ContinuousError, SparkError) as error:
            died = folder is not None and self._has_died()
            reason = ContinuousError(JAVA_ENDED if died else str(error))
        except Exception as error:  # noqa: BLE001 (whatever Spark has is of this job alone)
            what = f"{type(error).__name__}: {str(error).split(chr(10))[0]}"
            if self._has_died():
                what = f"{JAVA_ENDED} ({what})"
            reason = ContinuousError(f"its job on Spark failed: {what}")
        if job.run is not None:
            with contextlib.suppress(Exception):  # as below
                job.run.progress()
        with self._lock:
            for made in tuple(job.queries):
                if made.active:
                    made.stop(reason)
        if job.run is not None:
            with contextlib.suppress(Exception):  # it may be gone with its session
                job.run.stop()
        if folder is not None:
            with contextlib.suppress(Exception):  # likewise
                folder.remove()
        job.ended.set()

    @contextlib.contextmanager
    def _taking_queries(self, job: SparkJob) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                job.ending = True

    @contextlib.contextmanager
    def _started(self) -> Iterator[Any]:
        """Open the session with the first query; jobs start one by one."""
        with self._starting:
            if self._closed:
                raise ContinuousError("the server stops")
            if self._session is None:
                session = self._opened.enter_context(self._open())
                if is_url(self._place):
                    # What a server left that was killed.
                    folder_of(self._place, session).remove()
                self._session = session
                self._watch = ExecutorWatch(session.sparkContext)
            yield self._session

    def _has_died(self) -> bool:
        """True where Spark is gone; the next query starts it again."""
        with self._starting:
            if self._session is None:
                return True  # another of its queries has found it out
            try:
                self._session.sparkContext.statusTracker().getActiveJobsIds()
            except Exception:  # noqa: BLE001 (of a connection to a process that is gone)
                self._session = None
                with contextlib.suppress(Exception):
                    self._opened.close()
                return True
            return False

    def _let_go(self, made: ExecutedQuery) -> None:
        """Remove a query; end a job without queries."""
        if made.state in ("starting", "running"):
            made.state = "closed"
        if not isinstance(made, SparkQuery) or made not in made.job.queries:
            return
        made.job.queries.remove(made)
        if not made.job.queries:
            self._ended(made.job)

    def _ended(self, job: SparkJob) -> None:
        self._jobs.remove(job)
        job.wake()

    def reads(self, stream: Term) -> bool:
        return any(each.reads(stream) for each in self._jobs)

    def arrive(self, stream: Term, triples: Sequence[Sequence[str]], at: int) -> None:
        readers = [each for each in self._jobs if each.reads(stream)]
        if readers:
            lines = [f"{at}\t" + "\t".join(map(canonical_term, each)) + "\n" for each in triples]
            for each in readers:
                each.arrive(stream, lines, at)

    def advance(self, until: int) -> None:
        for each in self._jobs:
            if each.active:
                each.advance(until)

    def close(self) -> None:
        """End all jobs, then Spark, in a thread: they may wait for the caller's lock."""
        self._closed = True
        for made in [each for job in self._jobs for each in job.queries]:
            self._let_go(made)

        def end() -> None:
            with self._starting:
                self._opened.close()
                self._session = None

        threading.Thread(target=end, name="Spark ends", daemon=True).start()
