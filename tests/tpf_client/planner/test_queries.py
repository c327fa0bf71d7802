"""Answers over fragments are those of another engine, whatever the plan; and what they cost."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad, Term, iri, literal
from tests.support.examples import examples
from tests.support.live_server import LiveServer
from tests.support.oracle import select, store_of
from tests.tpf_client.streaming.test_train_query import _rows
from tpf_client import Solutions
from tpf_client.planner.leaves import Step
from tpf_client.queries import QueryOptions

EX = "http://example.org/"
XSD_INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
NODES = [f":n{n}" for n in range(5)]
VALUES = [*NODES, "1", "2", '"x"', '"x"@en']
VARIABLES = ["?a", "?b", "?c", "?d"]
PREDICATES = [":p", ":q", ":r"]


def _term(text: str) -> Term:
    if text.startswith(":"):
        return iri(EX + text[1:])
    return Term(text) if text.startswith('"') else literal(text, datatype=XSD_INTEGER)


quads = st.builds(
    lambda s, p, o, g: Quad(_term(s), _term(p), _term(o), _term(g) if g else Term("")),
    st.sampled_from(NODES),
    st.sampled_from(PREDICATES),
    st.sampled_from(VALUES),
    st.sampled_from(["", "", "", ":g1", ":g2"]),
)
triples = st.builds(
    lambda s, p, o: f"{s} {p} {o} .",
    st.sampled_from([*VARIABLES, *NODES[:2]]),
    st.sampled_from([*PREDICATES, *PREDICATES, "?p"]),
    st.sampled_from([*VARIABLES, *VALUES]),
)
groups = st.lists(triples, min_size=1, max_size=4).map(" ".join)
filters = st.sampled_from(["", "FILTER(?a != ?b)", "FILTER(isIRI(?a))", "FILTER(?c > 1)"])
extras = st.one_of(
    st.just(""),
    st.builds(
        "{} {{ {} }}".format, st.sampled_from(["OPTIONAL", "MINUS", "FILTER NOT EXISTS"]), groups
    ),
    st.builds("{{ {} }} UNION {{ {} }}".format, groups, groups),
    st.builds("GRAPH ?g {{ {} }}".format, groups),
    st.builds("GRAPH :g1 {{ {} }}".format, groups),
    st.just("?a (:p|:q)+ ?b"),
    st.just("VALUES (?a ?b) { (:n1 UNDEF) (:n2 :n3) }"),
)
queries = st.builds(
    f"PREFIX : <{EX}> SELECT {{}} * {{{{ {{}} {{}} {{}} }}}}".format,
    st.sampled_from(["", "DISTINCT"]),
    groups,
    extras,
    filters,
)


@examples(15)
@given(
    data=st.lists(quads, max_size=40, unique=True),
    asked=st.lists(queries, min_size=1, max_size=6),
    page_size=st.sampled_from([1, 3, 100]),
)
def test_answers_equal_those_of_another_engine(
    data: list[Quad], asked: list[str], page_size: int
) -> None:
    store = store_of(data)
    with tempfile.TemporaryDirectory() as path:
        server = LiveServer(Path(path), data, live=False, page_size=page_size)
        with server.client() as client:
            for query in asked:
                answer = client.query(query)
                assert isinstance(answer, Solutions)
                expected = Counter(
                    frozenset((name.lstrip("?"), term) for name, term in row.items())
                    for row in select(store, query)
                )
                assert _rows(answer) == expected, query
        server.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LiveServer]:
    """1,000 products with four properties each, 10 of them on offer, 5 vendors."""
    data = []
    for n in range(1000):
        product = iri(f"{EX}product{n}")
        data += [
            Quad(product, iri(EX + "name"), literal(f"product {n}")),
            Quad(product, iri(EX + "price"), literal(str(n), datatype=XSD_INTEGER)),
            Quad(product, iri(EX + "vendor"), iri(f"{EX}vendor{n % 5}")),
            Quad(product, iri(EX + "stock"), literal(str(n % 17), datatype=XSD_INTEGER)),
        ]
        if n % 100 == 0:
            data.append(Quad(product, iri(EX + "offer"), literal("today")))
    data += [Quad(iri(f"{EX}vendor{n}"), iri(EX + "label"), literal(f"v{n}")) for n in range(5)]
    with LiveServer(tmp_path, data, live=False) as server:
        yield server


def _ask(server: LiveServer, query: str) -> tuple[list[object], int, list[Step]]:
    plan: list[Step] = []
    with server.client() as client:
        answer = client.query(f"PREFIX : <{EX}> {query}", options=QueryOptions(plan=plan))
        assert isinstance(answer, Solutions)
        rows: list[object] = list(answer)
    return rows, len(server.log), plan


@pytest.mark.parametrize(
    ("query", "rows", "requests"),
    [
        # the form, one first page per pattern, and then:
        # one request per subject on offer, for all its properties;
        ("SELECT * { ?p :offer ?o ; :name ?n ; :price ?x ; :stock ?s }", 10, 5 + 10),
        # one per subject for the only property;
        ("SELECT * { ?p :offer ?o ; :name ?n }", 10, 3 + 9),
        # nothing more, as the first pages hold all there is;
        ("SELECT * { ?p :offer ?o . ?v :label ?l }", 50, 3),
        # the whole of two fragments of 10 pages, as there are 1,000 keys;
        ("SELECT * { ?p :name ?n ; :price ?x }", 1000, 3 + 9 + 9),
        # the first page, as 5 are enough;
        ("SELECT * { ?p :name ?n } LIMIT 5", 5, 2),
        # nothing, as something cannot match.
        ("SELECT * { ?p :nothing ?n ; :price ?x }", 0, 3),
    ],
)
def test_requests(shop: LiveServer, query: str, rows: int, requests: int) -> None:
    found, sent, _ = _ask(shop, query)
    assert len(found) == rows
    assert sent <= requests


def test_ask_stops_at_the_first_solution(shop: LiveServer) -> None:
    with shop.client() as client:
        assert client.query(f"ASK {{ ?p <{EX}name> ?n ; <{EX}price> ?x }}") is True
        assert len(shop.log) <= 5


def test_the_plan_tells_what_was_expected_and_what_came(shop: LiveServer) -> None:
    _, _, plan = _ask(shop, "SELECT * { ?p :offer ?o ; :name ?n }")
    assert [(step.how, step.estimate.count) for step in plan] == [("scan", 10), ("lookup", 1000)]
    assert plan[1].lookup is not None
    assert plan[1].lookup.keys == 10
    assert plan[1].output is not None
    assert plan[1].output.rows == 10
