"""Continuous queries with LIMIT: any so many of the solutions, and no more requests than once.

At every instant the answer is a part of pyoxigraph's answer to the query without its limit, and as
large as the limit allows. Requests are counted beside those of the same query that is asked once.
"""

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact
from annotations.terms import Quad, Variable, iri, literal
from tests.support import random_queries
from tests.support.examples import examples
from tests.support.live_server import LiveServer
from tests.support.timelines import START, Timeline, timelines
from tests.tpf_client.streaming.test_grace import JOINS, answer
from tests.tpf_client.streaming.test_timelines import (
    SECOND,
    UNIVERSE,
    labellings,
    serve,
)
from tpf_client.streaming.streamer import Tick

QUERIES = 6
"""How many streams follow a timeline."""

A = random_queries.PREFIX
groups = st.one_of(
    JOINS.map(lambda text: text.partition("{")[2].rpartition("}")[0]),
    st.sampled_from(
        [
            "?s ?p ?o",
            "?s :p ?o",
            "?s ?p ?o FILTER(?o != 1)",
            "?s :p ?o OPTIONAL { ?s :q ?v }",
            "?s :p ?o OPTIONAL { ?o ?x ?v } FILTER(!BOUND(?v))",
            "{ ?s :p ?o } UNION { ?o :q ?s }",
            "{ ?s :p ?o BIND(1 AS ?n) } UNION { ?s :q ?o OPTIONAL { ?o :p ?n } }",
            "?s :p ?o FILTER EXISTS { ?s :q ?v }",
            "?s ?p ?o FILTER NOT EXISTS { ?o ?x ?s }",
            "?s ?p ?o MINUS { ?s :r ?v }",
            "?s (:p|:q) ?o",
            "?s :p+ ?o",
            "?s :p ?o VALUES ?o { 1 2 :a }",
            "?s :p ?o . ?o :q ?v . ?v ?x ?w",
            "?s :p ?o MINUS { ?o ?x ?v } MINUS { ?s :q 1 }",
            "?s ?p ?o OPTIONAL { ?s :q ?v } ?v ?x ?w",
            "?s ?p ?o OPTIONAL { ?o :q ?v OPTIONAL { ?v :p ?w } MINUS { ?v :r ?o } }",
            "?s ?p ?o OPTIONAL { ?s :q ?v } FILTER NOT EXISTS { ?v :p ?w }",
            "?s :p ?o FILTER(?o = 1 || NOT EXISTS { ?o ?x ?s })",
            "?s :p ?o BIND(EXISTS { ?s :q ?v } AS ?e)",
            "{ SELECT ?s (COUNT(*) AS ?o) { ?s ?p ?x } GROUP BY ?s } MINUS { ?s :r :b }",
            "?s ?p ?o MINUS { SELECT ?s { ?s :q ?x } GROUP BY ?s HAVING(COUNT(*) > 1) }",
        ]
    ),
)
heads = st.sampled_from(["SELECT *", "SELECT DISTINCT *", "SELECT DISTINCT ?s", "SELECT ?o"])
offsets = st.sampled_from([0, 0, 1, 3])
limits = st.sampled_from([0, 1, 2, 5, 40])
kinds = st.sampled_from(["top", "top", "inside", "ask"])
Case = tuple[str, str, int, int, str]
cases: st.SearchStrategy[Case] = st.tuples(heads, groups, offsets, limits, kinds)


def texts_of(case: Case) -> tuple[str, str]:
    """A query with a limit, and the same without one."""
    head, group, offset, limit, kind = case
    whole = f"{A} {head} {{ {group} }}"
    if kind == "ask":
        return f"{A} ASK {{ {group} }}", f"{A} ASK {{ {group} }}"
    limited = f"{head} {{ {group} }} OFFSET {offset} LIMIT {limit}"
    if kind == "inside":
        return f"{A} SELECT * {{ {{ {limited} }} BIND(1 AS ?one) }}", whole
    return f"{A} {limited}", whole


