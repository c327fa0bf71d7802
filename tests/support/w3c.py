"""The W3C's SPARQL evaluation tests: manifests, data, expected results and their comparison."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyoxigraph as ox
import pytest

from annotations.namespaces import XSD
from annotations.terms import DEFAULT_GRAPH, Quad, Term, iri_value, is_blank_node
from tests.support.oracle import solutions_of, term_of
from tpf_client.sparql.expressions.values import INTEGER_TYPES, Opaque, lexical_of, value_of
from tpf_client.sparql.parser import parse_query

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
DATA = SHARED if (SHARED / "w3c-sparql11").is_dir() else ROOT / ".run" / "w3c"

MF = "http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#"
QT = "http://www.w3.org/2001/sw/DataAccess/tests/test-query#"
RS = "http://www.w3.org/2001/sw/DataAccess/tests/result-set#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
NUMERIC_TYPES = INTEGER_TYPES | {XSD + name for name in ("decimal", "float", "double")}


class Suite(NamedTuple):
    """The tests of one version of SPARQL: where they are here, and where published."""

    version: str
    folder: Path
    base: str

    @property
    def missing(self) -> bool:
        return not self.folder.is_dir()


SPARQL10 = Suite(
    "1.0", DATA / "w3c-sparql10", "http://www.w3.org/2001/sw/DataAccess/tests/data-r2/"
)
SPARQL11 = Suite(
    "1.1", DATA / "w3c-sparql11", "http://www.w3.org/2009/sparql/docs/tests/data-sparql11/"
)
SPARQL12 = Suite("1.2", DATA / "w3c-sparql12", "https://w3c.github.io/rdf-tests/sparql/sparql12/")
EVALUATED = (SPARQL10, SPARQL11)
"""The suites all of whose evaluation tests are run everywhere."""


def needed() -> pytest.MarkDecorator:
    """Skip tests where the suites are missing, or fail where they are required.

    Raises:
        FileNotFoundError: they are missing, and `W3C_SUITES` is ``required``.
    """
    missing = [suite.folder.name for suite in (*EVALUATED, SPARQL12) if suite.missing]
    reason = f"no {', '.join(missing)} in {DATA}: run tests/conformance/fetch"
    if missing and os.environ.get("W3C_SUITES") == "required":
        raise FileNotFoundError(reason)
    return pytest.mark.skipif(bool(missing), reason=reason)


def iri_of(path: Path) -> str:
    """Return the published IRI of a file."""
    suite = next(s for s in (*EVALUATED, SPARQL12) if path.is_relative_to(s.folder))
    return suite.base + str(path.relative_to(suite.folder))


class Case(NamedTuple):
    """One test of a manifest."""

    suite: Suite
    name: str
    kind: str
    query: Path
    data: Path | None
    graphs: tuple[tuple[str, Path], ...]
    result: Path | None
    lax: bool = False
    """Whether rows may come more or less often than the result says (REDUCED)."""

    @property
    def base(self) -> str:
        return iri_of(self.query)

    @property
    def text(self) -> str:
        return self.query.read_text(encoding="utf-8")

    def quads(self) -> list[Quad]:
        """Return the dataset; where the manifest names none, the graphs that the query names."""
        found = [] if self.data is None else list(read_quads(self.data, DEFAULT_GRAPH))
        graphs = list(self.graphs)
        if self.data is None and not graphs:
            dataset = parse_query(self.text, self.base).dataset
            folder = self.query.parent
            names = dict.fromkeys(map(iri_value, dataset.default + dataset.named))
            graphs = [(name, folder / name.rpartition("/")[2]) for name in names]
        for name, path in graphs:
            found += read_quads(path, Term(f"<{name}>"))
        return found


def read_quads(path: Path, graph: Term) -> Iterator[Quad]:
    """Return the triples of a file, in a graph; blank nodes are told apart by file."""
    name = path.stem.replace("-", "")
    form = ox.RdfFormat.from_extension(path.suffix[1:])
    assert form is not None
    for quad in ox.parse(path=str(path), format=form, base_iri=iri_of(path)):
        terms = [term_of(each) for each in (quad.subject, quad.predicate, quad.object)]
        terms = [Term(f"_:{name}{each[2:]}") if is_blank_node(each) else each for each in terms]
        subject, predicate, value = terms
        yield Quad(subject, predicate, value, term_of(quad.graph_name) or graph)


def cases(suite: Suite) -> list[Case]:
    """Return all tests of all manifests."""
    found: list[Case] = []
    for manifest in sorted(suite.folder.glob("*/manifest.ttl")):
        base = f"{suite.base}{manifest.parent.name}/"
        store = ox.Store()
        store.load(path=str(manifest), base_iri=base + "manifest.ttl")
        rows = solutions_of(
            store,
            f"""PREFIX mf: <{MF}> PREFIX qt: <{QT}> PREFIX rdf: <{RDF}> PREFIX rdfs: <{RDFS}>
            SELECT ?test ?kind ?query ?data ?result ?action ?lax {{
              ?list rdf:first ?test . ?test a ?kind ; mf:action ?action .
              OPTIONAL {{ ?action qt:query ?q . OPTIONAL {{ ?action qt:data ?data }} }}
              BIND(COALESCE(?q, ?action) AS ?query)
              OPTIONAL {{ ?test mf:result ?result }}
              BIND(EXISTS {{ ?test mf:resultCardinality mf:LaxCardinality }} AS ?lax) }}""",
        )
        for row in rows:
            graphs = solutions_of(
                store,
                f"""PREFIX mf: <{MF}> PREFIX qt: <{QT}> PREFIX rdfs: <{RDFS}>
                SELECT ?file ?name {{ {row["test"]} mf:action/qt:graphData ?g .
                  OPTIONAL {{ ?g qt:graph ?inner ; rdfs:label ?label }}
                  BIND(COALESCE(?inner, ?g) AS ?file)
                  BIND(COALESCE(?label, STR(?file)) AS ?name) }}""",
            )
            folder = manifest.parent

            def local(term: ox.NamedNode | None, base: str = base, folder: Path = folder):
                return None if term is None else folder / term.value.removeprefix(base)

            found.append(
                Case(
                    suite,
                    f"{suite.version}/{folder.name}/{row['test'].value.rpartition('#')[2]}",
                    row["kind"].value.removeprefix(MF),
                    local(row["query"]),
                    local(row["data"]),
                    tuple(
                        (_absolute(each["name"].value, base), local(each["file"]))
                        for each in graphs
                    ),
                    local(row["result"]),
                    row["lax"].value == "true",
                )
            )
    return found


def evaluations() -> list[Case]:
    """Return the evaluation tests of all suites that are here."""
    kinds = ("QueryEvaluationTest", "CSVResultFormatTest")
    return [case for suite in EVALUATED for case in cases(suite) if case.kind in kinds]


def _absolute(name: str, base: str) -> str:
    return name if ":" in name else base + name


Row = tuple[Term | None, ...]


def expected_solutions(path: Path) -> tuple[list[str], list[Row]] | bool:
    """Return the stated result of a file: variables and rows, or a truth value."""
    if path.suffix in (".ttl", ".rdf"):
        return _result_set(path)
    form = ox.QueryResultsFormat.from_extension(path.suffix[1:])
    results = ox.parse_query_results(path=str(path), format=form)
    if isinstance(results, ox.QueryBoolean):
        return bool(results)
    names = [each.value for each in results.variables]
    rows = [tuple(None if each[n] is None else term_of(each[n]) for n in names) for each in results]
    return names, rows


def _result_set(path: Path) -> tuple[list[str], list[Row]] | bool:
    store = ox.Store()
    store.load(path=str(path), base_iri=iri_of(path))
    truth = list(solutions_of(store, f"PREFIX rs: <{RS}> SELECT ?b {{ ?s rs:boolean ?b }}"))
    if truth:
        return truth[0]["b"].value in ("true", "1")
    names = [
        each["n"].value
        for each in solutions_of(
            store, f"PREFIX rs: <{RS}> SELECT ?n {{ ?s rs:resultVariable ?n }}"
        )
    ]

    def one(binding: Any, name: str) -> Any:
        return next(store.quads_for_pattern(binding, ox.NamedNode(RS + name), None)).object

    rows = []
    for each in solutions_of(
        store,
        f"PREFIX rs: <{RS}> SELECT ?r {{ ?s rs:solution ?r OPTIONAL {{ ?r rs:index ?n }} }}"
        " ORDER BY ?n",
    ):
        values = {
            one(quad.object, "variable").value: term_of(one(quad.object, "value"))
            for quad in store.quads_for_pattern(each["r"], ox.NamedNode(RS + "binding"), None)
        }
        rows.append(tuple(values.get(name) for name in names))
    return names, rows


def same_answers(case: Case, left: Sequence[Row], right: Sequence[Row]) -> bool:
    """True if rows are those of a test, as often as it asks."""
    if case.lax:
        return same_rows(list(dict.fromkeys(left)), list(dict.fromkeys(right)))
    return same_rows(left, right)


def compared_rows(
    case: Case, names: Sequence[str], rows: Iterable[Row]
) -> tuple[list[Row], list[Row]]:
    """Compare solutions with those of a test; return both, in the order of its columns."""
    assert case.result is not None
    expected = expected_solutions(case.result)
    assert not isinstance(expected, bool)
    columns, wanted = expected
    assert set(names) == set(columns)
    places = [names.index(name) for name in columns]
    found = [tuple(row[place] for place in places) for row in rows]
    assert same_answers(case, found, wanted), found
    return found, wanted


def in_order(left: Sequence[Row], right: Sequence[Row]) -> bool:
    """True if rows come in the same order, whichever blank node is where."""
    return [_shape(tuple(map(by_value, row))) for row in left] == [
        _shape(tuple(map(by_value, row))) for row in right
    ]


def by_value(term: Term | None) -> Term | None:
    """Return a number in canonical form, so that ``1.0`` and ``1`` are the same decimal."""
    if term is None or not term.startswith('"'):
        return term
    value = value_of(term)
    datatype = term.rpartition("^^<")[2][:-1]
    if isinstance(value, Opaque) or datatype not in NUMERIC_TYPES:
        return term
    return Term(f'"{lexical_of(value)[0]}"^^<{datatype}>')


def same_rows(left: Sequence[Row], right: Sequence[Row]) -> bool:
    """True if two multisets of rows are equal up to blank node names and number forms."""
    one = [tuple(map(by_value, row)) for row in left]
    other = [tuple(map(by_value, row)) for row in right]
    if len(one) != len(other):
        return False
    if Counter(map(_shape, one)) != Counter(map(_shape, other)):
        return False
    # Rows with few candidates first, so that a wrong guess shows early.
    one.sort(key=lambda row: sum(_shape(row) == _shape(each) for each in other))
    return _matches(one, other, {}, {})


def _shape(row: Row) -> Row:
    return tuple(None if t is None else Term("_:") if is_blank_node(t) else t for t in row)


def _matches(
    one: list[Row], other: list[Row], there: dict[Term, Term], back: dict[Term, Term]
) -> bool:
    if not one:
        return True
    row, rest = one[0], one[1:]
    tried = set()
    for place, candidate in enumerate(other):
        if candidate in tried or _shape(candidate) != _shape(row):
            continue
        tried.add(candidate)
        forward, backward = dict(there), dict(back)
        fits = all(
            forward.setdefault(a, b) == b and backward.setdefault(b, a) == a
            for a, b in zip(row, candidate, strict=True)
            if a is not None and b is not None and is_blank_node(a)
        )
        if fits and _matches(rest, other[:place] + other[place + 1 :], forward, backward):
            return True
    return False
