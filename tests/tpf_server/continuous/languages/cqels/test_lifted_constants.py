"""Queries that differ in one constant, recomputed, and each alone."""

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given

from tests.support.continuous_reference import Arrival, Bag, Beside
from tests.support.examples import examples
from tests.support.random_continuous_queries import (
    NODES,
    RANDOM,
    STATIC,
    QueryWriter,
    loaded,
    random_elements,
)
from tests.tpf_server.continuous.languages.cqels.test_random_queries import compare
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.semantics import CQELS, PAPER, Semantics

ONE, TWO = "STREAM <urn:s1> [W] { ?a <urn:p> ?b }", "STREAM <urn:s2> [V] { ?b <urn:v> ?c }"
GROUPS = f"{ONE} OPTIONAL {{ {TWO} }}"
VALUES = "STREAM <urn:s1> [W] { ?a <urn:v> ?v }"
RECOMPUTED = {
    "ordered": f"SELECT ?a ?b {{ {ONE} }} ORDER BY DESC(?b) ?a @SLICE",
    "ordered by what is hidden": f"SELECT ?a {{ {ONE} }} ORDER BY DESC(?b) ?a @SLICE",
    "distinct": f"SELECT DISTINCT ?b {{ {ONE} }} ORDER BY ?b @SLICE",
    "equal rows": f"SELECT ?b {{ {ONE} }} ORDER BY DESC(?b) @SLICE",
    "groups in order": f"SELECT ?b (COUNT(*) AS ?n) {{ {ONE} }} GROUP BY ?b"
    " ORDER BY DESC(?n) ?b @SLICE",
    "numbers of groups": f"SELECT (COUNT(*) AS ?n) {{ {ONE} }} GROUP BY ?b ORDER BY ?n @SLICE",
    "a join in order": f"SELECT ?a ?b ?c {{ {ONE} {TWO} }} ORDER BY ?c ?b ?a @SLICE",
    "triples in order": f"CONSTRUCT {{ ?a <urn:made> ?b }} {{ {ONE} }} ORDER BY ?b ?a @SLICE",
    "filtered, the first": f"SELECT ?b ?c {{ {ONE} {TWO} FILTER(?c >= @C) }}"
    " ORDER BY DESC(?c) ?b @SLICE",
    "hidden order of one": f"SELECT DISTINCT ?b {{ {ONE} FILTER(?a != @N) }} ORDER BY ?a ?b",
    "of one, in order": f"SELECT ?b {{ {ONE} FILTER(?a = @N) }} ORDER BY ?b @SLICE",
    "beside one, in order": f"SELECT ?a ?d {{ {ONE} @N <urn:near> ?d }} ORDER BY ?a ?d @SLICE",
    "groups of one, in order": "SELECT ?c (COUNT(*) AS ?n) {"
    " STREAM <urn:s1> [W] { @N <urn:p> ?b } STREAM <urn:s2> [V] { ?b <urn:v> ?c } }"
    " GROUP BY ?c ORDER BY DESC(?n) ?c @SLICE",
    "groups under a constant": f"SELECT ?b (SUM(?c) AS ?n) {{ {ONE} {TWO} }} GROUP BY ?b"
    " HAVING(SUM(?c) <= @C) ORDER BY ?b @SLICE",
    "having": f"SELECT ?b (COUNT(*) AS ?n) {{ {ONE} }} GROUP BY ?b HAVING(COUNT(*) > @C)",
    "having in a join": f"SELECT ?b (SUM(?c) AS ?n) {{ {ONE} {TWO} }} GROUP BY ?b"
    " HAVING(SUM(?c) <= @C)",
    "filter": f"SELECT ?b ?c {{ {ONE} {TWO} FILTER(?c >= @C) }}",
    "plain": f"SELECT ?a ?b {{ {ONE} }}",
    "distinct and filtered": f"SELECT DISTINCT ?b {{ {ONE} {TWO} FILTER(?c >= @C) }}",
    "once each": f"SELECT DISTINCT ?b {{ {ONE} }}",
    "once each, of a join": f"SELECT DISTINCT ?a ?c {{ {ONE} {TWO} FILTER(?b != <urn:n1>) }}",
    "values": f"SELECT ?b ?d {{ {ONE} BIND(STR(?b) AS ?d) }}",
    "a join": f"SELECT ?a ?c {{ {ONE} {TWO} }}",
    "static": f"SELECT ?a ?d {{ {ONE} ?b <urn:near> ?d }}",
    "grouped": f"SELECT ?b (COUNT(?c) AS ?n) {{ {GROUPS} }} GROUP BY ?b",
    "beside nothing": f"SELECT ?b ?c {{ {TWO} FILTER NOT EXISTS {{ {ONE} }} FILTER(?c > @C) }}",
    "beside something": f"SELECT ?b ?c {{ {TWO} FILTER EXISTS {{ {ONE} {TWO} }} FILTER(?c > @C) }}",
    "twice": f"SELECT ?b ?c {{ {TWO} OPTIONAL {{ {ONE} }} FILTER(?c > @C)"
    f" FILTER NOT EXISTS {{ {ONE} FILTER EXISTS {{ ?a <urn:near> ?b }} }}"
    f" MINUS {{ {{ {ONE} ?b <urn:near> ?a }} UNION {{ ?b <urn:kind> ?d }} }} }}",
    "without others": f"SELECT ?b (?c + 1 AS ?d) {{ {TWO} MINUS {{ {ONE} }} FILTER(@C < ?c) }}",
    "optional": f"SELECT ?a ?c {{ {GROUPS} FILTER(?c = @C) }} ORDER BY ?a ?c",
    "one or the other": f"SELECT ?b {{ {{ {ONE} }} UNION {{ {TWO} FILTER(?c < @C) }}"
    " FILTER(?b != @N) }",
    "groups of groups": f"SELECT ?n (COUNT(?b) AS ?m) {{ SELECT ?b (COUNT(?a) AS ?n) {{ {ONE} }}"
    " GROUP BY ?b } GROUP BY ?n HAVING(COUNT(?b) > @C)",
    "groups beside others": f"SELECT ?a ?b ?n {{ {ONE} {{ SELECT ?b (COUNT(?c) AS ?n) {{ {TWO} }}"
    " GROUP BY ?b } FILTER(?n >= @C) }",
    "the first beside others": f"SELECT ?a ?b ?c {{ {ONE} {{ SELECT ?b ?c {{ {TWO} }}"
    " ORDER BY DESC(?c) ?b LIMIT 2 } FILTER(?c >= @C) }",
    "the first of the first": f"SELECT ?b ?c {{ {{ SELECT ?b ?c {{ {TWO} FILTER(?c > 0) }}"
    f" ORDER BY ?c ?b OFFSET 1 LIMIT 3 }} {ONE} }} ORDER BY DESC(?c) ?b @SLICE",
    "the first with others": f"SELECT ?b ?c {{ {TWO} FILTER EXISTS {{ {ONE} }} }}"
    " ORDER BY DESC(?c) ?b @SLICE",
    "the first of itself": f"SELECT ?a ?b {{ {ONE} {{ SELECT ?b {{ {ONE} }} ORDER BY ?b LIMIT 2 }}"
    " FILTER(?a != @N) }",
    "groups of itself": f"SELECT ?a ?b ?n {{ {ONE} {{ SELECT ?b (COUNT(*) AS ?n) {{ {ONE} }}"
    " GROUP BY ?b } FILTER(?n > @C) }",
    "decided by others": f"SELECT ?b {{ {TWO} FILTER(IF(EXISTS {{ {ONE} }}, ?c, 1) >= @C) }}",
    "groups of a join": f"SELECT ?b (COUNT(*) AS ?n) {{ {ONE} {TWO} }} GROUP BY ?b",
    "one group": f"SELECT (COUNT(*) AS ?n) (MAX(?b) AS ?m) {{ {ONE} FILTER(?a != <urn:n2>) }}",
    "one group of a join": f"SELECT (SUM(?c) AS ?n) {{ {ONE} {TWO} }}",
    "all of them": f"SELECT (COUNT(?a) AS ?n) {{ {ONE} }} HAVING(COUNT(?a) >= @C)",
}
"""Each differs in the windows too, if it is told to."""
QUERIES = RECOMPUTED | {
    "types": f"SELECT ?a ?v {{ {VALUES} FILTER(?v > @T) }}",
    # Which of the rows that a join makes at once are the first is for nobody to say.
    "the first that came": f"SELECT ?a {{ {VALUES} BIND(STR(?v) AS ?w) }} @SLICE",
    "some that came first, beside others": f"SELECT ?a ?b ?v {{ {ONE} {{ SELECT ?a ?v"
    f" {{ {VALUES} }} LIMIT 3 }} }} ORDER BY ?b ?a ?v @SLICE",
    "some that are filtered": f"SELECT ?v {{ {VALUES} FILTER(?v >= @C) }} @SLICE",
    "between": f"SELECT ?a ?v {{ {VALUES} FILTER(?v >= @T && ?v < @D) }}",
    "a term": f"SELECT ?a ?b {{ {ONE} FILTER(?b = @N) }}",
    "in a star": "SELECT ?a ?b { STREAM <urn:s1> [W] { ?a <urn:p> ?b . ?a <urn:q> @N }"
    " FILTER(?b = <urn:n1>) }",
    "in a pattern and a condition": "SELECT ?a ?v { STREAM <urn:s1> [W] { ?a <urn:p> @N }"
    f" {VALUES} FILTER(@T < ?v) }}",
    "of a sum": f"SELECT ?a ?w {{ {ONE} STREAM <urn:s2> [W] {{ ?b <urn:v> ?v }}"
    " FILTER(?v + 1 <= @T) BIND(?v AS ?w) }",
    "groups and conditions": f"SELECT ?a (SUM(?v) AS ?n) {{ {VALUES} FILTER(?v != @D) }} GROUP BY"
    " ?a HAVING(SUM(?v) <= @T && ?a != <urn:n0>)",
    "constructed": f"CONSTRUCT {{ ?a <urn:made> ?v }} {{ {VALUES} FILTER(?v > @T) }}",
    "two conditions": f"SELECT ?a ?v {{ {VALUES} ?a <urn:near> ?b FILTER(?b = @N)"
    " FILTER(?v < @T) FILTER NOT EXISTS { ?a <urn:kind> ?k } }",
}
"""Constants of several types, and several of them."""


