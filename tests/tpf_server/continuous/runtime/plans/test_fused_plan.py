"""Batches that a plan takes as columns, against the operators: the same rows, in the same order."""

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tpf_client.dataflow.state.ranked_groups import library
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import ElementError, WindowLimitError
from tpf_server.continuous.runtime.plans.batch_report import (
    EVERY,
    OFF,
    OTHERS,
    OTHERWISE,
    REORDERED,
    UNFIT,
    WITHOUT,
)
from tpf_server.continuous.runtime.plans.fused_stream import FusedStream
from tpf_server.continuous.runtime.semantics import (
    CQELS,
    PAPER,
    PAPER_ANSWER,
    PAPER_DSTREAM,
    PAPER_RSTREAM,
    EngineLimits,
)

EXAMPLES = 3
NAMES = ["urn:x", "urn:n", "urn:k", "urn:m"]
TYPES = [pa.decimal128(30, 2), pa.int64(), pa.string(), pa.string()]
STAR = "STREAM <urn:s> [RANGE {width}ms] {{ ?s <urn:x> ?x ; <urn:n> ?n ; <urn:k> ?k }}"
FUSED = (
    "SELECT (ROUND((?x + 7.5) / 2.25) AS ?a) (COUNT(?s) AS ?c) {{ " + STAR + " }}"
    " GROUP BY ?a HAVING (?a > 1 && ?a != 6) ORDER BY DESC(?c) ?a LIMIT 3",
    "SELECT ?k ?n (COUNT(*) AS ?c) {{ " + STAR + " }} GROUP BY ?k ?n ORDER BY DESC(?n) ?c LIMIT 4",
    "SELECT (?n * ?x AS ?a) (FLOOR(?x) AS ?b) (COUNT(?x) AS ?c) {{ " + STAR + " }}"
    " GROUP BY ?a ?b ORDER BY DESC(?c) DESC(?a) LIMIT 2 OFFSET 1",
    "SELECT (COUNT(?k) AS ?c) ?k (COUNT(*) AS ?d) {{ " + STAR + " }}"
    ' GROUP BY ?k HAVING (?k != "b"@en) ORDER BY ?c LIMIT 1',
    "SELECT ?a (COUNT(*) AS ?c) {{ " + STAR + " }}"
    " GROUP BY (?x / ?n AS ?a) ORDER BY DESC(?c) ?a LIMIT 5",
)
ROWS = "STREAM <urn:s> [RANGE {more}ms] {{ "
JOINED = (
    "SELECT ?g ?c ?p (?p / ?c AS ?r) {{"
    " {{ SELECT (ROUND(?x / 3) AS ?g) (MEDIAN(?x + ?n) AS ?p) {{ " + STAR + " }} GROUP BY ?g }}"
    " {{ SELECT (ROUND(?y / 3) AS ?g) (COUNT(?m) AS ?c) {{ "
    + ROWS
    + "?t <urn:x> ?y ; <urn:m> ?m ; <urn:n> ?v }}"
    " FILTER NOT EXISTS {{ " + ROWS + "?u <urn:m> ?m ; <urn:n> ?z }} FILTER (?z > ?v) }} }}"
    " GROUP BY ?g HAVING (?g > -2 && ?c > 0) }} }} ORDER BY DESC(?r) ?g LIMIT 3",
    "SELECT ?n ?a ?d ?c {{ {{ SELECT ?n ?a (COUNT(*) AS ?c) (MEDIAN(?x) AS ?d) {{ " + STAR + " }}"
    " GROUP BY (FLOOR(?x / 5) AS ?a) ?n }} {{ SELECT ?n ?a (COUNT(*) AS ?e) {{ "
    + ROWS
    + "?t <urn:x> ?y ; <urn:n> ?n }} }} GROUP BY ?n (FLOOR(?y / 5) AS ?a) HAVING (?e < 4) }} }}"
    " ORDER BY ?d DESC(?n) LIMIT 2",
    "SELECT (COUNT(*) AS ?c) ?n {{ " + STAR + " FILTER EXISTS {{ STREAM <urn:s> [RANGE 7ms]"
    " {{ ?t <urn:m> ?k ; <urn:x> ?w }} }} }}"
    " GROUP BY ?n HAVING (2 <= ?c) ORDER BY ?c LIMIT 3 OFFSET 1",
    "SELECT ?n (COUNT(*) AS ?c) (?c / ?c + 1 AS ?e) {{ "
    + STAR
    + " FILTER NOT EXISTS {{ "
    + ROWS
    + "?t <urn:k> ?k ; <urn:x> ?z }} FILTER (?x >= ?z) }} }}"
    " GROUP BY ?n ORDER BY DESC(?c) ?n LIMIT 3",
    "SELECT ?n (MEDIAN(?x) AS ?c) {{ " + STAR + " }} GROUP BY ?n ORDER BY DESC(?c) ?n LIMIT 2",
)
CONSTANTS = (
    "SELECT ?n (MEDIAN(3) AS ?b) (COUNT(*) AS ?a) {{ " + STAR + " }}"
    " GROUP BY ?n ORDER BY DESC(?b) ?n LIMIT 3",
    "SELECT ?n ?z (MEDIAN(0.5) AS ?a) (MEDIAN(?x) AS ?b) {{ " + STAR + " }}"
    " GROUP BY ?n (1 AS ?z) ORDER BY DESC(?b) ?n LIMIT 2",
    "SELECT ?z ?n (MEDIAN(-1.5) AS ?a) (COUNT(*) AS ?c) {{ " + STAR + " }}"
    " GROUP BY (2 > 1 AS ?z) ?n ORDER BY DESC(?c) ?n LIMIT 3",
)
OTHER = "SELECT ?s ?x { STREAM <urn:s> [RANGE 3ms] { ?s <urn:x> ?x ; <urn:n> ?n } }"


