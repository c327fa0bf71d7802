"""The engine beside its results: time, limits, static data, routes, memory, sharing."""

import gc
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tpf_server.continuous.continuous_engine import Engine, EngineLimits, EngineSettings
from tpf_server.continuous.runtime.errors import (
    BacklogError,
    ElementError,
    EngineClosedError,
    EngineLimitError,
    StreamNameError,
    TimestampError,
    UnknownQueryError,
    UnknownStreamError,
    UnsupportedContinuousQueryError,
    WindowLimitError,
)
from tpf_server.continuous.runtime.semantics import (
    CQELS,
    PAPER,
    PAPER_DSTREAM,
    PAPER_RSTREAM,
    SEMANTICS,
)

XSD = "http://www.w3.org/2001/XMLSchema#"
PAIRS = "SELECT ?a ?c { STREAM <urn:s> [RANGE 4ms] { ?a <urn:p> ?b } STREAM <urn:s> [NOW] { ?c <urn:p> ?b } }"  # noqa: E501

SLIDES = "SELECT ?a ?c { STREAM <urn:s> [RANGE 4ms SLIDE 2ms] { ?a <urn:p> ?c } }"


def rows(query):
    return [row for emission in query for row in emission.rows]


def ticks(query):
    """When a query emitted what."""
    return [(each.at, [row[0][5:-1] for row in each.rows]) for each in query]


def triple(number, other=0):
    return (f"<urn:n{number}>", "<urn:p>", f"<urn:n{other}>")


# ----------------------------------------------------------------------------------- time


@pytest.mark.parametrize("way", ["element", "record"])
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=20),
    st.integers(1, 10),
)
def test_late_elements_are_put_in_order(way, arrivals, lateness):
    """What comes out of order within the lateness is processed as if it had come in order."""
    engine = Engine(EngineSettings(lateness=lateness, semantics=PAPER))
    found = [engine.register(each) for each in (PAIRS, SLIDES)]
    feed = engine.record_feed("urn:s", ["urn:p"])
    for at, node in arrivals:
        if way == "record":
            feed.push(f"<urn:n{node}>", ["<urn:n0>"], at)
        else:
            engine.push("urn:s", triple(node), at)
    engine.finish()
    ordered = Engine(EngineSettings(semantics=PAPER))
    expected = [ordered.register(each) for each in (PAIRS, SLIDES)]
    kept = sorted(_kept(arrivals, lateness), key=lambda each: each[0])
    for at, node in kept:
        ordered.push("urn:s", triple(node), at)
    ordered.finish()
    assert engine.dropped == len(arrivals) - len(kept)
    assert [*map(ticks, found)] == [*map(ticks, expected)]


def _kept(arrivals, lateness):
    released = None
    latest = None
    waiting = []
    for at, node in arrivals:
        if released is not None and at < released:
            continue
        waiting.append((at, node))
        latest = at if latest is None else max(latest, at)
        due = [each for each, _ in waiting if each <= latest - lateness]
        if due:
            released = max([*due, released or 0])
    return waiting


def test_without_lateness_the_past_is_dropped_and_counted():
    engine = Engine()
    found = engine.register("SELECT ?a { STREAM <urn:s> [ALL] { ?a <urn:p> ?b } }")
    for at, node in [(5, 1), (4, 2), (5, 3), (6, 4)]:
        engine.push("urn:s", triple(node), at)
    assert rows(found) == [("<urn:n1>",), ("<urn:n3>",), ("<urn:n4>",)]
    assert (engine.dropped, engine.arrivals) == (1, 3)