@examples(6, shrink=False)
@given(
    timeline=labellings.flatmap(lambda each: timelines(each, max_batches=6, universe=UNIVERSE)),
    chosen=st.lists(cases, min_size=QUERIES, max_size=QUERIES),
    page_size=st.sampled_from([2, 3, 100]),
    blocks=st.booleans(),
    view=st.sampled_from(["plain", "plain", "named-graph", "rdf-1.2"]),
    page_labels=st.booleans(),
)
def test_any_so_many_of_the_solutions(
    timeline: Timeline,
    chosen: list[Case],
    page_size: int,
    blocks: bool,
    view: str,
    page_labels: bool,
) -> None:
    until = min(timeline.instants()[-1], START + 12 * SECOND)
    options: dict[str, Any] = {
        "page_size": page_size,
        "page_labels": page_labels or view == "plain",
        "server": {} if blocks else {"max_values": 0},
    }
    timeline.static.append(random_queries.ALWAYS)
    for case in chosen:
        text, whole = texts_of(case)
        with (
            serve(timeline, **options) as (server, model),
            server.client(f"/{view}") as client,
        ):
            stream = client.stream(
                text, every=1, static_recheck=0, keep_checking=1, quiet=True, until=until
            )
            seen: Counter[tuple[str | None, ...]] = Counter()
            ticks = 0
            for step in stream.streamer.looks():
                if isinstance(step, datetime):
                    server.clock.advance_to(step)
                    continue
                assert step.error is None
                ticks += 1
                seen = seen + Counter(step.added) - Counter(step.removed)
                assert Counter(step.answer()) == seen
                check(case, seen, step, answer(whole, model.valid_at(step.at)))
            assert ticks == 1 + (until - START) / SECOND


def check(
    case: Case,
    seen: Counter[tuple[str | None, ...]],
    tick: Tick,
    whole: Counter[tuple[str | None, ...]],
) -> None:
    """The rows are some of all, and as many as the limit allows."""
    _, _, offset, limit, kind = case
    if kind == "ask":
        assert seen == whole, case
        return
    places = [n for n, name in enumerate(tick.variables) if name != Variable("?one")]
    rows: Counter[tuple[str | None, ...]] = Counter()
    for row, count in seen.items():
        rows[tuple(row[place] for place in places)] += count
    assert rows <= whole, case
    assert rows.total() == min(limit, max(whole.total() - offset, 0)), case


