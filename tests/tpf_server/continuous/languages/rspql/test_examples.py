"""Queries with the clauses of the examples of papers 005 and 006 and of RSP4J, by hand."""

from functools import partial
from typing import Any

import pytest

from annotations.terms import Term
from tests.support.counted_calls import counted_calls
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.evaluation import AnswerRows

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
S = "http://x/s"
INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"
DATE_TIME = "^^<http://www.w3.org/2001/XMLSchema#dateTime>"


def term(text: str) -> str:
    return f'"{text}"{INTEGER}' if text.isdecimal() else f"<http://x/{text}>"


def triple(text: str) -> tuple[str, ...]:
    return tuple(map(term, text.split()))


def short(value: str | None) -> str:
    return (value or "").replace("<http://x/", "").replace(INTEGER, "").strip('">')


class Run:
    def __init__(self, query: str, *static: str, graph: str | None = None) -> None:
        self.engine = Engine()
        for each in static:
            self.engine.add([triple(each)], graph=graph)
        self.answers: list[PeriodicAnswer] = []
        text = f"PREFIX : <http://x/> BASE <http://x/> {query}"
        self.query = self.engine.register_rspql(text, self.answers.append)

    def push(self, *elements: tuple[int, str], stream: str = S, graph: str | None = None) -> "Run":
        name = None if graph is None else term(graph)
        for at, element in elements:
            self.engine.push(stream, [triple(each) for each in element.split(";")], at, name)
        return self

    @property
    def rows(self) -> list[tuple[int, list[tuple[str, ...]]]]:
        found = [
            (
                each.at,
                sorted(tuple(short(value) for value in row) for row in each.rows),
            )
            for each in self.answers
        ]
        return [(at, rows) for at, rows in found if rows]


def test_an_event_below_ten_degrees_is_streamed_once_as_a_graph() -> None:
    run = Run("""
        REGISTER ISTREAM <cold> AS
        CONSTRUCT { _:event :at ?time . GRAPH _:event { ?city :degrees ?d } }
        FROM NAMED WINDOW <w> ON <s> [RANGE PT10S STEP PT1S]
        WHERE { WINDOW <w> { ?city :degrees ?d } FILTER(?d < 10) BIND(1 AS ?time) }""")
    run.push(*((minute * MINUTE, f"berlin :{d}".replace(" :", " degrees ")) for minute, d in (
        (0, 12), (1, 12), (2, 11), (8, 9), (10, 8),
    )))  # fmt: skip
    run.engine.advance(11 * MINUTE)
    found = [(each.at, each.rows) for each in run.answers]
    assert [at for at, _ in found] == [8 * MINUTE, 10 * MINUTE]
    (about, inside) = found[0][1]
    assert about[1:] == (term("at"), term("1"), None)
    assert inside[:3] == triple("berlin degrees 9")
    assert inside[3] == about[0]
    assert str(about[0]).startswith("_:")


def test_now_is_the_instant_of_the_answer() -> None:
    run = Run("""
        REGISTER RSTREAM <o> REPORT WINDOW CLOSE, NON-EMPTY CONTENT AS
        SELECT ?city ?time FROM NAMED WINDOW <w> ON <s> [RANGE PT2S STEP PT1S]
        WHERE { WINDOW <w> { ?city :degrees ?d } BIND(NOW() AS ?time) }""")
    run.push((500, "berlin degrees 9"))
    run.engine.advance(10 * SECOND)
    assert [each.rows for each in run.answers] == [
        ((term("berlin"), f'"1970-01-01T00:00:02Z"{DATE_TIME}'),)
    ]


