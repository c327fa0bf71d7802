"""The SPARQL protocol, by rdflib's SPARQL store, and request by request."""

import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

import pyoxigraph as ox
import pytest
import rdflib
import requests
from rdflib.plugins.stores.sparqlstore import SPARQLStore

from annotations.terms import Quad, iri, literal
from tests.support.endpoint import serving
from tests.support.judges import by_specification
from tests.support.live_server import LiveServer
from tests.support.oracle import quad_of, term_of
from tests.support.wsgi_adapter import WsgiAdapter
from tpf_client import Client
from tpf_client.app.endpoint import SparqlEndpoint
from tpf_client.sparql.parser import parse_query

EX = "http://example.org/"
SELECT = f"SELECT ?s ?n {{ ?s <{EX}name> ?n }}"


@pytest.fixture(scope="module")
def fragments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    data = [Quad(iri(f"{EX}n{n}"), iri(EX + "name"), literal(f"é{n}")) for n in range(150)]
    with LiveServer(tmp_path_factory.mktemp("endpoint"), data, live=False) as server:
        yield server


@pytest.fixture(scope="module")
def url(fragments: LiveServer) -> Iterator[str]:
    with (
        Client(fragments.url, session=fragments.session(), clock=fragments.clock) as client,
        serving(SparqlEndpoint(client)) as url,
    ):
        yield url


def test_another_library_asks(url: str) -> None:
    store = SPARQLStore(url)
    graph = rdflib.Graph(store)
    assert {str(row[1]) for row in cast(Any, graph.query(SELECT))} == {f"é{n}" for n in range(150)}
    assert graph.query(f"ASK {{ ?s <{EX}name> 'é7' }}").askAnswer is True
    made = graph.query(f"CONSTRUCT WHERE {{ ?s <{EX}name> 'é7' }}").graph
    assert made is not None
    assert len(made) == 1
    store.close()


def test_what_a_query_reads_is_estimated(url: str) -> None:
    where = url.removesuffix("sparql") + "estimate"
    told = requests.get(where, {"query": SELECT}, timeout=30)
    assert told.json() == {"facts": 150, "labelled": False} | {"plan": told.json()["plan"]}
    assert [each["how"] for each in told.json()["plan"]["steps"]] == ["scan"]
    wrong = {"query": "SELECT *\n{ ?s ?p }", "syntax": "true"}
    refused = requests.get(where, wrong, timeout=30)
    assert (refused.status_code, refused.text[:18]) == (400, "line 2, column 9: ")
    assert requests.get(where, {**wrong, "query": SELECT}, timeout=30).json() == {}
    assert requests.get(where, timeout=30).status_code == 400


WAYS = ("get", "form", "body")


