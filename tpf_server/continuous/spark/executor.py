"""Run registered queries in one Spark session: all of them over the same batches of elements.

Spark starts with the first query, or before it. The elements of a batch become a file.
"""

import contextlib
import itertools
import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from annotations.terms import Term
from tpf_server.continuous.runtime.clock import NO_WAITS, Waits
from tpf_server.continuous.runtime.elements.elements import canonical_term
from tpf_server.continuous.runtime.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.csparql_query import CsparqlQuery, PeriodicAnswer
from tpf_server.continuous.runtime.instants.periodic_query import ExecutedQuery
from tpf_server.continuous.runtime.plans.batch_report import AT_INSTANTS, batch_report
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.continuous.spark.batches import MicroBatches, StreamedTriple, WindowQuery
from tpf_server.continuous.spark.execution import (
    asking_java,
    continuous_session,
    window_query,
)
from tpf_server.spark.folders import Folder, folder_of, is_url
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import JAVA_ENDED, ExecutorWatch, SparkSettings, java_for


class _Arrived(NamedTuple):
    triples: Mapping[Term, list[StreamedTriple]]
    told: int | None = None
    present: int | None = None


_log: Final = logging.getLogger(__name__)
MOST_WAITING: Final = 1_000_000
"""Triples that wait for a batch; of more, queries end."""


class SparkJob:
    """The batches of all queries, from the first query to the last.

    Attributes:
        queries: in the order of their registration.
        batches: once Spark has started.
        behind: how many triples wait.
        ended: set when everything is removed.
    """

    def __init__(self, place: str, waits: Waits) -> None:
        self.place = place
        self.waits = waits
        self.queries: list[SparkQuery] = []
        self.batches: MicroBatches | None = None
        self.watch: ExecutorWatch | None = None
        self.ended = threading.Event()
        self._triples: dict[Term, list[StreamedTriple]] = {}
        self._answered: int | None = None
        self.behind = 0
        self._waiting: deque[_Arrived | SparkQuery] = deque()
        self._changed = threading.Condition()

    @property
    def active(self) -> bool:
        # Of a copy: queries come and go under the lock of the service, which not all have who ask.
        return any(each.active for each in tuple(self.queries))

    def reads(self, stream: Term) -> bool:
        return any(stream in each.reads and each.active for each in self.queries)

    def add(self, query: "SparkQuery") -> None:
        """Add a query; it sees what arrives from now on."""
        if self._triples:
            self._hand_on(None, None)
        self.queries.append(query)
        self._put(query)

    def arrive(self, stream: Term, triples: Sequence[StreamedTriple], at: int) -> None:
        self.behind += len(triples)
        if self.behind <= MOST_WAITING:
            self._triples.setdefault(stream, []).extend(triples)
        if self._answered is None:
            self._answered = at - 1

    def advance(self, told: int | None, present: int | None) -> None:
        """Hand on elements and progress, where they matter to a query."""
        answered = self._answered
        if answered is None:
            return  # queries are evaluated from the first element on
        until = answered if told is None else max(answered, told - self.waits.lateness)
        running = [each for each in self.queries if each.active]
        if self._triples or any(each.query.instants.after(answered) <= until for each in running):
            self._answered = until
            self._hand_on(told, present)

    def _hand_on(self, told: int | None, present: int | None) -> None:
        self._put(_Arrived(self._triples, told, present))
        self._triples = {}

    def _put(self, item: "_Arrived | SparkQuery") -> None:
        with self._changed:
            self._waiting.append(item)
            self._changed.notify()

    def wake(self) -> None:
        """End a wait of `take`."""
        with self._changed:
            self._changed.notify()

    def take(self, seconds: float) -> tuple[list[_Arrived], list["SparkQuery"]]:
        """Return what waits for the next batch, and the queries that come after it."""
        arrived: list[_Arrived] = []
        queries: list[SparkQuery] = []
        with self._changed:
            if not self._waiting:
                self._changed.wait(seconds)
            while self._waiting:
                item = self._waiting[0]
                if isinstance(item, SparkQuery):
                    queries.append(item)
                elif queries:
                    break
                else:
                    arrived.append(item)
                self._waiting.popleft()
        return arrived, queries

    def processed(self, count: int) -> None:
        """Note that this many triples no longer wait.

        Raises:
            ContinuousError: too many waited, and those that came then are lost.
        """
        if self.behind > MOST_WAITING:
            raise ContinuousError(f"more than {MOST_WAITING:,} triples waited for Spark")
        self.behind -= count