def test_the_most_profitable_places_as_a_stream_of_changes() -> None:
    run = Run("""
        REGISTER STREAM :profits AS
        CONSTRUCT ISTREAM { ?place :profit ?total }
        FROM NAMED WINDOW :w ON :s [RANGE PT30M STEP PT15M]
        WHERE {
          { SELECT (SUM(?amount) AS ?total) ?place
            WHERE { WINDOW :w { ?ride :from ?place . ?ride :amount ?amount } }
            GROUP BY ?place ORDER BY DESC(?total) LIMIT 1 } }""")
    run.push(
        (1 * MINUTE, "r1 from a;r1 amount 5"),
        (2 * MINUTE, "r2 from b;r2 amount 4"),
        (31 * MINUTE, "r3 from b;r3 amount 2"),
        (40 * MINUTE, "r4 from b;r4 amount 1"),
    )
    run.engine.advance(80 * MINUTE)
    # a has 5 by 30 minutes; at 45 the first two are gone, and b has 3; at 75 there is nobody.
    assert run.rows == [
        (30 * MINUTE, [("a", "profit", "5")]),
        (45 * MINUTE, [("b", "profit", "3")]),
    ]


def test_where_demand_rose_in_the_last_hour() -> None:
    run = Run(
        """
        REGISTER STREAM :rises AS
        SELECT ?place (COUNT(DISTINCT ?new) / COUNT(DISTINCT ?old) AS ?increase)
        FROM NAMED WINDOW :now ON :s [RANGE PT1H STEP PT1H]
        FROM NAMED WINDOW :before ON :s [FROM NOW-PT2H TO NOW-PT1H STEP PT1H]
        WHERE {
          ?place a :Quarter .
          WINDOW :now { ?new :pickup ?place }
          WINDOW :before { ?old :pickup ?place }
        } GROUP BY ?place HAVING (?increase >= 2)""",
    )
    rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    for place in ("a", "b"):
        run.engine.add([(term(place), f"<{rdf}>", term("Quarter"))])
    run.push(
        (10 * MINUTE, "r1 pickup a"),
        (20 * MINUTE, "r2 pickup b"),
        (70 * MINUTE, "r3 pickup a"),
        (80 * MINUTE, "r4 pickup a"),
        (90 * MINUTE, "r5 pickup b"),
    )
    run.engine.advance(2 * HOUR)
    decimal = "^^<http://www.w3.org/2001/XMLSchema#decimal>"
    assert [(at, [row[0] for row in rows]) for at, rows in run.rows] == [(2 * HOUR, ["a"])]
    assert run.answers[-1].rows[0][1] in (f'"2"{decimal}', f'"2.0"{decimal}')


def test_a_sensor_that_measures_more_than_another() -> None:
    run = Run("""
        REGISTER STREAM :q AS SELECT ?sensor ?o
        FROM NAMED WINDOW :w ON :s [RANGE PT5S STEP PT5S]
        WHERE {
          WINDOW :w {
            ?one :by :s1 ; :result [ :value ?v1 ] .
            ?o :by ?sensor ; :result [ :value ?v ] }
          FILTER(?v > ?v1) }""")
    run.push(
        (1_000, "o1 by s1;o1 result r1;r1 value 5"),
        (2_000, "o2 by s2;o2 result r2;r2 value 7"),
        (6_000, "o3 by s3;o3 result r3;r3 value 9"),
    )
    run.engine.advance(10_000)
    assert run.rows == [(5_000, [("s2", "o2")])]


def test_colours_of_two_streams() -> None:
    text = """
        REGISTER RSTREAM <o> AS SELECT ?w ?x
        FROM NAMED WINDOW <red> ON <s> [RANGE PT15S STEP PT5S]
        FROM NAMED WINDOW <blue> [RANGE 15 s, SLIDE 5s] ON STREAM <t>
        WHERE { { WINDOW ?w { ?x :is :Warm } } UNION { WINDOW ?w { ?x :is :Cold } } }"""
    run = Run(text)
    run.push((1_000, "r is Warm")).push((2_000, "b is Cold"), stream="http://x/t")
    run.engine.advance(15_000)
    assert run.rows == [(15_000, [("blue", "b"), ("red", "r")])]