def test_time_alone_expires_and_emits_by_difference():
    engine = Engine()
    text = "SELECT (COUNT(?a) AS ?n) { STREAM <urn:s> [RANGE 10ms] { ?a <urn:p> ?b } }"
    counts = engine.register(text, semantics=PAPER)
    gone = engine.register(
        "SELECT ?a { STREAM <urn:s> [RANGE 10ms] { ?a <urn:p> ?b } }", semantics=PAPER_DSTREAM
    )
    engine.push("urn:s", triple(1), 0)
    engine.push("urn:s", triple(2), 5)
    engine.advance(10)
    assert rows(gone) == []
    engine.advance(11)
    engine.advance(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert rows(gone) == [("<urn:n1>",), ("<urn:n2>",)]
    assert [row[0][1] for row in rows(counts)] == ["1", "2", "1", "0"]


def test_the_clock_leaves_late_elements_their_time():
    engine = Engine(EngineSettings(lateness=5))
    found = engine.register("SELECT ?a { STREAM <urn:s> [RANGE 2ms] { ?a <urn:p> ?b } }")
    engine.push("urn:s", triple(1), 10)
    engine.advance(12)
    assert (engine.time, rows(found)) == (7, [])
    engine.push("urn:s", triple(2), 9)
    engine.advance(15)
    assert (engine.time, rows(found)) == (10, [("<urn:n2>",), ("<urn:n1>",)])
    engine.push("urn:s", triple(3), 9)
    assert engine.dropped == 1


@pytest.mark.parametrize("bad", ["soon", None, True, 1.5, datetime(2020, 1, 1)])  # noqa: DTZ001
def test_what_is_no_instant(bad):
    with pytest.raises(TimestampError):
        Engine().push("urn:s", triple(1), bad)


def test_a_term_that_is_none():
    engine = Engine()
    with pytest.raises(ElementError, match="not a term: 'x'"):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", "x"), 0)
    assert engine.arrivals == 0


def test_a_number_without_end_is_a_value_that_nobody_knows():
    """It must not stop the engine in the middle of an arrival."""
    engine = Engine()
    texts = [
        "SELECT (SUM(?c) AS ?x) (MEDIAN(?c) AS ?m) (AVG(?c) AS ?v) { CLAUSE } GROUP BY ?a",
        "SELECT ?c { CLAUSE FILTER (?c > 3) }",
        "SELECT (ROUND(?c * 2) AS ?x) (COUNT(?a) AS ?n) { CLAUSE } GROUP BY ?x HAVING (?x > 0)",
    ]
    clause = "STREAM <urn:s> [RANGE 5ms] { ?a <urn:p> ?c }"
    found = [engine.register(text.replace("CLAUSE", clause)) for text in texts]
    endless = f'"{"9" * 5000}"^^<{XSD}integer>'
    five = f'"5"^^<{XSD}integer>'
    for at, value in enumerate((five, endless, five)):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", value), at)
    engine.push("urn:s", ("<urn:a>", "<urn:p>", five), 20)
    assert [rows(each)[-1] for each in found] == [
        (five, five, f'"5"^^<{XSD}decimal>'), (five,),
        (f'"10"^^<{XSD}integer>', f'"1"^^<{XSD}integer>'),
    ]  # fmt: skip


# --------------------------------------------------------------------------------- limits


def test_a_window_that_outgrows_its_limit_stops_its_query_alone():
    engine = Engine(limits=EngineLimits(window_rows=100))
    greedy = engine.register(
        "SELECT ?a { STREAM <urn:s> [ALL] { ?a <urn:p> ?b } STREAM <urn:t> [ALL] { ?a <urn:q> ?b } }"  # noqa: E501
    )
    modest = engine.register("SELECT ?a { STREAM <urn:s> [RANGE 50ms] { ?a <urn:p> ?b } }")
    for at in range(1000):
        engine.push("urn:s", triple(at), at)
    assert greedy.state == "stopped"
    with pytest.raises(WindowLimitError):
        list(greedy)
    assert modest.state == "running"
    assert len(rows(modest)) == 1000
    assert greedy.explain()["state"] == "stopped"


def test_a_reader_that_stops_reading_is_cut_off():
    engine = Engine(limits=EngineLimits(backlog=10))
    query = engine.register("SELECT ?a { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }")
    for at in range(11):
        engine.push("urn:s", triple(at), at)
    assert query.state == "stopped"
    taken = iter(query)
    assert [next(taken).at for _ in range(10)] == list(range(10))
    with pytest.raises(BacklogError):
        next(taken)


def test_registration_is_limited_and_checked():
    engine = Engine(EngineSettings(create_streams=False), limits=EngineLimits(queries=1))
    with pytest.raises(UnknownStreamError):
        engine.register("SELECT ?a { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }")
    engine.create_stream("urn:s")
    query = engine.register("SELECT ?a { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }", name="one")
    with pytest.raises(EngineLimitError):
        engine.register("SELECT ?a { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }")
    with pytest.raises(UnknownStreamError):
        engine.push("urn:t", triple(1), 0)
    assert engine.query("one") is query
    query.close()
    with pytest.raises(UnknownQueryError):
        engine.query("one")
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.push("urn:s", triple(1), 0)


def test_a_chain_may_be_longer_than_python_nests_loops():
    length = 40
    chain = " . ".join(f"?a{n} <urn:p> ?a{n + 1}" for n in range(length))
    text = (
        f"SELECT ?a0 ?a{length} {{ STREAM <urn:s> [RANGE 9ms] {{ {chain} }}"
        f" FILTER (?a20 != ?a30 && ?a{length} != <urn:n1>) }}"
    )
    engine = Engine(EngineSettings(semantics=PAPER))
    query = engine.register(text)
    engine.push("urn:s", [triple(n, n + 1) for n in range(length)], 1)
    engine.push("urn:s", triple(0, 1), 2)
    engine.push("urn:s", triple(77, 78), 3)
    assert [each.rows for each in query] == [(("<urn:n0>", f"<urn:n{length}>"),)] * 2


@pytest.mark.parametrize(
    ("inside", "says"),
    [
        (
            " ".join(f"STREAM <urn:s> [NOW] {{ ?b <urn:q{n}> ?c{n} }}" for n in range(65)),
            "a join of",
        ),
        ("SERVICE <urn:e> { ?a <urn:q> ?c }", "cannot be asked from here"),
        ("FILTER (" + " + ".join(["1"] * 3000) + " > 1)", "nested too deeply"),
        ("OPTIONAL { ?a <urn:q> ?c } " * 3000, "nested too deeply"),
    ],
)
def test_what_cannot_be_run_leaves_nothing_behind(inside, says):
    engine = Engine()
    with pytest.raises(UnsupportedContinuousQueryError, match=says):
        engine.register(f"SELECT ?a {{ STREAM <urn:s> [ALL] {{ ?a <urn:p> ?b }} {inside} }}")
    assert engine.queries == {}
    assert engine.stream("urn:s").inputs == []
    engine.push("urn:s", triple(1), 0)


def test_the_name_of_a_stream_is_an_iri():
    engine = Engine()
    for name in ("a b", "urn:<", "<not closed", "<>", "urn:\ud800"):
        with pytest.raises(StreamNameError):
            engine.push(name, triple(1), 0)
    assert engine.streams == {}


def test_a_query_cannot_feed_itself():
    engine = Engine()
    first = "CONSTRUCT { ?a <urn:q> ?b } { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }"
    second = "CONSTRUCT { ?a <urn:p> ?b } { STREAM <urn:t> [NOW] { ?a <urn:q> ?b } }"
    engine.register(first, into="urn:t")
    with pytest.raises(UnsupportedContinuousQueryError):
        engine.register(second, into="urn:s")
    with pytest.raises(UnsupportedContinuousQueryError):
        engine.register("SELECT ?a { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }", into="urn:u")
    # What it makes would be an arrival, at which it would make everything again.
    with pytest.raises(UnsupportedContinuousQueryError, match="paper-rstream cannot feed"):
        engine.register(first, into="urn:v", semantics=PAPER_RSTREAM)


# ---------------------------------------------------------------------------- static data


# --------------------------------------------------------------------------------- top-k


@pytest.mark.parametrize("order", ["?a DESC(?c)", "DESC(?a) DESC(?c)", "DESC(?a) ?c"])
@pytest.mark.parametrize("kind", ["rows", "groups"])
def test_the_first_few_by_several_keys(order, kind):
    """Rows, and groups, that come and go, in an order whose keys go up or down."""
    pattern = "{ STREAM <urn:s> [RANGE 9ms] { ?a <urn:v> ?c } }"
    texts = {
        "rows": f"SELECT ?a ?c {pattern} ORDER BY {order} LIMIT 2",
        "groups": f"SELECT ?a (MAX(?b) AS ?c) {pattern.replace('?c', '?b')} GROUP BY ?a ?b"
        f" ORDER BY {order} LIMIT 2",
    }
    engine = Engine(EngineSettings(semantics=SEMANTICS["paper-rstream"]))
    query = engine.register(texts[kind])
    window = []
    for at in range(40):
        node, value = at * 7 % 3, at * 11 % 17
        window = [each for each in window if each[0] >= at - 9] + [(at, node, value)]
        engine.push("urn:s", (f"<urn:{node}>", "<urn:v>", f'"{value}"^^<{XSD}integer>'), at)
        signs = [-1 if key.startswith("DESC") else 1 for key in order.split()]
        best = sorted((signs[0] * each[1], signs[1] * each[2]) for each in window)[:2]
        (emission,) = query
        assert [tuple(str(term).strip("<>").split('"')[str(term)[:1] == '"'] for term in row)
                for row in emission.rows] == [
            (f"urn:{abs(one)}", str(abs(other))) for one, other in best
        ], at  # fmt: skip


# --------------------------------------------------------------------------------- routes


def test_routes_follow_the_cardinalities():
    """The middle stream's rows meet the smaller of two windows first, whichever that is."""
    engine = Engine()
    query = engine.register(
        "SELECT ?a { STREAM <urn:left> [RANGE 400ms] { ?x <urn:p> ?a }"
        " STREAM <urn:middle> [RANGE 100ms] { ?a <urn:m> ?b }"
        " STREAM <urn:right> [RANGE 400ms] { ?b <urn:q> ?y } }"
    )
    at = 0

    def play(busy, quiet):
        nonlocal at
        for number in range(3000):
            at += 1
            engine.push(
                busy, (f"<urn:{at}>", "<urn:p>" if "left" in busy else "<urn:q>", "<urn:k>"), at
            )
            if busy == "urn:right":
                engine.push(busy, ("<urn:k>", "<urn:q>", f"<urn:y{at}>"), at)
            if number % 100 == 0:
                subject, predicate = (
                    ("<urn:k>", "<urn:q>") if "right" in quiet else ("<urn:z>", "<urn:p>")
                )
                engine.push(quiet, (subject, predicate, "<urn:k>"), at)
            if number % 50 == 0:
                engine.push("urn:middle", ("<urn:k>", "<urn:m>", "<urn:k>"), at)
        (middle,) = [
            each
            for each in query.explain()["joins"][0]["inputs"]
            if "<urn:middle>" in each["input"]
        ]
        return middle["route"][0]

    assert "<urn:right>" in play("urn:left", "urn:right")
    assert "<urn:left>" in play("urn:right", "urn:left")
    assert query.explain()["joins"][0]["rerouted"] >= 1


# --------------------------------------------------------------------------------- memory

KINDS = {
    "join": PAIRS,
    "star": "SELECT ?a { STREAM <urn:s> [RANGE 900ms] { ?a <urn:p> ?b . ?a <urn:v> ?c } }",
    "groups": (
        "SELECT ?b (SUM(?c) AS ?n) (MEDIAN(?c) AS ?m)"
        " { STREAM <urn:s> [RANGE 900ms] { ?a <urn:p> ?b . ?a <urn:v> ?c } } GROUP BY ?b"
    ),
    "joined groups": (
        "SELECT ?b ?n ?m (?n / ?m AS ?r) {"
        " { SELECT ?b (SUM(?c) AS ?n) { STREAM <urn:s> [RANGE 900ms]"
        " { ?a <urn:p> ?b . ?a <urn:v> ?c } } GROUP BY ?b }"
        " { SELECT ?b (COUNT(?a) AS ?m) { STREAM <urn:s> [RANGE 300ms] { ?a <urn:p> ?b } }"
        " GROUP BY ?b } } ORDER BY ?r ?b LIMIT 3"
    ),
    "top-k": (
        "SELECT ?a ?c { STREAM <urn:s> [RANGE 900ms] { ?a <urn:v> ?c } } ORDER BY DESC(?c) ?a LIMIT 3"  # noqa: E501
    ),
    "negation": (
        "SELECT ?a { STREAM <urn:s> [RANGE 900ms] { ?a <urn:v> ?c }"
        " FILTER NOT EXISTS { STREAM <urn:s> [RANGE 300ms] { ?b <urn:v> ?d } FILTER (?d > ?c) } }"
    ),
    "distinct": (
        "SELECT DISTINCT ?b ?c { STREAM <urn:s> [RANGE 900ms SLIDE 300ms] { ?a <urn:p> ?b }"
        " STREAM <urn:s> [RANGE 300ms] { ?a <urn:v> ?c } }"
    ),
    "minus": (
        "SELECT ?a { STREAM <urn:s> [RANGE 900ms] { ?a <urn:p> ?b }"
        " MINUS { STREAM <urn:s> [RANGE 300ms] { ?b <urn:p> ?a } } }"
    ),
    "path": "SELECT ?a ?b { STREAM <urn:s> [RANGE 300ms] { ?a <urn:p>+ ?b } }",
    "union": (
        "SELECT ?a (CONCAT(STR(?b), STR(?c)) AS ?d) {"
        " { STREAM <urn:s> [RANGE 900ms] { ?a <urn:p> ?b } BIND (STR(?b) AS ?c) }"
        " UNION { STREAM <urn:s> [TRIPLES 9] { ?a <urn:v> ?c } BIND (STR(?a) AS ?b) } }"
    ),
    "any predicate": (
        "SELECT ?b (COUNT(DISTINCT ?a) AS ?n) (GROUP_CONCAT(?x) AS ?g)"
        " { STREAM <urn:s> [RANGE 300ms] { ?a ?x ?b } } GROUP BY ?b HAVING (COUNT(?a) > 0)"
    ),
    "last": "SELECT ?a ?b { STREAM <urn:s> [TRIPLES 20] { ?a <urn:p> ?b } OPTIONAL { ?b <urn:q> ?c } }",  # noqa: E501
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["cqels", "paper"])
def test_an_hour_leaves_nothing_behind(kind, policy):
    """An hour of stream time, an element every four seconds, all new terms."""
    engine = Engine(EngineSettings(semantics=SEMANTICS[policy]))
    emitted = Counter()
    engine.register(
        KINDS[kind].replace("900ms", "90s").replace("300ms", "30s").replace("4ms", "40s"),
        lambda each: emitted.update(n=1),
    )
    held = []
    for second in range(0, 3600, 4):
        subject = f"<urn:subject{second}>"
        element = [
            (subject, "<urn:p>", f"<urn:group{second // 40}>"),
            (subject, "<urn:v>", f'"{second * 7919 % 1000}.{second % 10}"^^<{XSD}decimal>'),
        ]
        engine.push("urn:s", element, second * 1000)
        if second in (1200, 2400, 3596):
            engine.sweep()
            gc.collect()
            held.append((len(engine.dictionary), len(gc.get_objects())))
    assert emitted["n"] > 10
    terms = [each for each, _ in held]
    assert max(terms) - min(terms) <= 20
    assert max(terms) < 400
    objects = [each for _, each in held]
    assert objects[2] - objects[0] < 400


def test_an_hour_of_streams_that_queries_make_leaves_nothing_behind():
    """Elements that are made and read, by instances of one query that share a plan."""
    engine = Engine()
    emitted = Counter()
    engine.register(
        "CONSTRUCT { ?b <urn:made> ?a . _:new <urn:of> ?a }"
        " { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }",
        lambda each: emitted.update(made=1),
        into="urn:made",
    )
    reader = (
        "SELECT ?a ?x { STREAM <urn:made> [RANGE 90s] { <urn:group0> <urn:made> ?a }"
        " STREAM <urn:made> [TRIPLES 5] { ?x <urn:of> ?a } }"
    )
    queries = [engine.register(reader.replace("group0", f"group{n}")) for n in range(10)]
    assert len({id(each.plan) for each in queries}) == 2
    held = []
    for second in range(0, 3600, 4):
        element = (f"<urn:subject{second}>", "<urn:p>", f"<urn:group{second // 4 % 10}>")
        engine.push("urn:s", element, second * 1000)
        for each in queries:
            emitted["read"] += len(list(each))
        if second in (1200, 2400, 3596):
            engine.sweep()
            gc.collect()
            held.append((len(engine.dictionary), len(gc.get_objects())))
    assert (emitted["made"], emitted["read"]) == (900, 900)
    terms = [each for each, _ in held]
    assert max(terms) - min(terms) <= 5
    objects = [each for _, each in held]
    assert objects[2] - objects[0] < 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_that_is_closed_leaves_nothing_behind(kind):
    engine = Engine()
    engine.add([("<urn:n1>", "<urn:q>", "<urn:n2>")])

    def play(numbers):
        for number in numbers:
            queries = [
                engine.register(text)
                for text in (KINDS[kind], KINDS[kind].replace("?b", f"<urn:n{number % 3}>", 1))
                if "<urn:n" not in text.split("{", 1)[0]
            ]
            engine.push("urn:s", triple(number % 7), number)
            engine.push("urn:s", ("<urn:n1>", "<urn:v>", f'"{number % 5}"'), number)
            for each in queries:
                each.close()
        engine.sweep()
        gc.collect()
        return len(gc.get_objects())

    before = play(range(20))
    assert play(range(20, 80)) - before < 60
    assert engine.stream("urn:s").inputs == []


# -------------------------------------------------------------------------------- records


@examples(10)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.decimals(-9, 9, places=1), st.integers(0, 2)),
        max_size=15,
    )
)
def test_records_are_graphs(trips):
    """Records, graphs and records given as terms mean the same."""
    queries = [
        "SELECT ?t ?x ?k { STREAM <urn:s> [RANGE 5ms] { ?t <urn:x> ?x . ?t <urn:k> ?k } }",
        "SELECT ?k (SUM(?x) AS ?n) { STREAM <urn:s> [RANGE 5ms] { ?t <urn:x> ?x . ?t <urn:k> ?k } } GROUP BY ?k",  # noqa: E501
    ]
    mixed = [*queries, "SELECT ?t { STREAM <urn:s> [RANGE 5ms] { ?t <urn:k> ?k } }"]
    for texts in (queries, mixed):
        found = []
        for way in ("record", "term", "graph"):
            engine = Engine(EngineSettings(semantics=PAPER))
            registered = [engine.register(text) for text in texts]
            feed = engine.record_feed("urn:s", ["urn:x", "urn:k"], "urn:trip/")
            for number, (_, x, k) in enumerate(trips):
                at = sum(each for each, _, _ in trips[: number + 1])
                subject = f"<urn:trip/{number % 4}>"
                decimal = f'"{x}"^^<{XSD}decimal>'
                if way == "record":
                    feed.push(number % 4, (x, f'"k{k}"'), at)
                elif way == "term":
                    feed.push(subject, (decimal, f'"k{k}"'), at)
                else:
                    element = [(subject, "<urn:x>", decimal), (subject, "<urn:k>", f'"k{k}"')]
                    engine.push("urn:s", element, at)
            found.append([[(e.sequence, Counter(e.rows)) for e in each] for each in registered])
        assert found[0] == found[2]
        assert found[1] == found[2]