@pytest.fixture
def kernel():
    if library() is None:
        pytest.skip("built without a compiler")
    return "compiled"


def record(chance, subjects):
    amount = Decimal(chance.choice((-900, 0, 25, 100, 333, 1275, chance.randrange(-500, 2000))))
    return (
        chance.randrange(subjects),
        (
            amount.scaleb(-2) if chance.random() < 0.998 else Decimal(10**25).scaleb(-2),
            chance.choice((0, 1, 2, 3) if chance.random() < 0.998 else (2**62, 10**10, -(10**12))),
            chance.choice(('"a"', '"b"@en', "<urn:c>")),
            chance.choice(('"m"', "<urn:m>", '"a"')),
        ),
    )


def some_steps(chance):
    """What happens: batches, and now and then something else."""
    at = 0
    steps: list[Any] = []
    gaps = chance.choice(((0, 0, 1), (0, 1, 4), (0, 9)))
    subjects = chance.choice((10**6, 10**6, 60))
    for _ in range(chance.randint(2, 7)):
        rows = []
        # Windows that are empty are for the state again.
        at += chance.choice((0, 0, 300))
        for _ in range(chance.choice((1, 5, 40, 120))):
            at = max(0, at + chance.choice(gaps) - (chance.random() < 0.002) * 5)
            rows.append((*record(chance, subjects), at))
        steps.append(("batch", rows))
        if chance.random() < 0.4:
            at += 1
            kind = chance.choice(
                ("push", "triples", "advance", "register", "explain", "sweep", "other", "finish")
            )
            steps.append((kind, (*record(chance, subjects), at)))
    return steps