def test_a_window_inside_of_which_the_variable_of_the_window_occurs() -> None:
    run = Run("""
        SELECT ?w ?x
        FROM NAMED WINDOW <one> ON <s> [RANGE 5s]
        FROM NAMED WINDOW <two> ON <s> [RANGE 5s]
        WHERE { WINDOW ?w { _:b :in ?w ; :of ?x } }""")
    run.push((1_000, "e in two;e of x"))
    run.engine.advance(5_000)
    assert run.rows == [(5_000, [("two", "x")])]


def test_the_bar_that_was_a_galeotto() -> None:
    run = Run(
        """
        REGISTER STREAM :Galeotto AS
        CONSTRUCT ISTREAM { ?bar :for ?she , ?he }
        FROM NAMED WINDOW :veryLong ON :s [RANGE PT4H STEP PT1H]
        FROM NAMED WINDOW :long ON :s [FROM NOW-PT35M TO NOW-PT5M STEP PT5M]
        FROM NAMED WINDOW :short ON :s [RANGE PT10M STEP PT5M]
        FROM NAMED GRAPH :social
        WHERE {
          WINDOW :veryLong {
            { ?she :enters ?bar } BEGIN AT ?t3
            { ?he :enters ?bar } BEGIN AT ?t4
            FILTER(?t3 > ?t4) }
          WINDOW :long {
            ?she :close ?he MINUS { ?she :close ?other . ?other :is :waiter } }
          WINDOW :short {
            { ?she :exits ?bar } BEGIN AT ?t1
            { ?he :exits ?bar } BEGIN AT ?t2
            FILTER(ABS(?t2 - ?t1) < 60000) }
          GRAPH :social { ?she :single 1 }
          FILTER NOT EXISTS { GRAPH :social { ?she :knows ?he } }
          FILTER(?she != ?he) }""",
        "francesca single 1",
        "anna single 1",
        "anna knows paolo",
        graph="http://x/social",
    )
    run.push(
        (10 * MINUTE, "paolo enters bar"),
        (20 * MINUTE, "francesca enters bar"),
        (21 * MINUTE, "anna enters bar"),
        (3 * HOUR + 40 * MINUTE, "francesca close paolo"),
        (3 * HOUR + 40 * MINUTE, "anna close paolo"),
        (3 * HOUR + 59 * MINUTE, "paolo exits bar"),
        (3 * HOUR + 59 * MINUTE + 30_000, "francesca exits bar"),
        (3 * HOUR + 59 * MINUTE + 40_000, "anna exits bar"),
    )
    run.engine.advance(4 * HOUR)
    assert run.rows == [(4 * HOUR, [("bar", "for", "francesca"), ("bar", "for", "paolo")])]


def test_forms() -> None:
    windows = "FROM NAMED WINDOW <w> ON <s> [RANGE 2s STEP 1s] WHERE { WINDOW <w> { ?x :a ?y } }"
    asked = Run(f"REGISTER ISTREAM <o> AS ASK {windows}").push((500, "e a 1"), (9_000, "e a 1"))
    assert [(each.at, each.boolean) for each in asked.answers] == [(2_000, True)]
    ended = Run(f"REGISTER DSTREAM <o> AS SELECT ?x {windows}").push(
        (500, "e a 1"), (9_000, "e a 2")
    )
    assert ended.rows == [(3_000, [("e",)])]
    described = Run(f"REGISTER ISTREAM <o> AS DESCRIBE ?y {windows}", "k c 7")
    described.push((500, "e a k"), (9_000, "e a k"))
    assert described.rows == [(2_000, [("k", "c", "7")])]


