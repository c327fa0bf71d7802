"""The table of policies in ``docs/continuous-queries.md``, row by row, in both languages."""

from pathlib import Path

import pytest

from tests.support.any_language import register
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import (
    JoinLimitError,
    UnknownStreamError,
    WindowLimitError,
)
from tpf_server.continuous.runtime.semantics import SEMANTICS, EngineLimits

DOCUMENT = Path(__file__).parents[3] / "docs" / "continuous-queries.md"
BODY = "{ ?a <urn:p> ?b }"


def short(term):
    return None if term is None else term.split("^^")[0].strip('<>"').removeprefix("urn:")


def played(window, arrivals, *, semantics="cqels", select="?a", body=BODY):
    """Return (time, values) of each emission of a CQELS-QL query over one window.

    Arrivals are times with the subjects of one element: ``(1, "xy")`` has two triples.
    """
    engine = Engine(EngineSettings(semantics=SEMANTICS[semantics]))
    query = register(engine, f"SELECT {select} {{ STREAM <urn:s> [{window}] {body} }}")
    for at, names in arrivals:
        engine.push("urn:s", [(f"<urn:{name}>", "<urn:p>", "<urn:o>") for name in names], at)
    return [
        (emission.at, "".join(sorted(short(row[0]) for row in emission.rows))) for emission in query
    ]


def answered(window, arrivals, *, every=""):
    """Return the answers of a C-SPARQL query over one window."""
    engine = Engine()
    text = f"REGISTER QUERY q {every} AS SELECT ?a FROM STREAM <urn:s> [RANGE {window}] {BODY}"
    query = register(engine, text)
    for at, names in arrivals:
        engine.push("urn:s", [(f"<urn:{name}>", "<urn:p>", "<urn:o>") for name in names], at)
    engine.finish()
    return [(answer.at, "".join(sorted(short(row[0]) for row in answer.rows))) for answer in query]


# --------------------------------------------------------------------------------- windows


def test_range_is_closed_in_cqels_and_half_open_in_c_sparql():
    arrivals = [(0, "a"), (10, "b"), (11, "c")]
    assert played("RANGE 10ms", arrivals, semantics="paper-rstream") == [
        (0, "a"), (10, "ab"), (11, "bc"),
    ]  # fmt: skip
    assert answered("10ms STEP 5ms", arrivals)[:4] == [(0, "a"), (5, "a"), (10, "b"), (15, "bc")]


def test_slide_shows_the_range_at_the_last_multiple():
    arrivals = [(3, "a"), (9, "b"), (10, "c"), (12, "d"), (20, "e")]
    assert played("RANGE 5ms SLIDE 10ms", arrivals, semantics="paper-rstream") == [
        (3, ""), (9, ""), (10, "bc"), (12, "bc"), (20, "e"),
    ]  # fmt: skip


def test_triples_counts_triples_and_not_elements():
    arrivals = [(1, "ab"), (1, "cde"), (2, "f")]
    assert played("TRIPLES 2", arrivals, semantics="paper-rstream") == [
        (1, "ab"), (1, "de"), (2, "ef"),
    ]  # fmt: skip
    assert answered("TRIPLES 2", arrivals) == [
        (1, "a"), (1, "ab"), (1, "bc"), (1, "cd"), (1, "de"), (2, "ef"),
    ]  # fmt: skip
    assert answered("TRIPLES 2 TUMBLING", arrivals) == [(1, "ab"), (1, "cd"), (2, "ef")]


def test_windows_are_bags_in_cqels_and_graphs_in_c_sparql():
    arrivals = [(1, "a"), (1, "a")]
    assert played("RANGE 9ms", arrivals, semantics="paper-rstream")[-1] == (1, "aa")
    assert answered("9ms TUMBLING", arrivals) == [(9, "a")]


# ---------------------------------------------------------------------------------- output

TWICE = [(0, "a"), (11, "a"), (12, "b"), (30, "c")]


