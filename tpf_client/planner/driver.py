"""Tasks and steps: the work of a query as generators, without I/O or waiting.

A *task* yields requests and is resumed with their pages; a `Driver` runs many. *Steps* are a whole
query: they yield an `Ask` when only a response helps.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from tpf_client.dataflow.changes import Solution
from tpf_client.errors import ClosedError, LimitError, SourceError, SourceLimitError
from tpf_client.fragments.destinations import Origin, origin
from tpf_client.fragments.fetcher import Fetcher, FetchOutcome, Request, Statistics
from tpf_client.fragments.page import Page

T = TypeVar("T")


# Who is served next: everybody who waits, by turns.

URGENT = -1
"""The queue that is always served first."""


class Turns(Generic[T]):
    """Queues served round robin, to read joined fragments side by side."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, queue: int, item: T) -> None:
        self._queues.setdefault(queue, deque()).append(item)

    def take(self) -> T:
        """Return the first item of the next queue."""
        name = URGENT if URGENT in self._queues else next(iter(self._queues))
        queue = self._queues[name]
        del self._queues[name]
        item = queue.popleft()
        if queue:
            self._queues[name] = queue
        return item

    def clear(self) -> None:
        self._queues.clear()


Task: TypeAlias = Generator[Sequence[Request], Sequence[Page], T]
"""Yields requests, is resumed with their pages in the same order, returns its result. See `PAUSE`.

The error of a request that fails is thrown into it.
"""


@dataclass(frozen=True, slots=True)
class _Started:
    task: Task[Any]
    done: Callable[[Any], None]
    failed: Callable[[BaseException], None] | None
    turn: int


PAUSE: Sequence[Request] = []
"""What a task yields to go on only when nothing else does; it is resumed with no pages."""


