"""Facts that come later than the query, and pages that are due before it has been evaluated."""

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.clock import ManualClock
from annotations.labels import Expiration, Fact
from annotations.methods import METHODS
from annotations.terms import Quad, iri, literal
from tests.support import random_queries
from tests.support.examples import examples
from tests.support.live_server import START, LiveServer
from tests.support.timelines import START as FIRST
from tests.support.timelines import Timeline, timelines
from tests.tpf_client.streaming.test_grace import JOINS, answer
from tests.tpf_client.streaming.test_timelines import (
    UNIVERSE,
    labellings,
    serve,
)
from tpf_client import Client
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher
from tpf_client.streaming.streamer import Schedule, Streamer, Tick

TRAIN = iri("http://example.org/departure/1")
SIGN = Quad(TRAIN, iri("http://example.org/train#headSign"), literal("Gent"))
DELAY = Quad(TRAIN, iri("http://example.org/train#delay"), literal("300"))


def _delays(end: float) -> list[Fact]:
    return [
        Fact(DELAY._replace(subject=iri(f"http://example.org/departure/{number}")),
             Expiration(START + timedelta(seconds=end)))
        for number in range(3)
    ]  # fmt: skip


def test_a_feed_that_is_a_little_late_leaves_the_board_empty_for_that_little(
    tmp_path: Path,
) -> None:
    with LiveServer(tmp_path, [], max_age=10) as server, server.client() as client:
        server.publish(_delays(10))
        # Each time later, and always when the pages that tell of nothing are fresh for long.
        for end, late in ((10, 0.4), (20, 0.9), (30, 2.0)):
            at = START + timedelta(seconds=end + late)
            server.clock.schedule(at, lambda end=end: server.publish(_delays(end + 10)))
        stream = client.stream(
            "SELECT * { ?d <http://example.org/train#delay> ?delay }",
            until=START + timedelta(seconds=100),
        )
        states, requests = [], []
        for update in stream:
            states.append(((update.at - START).total_seconds(), len(update.results)))
            requests.append(len(server.log))
    # Back within twice the delay, at the cost of one request each time it looks.
    empty = [(at, back) for (at, n), (back, _) in pairwise(states) if n == 0]
    assert [at for at, _ in empty] == [10, 20, 30]
    assert all(
        back - at <= 2 * late + 0.01
        for (at, back), late in zip(empty, (0.4, 0.9, 2.0), strict=True)
    )
    assert [after - before for before, after in pairwise(requests)] == [
        1, 2, 1, 3, 1, 4, 1,
    ]  # fmt: skip
    # When it does not come back, five such looks, then one per freshness of the empty page.
    assert len(server.log) - requests[-1] == 5 + 5


@pytest.mark.parametrize("page_labels", [True, False])
def test_what_is_withdrawn_is_gone_at_the_next_look(tmp_path: Path, page_labels: bool) -> None:
    server = LiveServer(
        tmp_path, [SIGN], page_labels=page_labels, annotation="named-graph", max_age=10
    )
    other = DELAY._replace(subject=iri("http://example.org/departure/2"))
    until = START + timedelta(seconds=100)
    server.publish([Fact(DELAY, Expiration(until)), Fact(other, Expiration(until))])
    # A third fact is why it looks before that.
    tick = DELAY._replace(subject=iri("http://example.org/departure/3"))
    server.publish([Fact(tick, Expiration(START + timedelta(seconds=20)))])
    gone = START + timedelta(seconds=12)
    server.clock.schedule(gone, lambda: server.publish([], [Fact(DELAY)]))
    query = "SELECT * { ?d <http://example.org/train#delay> ?delay }"
    with server.client() as client:
        updates = iter(client.stream(query))
        first, second = next(updates), next(updates)
    server.close()
    assert len(first.added) == 3
    assert (len(second.removed), len(second.results)) == (2, 1)
    assert second.at - START == timedelta(seconds=20)


