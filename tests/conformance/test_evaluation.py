"""The W3C's evaluation tests of SPARQL 1.0, 1.1 and 1.2, over graphs in memory."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

import pyoxigraph as ox
import pytest

from annotations.terms import DEFAULT_GRAPH, Term
from tests.support.evaluation import evaluate
from tests.support.memory_leaves import LookupLeaves, ScanningLeaves
from tests.support.oracle import quad_of
from tests.support.w3c import (
    SPARQL11,
    SPARQL12,
    Case,
    cases,
    compared_rows,
    evaluations,
    expected_solutions,
    in_order,
    iri_of,
    needed,
    read_quads,
    same_rows,
)
from tpf_client.dataflow.construct import construct
from tpf_client.errors import QuerySyntaxError
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.results import to_csv

pytestmark = needed()

SKIPPED: dict[str, str] = {
    "1.2/expression/not-not": "SPARQL 1.1, section 17.2.2: the effective boolean value of an"
    " ill-typed boolean or number is false. The draft of SPARQL 1.2 makes it an error.",
}
"""Names of tests, with the reason and the sentence of the specification."""

QUERIES = evaluations()
TRIPLE_TERMS = [case for case in cases(SPARQL12) if case.kind == "QueryEvaluationTest"]
NEGATIVE = [case for case in cases(SPARQL11) if case.kind.startswith("NegativeSyntax")]


def test_no_kind_of_test_is_forgotten() -> None:
    assert len([c for c in QUERIES if c.suite == SPARQL11]) + len(NEGATIVE) == len(cases(SPARQL11))
    assert SKIPPED.keys() <= {case.name for case in (*QUERIES, *TRIPLE_TERMS)}
    assert len(TRIPLE_TERMS) > 50


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
    if query.form == "ASK":
        assert bool(rows) is expected_solutions(case.result)
        return
    names = [name[1:] for name in evaluation.variables]
    found, wanted_rows = compared_rows(case, names, rows)
    assert not case.name.startswith("1.0/sort/") or in_order(found, wanted_rows), rows


@pytest.mark.parametrize("case", TRIPLE_TERMS, ids=lambda case: case.name)
def test_evaluation_of_sparql_1_2(case: Case) -> None:
    """Answers are compared as graphs: triple terms may hold blank nodes."""
    if case.name in SKIPPED:
        pytest.skip(SKIPPED[case.name])
    assert case.result is not None
    query = parse_query(case.text, case.base)
    files = [(case.data, DEFAULT_GRAPH), *((p, Term(f"<{name}>")) for name, p in case.graphs)]
    quads = [
        quad if quad.graph else quad._replace(graph=graph)
        for path, graph in files
        if path is not None
        for quad in map(quad_of, ox.parse(path=str(path), base_iri=iri_of(path)))
    ]
    evaluation = evaluate(query, dict.fromkeys(quads), base=case.base)
    if query.form == "CONSTRUCT":
        made = construct(query.template, evaluation.variables, evaluation.rows())
        graph = map(quad_of, ox.parse(path=str(case.result), base_iri=iri_of(case.result)))
        assert _canonical(set(made)) == _canonical(graph)
        return
    expected = expected_solutions(case.result)
    if isinstance(expected, bool):
        assert bool(evaluation.rows()) == expected
        return
    names, wanted = expected
    assert {name[1:] for name in evaluation.variables} == set(names)
    order = [evaluation.variables.index(f"?{name}") for name in names]
    rows = [tuple(row[place] for place in order) for row in evaluation.rows()]
    assert _canonical(_as_triples(rows)) == _canonical(_as_triples(wanted)), rows


def _as_triples(rows: Iterable[Sequence[str | None]]) -> Iterator[tuple[str, str, str]]:
    for number, row in enumerate(rows):
        yield f"_:row{number}", "<urn:number>", f'"{len(row)}"'
        for place, term in enumerate(row):
            if term is not None:
                yield f"_:row{number}", f"<urn:p{place}>", term


def _canonical(triples: Iterable[Iterable[str]]) -> ox.Dataset:
    text = "".join(f"{' '.join(list(each)[:3])} .\n" for each in triples)
    found = ox.Dataset(ox.parse(text, ox.RdfFormat.N_TRIPLES))
    found.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return found


@pytest.mark.parametrize("case", NEGATIVE, ids=lambda case: case.name)
def test_negative_syntax(case: Case) -> None:
    with pytest.raises(QuerySyntaxError) as error:
        parse_query(case.text, case.base)
    assert error.value.line >= 1
    assert error.value.pointed.endswith("^")