def play(texts, semantics, steps, kernel, monkeypatch):
    """All emissions, and what the engine says of itself."""
    engine = Engine(EngineSettings(semantics=semantics, kernel=kernel))
    seen: list[Any] = []
    taken: list[int] = []
    run = FusedStream.run
    monkeypatch.setattr(
        FusedStream, "run", lambda self, *given: (taken.append(run(self, *given)), taken[-1])[1]
    )

    def taker(name):
        return lambda each: seen.append((name, *each))

    for name, text in enumerate(texts):
        engine.register(text, taker(name))
    feed = engine.record_feed("urn:s", NAMES, "urn:r/")
    for kind, what in steps:
        if kind == "batch":
            values = zip(*[values for _, values, _ in what], strict=True)
            arrays = [pa.array(list(v), t) for v, t in zip(values, TYPES, strict=True)]
            feed.push_batch(
                pa.array([subject for subject, _, _ in what]),
                pa.RecordBatch.from_arrays(arrays, names=NAMES),
                pa.array([at for _, _, at in what]),
            )
            continue
        subject, values, at = what
        match kind:
            case "push":
                feed.push(subject, values, at)
            case "triples":
                engine.push("urn:s", [(f"<urn:r/{subject}>", "<urn:n>", '"y"')], at)
            case "advance":
                engine.advance(at)
            case "register":
                more = engine.register(OTHER, lambda each: seen.append(("more", *each)))
                if subject % 2:
                    more.close()
            case "other":
                engine.push("urn:other", ("<urn:a>", "<urn:b>", "<urn:c>"), at)
            case "explain":
                joins = engine.queries["1"].explain()["joins"]
                seen.append([join["inputs"][0]["rows"] for join in joins])
            case "sweep":
                engine.sweep()
            case "finish":
                engine.finish()
    monkeypatch.setattr(FusedStream, "run", run)
    said = engine.arrivals, engine.dropped, engine.time, engine.stream("urn:s").triples
    return seen, said, sum(taken)


def some_texts(chance, several):
    """One query, or some beside each other."""
    texts = []
    for _ in range(chance.randint(2, 3) if several else 1):
        text = chance.choice(chance.choice((FUSED, JOINED, CONSTANTS)))
        widths = {name: chance.choice((0, 5, 40, 200)) for name in ("width", "more")}
        texts.append(text.format(**widths))
    return texts


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("semantics", [PAPER, CQELS, PAPER_DSTREAM, PAPER_ANSWER])
def test_batches_give_what_the_operators_give(kernel, semantics, several, monkeypatch):
    taken = 0
    for seed in range(EXAMPLES):
        chance = random.Random(seed)
        texts = some_texts(chance, several)
        steps = some_steps(chance)
        *found, fused = play(texts, semantics, steps, kernel, monkeypatch)
        *wanted, never = play(texts, semantics, steps, "off", monkeypatch)
        assert found == wanted, seed
        assert not never
        taken += fused
    # It is about something.
    assert taken > 100


def batch(numbers, key='"a"'):
    values = [
        pa.array([Decimal(n) for n in numbers], TYPES[0]),
        pa.array(numbers),
        pa.array([key] * len(numbers)),
        pa.array(['"m"'] * len(numbers)),
    ]
    return pa.RecordBatch.from_arrays(values, names=NAMES)


def engine_of(text, limits=EngineLimits(), **more):  # noqa: B008 (it is frozen)
    engine = Engine(EngineSettings(semantics=PAPER, **more), limits)
    query = engine.register(text.format(width=100, more=50))
    return engine, query, engine.record_feed("urn:s", NAMES, "urn:r/")


def batches(query):
    """How a query takes batches of records."""
    found = query.explain()["batches"]
    return found["kernel"], found["operators"], found.get("reason", "")


TEXTS = (*JOINED, *CONSTANTS)