DIGITS, TYPES = ("2", "10", "11"), ("0", "1", "2", "2.5", "10", "1.0e0", '"1"')


def filled(random: Random, query: str, *, windows: bool) -> list[str]:
    """Queries that differ in what one of them calls a constant."""
    wide, other = random.randint(0, 9), random.randint(0, 9)
    ends = random.choice(["ms", "ms", f"ms SLIDE {random.randint(1, 4)}ms"])
    fixed = random.choice(["NOW", "ALL", "TRIPLES 3", None, None, None, None])
    found = []
    for _ in range(5):
        width = random.randint(0, 9) if windows else wide
        offset, limit = random.choice([0, 0, 1, 2]), random.choice([None, 0, 1, 1, 2, 3, 9])
        part = f"OFFSET {offset}" if offset or limit is None else ""
        part += f" LIMIT {limit}" if limit is not None else ""
        text = query.replace("@SLICE", part).replace("@C", random.choice(["0", "1", "2", "1.5"]))
        text = text.replace("@N", random.choice(NODES))
        for name, choices in (("@D", DIGITS), ("@T", TYPES)):
            text = text.replace(name, random.choice(choices)) if name in text else text
        text = text.replace("[W]", f"[RANGE {width}{ends}]" if fixed is None else f"[{fixed}]")
        found.append(text.replace("[V]", f"[RANGE {other}ms]"))
    return found