def send(
    url: str, way: str, query: str, accept: str, names: list[tuple[str, str]] | None = None
) -> requests.Response:
    """Send a query in one of the ways of the protocol."""
    headers, all_ = {"Accept": accept}, [("query", query), *(names or [])]
    if way == "get":
        return requests.get(url, all_, headers=headers, timeout=30)
    if way == "form":
        return requests.post(url, all_, headers=headers, timeout=30)
    headers["Content-Type"] = "application/sparql-query; charset=utf-8"
    return requests.post(url, query.encode(), params=names, headers=headers, timeout=30)


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("*/*", "application/sparql-results+json"),
        ("application/json", "application/sparql-results+json"),
        ("application/sparql-results+xml;q=0.9, text/csv;q=0.1", "application/sparql-results+xml"),
        ("text/*;q=0.5, application/json;q=0.2", "text/csv"),
        ("text/tab-separated-values", "text/tab-separated-values"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_formats(url: str, way: str, accept: str, media_type: str) -> None:
    response = send(url, way, SELECT, accept)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == media_type
    assert "é149" in response.content.decode()
    assert "Access-Control-Allow-Origin" not in response.headers


def call(app: Any, method: str = "GET", query: str = "", body: bytes = b"", **headers: str) -> Any:
    """Status, headers and body of a request to a WSGI application."""
    answered: list[Any] = []
    environ = {
        "REQUEST_METHOD": method,
        "QUERY_STRING": query,
        "wsgi.input": io.BytesIO(body),
        "CONTENT_LENGTH": str(len(body)),
        **headers,
    }
    chunks = app(environ, lambda status, fields: answered.extend([status, dict(fields)]))
    return int(answered[0][:3]), answered[1], b"".join(chunks)


ASKED = "query=ASK%7B%7D"
INSIDE = urlencode({"query": "ASK { SERVICE <http://10.0.0.1/d> { ?s ?p ?o } }"})
IMAGE = {"HTTP_SEC_FETCH_MODE": "no-cors"}
POSTED: dict[str, Any] = {"method": "POST", "CONTENT_TYPE": "application/sparql-query"}


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        ({"query": "at=2015-12-08T10:20:00Z"}, 400, "parameter query"),
        ({"query": "query=SELECT"}, 400, "^"),
        ({"query": "query=ASK{}&query=ASK{}"}, 400, "twice"),
        ({"query": "query=%ff"}, 400, "malformed"),
        ({"query": f"{ASKED}&default-graph-uri=g"}, 400, "default-graph-uri"),
        ({"query": f"{ASKED}&named-graph-uri=urn:%3Eg"}, 400, "named-graph-uri"),
        ({"query": "query=ASK%7B&default-graph-uri=urn:g"}, 400, "^"),
        ({"query": f"{ASKED}&update=CLEAR"}, 400, "update"),
        ({"query": urlencode({"query": "SELECT * { SERVICE ?x { ?s ?p ?o } }"})}, 400, "SERVICE"),
        ({"query": urlencode({"query": SELECT}), "HTTP_ACCEPT": "image/png"}, 406, "csv"),
        ({"query": urlencode({"query": "ASK {}"}), "HTTP_ACCEPT": "text/csv"}, 406, "json"),
        ({"method": "PUT"}, 405, "PUT"),
        ({"query": ASKED, "PATH_INFO": "/other"}, 404, "/sparql"),
        ({"query": ASKED, "PATH_INFO": "/sparql/more"}, 404, "/sparql"),
        ({"query": f"{ASKED}&at=noon"}, 400, "noon"),
        ({"query": ASKED, "HTTP_HOST": "attacker.example:8890"}, 421, "attacker"),
        ({"query": ASKED, "HTTP_HOST": "["}, 421, "["),
        ({"query": ASKED, "HTTP_HOST": "http://[x"}, 421, "http://[x"),
        ({"HTTP_HOST": "<a>@localhost"}, 421, "<a>@localhost"),
        ({"HTTP_HOST": "localhost:<a>"}, 421, "localhost:<a>"),
        ({"HTTP_HOST": "localhost/<a>"}, 421, "localhost/<a>"),
        ({"query": ASKED, "HTTP_ORIGIN": "http://[x"}, 403, "http://[x"),
        ({"query": ASKED, "HTTP_ORIGIN": "http://[:::]"}, 403, "[:::]"),
        ({"query": ASKED, "HTTP_ORIGIN": "https://page.example"}, 403, "page.example"),
        ({"query": ASKED, "HTTP_ORIGIN": "null"}, 403, "null"),
        ({"query": ASKED, **IMAGE, "HTTP_SEC_FETCH_SITE": "cross-site"}, 403, "another origin"),
        ({"query": ASKED, **IMAGE, "HTTP_SEC_FETCH_SITE": "same-site"}, 403, "another origin"),
        ({"query": ASKED, "HTTP_ACCEPT": "a/b," * 1025}, 400, "4096"),
        ({"query": INSIDE}, 400, "10.0.0.1"),
        ({"method": "POST", "body": b"ASK {}", "CONTENT_TYPE": "text/plain"}, 415, "sparql-query"),
        ({**POSTED, "body": b"\xff"}, 400, "UTF-8"),
        ({**POSTED, "CONTENT_LENGTH": ""}, 411, "length"),
        ({**POSTED, "CONTENT_LENGTH": "9999999"}, 413, "bytes"),
        ({**POSTED, "CONTENT_LENGTH": "9" * 5000}, 413, "bytes"),
        ({**POSTED, "CONTENT_LENGTH": "²"}, 411, "length"),
    ],
)
def test_wrong_requests(
    fragments: LiveServer, request_: dict[str, Any], status: int, words: str
) -> None:
    with fragments.client(services=()) as client:
        code, headers, body = call(SparqlEndpoint(client), **request_)
    assert code == status
    assert words in body.decode()
    assert headers["Content-Length"] == str(len(body))


