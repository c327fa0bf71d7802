"""Run many continuous queries on few threads: one that waits is only a queued instant."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TypeAlias

from annotations.clock import Clock
from annotations.instants import FIRST
from tpf_client.streaming.streamer import Streamer, Tick

TakeTick: TypeAlias = Callable[[Tick], object]

_IDLE = timedelta(hours=1)
_log = logging.getLogger(__name__)


class Job:
    """One continuous query of a scheduler."""

    def __init__(self, scheduler: "Scheduler", streamer: Streamer, deliver: TakeTick) -> None:
        self.streamer = streamer
        self.error: BaseException | None = None
        self._scheduler = scheduler
        self._deliver = deliver
        self._due: datetime | None = None
        """What it waits for; ``None``: it is being evaluated."""
        self._looks = streamer.looks(self._wake)
        self._ended = threading.Event()
        self._ending = threading.Lock()
        self._on_end: list[Callable[[], object]] = []

    @property
    def ended(self) -> bool:
        """True if there will be no more ticks."""
        return self._ended.is_set()

    def when_ended(self, action: Callable[[], object]) -> None:
        """Call `action` after the last tick: in a thread of the scheduler, or at once."""
        with self._ending:
            if not self.ended:
                self._on_end.append(action)
                return
        action()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended; ``False`` on timeout."""
        return self._ended.wait(seconds)

    def close(self) -> None:
        self.streamer.close()
        if not self.ended:
            self._scheduler.put(self)

    def advance(self, now: datetime) -> datetime | None:
        """Evaluate it; return when to do so again, ``None``: it has ended."""
        try:
            while not self.streamer.closed:
                # Whoever hears something says so before he wakes it, and looks whether it waits.
                if self._due is not None and now < self._due and not self.streamer.early:
                    return self._due
                self._due = None
                step = next(self._looks, None)
                if step is None:
                    break
                if isinstance(step, datetime):
                    self._due = step
                    now = FIRST
                else:
                    self._deliver(step)
        except Exception as error:  # noqa: BLE001 - whatever a consumer raises ends its query alone
            self.error = error
            _log.debug("a continuous query ended with an error", exc_info=error)
        self._end()
        return None

    def _wake(self) -> None:
        if self._due is not None:
            self._scheduler.put(self)

    def _end(self) -> None:
        self._looks.close()
        with self._ending:
            self._ended.set()
        for action in self._on_end:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - the others are to be told all the same
                _log.warning("what follows the end of a continuous query failed", exc_info=error)


class Scheduler:
    """Evaluate continuous queries when they are due, on `threads` (0: in `run`)."""

    def __init__(self, clock: Clock, threads: int = 8) -> None:
        self._clock = clock
        self._threads = threads
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = False
        self._queue: list[tuple[datetime, int]] = []
        self._order = itertools.count()
        self._entries: dict[Job, int] = {}
        """The entry of each waiting job that counts: the newest."""
        self._waiting: dict[int, Job] = {}
        """The jobs of these entries; those of older ones are not kept."""
        self._busy: dict[Job, bool] = {}
        """Jobs that are being evaluated, and whether they were put back meanwhile."""
        self._jobs: set[Job] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._thread: threading.Thread | None = None

    def add(self, streamer: Streamer, deliver: TakeTick) -> Job:
        """Add a query; it is evaluated at once."""
        job = Job(self, streamer, deliver)
        with self._lock:
            closed = self._closed
            if not closed:
                if self._threads and self._thread is None:
                    self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tpf-stream")
                    thread = threading.Thread(target=self.run, name="tpf-streams", daemon=True)
                    thread.start()
                    # Only now: one that could not be started is started with the next query.
                    self._thread = thread
                self._jobs.add(job)
        if closed:
            streamer.close()
            job.advance(self._clock.now())
        else:
            self.put(job)
        return job

    def put(self, job: Job) -> None:
        """Evaluate a job at once."""
        with self._lock:
            if job in self._busy:
                self._busy[job] = True
            else:
                self._enqueue(job, self._clock.now())
        self._changed.set()

    def _enqueue(self, job: Job, at: datetime) -> None:
        number = next(self._order)
        self._waiting.pop(self._entries.get(job, -1), None)
        self._entries[job], self._waiting[number] = number, job
        heapq.heappush(self._queue, (at, number))

    def close(self) -> None:
        """End all queries and threads; wait for running evaluations."""
        with self._lock:
            self._closed = True
            jobs = tuple(self._jobs)
        for job in jobs:
            job.streamer.close()
        self._changed.set()
        current = threading.current_thread()
        if self._thread is not None and self._thread is not current:
            self._thread.join()
        if self._pool is not None:
            self._pool.shutdown(wait=not current.name.startswith("tpf-stream"))
        with self._lock:
            left = [job for job in self._jobs if job not in self._busy]
        for job in left:
            job.advance(self._clock.now())

    def run(self, until: datetime | None = None) -> None:
        """Evaluate until closed, or until an instant of our clock."""
        while not self._closed:
            self._changed.clear()
            with self._lock:
                due = self._queue[0][0] if self._queue else None
            if until is not None and (due is None or due > until):
                return
            wake = due if due is not None else self._clock.now() + _IDLE
            if not self._clock.wait_until(wake, self._changed) or due is None:
                continue
            with self._lock:
                job = self._waiting.pop(heapq.heappop(self._queue)[1], None)
                if job is None:
                    continue
                del self._entries[job]
                if job.ended:
                    continue
                self._busy[job] = False
            if self._pool is None:
                self._advance(job)
            else:
                self._hand_to(self._pool, job)

    def _hand_to(self, pool: ThreadPoolExecutor, job: Job) -> None:
        untaken = threading.Lock()

        def work() -> None:
            if untaken.acquire(blocking=False):
                self._advance(job)

        try:
            pool.submit(work)
        except RuntimeError:
            # No thread can be started now. The pool keeps the work, and may come to it later.
            work()

    def _advance(self, job: Job) -> None:
        put_back = True
        while put_back:
            at = job.advance(self._clock.now())
            with self._lock:
                # In one step: whoever wakes it meanwhile is not put off until then.
                put_back = self._busy.pop(job) and at is not None
                if put_back:
                    self._busy[job] = False
                elif at is None:
                    self._jobs.discard(job)
                else:
                    self._enqueue(job, at)
        self._changed.set()
