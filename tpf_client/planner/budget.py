"""The limits of one query, also its reader's presence."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from annotations.clock import Clock
from annotations.seconds import check_seconds
from tpf_client.dataflow.changes import Sink, Solution
from tpf_client.errors import ClientError, ClosedError, LimitError

T = TypeVar("T")

_log = logging.getLogger(__name__)

_STATM = Path("/proc/self/statm")
_MIB = 2**20


def resident_bytes() -> int:
    """Return the memory of this process; 0 where unknown."""
    try:
        import resource

        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ImportError):
        return 0


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of each query; ``None``: unlimited.

    Args:
        seconds: from its first request to its last solution.
        memory: bytes by which the process may grow meanwhile.
    """

    seconds: float | None = None
    rows: int | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        check_seconds(seconds=self.seconds)


class Budget:
    """The remaining allowance of one query, from now on."""

    def __init__(
        self,
        clock: Clock,
        allowance: Allowance,
        reader_gone: Callable[[], bool] = lambda: False,
        measure: Callable[[], int] = resident_bytes,
    ) -> None:
        self.error: ClientError | None = None
        self._clock = clock
        self._allowance = allowance
        self._reader_gone = reader_gone
        self._measure = measure
        self._began = clock.now()
        self._memory = measure()
        self._lock = threading.Lock()
        # In order, each once: a stream asks at each of its evaluations.
        self._stoppers: dict[Callable[[], None], None] = {}

    def stop(self, error: ClientError) -> None:
        """End the query with an error, from any thread; the first one counts."""
        with self._lock:
            if self.error is not None:
                return
            self.error = error
            stoppers, self._stoppers = self._stoppers, {}
        for stop in stoppers:
            stop()

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Call `stop` when the query is stopped, to wake who waits for pages."""
        with self._lock:
            if self.error is None:
                self._stoppers[stop] = None
                return
        stop()

    def look(self) -> None:
        """Stop the query if it exceeds its limits, or its reader has gone."""
        allowed = self._allowance
        if self._reader_gone():
            self.stop(ClosedError("the reader has gone"))
        elif allowed.seconds is not None and self._clock.now() - self._began >= timedelta(
            seconds=allowed.seconds
        ):
            self.stop(LimitError(f"no complete answer within {allowed.seconds:g} s"))
        elif allowed.memory is not None and self._growth() > allowed.memory:
            self.stop(LimitError(f"the answer takes more than {allowed.memory // _MIB} MiB"))

    def _growth(self) -> int:
        now = self._measure()
        # Where nothing was told at the beginning, all there is would count.
        self._memory = self._memory or now
        return now - self._memory

    def pass_change(self, _solution: Solution, _count: int) -> None:
        if self.error is not None:
            raise self.error

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Raise the reason instead, where we closed the query."""
        try:
            yield
        except ClosedError:
            if self.error is not None:
                raise self.error from None
            raise

    def stoppable(self, rows: Iterator[T]) -> Iterator[T]:
        """Yield the solutions until the query is stopped."""
        with self.explaining():
            for row in rows:
                if self.error is not None:
                    raise self.error
                yield row

    def counting(self, sink: Sink) -> Sink:
        """Return a sink that stops the query at too many solutions."""
        allowed = self._allowance.rows
        if allowed is None:
            return sink
        rows = 0

        def push(solution: Solution, count: int) -> None:
            nonlocal rows
            rows += count
            if rows > allowed:
                self.stop(LimitError(f"more than {allowed} solutions"))
                self.pass_change(solution, count)
            sink(solution, count)

        return push


class BudgetWatch:
    """A thread that watches the budgets of all running queries."""

    def __init__(self, interval: float = 0.05) -> None:
        self._interval = interval
        self._budgets: set[Budget] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._budgets)

    def add(self, budget: Budget) -> None:
        with self._changed:
            if self._closed:
                budget.stop(ClosedError("the endpoint was closed"))
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tpf-watch", daemon=True)
                thread.start()
                # Only now: one that could not be started is started for the next query.
                self._thread = thread
            self._budgets.add(budget)
            self._changed.notify()

    @contextmanager
    def watching(self, budget: Budget) -> Iterator[Budget]:
        self.add(budget)
        try:
            yield budget
        finally:
            with self._changed:
                self._budgets.discard(budget)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            budgets = list(self._budgets)
            self._changed.notify()
        for budget in budgets:
            budget.stop(ClosedError("the endpoint was closed"))
        if self._thread is not None:
            with suppress(RuntimeError):
                self._thread.join(1)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._budgets and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                self._changed.wait(self._interval)
                budgets = list(self._budgets)
            for budget in budgets:
                try:
                    budget.look()
                except Exception as error:  # noqa: BLE001 - the others have limits all the same
                    _log.debug("a query could not be looked at", exc_info=error)