class Joined(list[Request]):
    """The requests of tasks that run together.

    `failed` takes the number and error of one, and returns what its task does not know to mend.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        failed: Callable[[int, BaseException], BaseException | None],
    ) -> None:
        super().__init__(requests)
        self.failed = failed


class Send(NamedTuple):
    """A request to send; `deliver` takes the page or error, in any thread."""

    request: Request
    deliver: Callable[[FetchOutcome], None]


class Ask(NamedTuple):
    """A wait for a response, to these or earlier requests.

    `seconds` is the longest wait; 0: let others go first.
    """

    requests: Sequence[Send]
    seconds: float


Steps: TypeAlias = Generator[Ask, None, T]
"""Work that yields where it needs a response, and returns its result."""
Begin: TypeAlias = Callable[[Callable[[], None], Callable[[BaseException], None]], None]
"""Spawns tasks; gets what to call when all of them are done, and when one fails."""
Waking: TypeAlias = Callable[[], object]
"""Called, in whatever thread, when who waits for something should look again."""

_ANYWHERE = Origin("", None)
_BREATH = 64
"""Responses after which others that share a thread may go first."""


class Driver:
    """The tasks of one query."""

    def __init__(self, fetcher: Fetcher, seconds: float | None = None) -> None:
        self.fetcher = fetcher
        self.requests = 0
        self.work = Statistics()
        """What was done for this query."""
        self._url = ""
        self._timeout = seconds
        self._wake: Waking = _nobody
        self._closed = False
        self._began: float | None = None
        """When it began to work; ``None``: it waits."""
        self._most = fetcher.parallelism or 1
        """How many requests to a host may be under way; where each runs where it is asked for,
        all hosts together have one."""
        self._paused: deque[Callable[[], None]] = deque()
        self._cancelled = threading.Event()
        self.begin()
        self.restart()

    def begin(self) -> None:
        """Reset the limits, for the next evaluation of a continuous query."""
        self._asked = self._bytes = 0
        self._seconds = 0.0

    def restart(self) -> None:
        """Drop all tasks and their requests; others may begin."""
        self._cancelled.set()
        self._cancelled = threading.Event()
        self._todo: dict[Origin, Turns[tuple[Request, Callable[[FetchOutcome], None]]]] = {}
        self._under_way: Counter[Origin] = Counter()
        self._sends: list[Send] = []
        self._arrived: deque[Callable[[], None]] = deque()
        self._outstanding = 0
        self._paused.clear()
        self._since: float | None = None
        """When it began to wait."""
        self._breath = 0

    @property
    def cancelled(self) -> threading.Event:
        """Set when the present requests are not needed any more."""
        return self._cancelled

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def outstanding(self) -> int:
        return self._outstanding

    @property
    def idle(self) -> bool:
        return self._outstanding == 0

    @property
    def paused(self) -> bool:
        return bool(self._paused)

    def resume(self) -> None:
        """Resume the task that has paused for longest."""
        with self.working():
            self._paused.popleft()()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the time of a block; see `in_time`."""
        began = self._began = self._now()
        try:
            yield
        finally:
            self._seconds += monotonic() - began
            self._began = None

    def _now(self) -> float:
        """Return the time, and count the wait that is over."""
        now = monotonic()
        if self._since is not None:
            self._seconds += now - self._since
            self._since = None
        return now

    def in_time(self, _solution: Solution, _count: int) -> None:
        """Raise a `LimitError` if the timeout passes during work: a guard of a dataflow."""
        most = self._timeout
        if self._began is None or most is None:
            return
        if self._seconds + monotonic() - self._began > most:
            raise LimitError(f"the query takes more than timeout={most} allows")

    def when_woken(self, action: Waking) -> None:
        """Call `action`, in any thread, at a response or the query's end."""
        self._wake = action

    def wake(self) -> None:
        self._wake()

    def spawn(
        self,
        task: Task[T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None] | None = None,
        turn: int = 0,
    ) -> None:
        """Start a task; tasks of the same `turn` are served in turn with others."""
        self._advance(_Started(task, done, failed, turn), None)

    def run(self, task: Task[T]) -> Steps[T]:
        """Run one task to its end, others beside it."""
        results: list[T] = []

        def begin(done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
            def keep(result: T) -> None:
                results.append(result)
                done()

            self.spawn(task, keep, failed)

        yield from self.until(begin)
        return results[0]

    def until(self, begin: "Begin") -> Steps[None]:
        """Run until the tasks of `begin` have called done or failed."""
        ended: list[BaseException | None] = []
        begin(lambda: ended.append(None), ended.append)
        while not ended:
            step = self.step()
            if isinstance(step, Ask):
                yield step
        if ended[0] is not None:
            raise ended[0]

    def step(self) -> Ask | bool:
        """Handle the next response; ``False``: none is under way, `Ask`: none came."""
        if self._closed:
            raise ClosedError("the query was closed")
        now = self._now()
        if self._outstanding == 0:
            return False
        most = self.fetcher.limits.max_query_seconds
        if self._timeout is not None and self._timeout <= most:
            most = self._timeout
        left = most - self._seconds
        if left <= 0:
            raise self._exceeded("timeout" if most == self._timeout else "max_query_seconds", most)
        if _ANYWHERE in self._todo and not self._arrived:
            # One after the other: whose turn it is shows when nobody has more to ask for.
            self._send(_ANYWHERE)
        if self._sends or not self._arrived:
            sends, self._sends = self._sends, []
            self._since, self._breath = now, 0
            return Ask(sends, 0 if self._arrived else left)
        self._breath += 1
        if self._breath > _BREATH:
            self._breath = 0
            return Ask((), 0)
        arrived = self._arrived.popleft()
        self._outstanding -= 1
        with self.working():
            arrived()
        return True

    def close(self) -> None:
        """Stop, from any thread: send nothing more, read nothing more."""
        self._closed = True
        self._cancelled.set()
        self._wake()

    def _exceeded(self, limit: str, most: float) -> SourceLimitError:
        return SourceLimitError(self._url, f"the query takes more than {limit}={most} allows")

    def _measured(self, answer: FetchOutcome) -> FetchOutcome:
        if isinstance(answer, Page):
            self._bytes += answer.size
            if self._bytes > self.fetcher.limits.max_query_bytes:
                return self._exceeded("max_query_bytes", self.fetcher.limits.max_query_bytes)
        return answer

    def _ask(self, request: Request, handle: Callable[[FetchOutcome], None], turn: int) -> None:
        self._url = self._url or request.url
        self._asked += 1
        self._outstanding += 1
        most = self.fetcher.limits.max_query_requests
        try:
            where = origin(request.url)
            if self._asked > most:
                raise self._exceeded("max_query_requests", most)
        except SourceError as error:
            # What cannot be asked is not waited for, and its task may know what to do.
            self._arrived.append(partial(handle, error))
            return
        where = where if self.fetcher.parallelism else _ANYWHERE
        self.requests += 1
        self._todo.setdefault(where, Turns()).add(turn, (request, handle))
        if where is not _ANYWHERE:
            self._send(where)

    def _send(self, where: Origin) -> None:
        waiting = self._todo[where]
        while waiting and self._under_way[where] < self._most:
            self._under_way[where] += 1
            self._sends.append(self._sent(where, *waiting.take()))

    def _sent(
        self, where: Origin, request: Request, handle: Callable[[FetchOutcome], None]
    ) -> Send:
        cancelled, arrived = self._cancelled, self._arrived

        def deliver(answer: FetchOutcome) -> None:
            def take_in() -> None:
                self._under_way[where] -= 1
                if where is not _ANYWHERE:
                    self._send(where)
                handle(answer)

            if not cancelled.is_set():
                arrived.append(take_in)
                self._wake()

        return Send(request, deliver)

    def _advance(self, run: "_Started", pages: Sequence[Page] | BaseException | None) -> None:
        while True:
            try:
                if isinstance(pages, BaseException):
                    requests = run.task.throw(pages)
                elif pages is None:
                    requests = next(run.task)
                else:
                    requests = run.task.send(pages)
            except StopIteration as stop:
                run.done(stop.value)
                return
            except Exception as error:
                if run.failed is None:
                    raise
                run.failed(error)
                return
            if requests is PAUSE:
                self._paused.append(lambda: self._advance(run, ()))
                return
            if requests:
                self._gather(requests, lambda result: self._advance(run, result), run.turn)
                return
            pages = ()

    def _gather(
        self,
        requests: Sequence[Request],
        resume: Callable[[Sequence[Page] | BaseException], None],
        turn: int,
    ) -> None:
        pages: list[Any] = [None] * len(requests)
        missing = len(requests)
        over = False

        def handler(number: int) -> Callable[[FetchOutcome], None]:
            def handle(answer: FetchOutcome) -> None:
                nonlocal missing, over
                if over:
                    return
                answer = self._measured(answer)
                if isinstance(answer, BaseException):
                    error = (
                        requests.failed(number, answer) if isinstance(requests, Joined) else answer
                    )
                    if error is not None:
                        over = True
                        resume(error)
                        return
                pages[number] = answer
                missing -= 1
                if not missing:
                    over = True
                    resume(pages)

            return handle

        for number, request in enumerate(requests):
            self._ask(request, handler(number), turn)


def _nobody() -> None:
    """Nobody waits."""


# Steps in a thread.


class Woken(threading.Event):
    """The event of a thread that runs steps: a response, or the query's end."""


def in_turn(first: Waking, second: Waking | None) -> Waking:
    """Call both functions, in order."""

    def both() -> None:
        first()
        if second is not None:
            second()

    return both


def answered(
    steps: Generator[Ask | T, None, object], driver: Driver, wake: Waking | None = None
) -> Generator[T]:
    """Send the requests of steps and wait here; yield everything else."""
    woken = Woken()

    driver.when_woken(in_turn(woken.set, wake))
    with closing(steps):
        for step in steps:
            if isinstance(step, Ask):
                send(step, driver)
                if step.seconds:
                    woken.wait(min(step.seconds, threading.TIMEOUT_MAX))
                    woken.clear()
            else:
                yield step


def finished(steps: Steps[T], driver: Driver) -> T:
    """Return the result of steps, waiting in this thread."""
    results: list[T] = []

    def kept() -> Steps[None]:
        results.append((yield from steps))

    for _ in answered(kept(), driver):
        pass
    return results[0]


def send(ask: Ask, driver: Driver) -> None:
    """Send requests; their responses wake the driver (`Driver.when_woken`)."""
    for request, deliver in ask.requests:
        driver.fetcher.submit(request, deliver, driver.cancelled, driver.work)