@pytest.mark.parametrize("head", ["", " REPORT CONTENT CHANGE TICK TUPLE", " TICK BATCH"])
def test_an_output_stream_is_read_by_queries_of_all_languages(head: str) -> None:
    run = Run(f"""
        REGISTER ISTREAM <o>{head} AS CONSTRUCT {{ ?y :b ?x }}
        FROM NAMED WINDOW <w> ON <s> [RANGE 2s STEP 1s] WHERE {{ WINDOW <w> {{ ?x :a ?y }} }}""")
    seen: list[tuple[str, int]] = []
    run.engine.register_rspql(
        "PREFIX : <http://x/> REGISTER ISTREAM <p> REPORT CONTENT CHANGE AS"
        " SELECT ?x FROM NAMED WINDOW :v ON :o [RANGE 5s STEP 1s] { WINDOW :v { ?y :b ?x } }",
        lambda answer: seen.append(("rspql", answer.at)),
    )
    run.engine.register_csparql(
        "PREFIX : <http://x/> SELECT ?x FROM STREAM :o [RANGE 5s STEP 1s] { ?y :b ?x }",
        lambda answer: seen.append(("csparql", answer.at)),
    )
    run.push((1_500, "e a k"), (2_000, "f a k"), (3_000, "g a k"), (4_000, "g a k"))
    made = run.rows[0][0]
    assert ("rspql", made) in seen
    assert ("csparql", 2_000) in seen
    assert made == (1_500 if "TUPLE" in head else 2_000)


@pytest.mark.parametrize("operator", ["ISTREAM", "DSTREAM"])
def test_what_changed_is_told_without_reading_the_whole_answer(
    operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[int] = []
    rows = AnswerRows.rows

    def counted(self: AnswerRows) -> Any:
        found = rows(self)
        whole.append(len(found))
        return found

    monkeypatch.setattr(AnswerRows, "rows", counted)
    text = f"""
        REGISTER {operator} <o> REPORT CONTENT CHANGE TICK TUPLE AS SELECT ?x ?y
        FROM NAMED WINDOW <w> ON <s> [RANGE 1s STEP 1s] WHERE {{ WINDOW <w> {{ ?x :a ?y }} }}"""
    run = Run(text).push(*((n, f"e{n} a 1") for n in range(1, 901)), (1_001, "e a 2"))
    assert sum(whole) <= 1
    if operator == "DSTREAM":
        assert [(at, len(rows)) for at, rows in run.rows] == [(1_001, 900)]
        return
    assert run.rows == [*((n, [(f"e{n}", "1")]) for n in range(1, 901)), (1_001, [("e", "2")])]
    # Where rows have an order, answers are compared as wholes, and told in it.
    ordered = Run(f"{text} ORDER BY DESC(?x)").push((1, "a a 1;b a 1"), (2, "c a 1;d a 1"))
    assert sum(whole) > 4
    names = [[str(row[0])[-2] for row in each.rows] for each in ordered.answers]
    assert names == [["b", "a"], ["d", "c"]]


TRIPS = """
    CONSTRUCT ISTREAM { GRAPH ?g { ?s ?p ?o } ?g ?p2 ?o2 }
    FROM NAMED WINDOW :w ON :s [RANGE PT1S]
    WHERE {
      WINDOW :w {
        GRAPH ?g { ?ride :distance ?distance FILTER (?distance > 2) ?s ?p ?o }
        ?g ?p2 ?o2
      }
    }"""


def test_graphs_of_elements_are_filtered_and_passed_on() -> None:
    run = Run(f"REGISTER STREAM :far AS {TRIPS}")
    long = (
        "SELECT * FROM NAMED WINDOW :v ON :far [RANGE PT5S] { WINDOW :v { GRAPH ?g { ?s ?p ?o } } }"
    )
    fed: list[PeriodicAnswer] = []
    run.engine.register_rspql(f"PREFIX : <http://x/> {long}", fed.append)
    run.push((100, "ride1 distance 3;ride1 taxi t1"), graph="trip1")
    run.push((200, "ride2 distance 1"), graph="trip2")
    run.push((300, "trip1 at 7;trip2 at 8"), (6 * SECOND, "x y z"))
    run.engine.finish()
    assert run.rows == [
        (
            SECOND,
            [
                ("ride1", "distance", "3", "trip1"),
                ("ride1", "taxi", "t1", "trip1"),
                ("trip1", "at", "7", ""),
            ],
        )
    ]
    assert {row[0] for row in fed[0].rows} == {"<http://x/trip1>"}
    assert len(fed[0].rows) == 2


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("GRAPH ?g { ?s :p ?o }", "g a 1; h a 1; h b 2"),
        ("GRAPH :h { ?s :p ?o }", "a 1; b 2"),
        ("GRAPH :k { ?s :p ?o }", ""),
        ("?s :p ?o", "a 1; a 2; b 2"),
        ("GRAPH ?g { }", "g; h"),
        ("GRAPH ?g { ?s :p ?g }", ""),
        ("GRAPH ?g { ?g :in ?o }", "g 5"),
        ("GRAPH ?g { SELECT (COUNT(*) AS ?n) { ?s :p ?o } }", "g 1; h 2"),
        ("GRAPH ?g { ?s :p 2 } GRAPH ?k { ?t :p 1 }", "h b g a; h b h a"),
        ("GRAPH ?g { ?s :p 1 } GRAPH ?g { ?t :p 2 }", "h a b"),
        ("?s :p ?o FILTER NOT EXISTS { GRAPH ?g { ?s :p ?o } }", "a 2"),
        ("GRAPH :g { ?s (:p|:in)+ ?o }", "a 1; g 5"),
        ("GRAPH ?g { ?s :p ?o MINUS { ?s :p 1 } }", "h b 2"),
        ("GRAPH ?g { ?s :in ?o } OPTIONAL { GRAPH ?g { ?s :p ?x } }", "g g 5 -"),
    ],
)
@pytest.mark.parametrize("window", ["[RANGE 1s STEP 1s]", "[ELEMENTS 3]"])
def test_graph_inside_window(where: str, expected: str, window: str) -> None:
    text = f"SELECT * FROM NAMED WINDOW :w ON :s {window} {{ WINDOW :w {{ {where} }} }}"
    run = Run(text)
    run.push((1, "a p 1;g in 5"), graph="g").push((2, "a p 1;b p 2"), graph="h").push((3, "a p 2"))
    run.engine.finish()
    shown = [tuple(short(value) for value in row) for row in run.answers[-1].rows]
    wanted = [tuple(each.replace("-", "").split(" ")) for each in expected.split("; ") if each]
    assert sorted(shown) == sorted(wanted)


