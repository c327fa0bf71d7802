"""The engine against a recomputation at every arrival of random streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.continuous_reference import (
    Arrival,
    Beside,
    Reference,
    compare_emissions,
    emitted,
)
from tests.support.examples import examples
from tests.support.random_continuous_queries import NODES, NUMBERS, STATIC, loaded
from tpf_server.continuous.runtime.semantics import CQELS, SEMANTICS

ONE, TWO = "STREAM <urn:s1> [W1] { ?a <urn:p> ?b }", "STREAM <urn:s2> [W2] { ?b <urn:p> ?c }"
VALUE, OTHER = "STREAM <urn:s1> [W1] { ?a <urn:v> ?b }", "STREAM <urn:s2> [W2] { ?a <urn:v> ?c }"
# Flat: solutions come from joins alone, so that single derivations can be told.
FLAT = {
    "one pattern": f"SELECT ?a ?b WHERE {{ {ONE} }}",
    "two streams": f"SELECT ?a ?b ?c WHERE {{ {ONE} {TWO} }}",
    "the same stream twice": (
        f"SELECT ?a ?b ?c WHERE {{ {ONE} STREAM <urn:s1> [W2] {{ ?c <urn:p> ?b }} }}"
    ),
    "the same window twice": (
        f"SELECT ?a ?c WHERE {{ {ONE} STREAM <urn:s1> [W1] {{ ?c <urn:p> ?b }} FILTER (?a != ?c) }}"
    ),
    "a star": "SELECT ?a ?b ?c WHERE { STREAM <urn:s1> [W1] { ?a <urn:p> ?b . ?a <urn:q> ?c } }",
    "a star with constants": (
        "SELECT ?a WHERE { STREAM <urn:s1> [W1] { ?a <urn:p> <urn:n1> . ?a <urn:q> ?a } }"
    ),
    "a chain": "SELECT ?a ?c WHERE { STREAM <urn:s1> [W1] { ?a <urn:p> ?b . ?b <urn:p> ?c } }",
    "any predicate": "SELECT ?a ?x WHERE { STREAM <urn:s1> [W1] { ?a ?x <urn:n1> } }",
    "a loop": "SELECT ?a WHERE { STREAM <urn:s1> [W1] { ?a <urn:p> ?a } }",
    "a cross product": (
        "SELECT ?a ?c WHERE { STREAM <urn:s1> [W1] { ?a <urn:p> <urn:n1> }"
        " STREAM <urn:s2> [W2] { ?c <urn:q> ?d } }"
    ),
    "static data": f"SELECT ?a ?c WHERE {{ {ONE} ?b <urn:near> ?c }}",
    "a triangle": f"SELECT ?a ?b ?c WHERE {{ {ONE} {TWO} ?c <urn:near> ?a }}",
    "a named graph": f"SELECT ?a ?c WHERE {{ {ONE} GRAPH <urn:g1> {{ ?b <urn:in> ?c }} }}",
    "numbers": (
        f"SELECT ?a ?b ?d WHERE {{ {VALUE} {OTHER} FILTER (?b <= ?c) BIND (?b + ?c AS ?d) }}"
    ),
}
# Nested: what random queries have not, which are compared with the same reference.
NESTED = {
    "any graph": (
        f"SELECT ?a ?g WHERE {{ {ONE} GRAPH ?g {{ ?b <urn:in> ?c }}"
        " FILTER (?g = <urn:g1> || ?g = <urn:g2>) }"
    ),
    "one group": (
        "SELECT (COUNT(*) AS ?n) (SUM(?b) AS ?s) (MIN(?b) AS ?l) (MAX(?b) AS ?m)"
        f" WHERE {{ {VALUE} }}"
    ),
    "average by kind": (
        f"SELECT ?k (AVG(?b) AS ?n) WHERE {{ {VALUE} ?a <urn:kind> ?k }} GROUP BY ?k"
    ),
    "a path": f"SELECT ?a ?c WHERE {{ {ONE} ?b <urn:near>/<urn:kind> ?c }}",
    "a path of any length": f"SELECT ?a ?c WHERE {{ {ONE} ?b <urn:near>* ?c }}",
    "a path over a stream": "SELECT ?a ?b WHERE { STREAM <urn:s1> [W1] { ?a <urn:p>+ ?b } }",
    "a path of none or more over a stream": (
        "SELECT ?a ?b WHERE { STREAM <urn:s1> [W1] { ?a <urn:q> <urn:n1> }"
        " STREAM <urn:s2> [W2] { ?a <urn:p>* ?b } }"
    ),
    "a way there and back": (
        "SELECT ?a ?b WHERE { STREAM <urn:s1> [W1] { ?a (<urn:p>/^<urn:q>)+ ?b } }"
    ),
    "two groupings": (
        "SELECT ?b ?n ?m (?n / ?m AS ?r) WHERE {"
        f" {{ SELECT ?b (COUNT(?a) AS ?n) WHERE {{ {ONE} }} GROUP BY ?b }}"
        " { SELECT ?b (COUNT(?c) AS ?m) WHERE { STREAM <urn:s2> [W2] { ?c <urn:p> ?b } }"
        " GROUP BY ?b HAVING (COUNT(?c) < 3) } } ORDER BY DESC(?r) ?b LIMIT 2"
    ),
    "two groupings, some without a key": (
        "SELECT ?k ?n ?m WHERE {"
        " { SELECT ?k (COUNT(?a) AS ?n) WHERE { STREAM <urn:s1> [W1] { ?a ?x ?b } }"
        " GROUP BY (?b + 0 AS ?k) }"
        " { SELECT ?k (COUNT(?c) AS ?m) WHERE { STREAM <urn:s1> [W2] { ?c ?y ?d } }"
        " GROUP BY (?d + 0 AS ?k) } }"
    ),
    "not exists beside an optional": (
        f"SELECT ?a ?b ?c WHERE {{ {ONE} OPTIONAL {{ STREAM <urn:s1> [W1] {{ ?b <urn:v> ?c }} }}"
        f" FILTER NOT EXISTS {{ {OTHER} FILTER (?b != <urn:n1>) }} }}"
    ),
    "ask": "ASK { STREAM <urn:s1> [W1] { ?a <urn:p> <urn:n1> } }",
}

windows = st.one_of(
    st.just("NOW"),
    st.just("ALL"),
    st.integers(0, 6).map(lambda width: f"RANGE {width}ms"),
    st.tuples(st.integers(0, 6), st.integers(1, 4)).map(lambda w: f"RANGE {w[0]}ms SLIDE {w[1]}ms"),
    st.integers(1, 4).map(lambda count: f"TRIPLES {count}"),
)
triples = st.one_of(
    st.tuples(
        st.sampled_from(NODES), st.sampled_from(["<urn:p>", "<urn:q>"]), st.sampled_from(NODES)
    ),
    st.tuples(st.sampled_from(NODES), st.just("<urn:v>"), st.sampled_from(NUMBERS)),
)
elements = st.tuples(
    st.sampled_from(["urn:s1", "urn:s1", "urn:s2"]),
    st.integers(0, 3),
    st.lists(triples, min_size=1, max_size=3, unique=True).map(tuple),
)
streams = st.lists(elements, min_size=1, max_size=12)


@examples(120)
@given(st.sampled_from([*FLAT, *NESTED]), windows, windows, streams)
def test_differences(name, first, second, stream):
    text = (FLAT | NESTED)[name].replace("W1", first).replace("W2", second)
    compare_emissions(loaded(), text, Beside(text, STATIC), stream)


@pytest.mark.parametrize("policy", [*SEMANTICS.values()], ids=[*SEMANTICS])
@examples(15)
@given(
    name=st.sampled_from([*FLAT, *NESTED]),
    first=windows,
    second=windows,
    stream=streams,
    ticks=st.lists(st.integers(0, 9), min_size=12, max_size=12),
)
def test_what_is_replayed_is_emitted_as_it_was_live(policy, name, first, second, stream, ticks):
    """A clock between elements makes no difference."""
    text = (FLAT | NESTED)[name].replace("W1", first).replace("W2", second)
    live, replayed = loaded(semantics=policy), loaded(semantics=policy)
    queries = [live.register(text), replayed.register(text)]
    at = 0
    for tick, (where, pause, content) in zip(ticks, stream, strict=False):
        pause *= 3
        # Time begins with the first element, or with the clock.
        for instant in range(at + tick // 3, at + pause, tick % 3 + 1) if live.arrivals else ():
            live.advance(instant)
        at += pause
        for engine in (live, replayed):
            engine.push(where, content, at)
    one, other = (emitted(query) for query in queries)
    assert one == other


@examples(60)
@given(st.sampled_from([*FLAT]), windows, windows, streams)
def test_derivations(name, first, second, stream):
    text = FLAT[name].replace("W1", first).replace("W2", second)
    query = (engine := loaded(semantics=CQELS)).register(text)
    reference = Reference(text, STATIC)
    before: set[tuple[int, int]] = set()
    at = 0
    for where, pause, content in stream:
        expected = []
        boundaries = sorted(reference.boundaries(at, at + pause))
        at += pause
        for each in (*boundaries, at):
            if each == at:
                reference.arrive(Arrival(where, at, content))
            now = {
                (clause, place)
                for clause in range(len(reference.clauses))
                for place in reference.visible(clause, each)
            }
            # With a slide an element is seen later than it arrives; new is what was not before.
            expected.append((each, reference.derivations(each, now - before)))
            before = now
        engine.push(where, content, at)
        assert emitted(query) == [each for each in expected if each[1]]
