"""What the builder makes of queries: order, datasets, descriptions, work that is spared."""

import pytest

from annotations.namespaces import XSD
from annotations.terms import Quad, Term, literal
from tests.support.evaluation import Evaluation, evaluate
from tests.support.memory_leaves import LookupLeaves
from tpf_client.dataflow.builder import build_query
from tpf_client.dataflow.changes import TermDictionary
from tpf_client.dataflow.node import Dataflow
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.parser import parse_query

P = "PREFIX : <http://e/> "


def term(text: str | int) -> Term:
    if isinstance(text, int):
        return literal(str(text), datatype=XSD + "integer")
    return Term(text if text.startswith("_:") or not text else f"<http://e/{text}>")


def quad(subject: str, predicate: str, object_: str | int, graph: str = "") -> Quad:
    return Quad(term(subject), term(predicate), term(object_), term(graph))


def values(evaluation: Evaluation) -> list[tuple[str, ...]]:
    short = {Term(f'"{n}"^^<{XSD}integer>'): str(n) for n in range(1100)}
    return [
        tuple("-" if t is None else short.get(t, t.strip("<>").rpartition("/")[2]) for t in row)
        for row in evaluation.rows()
    ]


NUMBERS = [
    quad("a", "p", 3), quad("b", "p", 1), quad("c", "p", 2), quad("d", "p", 2),
    quad("a", "q", 1), quad("b", "q", 1), quad("c", "q", 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT ?s { ?s :p ?v } ORDER BY ?v ?s", ["b", "c", "d", "a"]),
        ("SELECT ?s { ?s :p ?v } ORDER BY DESC(?v) ?s", ["a", "c", "d", "b"]),
        ("SELECT ?s { ?s :p ?v } ORDER BY DESC(?v) DESC(?s) LIMIT 2", ["a", "d"]),
        ("SELECT ?s { ?s :p ?v } ORDER BY ?v DESC(?s) LIMIT 2 OFFSET 1", ["d", "c"]),
        ("SELECT ?s { ?s :p ?v } ORDER BY (0 - ?v) ?s LIMIT 1", ["a"]),
        ("SELECT DISTINCT ?v { ?s :p ?v } ORDER BY DESC(?v)", ["3", "2", "1"]),
        # A hidden variable decides where the first copy of a distinct solution stands.
        ("SELECT DISTINCT ?w { ?s :p ?v ; :q ?w } ORDER BY DESC(?v)", ["1", "2"]),
        ("SELECT DISTINCT ?w { ?s :p ?v ; :q ?w } ORDER BY ?v OFFSET 1", ["2"]),
        ("SELECT ?s { ?s :p ?v OPTIONAL { ?s :q ?w } } ORDER BY ?w ?s", ["d", "a", "b", "c"]),
        ("SELECT ?v { ?s :p ?v } GROUP BY ?v ORDER BY COUNT(*) ?v", ["1", "3", "2"]),
        (
            "SELECT ?s { ?s :p ?v } ORDER BY DESC(EXISTS { ?s :q 1 }) ?s",
            ["a", "b", "c", "d"],
        ),
        ("SELECT ?x { { SELECT ?x { ?x :p ?v } ORDER BY ?v LIMIT 1 } }", ["b"]),
    ],
)
def test_order(query: str, wanted: list[str]) -> None:
    evaluation = Evaluation(P + query)
    evaluation.change(NUMBERS)
    assert [row[0] for row in values(evaluation)] == wanted
    # The same after everything has gone and come again.
    evaluation.change(removed=NUMBERS)
    assert values(evaluation) == []
    evaluation.change(added=reversed(NUMBERS))
    assert [row[0] for row in values(evaluation)] == wanted


NAMED = [
    quad("a", "p", "b"), quad("a", "p", "c", "g"), quad("a", "p", "c", "h"),
    quad("b", "p", "d", "h"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT ?o { :a :p ?o }", ["b"]),
        ("SELECT ?o FROM :g { :a :p ?o }", ["c"]),
        ("SELECT ?o FROM :g FROM :h { ?s :p ?o }", ["c", "d"]),
        ("SELECT ?o FROM NAMED :g { :a :p ?o }", []),
        ("SELECT ?g FROM NAMED :h { GRAPH ?g { :a :p :c } }", ["h"]),
        ("SELECT ?g { GRAPH ?g { :a :p ?o } }", ["g", "h"]),
        ("SELECT ?o FROM :g FROM NAMED :h { GRAPH :g { :a :p ?o } }", []),
        ("SELECT ?o FROM :h { :a :p ?o FILTER EXISTS { :b :p :d } }", ["c"]),
        ("SELECT ?o FROM :h { :b :p+ ?o }", ["d"]),
        ("SELECT ?g { GRAPH ?g { } }", ["g", "h"]),
        ("SELECT ?g { GRAPH ?g { :b :p* :d } }", ["h"]),
    ],
)
def test_datasets(query: str, wanted: list[str]) -> None:
    assert sorted(row[0] for row in values(evaluate(P + query, NAMED))) == wanted