@pytest.mark.parametrize("name", ["every", "max_interval", "keep_checking"])
def test_no_period_is_zero(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with Client("http://server.test/") as client, pytest.raises(ValueError, match=name):
        client.stream("ASK { ?s ?p ?o }", **options)


def test_looking_again_soon_keeps_to_the_least_interval(tmp_path: Path) -> None:
    with LiveServer(tmp_path, [], max_age=10) as server, server.client() as client:
        server.publish(_delays(10))
        stream = client.stream(
            "SELECT * { ?d <http://example.org/train#delay> ?delay }",
            until=START + timedelta(seconds=20),
            min_interval=3,
            quiet=True,
        )
        instants = [(update.at - START).total_seconds() for update in stream]
    assert instants[:2] == [0, 10]
    assert all(later - at >= 3 for at, later in pairwise(instants))
    assert len(instants) <= 5


@pytest.mark.parametrize(("due", "looks"), [(-1, 0.1), (0, 0.1), (2, 2), (None, None)])
def test_what_was_due_before_an_evaluation_ended_is_looked_at_soon(
    due: float | None, looks: float | None
) -> None:
    """Pages are read one after the other: the first may be due when the last one came."""
    clock = ManualClock(START)
    unbuilt: Any = None
    streamer = Streamer(ThreadedFetcher(clock=clock), ["http://server.test/d"], unbuilt, clock)
    wake = None if due is None else START + timedelta(seconds=due)
    running: Any = SimpleNamespace(evaluation=SimpleNamespace(wake_at=lambda: wake))
    found = streamer._valid_until(running, START)
    expected = None if looks is None else START + timedelta(seconds=looks)
    assert Schedule().next(START, found) == expected


# ------------------------------------------------ datasets that begin without any label
#
# What must be in the answer is pyoxigraph's: at every instant the rows of the facts that have been
# there for as long as pages are fresh, and never a row that no facts make which are there, or were
# while the pages were fresh.


QUERIES = 4
"""How many streams follow a timeline."""
LEAST = timedelta(seconds=1.2)
"""How long an answer takes at least where pages are stale at once, its pauses included."""
MOMENT = timedelta(microseconds=1)

A = random_queries.PREFIX
queries = st.one_of(
    JOINS,
    st.sampled_from(
        [
            f"{A} SELECT * {{ ?s ?p ?o }}",
            f"{A} SELECT * {{ ?s :p ?o }}",
            f"{A} SELECT DISTINCT ?s {{ ?s ?p ?o }}",
            f"{A} SELECT * {{ :a ?p ?o }}",
            f"{A} SELECT * {{ {{ ?s :p ?o }} UNION {{ ?o :q ?s }} }}",
            f"{A} SELECT * {{ ?s :r ?o . ?s ?p ?x FILTER(?o != ?x) }}",
        ]
    ),
)


def there_lately(timeline: Timeline, at: datetime, max_age: int) -> list[Quad]:
    """What is valid, and what other facts took the place of since the oldest fresh page.

    A label promises that a fact holds until its end; so pages that show it may be used until then.
    """
    oldest = at - timedelta(seconds=max_age)
    since = [oldest, *(batch.at for batch in timeline.batches if oldest < batch.at <= at)]
    return list({quad for each in since for quad in timeline.publications(each).valid_at(at)})


@examples(6, shrink=False)
@given(
    timeline=labellings.flatmap(
        lambda each: timelines(each, max_batches=4, universe=UNIVERSE, unit=timedelta(seconds=7))
    ),
    texts=st.lists(queries, min_size=QUERIES, max_size=QUERIES, unique=True),
    lead=st.integers(1, 40),
    max_age=st.sampled_from([1, 3, 5, 10]),
    every=st.sampled_from([None, 1.0, 4.0]),
    view=st.sampled_from(["plain", "plain", *(method.name for method in METHODS)]),
    page_labels=st.booleans(),
    page_size=st.sampled_from([2, 100]),
)
def test_first_labelled_facts_are_seen_when_pages_are_stale(
    timeline: Timeline,
    texts: list[str],
    lead: int,
    max_age: int,
    every: float | None,
    view: str,
    page_labels: bool,
    page_size: int,
) -> None:
    begin = FIRST - timedelta(seconds=lead)
    end = min(timeline.instants()[-1], FIRST + timedelta(seconds=45))
    late = max(timedelta(seconds=max(max_age, every or 0)), LEAST) + timedelta(seconds=0.3)
    if every is not None:
        late = timedelta(seconds=max_age + every + 0.3)
    page_labels = page_labels or view == "plain"
    timeline.static.append(random_queries.ALWAYS)
    options = {"max_age": max_age, "page_labels": page_labels, "page_size": page_size}
    for text in texts:
        with (
            serve(timeline, begin, **options) as (server, model),
            server.client(f"/{view}") as client,
        ):
            stream = client.stream(text, every=every, until=end)
            seen: Counter[tuple[str | None, ...]] = Counter()
            for step in stream.streamer.looks():
                if isinstance(step, Tick):
                    assert step.error is None
                    seen = seen + Counter(step.added) - Counter(step.removed)
                    assert seen <= answer(text, there_lately(timeline, step.at, max_age)), text
                    continue
                server.clock.advance_to(step - MOMENT)
                old = timeline.publications(until=step - late).valid_at(step - MOMENT)
                there = set(model.valid_at(step - MOMENT)) & set(old)
                if every is not None:
                    # What begins between two evaluations is seen at the second one.
                    there &= set(model.valid_at(step - timedelta(seconds=every)))
                assert not answer(text, list(there)) - seen, (text, step)
                server.clock.advance_to(step)


HAS_SIGN, HAS_DELAY = iri("http://example.org/sign"), iri("http://example.org/delay")
SUBJECTS = [iri(f"http://example.org/t{number}") for number in range(300)]
STATIC = [Quad(subject, HAS_SIGN, literal(f"sign {n}")) for n, subject in enumerate(SUBJECTS)]
JOIN = f"SELECT * {{ ?t {HAS_SIGN} ?sign OPTIONAL {{ ?t {HAS_DELAY} ?delay }} }}"


def requests_of(server: LiveServer, query: str, seconds: float) -> list[int]:
    """How many requests each evaluation took."""
    with server.client() as client:
        until = server.clock.now() + timedelta(seconds=seconds)
        stream = client.stream(query, until=until, quiet=True, every=10)
        counts = [0, *(len(server.log) for _ in stream)]
    return [after - before for before, after in pairwise(counts)]


def test_what_is_fresh_for_long_is_not_read_again(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, STATIC, max_age=3600)
    _, *others = requests_of(server, JOIN, 3500)
    assert others == [0] * 350
    server.close()


@pytest.mark.parametrize("query", [JOIN, f"SELECT * {{ ?t {HAS_SIGN} ?sign }}"])
def test_whether_a_long_fragment_has_got_labels_takes_one_request(
    tmp_path: Path, query: str
) -> None:
    server = LiveServer(tmp_path, STATIC, page_size=10, max_age=10)
    first, *others = requests_of(server, query, 59)
    assert first > 2
    assert max(others) <= 1
    server.close()


@pytest.mark.parametrize("query", [JOIN, f"SELECT * {{ {SUBJECTS[7]} ?p ?delay }}"])
def test_a_first_label_among_static_facts_is_seen(tmp_path: Path, query: str) -> None:
    server = LiveServer(tmp_path, STATIC, max_age=10)
    published = server.clock.now() + timedelta(seconds=21)
    label = Expiration(published + timedelta(seconds=200))
    facts = [
        Fact(Quad(SUBJECTS[7], predicate, literal("5")), label)
        for predicate in (HAS_SIGN, HAS_DELAY)
    ]
    server.clock.schedule(published, lambda: server.publish(facts))
    with server.client() as client:
        updates = iter(client.stream(query))
        next(updates)
        update = next(updates)
    assert update.added
    assert update.at <= published + timedelta(seconds=10.2)
    server.close()
