"""Registered queries as jobs of Structured Streaming, one for each, in one Spark session.

Elements of a batch become a file in a folder of each query that reads their stream; answers come
back from the micro-batches. Spark starts with the first query, in a thread of its own: until then
the state of that query is ``starting``, and what arrives waits.
"""

import contextlib
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

from annotations.terms import Term
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.executor import ExecutedQuery
from tpf_server.continuous.csparql.spark.execution import SparkExecution
from tpf_server.continuous.csparql.spark.run import SparkRun
from tpf_server.continuous.csparql.spark.session import continuous_session
from tpf_server.continuous.engine.elements.elements import canonical_term
from tpf_server.continuous.engine.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.engine.static.static_data import StaticData
from tpf_spark.errors import SparkError
from tpf_spark.folders import Folder, folder_of, is_url
from tpf_spark.java import find_java
from tpf_spark.session import JAVA_ENDED, SparkSettings

_EVERY: Final = "1 second"
_LOOK: Final = 1.0
"""Seconds after which a thread that has nothing to write looks whether its job still runs."""


class _Files(NamedTuple):
    """What came of each stream since the files before."""

    name: str
    lines: list[list[str]]


class SparkQuery(ExecutedQuery):
    """A query with its job.

    Args:
        name, query, callback, close: see `ExecutedQuery`.
        place: of its elements, results and checkpoint: a directory or its URL.

    Attributes:
        job: once it has started.
    """

    def __init__(
        self,
        name: str,
        query: CsparqlQuery,
        callback: Callable[[PeriodicAnswer], None],
        close: Callable[[ExecutedQuery], None],
        place: str,
    ) -> None:
        super().__init__(name, query, callback, close)
        self.state = "starting"
        self.place = place
        self.job: SparkRun | None = None
        self.ended = threading.Event()
        self.last: int | None = None
        self._files = 0
        self._lines: dict[Term, list[str]] = {stream: [] for stream in self.reads}
        self._until: int | None = None
        self._waiting: queue.SimpleQueue[_Files | None] = queue.SimpleQueue()

    @property
    def streams(self) -> dict[str, str]:
        """Where the elements of each stream go that it reads."""
        return {str(each): f"{self.place}/stream{n}" for n, each in enumerate(self.reads)}

    @property
    def active(self) -> bool:
        """Whether it still takes elements."""
        return self.state in ("starting", "running")

    def explain(self) -> dict[str, Any]:
        """Its state, when it is evaluated, and what its job has done."""
        found = {
            **super().explain(),
            "engine": "spark",
            "every_ms": list(self.query.instants.periods),
        }
        if self.stream is not None:
            found["stream"] = self.stream[1:-1]
        if self.job is not None:
            progress = self.job.known
            found["job"] = {
                "batches": progress.batches, "lines": progress.lines, "late": progress.late,
            }  # fmt: skip
        return found

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
        self._lines = {stream: [] for stream in self.reads}

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


