"""The engine beside its results: time, limits, memory."""

import gc
import weakref
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import (
    StreamNameError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.runtime.semantics import (
    PAPER,
    PAPER_DSTREAM,
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


def test_the_clock_leaves_a_stream_that_is_behind_its_order():
    engine = Engine(EngineSettings(lateness=10))
    found = engine.register("SELECT ?a { STREAM <urn:t> [RANGE 9ms] { ?a <urn:p> ?b } }")
    engine.push("urn:s", triple(0), 1_000)
    engine.push("urn:t", triple(1), 505)
    engine.advance(510)
    engine.push("urn:t", triple(2), 503)
    engine.push("urn:s", triple(0), 1_001)
    engine.finish()
    assert (rows(found), engine.dropped) == ([("<urn:n2>",), ("<urn:n1>",)], 0)


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
        ("FILTER (" + "!" * 3000 + "?a)", "nested too deeply"),
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


# --------------------------------------------------------------------------------- memory

KINDS = {
    "join": PAIRS,
    "joined groups": (
        "SELECT ?b ?n ?m ?d (?n / ?m AS ?r) {"
        " { SELECT ?b (SUM(?c) AS ?n) (MEDIAN(?c) AS ?d) { STREAM <urn:s> [RANGE 900ms]"
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


def test_a_stream_that_is_deleted_leaves_nothing_behind():
    """Also where elements of it wait, because it is behind the others."""
    engine = Engine(EngineSettings(lateness=10))
    engine.register(PAIRS)
    engine.push("urn:s", triple(0), 1_000)
    engine.push("urn:t", triple(1), 1)
    gone = weakref.ref(engine.stream("urn:t"))
    engine.delete_stream("urn:t")
    gc.collect()
    assert gone() is None


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


# ---------------------------------------------------------------------------- time of streams


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