def test_an_explanation_says_which_operators_are_one(kernel):
    for text in FUSED:
        _, query, _ = engine_of(text, kernel=kernel)
        assert batches(query)[:2] == (kernel, ["window", "groups", "order"])
        for more, reason in (
            ({"kernel": "off"}, OFF),
            ({"kernel": kernel, "lateness": 5}, REORDERED),
            ({"kernel": "off", "lateness": 5}, OFF),
        ):
            assert batches(engine_of(text, **more)[1]) == ("off", [], reason)
    assert [batches(engine_of(text, kernel=kernel)[1])[1] for text in TEXTS] == [
        ["window", "groups", "exists", "median", "join", "order"],
        ["window", "groups", "median", "join", "order"],
        *[["window", "groups", "exists", "order"]] * 2,
        ["window", "groups", "median", "order"],
        *[["window", "groups", "median", "order"]] * 3,
    ]


@pytest.mark.parametrize(
    "text",
    [
        *[
            f"SELECT ?k ({each} AS ?c) {{{{ " + STAR + " }} GROUP BY ?k ORDER BY DESC(?c) LIMIT 3"
            for each in ("MEDIAN(DISTINCT ?n)", "SUM(?n)", "MEDIAN(RAND())", "COUNT(?n + 1)")
        ],
        "SELECT ?k (SUM(?n) AS ?c) {{ " + STAR + " }} GROUP BY ?k HAVING (?c > 3)"
        " ORDER BY DESC(?c) LIMIT 3",
        "SELECT (MEDIAN(?n) AS ?a) ?k {{ " + STAR + " }} GROUP BY ?k ORDER BY DESC(?a) LIMIT 3",
        "SELECT ?k (COUNT(*) AS ?c) {{ " + STAR + " }} GROUP BY ?k",
        "SELECT ?c (COUNT(*) AS ?d) {{ " + STAR + " BIND(?n AS ?c) }}"
        " GROUP BY ?c ORDER BY DESC(?d + 1) LIMIT 3",
        "SELECT (COUNT(*) AS ?c) {{ " + STAR + " }} GROUP BY ?k ORDER BY DESC(?c) LIMIT 3",
        "SELECT ?k (COUNT(*) AS ?c) {{ " + STAR + " FILTER (?n > 2) }}"
        " GROUP BY ?k ORDER BY DESC(?c) LIMIT 3",
        "SELECT ?k (COUNT(*) AS ?c) {{ STREAM <urn:s> [TRIPLES 9] {{ ?s <urn:k> ?k }} }}"
        " GROUP BY ?k ORDER BY DESC(?c) LIMIT 3",
        "SELECT ?k (COUNT(*) AS ?c) {{ " + STAR + " FILTER EXISTS {{ STREAM <urn:s> [RANGE 50ms]"
        " {{ ?t <urn:k> ?k ; <urn:n> ?z }} FILTER (?nowhere > ?x) }} }}"
        " GROUP BY ?k ORDER BY DESC(?c) LIMIT 3",
        *[
            "SELECT ?k (COUNT(*) AS ?c) {{ " + STAR + " }}"
            f" GROUP BY ?k ORDER BY DESC(?c) LIMIT {limit}"
            for limit in (10**10, 10**16)
        ],
        "SELECT ?k (COUNT(*) AS ?c) {{ STREAM <urn:s> [RANGE 100000000000000000h]"
        " {{ ?s <urn:k> ?k ; <urn:n> ?n }} }} GROUP BY ?k ORDER BY DESC(?c) LIMIT 3",
    ],
)
def test_other_queries_are_for_the_operators(kernel, text):
    _, query, feed = engine_of(text, kernel=kernel)
    assert batches(query) == ("off", [], OTHERWISE)
    feed.push_batch(pa.array([1, 2]), batch([1, 2]), pa.array([1, 2]))


def test_what_emits_all_of_its_result_is_for_the_operators(kernel):
    engine = Engine(EngineSettings(kernel=kernel))
    query = engine.register(FUSED[1].format(width=9), semantics=PAPER_RSTREAM)
    assert batches(query) == ("off", [], EVERY)
    engine.record_feed("urn:s", NAMES, "urn:r/").push_batch(
        pa.array([1, 2]), batch([1, 2]), pa.array([1, 2])
    )
    assert len(list(query)) == 2