@pytest.mark.parametrize("way", ["record", "graph"])
def test_records_push_triples_out_of_windows_that_count(way):
    engine = Engine()
    query = engine.register(
        "SELECT ?b ?x { STREAM <urn:s> [TRIPLES 2] { ?a <urn:q> ?b }"
        " STREAM <urn:s> [NOW] { ?t <urn:x> ?x . ?t <urn:k> ?k } }"
    )
    feed = engine.record_feed("urn:s", ["urn:x", "urn:k"])
    for at in (1, 2):
        engine.push("urn:s", ("<urn:n1>", "<urn:q>", "<urn:n2>"), at)
    if way == "record":
        feed.push("<urn:t>", (1, 2), 3)
    else:
        engine.push("urn:s", [("<urn:t>", "<urn:x>", '"1"'), ("<urn:t>", "<urn:k>", '"2"')], 3)
    assert rows(query) == []


# ----------------------------------------------------------------------------------- slides


@pytest.mark.parametrize("way", ["element", "record", "advance", "finish"])
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("cqels", [(40_000, 33), (60_000, 53), (60_000, 60)]),
        ("paper", [(40_000, 33), (60_000, 53), (60_000, 60)]),
        ("paper-dstream", [(50_000, 33)]),
    ],
)
def test_every_boundary_that_passed_is_reported(policy, expected, way):
    """Also those at which no element came."""
    engine = Engine(EngineSettings(semantics=SEMANTICS[policy]))
    window = "STREAM <urn:s> [RANGE 10s SLIDE 10s]"
    query = engine.register(f"SELECT ?a {{ {window} {{ ?a <urn:p> ?b ; <urn:q> ?c }} }}")
    feed = engine.record_feed("urn:s", ["urn:p", "urn:q"], "urn:")
    for second in (33, 53, 60):
        subject = f"<urn:{second}>"
        if way == "record":
            feed.push(second, (1, 2), second * 1000)
        elif way == "finish" and second == 60:
            element = [(subject, "<urn:p>", '"1"'), (subject, "<urn:q>", '"2"')]
            engine.push("urn:s", element, 59_500)
            engine.finish()
        else:
            if way == "advance":
                engine.advance(second * 1000 - 1)
            element = [(subject, "<urn:p>", '"1"'), (subject, "<urn:q>", '"2"')]
            engine.push("urn:s", element, second * 1000)
    found = [(each.at, int((row[0] or "")[5:-1])) for each in query for row in each.rows]
    assert found == expected


