"""The builder: order, datasets, descriptions, saved work."""

import pytest

from annotations.namespaces import XSD
from annotations.terms import Quad, Term, literal
from tests.support.evaluation import NOW, Evaluation, evaluate
from tests.support.memory_leaves import LookupLeaves, ScanningLeaves
from tpf_client.dataflow.build.builder import build_query
from tpf_client.dataflow.build.construction import ServiceAccess
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow
from tpf_client.errors import SourceError, UnsupportedQueryError
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
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
    quad("b", "p", "d", "h"), quad("d", "p", "e", "i"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT ?g { GRAPH ?g { SELECT ?s { ?s :p ?o } LIMIT 1 } }", ["g", "h", "i"]),
        (
            "SELECT ?o { GRAPH ?g { SELECT ?o { ?s :p ?o } ORDER BY DESC(?o) LIMIT 1 } }",
            ["c", "d", "e"],
        ),
        ("SELECT ?o { GRAPH ?g { SELECT ?o { ?s :p ?o } ORDER BY ?o OFFSET 1 } }", ["d"]),
        (
            "SELECT ?g { GRAPH ?g { SELECT DISTINCT ?s { ?s ?p ?o } LIMIT 5 } }",
            ["g", "h", "h", "i"],
        ),
        ("SELECT ?o { GRAPH :h { SELECT ?o { ?s :p ?o } ORDER BY ?o LIMIT 1 } }", ["c"]),
        # A path through several graphs.
        ("SELECT ?o FROM :h FROM :i { ?o :p* :e }", ["b", "d", "e"]),
        ("SELECT ?o FROM :h FROM :i { VALUES ?s { :b } ?s (:p/:p)? ?o }", ["b", "e"]),
        ("SELECT ?o FROM :h FROM :i { :b :p+ ?o FILTER NOT EXISTS { :d :p+ ?o } }", ["d"]),
        ("SELECT ?o FROM :h FROM :i { :a :p ?x FILTER EXISTS { :b :p+ :e } BIND(1 AS ?o) }", ["1"]),
    ],
)
def test_limits_of_each_graph_and_paths_through_several(query: str, wanted: list[str]) -> None:
    assert sorted(row[0] for row in values(evaluate(P + query, NAMED))) == wanted


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { SERVICE <http://other/> { ?s ?p ?o } }",
        "SELECT * { SERVICE ?x { ?s ?p ?o } }",
        "SELECT * { ?s ?p ?o FILTER(<http://e/f>(?o)) }",
        "SELECT * { ?s ?p ?o FILTER EXISTS { ?a ?b ?c BIND(1 AS ?o) } }",
    ],
)
def test_what_cannot_be_evaluated_is_said_before_anything_runs(query: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        Evaluation(query)


def test_a_limit_for_each_graph_holds_while_graphs_change() -> None:
    query = P + "SELECT ?g ?o { GRAPH ?g { SELECT ?o { ?s :p ?o } ORDER BY ?o LIMIT 1 } }"
    evaluation = evaluate(query, NAMED)
    assert sorted(values(evaluation)) == [("g", "c"), ("h", "c"), ("i", "e")]
    evaluation.change(removed=[NAMED[2]], added=[quad("x", "p", "b", "g")])
    assert sorted(values(evaluation)) == [("g", "b"), ("h", "d"), ("i", "e")]
    evaluation.change(removed=[NAMED[4]])
    assert sorted(values(evaluation)) == [("g", "b"), ("h", "d")]


@pytest.mark.parametrize("kind", [ScanningLeaves, LookupLeaves])
def test_bind_inside_exists_of_a_variable_without_a_value_outside(kind: type) -> None:
    """Section 18.6: values are substituted, and a value cannot be bound."""
    query = (
        P
        + """SELECT ?s { ?s :p ?v OPTIONAL { ?s :r ?k }
        FILTER EXISTS { ?s :q ?w BIND(?w AS ?k) FILTER(?k = 1) } }"""
    )
    evaluation = evaluate(query, NUMBERS, kind)
    assert sorted(row[0] for row in values(evaluation)) == ["a", "b"]
    with pytest.raises(UnsupportedQueryError, match=r"BIND of \?k inside EXISTS"):
        evaluation.change(added=[quad("b", "r", 1)])


def test_service_is_asked_of_the_leaves_that_solutions_name() -> None:
    query = P + """SELECT ?s ?o { ?s :at ?e SERVICE ?e { ?s :p ?m . ?m :p* ?o } }"""
    flow = Dataflow(TermDictionary())
    here, one, two = (LookupLeaves(flow) for _ in range(3))
    environment = Environment(TypedTerms(flow.dictionary), NOW)
    output = build_query(
        parse_query(query),
        here,
        flow,
        environment,
        services=ServiceAccess(lambda name: {term("one"): one, term("two"): two}[name]),
    )

    def settle() -> set[tuple[str, ...]]:
        flow.flush()
        for _ in range(4):
            for leaves in (here, one, two):
                leaves.settle()
            flow.flush()
        return {
            tuple(flow.dictionary.decode(i).strip("<>").rpartition("/")[2] for i in row)
            for row in output.rows()
        }

    one.change([quad("a", "p", "b"), quad("b", "p", "c"), quad("x", "p", "y")], 1)
    two.change([quad("a", "p", "z"), quad("d", "p", "e")], 1)
    here.change([quad("a", "at", "one")], 1)
    assert settle() == {("a", "b"), ("a", "c")}
    assert two.requests == 0
    here.change([quad("d", "at", "two"), quad("x", "at", "two")], 1)
    assert settle() == {("a", "b"), ("a", "c"), ("d", "e")}
    here.change([quad("a", "at", "one")], -1)
    one.change([quad("b", "p", "c")], -1)
    assert settle() == {("d", "e")}
    here.change([quad("x", "at", "one")], 1)
    assert settle() == {("d", "e"), ("x", "y")}
    with pytest.raises(SourceError, match="not the IRI"):
        here.change([quad("x", "at", 1)], 1)