def test_beside_a_query_that_takes_records_one_by_one_all_are(kernel):
    engine, query, _ = engine_of(FUSED[1], kernel=kernel)
    other = engine.register(OTHER)
    assert batches(query) == ("off", [], OTHERS)
    other.close()
    assert batches(query)[0] == kernel


def test_without_a_compiler_the_operators_are_used_and_that_is_said(monkeypatch):
    monkeypatch.setattr("tpf_server.continuous.runtime.plans.fusion.library", lambda: None)
    _, query, _ = engine_of(FUSED[1], kernel="compiled")
    assert batches(query) == ("off", [], WITHOUT)


@pytest.mark.parametrize("semantics", [PAPER, PAPER_ANSWER])
def test_a_callback_may_use_the_engine_in_the_middle_of_a_batch(kernel, semantics):
    for wanted in ("off", kernel):
        engine = Engine(EngineSettings(semantics=semantics, kernel=wanted))
        seen = []

        def take(each, engine=engine, seen=seen):
            seen.append(each)
            if len(seen) == 2:
                engine.register(OTHER, lambda more: seen.append(("more", *more)), name="more")
            if len(seen) == 9:
                engine.push("urn:s", [("<urn:r/7>", f"<{p}>", '"8"') for p in NAMES], 7)
            if len(seen) == 12:
                engine.query("more").close()

        engine.register(FUSED[1].format(width=4), take)
        feed = engine.record_feed("urn:s", NAMES, "urn:r/")
        for first in (0, 20):
            some = list(range(first, first + 20))
            feed.push_batch(pa.array(some), batch(some), pa.array(some))
        if wanted == "off":
            expected = seen
    assert seen == expected
    assert len(seen) > 30


def test_a_window_may_hold_no_more_than_allowed(kernel):
    found = []
    for wanted in ("off", kernel):
        limits = EngineLimits(window_rows=80)
        _, query, feed = engine_of(FUSED[1], kernel=wanted, limits=limits)
        for first in range(0, 200, 40):
            some = list(range(first, first + 40))
            feed.push_batch(pa.array(some), batch(some), pa.array([1] * 40))
        found.append((query.state, type(query.error), list(query.waiting)))
    assert found[0][1] is found[1][1] is WindowLimitError
    assert found[0][0] == found[1][0] != "running"
    length = min(len(found[0][2]), len(found[1][2]))
    assert found[0][2][:length] == found[1][2][:length]
    assert length > 50


def test_what_is_refused_is_refused_whole_where_nobody_takes_it(kernel):
    engine, query, feed = engine_of(FUSED[1], kernel=kernel)
    good = batch([1, 2])
    bad = good.set_column(3, "urn:m", pa.array(['"m"', "bare"]))
    missing = good.set_column(3, "urn:m", pa.array(['"m"', None]))
    for wrong, message in ((bad, "record 2: urn:m: not a term: 'bare'"), (missing, "record 2: no")):
        with pytest.raises(ElementError, match=message):
            feed.push_batch(pa.array([1, 2]), wrong, pa.array([1, 2]))
    assert engine.arrivals == 0
    feed.push_batch(pa.array([1, 2]), good, pa.array([1, 2]))
    assert [len(each.rows) for each in query] == [1, 1]