@pytest.mark.parametrize("kind", QUERIES)
def test_queries_together_emit_as_each_alone(kind: str) -> None:
    """See `test_random_queries`."""

    @examples(3)
    @given(RANDOM)
    def check(random: Random) -> None:
        compare(random, filled(random, QUERIES[kind], windows=random.random() < 0.4))

    check()


@examples(15)
@given(RANDOM)
@example(Random(1065939))
@example(Random(90001780))
@example(Random(90001621))
@example(Random(90001646))
def test_queries_emit_what_a_recomputation_says(random: Random) -> None:
    """They come and go between the elements of two streams."""
    template = random.choice([each for each in RECOMPUTED.values() if "CONSTRUCT" not in each])
    if "ORDER BY" not in template:
        template = template.replace("@SLICE", "")  # which rows are the first is for nobody to say
    if random.random() < 0.3:
        body = QueryWriter(random).group(2)
        template = f"SELECT ?a ?b ?c ?d WHERE {{ {body} }} ORDER BY ?a ?b DESC(?c) ?d @SLICE"
    texts = filled(random, template, windows=random.random() < 0.4)
    engine = loaded(semantics=PAPER)
    running: list[tuple[RegisteredQuery, Beside, list[tuple[int, Bag]]]] = []

    def register() -> None:
        rows: list[tuple[int, Bag]] = []

        def take(emission: Emission) -> None:
            rows.append((emission.at, Counter(emission.rows)))

        text = random.choice(texts)
        running.append((engine.register(text, take), Beside(text, STATIC, engine.time), rows))

    at = 0
    for _ in range(random.randint(1, 4)):
        register()
    for stream, pause, triples in random_elements(random, random.randint(3, 16)):
        if random.random() < 0.4 and len(running) < 6:
            for _ in range(random.randint(1, 3)):
                register()
        elif random.random() < 0.2 and running:
            running.pop(random.randrange(len(running)))[0].close()
        at += pause
        for _, beside, _ in running:
            beside.reference.arrive(Arrival(stream, at, triples))
        engine.push(stream, triples, at)
        for query, beside, rows in running:
            assert rows == beside.emissions(beside.seen(at)), (beside.reference.text, query.query)
            rows.clear()


