"""GRAPH binds its variable for everything inside it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import cycle, product

import pytest

from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tests.support.evaluation import Evaluation, Kind
from tests.support.memory_leaves import LookupLeaves, ScanningLeaves
from tests.support.oracle import solutions_of, store_of


def _iri(name: str) -> Term:
    return Term(f"<http://e/{name}>")


DATA = [
    Quad(_iri("s"), _iri("p"), Term('"1"'), _iri("g")),
    Quad(_iri("s"), _iri("q"), Term('"1"'), _iri("h")),
    Quad(_iri("s"), _iri("q"), _iri("h"), _iri("h")),
    Quad(_iri("s"), _iri("in"), _iri("g"), DEFAULT_GRAPH),
]
INSIDE = [
    "",
    "FILTER NOT EXISTS { ?a :p ?b }",
    "FILTER EXISTS { ?a :p ?b }",
    "OPTIONAL { ?a :p ?b }",
    "OPTIONAL { ?a :p ?b } OPTIONAL { ?a :q ?c }",
    "OPTIONAL { OPTIONAL { ?a :p ?b } }",
    "OPTIONAL { FILTER NOT EXISTS { ?a :p ?b } }",
    "OPTIONAL { ?a :q ?b FILTER EXISTS { ?c :p ?b } }",
    'VALUES ?b { "1" } OPTIONAL { ?a :p ?b }',
    'VALUES ?b { "1" } MINUS { ?a :p ?b }',
    'VALUES ?b { "1" "2" } FILTER NOT EXISTS { ?a :p ?b }',
    "{ } UNION { ?a :p ?b }",
    "{ OPTIONAL { ?a :p ?b } } UNION { MINUS { ?a :p ?b } }",
    "BIND(EXISTS { ?a :p ?b } AS ?c)",
    "BIND(1 AS ?c) OPTIONAL { ?a :p ?b }",
    "?a :q ?b FILTER NOT EXISTS { ?c :p ?b }",
    "?a ?y ?b OPTIONAL { ?c :p ?b }",
    "?a :p* ?b",
    ":s :p* ?b",
    "{ SELECT ?b { OPTIONAL { ?a :p ?b } } }",
    "{ SELECT (COUNT(*) AS ?n) { VALUES ?x { 1 2 } } }",
    "{ SELECT (COUNT(*) AS ?n) { ?a :p ?b } }",
    "{ SELECT ?x (COUNT(*) AS ?n) { VALUES ?x { 1 2 } OPTIONAL { ?a :p ?b } } GROUP BY ?x }",
    "{ SELECT ?x { VALUES ?x { 1 2 } OPTIONAL { ?a :p ?b } } ORDER BY ?x LIMIT 1 }",
    "{ SELECT * { { VALUES ?x { 1 } } UNION { ?x :p ?y } } ORDER BY ?x LIMIT 1 }",
    "GRAPH ?h { OPTIONAL { ?a :p ?b } }",
    "OPTIONAL { GRAPH ?h { ?a :p ?b } }",
    "GRAPH :h { ?a :q ?g }",
    "?a :q ?g",
]
AROUND = ["%s", "?z :in ?g %s", "OPTIONAL { %s } ?z :in ?g", "?z :in ?g OPTIONAL { %s }",
          "?z :in ?g MINUS { %s }", "?z :in ?g FILTER NOT EXISTS { %s }"]  # fmt: skip
GRAPHS = ["?g", ":g", ":h", ":none"]


def _solutions(query: str, quads: list[Quad]) -> tuple[list[str], list[list[str | None]]]:
    found = solutions_of(store_of(quads), f"PREFIX : <http://e/> SELECT * {{ {query} }}")
    names = [each.value for each in found.variables]
    return names, [[None if row[n] is None else str(row[n]) for n in names] for row in found]


@cache
def _as_data(graph: str, inside: str) -> str:
    """Return the solutions of GRAPH by section 18.6, graph by graph.

    pyoxigraph finds graphs by quad patterns alone, and lacks them after VALUES.
    """
    names, rows = ["g"] if graph == "?g" else [], []
    for name in (_iri("g"), _iri("h")):
        if graph not in ("?g", f":{name[-2]}"):
            continue
        here = [quad._replace(graph=DEFAULT_GRAPH) for quad in DATA if quad.graph == name]
        found, values = _solutions(inside, here + [q for q in DATA if q.graph != DEFAULT_GRAPH])
        names += [each for each in found if each not in names]
        for row in values:
            solution = dict(zip(found, row, strict=True))
            if graph == "?g" and solution.setdefault("g", name) != name:
                continue
            rows.append([solution.get(each) or "UNDEF" for each in names])
    head = " ".join(f"?{name}" for name in names)
    body = " ".join(f"({' '.join(row)})" for row in rows)
    return f"VALUES ({head}) {{ {body} }}"


@pytest.mark.parametrize("inside", INSIDE)
def test_what_stands_in_a_graph(inside: str) -> None:
    kinds: Iterator[Kind] = cycle([ScanningLeaves, LookupLeaves, LookupLeaves, ScanningLeaves])
    for graph, around in product(GRAPHS, AROUND):
        data = _as_data(graph, inside)
        text = around % f"GRAPH {graph} {{ {inside} }}"
        evaluation = Evaluation(f"PREFIX : <http://e/> SELECT * {{ {text} }}", next(kinds))
        for added, removed in ((DATA[1:], ()), (DATA[:1], ()), ((), DATA[2:]), (DATA[2:], ())):
            evaluation.change(added, removed)
        variables = [name[1:] for name in evaluation.variables]
        made = [dict(zip(variables, row, strict=True)) for row in evaluation.rows()]
        names, rows = _solutions(around % data, DATA)
        wanted = [dict(zip(names, row, strict=True)) for row in rows]
        assert Counter(map(_bound, made)) == Counter(map(_bound, wanted)), text


def _bound(solution: Mapping[str, str | None]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in solution.items() if value is not None)
