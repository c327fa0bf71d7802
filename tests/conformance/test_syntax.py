"""The W3C's syntax tests of SPARQL 1.0, 1.1 and 1.2, and of result formats."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyoxigraph as ox
import pytest

from annotations.terms import DEFAULT_GRAPH, Term, Variable
from tests.support.evaluation import evaluate
from tests.support.oracle import quad_of, solutions_of
from tests.support.w3c import DATA, MF, QT, needed, same_rows
from tpf_client.errors import QuerySyntaxError
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.results import BOOLEAN_WRITERS, RESULT_WRITERS

BASE = "http://www.w3.org/tests/"

pytestmark = needed()

SKIPPED: dict[str, str] = {}
"""Tests that fail, each with the reason: none."""


class Case(NamedTuple):
    """One test."""

    name: str
    kind: str
    query: Path
    data: Path | None
    result: Path | None


def _cases(*folders: str) -> Iterator[Case]:
    for folder in folders:
        for manifest in sorted((DATA / folder).glob("**/manifest.ttl")):
            base = BASE + str(manifest.relative_to(DATA))
            store = ox.Store()
            store.load(path=str(manifest), base_iri=base)
            for row in solutions_of(
                store,
                f"""PREFIX mf: <{MF}> PREFIX qt: <{QT}>
                SELECT ?test ?kind ?query ?data ?result {{
                  ?test a ?kind ; mf:action ?action .
                  OPTIONAL {{ ?action qt:query ?q }} BIND(COALESCE(?q, ?action) AS ?query)
                  OPTIONAL {{ ?action qt:data ?data }} OPTIONAL {{ ?test mf:result ?result }} }}""",
            ):
                files = [
                    each and DATA / each.value.removeprefix(BASE)
                    for each in (row["query"], row["data"], row["result"])
                ]
                name = f"{manifest.parent.relative_to(DATA)}/{row['test'].value.split('#')[-1]}"
                yield Case(name, row["kind"].value.removeprefix(MF), *files)


SYNTAX = [
    case
    for case in _cases("w3c-sparql10", "w3c-sparql11", "w3c-sparql11-more", "w3c-sparql12")
    if "SyntaxTest" in case.kind and "Update" not in case.kind
]
FORMATS = list(_cases("w3c-sparql11-more/csv-tsv-res", "w3c-sparql11-more/json-res"))


def test_the_suites_are_all_here() -> None:
    counts = {kind: sum(kind in case.kind for case in SYNTAX) for kind in ("Positive", "Negative")}
    assert counts["Positive"] >= 200
    assert counts["Negative"] >= 70
    assert len(FORMATS) == 10
    assert SKIPPED.keys() <= {case.name for case in (*SYNTAX, *FORMATS)}


@pytest.mark.parametrize("case", SYNTAX, ids=lambda case: case.name)
def test_syntax(case: Case) -> None:
    if case.name in SKIPPED:
        pytest.skip(SKIPPED[case.name])
    text = case.query.read_text(encoding="utf-8")
    if "Positive" in case.kind:
        parse_query(text, BASE)
        return
    with pytest.raises(QuerySyntaxError) as error:
        parse_query(text, BASE)
    assert error.value.pointed.endswith("^")


@pytest.mark.parametrize("case", FORMATS, ids=lambda case: case.name)
def test_result_formats(case: Case) -> None:
    assert case.data is not None
    assert case.result is not None
    parsed = ox.parse(path=str(case.data), format=ox.RdfFormat.TURTLE, base_iri=BASE)
    quads = [quad_of(quad)._replace(graph=DEFAULT_GRAPH) for quad in parsed]
    query = parse_query(case.query.read_text(encoding="utf-8"), BASE)
    evaluation = evaluate(query, quads)
    rows = evaluation.rows()
    form = {".srj": "json"}.get(case.result.suffix, case.result.suffix[1:])
    if form == "csv":
        text = "".join(RESULT_WRITERS[form](evaluation.variables, rows))
        wanted = case.result.read_text(encoding="utf-8")
        made, expected = (
            sorted(_without_labels(csv.reader(io.StringIO(each)))) for each in (text, wanted)
        )
        assert made == expected
        return
    if query.form == "ASK":
        truth = ox.parse_query_results(
            BOOLEAN_WRITERS[form](bool(rows)).encode(), format=ox.QueryResultsFormat.JSON
        )
        wanted_truth = ox.parse_query_results(
            path=str(case.result), format=ox.QueryResultsFormat.JSON
        )
        assert bool(truth) == bool(wanted_truth)
        return
    kind = ox.QueryResultsFormat.from_extension(form if form != "json" else "srj")
    text = "".join(RESULT_WRITERS[form](evaluation.variables, rows))
    ours = ox.parse_query_results(text.encode(), format=kind)
    theirs = ox.parse_query_results(path=str(case.result), format=kind)
    assert isinstance(ours, ox.QuerySolutions)
    assert isinstance(theirs, ox.QuerySolutions)
    names, made_rows = _read(ours)
    wanted_names, wanted_rows = _read(theirs)
    assert set(names) == set(wanted_names)
    places = [names.index(name) for name in wanted_names]
    assert same_rows([tuple(row[place] for place in places) for row in made_rows], wanted_rows)


def _without_labels(rows: Iterator[list[str]]) -> list[list[str]]:
    return [["_:" if cell.startswith("_:") else cell for cell in row] for row in rows]


def _read(results: ox.QuerySolutions) -> tuple[list[Variable], list[tuple[Term | None, ...]]]:
    names = [each.value for each in results.variables]
    rows = [tuple(row[name] and Term(str(row[name])) for name in names) for row in results]
    return [Variable(name) for name in names], rows