class SparkExecutor:
    """See `Executor`.

    Args:
        static: the static data; a job reads them when it starts.
        work: a directory of its own, which is emptied.
        shared: the URL of a folder of its own in which elements, results and checkpoints are, in
            place of `work`; likewise.
        lock: of the service: held while answers are given.
        base: what relative IRIs are relative to.
        session: opens Spark.
        every: interval of processing time between two looks at what has come.
    """

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
        self._open = session or (lambda: continuous_session(master, work / "spark"))
        self._every = every
        self._queries: list[SparkQuery] = []
        self._number = 0
        self._opened = contextlib.ExitStack()
        self._session: Any = None
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
                find_java(SparkSettings.from_environment(os.environ).java_home, os.environ)
            except SparkError as error:
                raise UnsupportedContinuousQueryError(str(error)) from error
        self._number += 1
        made = SparkQuery(name, query, callback, self._let_go, f"{self._place}/query{self._number}")
        # Whatever cannot be run is found here; Spark is not asked yet.
        self._execution(made, None)
        self._queries.append(made)
        threading.Thread(target=self._run, args=(made,), name=f"Spark: {name}", daemon=True).start()
        return made

    def _execution(self, made: SparkQuery, session: Any) -> SparkExecution:
        return SparkExecution(
            session, made.query.text, self._static, made.streams, made.place,
            base=self._base, on_answer=lambda answer: self._answer(made, answer),
            reading=self._lock,
        )  # fmt: skip

    def _answer(self, made: SparkQuery, answer: PeriodicAnswer) -> None:
        with self._lock:
            # After a failure of a micro-batch its answers come again.
            if not made.active or (made.last is not None and answer.at <= made.last):
                return
            made.last = answer.at
            made.emitted += 1
            try:
                made.take(answer)
            except ContinuousError as error:
                made.stop(error)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is this query's alone)
                made.fail(error)

    def _run(self, made: SparkQuery) -> None:
        """The life of a job, in a thread."""
        reason: ContinuousError | None = None
        folder: Folder | None = None
        try:
            with self._started() as session:
                folder = folder_of(made.place, session)
                folders = [folder_of(each, session) for each in made.streams.values()]
                for each in folders:
                    each.make()
                with self._lock:
                    execution = self._execution(made, session)
                made.job = execution.start(self._every)
            with self._lock:
                if made.state == "starting":
                    made.state = "running"
            while made.active and made.job.active:
                made.write(folders, _LOOK)
            made.job.wait(1)
            reason = ContinuousError("its job on Spark has ended")
        except (ContinuousError, SparkError) as error:
            died = folder is not None and self._has_died()
            reason = ContinuousError(JAVA_ENDED if died else str(error))
        except Exception as error:  # noqa: BLE001 (whatever Spark has is this query's alone)
            what = f"{type(error).__name__}: {str(error).split(chr(10))[0]}"
            if self._has_died():
                what = f"{JAVA_ENDED} ({what})"
            reason = ContinuousError(f"its job on Spark failed: {what}")
        if made.job is not None:
            with contextlib.suppress(Exception):  # as below
                made.job.progress()
        with self._lock:
            if made.active:
                made.stop(reason)
        if made.job is not None:
            with contextlib.suppress(Exception):  # it may be gone with its session
                made.job.stop()
        if folder is not None:
            with contextlib.suppress(Exception):  # likewise
                folder.remove()
        made.ended.set()

    @contextlib.contextmanager
    def _started(self) -> Iterator[Any]:
        """The session, which starts with the first query; jobs start one after the other."""
        with self._starting:
            if self._closed:
                raise ContinuousError("the server stops")
            if self._session is None:
                session = self._opened.enter_context(self._open())
                if is_url(self._place):
                    # What a server left that was killed.
                    folder_of(self._place, session).remove()
                self._session = session
            yield self._session

    def _has_died(self) -> bool:
        """Whether Spark is gone; then the next query starts it again."""
        with self._starting:
            if self._session is None:
                return True  # another of its queries has found it out
            try:
                self._session.sparkContext._jvm.System.nanoTime()
            except Exception:  # noqa: BLE001 (of a connection to a process that is gone)
                self._session = None
                with contextlib.suppress(Exception):
                    self._opened.close()
                return True
            return False

    def _let_go(self, made: ExecutedQuery) -> None:
        """Of a query that was deleted; its thread ends the job."""
        if made in self._queries:
            self._queries.remove(made)
        if made.state in ("starting", "running"):
            made.state = "closed"
        if isinstance(made, SparkQuery):
            made.wake()

    def arrive(self, stream: Term, triples: Sequence[Sequence[str]], at: int) -> None:
        """See `Executor`."""
        readers = [each for each in self._queries if each.active and stream in each.reads]
        if readers:
            lines = [f"{at}\t" + "\t".join(map(canonical_term, each)) + "\n" for each in triples]
            for each in readers:
                each.arrive(stream, lines, at)

    def advance(self, until: int) -> None:
        """See `Executor`."""
        for each in self._queries:
            if each.active:
                each.advance(until)

    def close(self) -> None:
        """End all jobs, then Spark, in a thread: they may be waiting for who calls this."""
        self._closed = True
        for each in tuple(self._queries):
            self._let_go(each)

        def end() -> None:
            with self._starting:
                self._opened.close()
                self._session = None

        threading.Thread(target=end, name="Spark ends", daemon=True).start()
