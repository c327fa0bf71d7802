"""COUNT(DISTINCT *) with unbound values."""

import pytest

from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tests.support.evaluation import Evaluation, evaluate
from tests.support.memory_leaves import LookupLeaves, ScanningLeaves

A, B, P, Q = (Term(f"<http://e/{name}>") for name in "abpq")
DATA = [Quad(A, P, B, DEFAULT_GRAPH), Quad(B, P, A, DEFAULT_GRAPH), Quad(B, Q, A, DEFAULT_GRAPH)]


def _numbers(evaluation: Evaluation) -> list[tuple[int | None, ...]]:
    return sorted(
        tuple(None if term is None else int(term.split('"')[1]) for term in row)
        for row in evaluation.rows()
    )


@pytest.mark.parametrize("kind", [ScanningLeaves, LookupLeaves])
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (
            "SELECT (SUM(?v) AS ?n) (COUNT(DISTINCT *) AS ?m)"
            "{ VALUES (?x ?v) { (1 10) (UNDEF 10) } }",
            [(20, 2)],
        ),
        ("SELECT (COUNT(DISTINCT *) AS ?m) { VALUES ?x { UNDEF UNDEF 1 1 2 } }", [(3,)]),
        ("SELECT (COUNT(DISTINCT *) AS ?m) (COUNT(*) AS ?n) { :a :p :b }", [(1, 1)]),
        ("SELECT (COUNT(DISTINCT *) AS ?m) { :a :p :c }", [(0,)]),
        ("SELECT (COUNT(DISTINCT *) AS ?m) (COUNT(*) AS ?n) { [] :p [] }", [(1, 2)]),
        (
            "SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT *) AS ?m) (COUNT(?z) AS ?k)"
            "{ ?x :p ?y OPTIONAL { ?x :q ?z } { ?u :p ?v } UNION { ?u :q ?v } }",
            [(6, 4, 3)],
        ),
        (
            "SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT *) AS ?m) (SUM(?k) AS ?s)"
            "{ { SELECT ?y ?k { ?x ?p ?y VALUES ?k { 1 UNDEF } } } } GROUP BY ?y",
            [(2, 2, None), (4, 2, None)],
        ),
    ],
)
def test_rows_with_unbound_values(
    query: str, rows: list[tuple[int | None, ...]], kind: type[ScanningLeaves]
) -> None:
    assert _numbers(evaluate(f"PREFIX : <http://e/> {query}", DATA, kind)) == sorted(rows, key=str)


def test_under_changes() -> None:
    counted = "{ ?x :p ?y OPTIONAL { ?x :q ?z } }"
    evaluation = Evaluation(f"PREFIX : <http://e/> SELECT (COUNT(DISTINCT *) AS ?m) {counted}")
    evaluation.change(DATA)
    assert _numbers(evaluation) == [(2,)]
    evaluation.change(removed=DATA[2:])
    assert _numbers(evaluation) == [(2,)]
    evaluation.change(removed=DATA[:1])
    assert _numbers(evaluation) == [(1,)]
