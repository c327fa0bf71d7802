"""STREAM over a variable: every stream, also those that come later."""

import re
from random import Random

import pytest
from hypothesis import given

from tests.support.continuous_reference import Arrival, Beside, Clocks, closing, compare_emissions
from tests.support.examples import examples
from tests.support.random_continuous_queries import (
    RANDOM,
    STATIC,
    STREAMS,
    QueryWriter,
    loaded,
    random_elements,
)
from tests.tpf_server.continuous.languages.cqels.test_random_queries import check, give
from tpf_client.sparql.algebra import Row
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import (
    UnknownStreamError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.semantics import PAPER, PAPER_DSTREAM

CLAUSE = re.compile(r"STREAM (<urn:s\d>) (\[.*?\]) ")


def with_variables(random: Random, text: str) -> tuple[str, str]:
    """Return a query with variables for some of its streams, and the same with UNION."""
    varied, union, at = "", "", 0
    while match := CLAUSE.search(text, at):
        varied += text[at : match.start()]
        union += text[at : match.start()]
        at = end = closing(text, match.end()) + 1
        body = text[match.end() : end]
        if random.random() < 0.3:
            varied += match.group() + body
            union += match.group() + body
            continue
        name = random.choice(("?s", "?s", "?t", "?d", "?b"))
        varied += f"STREAM {name} {match.group(2)} {body}"
        each = (
            f"{{ STREAM {s} {match.group(2)} {body} VALUES {name} {{ {s} }} }}" for s in STREAMS
        )
        union += " UNION ".join(each)
    return varied + text[at:], union + text[at:]


@examples(15)
@given(RANDOM)
def test_it_is_a_union_of_all_streams(random: Random) -> None:
    """Streams come with their first element."""
    text, union = with_variables(random, QueryWriter(random).query(2))
    elements = random_elements(random, random.randint(1, 10))
    engine = loaded(share=random.random() < 0.5)
    compare_emissions(engine, text, Beside(union, STATIC), elements)


@examples(10)
@given(RANDOM)
def test_each_stream_has_its_time(random: Random) -> None:
    """Elements, records and batches; streams that are ahead and behind."""
    text, union = with_variables(random, QueryWriter(random).query(2))
    names = [name[1:-1] for name in STREAMS]
    engine = loaded()
    for name in names:
        engine.create_stream(name)
    came, went = [engine.register(text, semantics=each) for each in (PAPER, PAPER_DSTREAM)]
    beside, clocks = Beside(union, STATIC), Clocks(names)
    times = {name: random.randint(0, 20) for name in names}
    for stream, pause, triples in random_elements(random, random.randint(1, 10)):
        if random.random() < 0.2:
            at = max(times.values()) + random.choice([-3, 0, 2])
            engine.advance(at)
            check(beside.advance(at, clocks), came, went)
        times[stream] += pause
        arrival = Arrival(stream, times[stream], triples)
        late = clocks.late(stream, times[stream])
        ticks = [] if late else beside.arrive(arrival, clocks)
        give(engine, arrival, random.choice(["element", "record", "batch"]))
        check(ticks, came, went)


QUERY = "SELECT ?s ?a { STREAM ?s [RANGE 10ms] { ?a <urn:p> ?b } }"


def rows(query: RegisteredQuery) -> list[Row]:
    return [row for emission in query for row in emission.rows]


def test_queries_that_come_later_see_what_comes_later() -> None:
    """Shared windows hide earlier elements."""
    engine = Engine()
    fixed = engine.register("SELECT ?a { STREAM <urn:s1> [RANGE 10ms] { ?a <urn:p> ?b } }")
    engine.push("urn:s1", ("<urn:a>", "<urn:p>", "<urn:b>"), 1)
    both = QUERY.replace("} }", "} STREAM <urn:s2> [ALL] { ?c <urn:q> ?d } }")
    queries = [engine.register(text, semantics=PAPER) for text in (QUERY, QUERY, both)]
    engine.push("urn:s2", ("<urn:c>", "<urn:q>", "<urn:d>"), 2)
    assert [rows(each) for each in queries] == [[], [], []]
    engine.push("urn:s1", ("<urn:e>", "<urn:p>", "<urn:b>"), 3)
    assert [rows(each) for each in queries] == [[("<urn:s1>", "<urn:e>")]] * 3
    assert rows(fixed) == [("<urn:a>",), ("<urn:e>",)]
    for each in (fixed, *queries):
        each.close()
    assert not len(engine.ticks.windows)


def test_queries_that_differ_in_a_constant_see_what_comes_later() -> None:
    """The windows of every stream do not say since when a row is there."""
    text = (
        "SELECT ?a { STREAM ?s [RANGE 1h] { ?a <urn:p> ?b }"
        " STREAM <urn:t> [NOW] { ?b <urn:q> ?c } FILTER(?c > %d) }"
    )
    engine = Engine()
    queries = []
    for number in range(4):
        queries.append(engine.register(text % number))
        engine.push("<urn:s>", (f"<urn:a{number}>", "<urn:p>", "<urn:b>"), number)
    engine.push(
        "<urn:t>", ("<urn:b>", "<urn:q>", '"9"^^<http://www.w3.org/2001/XMLSchema#integer>'), 10
    )
    assert [each.emitted for each in queries] == [4, 3, 2, 1]


def test_what_was_in_a_stream_goes_with_it() -> None:
    engine = Engine(EngineSettings(semantics=PAPER_DSTREAM))
    text = "SELECT ?s (COUNT(*) AS ?n) { STREAM ?s [ALL] { ?a <urn:p> ?b } } GROUP BY ?s"
    counts = engine.register(text, semantics=PAPER)
    gone = engine.register(QUERY)
    for name in ("urn:s1", "urn:s2"):
        engine.push(name, ("<urn:a>", "<urn:p>", "<urn:b>"), 1)
    assert len(rows(counts)) == 2
    engine.delete_stream("urn:s1")
    assert rows(gone) == [("<urn:s1>", "<urn:a>")]
    engine.push("urn:s1", ("<urn:a>", "<urn:p>", "<urn:b>"), 2)
    assert rows(counts) == [("<urn:s1>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>')]
    with pytest.raises(UnknownStreamError, match="there is no stream <urn:none>"):
        engine.delete_stream("urn:none")


def test_why_there_is_nothing() -> None:
    engine = Engine()
    named = engine.register(QUERY.replace("} }", "} ?s <urn:of> <urn:room> }"))
    every = engine.register(QUERY)
    assert every.explain()["state"] == "waiting"
    assert every.explain()["reason"] == "?s: there is no stream"
    engine.push("urn:s1", ("<urn:a>", "<urn:q>", "<urn:b>"), 1)
    found = every.explain()
    assert found["reason"] == (
        "?s: no stream has anything for STREAM ?s [RANGE 10ms] { ?a <urn:p> ?b }"
    )
    assert found["streams"][0]["reads"] == ["urn:s1"]
    assert named.explain()["reason"] == (
        "?s: none of the streams is named by { ?s <urn:of> <urn:room> }"
    )
    engine.add([("<urn:s1>", "<urn:of>", "<urn:room>")])
    engine.push("urn:s1", ("<urn:a>", "<urn:p>", "<urn:b>"), 2)
    for each in (every, named):
        assert each.explain()["state"] == "running"
        assert rows(each) == [("<urn:s1>", "<urn:a>")]


def test_what_cannot_be() -> None:
    engine = Engine()
    construct = "CONSTRUCT { ?a <urn:p> ?s } WHERE { STREAM ?s [NOW] { ?a <urn:p> ?b } }"
    with pytest.raises(UnsupportedContinuousQueryError, match="the one that it makes"):
        engine.register(construct, into="urn:made")
