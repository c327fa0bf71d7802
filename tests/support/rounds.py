"""Requests whose answers come a round trip later, so that round trips are counted.

Nothing depends on speed: answers come in the order of requests, exactly one round trip later; or in
a random order.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from unittest import mock

from tpf_client.fragments.fetcher import Done, Fetcher, Request, Statistics
from tpf_client.planner.driver import Woken


class Rounds:
    """The time in round trips.

    Args:
        random: chooses which request is answered next; then round trips mean nothing.

    Attributes:
        passed: sequential round trips.
        asked: for each request, the round trips before it, and its URL.
    """

    def __init__(self, random: Random | None = None) -> None:
        self._random = random
        self.passed = 0
        self.asked: list[tuple[int, str]] = []
        self._under_way: deque[tuple[int, Callable[[], None]]] = deque()

    def _answer_next(self) -> None:
        if self._random is not None:
            self._under_way.rotate(self._random.randrange(len(self._under_way)))
        self.passed, deliver = self._under_way.popleft()
        deliver()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the round trips of clients used in the block."""
        rounds, submit = self, Fetcher.submit

        class AnsweredInRounds(Woken):
            def wait(self, timeout: float | None = None) -> bool:
                while not self.is_set():
                    rounds._answer_next()
                return True

        def later(
            fetcher: Fetcher,
            request: Request,
            done: Done,
            cancelled: threading.Event | None = None,
            work: Statistics | None = None,
        ) -> None:
            kept = fetcher._kept(request)
            if kept is not None or not fetcher.parallelism:
                submit(fetcher, request, done, cancelled, work)
                return

            def deliver() -> None:
                parallelism, fetcher.parallelism = fetcher.parallelism, 0
                try:
                    submit(fetcher, request, done, cancelled, work)
                finally:
                    fetcher.parallelism = parallelism

            rounds.asked.append((rounds.passed, request.url))
            rounds._under_way.append((rounds.passed + 1, deliver))

        with (
            mock.patch("tpf_client.planner.driver.Woken", AnsweredInRounds),
            mock.patch.object(Fetcher, "submit", later),
        ):
            yield
