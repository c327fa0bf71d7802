"""The operators on Spark beside the native engine's, over the same windows.

Without streaming an example costs a few small jobs.
"""

import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from annotations.terms import Term
from tests.support.csparql_beside_spark import CONTENT, Timeline, contents
from tests.support.csparql_reference import Clause, solutions
from tests.support.csparql_spark import settings as session_settings
from tests.support.examples import examples
from tests.support.random_csparql import STREAMS, clauses, queries, statics, timelines
from tests.support.random_queries import PREFIX
from tpf_server.continuous.continuous_engine import Engine, InstantSettings
from tpf_server.continuous.runtime.errors import (
    ContinuousSyntaxError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.rules import RULES, RULES_ON_SPARK, Rule
from tpf_server.continuous.spark.batches import SharedPlan
from tpf_server.continuous.spark.execution import SparkExecution, window_query

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def add(engine: Engine, static: str) -> None:
    for line in static.splitlines():
        *terms, _ = line.split()
        engine.add([terms[:3]], terms[3][1:-1] if len(terms) > 3 else None)


def played(engine: Engine, timeline: Timeline) -> Timeline:
    """Push a timeline; return it with timestamps."""
    elements: Timeline = []
    at = 0
    for stream, later, triple in timeline:
        at += later
        elements.append((stream, at, triple))
        engine.push(stream, triple, at)
    engine.advance(at + 4)
    return elements


def check(
    spark: Any,
    directory: Path,
    text: str,
    sources: Sequence[Clause],
    static: str,
    timeline: Timeline,
    rules: tuple[Rule, ...] = RULES_ON_SPARK,
) -> list[PeriodicAnswer]:
    """Compare both; the answers of the native one."""
    session_settings(spark)
    engine = Engine(instants=InstantSettings(rules=rules))
    add(engine, static)
    registered = engine.register_csparql(text)
    elements = played(engine, timeline)
    expected = list(registered)
    execution = SparkExecution(
        spark, text, engine.static, {each.stream: directory for each in sources}, directory,
        rules=rules,
    )  # fmt: skip
    instants = [answer.at for answer in expected]
    if instants:
        windows = spark.createDataFrame(contents(sources, elements, instants), CONTENT)
        found = execution.answers(windows, instants)
        for one, other in zip(found, expected, strict=True):
            assert one.at == other.at
            assert solutions(one.variables, one.rows) == solutions(other.variables, other.rows)
    return expected


@examples(6, fixtures=True)
@given(queries, clauses, statics, timelines, st.sampled_from([(), RULES, RULES_ON_SPARK]))
def test_random_queries(
    spark: Any,
    tmp_path: Path,
    query: tuple[str, str],
    sources: list[Clause],
    static: str,
    timeline: Timeline,
    rules: tuple[Rule, ...],
) -> None:
    text = PREFIX + query[0].format(" ".join(map(str, sources)))
    try:
        check(spark, tmp_path, text, sources, static, timeline, rules)
    except ContinuousSyntaxError:
        pass  # Two groups bind a variable with AS.
    except UnsupportedContinuousQueryError as error:
        assert "BIND" in str(error) or "path" in str(error)  # noqa: PT017


def test_a_join_after_a_union(spark: Any, tmp_path: Path) -> None:
    """Of such a plan Spark 4.3 would take the partitions of the union for those of its parts."""
    windows = [Clause(f"http://e/s{number}", 1, 1, 0, named=False) for number in (1, 2)]
    text = (
        f"{PREFIX} SELECT * {windows[0]} {windows[1]} WHERE {{ ?u :p ?v . ?u :p ?u "
        "MINUS { ?u :p ?u } FILTER(ISNUMERIC(?v) || ISIRI(?v)) } "
        "AGGREGATE { (?number, COUNT(?u), {?u}) (?all, COUNT, ?u) FILTER(?all > 1) }"
    )
    static = "".join(
        f"<http://e/{s}> <http://e/p> <http://e/{o}> .\n" for s, o in ("ca", "ab", "aa")
    )
    triple = ("<http://e/a>", "<http://e/p>", "<http://e/a>")
    check(spark, tmp_path, text, windows, static, [(windows[0].stream, 0, triple)], ())


@examples(6, fixtures=True)
@given(queries, clauses, statics, timelines)
def test_random_queries_that_differ_in_constants(
    spark: Any, query: tuple[str, str], sources: list[Clause], static: str, timeline: Timeline
) -> None:
    """One plan gives to each its answers."""
    session_settings(spark)
    engine = Engine()
    add(engine, static)
    first = PREFIX + query[0].format(" ".join(map(str, sources)))
    other = re.sub(
        r":a\b|:b\b|\b1\b", lambda each: {":a": ":b", ":b": ":c", "1": "2"}[each[0]], first
    )
    try:
        native = [engine.register_csparql(each) for each in (first, other)]
        on_spark = [window_query(each, engine.static)[1] for each in (first, other)]
    except (ContinuousSyntaxError, UnsupportedContinuousQueryError):
        return
    assume(on_spark[0].shape == on_spark[1].shape)
    elements = played(engine, timeline)
    expected = list(map(list, native))
    instants = [each.at for each in expected[0]]
    assume(instants)
    plan = SharedPlan(spark, on_spark)
    with closing(plan):
        windows = spark.createDataFrame(contents(sources, elements, instants), CONTENT)
        content = windows.selectExpr("*", "at AS `from`", "at + 1 AS `to`")
        rows = [tuple(row) for row in plan.frame_of(content, instants).collect()]
    for (_, found), answers in zip(plan.answers(rows, instants), expected, strict=True):
        for one, each in zip(found, answers, strict=True):
            assert one.at == each.at
            assert solutions(one.variables, one.rows) == solutions(each.variables, each.rows)


STATIC = """<http://e/a> <http://e/in> <http://e/x> .
<http://e/b> <http://e/in> <http://e/y> .
<http://e/c> <http://e/in> <http://e/x> .
<http://e/x> <http://e/limit> "2"^^<http://www.w3.org/2001/XMLSchema#integer> .
"""
XSD = "^^<http://www.w3.org/2001/XMLSchema#"
VALUES = [
    f'"3"{XSD}integer>', f'"1.5"{XSD}decimal>', f'"2.5E0"{XSD}double>', f'"2.5"{XSD}float>',
    f'"NaN"{XSD}double>', f'"true"{XSD}boolean>', f'"0"{XSD}boolean>', '"a\\"b"', '"a\\\\n"',
    '"a\\nb"', '"b"@en', '"a"@fr', '"a"@en', f'"2020-01-02"{XSD}date>',
    f'"2020-01-02T00:00:00Z"{XSD}dateTime>', f'"2020-01-01T23:00:00-02:00"{XSD}dateTime>',
    f'"10:00:00Z"{XSD}time>', '"x"^^<http://e/other>', "<http://e/z>", "<http://e/zz>",
    f'"abc"{XSD}integer>', f'"abc"{XSD}double>', f'"maybe"{XSD}boolean>',
]  # fmt: skip
WIDE = [Clause(STREAMS[0], 100, 50)]
ONCE = [Clause(STREAMS[0], 5, 5)]
MANY: Timeline = [
    (STREAMS[0], 0, (f"<http://e/{'abc'[number % 3]}>", "<http://e/value>", value))
    for number, value in enumerate(VALUES)
]
NUMBERS: Timeline = [
    (STREAMS[0], 0, (f"<http://e/{s}>", "<http://e/value>", f'"{v}"{XSD}{kind}>'))
    for s, v, kind in [
        ("a", 3, "integer"), ("a", 4, "integer"), ("b", 1, "integer"), ("b", "2.5", "decimal"),
        ("b", 7, "integer"), ("c", "1.5", "float"), ("c", "0.1", "float"), ("c", 2, "integer"),
    ]
]  # fmt: skip
ILL_TYPED: Timeline = NUMBERS + [
    (STREAMS[0], 0, (f"<http://e/{s}>", "<http://e/value>", f'"{v}"{XSD}{kind}>'))
    for s, kind in [("d", "integer"), ("f", "decimal"), ("g", "double")]
    for v in ("abc", 1, 2)
]
DIVIDED: Timeline = [
    (STREAMS[0], 0, ("<http://e/a>", "<http://e/value>", f'"{v}"{XSD}{kind}>'))
    for v, kind in [
        (3, "integer"), (0, "integer"), ("1.5E0", "double"), ("0.0E0", "double"),
        ("0.0", "decimal"), ("-0.0", "float"),
    ]
]  # fmt: skip
ODD: Timeline = [
    (STREAMS[0], 0, ("<http://e/a>", "<http://e/value>", f'"{v}"{XSD}{kind}>'))
    for v, kind in [
        ("1d", "double"), ("infinity", "double"), ("0x1p3", "double"), ("nan", "float"),
        ("+INF", "double"), ("1.5", "integer"), ("1E2", "decimal"), (".5", "decimal"),
        ("+7", "integer"), ("1.", "decimal"), ("-1e-2", "float"), ("127", "byte"), ("128", "byte"),
        ("-1", "unsignedInt"), ("0", "positiveInteger"), ("18446744073709551615", "unsignedLong"),
        ("9223372036854775808", "long"),
    ]
]  # fmt: skip
FIXED = {
    "division by zero": (
        DIVIDED,
        "SELECT ?v ?w {0} WHERE {{ ?s :value ?v, ?w FILTER(?v / ?w > 1 || !(?w / ?v)) }}",
    ),
    "what is written as no number": (
        ODD,
        "SELECT ?v (ISNUMERIC(?v) AS ?n) (?v > 0 AS ?p) {0} WHERE {{ ?s :value ?v }}",
    ),
    "median": (
        NUMBERS,
        "SELECT ?s (MEDIAN(?v) AS ?m) (MEDIAN(DISTINCT ?v) AS ?d) {0} "
        "WHERE {{ ?s :value ?v }} GROUP BY ?s",
    ),
    "median of something else": (MANY, "SELECT (MEDIAN(?v) AS ?m) {0} WHERE {{ ?s :value ?v }}"),
    "floats": (
        NUMBERS,
        "SELECT ?s (SUM(?v) AS ?m) (AVG(?v) AS ?d) {0} WHERE {{ ?s :value ?v }} GROUP BY ?s",
    ),
    "sums of what is no number": (
        ILL_TYPED,
        "SELECT ?s (SUM(?v) AS ?m) (AVG(?v) AS ?d) (MEDIAN(?v) AS ?e) {0} "
        "WHERE {{ ?s :value ?v }} GROUP BY ?s",
    ),
    "nothing": (
        NUMBERS,
        "SELECT (MEDIAN(?v) AS ?m) (GROUP_CONCAT(?v) AS ?c) {0} WHERE {{ ?s :other ?v }}",
    ),
    "equal": (
        MANY,
        "SELECT ?v ?w {0} WHERE {{ ?s :value ?v . ?t :value ?w FILTER(?v = ?w) }}",
    ),
    "equal sums": (
        MANY,
        "SELECT ?v (?v + 0 = ?v AS ?e) {0} WHERE {{ ?s :value ?v FILTER(?v - 1 != ?v * 1) }}",
    ),
    "unequal": (
        MANY,
        "SELECT ?v ?w {0} WHERE {{ ?s :value ?v . ?t :value ?w FILTER(?v != ?w) }}",
    ),
    "less": (MANY, "SELECT ?v ?w {0} WHERE {{ ?s :value ?v . ?t :value ?w FILTER(?v < ?w) }}"),
    "truth": (MANY, "SELECT ?v {0} WHERE {{ ?s :value ?v FILTER(?v) }}"),
    "untruth": (MANY, "SELECT ?v {0} WHERE {{ ?s :value ?v FILTER(!?v) }}"),
    "characters": (MANY, 'SELECT ?v {0} WHERE {{ ?s :value ?v FILTER(CONTAINS(STR(?v), "n")) }}'),
    "line": (MANY, 'SELECT ?v {0} WHERE {{ ?s :value ?v FILTER(CONTAINS(STR(?v), "\\n")) }}'),
    "extremes": (
        MANY,
        "SELECT ?s (MIN(?v) AS ?low) (MAX(?v) AS ?high) {0} WHERE {{ ?s :value ?v }} GROUP BY ?s",
    ),
    "graphs around nothing": (
        NUMBERS,
        "SELECT * {0} WHERE {{ ?s :value ?v GRAPH ?g {{ OPTIONAL {{ ?s :other ?w }} }} "
        "OPTIONAL {{ GRAPH :none {{ VALUES ?z {{ 1 }} }} }} "
        "GRAPH ?h {{ VALUES ?k {{ 1 2 }} FILTER NOT EXISTS {{ ?t :in ?k }} }} }}",
    ),
    "whole solutions": (
        NUMBERS,
        "SELECT ?s (COUNT(DISTINCT *) AS ?n) (COUNT(*) AS ?m) (SUM(?v) AS ?k) {0} "
        "WHERE {{ ?s :value ?v OPTIONAL {{ ?s :in ?z . ?z :limit ?l }} VALUES ?u {{ 1 UNDEF }} }} "
        "GROUP BY ?s",
    ),
    "whole solutions of nothing visible": (
        NUMBERS,
        "SELECT (COUNT(DISTINCT *) AS ?n) (COUNT(*) AS ?m) {0} WHERE {{ [] :value [] }}",
    ),
    "whole solutions beside each": (
        NUMBERS,
        "SELECT * {0} WHERE {{ ?s :value ?v VALUES ?u {{ 1 UNDEF }} }} "
        "AGGREGATE {{ (?n, COUNT(DISTINCT *), {{?s}}) (?m, SUM(?v), {{?s}}) }}",
    ),
    "exists in an expression": (
        NUMBERS,
        "SELECT ?s ?v (EXISTS {{ ?s :in :x }} AS ?e) {0} WHERE {{ ?s :value ?v "
        "FILTER(?v > 3 || NOT EXISTS {{ ?s :in :y . :x :limit ?l FILTER(?l > ?v) }}) }}",
    ),
    "exists with all": (
        NUMBERS,
        "SELECT * {0} WHERE {{ ?s :value ?v FILTER EXISTS {{ {{ ?s :in :y }} UNION "
        "{{ ?s :value ?w BIND(?w + 1 AS ?n) FILTER(?n = ?v) }} "
        "OPTIONAL {{ ?s :in ?z . ?z :limit ?l FILTER(?l < ?v) }} MINUS {{ ?z :limit 3 }} }} }}",
    ),
    "exists in exists": (
        NUMBERS,
        "SELECT * {0} WHERE {{ ?s :value ?v FILTER NOT EXISTS {{ ?t :value ?w "
        "FILTER(?w > ?v) FILTER EXISTS {{ ?t :in ?z . ?s :in ?z FILTER(?w < 10 + ?v) }} }} }}",
    ),
    "exists in optional": (
        NUMBERS,
        "SELECT * {0} WHERE {{ ?s :value ?v OPTIONAL {{ ?s :in ?z "
        "FILTER EXISTS {{ ?z :limit ?l FILTER(?l < ?v) }} }} }}",
    ),
    "exists in an optional's condition": (
        NUMBERS,
        "SELECT * {0} WHERE {{ {{ ?s :value ?v }} UNION {{ ?s :in :x }} OPTIONAL {{ ?t :in ?z "
        "FILTER(?v > 2 && EXISTS {{ ?s :in ?z . ?t :value ?w FILTER(?w != ?v) }}) }} }}",
    ),
    "exists in groups": (
        NUMBERS,
        "SELECT ?e (SUM(IF(EXISTS {{ ?s :in :x FILTER(?v > 2) }}, ?v, 0)) AS ?n) {0} "
        "WHERE {{ ?s :value ?v }} GROUP BY (EXISTS {{ ?s :in :y }} AS ?e)",
    ),
    "exists with a nested select": (
        NUMBERS,
        "SELECT * {0} WHERE {{ ?s :value ?v FILTER EXISTS {{ "
        "{{ SELECT ?s (COUNT(*) AS ?n) WHERE {{ ?s :value ?w }} GROUP BY ?s }} "
        "FILTER(?n > ?v) }} }}",
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_fixed_queries(spark: Any, tmp_path: Path, name: str) -> None:
    timeline, query = FIXED[name]
    text = PREFIX + query.format(ONCE[0])
    (answer,) = check(spark, tmp_path, text, ONCE, STATIC, timeline)
    assert answer.rows


def test_the_order_of_everything(spark: Any, tmp_path: Path) -> None:
    session_settings(spark)
    engine = Engine()
    text = PREFIX + f"SELECT ?v {WIDE[0]} WHERE {{ ?s :value ?v }} ORDER BY ?v"
    registered = engine.register_csparql(text)
    for number, (stream, _, triple) in enumerate(MANY):
        engine.push(stream, triple, number + 1)
    engine.advance(50)
    (expected,) = registered
    execution = SparkExecution(
        spark, text, engine.static, {STREAMS[0]: tmp_path}, tmp_path, rules=RULES
    )
    elements = [(stream, number + 1, triple) for number, (stream, _, triple) in enumerate(MANY)]
    windows = spark.createDataFrame(contents(WIDE, elements, [50]), CONTENT)
    (found,) = execution.answers(windows, [50])
    assert found.rows == expected.rows


def test_a_static_part_with_far_more_solutions_than_triples(spark: Any, tmp_path: Path) -> None:
    session_settings(spark)
    engine = Engine()
    engine.add([[f"<urn:a{n}>", "<urn:of>", "<urn:x>"] for n in range(400)], None)
    text = (
        PREFIX + f"SELECT ?v {WIDE[0]} WHERE {{ ?s :value ?v . ?a <urn:of> ?x . ?b <urn:of> ?x }}"
    )
    known = {Term(f"<{STREAMS[0]}>"): frozenset({Term("<http://e/value>")})}
    execution = SparkExecution(
        spark, text, engine.static, {STREAMS[0]: tmp_path}, tmp_path, predicates=known
    )
    windows = spark.createDataFrame(contents(WIDE, [], [50]), CONTENT)
    with pytest.raises(UnsupportedContinuousQueryError, match="far more solutions"):
        execution.answers(windows, [50])


def test_a_sum_of_too_many_digits_is_unbound(spark: Any, tmp_path: Path) -> None:
    session_settings(spark)
    text = PREFIX + f"SELECT ?s (SUM(?v) AS ?n) {WIDE[0]} WHERE {{ ?s :value ?v }} GROUP BY ?s"
    execution = SparkExecution(spark, text, Engine().static, {STREAMS[0]: tmp_path}, tmp_path)
    rows = [
        (50, f"<{STREAMS[0]}>", f"<http://e/{s}>", "<http://e/value>", f'"{v}"{XSD}integer>', 1)
        for s, v in [("a", 10**24), ("a", 1), ("b", 10**20 - 1), ("b", 10**20 - 2), ("c", 1)]
    ]
    (found,) = execution.answers(spark.createDataFrame(rows, CONTENT), [50])
    expected = [
        ("<http://e/a>", None),
        ("<http://e/b>", None),
        ("<http://e/c>", f'"1"{XSD}integer>'),
    ]
    assert solutions(found.variables, found.rows) == solutions(found.variables, expected)


def test_texts_are_put_together_in_their_own_order(spark: Any, tmp_path: Path) -> None:
    session_settings(spark)
    text = PREFIX + (
        f'SELECT ?s (GROUP_CONCAT(?v; SEPARATOR="\\"; ") AS ?c) {WIDE[0]} '
        "WHERE { ?s :value ?v } GROUP BY ?s"
    )
    execution = SparkExecution(spark, text, Engine().static, {STREAMS[0]: tmp_path}, tmp_path)
    rows = [
        (50, f"<{STREAMS[0]}>", f"<http://e/{s}>", "<http://e/value>", v, 1)
        for s, v in [("a", '"z"@en'), ("a", "<http://e/i>"), ("a", '"q\\n"'), ("b", "_:b")]
    ]
    (found,) = execution.answers(spark.createDataFrame(rows, CONTENT), [50])
    assert solutions(found.variables, found.rows) == solutions(
        found.variables, [("<http://e/a>", '"http://e/i\\"; q\\n\\"; z"'), ("<http://e/b>", None)]
    )