# ---------------------------------------------------------------------------- time of streams


@pytest.mark.parametrize("tells", [False, True])
def test_who_says_what_time_it_is_says_how_far_a_stream_is_behind(tells):
    """22 ms at its newest element, 20 ms when everything up to 80 has come."""
    engine = Engine()
    query = engine.register(
        "SELECT ?a { STREAM <urn:s> [NOW] { ?a <urn:p> ?x } STREAM <urn:t> [RANGE 15ms]"
        " { ?b <urn:p> ?x } }"
    )
    for stream, who, at in (("urn:s", "a", 100), ("urn:t", "b", 78), ("urn:s", "c", 114)):
        if tells and at == 114:
            engine.advance(80)
        engine.push(stream, (f"<urn:{who}>", "<urn:p>", "<urn:x>"), at)
    assert [each.at for each in query] == ([78] if tells else [78, 114])


def test_a_stream_that_is_behind_has_its_windows_where_it_is():
    """What the time of others pushed out of them comes back."""
    engine = Engine(EngineSettings(semantics=PAPER))
    text = "SELECT (COUNT(?a) AS ?n) { STREAM <urn:slow> [RANGE 10s] { ?a <urn:p> ?b } }"
    count = engine.register(text)
    joined = engine.register(
        "SELECT ?a { STREAM <urn:slow> [RANGE 10s] { ?a <urn:p> ?b }"
        " STREAM <urn:fast> [RANGE 10s] { ?c <urn:p> ?b } }",
        semantics=CQELS,
    )
    counts = []
    for at in (0, 4_000, 8_000, 12_000, 16_000):
        engine.push("urn:fast", (f"<urn:{at}>", "<urn:p>", '"1"'), at + 50_000)
        engine.push("urn:slow", (f"<urn:{at}>", "<urn:p>", '"1"'), at)
        counts.append([row[0].split('"')[1] for row in rows(count)][-1])
    assert counts == ["1", "2", "3", "3", "3"]
    # An element of the fast one finds those of the slow one that were there when it came.
    assert [len(each.rows) for each in joined] == [1, 1, 2, 2, 3, 2, 3, 2, 3]
    assert engine.dropped == 0


