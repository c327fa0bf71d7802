"""Random streams that are evaluated when something changes: what they hold is right all the time.

No period is given (`every`), and instants are no whole seconds. What a server knows beforehand
(that labels end, that facts begin) is seen at that instant; a publication is seen when the pages
that were looked at stop being fresh.
"""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval
from annotations.methods import METHODS
from annotations.terms import Quad, Term, iri, literal
from tests.support.examples import examples
from tests.support.live_server import LiveServer
from tests.support.timelines import START, Timeline, timelines
from tests.tpf_client.streaming.test_timelines import (
    ONE_LIVE_GRAPH,
    Engine,
    Row,
    selects,
    serve,
    with_always,
)
from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError
from tpf_client.streaming.streamer import Tick

QUERIES = 4
UNIT = timedelta(seconds=0.73)
FLOOR = timedelta(seconds=0.1)
"""Evaluations of one stream lie at least so far apart."""
FRESH = timedelta(seconds=1)
VIEWS = [("plain", True), *((method.name, False) for method in METHODS)]


@dataclass
class Held:
    """One stream, and the answer that it holds."""

    query: str
    engine: Engine
    steps: Generator[Tick | datetime]
    wakes: datetime | None = START
    at: datetime = START
    evaluations: int = 0
    rows: Counter[Row] = field(default_factory=Counter)

    def advance(self) -> None:
        """Let it evaluate."""
        for step in self.steps:
            if isinstance(step, datetime):
                self.wakes = step
                return
            assert step.error is None
            assert step.at >= self.at
            # It comes forward, whatever a server says.
            assert step.wakes_at is None or step.wakes_at >= step.at + FLOOR
            self.at = step.at
            self.evaluations += 1
            self.rows = self.rows + Counter(step.added) - Counter(step.removed)
            assert Counter(step.answer()) == self.rows
        self.wakes = None

    def check(self, now: datetime) -> None:
        """What it holds is the answer."""
        expected = self.engine.answer(self.query, now)
        assert self.rows == expected, (self.query, now, self.at)


def play(timeline: Timeline, view: str, queries: list[str], **options: Any) -> int:
    """Let queries run until some time after the last event; how many of the texts are queries."""
    timeline = with_always(timeline)
    published = [START, *(at for at, _ in timeline.batches)]
    instants = timeline.instants()
    until = min(instants[-1], START + timedelta(seconds=12)) + 2 * FRESH
    # Just after what is known beforehand has happened, and just before the next.
    checks = {each + FLOOR for each in instants} | {each - FLOOR / 1000 for each in instants}
    with serve(timeline, **options) as (server, model):
        engine = Engine(model)
        held = []
        with server.client(f"/{view}") as client:
            for query in queries:
                try:
                    stream = client.stream(
                        query, static_recheck=0, keep_checking=1, quiet=True, until=until
                    )
                except (QuerySyntaxError, UnsupportedQueryError):
                    continue
                held.append(Held(query, engine, stream.streamer.looks()))
            while server.clock.now() < until and held:
                now = server.clock.now()
                for each in held:
                    if each.wakes is not None and each.wakes <= now:
                        each.advance()
                        if all(at + FRESH + FLOOR <= now for at in published if at <= now):
                            each.check(now)
                wakes = [each.wakes for each in held if each.wakes is not None]
                following = min([until, *wakes, *(check for check in checks if check > now)])
                server.clock.advance_to(following)
                last = max(at for at in published if at <= following)
                for each in held:
                    awake = each.wakes is not None and each.wakes <= following
                    if following in checks and last + FRESH + FLOOR <= each.at and not awake:
                        each.check(following)
        seconds = (until - START).total_seconds()
        assert all(each.evaluations <= 3 * seconds + 3 * len(instants) for each in held)
    return len(held)


labellings = st.sampled_from(["expiration", "interval", "mixed"])


@examples(10, shrink=False)
@given(
    data=st.data(),
    queries=st.lists(selects, min_size=QUERIES, max_size=QUERIES),
    view=st.sampled_from([VIEWS[0], *VIEWS]),
    page_size=st.sampled_from([2, 100]),
)
def test_what_a_stream_holds_is_right_all_the_time(
    data: st.DataObject, queries: list[str], view: tuple[str, bool], page_size: int
) -> None:
    labelling = data.draw(labellings)
    timeline = data.draw(
        timelines(labelling, max_batches=4, universe=ONE_LIVE_GRAPH, unit=UNIT)  # type: ignore[arg-type]
    )
    name, page_labels = view
    play(timeline, name, queries, page_size=page_size, page_labels=page_labels)


BLANK = Term("_:b")
SAYS, KNOWS = iri("http://e/says"), iri("http://e/knows")


@pytest.mark.parametrize("view", VIEWS, ids=[name for name, _ in VIEWS])
def test_blank_nodes_are_asked_for_by_their_iris(tmp_path: Path, view: tuple[str, bool]) -> None:
    """Also where they are inside of a triple term: that of RDF 1.2, and that of a fact."""
    name, page_labels = view
    inside = Term(f"<<( {BLANK} {KNOWS} <http://e/b> )>>")
    server = LiveServer(tmp_path, [], page_labels=page_labels)
    until = START + timedelta(minutes=1)
    server.clock.advance_to(START)
    server.publish(
        [
            Fact(Quad(BLANK, SAYS, literal("x")), Expiration(until)),
            Fact(Quad(BLANK, KNOWS, iri("http://e/b")), Interval(START, until)),
            Fact(Quad(iri("http://e/c"), SAYS, inside), Expiration(until)),
        ]
    )
    query = f"SELECT ?x {{ ?s {KNOWS} ?o . ?s {SAYS} ?x }}"
    with server.client(f"/{name}") as client:
        update = next(iter(client.stream(query)))
        assert [str(each["x"]) for each in update.results] == ["x"]
        update = next(iter(client.stream(f"SELECT * {{ ?s {SAYS} ?x FILTER isIRI(?s) }}")))
        assert len(update.results) == 1
    server.close()


def test_what_begins_between_two_seconds_is_seen_then(tmp_path: Path) -> None:
    with LiveServer(tmp_path, [], page_labels=True) as server, server.client() as client:
        server.clock.advance_to(START)
        begins = START + timedelta(seconds=2.7)
        ends = begins + timedelta(seconds=0.55)
        server.publish([Fact(Quad(iri("http://e/a"), SAYS, literal("x")), Interval(begins, ends))])
        updates = client.stream(f"SELECT * {{ ?s {SAYS} ?o }}", until=ends)
        seen = [(update.at, len(update.results)) for update in updates]
    assert seen == [(START, 0), (begins, 1), (ends, 0)]