LATE = {
    "having": "SELECT ?b (COUNT(*) AS ?n) { STREAM <urn:s1> [RANGE 9ms] { ?a <urn:p> ?b } }"
    " GROUP BY ?b HAVING(COUNT(*) > %d)",
    "first ones": "SELECT ?b ?a { STREAM <urn:s1> [TRIPLES 5] { ?a <urn:p> ?b } }"
    " ORDER BY ?b ?a LIMIT %d",
    "the first beside others": "SELECT ?a ?b { STREAM <urn:s1> [NOW] { ?a <urn:p> ?b }"
    " { SELECT ?b { STREAM <urn:s1> [RANGE 9ms] { ?c <urn:p> ?b } } ORDER BY ?b LIMIT 2 }"
    " FILTER(?b = <urn:n%d>) }",
    "groups beside others": "SELECT ?a ?n { STREAM <urn:s1> [NOW] { ?a <urn:p> ?b } { SELECT ?b"
    " (COUNT(*) AS ?n) { STREAM <urn:s1> [RANGE 9ms] { ?c <urn:p> ?b } } GROUP BY ?b }"
    " FILTER(?n > %d) }",
    "the same": "SELECT ?a { STREAM <urn:s1> [RANGE 9ms] { ?a <urn:p> ?b }"
    " FILTER NOT EXISTS { STREAM <urn:s1> [NOW] { ?b <urn:p> ?c } } }",
    "the same groups": "SELECT ?b (COUNT(*) AS ?n) { STREAM <urn:s1> [RANGE 9ms]"
    " { ?a <urn:p> ?b } } GROUP BY ?b",
    "the same that came first": "SELECT ?b { STREAM <urn:s1> [RANGE 9ms] { ?a <urn:p> ?b } }"
    " LIMIT 2",
    "the same first ones": "SELECT ?b ?a { STREAM <urn:s1> [RANGE 9ms] { ?a <urn:p> ?b } }"
    " ORDER BY ?b ?a LIMIT 3",
    "distinct": "SELECT DISTINCT ?b { STREAM <urn:s1> [RANGE 8ms SLIDE 2ms] { ?a <urn:p> ?b } }",
    "absence": "SELECT ?a { STREAM <urn:s1> [RANGE 9ms] { ?a <urn:p> ?b } FILTER(?b = <urn:n%d>)"
    " FILTER NOT EXISTS { STREAM <urn:s1> [NOW] { ?b <urn:p> ?c } } }",
    "union": "SELECT ?a { { STREAM <urn:s1> [RANGE 9ms] { ?a <urn:p> ?b } } UNION"
    " { STREAM <urn:s1> [RANGE 5ms] { ?b <urn:p> ?a } } FILTER(?b = <urn:n%d>) }",
}