def test_graphs_are_kept_only_where_a_query_asks_for_them() -> None:
    run = Run("SELECT ?s FROM NAMED WINDOW :w ON :s [RANGE 1s] { WINDOW :w { ?s :p ?o } }")
    run.push((1, "a p 1"), graph="g")
    assert [each["elements"] for each in run.query.explain()["windows"]] == [1]
    asking = run.engine.register_rspql(
        "PREFIX : <http://x/> "
        "SELECT ?g FROM NAMED WINDOW :w ON :s [RANGE 1s] { WINDOW :w { GRAPH ?g { ?s :p ?o } } }",
    )
    run.push((2, "a p 2"), graph="h").push((3, "a p 3"))
    windows = asking.explain()["windows"]
    assert [(each["elements"], each.get("graphs", False)) for each in windows] == [
        (2, False),
        (1, True),
    ]
    asking.close()
    run.push((4, "a p 4"), graph="h")
    run.engine.finish()
    assert run.rows == [(SECOND, [("a",)] * 4)]


@pytest.mark.parametrize("operator", ["ISTREAM", "DSTREAM"])
@pytest.mark.parametrize("template", ["{ ?b :of ?a }", "{ GRAPH ?b { ?a :of ?a } }"])
def test_what_makes_no_triple_is_no_answer_of_a_difference(operator, template):
    """A literal is no subject, and no graph."""
    engine = Engine()
    query = engine.register_rspql(
        f"PREFIX : <http://x/> REGISTER {operator} <o> AS CONSTRUCT {template}"
        " FROM NAMED WINDOW :w ON :s [RANGE 1s STEP 1s] WHERE { WINDOW :w { ?a :is ?b } }",
    )
    for at, value in ((500, '"1"'), (1_500, "<http://x/thing>"), (2_500, '"2"')):
        engine.push("http://x/s", ("<http://x/a>", "<http://x/is>", value), at)
    engine.advance(4_000)
    # The thing comes at 2 s, and goes at 3 s.
    assert [(each.at, len(each.rows)) for each in query] == [
        (2_000 if operator == "ISTREAM" else 3_000, 1)
    ]


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize(
    "report", ["WINDOW CLOSE TICK TUPLE", "CONTENT CHANGE TICK TUPLE", "WINDOW CLOSE TICK TIME"]
)
@pytest.mark.parametrize("shape", ["?x :a ?y", "?x :a ?y FILTER(?y = %d)", "?x :a %d"])
def test_queries_are_looked_at_together(shape: str, report: str, between: bool) -> None:
    """Also those that came between elements, once their windows have passed."""
    found = []
    for count in (10, 110):
        engine = Engine()
        answers: list[PeriodicAnswer] = []
        for number in range(count):
            body = shape % (number + 1_000) if "%" in shape else shape
            engine.register_rspql(
                f"PREFIX : <http://x/> REGISTER ISTREAM <http://x/o{number}> REPORT {report}"
                " AS SELECT ?x FROM NAMED WINDOW :w ON :s [RANGE 100ms STEP 10ms]"
                f" {{ WINDOW :w {{ {body} }} }}",
                answers.append,
            )
            if between:
                engine.push(S, [triple("b a 1")], number)
        for at in range(200, 900, 7):
            engine.push(S, [triple("b a 1")], at)
        answers.clear()
        push = partial(engine.push, S, [triple("b a 1")])
        found.append(counted_calls(lambda: [push(at) for at in range(1_000, 1_070, 7)]))  # noqa: B023
        assert not answers
    few, many = found
    assert (many - few) / 100 < 1, "those whom ten elements do not concern are not asked"


