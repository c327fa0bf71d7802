"""The vocabulary cache of the page's editor."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import responses

from annotations.namespaces import RDF_TYPE
from annotations.terms import Quad, iri, literal
from tests.support.live_server import LiveServer
from tests.tpf_client.app.test_endpoint import call
from tpf_client import Client
from tpf_client.app.endpoint import KEPT, SparqlEndpoint
from tpf_client.errors import HttpError

EX = "http://example.org/"
KINDS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # Sorted by subject, as stores are: each kind of thing stands together.
    data = []
    for n in range(1200):
        thing, kind = iri(f"{EX}thing/{n:04}"), n * KINDS // 1200
        data += [
            Quad(thing, RDF_TYPE, iri(f"{EX}Kind{kind}")),
            Quad(thing, iri(f"{EX}of{kind}"), literal(str(n))),
            Quad(thing, iri(f"{EX}name"), literal(f"thing {n}")),
        ]
    with LiveServer(tmp_path_factory.mktemp("words"), data, live=False) as server:
        yield server


def test_words_of_a_server_that_counts_them_are_exact(server: LiveServer) -> None:
    with Client(server.url, session=server.session(), clock=server.clock) as client:
        told = json.loads(call(SparqlEndpoint(client), PATH_INFO="/words.json")[2])
        assert client.statistics.requests == 1
    assert [f"{EX}name", 1200] in told["predicates"]
    assert told["classes"] == [[f"{EX}Kind{kind}", 1200 // KINDS] for kind in range(KINDS)]


def test_words_of_all_parts_of_a_dataset_are_found_by_few_requests(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_there(url: str) -> bytes:
        raise HttpError(url, 404, "")

    with Client(server.url, session=server.session(), clock=server.clock, cache_bytes=0) as client:
        monkeypatch.setattr(client.fetcher, "document", not_there)  # as with servers of others
        endpoint = SparqlEndpoint(client)
        code, headers, body = call(endpoint, PATH_INFO="/words.json")
        assert (code, headers["Content-Type"]) == (200, "application/json")
        told = json.loads(body)
        assert set(told["predicates"][:2]) == {RDF_TYPE[1:-1], f"{EX}name"}
        assert set(told["predicates"][2:]) == {f"{EX}of{kind}" for kind in range(KINDS)}
        assert set(told["classes"]) == {f"{EX}Kind{kind}" for kind in range(KINDS)}
        assert client.statistics.requests <= 30
        # They are kept for a while.
        before = len(server.log)
        assert call(endpoint, PATH_INFO="/words.json")[2] == body
        assert len(server.log) == before
        server.clock.advance_to(server.clock.now() + KEPT + timedelta(seconds=1))
        assert call(endpoint, PATH_INFO="/words.json")[2] == body
        assert len(server.log) > before
        assert call(endpoint, "POST", PATH_INFO="/words.json")[0] == 405
        assert call(endpoint, "HEAD", PATH_INFO="/words.json")[2] == b""


@pytest.mark.parametrize(
    "counts",
    [b"[" * 10**5, b'{"predicates": [["urn:p", 1e999]], "classes": []}', b'{"classes": 1}'],
)
def test_counts_that_are_none_are_not_taken(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, counts: bytes
) -> None:
    with Client(server.url, session=server.session(), clock=server.clock) as client:
        monkeypatch.setattr(client.fetcher, "document", lambda _url: counts)
        code, _, body = call(SparqlEndpoint(client), PATH_INFO="/words.json")
    assert code == 200
    assert f"{EX}name" in json.loads(body)["predicates"]


@responses.activate
def test_words_of_files_are_asked_of_nobody(tmp_path: Path) -> None:
    file = tmp_path / "data.nt"
    file.write_text(f"<{EX}a> <{EX}name> <{EX}b> .\n")
    with Client(file, session=requests.Session()) as client:
        told = json.loads(call(SparqlEndpoint(client), PATH_INFO="/words.json")[2])
    assert told["predicates"] == [f"{EX}name"]
    assert not responses.calls


def test_a_fragment_server_that_is_away_is_told(server: LiveServer) -> None:
    away = f"{server.url}-away"
    with Client(away, session=server.session(), clock=server.clock) as client:
        code, _, body = call(SparqlEndpoint(client), PATH_INFO="/words.json")
    assert code == 502
    assert away in body.decode()