def test_a_stream_that_is_silent_moves_with_the_others():
    """As far behind them as it was."""
    engine = Engine(EngineSettings(semantics=PAPER_DSTREAM))
    gone = engine.register("SELECT ?a { STREAM <urn:slow> [RANGE 10ms] { ?a <urn:p> ?b } }")
    engine.push("urn:fast", triple(0), 5)
    engine.push("urn:slow", triple(1), 3)
    engine.push("urn:slow", triple(2), 4)
    for at in (14, 15):
        engine.push("urn:fast", triple(0), at)
    assert ticks(gone) == [(15, ["n1"])]
    engine.advance(15)
    assert ticks(gone) == [(15, ["n2"])]


@pytest.mark.parametrize("kind", ["element", "record"])
def test_an_element_from_the_future_moves_its_own_stream_only(kind):
    """Where it is known what time it is."""
    engine = Engine(EngineSettings(semantics=PAPER_DSTREAM))
    engine.present = 1_000
    own, other = [
        engine.register(f"SELECT ?a {{ STREAM <urn:{name}> [RANGE 10s] {{ ?a <urn:p> ?b }} }}")
        for name in ("own", "other")
    ]
    engine.push("urn:own", triple(1), 900)
    engine.push("urn:other", triple(1), 1_000)
    if kind == "element":
        engine.push("urn:own", triple(2), 51_000)
    else:
        engine.record_feed("urn:own", ["<urn:p>"]).push("<urn:n2>", ["<urn:x>"], 51_000)
    assert (engine.time, ticks(own), ticks(other)) == (1_000, [(10_901, ["n1"])], [])
    engine.advance(11_001)
    assert (ticks(own), ticks(other)) == ([], [(11_001, ["n1"])])


