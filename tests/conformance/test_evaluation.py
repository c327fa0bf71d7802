"""The W3C's tests of SPARQL 1.0 and 1.1: evaluation, on the dataflow over graphs in memory."""

import csv
import io

import pytest

from annotations.terms import DEFAULT_GRAPH
from tests.support.evaluation import evaluate
from tests.support.memory_leaves import LookupLeaves, ScanningLeaves
from tests.support.w3c import (
    EVALUATED,
    SPARQL11,
    Case,
    cases,
    evaluations,
    expected_solutions,
    in_order,
    read_quads,
    same_answers,
    same_rows,
)
from tpf_client.dataflow.construct import construct
from tpf_client.errors import QuerySyntaxError
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.results import to_csv

pytestmark = pytest.mark.skipif(
    any(suite.missing for suite in EVALUATED), reason="the W3C tests are not in ../shared/data"
)

SKIPPED: dict[str, str] = {}
"""Names of tests, with the reason and the sentence of the specification."""

QUERIES = evaluations()
NEGATIVE = [case for case in cases(SPARQL11) if case.kind.startswith("NegativeSyntax")]


def test_no_kind_of_test_is_forgotten() -> None:
    assert len([c for c in QUERIES if c.suite == SPARQL11]) + len(NEGATIVE) == len(cases(SPARQL11))
    assert SKIPPED.keys() <= {case.name for case in QUERIES}


@pytest.mark.parametrize("kind", [ScanningLeaves, LookupLeaves])
@pytest.mark.parametrize("case", QUERIES, ids=lambda case: case.name)
def test_evaluation(case: Case, kind: type[ScanningLeaves]) -> None:
    if case.name in SKIPPED:
        pytest.skip(SKIPPED[case.name])
    assert case.result is not None
    query = parse_query(case.text, case.base)
    evaluation = evaluate(query, case.quads(), kind, case.base)
    rows = evaluation.rows()
    if query.form == "CONSTRUCT":
        made = set(construct(query.template, evaluation.variables, rows))
        wanted = {quad.triple for quad in read_quads(case.result, DEFAULT_GRAPH)}
        assert same_rows(sorted(made), sorted(wanted)), made
        return
    if case.result.suffix == ".csv":
        made_text = "".join(to_csv(evaluation.variables, rows))
        made_rows = sorted(csv.reader(io.StringIO(made_text)))
        assert made_rows == sorted(csv.reader(case.result.open(encoding="utf-8", newline="")))
        return
    expected = expected_solutions(case.result)
    if isinstance(expected, bool):
        assert query.form == "ASK"
        assert bool(rows) == expected
        return
    names, wanted_rows = expected
    assert {name[1:] for name in evaluation.variables} == set(names)
    places = [evaluation.variables.index(f"?{name}") for name in names]
    found = [tuple(row[p] for p in places) for row in rows]
    assert same_answers(case, found, wanted_rows), rows
    assert not case.name.startswith("1.0/sort/") or in_order(found, wanted_rows), rows


@pytest.mark.parametrize("case", NEGATIVE, ids=lambda case: case.name)
def test_negative_syntax(case: Case) -> None:
    with pytest.raises(QuerySyntaxError) as error:
        parse_query(case.text, case.base)
    assert error.value.line >= 1
    assert error.value.pointed.endswith("^")