def test_describe_follows_blank_nodes() -> None:
    quads = [
        quad("a", "p", "_:x"), quad("_:x", "p", "_:y"), quad("_:y", "p", "b"), quad("b", "p", 1),
        quad("c", "p", 2), quad("d", "q", "a"),
    ]  # fmt: skip
    described = evaluate(P + "DESCRIBE :c ?o { :d :q ?o }", quads)
    assert set(described.rows()) == {each.triple for each in (*quads[:3], quads[4])}
    described.change(removed=[quads[1]])
    assert set(described.rows()) == {quads[0].triple, quads[4].triple}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { SERVICE <http://other/> { ?s ?p ?o } }",
        "SELECT * { SERVICE ?x { ?s ?p ?o } }",
        "SELECT * { ?s ?p ?o FILTER(<http://e/f>(?o)) }",
        "SELECT * FROM <http://g/1> FROM <http://g/2> { ?s <http://e/p>* ?o }",
        "SELECT * { ?s ?p ?o FILTER EXISTS { ?a ?b ?c BIND(1 AS ?o) } }",
    ],
)
def test_what_cannot_be_evaluated_is_said_before_anything_runs(query: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        Evaluation(query)


def test_service_is_asked_of_its_own_leaves() -> None:
    from tests.support.evaluation import NOW
    from tpf_client.sparql.expressions.compiler import Environment
    from tpf_client.sparql.expressions.typed_terms import TypedTerms

    flow = Dataflow(TermDictionary())
    here, there = LookupLeaves(flow), LookupLeaves(flow)
    query = parse_query(P + "SELECT ?o { ?s :p ?m SERVICE <http://there/> { ?m :p ?o } }")
    environment = Environment(TypedTerms(flow.dictionary), NOW)
    output = build_query(query, here, flow, environment, services={"<http://there/>": there}.get)
    here.change([quad("a", "p", "b")], 1)
    there.change([quad("b", "p", "c"), quad("x", "p", "y")], 1)
    for leaves in (here, there):
        leaves.settle()
    assert [flow.dictionary.decode(*row) for row in output.rows()] == [term("c")]
    assert there.requests == 1


BOARD = [q for n in range(150) for q in (quad(f"s{n}", "p", f"o{n}"), quad(f"o{n}", "q", n))]


@pytest.mark.parametrize(
    "rest",
    [
        "?o :q ?v",
        "OPTIONAL { ?o :q ?v }",
        "FILTER EXISTS { ?o :q ?v }",
        "MINUS { ?o :r ?v }",
        "?o :q* ?v",
    ],
)
def test_what_the_left_side_knows_spares_requests(rest: str) -> None:
    query = P + f"SELECT * {{ VALUES ?s {{ :s1 :s2 }} ?s :p ?o {rest} }}"
    evaluation = evaluate(query, BOARD)
    assert isinstance(evaluation.leaves, LookupLeaves)
    assert evaluation.leaves.requests <= 12
    before = evaluation.leaves.requests
    evaluation.change(added=[quad("o1", "q", 1001)], removed=[quad("o1", "q", 1)])
    assert evaluation.leaves.requests - before <= 4
    assert {row[:2] for row in values(evaluation)} <= {("s1", "o1"), ("s2", "o2")}


def test_limit_is_satisfied_as_soon_as_it_is_full() -> None:
    from tpf_client.dataflow.slice import Slice

    evaluation = Evaluation(P + "SELECT * { ?s :p ?o } LIMIT 3")
    (limit,) = [node for node in evaluation.flow.nodes if isinstance(node, Slice)]
    evaluation.leaves.change(BOARD[:4], 1)
    assert not limit.satisfied
    evaluation.leaves.change(BOARD[4:6], 1)
    assert limit.satisfied
    assert len(evaluation.output) == 3
    assert limit.monotone