@pytest.mark.parametrize("report", ["CONTENT CHANGE", "NON-EMPTY CONTENT"])
def test_queries_that_see_other_elements_are_looked_at_together(report: str) -> None:
    found = []
    for count in (10, 110):
        engine = Engine()
        answers: list[PeriodicAnswer] = []
        for number in range(count):
            engine.register_rspql(
                f"PREFIX : <http://x/> REGISTER ISTREAM <http://x/o{number}> REPORT {report}"
                " TICK TUPLE AS SELECT ?x FROM NAMED WINDOW :w ON :s [RANGE PT1H STEP PT1S]"
                f" {{ WINDOW :w {{ ?x :a ?y FILTER(?y = {number + 1_000}) }} }}",
                answers.append,
            )
            engine.push(S, [triple("b a 1")], number)
        push = partial(engine.push, S, [triple("b a 1")])
        found.append(counted_calls(lambda: [push(at) for at in range(1_000, 1_070, 7)]))  # noqa: B023
        engine.push(S, [triple("c a 1005")], 2_000)
        assert [(each.at, each.rows) for each in answers] == [(2_000, (("<http://x/c>",),))]
    few, many = found
    assert (many - few) / 100 < 1


@pytest.mark.parametrize("tick", ["TIME", "TUPLE", "BATCH"])
@pytest.mark.parametrize(
    "report", ["WINDOW CLOSE", "CONTENT CHANGE", "WINDOW CLOSE, NON-EMPTY CONTENT"]
)
def test_late_queries_have_one_trigger_when_nothing_is_hidden(report: str, tick: str) -> None:
    engine = Engine()
    queries = []
    for number in range(9):
        stream = ("ISTREAM", "DSTREAM")[number % 2]
        queries.append(
            engine.register_rspql(
                f"PREFIX : <http://x/> REGISTER {stream} :o{number} REPORT {report} TICK {tick} AS"
                " SELECT ?x FROM NAMED WINDOW :w ON :s [RANGE 100ms STEP 10ms]"
                " { WINDOW :w { ?x :a ?y } }"
            )
        )
        engine.push(S, [triple(f"b a {number}")], number)
    for at in range(20, 400, 7):
        engine.push(S, [triple("b a 1")], at)
    assert len({each.trigger for each in queries}) == 1
    assert len({each.evaluation for each in queries}) == (9 if tick == "BATCH" else 1)
    for each in queries:
        each.close()
    assert not engine.instants.timetable.follows(Term(f"<{S}>"))
    assert len(engine.instants.readers.windows) == len(engine.instants._evaluations) == 0


