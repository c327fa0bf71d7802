"""Runs tasks: generators that yield the requests they need and are resumed with the pages.

Everything but the requests happens in the thread of whoever calls `Driver.step`, in the order in
which responses arrive; so the dataflow that the tasks feed needs no locks.
"""

import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeAlias, TypeVar

from tpf_client.errors import ClosedError, SourceLimitError
from tpf_client.fragments.destinations import Origin, origin
from tpf_client.fragments.fetcher import Fetcher, FetchOutcome, Request, Statistics
from tpf_client.fragments.page import Page

T = TypeVar("T")


# Who is served next: everybody who waits, by turns.

URGENT = -1
"""The queue that is always served first."""


class Turns(Generic[T]):
    """Queues that are served one after the other, an item at a time.

    What a query joins is read side by side so: its first solutions need a little of everything.
    """

    def __init__(self) -> None:
        self._queues: dict[int, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, queue: int, item: T) -> None:
        """Let an item wait in a queue."""
        self._queues.setdefault(queue, deque()).append(item)

    def take(self) -> T:
        """The first item of the queue whose turn it is; that one comes last then."""
        name = URGENT if URGENT in self._queues else next(iter(self._queues))
        queue = self._queues[name]
        del self._queues[name]
        item = queue.popleft()
        if queue:
            self._queues[name] = queue
        return item

    def clear(self) -> None:
        """Forget everything that waits."""
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


class Driver:
    """The tasks of one query.

    Args:
        fetcher: gets the pages; its limits are those of the query.
        url: the dataset, for errors.
    """

    def __init__(self, fetcher: Fetcher, url: str = "") -> None:
        self.fetcher = fetcher
        self.requests = 0
        self.work = Statistics()
        """What was done for this query."""
        self._url = url
        self.begin()
        self._inline = fetcher.parallelism == 0
        self._todo: dict[Origin, Turns[tuple[Request, Callable[[FetchOutcome], None]]]] = {}
        self._under_way: Counter[Origin] = Counter()
        self._arrived: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._outstanding = 0
        self._paused: deque[Callable[[], None]] = deque()
        self._cancelled = threading.Event()

    def begin(self) -> None:
        """What is allowed is allowed anew: for the next evaluation of a continuous query."""
        self._asked = self._bytes = 0
        self._seconds = 0.0

    @property
    def cancelled(self) -> threading.Event:
        """Set when nobody wants the answers any more."""
        return self._cancelled

    @property
    def outstanding(self) -> int:
        """How many requests are under way, or wait for their turn."""
        return self._outstanding

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return self._outstanding == 0

    @property
    def paused(self) -> bool:
        """Whether a task waits for `resume`."""
        return bool(self._paused)

    def resume(self) -> None:
        """Let the task go on that has paused for longest."""
        self._paused.popleft()()

    def spawn(
        self,
        task: Task[T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None] | None = None,
        turn: int = 0,
    ) -> None:
        """Start a task.

        Args:
            task: what to do.
            done: gets its result.
            failed: gets its error; ``None``: `step` raises it.
            turn: the tasks that have this number are served by turns with those of others.
        """
        self._advance(_Started(task, done, failed, turn), None)

    def run(self, task: Task[T]) -> T:
        """Run one task to its end, others beside it.

        Raises:
            SourceError: what the task raised.
            ClosedError: the query was cancelled meanwhile.
        """
        results: list[T] = []
        errors: list[BaseException] = []
        self.spawn(task, results.append, errors.append)
        while not results and not errors:
            self.step()
        if errors:
            raise errors[0]
        return results[0]

    def step(self) -> bool:
        """Handle the next response, waiting for it; ``False`` where none is under way.

        Raises:
            SourceLimitError: the query takes more than is allowed.
            ClosedError: the query was cancelled meanwhile.
        """
        if self._cancelled.is_set():
            raise ClosedError("the query was closed")
        if self._outstanding == 0:
            return False
        started = monotonic()
        try:
            return self._next()
        finally:
            self._seconds += monotonic() - started

    def _next(self) -> bool:
        left = self.fetcher.limits.max_query_seconds - self._seconds
        if left <= 0:
            raise self._exceeded("max_query_seconds")
        waiting = next(filter(None, self._todo.values()), None) if self._inline else None
        if waiting is not None:
            request, handle = waiting.take()
            answers: list[FetchOutcome] = []
            self.fetcher.submit(request, answers.append, self._cancelled, self.work)
            if not answers:
                raise ClosedError("the query was closed")
            self._outstanding -= 1
            handle(answers[0])
            return True
        try:
            arrived = self._arrived.get(timeout=min(left, threading.TIMEOUT_MAX))
        except queue.Empty:
            raise self._exceeded("max_query_seconds") from None
        if self._cancelled.is_set():
            raise ClosedError("the query was closed")
        self._outstanding -= 1
        arrived()
        return True

    def close(self) -> None:
        """Stop: nothing is asked any more, and what arrives is not looked at."""
        self._cancelled.set()
        self._todo.clear()
        self._arrived.put(lambda: None)

    def _exceeded(self, limit: str) -> SourceLimitError:
        most: float = getattr(self.fetcher.limits, limit)
        return SourceLimitError(self._url, f"the query takes more than {limit}={most} allows")

    def _measured(self, answer: FetchOutcome) -> FetchOutcome:
        """The answer, or the error that it is too much."""
        if isinstance(answer, Page):
            self._bytes += answer.size
            if self._bytes > self.fetcher.limits.max_query_bytes:
                return self._exceeded("max_query_bytes")
        return answer

    def _ask(self, request: Request, handle: Callable[[FetchOutcome], None], turn: int) -> None:
        # First: what cannot be asked is not waited for.
        where = origin(request.url)
        self._url = self._url or request.url
        self._asked += 1
        if self._asked > self.fetcher.limits.max_query_requests:
            too_many = self._exceeded("max_query_requests")
            self._outstanding += 1
            self._arrived.put(lambda: handle(too_many))
            return
        self._outstanding += 1
        self.requests += 1
        self._todo.setdefault(where, Turns()).add(turn, (request, handle))
        self._send(where)

    def _send(self, where: Origin) -> None:
        """Let as many requests to a host be under way as may be."""
        waiting = self._todo[where]
        while waiting and self._under_way[where] < self.fetcher.parallelism:
            self._under_way[where] += 1
            request, handle = waiting.take()
            arrive = partial(self._arrive, where, handle)
            self.fetcher.submit(request, arrive, self._cancelled, self.work)

    def _arrive(
        self, where: Origin, handle: Callable[[FetchOutcome], None], answer: FetchOutcome
    ) -> None:
        """Take in an answer, in whatever thread."""

        def take_in() -> None:
            self._under_way[where] -= 1
            self._send(where)
            handle(answer)

        self._arrived.put(take_in)

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

        def handler(place: int) -> Callable[[FetchOutcome], None]:
            def handle(answer: FetchOutcome) -> None:
                nonlocal missing, over
                if over:
                    return
                answer = self._measured(answer)
                if isinstance(answer, BaseException):
                    over = True
                    resume(answer)
                    return
                pages[place] = answer
                missing -= 1
                if not missing:
                    over = True
                    resume(pages)

            return handle

        for place, request in enumerate(requests):
            self._ask(request, handler(place), turn)