def test_a_clock_that_is_set_back_makes_nothing_late():
    engine = Engine()
    found = engine.register("SELECT ?a { STREAM <urn:s> [RANGE 10s] { ?a <urn:p> ?b } }")
    engine.push("urn:s", triple(1), 1_000)
    engine.advance(61_000)
    engine.push("urn:s", triple(2), 2_000)
    assert engine.dropped == 1
    engine.advance(2_000)
    engine.push("urn:s", triple(3), 2_000)
    engine.push("urn:s", triple(4), 3_000)
    engine.push("urn:s", triple(5), 2_999)
    assert (engine.dropped, engine.time) == (2, 61_000)
    assert ticks(found) == [(1_000, ["n1"]), (2_000, ["n3"]), (3_000, ["n4"])]


def test_a_stream_that_is_ahead_leaves_others_their_lateness():
    """What is put in order is so by the time of its stream, where that is far behind."""
    engine = Engine(EngineSettings(lateness=5))
    found = engine.register("SELECT ?a { STREAM <urn:s> [ALL] { ?a <urn:p> ?b } }")
    engine.push("urn:ahead", triple(0), 50_000)
    for at in (10, 14, 12, 20, 17, 30):
        engine.push("urn:s", triple(at), at)
    assert [at for at, _ in ticks(found)] == [10, 12, 14, 17, 20]
    engine.finish()
    assert ([at for at, _ in ticks(found)], engine.dropped) == ([30], 0)


