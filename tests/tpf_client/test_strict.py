"""Unknown functions: an error in SPARQL, or refused by a setting."""

from typing import Any
from urllib.parse import urlencode

import pytest
from typer.testing import CliRunner

import tpf_client.app.cli
from annotations.terms import Quad, iri, literal
from tests.support.live_server import LiveServer
from tests.tpf_client.app.test_endpoint import call
from tpf_client import Client, Solutions
from tpf_client.app.endpoint import SparqlEndpoint
from tpf_client.app.serving import app
from tpf_client.errors import UnsupportedQueryError

EX = "http://example.org/"
CALL = f"<{EX}unknown>(?o)"
FORMS = [
    f"SELECT * {{ ?s ?p ?o BIND({CALL} AS ?x) }}",
    f"SELECT (MAX({CALL}) AS ?x) {{ ?s ?p ?o }}",
    f"SELECT * {{ ?s ?p ?o }} ORDER BY {CALL}",
    f"SELECT * {{ ?s ?p ?o OPTIONAL {{ ?s ?q ?o FILTER EXISTS {{ ?s ?p ?o FILTER {CALL} }} }} }}",
    f"ASK {{ ?s ?p ?o FILTER {CALL} }}",
    f"CONSTRUCT {{ ?s ?p ?x }} {{ ?s ?p ?o BIND({CALL} AS ?x) }}",
    f"DESCRIBE ?x {{ ?s ?p ?o BIND({CALL} AS ?x) }}",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    quads = [Quad(iri(EX + "a"), iri(EX + "p"), literal("1"))]
    with LiveServer(tmp_path_factory.mktemp("strict"), quads, live=False) as server:
        yield server


def _client(server: LiveServer, strict: bool) -> Client:
    return server.client(strict=strict)


@pytest.mark.parametrize("query", FORMS)
def test_the_library(server: LiveServer, query: str) -> None:
    with _client(server, False) as client:
        found = client.query(query)
        if isinstance(found, Solutions):
            assert [row.get("x") for row in found] == [None]
        else:
            assert not found
    del server.log[:]
    with _client(server, True) as client, pytest.raises(UnsupportedQueryError, match="unknown>"):
        client.query(query)
    assert server.log == []


def test_a_stream(server: LiveServer) -> None:
    with _client(server, True) as client, pytest.raises(UnsupportedQueryError, match="unknown>"):
        client.stream(FORMS[0])
    with _client(server, False) as client:
        (update,) = client.stream(FORMS[0])
        assert len(update.added) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_the_command(server: LiveServer, strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tpf_client.app.cli, "Client", lambda *_, strict, **__: _client(server, strict)
    )
    arguments = [server.url, "-q", FORMS[0], *(["--strict"] if strict else [])]
    result = CliRunner().invoke(tpf_client.app.cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == strict
    if strict:
        assert result.stderr == f"tpf-query: unknown function <{EX}unknown>\n"


@pytest.mark.parametrize("strict", [False, True])
def test_the_endpoint(server: LiveServer, strict: bool) -> None:
    with _client(server, strict) as client:
        code, _, body = call(SparqlEndpoint(client), query=urlencode({"query": FORMS[0]}))
    assert code == (400 if strict else 200)
    assert (b"unknown function" in body) is strict


def test_the_command_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
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
