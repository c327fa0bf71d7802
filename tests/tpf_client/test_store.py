"""The rdflib store over the real server."""

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
import rdflib
from rdflib import BNode, Literal
from rdflib.plugins.sparql import prepareQuery

from annotations.terms import Quad, blank_node, iri, literal
from tests.support.live_server import LiveServer
from tpf_client.store import FragmentStore

EX = rdflib.Namespace("http://example.org/")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(
        tmp_path,
        [
            Quad(iri(EX + "a"), iri(EX + "name"), literal('A\n"a"', language="en")),
            Quad(iri(EX + "a"), iri(EX + "size"), literal("007", datatype=str(rdflib.XSD.integer))),
            Quad(iri(EX + "a"), iri(EX + "part"), blank_node("x")),
            Quad(blank_node("x"), iri(EX + "name"), literal("X")),
            Quad(iri(EX + "a"), iri(EX + "name"), literal("elsewhere"), iri(EX + "g")),
        ],
        live=False,
    ) as server:
        yield server


@pytest.fixture
def graph(server: LiveServer) -> Iterator[rdflib.Graph]:
    with server.client() as client:
        yield rdflib.Graph(FragmentStore(client=client))


def test_triples(graph: rdflib.Graph) -> None:
    assert len(graph) == 4
    assert graph.value(EX.a, EX.name) == Literal('A\n"a"', lang="en")
    assert str(graph.value(EX.a, EX.size)) == "007"
    assert (EX.a, EX.name, Literal("elsewhere")) not in graph
    assert set(graph.subjects(EX.name, None)) > {EX.a}
    part = graph.value(EX.a, EX.part)
    assert isinstance(part, BNode)
    assert graph.value(part, EX.name) == Literal("X")
    assert list(graph.predicates(EX.nobody)) == []


def test_queries(graph: rdflib.Graph, server: LiveServer) -> None:
    graph.bind("ex", EX)
    rows: list[Any] = list(graph.query("SELECT ?n { ex:a ex:part/ex:name ?n }"))
    assert [row.n for row in rows] == [Literal("X")]
    assert graph.query("ASK { ?s ex:size ?z FILTER(?z = 7) }").askAnswer is True
    made = graph.query("CONSTRUCT { ?s ex:is ?n } { ?s ex:name ?n }").graph
    assert made is not None
    assert (EX.a, EX["is"], Literal('A\n"a"', lang="en")) in made
    row: Any
    (row,) = graph.query("SELECT ?n { ?s ex:name ?n }", initBindings={"s": EX.a})
    assert row.n == Literal('A\n"a"', lang="en")
    prepared = prepareQuery("SELECT ?z { ?s <http://example.org/size> ?z }")
    assert [str(each[0]) for each in cast(Any, graph.query(prepared))] == ["007"]


def test_it_is_read_only_and_wants_to_be_open(graph: rdflib.Graph) -> None:
    with pytest.raises(TypeError, match="read-only"):
        graph.add((EX.a, EX.b, EX.c))
    with pytest.raises(TypeError, match="read-only"):
        graph.remove((EX.a, None, None))
    with pytest.raises(ValueError, match="open"):
        len(rdflib.Graph(FragmentStore()))
    store = FragmentStore()
    assert (
        store.open("http://server.test/trains http://server.test/others")
        == rdflib.store.VALID_STORE
    )
    assert store.client.urls == ("http://server.test/trains", "http://server.test/others")
    store.close()
    assert store.open("") == rdflib.store.NO_STORE


def test_rdflib_finds_it_by_name() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    target = project["project"]["entry-points"]["rdf.plugins.store"]["TPF"]
    module, _, name = target.partition(":")
    assert getattr(import_module(module), name) is FragmentStore