@pytest.mark.parametrize(
    "pattern",
    [
        "[RANGE 0ms] { ?a <urn:q> ?c }",
        "[RANGE 0ms SLIDE 2ms] { ?a <urn:q> ?c }",
        "[RANGE 0ms SLIDE 4ms] { ?a <urn:none> ?c }",
        # What shares no variable is not computed.
        "[RANGE 0ms SLIDE 2ms] { ?d <urn:q> ?c }",
        "[RANGE 0ms SLIDE 5ms] { ?a <urn:q> ?c }",
    ],
)
@pytest.mark.parametrize("way", ["element", "record", "batch"])
def test_what_goes_between_elements_has_its_instant(pattern, way):
    """Whatever else the query has."""
    engine = Engine(EngineSettings(semantics=PAPER_DSTREAM))
    minus = f"MINUS {{ STREAM <urn:s> {pattern} }}"
    gone = engine.register(f"SELECT ?a {{ STREAM <urn:s> [NOW] {{ ?a <urn:p> ?b }} {minus} }}")
    element = [("<urn:n1>", "<urn:p>", "<urn:x>"), ("<urn:n1>", "<urn:none>", "<urn:x>")]
    engine.push("urn:s", element, 7)
    feed = engine.record_feed("urn:s", ["urn:p"])
    match way:
        case "element":
            engine.push("urn:s", triple(2), 9)
        case "record":
            feed.push("<urn:n2>", ["<urn:x>"], 9)
        case _:
            values = pa.record_batch({"p": ["<urn:x>"]})
            feed.push_batch(pa.array(["<urn:n2>"]), values, pa.array([9]))
    assert ticks(gone) == [(8, ["n1"])]