class SparkQuery(ExecutedQuery):
    """A query that a job answers."""

    def __init__(
        self,
        name: str,
        query: CsparqlQuery,
        callback: Callable[[PeriodicAnswer], None],
        close: Callable[[ExecutedQuery], None],
        job: SparkJob,
        windows: WindowQuery,
    ) -> None:
        super().__init__(name, query, callback, close)
        self.state = "starting"
        self.job = job
        self.windows = windows
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
        if self.job.batches is not None:
            progress = self.job.batches.progress
            result["job"] = {
                "batches": progress.batches, "lines": progress.lines, "late": progress.late,
            }  # fmt: skip
        if self.job.watch is not None:
            result["spark"] = self.job.watch.report
        return result


_EVERY: Final = 1.0
"""The least seconds from batch to batch."""
_LONGEST: Final = 4
"""The most times `every` from the begin of a batch to the end of the next, if it takes as long."""
_SHARE: Final = 8
"""The next batch begins after this many times what one took."""
_EXAMPLE: Final = """REGISTER QUERY example AS SELECT ?s ?v
FROM STREAM <urn:example> [RANGE 2s STEP 1s] WHERE { ?s <urn:p> ?v FILTER(?v != "") }"""


class SparkExecutor:
    """See `Executor`; `shared` is the URL of a folder to use in place of `work`."""

    def __init__(
        self,
        static: StaticData,
        work: Path,
        lock: AbstractContextManager[Any],
        *,
        base: str,
        waits: Waits = NO_WAITS,
        session: Callable[[], AbstractContextManager[Any]] | None = None,
        master: str = "local[*]",
        shared: str = "",
        every: float = _EVERY,
    ) -> None:
        self._static = static
        self._place = shared.rstrip("/") or str(work)
        self._lock = lock
        self._base = base
        self._waits = waits
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
        self._pause = threading.Event()
        shutil.rmtree(work, ignore_errors=True)

    def prepare(self) -> None:
        """Start Spark before the first query, and answer one there: the first takes seconds."""
        self._check_java()
        threading.Thread(target=self._prepare, name="Spark starts", daemon=True).start()

    def _prepare(self) -> None:
        try:
            with self._started() as session:
                folder = folder_of(f"{self._place}/example", session)
                folder.make()
                try:
                    self._answer_example(session, folder)
                finally:
                    folder.remove()
        except Exception as error:  # noqa: BLE001 (the first query will have it, too)
            _log.warning("Spark is not ready: %s", error)
            self._has_died()

    def _answer_example(self, session: Any, folder: Folder) -> None:
        batches = MicroBatches(session, folder.inner("answers"))
        _, query = window_query(_EXAMPLE, StaticData())
        stream, triple = Term("<urn:example>"), (Term("<urn:s>"), Term("<urn:p>"), Term('"o"'))
        with contextlib.closing(batches):
            for number in range(3):
                at, name = 1000 * number, f"{number}.parquet"
                folder.write(name, [batches.parquet({stream: [(at, *triple)]})])
                files = {stream: [f"{folder.url}/{name}"]}
                batches.process(number, files, [query], timestamps={stream: [at]})

    def _check_java(self) -> None:
        if self._own:
            try:
                settings = SparkSettings.from_environment(os.environ, master=self._master)
                java_for(settings, os.environ)
            except SparkError as error:
                raise UnsupportedContinuousQueryError(str(error)) from error

    def start(
        self, query: CsparqlQuery, callback: Callable[[PeriodicAnswer], None], *, name: str
    ) -> SparkQuery:
        if not query.streams:
            raise UnsupportedContinuousQueryError("without FROM STREAM Spark has nothing to do")
        self._check_java()
        # Whatever cannot be run is refused here; Spark is not asked yet.
        _, windows = window_query(
            query.text, self._static, base=self._base, reading=self._lock, version=self._version
        )
        job = next((each for each in self._jobs if each.active), None)
        if job is None:
            self._number += 1
            job = SparkJob(f"{self._place}/queries{self._number}", self._waits)
            self._jobs.append(job)
            life = threading.Thread(target=self._run, args=(job,), name="Spark", daemon=True)
        else:
            life = None
        made = SparkQuery(name, query, callback, self._let_go, job, windows)
        job.add(made)
        if life is not None:
            life.start()
        return made

    def _static_changed(self) -> None:
        self._version += 1

    def _answer(self, made: SparkQuery, answers: list[PeriodicAnswer] | ContinuousError) -> None:
        if isinstance(answers, ContinuousError):
            made.stop(answers)
            return
        for answer in answers:
            if not made.active:
                return
            try:
                made.answer(answer)
            except ContinuousError as error:
                made.stop(error)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is this query's alone)
                made.fail(error)

    def _run(self, job: SparkJob) -> None:
        reason = ContinuousError("its job on Spark has ended")
        folder: Folder | None = None
        try:
            with self._started() as session:
                folder = folder_of(job.place, session)
                folder.make()
                job.batches = MicroBatches(session, folder.inner("answers"), job.waits)
                job.watch = self._watch
            with asking_java():
                self._batches(job, folder)
        except (ContinuousError, SparkError) as error:
            died = folder is not None and self._has_died()
            reason = ContinuousError(JAVA_ENDED if died else str(error))
        except Exception as error:  # noqa: BLE001 (whatever Spark has is of this job alone)
            what = f"{type(error).__name__}: {str(error).split(chr(10))[0]}"
            if self._has_died():
                what = f"{JAVA_ENDED} ({what})"
            reason = ContinuousError(f"its job on Spark failed: {what}")
        with self._lock:
            for made in tuple(job.queries):
                if made.active:
                    made.stop(reason)
        if folder is not None:
            with contextlib.suppress(Exception):  # Java may be gone
                folder.remove()
        if job.batches is not None:
            with contextlib.suppress(Exception):
                job.batches.close()
        job.ended.set()

    def _batches(self, job: SparkJob, folder: Folder) -> None:
        assert job.batches is not None
        taken: list[SparkQuery] = []
        written: dict[int, str] = {}
        for number in itertools.count():
            if not job.active:
                return
            arrived, new = job.take(self._every)
            begin = time.monotonic()
            if job.watch is not None:
                job.watch.look()
            if arrived:
                triples = _triples(arrived)
                files = {}
                if triples:
                    # One for all streams; the names of these are in it.
                    written[number] = name = f"{number:09d}.parquet"
                    folder.write(name, [job.batches.parquet(triples)])
                    files = {next(iter(triples)): [f"{folder.url}/{name}"]}
                answers = job.batches.process(
                    number,
                    files,
                    [each.windows for each in taken],
                    max((each.told for each in arrived if each.told is not None), default=None),
                    arrived[-1].present,
                    {stream: [at for at, *_ in each] for stream, each in triples.items()},
                )
                for past in set(written).difference(job.batches.retained):
                    folder.delete(written.pop(past))
                made = {each.windows: each for each in taken}
                with self._lock:
                    job.processed(sum(map(len, triples.values())))
                    for windows, result in answers:
                        self._answer(made[windows], result)
            with self._lock:
                for each in new:
                    job.batches.admit(each.windows, number + 1)
                    if each.state == "starting":
                        each.state = "running"
                taken = [each for each in (*taken, *new) if each.active]
            took = time.monotonic() - begin
            cycle = min(max(self._every, _SHARE * took), _LONGEST * self._every - took)
            self._pause.wait(max(0.0, cycle - took) if arrived else 0)

    @contextlib.contextmanager
    def _started(self) -> Iterator[Any]:
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
        if made.state in ("starting", "running"):
            made.state = "closed"
        if not isinstance(made, SparkQuery) or made not in made.job.queries:
            return
        made.job.queries.remove(made)
        if not made.job.queries:
            if made.job in self._jobs:
                self._jobs.remove(made.job)
            made.job.wake()

    def reads(self, stream: Term) -> bool:
        return any(each.reads(stream) for each in self._jobs)

    def arrive(self, stream: Term, triples: Sequence[Sequence[str]], at: int) -> None:
        readers = [each for each in self._jobs if each.reads(stream)]
        if readers:
            stamped = [
                (at, canonical_term(subject), canonical_term(predicate), canonical_term(object_))
                for subject, predicate, object_ in triples
            ]
            for each in readers:
                each.arrive(stream, stamped, at)

    def advance(self, told: int | None, present: int | None) -> None:
        for each in self._jobs:
            if each.active:
                each.advance(told, present)

    def close(self) -> None:
        """End all jobs, then Spark, in a thread: they may wait for the caller's lock."""
        self._closed = True
        self._pause.set()
        for made in [each for job in self._jobs for each in job.queries]:
            self._let_go(made)

        def end() -> None:
            with self._starting:
                self._opened.close()
                self._session = None

        threading.Thread(target=end, name="Spark ends", daemon=True).start()


def _triples(arrived: Sequence[_Arrived]) -> dict[Term, list[StreamedTriple]]:
    result: dict[Term, list[StreamedTriple]] = {}
    for each in arrived:
        for stream, triples in each.triples.items():
            result.setdefault(stream, []).extend(triples)
    # An element may have no triples.
    return {stream: triples for stream, triples in result.items() if triples}
