"""Values for the variables of a query, beside the query with the terms in its text."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdflib import XSD, BNode, Graph, Literal, URIRef

from annotations.terms import Quad, Term, iri, literal
from tests.support.examples import examples
from tests.support.live_server import LiveServer
from tests.support.oracle import store_of
from tests.support.random_queries import PREFIX, VARIABLES, graphs, queries
from tpf_client import Client, Solutions
from tpf_client.errors import QueryError, QuerySyntaxError, UnsupportedQueryError
from tpf_client.sparql.results import python_term, rdflib_term

EX = "http://example.org/"

values = st.sampled_from(
    [":a", ":b", ":p", ":g", '"1"^^xsd:integer', '"x"', '"x"@en', '"1.5"^^xsd:decimal']
)


def _term(text: str) -> Term:
    rows: Any = pyoxigraph.Store().query(f"{PREFIX} SELECT * {{ BIND({text} AS ?x) }}")
    (row,) = rows
    return Term(str(row["x"]))


@pytest.fixture
def client(tmp_path: Path) -> Client:
    server = LiveServer(tmp_path, [Quad(iri(EX + "a"), iri(EX + "p"), literal('"} UNION {'))])
    return server.client()


@pytest.fixture
def grouped(tmp_path: Path) -> Iterator[tuple[Client, pyoxigraph.Store]]:
    file = tmp_path / "data.ttl"
    file.write_text(f"@prefix : <{EX}> . :k :n 5, 6 ; :q 1 . :l :n 1 . :m :n 7 ; :q 7 .")
    store = pyoxigraph.Store()
    store.load(path=file)
    with Client(str(file)) as client:
        yield client, store


@examples(40)
@given(quads=graphs, text=queries, name=st.sampled_from(VARIABLES), value=values)
def test_a_bound_variable_is_the_term_in_its_place(
    quads: frozenset[Quad], text: str, name: str, value: str
) -> None:
    pasted = re.sub(rf"\{name}\b", f" {value} ", text)
    store = store_of(quads)
    try:
        result: Any = store.query(pasted)
    except SyntaxError:
        return  # the variable gets its value in the query
    with tempfile.TemporaryDirectory() as folder:
        server = LiveServer(Path(folder), sorted(quads), live=False)
        with server.client() as client:
            try:
                answer = client.query(text, {name[1:]: rdflib_term(_term(value))})
            except (QuerySyntaxError, UnsupportedQueryError):
                return
            except QueryError:
                assert name not in text
                return
            if isinstance(answer, bool):
                assert answer is bool(result), text
                return
            assert isinstance(answer, Solutions)
            names = sorted({each.value for each in result.variables})
            places = [answer.variables.index(each) for each in names]
            found = Counter(tuple(row.row[place] for place in places) for row in answer)
            expected = Counter(
                tuple(None if row[each] is None else str(row[each]) for each in names)
                for row in result
            )
            assert found == expected, text
            if name[1:] in answer.variables:
                assert {row.row[answer.variables.index(name[1:])] for row in answer} <= {
                    _term(value)
                }
        server.close()


@pytest.mark.parametrize(
    "text",
    [
        "CONSTRUCT WHERE { ?x :delay ?most }",
        "CONSTRUCT { ?x :more ?most } { ?x :delay ?d FILTER(?d > ?most) }",
        "DESCRIBE ?x { ?x :delay ?most }",
    ],
)
def test_values_in_graphs(tmp_path: Path, text: str) -> None:
    numbers = [literal(str(n), datatype=str(XSD.integer)) for n in (100, 300, 500)]
    quads = [Quad(iri(f"{EX}{n}"), iri(EX + "delay"), term) for n, term in enumerate(numbers)]
    quads += [Quad(iri(f"{EX}{n}"), iri(EX + "late"), term) for n, term in enumerate(numbers[1:])]
    server = LiveServer(tmp_path, quads, live=False)
    query = f"PREFIX : <{EX}> {text}"
    with Client(server.url, session=server.session(), clock=server.clock) as client:
        bound = client.query(query, {"most": 300})
        pasted = client.query(query.replace("?most", "300"))
    server.close()
    assert isinstance(bound, Graph)
    assert isinstance(pasted, Graph)
    assert set(bound) == set(pasted) != set()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SELECT ?s (SUM(?n) AS ?t) { ?s :n ?n } GROUP BY ?s HAVING(SUM(?n) > ?x)", 10),
        ("SELECT ?s (SUM(?n) * ?x AS ?t) { ?s :n ?n } GROUP BY ?s", 2),
        ("SELECT (SUM(?n * ?x) + ?x AS ?t) { ?s :n ?n }", 2),
        ("SELECT (COUNT(*) + ?x AS ?t) { ?s :none ?n }", 2),
        ("SELECT ?s { ?s :n ?n } GROUP BY ?s ORDER BY (SUM(?n) * ?x)", 1),
        ("SELECT ?s { ?s :n ?n } GROUP BY ?s ORDER BY (SUM(?n) * ?x)", -1),
        ("SELECT ?k (COUNT(*) AS ?t) { ?s :n ?n } GROUP BY (?n > ?x AS ?k) HAVING(?k)", 4),
        ("SELECT ?s { ?s :n ?n } GROUP BY ?s HAVING(EXISTS { SELECT ?s { ?s :q ?x } })", 1),
        ("SELECT ?s (EXISTS { ?s :q ?x } AS ?e) { ?s :n ?n } GROUP BY ?s", 1),
        ("SELECT ?t { { SELECT (SUM(?n) AS ?t) { ?s :n ?n } GROUP BY ?s } FILTER(?t > ?x) }", 6),
    ],
)
def test_values_beside_groups(
    grouped: tuple[Client, pyoxigraph.Store], text: str, value: int
) -> None:
    client, store = grouped
    query = f"PREFIX : <{EX}> {text}"
    expected: Any = store.query(query.replace("?x", str(value)))
    rows = [tuple(str(each) for each in row) for row in expected]
    found = [row.row for row in client.select(query, {"x": value})]
    assert (found == rows) if "ORDER BY" in text else (Counter(found) == Counter(rows))


def test_groups_keep_values(grouped: tuple[Client, pyoxigraph.Store]) -> None:
    client, _ = grouped
    where = f"{{ ?s <{EX}n> ?n }} GROUP BY ?s HAVING(SUM(?n) > ?x)"
    assert client.ask(f"ASK {where}", {"x": 10})
    assert not client.ask(f"ASK {where}", {"x": 11})
    (row,) = client.select(f"SELECT ?s ?x (SUM(?n) AS ?t) {where}", {"x": 1, "s": URIRef(EX + "k")})
    assert [str(row[name]) for name in ("s", "x", "t")] == [EX + "k", "1", "11"]
    made = client.construct(f"CONSTRUCT {{ ?s <{EX}over> ?x }} {where}", {"x": 10})
    assert [*made] == [(URIRef(EX + "k"), URIRef(EX + "over"), Literal(10))]
    with pytest.raises(QuerySyntaxError, match=r"\?x has a value already"):
        client.select(f"SELECT (SUM(?n) AS ?x) {where}", {"x": 10})


def test_described_by_a_value(client: Client) -> None:
    assert len(client.describe("DESCRIBE ?x", {"x": URIRef(EX + "a")})) == 1
    assert len(client.describe("DESCRIBE ?x", {"x": URIRef(EX + "b")})) == 0


def test_terms_of_python_values() -> None:
    day = datetime(2015, 12, 8, 10, 20, tzinfo=UTC)
    assert python_term("300") == literal("300")
    assert python_term(300) == literal("300", datatype=str(XSD.integer))
    assert python_term(True) == literal("true", datatype=str(XSD.boolean))
    assert python_term(day) == literal("2015-12-08T10:20:00+00:00", datatype=str(XSD.dateTime))
    assert python_term(URIRef(EX)) == iri(EX)
    assert python_term(Literal("a", lang="en")) == literal("a", "en")
    with pytest.raises(TypeError, match=r"neither a term of rdflib nor a value of one: \['a'\]"):
        python_term(["a"])


def test_what_would_break_out_of_the_text_is_a_value(client: Client) -> None:
    query = "SELECT ?s { ?s ?p ?o }"
    assert len(client.select(query, {"o": '"} UNION {'})) == 1
    assert len(client.select(query, {"?o": '"} UNION {', "p": URIRef(EX + "p")})) == 1
    assert not client.select(query, {"o": "} UNION { ?s ?p ?q"})
    assert [str(row["o"]) for row in client.select("SELECT * { ?s ?p ?o }", {"o": '"} UNION {'})]


@pytest.mark.parametrize(
    ("bindings", "error", "message"),
    [
        ({"x": 1}, QueryError, r"the query has no variable \?x"),
        ({"o": BNode("b")}, QueryError, r"\?o: a blank node cannot be asked for"),
        ({"o": URIRef("a b")}, QueryError, r"\?o: not an absolute IRI: 'a b'"),
        ({"o": object}, TypeError, r"\?o: neither a term"),
    ],
)
def test_bad_values(
    client: Client, bindings: Mapping[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        client.query("SELECT * { ?s ?p ?o }", bindings)
    with pytest.raises(error, match=message):
        client.stream("SELECT * { ?s ?p ?o }", bindings)