def test_the_failure_of_a_fragment_server_is_named(tmp_path: Path) -> None:
    def broken(environ: Any, start: Any) -> list[bytes]:
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [b"nothing here"]

    session = requests.Session()
    session.mount("http://fragments.test/", WsgiAdapter(broken))
    with Client("http://fragments.test/d", session=session, parallelism=0) as client:
        code, _, body = call(
            SparqlEndpoint(client), query=f"query={quote('SELECT * { ?s ?p ?o }')}"
        )
        assert code == 502
        assert "http://fragments.test/d" in body.decode()
    code, _, _ = call(SparqlEndpoint(client), query=f"query={quote('ASK { ?s ?p ?o }')}")
    assert code == 503


def test_head_has_no_body(fragments: LiveServer) -> None:
    with fragments.client() as client:
        query = urlencode({"query": "ASK {}"})
        code, headers, body = call(SparqlEndpoint(client), "HEAD", query)
        _, _, whole = call(SparqlEndpoint(client), "GET", query)
    assert (code, body) == (200, b"")
    assert headers["Content-Length"] == str(len(whole))
    assert json.loads(whole) == {"head": {}, "boolean": True}


# ------------------------------------------------------------------- the dataset of a request


GRAPHS = [f"{EX}g{number}" for number in range(3)]
FROMS = ["", f"FROM <{GRAPHS[0]}>", f"FROM NAMED <{GRAPHS[1]}> FROM <{GRAPHS[2]}>"]
FORMS = [
    "SELECT ?s ?g %s WHERE { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }",
    "SELECT ?s %s { { SELECT ?s { ?s ?p ?o } } } # FROM <urn:x>",
    "ASK %s { ?s ?p ?o }",
    "CONSTRUCT { ?s <urn:in> ?g } %s WHERE { GRAPH ?g { ?s ?p ?o } }",
    "CONSTRUCT %s WHERE { ?s ?p ?o }",
    "BASE <http://e/> PREFIX x: <http://u/> SELECT (COUNT(*) AS ?n) %s WHERE { ?s ?p 'FROM' }",
]


@pytest.fixture(scope="module")
def in_graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Quad]]]:
    data = [
        Quad(iri(f"{EX}s{n}"), iri(EX + "p"), literal("FROM"), iri(graph))
        for number, graph in enumerate(GRAPHS)
        for n in (number, number + 1)
    ]
    data.append(Quad(iri(EX + "s9"), iri(EX + "p"), literal("FROM")))
    with (
        LiveServer(tmp_path_factory.mktemp("graphs"), data, live=False) as server,
        server.client(parallelism=8) as client,
        serving(SparqlEndpoint(client)) as url,
    ):
        yield url, data


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("said", FROMS)
def test_the_dataset_of_a_request_stands_for_that_of_the_query(
    in_graphs: tuple[str, list[Quad]], said: str, form: str
) -> None:
    """The shapes of the W3C's protocol tests (query_dataset_…, query_multiple_dataset)."""
    url, data = in_graphs
    way = WAYS[FORMS.index(form) % len(WAYS)]
    text = form % said
    for default, named in (
        (GRAPHS[:1], []), (GRAPHS[:2], []), ([], GRAPHS[:1]), ([], GRAPHS[1:]),
        (GRAPHS[:1], GRAPHS[1:]), (["urn:none"], GRAPHS[:1]), ([], []),
    ):  # fmt: skip
        names = [("default-graph-uri", each) for each in default]
        names += [("named-graph-uri", each) for each in named]
        accept = "application/sparql-results+json,application/n-triples"
        answer = send(url, way, text, accept, names)
        assert answer.status_code == 200, answer.text
        clauses = [f"FROM <{each}>" for each in default]
        clauses += [f"FROM NAMED <{each}>" for each in named]
        judge = form % (" ".join(clauses) if clauses else said)
        query = parse_query(judge)
        wanted = by_specification(query, data)
        if query.form == "CONSTRUCT":
            made = ox.parse(answer.text, ox.RdfFormat.N_TRIPLES)
            assert Counter(quad_of(each).triple for each in made) == wanted
        elif query.form == "ASK":
            assert answer.json()["boolean"] is wanted
        else:
            assert len(answer.json()["results"]["bindings"]) == sum(cast(Any, wanted).values())
            found = ox.parse_query_results(answer.text, ox.QueryResultsFormat.JSON)
            assert isinstance(found, ox.QuerySolutions)
            rows = [
                tuple(row[n[1:]] and term_of(row[n[1:]]) for n in query.variables) for row in found
            ]
            assert Counter(rows) == wanted