@pytest.mark.parametrize(
    "kinds",
    [
        ("integer", "decimal"),
        # The same value in two ways, also of one type.
        ("decimal", "decimal"),
        ("integer",),
    ],
)
def test_answers_in_which_keys_have_equal_values_are_ordered_as_the_operators_do(kernel, kinds):
    text = "SELECT ?k (COUNT(*) AS ?c) {{ " + STAR + " }} GROUP BY ?k ORDER BY DESC(?c) ?k LIMIT 4"
    for seed in range(12):
        found = []
        for wanted in ("off", kernel):
            chance = random.Random(seed)
            engine = Engine(EngineSettings(semantics=PAPER_ANSWER, kernel=wanted))
            query = engine.register(text.format(width=9))
            feed = engine.record_feed("urn:s", NAMES, "urn:r/")
            for at in range(0, 60, 6):
                # At first there is nothing of the kind.
                more = ".0" if at > chance.choice((0, 12, 30)) else ""
                keys = [
                    f'"{chance.randrange(3)}{more * (kind == "decimal" and chance.randrange(2))}"'
                    f"^^<http://www.w3.org/2001/XMLSchema#{kind}>"
                    for kind in chance.choices(kinds if more else kinds[:1], k=6)
                ]
                some = pa.array(range(at, at + 6))
                values = batch([1] * 6).set_column(2, "urn:k", pa.array(keys))
                feed.push_batch(some, values, some)
                if not chance.randrange(4):
                    engine.advance(at + 5)
            found.append(list(query))
        assert found[0] == found[1], seed


def test_what_is_no_number_is_for_the_operators_and_nothing_is_lost(kernel):
    whole = pa.array([1, 7, -7])
    text = "SELECT ?k (MEDIAN(?n) AS ?a) (COUNT(*) AS ?c) {{ " + STAR + " }} GROUP BY ?k"
    for odd in (
        pa.array(['"0.1"^^<http://www.w3.org/2001/XMLSchema#double>'] * 3),
        pa.array(['"x"', '"2"^^<http://www.w3.org/2001/XMLSchema#integer>', '"3"']),
    ):
        found = []
        for wanted in ("off", kernel):
            engine, query, feed = engine_of(f"{text} ORDER BY DESC(?a) LIMIT 3", kernel=wanted)
            said = []
            for at, values in enumerate((whole, odd, whole, whole, whole)):
                some = batch([1, 2, 3]).set_column(1, "urn:n", values)
                subjects = pa.array([at, at + 10, at + 20])
                feed.push_batch(subjects, some, pa.array([60 * at] * 3))
                engine.advance(60 * at + 90 * (at == 2))
                taken = any(each.elsewhere for each in engine.stream("urn:s").inputs)
                said.append((taken, batches(query)[2] == UNFIT))
            found.append(list(query))
        assert found[0] == found[1]
        # Until the window is empty again.
        assert said == [(True, False), *[(False, True)] * 2, (False, True), (True, False)]


@pytest.mark.parametrize("tie", ["?k", "?n", ""])
def test_an_explanation_says_who_took_the_last_batch(kernel, tie):
    """Of groups that are ordered by terms it was never the kernel."""
    ranked = "SELECT ?k ?n (COUNT(*) AS ?c) {{ " + STAR + " }} GROUP BY ?k ?n ORDER BY DESC(?c) "
    engine, query, feed = engine_of(f"{ranked}{tie} LIMIT 3", kernel=kernel)
    for first in range(1, 60, 3):
        feed.push_batch(
            pa.array([first, first + 1, first + 2]), batch([1, 2, 3]), pa.array([1] * 3)
        )
        taken = any(each.elsewhere for each in engine.stream("urn:s").inputs)
        assert taken == (tie != "?k")
        assert batches(query)[::2] == ((kernel, "") if taken else ("off", UNFIT))


@pytest.mark.parametrize("key", ["?k", '(CONCAT(STR(?k), "x") AS ?k)', "(STR(?n) AS ?k)"])
def test_to_forget_terms_gives_nothing_back_that_nothing_else_holds(kernel, key):
    text = "SELECT ?k (COUNT(*) AS ?c) {{ " + STAR + " }}" + f" GROUP BY {key}"
    found, active = [], []
    for wanted in ("off", kernel):
        engine, query, feed = engine_of(f"{text} ORDER BY DESC(?c) LIMIT 3", kernel=wanted)
        for at in range(0, 400, 20):
            some = np.arange(at, at + 20)
            feed.push_batch(
                pa.array(some), batch([int(n) % 7 for n in some], f'"{at}"'), pa.array(some)
            )
            engine.sweep()
            active.append(any(each.elsewhere for each in engine.stream("urn:s").inputs))
        found.append(([each.rows for each in query], len(engine.dictionary)))
    assert found[0][0] == found[1][0]
    # Of a batch of which some rows are in the window all are held, and the last ones.
    assert found[0][1] <= found[1][1] <= found[0][1] + 3
    assert not any(active[:20])
    # Terms that are computed for keys are held by the state alone.
    assert any(active[20:]) == (key == "?k")


