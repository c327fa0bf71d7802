"""The answers that readers follow: one for all who ask the same."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from annotations.clock import Clock
from tpf_client.errors import ClosedError
from tpf_client.live_answer import AnswerFollower, LiveAnswer, WorkCounts
from tpf_client.sparql.tokens import tokenize
from tpf_client.stream import Stream


@dataclass(frozen=True, slots=True)
class Wish:
    """What a reader wants to follow.

    Args:
        text: the query.
        max_interval: seconds between two evaluations at most; ``None``: as labels and pages say.
        grace: seconds for which what is not renewed in time stays.
    """

    text: str
    max_interval: float | None = None
    grace: float = 0.0


Start: TypeAlias = Callable[[Wish], Stream]
"""Makes the stream of what somebody wants to follow."""


class LiveAnswers:
    """The answers that are followed: one for all who ask the same. Thread-safe.

    Args:
        start: makes streams.
        clock: our clock.
        most_rows: so many solutions each may have.
        work: tells what was requested for all queries so far.
    """

    def __init__(self, start: Start, clock: Clock, most_rows: int | None, work: WorkCounts) -> None:
        self._start = start
        self._clock = clock
        self._most_rows = most_rows
        self._work = work
        self._lock = threading.Lock()
        self._answers: dict[tuple[tuple[str, ...], Wish], LiveAnswer] = {}
        self._closed = False

    def __len__(self) -> int:
        """How many different queries are evaluated."""
        return len(self._answers)

    def follow(self, wish: Wish, last_id: str | None, *, explain: bool = False) -> AnswerFollower:
        """Follow a query, together with others who ask the same.

        Args:
            wish: what to follow.
            last_id: the id of the last event that was seen.
            explain: whether to tell the plan, too.

        Raises:
            QueryError: it cannot be kept up to date.
        """
        key = (tuple([token.text for token in tokenize(wish.text)]), replace(wish, text=""))
        self.sweep()
        with self._lock:
            if self._closed:
                raise ClosedError("the endpoint was closed")
            answer = self._answers.get(key)
            if answer is not None and not answer.is_over:
                return answer.follow(last_id, explain=explain)
            stream = self._start(wish)
            answer = LiveAnswer(stream, self._most_rows, self._work, self._forget)
            self._answers[key] = answer
            follower = answer.follow(last_id, explain=explain)
        answer.start()
        return follower

    def leave(self, follower: AnswerFollower) -> None:
        """A follower has gone."""
        follower.end()
        follower.answer.leave(follower, self._clock.now())

    def sweep(self) -> None:
        """End what nobody has followed for a while."""
        now = self._clock.now()
        with self._lock:
            idle = [each for each in self._answers.values() if each.is_idle(now)]
        for each in idle:
            each.close()

    def close(self) -> None:
        """End all."""
        with self._lock:
            self._closed = True
            answers = tuple(self._answers.values())
        for each in answers:
            each.close()

    def _forget(self, answer: LiveAnswer) -> None:
        with self._lock:
            for key, each in tuple(self._answers.items()):
                if each is answer:
                    del self._answers[key]
