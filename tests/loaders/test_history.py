"""The history of a feed equals its statements at every instant, in bounded memory."""

import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from annotations.labels import overlaps
from annotations.terms import Quad, Term
from loaders.dynamic import NumberedBatch, history, placed_history
from loaders.sources.base import FeedBatch

BEGIN = datetime(2015, 12, 8, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def fact_of(subject: int, value: int) -> Quad:
    return Quad(Term(f"<http://e/{subject}>"), Term("<http://e/p>"), Term(f'"{value}"'))


@st.composite
def feeds(draw: st.DrawFn) -> list[FeedBatch]:
    instants = sorted(draw(st.sets(st.integers(0, 20), min_size=2, max_size=8)))
    batches = []
    for at, following in pairwise(instants):
        said = draw(st.dictionaries(st.integers(0, 2), st.integers(0, 2), max_size=3))
        quads = tuple(fact_of(subject, value) for subject, value in said.items())
        holds = draw(st.none() | st.integers(1, 8))
        start = BEGIN + at * MINUTE
        end = None if holds is None else start + holds * MINUTE
        batches.append(FeedBatch(start, BEGIN + following * MINUTE, quads, end))
    return batches


def says(batches: list[FeedBatch], now: datetime) -> set[Quad]:
    """Return the valid facts at an instant, straight from the rules."""
    held: dict[tuple[str, str], tuple[Quad, datetime]] = {}
    for batch in batches:
        if batch.at <= now:
            for quad in batch.quads:
                before = held.get((quad.subject, quad.predicate))
                end = batch.end
                if before is not None and before[0] == quad and before[1] >= batch.at:
                    end = max(end, before[1])
                held[quad.subject, quad.predicate] = (quad, end)
    return {quad for quad, end in held.values() if now < end}


@given(feeds())
def test_a_history_says_at_every_instant_what_the_feed_says(batches: list[FeedBatch]) -> None:
    facts = list(history(batches))
    assert not list(overlaps(facts))
    for minute in range(30):
        now = BEGIN + minute * MINUTE
        assert {fact.quad for fact in facts if fact.valid_at(now)} == says(batches, now)


def test_what_is_repeated_is_one_fact() -> None:
    batches = [
        FeedBatch(BEGIN + n * MINUTE, BEGIN + (n + 1) * MINUTE, (fact_of(1, 7),)) for n in range(9)
    ]
    (fact,) = history(batches)
    assert fact.label is not None
    assert (fact.label.start, fact.label.end) == (BEGIN, BEGIN + 9 * MINUTE)


class CountedInstant(int):
    """An instant that knows how often instants were compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountedInstant.compared += 1
        return super().__lt__(other)


def test_work_for_a_statement_does_not_grow_with_what_holds() -> None:
    def work(count: int) -> int:
        """Every statement holds to the end of the day."""
        CountedInstant.compared = 0
        batches = [
            NumberedBatch(n, CountedInstant(n), CountedInstant(n + 86_400), [(0, fact_of(n, 1))])
            for n in range(count)
        ]
        assert len(list(placed_history(batches))) == count
        return CountedInstant.compared

    assert work(2_000) < 3 * work(1_000)


class Watched(str):
    """A term of which is known whether anybody still has it."""


def test_memory_grows_with_what_holds_and_not_with_renewals() -> None:
    met: list[weakref.ref[Watched]] = []
    most = 0

    def watched(text: str) -> Term:
        term = Watched(text)
        met.append(weakref.ref(term))
        return Term(term)

    def batches() -> Iterator[NumberedBatch]:
        nonlocal most
        for n in range(600):
            # Some are renewed, some replaced, to hold for long and for short.
            quads = [
                Quad(watched(f"<x:{k}>"), watched("<x:p>"), watched(f'"{n // (k + 1)}"'), Term(""))
                for k in range(5)
            ]
            ends = 1_000_000 + n if n % 3 else n + 7
            yield NumberedBatch(n, n, ends, list(enumerate(quads)))
            del quads
            most = max(most, sum(each() is not None for each in met[-300:]))
            if n % 50 == 49:
                alive = sum(each() is not None for each in met)
                assert alive <= 60, n

    told = sum(1 for _ in placed_history(batches()))
    assert told > 600
    assert most <= 60