@pytest.mark.parametrize("outside", [False, True])
def test_terms_that_are_computed_of_groups_are_not_taken_for_forgotten_ones(kernel, outside):
    made = '(CONCAT("n", STR(?c)) AS ?t)'
    groups = " {{ " + STAR + " }} GROUP BY ?k"
    text = f"SELECT ?k (COUNT(*) AS ?c) {made}{groups}"
    if outside:
        text = f"SELECT ?k ?c {made} {{{{ {{{{ SELECT ?k (COUNT(*) AS ?c){groups} }}}} }}}}"
    found = []
    for wanted in ("off", kernel):
        engine, query, feed = engine_of(f"{text} ORDER BY DESC(?c) LIMIT 2", kernel=wanted)
        for at in (0, 5000, 10000):
            some = np.arange(at, at + 50)
            feed.push_batch(pa.array(some), batch([1] * 50), pa.array(some))
            engine.sweep()
            feed.push_batch(pa.array(some + 1500), batch([1] * 50), pa.array(some + 1500))
        found.append([each.rows for each in query])
    assert found[0] == found[1]
    assert len(found[0]) > 50


def test_an_interrupted_batch_leaves_nothing_that_has_not_arrived(kernel):
    found = []
    for wanted in ("off", kernel):
        engine = Engine(EngineSettings(semantics=PAPER, kernel=wanted))
        seen: list[Any] = []

        def interrupt(each, seen=seen):
            seen.append(each)
            if len(seen) == 12:
                raise KeyboardInterrupt

        star = STAR.format(width=500)
        few = f"SELECT ?n (COUNT(*) AS ?c) {{ {star} }} GROUP BY ?n"
        more = engine.register(f"{few} HAVING (?c > 25) ORDER BY DESC(?c) ?n LIMIT 1")
        engine.register(f"{few} ORDER BY DESC(?c) ?n LIMIT 3", interrupt)
        feed = engine.record_feed("urn:s", NAMES, "urn:r/")
        some = np.arange(20)
        with pytest.raises(KeyboardInterrupt):
            feed.push_batch(pa.array(some), batch([1] * 20), pa.array(some))
        feed.push_batch(pa.array(some + 100), batch([1] * 20), pa.array(some + 100))
        found.append((engine.arrivals, seen, [each.rows for each in more]))
    assert found[0] == found[1]
    assert found[0][2]


def test_numbers_after_a_batch_of_texts_are_for_the_plan_again(kernel):
    text = (
        "SELECT ?k (COUNT(*) AS ?c) {{ " + STAR + " FILTER EXISTS {{ STREAM <urn:s> [RANGE 50ms]"
        " {{ ?t <urn:k> ?k ; <urn:n> ?z }} FILTER (?z > ?n) }} }}"
        " GROUP BY ?k ORDER BY DESC(?c) LIMIT 2"
    )
    engine, _, feed = engine_of(text, kernel=kernel)
    texts = batch([1, 2, 3]).set_column(1, "urn:n", pa.array(['"x"'] * 3))
    feed.push_batch(pa.array([1, 2, 3]), texts, pa.array([1, 2, 3]))
    fused = 0
    for at in range(1000, 9000, 1000):
        some = np.arange(at, at + 40)
        feed.push_batch(pa.array(some), batch([int(n) % 7 for n in some]), pa.array(some))
        fused += any(each.elsewhere for each in engine.stream("urn:s").inputs)
    assert fused