E = "http://e/"
STATIC = [
    quad
    for n in range(3000)
    for quad in (
        Quad(iri(f"{E}s{n}"), iri(f"{E}p"), iri(f"{E}o{n % 50}")),
        Quad(iri(f"{E}s{n}"), iri(f"{E}q"), literal(str(n))),
        Quad(iri(f"{E}s{n}"), iri(f"{E}r"), iri(f"{E}s{n * 7 % 3000}")),
    )
]
SHAPES = [
    "SELECT * { ?s ?p ?o } LIMIT 100",
    "SELECT * { ?s ?p ?o } LIMIT 250",
    "SELECT * { ?s ?p ?o } OFFSET 150 LIMIT 10",
    "SELECT DISTINCT ?p { ?s ?p ?o } LIMIT 2",
    "SELECT DISTINCT ?o { ?s :p ?o } LIMIT 20",
    "SELECT * { ?s :p ?o ; :q ?v } LIMIT 10",
    "SELECT * { ?s :p ?o . ?s :r ?t . ?t :q ?v } LIMIT 10",
    "SELECT * { ?s :p ?o OPTIONAL { ?s :q ?v } } LIMIT 10",
    "SELECT * { ?s :p ?o FILTER EXISTS { ?s :r ?t } } LIMIT 10",
    "SELECT * { ?s :p ?o FILTER NOT EXISTS { ?s :r :s1 } } LIMIT 10",
    'SELECT * { ?s :p ?o MINUS { ?s :q "2" } } LIMIT 10',
    "SELECT * { ?s :q ?v FILTER NOT EXISTS { ?t :p ?s } } LIMIT 10",
    "SELECT * { ?s :p ?o OPTIONAL { ?s :q ?v } FILTER(!BOUND(?v)) } LIMIT 10",
    "SELECT * { { ?s :p ?o } UNION { ?s :q ?o } } LIMIT 10",
    "SELECT * { { SELECT ?s { ?s :p ?o } LIMIT 5 } ?s :q ?v }",
    "SELECT * { ?s :p ?o FILTER(?o = :o49) } LIMIT 3",
    'SELECT * { ?s :q ?v FILTER(?v = "2999") } LIMIT 1',
    "SELECT ?s (STR(?o) AS ?x) { ?s :p ?o } LIMIT 4",
    "SELECT * { ?s :p ?o } LIMIT 0",
    "CONSTRUCT { ?s :x ?o } WHERE { ?s :p ?o } LIMIT 10",
    "ASK { ?s ?p ?o }",
    "ASK { FILTER EXISTS { ?s :p ?o } }",
    "ASK { ?s :p ?o . ?s :q ?v }",
    'ASK { ?s :p ?o MINUS { ?s :q "2" } }',
]
WATCHED = {
    # Who goes on watching asks for keys, where two pages do for whoever asks once.
    "SELECT * { ?s :p ?o ; :q ?v } LIMIT 10": (1, 0),
    "SELECT * { ?s :p ?o . ?s :r ?t . ?t :q ?v } LIMIT 10": (3, 0),
    # The whole optional fragment, three pages, in place of one page of it and a key.
    "SELECT * { ?s :p ?o OPTIONAL { ?s :q ?v } } LIMIT 10": (1, 0),
    # All solutions of the first page are asked for what may take them away: a block more.
    "SELECT * { ?s :q ?v FILTER NOT EXISTS { ?t :p ?s } } LIMIT 10": (0, 1),
    "SELECT * { ?s :p ?o OPTIONAL { ?s :q ?v } FILTER(!BOUND(?v)) } LIMIT 10": (0, 1),
    # What a first page tells of a key answers it once; who goes on watching asks for the key.
    "ASK { ?s :p ?o . ?s :q ?v }": (1, 1),
}
"""How many requests more it takes to watch than to ask once: by key, and in blocks of keys."""


def prefixed(query: str) -> str:
    return f"PREFIX : <{E}> {query}"


@pytest.fixture(scope="module", params=[64, 0], ids=["blocks", "no-blocks"])
def big(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LiveServer:
    path: Path = tmp_path_factory.mktemp("big")
    return LiveServer(path, STATIC, max_age=10, server={"max_values": request.param})


@pytest.mark.parametrize("query", SHAPES)
def test_watching_reads_no_more_than_asking_once(big: LiveServer, query: str) -> None:
    counts = []
    for watched in (False, True):
        before = len(big.log)
        with big.client() as client:
            if watched:
                next(iter(client.stream(prefixed(query))))
            else:
                found = client.query(prefixed(query))
                if not isinstance(found, bool):
                    list(found)
        counts.append(len(big.log) - before)
    once, first = counts
    plain, blocks = WATCHED.get(query, (0, 0))
    assert first - once <= (blocks if big.settings.max_values else plain), (once, first)


def test_a_limit_is_refilled_from_what_was_not_read(tmp_path: Path) -> None:
    with LiveServer(tmp_path, max_age=1000, page_size=10) as server, server.client() as client:
        start = server.clock.now()
        delay = iri(f"{E}delay")
        server.publish([
            Fact(Quad(iri(f"{E}t{n:04}"), delay, literal("1")),
                 Expiration(start + timedelta(seconds=10 + n // 10)))
            for n in range(500)
        ])  # fmt: skip
        query = f"SELECT * {{ ?t <{E}delay> ?delay }} LIMIT 12"
        sizes, requests, kept = [], [], []
        before = 0
        for update in client.stream(query, until=start + timedelta(seconds=40)):
            assert update.error is None
            sizes.append(len(update.results))
            kept.append(len(update.removed))
            requests.append(len(server.log) - before)
            before = len(server.log)
    assert set(sizes) == {12}
    # Rows stay until their own facts end, ten of them at a time.
    assert max(kept) <= 12
    assert len(sizes) > 20
    assert max(requests) <= 5
