"""Grace: rows whose renewal is late stay for a while, instead of vanishing and coming back.

What is late is told here by a plain reading of all that was published; the answers are
pyoxigraph's, over the facts that are valid and those that are late.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, key_of
from annotations.terms import Quad, Term, iri, literal
from tests.support import random_queries
from tests.support.examples import examples
from tests.support.judges import judged
from tests.support.live_server import LiveServer
from tests.support.oracle import Publications
from tests.support.timelines import EX, START, Batch, Timeline, timelines
from tests.tpf_client.streaming.test_timelines import (
    SECOND,
    UNIVERSE,
    labellings,
    serve,
    with_always,
)
from tpf_client import Client
from tpf_client.sparql.parser import parse_query
from tpf_client.streaming.streamer import Tick

A = random_queries.PREFIX
WHOLE = [
    f"{A} SELECT * {{ ?s ?p ?o }}",
    f"{A} SELECT ?o ?s {{ ?s :p ?o }}",
    f"{A} SELECT ?s {{ ?s :q ?o }}",
    f"{A} SELECT DISTINCT ?p {{ ?s ?p ?o }}",
    f"{A} SELECT ?p (COUNT(*) AS ?n) {{ ?s ?p ?o }} GROUP BY ?p",
    f"{A} SELECT * {{ {{ ?s :p ?o }} UNION {{ ?o :q ?s }} }}",
    f"{A} SELECT * {{ ?s :p ?o FILTER(?o > 1) }}",
    f"{A} SELECT * {{ GRAPH ?g {{ ?s ?p ?o }} }}",
    f"{A} ASK {{ ?s :r ?o }}",
    f"{A} CONSTRUCT {{ ?o :about ?s }} WHERE {{ ?s :q ?o }}",
]
"""Queries that look at all facts of a key from the beginning."""
PROPERTY = st.sampled_from([":p", ":q", ":r", "?p"])
JOINS = st.builds(
    lambda *parts: "{} SELECT * {{ {} {} {} . {} {} {} }}".format(A, *parts),
    st.sampled_from(["?x", "?y", ":a"]), PROPERTY, st.sampled_from(["?y", "1"]),
    st.sampled_from(["?x", "?y"]), PROPERTY, st.sampled_from(["?z", "?x", ":b"]),
)  # fmt: skip


class Lateness:
    """What is late, by a plain reading of all that a model of publication held, second by second.

    Args:
        model: what was published so far.
        grace: seconds.
    """

    def __init__(self, model: Publications, grace: int) -> None:
        self._model = model
        self._grace = grace * SECOND
        self._seen: list[tuple[datetime, dict[Quad, datetime | None]]] = []

    def look(self, now: datetime) -> None:
        """Note what is valid, and until when."""
        valid = [fact for fact in self._model.facts() if fact.valid_at(now)]
        ends = {fact.quad: None if fact.label is None else fact.label.end for fact in valid}
        self._seen.append((now, ends))

    def late(self, *, replaced: bool) -> list[Quad]:
        """The facts that were not renewed, in the grace of their labels.

        Args:
            replaced: whether also those in whose place others came since.
        """
        now, valid = self._seen[-1]
        found = []
        for quad in {quad for _, ends in self._seen for quad in ends} - valid.keys():
            last = max(n for n, (_, ends) in enumerate(self._seen) if quad in ends)
            end, missed = self._seen[last][1][quad], self._seen[last + 1][0]
            over = end is None or end > missed or end + self._grace <= now
            if not over and (replaced or not self._replaced(quad, last)):
                found.append(quad)
        return found

    def _replaced(self, quad: Quad, last: int) -> bool:
        key = key_of(quad, "subject-predicate")
        for (_, before), (_, after) in zip(
            self._seen[last:-1], self._seen[last + 1 :], strict=True
        ):
            if any(key_of(each, "subject-predicate") == key for each in after.keys() - before):
                return True
        return False


def answer(query: str, quads: list[Quad]) -> Counter[tuple[str | None, ...]]:
    found = judged(parse_query(query), query, quads)
    return Counter([()] * found) if isinstance(found, bool) else found


def follow(
    timeline: Timeline, view: str, queries: list[str], grace: int, page_size: int
) -> Iterator[tuple[str, Tick, list[Quad], Lateness]]:
    """Every tick of every query, with the facts that are valid then, and what is late."""
    timeline = with_always(timeline)
    until = min(timeline.instants()[-1] + grace * SECOND, START + 12 * SECOND)
    with (
        serve(timeline, page_size=page_size) as (server, model),
        server.client(f"/{view}") as client,
    ):
        lateness = Lateness(model, grace)
        steps = [
            client.stream(query, every=1, static_recheck=0, keep_checking=1, quiet=True,
                          until=until, grace=grace).streamer.looks()
            for query in queries
        ]  # fmt: skip
        while (now := server.clock.now()) <= until:
            lateness.look(now)
            for query, each in zip(queries, steps, strict=True):
                for step in each:
                    if isinstance(step, datetime):
                        break
                    assert step.error is None
                    assert step.at == now
                    yield query, step, model.valid_at(now), lateness
            server.clock.advance_to(now + SECOND)


@examples(10, shrink=False)
@given(
    timeline=labellings.flatmap(lambda each: timelines(each, max_batches=6, universe=UNIVERSE)),
    grace=st.integers(1, 4),
    page_size=st.sampled_from([2, 100]),
)
def test_the_answer_is_over_valid_and_late_facts(
    timeline: Timeline, grace: int, page_size: int
) -> None:
    seen: dict[str, Counter[tuple[str | None, ...]]] = {query: Counter() for query in WHOLE}
    for query, tick, valid, lateness in follow(timeline, "plain", WHOLE, grace, page_size):
        seen[query] = seen[query] + Counter(tick.added) - Counter(tick.removed)
        late = lateness.late(replaced=False)
        assert seen[query] == answer(query, [*valid, *late]), (query, late)
        if query == WHOLE[0]:
            default = [quad for quad in late if not quad.graph]
            assert Counter(tick.late) == Counter(tuple(quad.triple) for quad in default)


@examples(12, shrink=False)
@given(
    timeline=labellings.flatmap(lambda each: timelines(each, max_batches=6, universe=UNIVERSE)),
    queries=st.lists(JOINS, min_size=4, max_size=8, unique=True),
    grace=st.integers(1, 4),
)
def test_joins_lose_nothing_that_is_valid_and_invent_nothing(
    timeline: Timeline, queries: list[str], grace: int
) -> None:
    seen: dict[str, Counter[tuple[str | None, ...]]] = {query: Counter() for query in queries}
    for query, tick, valid, lateness in follow(timeline, "plain", queries, grace, 100):
        seen[query] = seen[query] + Counter(tick.added) - Counter(tick.removed)
        late = lateness.late(replaced=True)
        assert answer(query, valid) <= seen[query] <= answer(query, [*valid, *late]), query
        if not late:
            assert not tick.late


@examples(10, shrink=False)
@given(
    lives=st.dictionaries(
        st.tuples(*map(st.sampled_from, (UNIVERSE.subjects, UNIVERSE.live))),
        st.tuples(st.sampled_from(UNIVERSE.values), st.integers(1, 30)),
        min_size=1,
        max_size=6,
    ),
    grace=st.integers(1, 20),
    max_age=st.integers(2, 60),
    view=st.sampled_from(["plain", "named-graph"]),
    query=st.sampled_from([query for query in WHOLE if "?g" not in query]),
)
def test_a_grace_runs_out_at_its_instant_however_long_pages_are_fresh(
    lives: dict[tuple[Term, Term], tuple[Term, int]],
    grace: int,
    max_age: int,
    view: str,
    query: str,
) -> None:
    facts = [
        Fact(Quad(*key, value), Expiration(START + end * SECOND))
        for key, (value, end) in lives.items()
    ]
    timeline = Timeline([], [Batch(START, facts)])
    with (
        serve(timeline, max_age=max_age, page_labels=view == "plain") as (server, _),
        server.client(f"/{view}") as client,
    ):
        seen: Counter[tuple[str | None, ...]] = Counter()
        end_of_stream = START + 60 * SECOND
        stream = client.stream(query, grace=grace, quiet=True, until=end_of_stream)
        for step in stream.streamer.looks():
            if isinstance(step, datetime):
                server.clock.advance_to(step)
                continue
            assert step.error is None
            seen = seen + Counter(step.added) - Counter(step.removed)
            ends = {_over(fact, grace) for fact in facts}
            until = step.wakes_at or end_of_stream
            for at in [step.at, *(end for end in ends if step.at < end < until)]:
                there = [fact.quad for fact in facts if at < _over(fact, grace)]
                assert seen == answer(query, there), query
        assert seen == answer(query, [])


def _over(fact: Fact, grace: int) -> datetime:
    assert fact.label is not None
    return fact.label.end + grace * SECOND


PAGE = Quad(iri(f"{EX}t"), iri(f"{EX}delay"), literal("5"))
OTHER = PAGE._replace(object=literal("6"))


def stream_of(server: LiveServer, client: Client, query: str, grace: float) -> Iterator[Tick]:
    """The ticks of a query, second by second; its clock goes on when the next one is taken."""
    stream = client.stream(query, every=1, static_recheck=0, keep_checking=1, grace=grace)
    for step in stream.streamer.looks():
        if isinstance(step, Tick):
            yield step
        else:
            server.clock.advance_to(step)


def test_the_end_of_a_grace_takes_no_request(tmp_path) -> None:
    with LiveServer(tmp_path, max_age=60.0) as server, server.client() as client:
        start = server.clock.now()
        subjects = [iri(f"{EX}t{number}") for number in range(4)]
        server.publish([
            Fact(PAGE._replace(subject=subject), Expiration(start + timedelta(seconds=end)))
            for subject, end in zip(subjects, (3, 3.6, 4.8, 50), strict=True)
        ])  # fmt: skip
        query = f"SELECT ?t {{ ?t <{EX}delay> ?delay }}"
        until = start + timedelta(seconds=20)
        told = []
        for update in client.stream(query, grace=4, until=until):
            assert update.error is None
            gone = [str(row["t"]) for row in update.removed]
            told.append(((update.at - start).total_seconds(), gone, len(server.log)))
    first = told[0][2]
    assert [(at, gone, requests - first) for at, gone, requests in told] == [
        (0, [], 0),
        (3, [], 1),
        (3.6, [], 2),
        (4.8, [], 3),
        (7, [f"{EX}t0"], 3),
        (7.6, [f"{EX}t1"], 3),
        (8.8, [f"{EX}t2"], 3),
    ]


@pytest.mark.parametrize("view", ["plain", "named-graph"])
def test_a_late_row_is_told_and_comes_back_without_news(tmp_path, view: str) -> None:
    with_labels = view == "plain"
    server = LiveServer(tmp_path, max_age=1.0, page_labels=with_labels)
    start = server.clock.now()

    def publish(quad: Quad, after: int, seconds: int) -> None:
        at = start + after * SECOND
        fact = Fact(quad, Expiration(at + seconds * SECOND))
        server.clock.schedule(at, lambda: server.publish([fact]))

    publish(PAGE, 0, 2)
    publish(PAGE, 4, 2)  # two seconds late
    publish(OTHER, 7, 2)  # a second late, and another value
    server.clock.advance_to(start)
    query = f"SELECT ?delay {{ <{EX}t> <{EX}delay> ?delay }}"
    told = []
    with server.client(f"/{view}") as client:
        for tick in stream_of(server, client, query, grace=3):
            after = (tick.at - start) / SECOND
            values = [[row[0] for row in rows] for rows in (tick.added, tick.removed, tick.late)]
            told.append((after, *values))
            if after == 12:
                break
    five, six = PAGE.object, OTHER.object
    assert told == [
        (0, [five], [], []),
        (2, [], [], [five]),
        (4, [], [], []),
        (6, [], [], [five]),
        (7, [six], [five], []),
        (9, [], [], [six]),
        (12, [], [six], []),
    ]
    server.close()
