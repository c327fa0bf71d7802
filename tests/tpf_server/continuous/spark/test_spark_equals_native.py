"""Both executions give the same answers at the same instants."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term
from tests.support.csparql_spark import Element, by_instant, native, on_spark, write
from tests.support.csparql_spark import settings as session_settings
from tests.support.examples import examples
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.spark.batches import (
    MicroBatches,
    Repetitions,
    SharedPlan,
    StreamedTriple,
    WindowQuery,
)
from tpf_server.continuous.spark.execution import SparkExecution, punctuate, window_query
from tpf_server.spark.folders import LocalFolder

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PREFIX = "PREFIX : <http://e/> "
WINDOWS = "FROM STREAM :s1 [RANGE 4ms STEP 2ms] FROM STREAM :s2 [RANGE 3ms STEP 3ms] "
INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"
STATIC = [
    (f"<http://e/{s}>", f"<http://e/{p}>", o)
    for s, p, o in [
        ("a", "in", "<http://e/x>"), ("b", "in", "<http://e/y>"), ("c", "in", "<http://e/x>"),
        ("x", "limit", f'"2"{INTEGER}'), ("y", "limit", f'"1"{INTEGER}'),
        ("a", "value", f'"7"{INTEGER}'),
    ]
]  # fmt: skip

QUERIES = {
    "aggregate": "SELECT * {0} WHERE {{ ?s :value ?v . ?s :in ?z . ?z :limit ?l }} "
    "AGGREGATE {{ (?n, COUNT, {{?z}}) (?m, AVG(?v), {{?z}}) FILTER(?n > ?l) }}",
    "by stream": "SELECT DISTINCT ?s ?g ?n {0} WHERE {{ GRAPH ?g {{ ?s :value ?v }} }} "
    "AGGREGATE {{ (?n, MAX(?v), {{?s, ?g}}) }}",
    "negation": "SELECT * {0} WHERE {{ ?s :in ?z FILTER NOT EXISTS {{ ?s :value 1 }} "
    "MINUS {{ ?s :value 2 }} }}",
    "timestamps": "SELECT ?s ?t {0} WHERE {{ ?s :value ?v . ?o :value ?v . ?s :in ?z "
    "BIND(timestamp(?s) AS ?t) FILTER(?t > timestamp(?o)) }}",
    "ask": "ASK {0} WHERE {{ ?s :value 2 }}",
    "construct": "CONSTRUCT {{ ?z :has ?v }} {0} WHERE {{ ?s :value ?v . ?s :in ?z }}",
}


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), max_size=5), max_size=4),
    st.integers(1, 8),
)
def test_what_windows_hold_already_is_in_no_instant_of_two_elements(
    batches: list[list[tuple[int, int]]], width: int
) -> None:
    """Also where elements come late."""
    repetitions, stream = Repetitions(), Term("<http://e/s>")
    inside: dict[int, list[int]] = {}
    for batch in batches:
        triples = [(at, Term(f'"{n}"'), Term("<http://e/p>"), Term('"o"')) for at, n in batch]
        for (at, n), earlier, later in zip(
            batch, *map(list, repetitions.add(stream, triples)), strict=True
        ):
            begin, end = max(at, int(earlier) + width), min(at + width, int(later))
            inside.setdefault(n, []).extend(range(begin, end))
    expected: dict[int, set[int]] = {}
    for at, n in itertools.chain(*batches):
        expected.setdefault(n, set()).update(range(at, at + width))
    assert {n: sorted(each) for n, each in inside.items()} == {
        n: sorted(each) for n, each in expected.items()
    }


elements = st.tuples(
    st.sampled_from(["http://e/s1", "http://e/s1", "http://e/s2"]),
    st.integers(0, 3),
    st.tuples(
        st.sampled_from(["<http://e/a>", "<http://e/b>", "<http://e/c>"]),
        st.just("<http://e/value>"),
        st.sampled_from([f'"{n}"{INTEGER}' for n in (1, 2, 3, 7)]),
    ),
)


def _timeline(steps: list[Element]) -> list[Element]:
    at = 10
    result = []
    for stream, later, triple in steps:
        at += later
        result.append((stream, at, triple))
    return result


def _engine() -> Engine:
    engine = Engine()
    engine.add(STATIC)
    return engine


FIXED = [
    (f"http://e/s{stream}", at, (f"<http://e/{s}>", "<http://e/value>", f'"{v}"{INTEGER}'))
    for stream, at, s, v in [
        (1, 10, "a", 1), (2, 10, "b", 2), (1, 11, "a", 2), (1, 11, "c", 2), (2, 12, "a", 7),
        (1, 13, "b", 3), (1, 14, "a", 1), (2, 14, "a", 7), (1, 20, "c", 7), (2, 21, "b", 2),
    ]
]  # fmt: skip


# The operators themselves are in test_spark_translation.py, and a stream that is made in
# test_spark_live.py; here is what the streaming gives them.
# A number of 62 bits has a batch until 71, not one until 72.
@pytest.mark.parametrize(
    ("name", "until"), [("timestamps", 27), ("aggregate", 71), ("aggregate", 72)]
)
def test_of_a_fixed_timeline(spark: Any, tmp_path: Path, name: str, until: int) -> None:
    text = PREFIX + QUERIES[name].format(WINDOWS)
    # The same once more, so that the last instants have something to answer.
    again = [(stream, at + until - 21, triple) for stream, at, triple in FIXED]
    timeline = sorted([*FIXED, *again], key=lambda element: element[1])
    expected = by_instant(native(_engine(), text, timeline, until))
    assert any(expected.values())
    assert list(expected)[:12] == [10, 12, 14, 15, 16, 18, 20, 21, 22, 24, 26, 27]
    assert any(rows for at, rows in expected.items() if at > until - 9)
    assert by_instant(on_spark(spark, _engine(), text, timeline, until, tmp_path)) == expected


def test_of_long_literals_and_of_what_some_take_for_the_end_of_a_line(
    spark: Any, tmp_path: Path
) -> None:
    text = PREFIX + (
        'SELECT ?v (ISNUMERIC(?v) AS ?m) (STRSTARTS(STR(?v), "http") AS ?i) (?v < "b" AS ?l) '
        f"{WINDOWS} WHERE {{ ?s :value ?v }}"
    )
    long = '"' + "a\\n" * 40_000 + '"'
    lines = ('<<( <http://e/a> <http://e/b> "\u2028" )>>', "<http://e/\u2028>")
    timeline: list[Element] = [
        ("http://e/s1", 10 + number, ("<http://e/a>", "<http://e/value>", value))
        for number, value in enumerate((long, f"{long}@en", f"{long}^^<http://e/t>", *lines))
    ]
    expected = by_instant(native(Engine(), text, timeline, 27))
    assert any(expected.values())
    assert by_instant(on_spark(spark, Engine(), text, timeline, 27, tmp_path)) == expected


@examples(2, fixtures=True)
@given(st.sampled_from(sorted(QUERIES)), st.lists(elements, min_size=2, max_size=8))
def test_of_random_timelines(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, name: str, steps: list[Element]
) -> None:
    text = PREFIX + QUERIES[name].format(WINDOWS)
    timeline = _timeline(steps)
    until = timeline[-1][1] + 5
    expected = by_instant(native(_engine(), text, timeline, until))
    directory = tmp_path_factory.mktemp("random")
    assert by_instant(on_spark(spark, _engine(), text, timeline, until, directory)) == expected


DIFFERING = {
    "subjects": ("SELECT (COUNT(?v) AS ?n) {0} WHERE {{ {1} :value ?v }}", (":b", ":c", ":d")),
    "objects": ("SELECT ?s ?v {0} WHERE {{ ?s :value {1}, ?v }}", ("1", "2", "3")),
    "static": (
        "SELECT * {0} WHERE {{ ?s :value ?v . ?s :in {1} . {1} :limit ?l FILTER(?v > ?l) }}",
        (":x", ":y"),
    ),
    "mixed": ("SELECT * {0} WHERE {{ ?s :in ?z . {1} :value ?v . ?s :value ?v }}", (":b", ":c")),
    "numbers": ("SELECT ?s {0} WHERE {{ ?s :value ?v FILTER(?v >= {1}) }}", ("1", "2", "3")),
    "texts": (
        'SELECT ?s (CONCAT(STR(?v), {1}) AS ?k) {0} WHERE {{ ?s :value ?v '
        "FILTER(CONTAINS(STR(?s), {1})) }}",
        ('"a"', '"b"', '"e"'),
    ),
    "groups": (
        "SELECT ?s (SUM(?v * {1}) AS ?n) {0} WHERE {{ ?s :value ?v . ?s :in ?z }} GROUP BY ?s "
        "HAVING (COUNT(?v) > {1} - 1) ORDER BY ?n LIMIT 2",
        ("1", "2"),
    ),
    "static alone": ("SELECT * {0} WHERE {{ ?s :limit {1} FILTER({1} > 0) }}", ("1", "2")),
    "optional, union": (
        "SELECT * {0} WHERE {{ ?s :in {1} OPTIONAL {{ ?s :value ?v }} "
        "{{ ?s :value 7 }} UNION {{ ?s :value {2} }} MINUS {{ ?s :value {2} . ?s :in :y }} }}",
        (":x", ":y"),
    ),
    "exists": (
        "SELECT ?s ?v ?e {0} WHERE {{ ?s :value ?v FILTER NOT EXISTS {{ ?s :value {1} }} "
        "BIND(EXISTS {{ ?x :value ?v FILTER(?v > {1}) }} AS ?e) }}",
        ("1", "2"),
    ),
    "filter in an option": (
        "SELECT * {0} WHERE {{ ?s :in ?z OPTIONAL {{ ?s :value ?v FILTER(?v > {1}) }} "
        "OPTIONAL {{ ?s :value ?w FILTER(?w = 7 && EXISTS {{ ?z :limit ?l FILTER(?l < {1}) }}) }} "
        "}}",
        ("1", "2"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERING)
def test_queries_that_differ_in_constants(spark: Any, tmp_path: Path, name: str) -> None:
    """Equal to native answers, and in as many jobs for three queries as for two."""
    session_settings(spark)
    pattern, constants = DIFFERING[name]
    texts = [
        PREFIX + pattern.format(WINDOWS, each, number + 1) for number, each in enumerate(constants)
    ]
    paths = {
        Term(f"<{stream}>"): [str(next(path.iterdir()))]
        for stream, path in write(tmp_path, ["http://e/s1", "http://e/s2"], FIXED).items()
    }
    static = _engine().static
    # Where nothing is declared, a stream may carry what is static, too.
    values = frozenset({Term("<http://e/value>")})
    declared = dict.fromkeys(paths, values) if name.startswith("static") else {}
    tracker = spark.sparkContext.statusTracker()

    def answered(texts: list[str]) -> tuple[list[Any], int]:
        queries = [window_query(text, static, predicates=declared)[1] for text in texts]
        assert len({each.shape for each in queries}) == 1
        group = token_hex(8)
        spark.sparkContext.setJobGroup(group, "counted")
        result = dict(
            MicroBatches(spark, LocalFolder(tmp_path / "answers")).process(0, paths, queries, 27)
        )
        answers = [result[query] for query in queries]
        assert not any(isinstance(each, ContinuousError) for each in answers), answers
        return answers, len(tracker.getJobIdsForGroup(group))

    answers, jobs = answered(texts)
    for text, each in zip(texts, answers, strict=True):
        assert by_instant(each) == by_instant(native(_engine(), text, FIXED, 27))
    assert any(answer.rows for each in answers for answer in each)
    if name in ("subjects", "numbers"):
        assert answered(texts[:2])[1] == jobs


def test_batches_of_a_server(spark: Any, tmp_path: Path) -> None:
    """The same triples come to both streams, and come again."""
    session_settings(spark)
    timeline: list[Element] = [
        (f"http://e/s{number}", at + later, triple)
        for _, at, triple in FIXED
        for number, later in ((1, 0), (2, 0), (1, 1))
    ]
    timeline.sort(key=lambda element: element[1])
    counts = "SELECT ?s (COUNT(DISTINCT ?o) AS ?n) {0} WHERE {{ ?x :value ?s, ?o }} GROUP BY ?s"
    patterns = (QUERIES["timestamps"], QUERIES["aggregate"], counts)
    texts = [PREFIX + each.format(WINDOWS) for each in patterns]
    parts = [
        [each for each in timeline if begin <= each[1] < end]
        for begin, end in [(10, 13), (13, 15), (15, 28)]
    ]
    _check_batches_of_a_server(spark, tmp_path, texts, parts, 27)


def _check_batches_of_a_server(
    spark: Any,
    folder: Path,
    texts: Sequence[str],
    parts: Sequence[Sequence[Element]],
    until: int,
    after_batch: Callable[[], object] = bool,
    *,
    declared: bool = False,
) -> None:
    static = STATIC[:-1] if declared else STATIC
    predicates = {
        Term(f"<http://e/{name}>"): frozenset({Term("<http://e/value>")}) for name in ("s1", "s2")
    }

    def engine() -> Engine:
        result = Engine()
        result.add(static)
        return result

    batches = MicroBatches(spark, LocalFolder(folder / "answers"))
    queries = {
        window_query(text, engine().static, predicates=predicates if declared else None)[1]: text
        for text in texts
    }
    for each in queries:
        batches.admit(each, 0)
    found: dict[WindowQuery, list[PeriodicAnswer]] = {each: [] for each in queries}
    for number, part in enumerate(parts):
        triples: dict[Term, list[StreamedTriple]] = {}
        for stream, at, (s, p, o) in part:
            of_stream = triples.setdefault(Term(f"<{stream}>"), [])
            of_stream.append((at, Term(s), Term(p), Term(o)))
        path = folder / f"{number}.parquet"
        path.write_bytes(batches.parquet(triples))
        known = {stream: [at for at, *_ in each] for stream, each in triples.items()}
        files = {next(iter(triples)): [str(path)]}
        # What comes next may have the same timestamp.
        end = part[-1][1] - 1 if number < len(parts) - 1 else until
        for query, answers in batches.process(number, files, [*queries], end, timestamps=known):
            assert not isinstance(answers, ContinuousError), answers
            found[query] += answers
        after_batch()
    batches.close()
    timeline = [each for part in parts for each in part]
    for query, text in queries.items():
        assert by_instant(found[query]) == by_instant(native(engine(), text, timeline, until)), text


# Of a filter or of groups each batch is kept; what is around them is not. Only what is in streams
# alone, so that it is declared, and nothing static has it.
IN_PANES = [
    "SELECT ?s ?w {0} WHERE {{ ?s :value ?v FILTER(?v > {1}) BIND(?v + 1 AS ?w) FILTER(?w < 8) }}",
    "SELECT * {0} WHERE {{ ?s :value ?v . ?s :in ?z . ?z :limit ?l FILTER(?v > ?l + {1}) }}",
    "SELECT ?s (COUNT(?v) AS ?n) (MAX(?v) AS ?m) (COUNT(*) AS ?k) {0} "
    "WHERE {{ ?s :value ?v FILTER(?v != {1}) }} GROUP BY ?s",
    "SELECT (COUNT(*) AS ?n) (MIN(?s) AS ?m) {0} WHERE {{ ?s :value {1} }}",
    "SELECT ?z (COUNT(?v) AS ?n) {0} WHERE {{ ?s :value ?v . ?s :in ?z }} GROUP BY ?z "
    "HAVING (COUNT(?v) > {1})",
    "SELECT ?b {0} WHERE {{ ?s :value ?v }} GROUP BY (?v > {1} AS ?b)",
    "SELECT ?s (SUM(?v) AS ?n) (AVG(?w) AS ?m) {0} "
    "WHERE {{ ?s :value ?v BIND(IF(?v < {1}, ?v / 4, IF(?v > 6, ?v * 0.5e0, ?v)) AS ?w) }} "
    "GROUP BY ?s",
    "SELECT (SUM(?o) AS ?n) (AVG(?v) AS ?m) {0} "
    "WHERE {{ ?s :value ?v BIND(IF(?v = {1}, STR(?v), ?v) AS ?o) FILTER(?v < 7) }}",
    "SELECT ?s (COUNT(DISTINCT ?v) AS ?n) (SUM(?v) AS ?k) {0} "
    "WHERE {{ ?s :value ?v FILTER(?v > {1}) }} GROUP BY ?s",
    "SELECT * {0} WHERE {{ {{ ?s :value ?v FILTER(?v > {1}) }} UNION {{ ?s :in ?z }} "
    "OPTIONAL {{ ?s :value ?w FILTER(?w < 3) }} "
    "FILTER NOT EXISTS {{ ?t :value ?v . ?t :in :y FILTER(?v < 7) }} }}",
    "SELECT ?s ?n {0} WHERE {{ ?s :value ?v FILTER(?v > {1}) "
    "{{ SELECT ?s (COUNT(?o) AS ?n) WHERE {{ ?s :value ?o }} GROUP BY ?s }} }}",
    "ASK {0} WHERE {{ ?s :value ?v FILTER(?v > 6 && ?v != {1}) }}",
    "SELECT DISTINCT ?z {0} WHERE {{ ?s :value ?v . ?s :in ?z FILTER(?v > {1}) }} ORDER BY ?z",
]


@examples(3, fixtures=True)
@given(
    st.sampled_from(IN_PANES),
    st.tuples(st.integers(4, 30), st.integers(1, 4)),
    st.lists(st.lists(elements, min_size=1, max_size=5), min_size=3, max_size=5),
)
def test_what_is_kept_of_the_batches_of_a_server(
    spark: Any,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    pattern: str,
    window: tuple[int, int],
    parts: list[list[Element]],
) -> None:
    """Two queries that differ in a constant have one plan."""
    session_settings(spark)
    monkeypatch.setattr("tpf_server.continuous.spark.batches._PANED", 2)
    monkeypatch.setattr("tpf_server.continuous.spark.batches._MERGED", 3)
    folder = tmp_path_factory.mktemp("batches")
    windows = (
        f"FROM STREAM :s1 [RANGE {window[0]}ms STEP {window[1]}ms] "
        "FROM NAMED STREAM :s2 [RANGE 9ms STEP 3ms]"
    )
    texts = [PREFIX + pattern.format(windows, constant) for constant in (1, 2)]
    timeline = iter(_timeline([each for part in parts for each in part]))
    timed = [[next(timeline) for _ in part] for part in parts]
    until = timed[-1][-1][1] + 4
    _check_batches_of_a_server(spark, folder, texts, timed, until, declared=True)


def test_what_is_lost_of_batches_is_computed_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_settings(spark)
    monkeypatch.setattr("tpf_server.continuous.spark.batches._PANED", 2)
    failures: list[bool] = []
    forget = SharedPlan.forget
    monkeypatch.setattr(
        SharedPlan, "forget", lambda plan: failures.append(forget(plan)) or failures[-1]
    )

    def lose() -> None:
        for each in spark.sparkContext._jsc.getPersistentRDDs().values():
            each.unpersist(True)

    window = "FROM STREAM :s1 [RANGE 9ms STEP 3ms] "
    texts = [PREFIX + pattern.format(window, 1) for pattern in (IN_PANES[0], IN_PANES[3])]
    timeline = [each for each in FIXED if each[0] == "http://e/s1"]
    parts = [timeline[:3], timeline[3:5], timeline[5:]]
    _check_batches_of_a_server(spark, tmp_path, texts, parts, 24, lose, declared=True)
    assert failures.count(True) >= len(texts)


@pytest.mark.parametrize(("few", "in_memory"), [(1, range(2)), (1_000, range(2, 6))])
def test_small_batches_are_merged_and_others_read_from_their_files(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, in_memory: range
) -> None:
    session_settings(spark)
    monkeypatch.setattr("tpf_server.continuous.spark.batches._FEW", few)
    monkeypatch.setattr("tpf_server.continuous.spark.batches._MERGED", 3)
    monkeypatch.setattr("tpf_server.continuous.spark.batches._OF_A_TASK", 10)
    text = PREFIX + (
        "SELECT ?s ?v (COUNT(?o) AS ?n) FROM STREAM :s1 [RANGE 12ms STEP 3ms] "
        "WHERE { ?s :value ?v, ?o } GROUP BY ?s ?v"
    )
    timeline: list[Element] = [
        ("http://e/s1", 10 + number, (f"<http://e/{number % 3}>", "<http://e/value>", f'"{v}"'))
        for number in range(22)
        for v in range(number % 5)
    ]
    stream = Term("<http://e/s1>")
    batches = MicroBatches(spark, LocalFolder(tmp_path / "answers"))
    queries = [window_query(text, _engine().static)[1] for _ in range(2)]
    batches.admit(queries[0], 0)
    kept = spark.sparkContext._jsc.getPersistentRDDs
    # What others left may go at any time.
    before, most = set(kept()), 0
    found: dict[WindowQuery, list[PeriodicAnswer]] = {each: [] for each in queries}
    for number, begin in enumerate(range(10, 32, 2)):
        if number == 3:
            batches.admit(queries[1], number)
        elements = [each for each in timeline if begin <= each[1] < begin + 2]
        path = tmp_path / f"{number}.parquet"
        triples = [(at, Term(s), Term(p), Term(o)) for _, at, (s, p, o) in elements]
        path.write_bytes(batches.parquet({stream: triples}))
        known = {stream: [at for _, at, _ in elements]}
        for query, answers in batches.process(
            number, {stream: [str(path)]}, queries[: 1 + (number >= 3)], begin + 1, timestamps=known
        ):
            assert not isinstance(answers, ContinuousError)
            found[query] += answers
        most = max(most, len(set(kept()) - before))
    for query, since in zip(queries, (10, 16), strict=True):
        seen = [each for each in timeline if each[1] >= since]
        expected = by_instant(native(_engine(), text, seen, 32))
        assert by_instant(found[query]) == {at: expected[at] for at in by_instant(found[query])}
        assert max(len(each.rows) for each in found[query]) > 10
    # Of the six batches of a window, after they were merged; and perhaps of static data.
    assert most in in_memory
    cores = str(spark.sparkContext.defaultParallelism)
    assert spark.conf.get("spark.sql.shuffle.partitions") == cores != "1"
    batches.close()
    assert set(kept()) <= before


def test_spark_keeps_nothing_of_runs_that_ended_and_of_plans_that_others_replaced(
    spark: Any, tmp_path: Path
) -> None:
    kept = spark.sparkContext._jsc.getPersistentRDDs
    before = len(kept())
    text = PREFIX + QUERIES["aggregate"].format(WINDOWS)
    # The last elements are in windows to come.
    assert any(by_instant(on_spark(spark, _engine(), text, FIXED, 21, tmp_path / "run")).values())
    assert len(kept()) <= before
    pattern, constants = DIFFERING["static"]
    written = write(tmp_path / "batches", ["http://e/s1", "http://e/s2"], FIXED)
    paths = {Term(f"<{name}>"): [str(next(each.iterdir()))] for name, each in written.items()}
    declared = dict.fromkeys(paths, frozenset({Term("<http://e/value>")}))
    static = _engine().static
    queries = [
        window_query(PREFIX + pattern.format(WINDOWS, each), static, predicates=declared)[1]
        for each in constants
    ]
    batches = MicroBatches(spark, LocalFolder(tmp_path / "answers"))
    batches.process(0, paths, queries[:1], 27)
    batches.process(1, paths, queries, 27)
    batches.process(2, {}, queries, 33)
    assert len(batches._plans) == 1
    batches.close()
    assert len(kept()) <= before


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT * FROM STREAM :s1 [RANGE TRIPLES 5] WHERE { ?s ?p ?o }",
            "line 1, column 31: FROM STREAM <http://e/s1> [RANGE TRIPLES 5]: windows that count",
        ),
        (
            "DESCRIBE ?s FROM STREAM :s1 [RANGE 1s TUMBLING] WHERE { ?s ?p ?o }",
            "line 1, column 22: DESCRIBE",
        ),
        (
            "SELECT * FROM STREAM :s1 [RANGE 1s TUMBLING] WHERE { ?s ?p ?o\n"
            "FILTER EXISTS { ?s :p+ ?o } }",
            "line 2, column 20: a path from ?s to ?o",
        ),
        (
            "SELECT * FROM STREAM :s1 [RANGE 1s TUMBLING] WHERE { ?s ?p ?o SERVICE :x { ?s :p 1 }}",
            "line 1, column 84: SERVICE <http://e/x>",
        ),
        (
            "SELECT * FROM STREAM :s1 [RANGE 1s TUMBLING] WHERE { ?s ?p ?o "
            "FILTER NOT EXISTS { ?s :p ?n BIND(1 AS ?o) } }",
            "BIND of ?o inside EXISTS",
        ),
    ],
)
def test_what_spark_cannot_do_is_refused(tmp_path: Path, query: str, message: str) -> None:
    static = _engine().static
    # Nothing starts: there is not even a session.
    session: Any = None
    with pytest.raises(UnsupportedContinuousQueryError) as caught:
        SparkExecution(session, PREFIX + query, static, {"http://e/s1": tmp_path}, tmp_path)
    assert message in str(caught.value)


def test_late_and_malformed_lines(spark: Any, tmp_path: Path) -> None:
    session_settings(spark)
    text = PREFIX + "SELECT ?v FROM STREAM :s1 [RANGE 4ms STEP 2ms] WHERE { ?s :value ?v }"
    streams = write(tmp_path, ["http://e/s1"], [each for each in FIXED if each[1] <= 14])
    (directory,) = streams.values()
    punctuate(directory, 16)
    static = _engine().static
    lenient = SparkExecution(spark, text, static, streams, tmp_path / "out", strict=False)
    assert lenient.replay().late == 0
    before = list(lenient.results.read())
    assert before[-1].at == 16
    # 15 belongs to 16 and 18: the first is answered already, the second is not.
    more = '15\t<http://e/a>\t<http://e/value>\t"late"\nthis is no line\n'
    (directory / "more.tsv").write_text(more)
    punctuate(directory, 18)
    assert lenient.replay().late > 0
    after = list(lenient.results.read())
    assert after[: len(before)] == before
    assert [answer.at for answer in after[len(before) :]] == [18]
    assert ('"late"',) in after[-1].rows
    strict = SparkExecution(spark, text, static, streams, tmp_path / "strict")
    with pytest.raises(ContinuousError, match="malformed line: this is no line"):
        strict.replay()
