"""Engines of both languages share terms and static data, and answer as if apart."""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term
from tests.support.any_language import register
from tests.support.examples import examples
from tests.support.random_continuous_queries import (
    NODES,
    CsparqlWriter,
    QueryWriter,
    in_csparql,
    random_clauses,
    random_elements,
)
from tests.support.random_continuous_queries import with_static as loaded
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime import forgetting
from tpf_server.continuous.runtime.elements.elements import LATEST
from tpf_server.continuous.runtime.errors import (
    ElementError,
    TimestampError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.runtime.semantics import (
    CQELS,
    PAPER,
    PAPER_DSTREAM,
    PAPER_RSTREAM,
    Semantics,
)
from tpf_server.continuous.service.streams import SharedStreams

Found = list[tuple[int, Counter[Any]]]


def texts(random: Random) -> Iterator[tuple[bool, str]]:
    """Queries, and whether they are in C-SPARQL."""
    for _ in range(random.randint(2, 4)):
        yield False, QueryWriter(random).query(2)
        clauses = random_clauses(random)
        yield True, in_csparql(CsparqlWriter(random, clauses).query(2), clauses)


def take(found: Found) -> Callable[[Any], None]:
    return lambda emission: found.append((emission.at, Counter(emission.rows)))


@examples(15)
@given(st.integers(0, 2**32).map(Random))
def test_queries_of_both_languages_answer_as_in_engines_apart(random: Random) -> None:
    """Terms are forgotten, queries go, static data change."""
    with patch.object(forgetting, "_LEAST", 0), patch.object(forgetting, "_SHARE", 10**9):
        engine = loaded(Engine(EngineSettings(semantics=PAPER)))
        streams = SharedStreams(engine)
        for name in ("<urn:s1>", "<urn:s2>"):
            streams.create(name)
        apart = (loaded(Engine(EngineSettings(semantics=PAPER))), loaded(Engine()))
        running: list[tuple[Any, Any, Found, Found, str]] = []
        for paper, text in texts(random):
            found: Found = []
            expected: Found = []
            other = register(apart[paper], text, take(expected))
            query = register(engine, text, take(found))
            running.append((query, other, found, expected, text))
        at = 10**6  # which is the number of no term
        for stream, pause, triples in random_elements(random, 20):
            if random.random() < 0.2 and running:
                for each in running.pop(random.randrange(len(running)))[:2]:
                    each.close()
            if random.random() < 0.2:
                triple = (random.choice(NODES), "<urn:near>", random.choice(NODES))
                added = random.random() < 0.5
                for each in (engine, *apart):
                    (each.add if added else each.remove)([triple])
            at += pause
            streams.arrive(Term(f"<{stream}>"), triples, at)
            for each in apart:
                each.push(stream, triples, at)
            for _, _, found, expected, text in running:
                assert found == expected, text
        for query, *_ in running:
            query.close()
        # Streams know three predicates, and how much came: up to 60, which may be eight terms.
        assert len(engine.dictionary) <= 11


MADE = "CONSTRUCT { ?a <urn:made> ?b } { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }"


def test_queries_of_both_languages_feed_each_other() -> None:
    engine = Engine()
    engine.register(MADE, take([]), into="urn:first")
    engine.register_csparql(
        "REGISTER STREAM second COMPUTED EVERY 1s AS CONSTRUCT { ?a <urn:again> ?b }"
        " FROM STREAM <urn:first> [RANGE 1s STEP 1s] { ?a <urn:made> ?b }"
    )
    found: Found = []
    second = next(each.stream for each in engine.queries.values() if each.name == "second")
    engine.register(f"SELECT ?a {{ STREAM {second} [NOW] {{ ?a <urn:again> ?b }} }}", take(found))
    for at in (500, 1_500, 2_500):
        engine.push("urn:s", (f"<urn:{at}>", "<urn:p>", "<urn:b>"), at)
    assert found == [(1_000, Counter([("<urn:500>",)])), (2_000, Counter([("<urn:1500>",)]))]
    with pytest.raises(UnsupportedContinuousQueryError, match="feed itself"):
        engine.register(MADE.replace("<urn:s>", second), into="urn:s")
    # What it makes would be an arrival, at which it would make everything again.
    with pytest.raises(UnsupportedContinuousQueryError, match="paper-rstream cannot feed"):
        engine.register(MADE, into="urn:made", semantics=PAPER_RSTREAM)


@pytest.mark.parametrize("way", ["often", "once", "element"])
@pytest.mark.parametrize(
    ("window", "policy", "expected"),
    [
        ("RANGE 1s SLIDE 1s", CQELS, [(1_000, 1), (2_000, 0), (3_000, 0)]),
        ("RANGE 900ms", PAPER_DSTREAM, [(2_000, 1), (3_000, 0)]),
    ],
)
def test_what_is_made_between_elements_is_there_at_the_next_instant(
    window: str, policy: Semantics, expected: list[tuple[int, int]], way: str
) -> None:
    engine = Engine()
    text = MADE.replace("NOW", window)
    engine.register(text, take([]), semantics=policy, into="urn:made")
    query = engine.register_csparql(
        "SELECT ?a FROM STREAM <urn:made> [RANGE 1s STEP 1s] { ?a <urn:made> ?b }"
    )
    element = ("<urn:a>", "<urn:p>", "<urn:b>")
    engine.push("urn:s", element, 500)
    if way == "element":
        engine.push("urn:s", element, 3_050)
    for at in {"often": range(550, 3_150, 100), "once": [3_050]}.get(way, ()):
        engine.advance(at)
    assert [(each.at, len(each.rows)) for each in query] == expected


def test_what_is_made_at_the_end_is_there_at_the_last_instant() -> None:
    engine = Engine()
    engine.register(MADE.replace("NOW", "RANGE 1s SLIDE 1s"), take([]), into="urn:made")
    query = engine.register_csparql(
        "SELECT ?a FROM STREAM <urn:made> [RANGE 1s STEP 1s] { ?a <urn:made> ?b }"
    )
    for at in (500, 1_500):
        engine.push("urn:s", (f"<urn:{at}>", "<urn:p>", "<urn:b>"), at)
    engine.finish()
    found = [(each.at, each.rows) for each in query]
    assert found == [(1_000, (("<urn:500>",),)), (2_000, (("<urn:1500>",),))]
    assert engine.late == 0


_ALIKE = "AS CONSTRUCT %s FROM NAMED WINDOW <w> ON <urn:s> [RANGE PT1S] { WINDOW <w> { ?a ?p ?b } }"
_REPORTED = f"REGISTER ISTREAM <urn:o%d> REPORT CONTENT CHANGE TICK TUPLE {_ALIKE}"


@pytest.mark.parametrize(
    "text",
    [
        "CONSTRUCT { [] <urn:of%d> ?a } { STREAM <urn:s> [NOW] { ?a ?p ?b } }",
        "CONSTRUCT { [] <urn:of%d> ?a } FROM STREAM <urn:s> [RANGE TRIPLES 1] { ?a ?p ?b }",
        _REPORTED.replace("%s", "{ [] <urn:of> ?a }"),
        _REPORTED.replace("%s", "{ GRAPH <urn:g> { [] <urn:of> ?a } }"),
    ],
)
def test_blank_nodes_of_two_queries_or_answers_are_different_ones(text: str) -> None:
    """They may meet in a stream."""
    engine = Engine()
    queries = [register(engine, text % number) for number in range(2)]
    for name in "ab":
        engine.push("urn:s", (f"<urn:{name}>", "<urn:p>", "<urn:o>"), 1)
    made = [row[0] for query in queries for answer in query for row in answer.rows]
    assert len(made) == len(set(made)) == 4


def test_a_query_that_makes_what_a_stream_does_not_declare_is_stopped() -> None:
    engine = Engine()
    engine.declare("urn:first", ["urn:other"])
    query = engine.register(MADE, take([]), into="urn:first")
    reader = engine.register("SELECT * { STREAM <urn:first> [ALL] { ?a ?p ?b } }")
    engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:b>"), 1)
    assert isinstance(query.error, ElementError)
    assert not list(reader)


def test_records_reach_queries_that_answer_at_instants() -> None:
    engine = Engine()
    query = register(engine, "SELECT * FROM STREAM <urn:s> [RANGE 1s STEP 1s] { ?a <urn:p> ?b }")
    feed = engine.record_feed("urn:s", ["urn:p"])
    feed.push("<urn:a>", ['"1"'], 500)
    subjects, values = pa.array(["<urn:a>"]), pa.record_batch({"urn:p": pa.array(['"2"'])})
    feed.push_batch(subjects, values, pa.array([600]))
    engine.advance(1_000)
    rows = sorted(row for each in query for row in each.rows)
    assert rows == [("<urn:a>", '"1"'), ("<urn:a>", '"2"')]


@pytest.mark.parametrize(
    "window",
    [
        "FROM STREAM <urn:s> [RANGE 9999999d TUMBLING] { ?a ?b ?c }",
        "FROM NAMED WINDOW <w> ON <urn:s> [RANGE P9999999D] { WINDOW <w> { ?a ?b ?c } }",
    ],
)
def test_now_has_no_value_after_the_year_9999(window: str, caplog: Any) -> None:
    engine = Engine()
    query = register(engine, f"SELECT (NOW() AS ?n) {window}")
    engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:b>"), LATEST)
    engine.finish()
    assert (query.state, type(query.error)) == ("stopped", TimestampError)
    assert "not in the years 1 to 9999: 863999913600000" in str(query.error)
    assert not caplog.records