@pytest.mark.parametrize("tick", ["TIME", "TUPLE", "BATCH"])
@pytest.mark.parametrize("report", ["WINDOW CLOSE, NON-EMPTY CONTENT", "CONTENT CHANGE"])
def test_a_late_query_does_not_report_what_only_others_see(report: str, tick: str) -> None:
    found = []
    for others in (0, 1):
        engine = Engine()
        text = (
            f"PREFIX : <http://x/> REGISTER ISTREAM :o%d REPORT {report} TICK {tick} AS SELECT"
            " (COUNT(*) AS ?n) FROM NAMED WINDOW :w ON :s [RANGE 4ms STEP 1ms]"
            " { WINDOW :w { ?x :a ?y } }"
        )
        for number in range(others):
            engine.register_rspql(text % number)
        engine.register_csparql(f"SELECT * FROM STREAM <{S}> [RANGE 1ms STEP 1ms] {{ ?a ?p ?b }}")
        for at in (10, 20):
            engine.push(S, [triple("a a 1")], at)
        answers: list[PeriodicAnswer] = []
        engine.register_rspql(text % 9, answers.append)
        for at in (12, 30, 31):
            engine.push(S, [triple(f"b a {at}")], at)
        engine.finish()
        found.append([(each.at, each.rows) for each in answers])
    assert found[0] == found[1]


def test_to_register_a_query_costs_the_same_beside_any_number() -> None:
    """Each makes a stream that nobody reads."""
    engine = Engine()

    def register(number: int) -> int:
        text = "PREFIX : <http://x/> REGISTER ISTREAM :o%d AS SELECT ?x FROM NAMED WINDOW :w ON :s"
        text += " [RANGE 100ms STEP 10ms] { WINDOW :w { ?x :a ?y FILTER(?y = %d) } }"
        return counted_calls(lambda: engine.register_rspql(text % (number, number)))

    found = [register(number) for number in range(200)]
    assert sum(found[150:]) <= 1.05 * sum(found[50:100])


def test_an_element_that_is_late_is_looked_at_where_the_windows_are() -> None:
    """With others over the same stream or without, for a query that came after newer ones."""
    found = []
    for others in (0, 1, 5):
        engine = Engine()
        engine.register_csparql(f"SELECT * FROM STREAM <{S}> [RANGE 1s STEP 1s] {{ ?a ?p ?b }}")
        for number in range(others):
            engine.register_rspql(_late_text(f"other{number}"))
        engine.push(S, [triple("a p 1")], 46)
        answers: list[PeriodicAnswer] = []
        engine.register_rspql(_late_text("own"), answers.append)
        for at in (44, 47, 51):
            engine.push(S, [triple(f"a p {at}")], at)
        found.append([(each.at, each.rows) for each in answers])
    assert found[0] == found[1] == found[2]
    assert found[0]


def _late_text(name: str) -> str:
    return (
        f"PREFIX : <http://x/> REGISTER DSTREAM :{name} REPORT NON-EMPTY CONTENT TICK TUPLE AS"
        " SELECT ?b FROM NAMED WINDOW :w ON :s [RANGE 4ms STEP 4ms] { WINDOW :w { ?a :p ?b } }"
    )