def test_the_end_comes_after_every_multiple_before_it():
    """Also those at which nothing that waited comes in."""
    engine = Engine(EngineSettings(semantics=PAPER_DSTREAM))
    parts = [
        f"{{ STREAM <urn:s> [RANGE {each}ms SLIDE {each}ms] {{ ?a <urn:p> ?b }} }}"
        for each in (2, 9)
    ]
    gone = engine.register(f"SELECT ?a {{ {' UNION '.join(parts)} }}")
    engine.push("urn:s", triple(1), 3)
    engine.finish()
    assert ticks(gone) == [(6, ["n1"])]


@pytest.mark.parametrize(
    "kinds",
    [
        [""],
        # A few and many, which hold back what goes in different ways.
        ["ORDER BY ?a LIMIT 1", "ORDER BY ?a LIMIT 2"],
        [f"HAVING(COUNT(*) < {each}) ORDER BY ?a LIMIT 2" for each in range(2, 14)],
    ],
)
def test_what_is_not_there_between_elements_comes_anew(kinds):
    """Beside others that are looked at then, too."""
    engine = Engine(EngineSettings(semantics=PAPER))
    grouped = "GROUP BY ?a" if "HAVING" in kinds[0] else ""
    text = f"SELECT DISTINCT ?a {{ STREAM <urn:s> [NOW] {{ ?a <urn:p> ?b }} }} {grouped}"
    queries = [engine.register(f"{text} {each}") for each in kinds]
    other = engine.register("SELECT ?a { STREAM <urn:s> [RANGE 2ms SLIDE 2ms] { ?a <urn:p> ?b } }")
    engine.push("urn:s", triple(1), 3)
    engine.push("urn:s", triple(1), 5)
    assert ticks(other) == [(4, ["n1"])]
    assert [ticks(each) for each in queries] == [[(3, ["n1"]), (5, ["n1"])]] * len(kinds)


def test_an_element_far_ahead_makes_late_what_is_older_in_its_own_stream_only():
    engine = Engine()
    own, other = [
        engine.register(f"SELECT ?a {{ STREAM <urn:{name}> [RANGE 60s] {{ ?a <urn:p> ?b }} }}")
        for name in ("ahead", "other")
    ]
    engine.push("urn:ahead", ("<urn:a>", "<urn:p>", '"1"'), 50_000)
    for second in range(3):
        engine.push("urn:ahead", ("<urn:b>", "<urn:p>", '"1"'), second)
        engine.push("urn:other", (f"<urn:{second}>", "<urn:p>", '"1"'), second * 1000)
    assert rows(own) == [("<urn:a>",)]
    assert rows(other) == [("<urn:0>",), ("<urn:1>",), ("<urn:2>",)]
    assert engine.dropped == 3
    # What the engine is told holds for every stream.
    engine.advance(55_000)
    engine.push("urn:other", ("<urn:3>", "<urn:p>", '"1"'), 54_999)
    assert (rows(other), engine.dropped) == ([], 4)
