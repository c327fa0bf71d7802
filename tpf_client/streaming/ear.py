"""What a continuous query hears of changes, and how that shortens its waiting."""

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from annotations.clock import Clock
from annotations.instants import shifted
from tpf_client.planner.evaluation import Evaluation
from tpf_client.streaming.change_signal import ChangeSignals
from tpf_client.streaming.schedule import Schedule

SAFETY: Final = timedelta(minutes=5)
"""How often fragments are looked at all the same, whose server tells what changes."""


class Ear:
    """Listens for one query; what is heard waits until the query is evaluated.

    Args:
        signals: where things are heard.
    """

    def __init__(self, signals: ChangeSignals) -> None:
        self._signals = signals
        self._lock = threading.Lock()
        self._urls: Sequence[str] = ()
        self._ends: list[Callable[[], None]] = []
        self._up: dict[str, bool] = {}
        self._interest: frozenset[str] | None = None
        self._changed: set[str] = set()
        self._all = False
        self._news = threading.Event()
        self._ended = threading.Event()
        self.on_news: Callable[[], object] = lambda: None

    def follow(self, urls: Sequence[str]) -> None:
        """Listen at these URLs from now on, and nowhere else."""
        if urls == self._urls or self._ended.is_set():
            return
        ends, self._ends, self._urls = self._ends, [], urls
        for end in ends:
            end()
        with self._lock:
            self._up = dict.fromkeys(urls, False)
        for url in urls:
            self._ends.append(self._signals.follow(url, self._heard_at(url)))

    def _heard_at(self, url: str) -> Callable[[bool, frozenset[str] | None], None]:
        def heard(up: bool, predicates: frozenset[str] | None) -> None:
            with self._lock:
                turned = self._up.get(url) != up
                self._up[url] = up
                if predicates is None:
                    self._all = True
                else:
                    wanted = self._interest
                    mine = predicates if wanted is None else predicates & wanted
                    self._changed |= mine
                    if not mine and not turned:
                        return
                self._news.set()
            self.on_news()

        return heard

    def tell(self, evaluation: Evaluation) -> None:
        """Let an evaluation that begins know what was heard."""
        with self._lock:
            self._news.clear()
            changed, self._changed = frozenset(self._changed), set()
            every, self._all = self._all, False
            up = bool(self._up) and all(self._up.values())
        freshness = evaluation.freshness
        if (freshness.signalled is not None) != up:
            evaluation.freshness = replace(freshness, signalled=SAFETY if up else None)
        if every or changed:
            evaluation.mark(None if every else changed)

    def wait(
        self, wake: datetime, clock: Clock, schedule: Schedule, evaluation: Evaluation
    ) -> Generator[datetime, None, bool]:
        """Yield the instants to wait for, on our clock; whether something was heard before `wake`.

        Args:
            wake: when to go on at the latest.
            clock: our clock.
            schedule: how soon after an evaluation the next may be.
            evaluation: of what changes are of interest.
        """
        with self._lock:
            self._interest = evaluation.predicates()
        soonest = shifted(clock.now(), max(schedule.min_interval, schedule.least))
        while clock.now() < wake and not self._ended.is_set():
            if not self._news.is_set():
                yield wake
            elif clock.now() < soonest:
                yield min(soonest, wake)
            else:
                return True
        return False

    def wait_until(self, instant: datetime, clock: Clock) -> None:
        """Wait until an instant, or until something is heard that was not before."""
        if self._news.is_set():
            clock.wait_until(instant, self._ended)
        else:
            clock.wait_until(instant, self._news)

    def close(self) -> None:
        """Listen no more; who waits goes on."""
        self._ended.set()
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        self._news.set()
