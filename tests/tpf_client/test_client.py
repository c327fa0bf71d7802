"""The client as its users see it, over the real server in process."""

from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
import rdflib
from rdflib import BNode, Literal, URIRef

import tpf_client
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, blank_node, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client import Client, Solutions
from tpf_client.errors import (
    QuerySyntaxError,
    UnsupportedQueryError,
)
from tpf_client.queries import QueryOptions

EX = "http://example.org/"
PREFIX = f"PREFIX : <{EX}> "


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(
        tmp_path,
        [
            Quad(iri(EX + "a"), iri(EX + "name"), literal("A\n\"a\"", language="en")),
            Quad(iri(EX + "a"), iri(EX + "size"),
                 literal("007", datatype="http://www.w3.org/2001/XMLSchema#integer")),
            Quad(iri(EX + "b"), iri(EX + "name"), literal("B")),
            Quad(iri(EX + "b"), iri(EX + "part"), blank_node("x")),
            Quad(blank_node("x"), iri(EX + "name"), literal("X")),
        ],
    ) as server:  # fmt: skip
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with server.client() as client:
        yield client


def test_select_gives_rdflib_terms_whose_lexical_forms_are_kept(client: Client) -> None:
    rows = list(client.select(PREFIX + "SELECT * { ?s :name ?n OPTIONAL { ?s :size ?z } }"))
    by_subject = {row["s"]: row for row in rows}
    a = by_subject[URIRef(EX + "a")]
    assert a["n"] == Literal('A\n"a"', lang="en")
    assert str(a.z) == "007"
    assert isinstance(a.z, Literal)
    assert a.z.datatype == rdflib.XSD.integer
    b = by_subject[URIRef(EX + "b")]
    assert "z" not in b
    assert set(b) == {"s", "n"}
    with pytest.raises(AttributeError, match="z"):
        _ = b.z
    assert any(isinstance(subject, BNode) for subject in by_subject)


def test_pandas(client: Client) -> None:
    frame = client.select(PREFIX + "SELECT ?s ?z { ?s :size ?z }").to_pandas()
    assert frame.to_dict("records") == [{"s": EX + "a", "z": 7}]


def test_wrong_queries_are_refused_before_the_first_request(
    client: Client, server: LiveServer
) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        client.query("SELECT * {\n  ?s ?p \n}")
    assert (caught.value.line, caught.value.column) == (3, 1)
    with pytest.raises(UnsupportedQueryError):
        client.query("SELECT * { SERVICE ?where { ?s ?p ?o } }")
    with pytest.raises(UnsupportedQueryError):
        client.select("ASK {}")
    assert server.log == []


def test_a_stream_over_labels_gives_changes_and_ends_when_closed(
    client: Client, server: LiveServer
) -> None:
    soon, later = (START + timedelta(seconds=n) for n in (5, 9))
    delay = iri(EX + "delay")
    server.publish(
        [
            Fact(Quad(iri(EX + "a"), delay, literal("1")), Expiration(soon)),
            Fact(Quad(iri(EX + "b"), delay, literal("2")), Expiration(later)),
        ]
    )
    stream = client.stream(PREFIX + "SELECT ?s ?d { ?s :delay ?d }")
    updates = iter(stream)
    first = next(updates)
    assert len(first.added) == 2
    assert first.valid_until == soon
    second = next(updates)
    assert second.at == soon
    assert [row["d"] for row in second.removed] == [Literal("1")]
    assert second.added == ()
    assert second.to_json() == {
        "at": "2015-12-08T10:20:05Z",
        "vars": ["s", "d"],
        "added": [],
        "valid": [],
        "removed": [
            {
                "s": {"type": "uri", "value": EX + "a"},
                "d": {"type": "literal", "value": "1"},
            }
        ],
        "valid_until": "2015-12-08T10:20:09Z",
        "next_look": "2015-12-08T10:20:09Z",
        "dynamic": True,
    }
    assert second.to_pandas().to_dict("records") == [{"s": EX + "b", "d": "2"}]
    stream.close()
    assert list(updates) == []


def test_exported_names() -> None:
    assert {"AsyncClient", "Client", "Limits", "publish"} < set(tpf_client.__all__)
    assert tpf_client.__version__ == version("live-linked-data")
    for name in tpf_client.__all__:
        assert getattr(tpf_client, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = tpf_client.Nothing


def test_progress(client: Client) -> None:
    told: list[tuple[int, int]] = []
    answer = client.query(
        PREFIX + "SELECT * { ?s :name ?n }",
        options=QueryOptions(progress=lambda *n: told.append(n)),
    )
    assert isinstance(answer, Solutions)
    assert len(list(answer)) == 3
    assert told == sorted(told)
    assert told[-1] == (client.statistics.requests + client.statistics.cache_hits, 3)


def test_ill_typed_literals_are_data_like_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    number = literal("no number", datatype=str(rdflib.XSD.integer))
    server = LiveServer(tmp_path, [Quad(iri(EX + "a"), iri(EX + "p"), number)], live=False)
    with Client(server.url, session=server.session(), clock=server.clock) as client:
        (row,) = client.select("SELECT ?o { ?s ?p ?o }")
        graph = client.query("CONSTRUCT WHERE { ?s ?p ?o }")
        frame = client.select("SELECT ?o { ?s ?p ?o }").to_pandas()
    server.close()
    assert str(row["o"]) == "no number"
    assert isinstance(graph, rdflib.Graph)
    assert "no number" in graph.serialize(format="nt")
    assert frame["o"].tolist() == ["no number"]
    assert [record.name for record in caplog.records if "rdflib" in record.name] == []
    # What others do with rdflib is logged as ever.
    Literal("no number", datatype=rdflib.XSD.integer)
    assert [record.name for record in caplog.records] == ["rdflib.term"]
