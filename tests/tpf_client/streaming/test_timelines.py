"""Random timelines of facts, random queries: at every tick the answer is another engine's.

The engine is pyoxigraph, over exactly the facts that the server's store holds valid at the tick.
"""

import os
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval
from annotations.methods.base import FactPattern
from annotations.terms import Quad, iri, literal
from tests.support.live_server import START, LiveServer
from tests.support.oracle import select, store_of
from tests.tpf_client.streaming.test_train_query import VIEWS, _rows
from tpf_client import Client

CASES = int(os.environ.get("TPF_TIMELINES", "25"))
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.target]
EX = "http://example.org/"
SUBJECTS = [iri(f"{EX}s{n}") for n in range(4)]
PREDICATES = [iri(f"{EX}p{n}") for n in range(3)]
OBJECTS = [*SUBJECTS[:2], *(literal(str(n), datatype="http://www.w3.org/2001/XMLSchema#integer")
                            for n in range(3))]  # fmt: skip
QUERIES = [
    "SELECT * { ?a :p0 ?x }",
    "SELECT * { ?a :p0 ?x . ?a :p1 ?y }",
    "SELECT ?y { ?a :p0 ?x . ?x :p1 ?y }",
    "SELECT * { ?a :p0 ?x . ?a :p1 ?y . ?a :p2 ?z FILTER(?x != ?y) }",
    "SELECT * { ?a :p0 ?x OPTIONAL { ?a :p1 ?y } }",
    "SELECT * { ?a :p0 ?x OPTIONAL { ?a :p1 ?y FILTER(?y > ?x) } }",
    "SELECT ?a { { ?a :p0 ?x } UNION { ?a :p1 ?x } }",
    "SELECT DISTINCT ?a { { ?a :p0 ?x } UNION { ?a :p1 ?x } }",
    "SELECT * { ?a :p0 ?x MINUS { ?a :p1 ?x } }",
    "SELECT * { ?a :p0 ?x FILTER NOT EXISTS { ?a :p1 ?y } }",
    "SELECT * { ?a :p0 ?x FILTER EXISTS { ?x :p1 ?y } }",
    "SELECT ?a (COUNT(*) AS ?n) (SUM(?x) AS ?s) { ?a ?p ?x FILTER(isNumeric(?x)) } GROUP BY ?a",
    "SELECT (MAX(?x) AS ?m) { ?a :p0 ?x FILTER(isNumeric(?x)) }",
    "SELECT * { :s0 ?p ?o }",
    "SELECT * { ?s ?p ?o }",
    "SELECT * { ?s ?p :s0 . ?s :p1 ?y }",
    "SELECT * { ?a :p0+ ?b }",
    "SELECT * { VALUES ?a { :s0 :s1 } ?a :p0 ?x }",
    "SELECT ?a ?z { ?a :p0 ?x BIND(STR(?x) AS ?z) }",
    "SELECT * { ?x :p0 ?x }",
]


class Event(NamedTuple):
    """A fact that is published some seconds after the start."""

    after: int
    quad: Quad
    seconds: int
    interval: bool


quads = st.builds(
    lambda s, p, o: Quad(s, p, o),
    st.sampled_from(SUBJECTS),
    st.sampled_from(PREDICATES),
    st.sampled_from(OBJECTS),
)


@st.composite
def timelines(draw: st.DrawFn) -> list[Event]:
    """Facts over time: of one kind of label per timeline, no two at once with the same key."""
    interval = draw(st.booleans())
    events = draw(
        st.lists(st.builds(Event, st.integers(0, 12), quads, st.integers(1, 6), st.just(interval)),
                 max_size=12)
    )  # fmt: skip
    kept: list[Event] = []
    busy: dict[tuple[str, str], int] = {}
    for event in sorted(events):
        key = (event.quad.subject, event.quad.predicate)
        if not interval or busy.get(key, 0) <= event.after:
            busy[key] = event.after + event.seconds
            kept.append(event)
    by_key = {(event.after, event.quad[:2]): event for event in kept}
    return sorted(by_key.values())


@pytest.mark.parametrize("page_labels", [True, False], ids=["page-labels", "rewriting"])
@settings(max_examples=CASES, deadline=None, phases=PHASES)
@given(
    static=st.lists(quads, max_size=8, unique=True),
    events=timelines(),
    query=st.sampled_from(QUERIES),
    view=st.sampled_from(VIEWS[1:]),
    page_size=st.sampled_from([2, 100]),
)
def test_every_answer_is_right(
    page_labels: bool,
    static: list[Quad],
    events: list[Event],
    query: str,
    view: str,
    page_size: int,
) -> None:
    query = f"PREFIX : <{EX}> {query}"
    # A labelled fact that equals a static one cannot be told from it in some methods.
    labelled = {event.quad for event in events}
    static = [quad for quad in static if quad not in labelled]
    with tempfile.TemporaryDirectory() as path:
        server = LiveServer(
            Path(path), static, page_size=page_size, page_labels=page_labels, max_age=1.0
        )
        for event in events:
            now = START + timedelta(seconds=event.after)
            end = now + timedelta(seconds=event.seconds)
            label = Interval(now, end) if event.interval else Expiration(end)
            fact = Fact(event.quad, label)
            server.clock.schedule(now, lambda fact=fact: server.publish([fact]))  # type: ignore[misc]
        server.clock.advance_to(START)
        seen = Counter[frozenset[tuple[str, str]]]()
        ticks = 0
        with Client(f"{server.url}/{view}", session=server.session(), clock=server.clock,
                    parallelism=0) as client:  # fmt: skip
            stream = client.stream(
                query,
                every=1,
                static_recheck=0,
                keep_checking=1,
                quiet=True,
                until=START + timedelta(seconds=16),
            )
            for update in stream:
                ticks += 1
                assert update.error is None
                assert update.at == server.clock.now()
                added, removed = _rows(update.added), _rows(update.removed)
                assert not added & removed
                assert not removed - seen
                seen = seen + added - removed
                assert server.live is not None
                facts = server.live.facts(FactPattern(), server.live.snapshot(update.at), 0, 1000)
                valid = dict.fromkeys([*static, *(fact.quad for fact in facts)])
                expected = Counter(
                    frozenset((name.lstrip("?"), term) for name, term in row.items())
                    for row in select(store_of(valid), query)
                )
                assert _rows(update.results) == seen
                assert seen == expected
        assert ticks == 17
        server.close()
