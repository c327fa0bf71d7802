"""Queries that share windows answer as if alone, at the cost of those concerned."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counted_calls import counted_calls
from tests.support.csparql_reference import Clause, solutions
from tests.support.examples import examples
from tests.support.random_continuous_queries import with_static
from tests.support.random_csparql import STREAMS, logical, queries, statics, timelines, triples
from tests.support.random_queries import LITERALS, PREFIX, SUBJECTS
from tpf_server.continuous.continuous_engine import Engine, InstantSettings
from tpf_server.continuous.runtime.errors import CallbackError, ContinuousSyntaxError
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError as Unsupported
from tpf_server.continuous.runtime.forgetting import reached
from tpf_server.continuous.runtime.instants import evaluation_planner
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.evaluation_planner import FEW_ALONE

comings = st.lists(
    st.tuples(
        queries,
        st.integers(0, 1),
        st.integers(0, 7),
        st.integers(0, 12),
        st.sampled_from([None, None, 1, 2, 3]),
    ),
    min_size=2,
    max_size=5,
)
"""Queries: which windows they take, before which element they come and go, when they raise."""

COMPARING = (
    "SELECT * {} WHERE {{ ?u :p ?v FILTER(?v [op] [term]) }}",
    "SELECT ?u {} WHERE {{ ?u :p ?v . ?v ?w ?x FILTER([term] [op] ?u && ?v != ?x) }}",
    "SELECT DISTINCT ?v {} WHERE {{ ?u ?w ?v OPTIONAL {{ ?v :p ?x }}"
    " FILTER(?v [op] [term] && ?u != [term]) }}",
    "ASK {} WHERE {{ ?u :p ?v . ?u ?q ?w FILTER(?v [op] [term]) }}",
    "SELECT ?u (COUNT(?v) AS ?n) {} WHERE {{ ?u :p ?v FILTER(?v [op] [term]) }} GROUP BY ?u",
    "SELECT ?u {} WHERE {{ ?u ?p ?v }} GROUP BY ?u HAVING (COUNT(?v) [op] [number])",
    "SELECT (MAX(?u) AS ?n) {} WHERE {{ ?u ?p ?v FILTER(?v != [term]) }}"
    " HAVING (COUNT(?v) [op] [number])",
    "CONSTRUCT {{ ?u :by ?v }} {} WHERE {{ ?u :p ?v FILTER EXISTS {{ ?v ?w ?x }}"
    " FILTER(?v [op] [term]) }}",
    "SELECT * {} WHERE {{ ?u :p ?v }} AGGREGATE {{ (?n, COUNT, {{?u}}) FILTER(?n [op] [number]) }}",
    "SELECT ?u ?n {} WHERE {{ ?u :p ?v FILTER(?v [op] [term]) }}"
    " AGGREGATE {{ (?n, COUNT, {{?v}}) }}",
    "SELECT ?u ?v {} WHERE {{ ?u :p ?v FILTER(?v [op] [term]) }} ORDER BY ?u ?v LIMIT 1",
    "SELECT ?u {} WHERE {{ ?u :p ?v FILTER(timestamp(?v) [op] [number]) }}",
    "SELECT ?u ?x {} WHERE {{ ?u :p ?v OPTIONAL {{ ?u :q ?x }} FILTER(?v [op] [term]) }}",
    "SELECT DISTINCT ?u {} WHERE {{ ?u ?w ?v MINUS {{ ?v ?w ?x . ?x :p ?y }}"
    " FILTER(?v [op] [term]) }}",
    "SELECT ?v (COUNT(?u) AS ?n) {} WHERE {{ ?u :p ?v FILTER NOT EXISTS {{ ?u :q ?x }} }}"
    " GROUP BY ?v HAVING(COUNT(?u) [op] [number])",
    "SELECT * {} WHERE {{ ?u :p ?v {{ SELECT ?v (MAX(?x) AS ?n) {{ ?v ?w ?x }} GROUP BY ?v }}"
    " FILTER(?u [op] [term]) }}",
)


@st.composite
def constants_differ(draw: st.DrawFn) -> list[tuple[tuple[str, str], int, int, int, int | None]]:
    """Queries that differ in constants alone, most of them."""
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">="]))
    texts = [draw(st.sampled_from(COMPARING))] * 3 + [draw(st.sampled_from(COMPARING))]
    found = []
    for _, pair, begin, end, raises in draw(comings):
        query = draw(st.sampled_from(texts)).replace("[op]", operator)
        while "[term]" in query:
            query = query.replace("[term]", draw(st.sampled_from(SUBJECTS + LITERALS)), 1)
        query = query.replace("[number]", str(draw(st.integers(0, 3))))
        found.append(((query, query), pair, begin, end, raises))
    return found


alike = constants_differ()
changing = st.lists(st.tuples(st.integers(0, 10), st.booleans(), triples), max_size=3)

Triple = tuple[str, str, str]
Change = tuple[bool, Triple]


class Beside:
    """A query in an engine with others, and the same query alone."""

    def __init__(
        self, shared: Engine, text: str, static: str, changes: list[Change], raises: Any
    ) -> None:
        self.raises = raises
        self.found: list[PeriodicAnswer] = []
        self.expected: list[PeriodicAnswer] = []
        self.alone = with_static(Engine(), static)
        for change in changes:
            apply(self.alone, change)
        self.alone.register_csparql(text, self.expected.append)
        self.registered = shared.register_csparql(text, self._take)

    def _take(self, answer: PeriodicAnswer) -> None:
        self.found.append(answer)
        if len(self.found) == self.raises:
            raise KeyError(answer.at)

    def check(self) -> None:
        expected = self.expected[: self.raises]
        assert [each.at for each in self.found] == [each.at for each in expected]
        for one, other in zip(self.found, expected, strict=True):
            assert solutions(one.variables, one.rows) == solutions(other.variables, other.rows)
        assert isinstance(self.registered.error, CallbackError) == (
            len(self.expected) >= (self.raises or 1_000)
        )


def apply(engine: Engine, change: Change) -> None:
    adds, triple = change
    (engine.add if adds else engine.remove)([triple])


_Coming = list[tuple[tuple[str, str], int, int, int, int | None]]
_Timeline = list[tuple[str, int, Triple]]


@examples(35)
@given(
    comings | alike,
    st.tuples(logical, logical),
    statics,
    timelines,
    changing,
    st.sampled_from([1, FEW_ALONE]),
)
def test_queries_that_come_and_go_answer_as_each_alone(
    coming: _Coming,
    windows: tuple[tuple[int, int], tuple[int, int]],
    static: str,
    timeline: _Timeline,
    changes: list[tuple[int, bool, Triple]],
    few: int,
) -> None:
    """Compare queries in one engine with each in its own."""
    with patch.object(evaluation_planner, "FEW_ALONE", few):
        _compare_with_each_alone(coming, windows, static, timeline, changes)


def _compare_with_each_alone(
    coming: _Coming,
    windows: tuple[tuple[int, int], tuple[int, int]],
    static: str,
    timeline: _Timeline,
    changes: list[tuple[int, bool, Triple]],
) -> None:
    engine = with_static(Engine(), static)
    changed: list[Change] = []
    running: dict[int, Beside] = {}
    everybody: list[Beside] = []
    at = 0
    for number, (stream, later, triple) in enumerate(timeline):
        for when, added, changing in changes:
            if when == number:
                changed.append((added, changing))
                for each in (engine, *(beside.alone for beside in running.values())):
                    apply(each, changed[-1])
        for which, ((text, _), pair, begin, end, raises) in enumerate(coming):
            if begin == number:
                sources = [
                    Clause(name, *windows[pair]) for name in (STREAMS if pair else STREAMS[:1])
                ]
                query = PREFIX + text.format(" ".join(map(str, sources)))
                try:
                    beside = Beside(engine, query, static, changed, raises)
                except (ContinuousSyntaxError, Unsupported):
                    continue
                running[which] = beside
                everybody.append(beside)
            if end == number and which in running:
                running.pop(which).registered.close()
        at += later
        engine.push(stream, triple, at)
        for beside in running.values():
            beside.alone.push(stream, triple, at)
    engine.advance(at + 4)
    for beside in running.values():
        beside.alone.advance(at + 4)
    for beside in everybody:
        beside.check()
        beside.registered.close()
    assert len(engine.instants.readers.windows) == 0


def _calls(engine: Engine, at: int, stream: str = "urn:s", predicate: str = "p") -> int:
    """Count the functions that an arrival calls, including builtins."""
    triple = ("<urn:a>", f"<urn:{predicate}>", f"<urn:{at}>")
    return counted_calls(lambda: engine.push(stream, triple, at))


def _ignore(_answer: PeriodicAnswer) -> None:
    pass


def _registered(text: Callable[[int], str], count: int) -> Engine:
    engine = Engine()
    engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:b>"), 1)
    for number in range(count):
        engine.register_csparql(text(number), _ignore)
    return engine


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM STREAM <urn:s> [RANGE 1h STEP 1m] { ?a <urn:p> ?b FILTER(?b != <urn:%s>) }",
        "SELECT * FROM STREAM <urn:s%s> [RANGE 1h STEP 1m] { ?a <urn:p> ?b }",
        "SELECT * FROM STREAM <urn:s> [RANGE 1h STEP 1m] { ?a <urn:p%s> ?b }",
    ],
    ids=["the same window", "other streams", "other predicates"],
)
def test_a_push_at_which_nothing_is_due_costs_the_same_for_any_number(text: str) -> None:
    found = []
    # The first time what terms are is found out, and remembered.
    for count in (5, 5, 200):
        engine = _registered(lambda n: text.replace("%s", str(n)), count)
        stream = "urn:s1" if "<urn:s%s>" in text else "urn:s"
        predicate = "p1" if "<urn:p%s>" in text else "p"
        _calls(engine, 60_001, stream, predicate)
        found.append([_calls(engine, 60_010 + at, stream, predicate) for at in range(5)])
    assert found[1] == found[2]


@pytest.mark.parametrize("between", [False, True])
def test_windows_are_shared_whenever_queries_are_registered(between: bool) -> None:
    engine = Engine()
    answers: list[list[PeriodicAnswer]] = [[] for _ in range(30)]
    text = (
        "SELECT ?b FROM STREAM <urn:s> [RANGE 1m STEP 1s] { ?a <urn:p> ?b FILTER(?b != <urn:x%s>) }"
    )
    for number, found in enumerate(answers):
        engine.register_csparql(text % number, found.append)
        if between:
            engine.push("urn:s", ("<urn:a>", "<urn:p>", f"<urn:{number}>"), 1)
    assert len(engine.instants.readers.windows) == 1
    engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:30>"), 1)
    engine.advance(1_000)
    seen = [sorted(str(row[0]) for row in found[0].rows) for found in answers]
    first = [number if between else 30 for number in range(30)]
    assert seen == [sorted(f"<urn:{n}>" for n in range(begin, 31)) for begin in first]


@pytest.mark.parametrize("between", [False, True])
def test_equal_queries_are_evaluated_once(between: bool) -> None:
    """At the latest when the windows hold nothing that some must not see."""
    engine = Engine()
    text = (
        "REGISTER QUERY q%s EVERY AS SELECT ?b (COUNT(*) AS ?n)"
        " FROM STREAM <urn:s> [RANGE 10s STEP 1s] { ?a <urn:p> ?b } GROUP BY ?b"
    )
    queries = []
    for number in range(20):
        every = "COMPUTED EVERY 2s" if number % 2 else ""
        queries.append(engine.register_csparql(text.replace("EVERY", every) % number))
        if between:
            engine.push("urn:s", ("<urn:a>", "<urn:p>", f"<urn:{number}>"), 1)
    for second in range(1, 16):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:b>"), second * 1_000)
    evaluations = {each.evaluation for each in queries}
    assert len(evaluations) == 1
    (evaluation,) = evaluations
    before = evaluation.recomputed
    engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:b>"), 17_000)
    assert evaluation.recomputed == before + 1
    answers = [list(each) for each in queries]
    assert {each[-1].rows for each in answers} == {answers[0][-1].rows}
    # Who came later saw less at first.
    sizes = [len(each[0].rows) for each in answers[::2]]
    assert sizes == ([*range(21, 1, -2)] if between else [1] * 10)
    for each in queries[1:]:
        each.close()
    assert len(engine.instants.readers.windows) == 1
    queries[0].close()
    assert len(engine.instants.readers.windows) == len(engine.instants._evaluations) == 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?a ?b FROM STREAM <urn:s> [RANGE 1h STEP 1s] { ?a <urn:p> ?b }",
        "SELECT ?a ?b FROM STREAM <urn:s> [RANGE 1h STEP 1s] { ?a <urn:p> ?b FILTER(?b > %s) }",
        "SELECT ?a (COUNT(*) AS ?n) FROM STREAM <urn:s> [RANGE 1h STEP 1s]"
        " { ?a <urn:p> ?b . ?a <urn:p> ?c } GROUP BY ?a HAVING(COUNT(*) >= %s)",
        "SELECT DISTINCT ?a ?b FROM STREAM <urn:s> [RANGE 1h STEP 1s]"
        " { ?a <urn:p> ?b OPTIONAL { ?b <urn:p> ?c } FILTER NOT EXISTS { ?b <urn:p> <urn:x> }"
        " MINUS { ?b <urn:q> ?a } FILTER(?b > %s) }",
    ],
)
def test_queries_that_see_other_elements_share_what_they_join(text: str) -> None:
    engine = Engine()
    queries = []
    for number in range(20):
        queries.append(engine.register_csparql(text.replace("%s", str(number % 3))))
        engine.push("urn:s", ("<urn:a>", "<urn:p>", _integer(number)), number + 1)
    evaluations = {each.evaluation for each in queries}
    assert len(evaluations) == FEW_ALONE + 1
    engine.push("urn:s", ("<urn:a>", "<urn:p>", _integer(0)), 1_000)
    engine.advance(2_000)
    answers = [[*each][-1].rows for each in queries]
    if "COUNT" in text:
        # 0 came again for all but the first, which saw it anyway.
        expected = [min(20, 21 - number) ** 2 for number in range(20)]
        assert [int(rows[0][1].split('"')[1]) for rows in answers] == expected
    else:
        kept = [{*range(number, 20), 0} for number in range(20)]
        if "FILTER" in text:
            kept = [{b for b in own if b > number % 3} for number, own in enumerate(kept)]
        assert [len(rows) for rows in answers] == [len(own) for own in kept]
        shared = {id(row) for rows in answers[FEW_ALONE:] for row in rows}
        assert len(shared) <= 20
    for at in range(3, 3_610, 600):
        engine.push("urn:s", ("<urn:b>", "<urn:p>", _integer(9)), at * 1_000)
    engine.advance(3_620_000)
    # Nothing is hidden from any of them.
    assert len({each.evaluation for each in queries}) == 1
    assert len({frozenset([*each][-1].rows) for each in queries[::3]}) == 1
    for each in queries:
        each.close()
    assert len(engine.instants.readers.windows) == len(engine.instants._evaluations) == 0


@pytest.mark.parametrize("language", ["CQELS-QL", "C-SPARQL"])
def test_shared_groups_cost_the_same_whatever_else_is_registered(language: str) -> None:
    found = []
    for others in (0, 60):
        engine = Engine()
        for number in range(60):
            pattern = "{ ?a <urn:p> ?b } GROUP BY ?a HAVING(COUNT(*) > 1000)"
            other = f"{{ ?a <urn:q{number}> ?b }}"
            if language == "CQELS-QL":
                text = "SELECT ?a (COUNT(*) AS ?n) { STREAM <urn:s> [RANGE 1h] %s"
                pattern = pattern.replace("}", "} }", 1)
                if number % 10 == 0:
                    engine.register(text % pattern)
                if number < others:
                    engine.register(f"SELECT ?a {{ STREAM <urn:t> [RANGE 1h] {other} }}")
            else:
                text = "SELECT ?a %s FROM STREAM <urn:%s> [RANGE 1h STEP 1s] %s"
                if number % 10 == 0:
                    engine.register_csparql(text % ("(COUNT(*) AS ?n)", "s", pattern))
                if number < others:
                    engine.register_csparql(text % ("", "t", other))
            engine.push("urn:s", ("<urn:a>", "<urn:p>", f"<urn:{number}>"), number + 1)
        engine.advance(1_000)
        _calls(engine, 1_001)
        found.append(counted_calls(partial(engine.advance, 2_000)))
        found[-1] += _calls(engine, 2_001)
    assert found[1] <= 1.1 * found[0]


def test_equal_queries_of_an_evaluation_leave_it_one_by_one() -> None:
    """Two that see the same are asked together elsewhere, once that sees no more than they."""
    engine = Engine()
    text = "SELECT * FROM STREAM <urn:s> [RANGE 2s STEP 1s] { ?a <urn:p> ?b FILTER(?b = %s) }"
    queries = [engine.register_csparql(text % 1)]
    engine.push("urn:s", ("<urn:a>", "<urn:p>", _integer(1)), 1)
    queries += [engine.register_csparql(text % number) for number in (2, 2, 3)]
    for second in range(1, 6):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", _integer(2)), second * 1_000)
    assert len({each.evaluation for each in queries}) == 1
    for each in queries:
        each.close()
    assert len(engine.instants.readers.windows) == len(engine.instants._evaluations) == 0


def test_a_window_does_not_go_where_other_streams_have_not_come() -> None:
    """A query over two streams waits for the second; another one over the first does not."""
    found: list[list[PeriodicAnswer]] = [[], []]
    for beside, answers in enumerate(found):
        engine = Engine(instants=InstantSettings(patience=100_000))
        first, second = (f"FROM STREAM <urn:{name}> [RANGE 3s STEP 1s]" for name in "st")
        if beside:
            engine.register_csparql(f"SELECT ?a {first} {{ ?a <urn:p> ?b }}", _ignore)
        engine.register_csparql(f"SELECT ?b {first} {second} {{ ?a <urn:p> ?b }}", answers.append)
        for stream in "st":
            for at in range(1, 9):
                triple = ("<urn:a>", "<urn:p>", f"<urn:{stream}{at}>")
                engine.push(f"urn:{stream}", triple, at * 1_000)
    alone, shared = found
    assert [len(each.rows) for each in alone] == [2, 4, 6, 6, 6, 6, 6]
    assert [(e.at, sorted(e.rows)) for e in shared] == [(e.at, sorted(e.rows)) for e in alone]


def test_static_triples_are_kept_once_for_all_queries() -> None:
    """A query keeps those with partners."""
    held = []
    for count in (1, 20):
        engine = Engine()
        engine.add([(f"<urn:b{n}>", "<urn:near>", f"<urn:c{n}>") for n in range(500)])
        queries = [
            engine.register_csparql(
                "SELECT * FROM STREAM <urn:s> [RANGE 2m STEP 1m]"
                f" {{ ?a <urn:p> ?b . ?b <urn:near> ?c FILTER(?c != <urn:c{number}>) }}"
            )
            for number in range(count)
        ]
        engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:b7>"), 1)
        engine.advance(60_000)
        assert [len(each.rows) for query in queries for each in query] == [
            int(number != 7) for number in range(count)
        ]
        held.append(reached([engine], [])[1])
        for each in queries:
            each.close()
        assert len(engine.instants._shared_rows) == len(engine.dictionary) == 0
    assert held[1] - held[0] < 20 * 500


def test_queries_that_are_due_together_cost_as_many_calls_each() -> None:
    """Finding the next is logarithmic."""
    found = []
    for count in (50, 400):
        engine = Engine()
        for number in range(count):
            text = "SELECT * FROM STREAM <urn:s> [RANGE 2m STEP 1m] { ?a <urn:p> <urn:%s> }"
            engine.register_csparql(text.replace("%s", str(number)), _ignore)
        engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:b>"), 1)
        _calls(engine, 60_001)
        found.append(_calls(engine, 120_001) / count)
    assert found[1] == pytest.approx(found[0], rel=0.15)


def test_what_comes_into_a_window_concerns_those_whose_constants_it_has() -> None:
    found = []
    for count in (20, 220):
        answers: list[list[PeriodicAnswer]] = [[] for _ in range(count)]
        engine = Engine()
        for number, own in enumerate(answers):
            text = "SELECT * FROM STREAM <urn:s> [RANGE 2m STEP 1m] { ?a <urn:p> <urn:%s> }"
            engine.register_csparql(text % number, own.append)
        for at in range(1, 101):
            engine.push("urn:s", (f"<urn:a{at}>", "<urn:p>", "<urn:7>"), at)
        found.append(_calls(engine, 60_001))
        assert [len(own[0].rows) for own in answers] == [100 * (n == 7) for n in range(count)]
    few, many = found
    assert (many - few) / 200 < 150


def test_closed_queries_leave_nothing_behind() -> None:
    engine = Engine()
    kinds = [
        "SELECT * FROM STREAM <urn:s> [RANGE 2m STEP 1m] { ?a <urn:p> ?b }",
        "REGISTER STREAM made COMPUTED EVERY 1s AS CONSTRUCT { ?a <urn:q> ?b }"
        " FROM STREAM <urn:s> [RANGE 2m STEP 1m] { ?a <urn:p> ?b }",
        "SELECT * FROM STREAM <urn:s> [RANGE TRIPLES 2] { ?a <urn:p> ?b }",
    ]
    for at in range(1, 4):
        queries = [engine.register_csparql(text, _ignore) for text in kinds]
        engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:b>"), at * 60_000)
        for query in queries:
            query.close()
    assert (
        len(engine.queries),
        len(engine.instants.readers.windows),
        len(engine.instants.timetable),
    ) == (0, 0, 0)


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?s ?v FROM STREAM <urn:s> [RANGE 5s STEP 1s] WHERE {"
        " ?s <urn:p> ?v . ?s <urn:q> ?w FILTER(?v >= %d) }",
        "SELECT ?s FROM STREAM <urn:s> [RANGE 5s STEP 1s] WHERE {"
        " ?s <urn:p> ?v . ?s <urn:q> ?w } GROUP BY ?s HAVING (MAX(?v) >= %d)",
    ],
)
def test_queries_that_differ_in_a_constant_are_evaluated_once(text: str, *, between: bool) -> None:
    count = 200
    engine = Engine()
    queries = []
    for number in range(count):
        queries.append(engine.register_csparql(text % number))
        if between and number % 50 == 0:
            engine.push("urn:s", ("<urn:x>", "<urn:p>", "<urn:y>"), 1)
    for second in range(1, 8):
        for predicate in "pq":
            triple = "<urn:a>", f"<urn:{predicate}>", _integer(second)
            engine.push("urn:s", triple, second * 1_000)
    (evaluation,) = {each.evaluation for each in queries}
    told = "\n".join(queries[7].explain()["operators"])
    assert f"shared by queries with other constants: {count}" in told
    assert f">= {_integer(7)}" in told
    before, asked = evaluation.recomputed, evaluation.evaluations
    for predicate in "pq":
        engine.push("urn:s", ("<urn:b>", f"<urn:{predicate}>", _integer(99)), 8_000)
    engine.advance(8_000)
    assert evaluation.evaluations == asked + 2 * count
    assert evaluation.recomputed <= before + 2
    for number, each in enumerate(queries):
        *_, answer = each
        expected = {"<urn:b>"} if number <= 99 else set()
        assert {row[0] for row in answer.rows} == expected | ({"<urn:a>"} if number < 8 else set())
    for each in queries:
        each.close()
    assert not evaluation.questions
    assert len(engine.instants.readers.windows) == len(engine.instants._evaluations) == 0


def _integer(number: int) -> str:
    return f'"{number}"^^<http://www.w3.org/2001/XMLSchema#integer>'