@pytest.mark.parametrize(
    ("semantics", "expected"),
    [
        ("cqels", [(0, "a"), (11, "a"), (12, "b"), (30, "c")]),
        ("paper", [(0, "a"), (12, "b"), (30, "c")]),
        ("paper-dstream", [(22, "a"), (23, "b")]),
        ("paper-rstream", [(0, "a"), (11, "a"), (12, "ab"), (22, "b"), (23, ""), (30, "c")]),
        ("paper-answer", [(0, "a"), (12, "ab"), (22, "b"), (23, ""), (30, "c")]),
    ],
)
def test_what_is_emitted(semantics, expected):
    assert played("RANGE 10ms", TWICE, semantics=semantics) == expected


def test_c_sparql_gives_the_whole_answer_at_each_instant_also_an_empty_one():
    assert answered("10ms TUMBLING", [(1, "a"), (2, "b"), (25, "c")]) == [
        (10, "ab"), (20, ""), (30, "c"),
    ]  # fmt: skip


def test_computed_every_replaces_the_steps_and_does_not_move_windows():
    assert answered("10ms STEP 10ms", [(1, "a"), (11, "b")], every="COMPUTED EVERY 4ms") == [
        (4, ""), (8, ""), (12, "a"),
    ]  # fmt: skip


def test_groups_are_emitted_by_row_or_by_change():
    counted = {"select": "(COUNT(?a) AS ?n)"}
    arrivals = [(1, "ab"), (2, "c"), (20, "d")]
    # For each new solution in the group.
    assert played("RANGE 9ms", arrivals, **counted) == [(1, "22"), (2, "3"), (20, "1")]
    assert played("RANGE 9ms", arrivals, semantics="paper", **counted) == [
        (1, "2"), (2, "3"), (11, "1"), (12, "0"), (20, "1"),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------ time


def test_elements_with_one_timestamp_are_ticks_in_the_order_of_arrival_or_one_content():
    arrivals = [(1, "a"), (1, "b")]
    assert played("RANGE 9ms", arrivals) == [(1, "a"), (1, "b")]
    assert answered("1ms TUMBLING", arrivals) == [(1, "ab")]


def test_an_element_that_is_late_is_dropped_or_seen_by_later_instants():
    arrivals = [(5, "a"), (4, "b"), (6, "c")]
    engine = Engine()
    query = register(engine, f"SELECT ?a {{ STREAM <urn:s> [ALL] {BODY} }}")
    periodic = Engine()
    registered = periodic.register_csparql(
        f"SELECT ?a FROM STREAM <urn:s> [RANGE 4ms STEP 1ms] {BODY}", name="q"
    )
    for at, name in [*arrivals, (8, "d"), (6, "e")]:
        for each in (engine, periodic):
            each.push("urn:s", (f"<urn:{name}>", "<urn:p>", "<urn:o>"), at)
    periodic.finish()
    assert [short(row[0]) for each in query for row in each.rows] == ["a", "c", "d"]
    assert (engine.dropped, engine.arrivals) == (2, 3)
    found = {answer.at: sorted(short(row[0]) for row in answer.rows) for answer in registered}
    # Nothing was answered for 4, so b is not late; e comes after the answers for 6 and 7.
    assert found == {5: ["a", "b"], 6: ["a", "b", "c"], 7: ["a", "b", "c"],
                     8: ["a", "c", "d", "e"]}  # fmt: skip
    assert (periodic.late, registered.late) == (1, 1)


def test_a_stream_that_is_behind_has_its_own_time():
    """Also where another is ahead of the windows' whole range."""
    engine = Engine(EngineSettings(semantics=SEMANTICS["paper-rstream"]))
    query = register(engine, "SELECT ?a { STREAM <urn:s> [RANGE 10s] { ?a <urn:p> ?b } }")
    for at, name in ((0, "a"), (1_000, "b"), (2_000, "c")):
        engine.push("urn:s", (f"<urn:{name}>", "<urn:p>", "<urn:o>"), at)
        engine.push("urn:ahead", ("<urn:x>", "<urn:p>", "<urn:o>"), at + 50_000)
    found = [(each.at, [short(row[0]) for row in each.rows]) for each in query]
    assert found == [
        (0, ["a"]),
        (10_001, []),
        (50_000, []),
        (1_000, ["a", "b"]),
        (51_000, ["a", "b"]),
        (2_000, ["a", "b", "c"]),
        (52_000, ["a", "b", "c"]),
    ]
    assert engine.dropped == 0


def test_a_graph_is_one_tick_and_its_triples_need_not_match_together():
    both = "{ ?a <urn:p> ?b . ?c <urn:p> ?b }"
    assert played("RANGE 9ms", [(1, "ab")], body=both) == [(1, "aabb")]
    # One triple of the pattern in the first element, the other in the second.
    assert played("RANGE 9ms", [(1, "a"), (2, "b")], body=both) == [(1, "a"), (2, "abb")]


# --------------------------------------------------------------------------------- refusals


def test_unknown_streams_are_made_or_refused_and_graphs_are_empty():
    text = f"SELECT ?a FROM NAMED <urn:g> {{ STREAM <urn:s> [ALL] {BODY} }}"
    Engine().register(text)
    with pytest.raises(UnknownStreamError):
        Engine(EngineSettings(create_streams=False)).register(text)


PRODUCTS = {
    "windows": "STREAM <urn:s> [ALL] { ?c <urn:p> ?d } STREAM <urn:s> [ALL] { ?e <urn:p> ?f }",
    "the same object": "STREAM <urn:s> [ALL] { ?c <urn:p> ?b . ?e <urn:p> ?b }",
    "static data": "?c <urn:q> ?d . ?e <urn:q> ?f",
    "optional": "OPTIONAL { STREAM <urn:s> [ALL] { ?c <urn:p> ?d . ?e ?x ?f } }",
    "groups": "{ SELECT ?c { STREAM <urn:s> [ALL] { ?c <urn:p> ?d } } }"
    " { SELECT ?e { STREAM <urn:s> [ALL] { ?e <urn:p> ?f } } }",
}


@pytest.mark.parametrize("policy", ["cqels", "paper"])
@pytest.mark.parametrize("select", ["*", "(MAX(?c) AS ?n) (MIN(?e) AS ?m)"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_stops_its_query_and_no_other(product, select, policy):
    """It makes as many rows as allowed, and frees them."""
    engine = Engine(
        EngineSettings(semantics=SEMANTICS[policy]), limits=EngineLimits(join_rows=5_000)
    )
    engine.add([(f"<urn:{n}>", "<urn:q>", f"<urn:o{n}>") for n in range(30)])
    took = []
    body = f"STREAM <urn:s> [ALL] {BODY} {PRODUCTS[product]}"
    greedy = register(engine, f"SELECT {select} {{ {body} }}", lambda each: took.extend(each.rows))
    modest = register(engine, f"SELECT ?a {{ STREAM <urn:s> [ALL] {BODY} }}")
    for number in range(100):
        engine.push("urn:s", (f"<urn:{number}>", "<urn:p>", "<urn:o>"), number)
    assert greedy.state == "stopped"
    assert isinstance(greedy.error, JoinLimitError)
    assert len(took) <= 3 * 5_000
    assert modest.emitted == 100
    modest.close()
    assert not engine.ticks.plans.plans
    assert not len(engine.ticks.windows)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { ?c <urn:q> ?d . ?e <urn:q> ?f }",
        "SELECT * { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } ?c ?p ?d . ?e ?p ?f }",
        "SELECT * { STREAM <urn:s> [NOW] { ?a ?p ?b } { SELECT ?c ?e { ?c ?x ?d . ?e ?y ?f } } }",
        "SELECT * { STREAM <urn:s> [NOW] { ?a ?p ?b } OPTIONAL { ?c <urn:q> ?d . ?e <urn:q> ?f } }",
    ],
)
def test_a_product_of_static_patterns_is_refused(text):
    engine = Engine()
    engine.add([(f"<urn:{n}>", "<urn:q>", f"<urn:o{n}>") for n in range(1_100)])
    with pytest.raises(JoinLimitError, match="1000000 rows"):
        register(engine, text)
    assert not engine.queries
    assert not engine.ticks.plans.plans
    assert not len(engine.ticks.windows)


EXTREMES = "(MAX(?a) AS ?n) (MIN(?b) AS ?m)"
# In windows that answer each second; how the other languages read a window is filled in.
STEPPED = {
    "three patterns": "?c <urn:p> ?d . ?e <urn:p> ?f",
    "the same object": "?c <urn:p> ?b . ?e <urn:p> ?b",
    "optional": "OPTIONAL { ?c <urn:p> ?d . ?e ?x ?f }",
    "optional beside": "OPTIONAL { ?c <urn:p> ?d } OPTIONAL { ?e ?x ?f }",
    "not exists": "FILTER NOT EXISTS { ?e <urn:p> ?f FILTER(STR(?e) > CONCAT(STR(?a), STR(?f))) }",
    "minus": "MINUS { ?e <urn:p> ?b . ?f <urn:p> ?b FILTER(?e = ?f) }",
    "path": "?b <urn:p>+ ?c . ?e (<urn:p>|^<urn:p>)* ?f",
    "groups": "{ SELECT ?c { ?c <urn:p> ?d } } { SELECT ?e { ?e <urn:p> ?f } }",
    "now": "?c <urn:p> ?d . ?e <urn:p> ?f BIND(NOW() AS ?x)",
    "constant": "?c <urn:p> ?d . ?e <urn:p> ?f FILTER(?b != <urn:1>)",
}


def stepped(engine, language, select, body, take=None, tail=""):
    """A query over the last 20 seconds at least, answered each second."""
    if language == "csparql":
        stream = "FROM STREAM <urn:s> [RANGE 1h STEP 1s]"
        return engine.register_csparql(f"SELECT {select} {stream} {{ {body} }} {tail}", take)
    form = "ISTREAM" if language == "rspql-changes" else "RSTREAM"
    window = "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE PT20S STEP PT1S]"
    text = f"REGISTER {form} <urn:o{len(engine.queries)}> AS SELECT {select} {window}"
    return engine.register_rspql(f"{text} WHERE {{ WINDOW <urn:w> {{ {body} }} }} {tail}", take)


@pytest.mark.parametrize(
    ("language", "select"),
    [("rspql-changes", "*"), ("csparql", EXTREMES)],
)
@pytest.mark.parametrize("product", STEPPED)
def test_a_product_in_a_stepped_window_stops_its_query_and_no_other(product, select, language):
    """Not those that share its windows or differ in a rare constant."""
    engine = Engine(limits=EngineLimits(join_rows=5_000))
    greedy = stepped(engine, language, select, f"?a <urn:p> ?b . {STEPPED[product]}")
    took = []
    modest = stepped(engine, language, "?a", "?a <urn:p> ?b", took.append)
    joined = stepped(engine, language, "?c", "?a <urn:p> ?b . ?b <urn:p> ?c", took.append)
    for number in range(200):
        triple = (f"<urn:{number}>", "<urn:p>", f"<urn:{number // 100 * 200}>")
        engine.push("urn:s", triple, 50 + number * 90)
    engine.advance(30_000)
    assert greedy.state == "stopped"
    assert isinstance(greedy.error, JoinLimitError)
    assert all(len(each.rows) <= 5_000 for each in greedy.waiting)
    assert (modest.state, joined.state) == ("running", "running")
    counts = [len(each.rows) for each in took if each.query == modest.name]
    assert (sum(counts) if language == "rspql-changes" else max(counts)) == 200
    for query in (modest, joined):
        query.close()
    assert not len(engine.instants._evaluations)
    assert not len(engine.instants.readers.windows)
    assert not len(engine.instants._shared_rows)


@pytest.mark.parametrize("language", ["csparql", "rspql"])
@pytest.mark.parametrize(
    "body",
    [
        "?a <urn:p> ?b . ?c <urn:q> ?d . ?e <urn:q> ?f",
        "?a <urn:p> ?b . { SELECT * { ?c <urn:q> ?d } } { SELECT * { ?e <urn:q> ?f } }",
        "?a <urn:p> ?b . OPTIONAL { ?c <urn:q> ?d . ?e <urn:q> ?f }",
        "?a <urn:p> ?b . { SELECT ?e { ?c <urn:q> ?d . ?e <urn:q> ?f FILTER(?c != ?e) } }",
    ],
)
def test_a_product_of_static_patterns_is_refused_in_stepped_windows(body, language):
    engine = Engine()
    engine.add([(f"<urn:{n}>", "<urn:q>", f"<urn:o{n}>") for n in range(1_100)])
    if language == "rspql":
        body = body.replace("?a <urn:p> ?b", "WINDOW <urn:w> { ?a <urn:p> ?b }")
        text = (
            "REGISTER RSTREAM <urn:o> AS SELECT * FROM NAMED WINDOW <urn:w> ON <urn:s>"
            f" [RANGE PT1H STEP PT1S] WHERE {{ {body} }}"
        )
    else:
        text = f"SELECT * FROM STREAM <urn:s> [RANGE 1h STEP 1s] {{ {body} }}"
    with pytest.raises(JoinLimitError, match="patterns of the query"):
        register(engine, text)
    assert not engine.queries
    assert not len(engine.instants._evaluations)
    assert not len(engine.instants.readers.windows)
    assert not len(engine.instants._shared_rows)


TEXTS = "(GROUP_CONCAT(?a) AS ?all)"


@pytest.mark.parametrize("select", [TEXTS, TEXTS.replace("(?a", "(DISTINCT ?a")])
@pytest.mark.parametrize("policy", ["cqels", "paper"])
def test_a_text_of_a_window_is_read_anew_as_often_as_rows_are_made(select, policy):
    """Read values count as rows."""
    engine = Engine(
        EngineSettings(semantics=SEMANTICS[policy]), limits=EngineLimits(join_rows=5_000)
    )
    greedy = register(engine, f"SELECT {select} {{ STREAM <urn:s> [ALL] {BODY} }}")
    modest = register(engine, f"SELECT {select} {{ STREAM <urn:s> [TRIPLES 20] {BODY} }}")
    for number in range(300):
        engine.push("urn:s", (f"<urn:{number}>", "<urn:p>", "<urn:o>"), number)
    assert greedy.state == "stopped"
    assert isinstance(greedy.error, JoinLimitError)
    # The texts of a hundred elements have 5,000 values; some were given back meanwhile.
    assert 90 <= greedy.emitted <= 120
    assert (modest.state, modest.emitted) == ("running", 300)


@pytest.mark.parametrize("language", ["csparql", "rspql"])
def test_a_text_of_more_values_than_rows_are_allowed_stops_its_query(language):
    engine = Engine(limits=EngineLimits(join_rows=100))
    where = "?a <urn:p> ?b"
    long = stepped(engine, language, TEXTS, where)
    grouped = stepped(engine, language, f"?b {TEXTS}", where, tail="GROUP BY ?b")
    for number in range(200):
        engine.push("urn:s", (f"<urn:{number}>", "<urn:p>", f"<urn:{number % 4}>"), number * 100)
    engine.advance(30_000)
    assert (long.state, grouped.state) == ("stopped", "running")
    assert isinstance(long.error, JoinLimitError)


def test_a_join_goes_on_as_long_as_each_element_makes_few_rows():
    engine = Engine(limits=EngineLimits(join_rows=1_000))
    text = "SELECT * { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } ?b <urn:q> ?c }"
    engine.add([("<urn:o>", "<urn:q>", f"<urn:{n}>") for n in range(4)])
    query = register(engine, text, lambda _: None)
    for number in range(1_000):
        engine.push("urn:s", (f"<urn:{number}>", "<urn:p>", "<urn:o>"), number)
    assert (query.state, query.emitted) == ("running", 4_000)


def test_long_values_are_forgotten_before_there_are_many():
    """Each is as long as all that are in the window."""
    engine = Engine()
    query = register(
        engine,
        "SELECT (GROUP_CONCAT(?b) AS ?all) { STREAM <urn:s> [ALL] { ?a <urn:p> ?b } }",
        lambda _: None,
    )
    most = 0
    for number in range(600):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", f'"{number:0500}"'), number)
        most = max(most, sum(map(len, engine.dictionary.texts.values())))
    assert query.emitted == 600
    # All of them have ninety million characters.
    assert most < 30_000_000


def test_a_window_over_its_limit_stops_its_query_and_no_other():
    engine = Engine(limits=EngineLimits(window_rows=50))
    periodic = Engine(limits=EngineLimits(window_rows=50))
    native = [
        register(engine, f"SELECT ?a {{ STREAM <urn:s> [{each}] {BODY} }}")
        for each in ("ALL", "RANGE 9ms")
    ]
    stepped = [
        periodic.register_csparql(f"SELECT ?a FROM STREAM <urn:{s}> [RANGE 1h TUMBLING] {BODY}")
        for s in "st"
    ]
    for number in range(200):
        for each in (engine, periodic):
            each.push("urn:s", (f"<urn:{number}>", "<urn:p>", "<urn:o>"), number)
    for greedy, modest in (native, stepped):
        assert (greedy.explain()["state"], modest.state) == ("stopped", "running")
        with pytest.raises(WindowLimitError):
            list(greedy)


def test_every_policy_has_a_test_here():
    """A row of the table names the test that shows it."""
    rows = [
        line for line in DOCUMENT.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and "`test_" in line
    ]  # fmt: skip
    named = {line.rsplit("`", 2)[1] for line in rows}
    present = {name for name in globals() if name.startswith("test_")}
    others = (
        "service/test_continuous_service.py",
        "service/test_web.py",
        "test_callbacks.py",
    )
    here = Path(__file__).parent
    elsewhere = "".join((here / name).read_text(encoding="utf-8") for name in others)
    missing = {name for name in named - present if f"def {name}(" not in elsewhere}
    assert not missing
    assert len(named) >= 20


def test_static_data_may_change_under_queries():
    engine, periodic = Engine(), Engine()
    joined = "?b <urn:q> ?c"
    text = f"SELECT ?c {{ STREAM <urn:s> [ALL] {BODY} {joined} }}"
    native, paper = register(engine, text), register(engine, text, semantics=SEMANTICS["paper"])
    stepped = periodic.register_csparql(
        f"SELECT ?c FROM STREAM <urn:s> [RANGE 9ms STEP 3ms] {{ ?a <urn:p> ?b . {joined} }}"
    )
    for each in (engine, periodic):
        each.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:o>"), 1)
        each.add([("<urn:o>", "<urn:q>", "<urn:c>")])
    assert [len(each.rows) for each in native] == []
    assert [len(each.rows) for each in paper] == [1]
    periodic.advance(3)
    for each in (engine, periodic):
        each.push("urn:s", ("<urn:b>", "<urn:p>", "<urn:o>"), 4)
        each.remove([("<urn:o>", "<urn:q>", "<urn:c>")])
    periodic.advance(6)
    assert [len(each.rows) for each in native] == [1]
    assert [len(each.rows) for each in stepped] == [1, 0]
