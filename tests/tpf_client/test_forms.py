"""All forms of queries by every interface: one table; and unknown functions in all of them."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import rdflib
from rdflib import URIRef
from rdflib.compare import isomorphic
from typer.testing import CliRunner

import tpf_client.app.cli
from annotations.clock import ManualClock
from annotations.instants import format_instant
from annotations.labels import Fact, Interval
from annotations.terms import Quad, blank_node, iri, literal
from tests.support.live_server import START, LiveServer
from tests.tpf_client.app.test_endpoint import call
from tpf_client import Client, Solutions
from tpf_client.app.endpoint import SparqlEndpoint
from tpf_client.app.serving import app
from tpf_client.errors import UnsupportedQueryError

EX = "http://example.org/"
P = f"PREFIX : <{EX}> "
BEFORE = START - timedelta(hours=1)


def _quad(subject: str, predicate: str, object_: str) -> Quad:
    def term(text: str) -> Any:
        return blank_node(text[2:]) if text.startswith("_:") else iri(EX + text)

    last = literal(object_[1:]) if object_.startswith("'") else term(object_)
    return Quad(term(subject), iri(EX + predicate), last)


FIRST = [
    _quad("a", "name", "'A"),
    _quad("a", "part", "_:x"),
    _quad("_:x", "name", "'X"),
    _quad("_:x", "part", "_:y"),
    _quad("_:y", "part", "_:x"),
    _quad("_:y", "name", "'Y"),
]
SECOND = [_quad("b", "name", "'B"), _quad("a", "next", "b"), _quad("b", "kind", "'loose")]

A = ":a :name 'A' ; :next :b ; :part _:x . _:x :name 'X' ; :part _:y . _:y :name 'Y' ; :part _:x ."
B = ":b :name 'B' ; :kind 'loose' ; :late {late} ."
QUERIES: list[tuple[str, Any]] = [
    ("SELECT ?n { :a :next/:name ?n }", [{"n": "B"}]),
    ("SELECT * { :b :late ?when }", [{"when": "{late}"}]),
    ("ASK { :a :next [ :late '{late}' ] }", True),
    ("ASK { :b :next :a }", False),
    ("CONSTRUCT { ?s :called ?n ; :by [] } { ?s :name ?n . ?s :next|:late ?o }",
     ":a :called 'A' ; :by [] . :b :called 'B' ; :by [] ."),
    ("CONSTRUCT WHERE { :b :late ?o }", ":b :late {late} ."),
    ("CONSTRUCT {} WHERE { :b :late ?o }", ""),
    ("DESCRIBE :a", A),
    ("DESCRIBE :a :nobody", A),
    ("DESCRIBE ?b { :a :next ?b }", B),
    ("DESCRIBE ?b ?n ?unbound :a { :a :next ?b . ?b :name ?n }", A + B),
    ("DESCRIBE * { :a :next ?b . ?b :name ?n }", B),
    ("DESCRIBE * { ?a :next ?b } ORDER BY ?b LIMIT 1", A + B),
    ("DESCRIBE ?x { ?x :name 'Y' }", "_:x :name 'X' ; :part _:y . _:y :name 'Y' ; :part _:x ."),
    ("DESCRIBE ?s { ?s :absent ?o }", ""),
    ("DESCRIBE ?literal { :a :name ?literal }", ""),
]  # fmt: skip


class Place:
    """One or two servers with a client, a command and an endpoint."""

    def __init__(self, folder: Path, sources: int) -> None:
        shares = [FIRST + SECOND] if sources == 1 else [FIRST, SECOND]
        late = [
            Fact(_quad("b", "late", "'then"), Interval(BEFORE - timedelta(days=1), START)),
            Fact(_quad("b", "late", "'now"), Interval(START, START + timedelta(days=1))),
        ]
        clock = ManualClock(START)
        self.servers: list[LiveServer] = []
        for number, share in enumerate(shares):
            home = folder / str(number)
            home.mkdir()
            base = f"http://server{number}.test/"
            self.servers.append(LiveServer(home, share, clock=clock, server={"base_url": base}))
        live = self.servers[-1].live
        assert live is not None
        live.publish(late, BEFORE)
        self.urls = [server.url for server in self.servers]

    def client(self) -> Client:
        return self.servers[0].client("", *self.servers[1:])

    def close(self) -> None:
        for server in self.servers:
            server.close()


@pytest.fixture(scope="module", params=[1, 2], ids=["one source", "two sources"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = Place(tmp_path_factory.mktemp("forms"), request.param)
    yield place
    place.close()


def _graph(text: str) -> rdflib.Graph:
    return rdflib.Graph().parse(data=text, format="turtle")


def _rows(document: str) -> Any:
    found = json.loads(document)
    if "boolean" in found:
        return found["boolean"]
    return [{n: v["value"] for n, v in row.items()} for row in found["results"]["bindings"]]


def by_library(place: Place, query: str, past: bool, monkeypatch: Any) -> Any:
    with place.client() as client:
        found = client.query(query, at=BEFORE if past else None)
        return _rows(found.serialize("json")) if isinstance(found, Solutions) else found


def by_command(place: Place, query: str, past: bool, monkeypatch: Any) -> Any:
    monkeypatch.setattr(tpf_client.app.cli, "Client", lambda *_urls, **_options: place.client())
    arguments = [*place.urls, "-q", query, *(["--at", format_instant(BEFORE)] if past else [])]
    result = CliRunner().invoke(tpf_client.app.cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    if result.stdout in ("true\n", "false\n"):
        return result.stdout == "true\n"
    graph = any(word in query for word in ("CONSTRUCT", "DESCRIBE"))
    return _graph(result.stdout) if graph else _rows(result.stdout)


def by_endpoint(place: Place, query: str, past: bool, monkeypatch: Any) -> Any:
    parameters = {"query": query, **({"at": format_instant(BEFORE)} if past else {})}
    with place.client() as client:
        code, headers, content = call(SparqlEndpoint(client), query=urlencode(parameters))
    body = content.decode()
    assert code == 200, body
    kind = headers["Content-Type"].partition(";")[0]
    return _graph(body) if kind == "text/turtle" else _rows(body)


Ask = Callable[[Place, str, bool, Any], Any]


@pytest.mark.parametrize("past", [False, True], ids=["now", "at"])
@pytest.mark.parametrize("ask", [by_library, by_command, by_endpoint])
@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=lambda each: str(each)[:30])
def test_every_form_by_every_way(
    place: Place, query: str, expected: Any, ask: Ask, past: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = "then" if past else "now"
    found = ask(place, P + query.replace("{late}", "now"), past, monkeypatch)
    if isinstance(expected, str):
        wanted = expected.replace("{late}", f"'{late}'")
        assert isomorphic(found, _graph(f"@prefix : <{EX}> . {wanted}")), found.serialize()
    elif isinstance(expected, list):
        assert found == [{n: v.replace("{late}", late) for n, v in row.items()} for row in expected]
    else:
        assert found is (expected and not (past and "late" in query))


def test_a_description_comes_from_the_graphs_of_from(tmp_path: Path) -> None:
    def quad(graph: str, object_: str) -> Quad:
        return Quad(iri(EX + "a"), iri(EX + "p"), literal(object_), iri(EX + graph))

    server = LiveServer(tmp_path, [quad("g", "1"), quad("h", "1"), quad("h", "2"), quad("i", "3")])
    with server.client() as client:
        texts = {
            graphs: client.query(f"{P}DESCRIBE ?s {graphs} {{ ?s :p '1' }}")
            for graphs in ("", "FROM :g", "FROM :g FROM :h", "FROM NAMED :g")
        }
    server.close()
    found = {
        graphs: {str(o) for o in graph.objects(URIRef(EX + "a"))}  # type: ignore[union-attr]
        for graphs, graph in texts.items()
    }
    assert found == {
        "": set(),
        "FROM :g": {"1"},
        "FROM :g FROM :h": {"1", "2"},
        "FROM NAMED :g": set(),
    }


def test_a_description_takes_few_requests(tmp_path: Path) -> None:
    server = LiveServer(
        tmp_path, [_quad(f"n{n}", "name", f"'{n}") for n in range(9000)] + FIRST, live=False
    )
    with server.client() as client:
        client.query(P + "DESCRIBE :n7")
        assert len(server.log) <= 3
        before = len(server.log)
        client.query(P + "DESCRIBE * { ?s :name '8' }")
        assert len(server.log) - before <= 5
    server.close()


# ------------------------------------- unknown functions: an error in SPARQL, or refused


CALL = f"<{EX}unknown>(?o)"
CALLS = [
    f"SELECT * {{ ?s ?p ?o BIND({CALL} AS ?x) }}",
    f"SELECT (MAX({CALL}) AS ?x) {{ ?s ?p ?o }}",
    f"SELECT * {{ ?s ?p ?o }} ORDER BY {CALL}",
    f"SELECT * {{ ?s ?p ?o OPTIONAL {{ ?s ?q ?o FILTER EXISTS {{ ?s ?p ?o FILTER {CALL} }} }} }}",
    f"ASK {{ ?s ?p ?o FILTER {CALL} }}",
    f"CONSTRUCT {{ ?s ?p ?x }} {{ ?s ?p ?o BIND({CALL} AS ?x) }}",
    f"DESCRIBE ?x {{ ?s ?p ?o BIND({CALL} AS ?x) }}",
]


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    quads = [Quad(iri(EX + "a"), iri(EX + "p"), literal("1"))]
    with LiveServer(tmp_path_factory.mktemp("strict"), quads, live=False) as server:
        yield server


@pytest.mark.parametrize("query", CALLS)
def test_unknown_functions_by_the_library(strict_server: LiveServer, query: str) -> None:
    with strict_server.client(strict=False) as client:
        found = client.query(query)
        if isinstance(found, Solutions):
            assert [row.get("x") for row in found] == [None]
        else:
            assert not found
    del strict_server.log[:]
    with (
        strict_server.client(strict=True) as client,
        pytest.raises(UnsupportedQueryError, match="unknown>"),
    ):
        client.query(query)
    assert strict_server.log == []


@pytest.mark.parametrize("strict", [False, True])
def test_unknown_functions_by_the_command(
    strict_server: LiveServer, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tpf_client.app.cli, "Client", lambda *_, strict, **__: strict_server.client(strict=strict)
    )
    arguments = [strict_server.url, "-q", CALLS[0], *(["--strict"] if strict else [])]
    result = CliRunner().invoke(tpf_client.app.cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == strict
    if strict:
        assert result.stderr == f"tpf-query: unknown function <{EX}unknown>\n"


def test_unknown_functions_by_the_command_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    class StoppedError(Exception):
        pass

    def client(*_urls: str, strict: bool, **_options: Any) -> Client:
        assert strict
        raise StoppedError

    monkeypatch.setattr("tpf_client.app.serving.Client", client)
    monkeypatch.setattr("tpf_client.app.serving.listen", lambda *_: None)

    arguments = ["http://server.test/x", "--port", "0", "--strict"]
    with pytest.raises(StoppedError):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