@pytest.mark.parametrize("semantics", [PAPER, CQELS])
@pytest.mark.parametrize("kind", LATE)
@pytest.mark.parametrize("between", [False, True])
def test_queries_that_come_late_share_a_plan(
    kind: str, semantics: Semantics, between: bool
) -> None:
    """At once, or when the windows hold nothing that some must not see."""
    engine = loaded(semantics=semantics)
    at = 0

    def pushed() -> None:
        nonlocal at
        at += 1
        engine.push("urn:s1", (NODES[at % 4], "<urn:p>", NODES[at % 3]), at)

    for _ in range(20):
        pushed()
    queries = []
    for number in range(30):
        text = LATE[kind]
        queries.append(engine.register(text % number if "%d" in text else text))
        if between:
            pushed()
    assert len({each.plan for each in queries}) <= 2
    for _ in range(100):
        pushed()
    assert len({each.plan for each in queries}) == 1
    for each in queries:
        each.close()
    assert not engine.ticks.plans.plans
    assert not engine.ticks.plans._templates
    assert not len(engine.ticks.windows)


TESTED = "{ STREAM <urn:s1> [RANGE 5ms] { ?b <urn:p> ?c } }"
LATE_GROUPS = {
    f"groups {name}": f"SELECT ?b (COUNT(*) AS ?n) {{ STREAM <urn:s1> [RANGE 9ms]"
    f" {{ ?a <urn:p> ?b }} {test} }} GROUP BY ?b HAVING(COUNT(*) > %d)"
    for name, test in {
        "without others": f"FILTER NOT EXISTS {TESTED}",
        "with others": f"FILTER EXISTS {TESTED}",
        "minus others": f"MINUS {TESTED}",
        "perhaps with others": f"OPTIONAL {TESTED}",
        "of two windows": f"{TESTED} FILTER(?a != <urn:n1>)",
    }.items()
} | {
    "groups that ask others": "SELECT ?a (SUM(IF(EXISTS " + TESTED + ", 1, 0)) AS ?n)"
    " { STREAM <urn:s1> [RANGE 9ms] { ?a <urn:p> ?b } } GROUP BY ?a",
}


@pytest.mark.parametrize("semantics", [PAPER, CQELS])
@pytest.mark.parametrize("kind", LATE | LATE_GROUPS)
def test_queries_that_come_late_emit_as_each_alone(kind: str, semantics: Semantics) -> None:
    random, text = Random(7), (LATE | LATE_GROUPS)[kind]
    engine = loaded(semantics=semantics)
    elements: list[tuple[str, tuple[str, str, str], int]] = []
    found: list[tuple[Engine, list[Emission], list[Emission]]] = []
    for number in range(40):
        if number < 10:
            shared: list[Emission] = []
            alone: list[Emission] = []
            own = loaded(semantics=semantics)
            for each in elements:
                own.push(*each)
            for one, emitted in ((engine, shared), (own, alone)):
                one.register(text % (number % 3) if "%d" in text else text, emitted.append)
            found.append((own, shared, alone))
        at = elements[-1][2] + random.choice([0, 1, 1, 3]) if elements else 1
        element = ("urn:s1", (random.choice(NODES), "<urn:p>", random.choice(NODES[:3])), at)
        elements.append(element)
        for one in (engine, *(own for own, _, _ in found)):
            one.push(*element)
    for _, shared, alone in found:
        assert [(e.at, Counter(e.rows)) for e in shared] == [(e.at, Counter(e.rows)) for e in alone]
    assert any(shared for _, shared, _ in found)


DOUBLE = "http://www.w3.org/2001/XMLSchema#double"
SUMMED = " { STREAM <urn:s> [RANGE 30ms] { ?a <urn:v> ?v } } GROUP BY ?a HAVING(SUM(?v) > @C)"


def test_sums_of_plans_that_become_one_are_those_of_each_alone() -> None:
    """To the last digit, in any order of arrival."""
    random = Random(1)
    engines = [loaded(semantics=PAPER), Engine(EngineSettings(semantics=PAPER, share=False))]
    emitted: list[list[Emission]] = [[], []]
    for at in range(400):
        value = f'"{random.choice([0.1, 0.2, 0.3, 1e16, -1e16, 0.7])}"^^<{DOUBLE}>'
        for engine, told in zip(engines, emitted, strict=True):
            if at % 10 == 0 and at < 100:
                text = "SELECT (SUM(?v) AS ?n) (AVG(?v) AS ?m)" + SUMMED.replace("@C", str(at - 50))
                engine.register(text, told.append)
            engine.push("urn:s", ("<urn:a>", "<urn:v>", value), at)
    assert emitted[0] == emitted[1]
    assert len(emitted[0]) > 800
    assert [len({each.plan for each in engine.queries.values()}) for engine in engines] == [1, 10]
