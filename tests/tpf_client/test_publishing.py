"""`publish`, over the real server in process and over one that fails."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import responses
from rdflib import Dataset, Graph, Literal, URIRef

from tests.support.live_server import START, LiveServer
from tpf_client import Client, publish
from tpf_client.errors import ConnectionFailedError, HttpError, ParseError

EX = "http://example.org/"
TRAIN, DELAY = URIRef(EX + "train"), URIRef(EX + "delay")
LINE = f'<{TRAIN}> <{DELAY}> "300" .'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(tmp_path, server={"publish_token": "secret"}) as server:
        yield server


def _filled(graph: Graph) -> Graph:
    graph.add((TRAIN, DELAY, Literal("300")))
    return graph


def _dataset() -> Dataset:
    dataset = Dataset()
    _filled(dataset.default_graph)
    return dataset


@pytest.mark.parametrize(
    "facts",
    [
        LINE,
        _filled(Graph()),
        _dataset(),
        [(TRAIN, DELAY, "300")],
        iter([(TRAIN, DELAY, Literal("300"))]),
    ],
)
def test_facts_in_each_form(server: LiveServer, facts: Any) -> None:
    session, clock = server.session(), server.clock
    answer = publish(server.url, facts, expires_in=10, token="secret", session=session, clock=clock)
    assert (answer["sequence"], answer["added"]) == (1, 1)
    with Client(server.url, session=session, clock=clock, parallelism=0) as client:
        (row,) = client.select("SELECT * { ?s ?p ?o }")
        assert (row["s"], row["p"], row["o"]) == (TRAIN, DELAY, Literal("300"))
        clock.advance_to(START + timedelta(seconds=11))
        assert not client.select("SELECT * { ?s ?p ?o }")


def test_an_interval(server: LiveServer) -> None:
    hour = timedelta(hours=1)
    graph = [(TRAIN, DELAY, 300, URIRef(EX + "g"))]
    publish(server.url, graph, valid=(START, START + hour), token="secret",
            session=server.session())  # fmt: skip
    with Client(server.url, session=server.session(), clock=server.clock) as client:
        assert client.ask("ASK { GRAPH ?g { ?s ?p 300 } }")
        server.clock.advance_to(START + hour)
        assert not client.ask("ASK { GRAPH ?g { ?s ?p 300 } }")


@pytest.mark.parametrize(
    ("facts", "given", "error", "message"),
    [
        (LINE, {}, HttpError, "HTTP 401"),
        ("<a> .", {"token": "secret", "expires_in": 5}, HttpError, "HTTP 400 .*line 1"),
        (LINE, {"token": "secret"}, HttpError, "HTTP 422 .*label"),
        (LINE, {"expires_in": 5, "valid": (START, START)}, ValueError, "expires_in or valid"),
        (LINE, {"expires_in": float("nan")}, ValueError, "expires_in: 0 to .* not nan"),
        (LINE, {"expires_in": timedelta(seconds=-1)}, ValueError, "expires_in: 0 to"),
        (LINE.encode(), {"expires_in": 5}, TypeError, "neither a triple nor a quad: "),
        ([("a", "b")], {"expires_in": 5}, TypeError, r"neither a triple nor a quad: \('a', 'b'\)"),
        ([(TRAIN, DELAY, object)], {"expires_in": 5}, TypeError, "neither a term of rdflib"),
    ],
)
def test_what_is_refused(
    server: LiveServer, facts: Any, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        publish(server.url, facts, session=server.session(), clock=server.clock, **given)


@responses.activate(registry=responses.registries.OrderedRegistry)
def test_it_is_sent_again_under_the_same_name() -> None:
    responses.post("http://h.test/d/facts", status=503)
    responses.post("http://h.test/d/facts", status=429, headers={"Retry-After": "0"})
    responses.post("http://h.test/d/facts", status=201, json={"sequence": 7})
    assert publish("http://h.test/d/", LINE, expires_in=5)["sequence"] == 7
    assert len({call.request.url for call in responses.calls}) == 1
    assert len(responses.calls) == 3


@responses.activate
def test_a_server_that_is_elsewhere_or_nowhere() -> None:
    responses.post("http://page.test/facts", status=200, body="<html>")
    with pytest.raises(ParseError, match="the answer is not JSON"):
        publish("http://page.test", LINE, expires_in=5)
    for status, error in ((200, ParseError), (400, HttpError)):
        responses.upsert("POST", "http://page.test/facts", status=status, body="[" * 100_000)
        with pytest.raises(error):
            publish("http://page.test", LINE, expires_in=5)
    responses.post("http://h.test/d/facts", status=301, headers={"Location": "http://i.test/"})
    with pytest.raises(HttpError, match="HTTP 301"):
        publish("http://h.test/d", LINE, expires_in=5)
    responses.post("http://h.test/e/facts", status=302, json={"sequence": 1})
    with pytest.raises(HttpError, match="HTTP 302"):
        publish("http://h.test/e", LINE, expires_in=5)
    with pytest.raises(ConnectionFailedError, match=r"http://127\.0\.0\.1:9/facts"):
        publish("http://127.0.0.1:9", LINE, expires_in=5, session=requests.Session())


def test_why_a_server_cannot_be_reached_is_said_without_objects() -> None:
    with pytest.raises(ConnectionFailedError) as failed:
        publish("http://127.0.0.1:9", LINE, expires_in=5, session=requests.Session())
    place, _, reason = str(failed.value).partition("/facts: ")
    assert (place, reason.rpartition("] ")[2]) == ("http://127.0.0.1:9", "Connection refused")
    assert len(reason) < 80
