"""The recorded day on a manual clock: every emitted answer equals another engine's."""

import os
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import zip_longest
from pathlib import Path

import pytest

from annotations.labels import Labelling
from annotations.terms import Quad, Variable
from tests.support.irail import Day, day, needs_recording, play
from tests.support.oracle import SolutionBag, bag, select, store_of
from tests.support.served import Served
from tests.support.streams import ticks
from tpf_client.sparql.algebra import Row
from tpf_client.streaming.streamer import Tick

__all__ = ["day"]
pytestmark = [
    *needs_recording,
    pytest.mark.timeout(3600 if "IRAIL_WHOLE_DAY" in os.environ else 300),
]

TRAINS = """
PREFIX t: <http://example.org/train#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
SELECT ?delay ?platform ?headSign ?routeLabel ?departureTime
WHERE {
  _:id t:delay ?delay .
  _:id t:platform ?platform .
  _:id t:departureTime ?departureTime .
  _:id t:headSign ?headSign .
  _:id t:routeLabel ?routeLabel .
  FILTER (?departureTime > "2014-12-05T10:20:00+01:00"^^xsd:dateTime)
  FILTER (?departureTime < "2014-12-05T23:20:00+01:00"^^xsd:dateTime)
}
"""

WHOLE_DAY = "IRAIL_WHOLE_DAY" in os.environ
"""Whether every test plays the whole day."""

POLLS, FEWER, FEWEST = 200, 40, 10
"""Of a shorter play: more than three hours, more than half an hour, and less."""

LATE = timedelta(milliseconds=50)
"""A client may be this late: it allows for a drift of the clocks since it last heard the time."""

METHODS = ["singleton-property", "named-graph", "implicit-graph"]
every_labelling = pytest.mark.parametrize("labelling", ["expiration", "interval"])


class Engine:
    """The other engine, moved from one poll to the next."""

    def __init__(self, day: Day) -> None:
        self._batches = day.batches
        self._starts = [batch.at for batch in day.batches]
        self._store = store_of(day.static)
        self._held: set[Quad] = set()
        self._answers: dict[datetime, SolutionBag] = {}

    def answer(self, now: datetime) -> SolutionBag:
        """Return the answer at an instant: facts of a poll hold until the next."""
        if now not in self._answers:
            self._answers[now] = self._evaluate(now)
        return self._answers[now]

    def _evaluate(self, now: datetime) -> SolutionBag:
        batch = self._batches[bisect_right(self._starts, now) - 1]
        valid = set(batch.quads) if now < batch.until else set()
        for quads, change in (
            (self._held - valid, self._store.remove),
            (valid - self._held, self._store.add),
        ):
            for quad in store_of(quads):
                change(quad)
        self._held = valid
        return bag(select(self._store, TRAINS))


@every_labelling
def test_every_answer_of_the_day_is_right(day: Day, labelling: Labelling, tmp_path: Path) -> None:
    """Hours by one method for each kind of labels, fewer by the others."""
    longest = {"expiration": "singleton-property", "interval": "named-graph"}[labelling]
    last = len(day.batches) - 1
    polls = {name: last if WHOLE_DAY else POLLS if name == longest else FEWER for name in METHODS}
    with Served(tmp_path, day.static, dataset={"max_age": 3600}, start=day.batches[0].at) as served:
        play(day.batches, served, labelling)
        served.clock.advance_to(day.batches[0].at)
        engine = Engine(day)
        checks = [_Check(day, engine, served, f"trains/{name}", polls[name]) for name in METHODS]
        # In step: who waits first moves the clock, and the others find it there.
        for _ in zip_longest(*checks):
            pass
        for check in checks:
            check.finish()
        # A request for each of the two live fragments, and now and then what is new on the board.
        assert len(served.requests) <= 3 * sum(count + 1 for count in polls.values())


@pytest.mark.parametrize("method", METHODS)
@every_labelling
def test_every_answer_over_a_foreign_server_is_right(
    day: Day, method: str, labelling: Labelling, tmp_path: Path
) -> None:
    """Rewritten patterns, without labels on pages, for a part of the day."""
    settings = {"annotation": method, "max_age": 3600, "page_labels": False}
    polls = len(day.batches) - 1 if WHOLE_DAY else FEWEST
    with Served(tmp_path, day.static, dataset=settings, start=day.batches[0].at) as served:
        play(day.batches, served, labelling)
        served.clock.advance_to(day.batches[0].at)
        check = _Check(day, Engine(day), served, "trains", polls)
        for _ in check:
            pass
        check.finish()


class _Check:
    """A continuous query whose answers until a poll are compared with the other engine's."""

    def __init__(self, day: Day, engine: Engine, served: Served, path: str, polls: int) -> None:
        self._engine = engine
        self._polls = polls
        self._passed = deque(batch.at for batch in day.batches[: polls + 1])
        self._ticks = ticks(served, path, TRAINS, self._passed[-1])
        self._answer: SolutionBag = Counter()
        self._changes = 0

    def __iter__(self) -> Iterator[Tick]:
        for tick in self._ticks:
            assert tick.error is None
            assert not tick.warnings
            # What was emitted before was right at every poll since.
            while self._passed and self._passed[0] < tick.at - LATE:
                assert self._answer == self._engine.answer(self._passed.popleft())
            self._answer.update(_bag(tick.variables, tick.added))
            self._answer.subtract(_bag(tick.variables, tick.removed))
            self._answer = +self._answer
            assert self._answer == self._engine.answer(tick.at)
            assert self._answer == _bag(tick.variables, tick.answer())
            self._changes += bool(tick.added or tick.removed)
            yield tick

    def finish(self) -> None:
        """Nothing was left out."""
        assert len(self._passed) <= 1
        assert self._changes > self._polls / 10


def _bag(variables: tuple[Variable, ...], rows: list[Row]) -> SolutionBag:
    return bag(
        {name: term for name, term in zip(variables, row, strict=True) if term is not None}
        for row in rows
    )
