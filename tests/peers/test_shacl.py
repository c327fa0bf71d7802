"""pySHACL finds what specifications ask for in the catalogue, on pages, and in an event stream.

The shapes beside this file are ours, written after the specifications: LDES and TREE publish none,
and those of DCAT-AP are in no package.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import rdflib
import requests

from annotations.namespaces import DCAT, DCTERMS, FOAF, LDES, SD, TREE, VOID
from tests.support.peers import HERE
from tests.support.running_server import TOKEN, RunningServer
from tests.tpf_client.app.test_endpoint import call
from tpf_client import Client
from tpf_client.app.endpoint import SparqlEndpoint

pyshacl = pytest.importorskip("pyshacl", reason="pyshacl is not installed: ./run install")
pytestmark = pytest.mark.peers

SHACL = rdflib.Namespace("http://www.w3.org/ns/shacl#")
HYDRA = "http://www.w3.org/ns/hydra/core#"
CONFIG = """
description = "All that moves"
publisher = "http://agency.example/"
[datasets.trains]
title = "Trains"
description = "Where they are"
license = "http://creativecommons.org/publicdomain/zero/1.0/"
publisher = "The agency"
event_stream = 3600.0
page_size = 2
[datasets.ships]
description = "Where they are, too"
publisher = "The harbour"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("server"), CONFIG) as running:
        head = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-quads"}
        url = f"{running.url}trains/facts"
        for number in range(5):
            body = f'<urn:a> <urn:p> "{number}" .\n<urn:b> <urn:q> <urn:c> <urn:g> .'
            label = {"expiration": "2999-01-01T00:00:00Z"}
            requests.post(url, body, params=label, headers=head, timeout=60).raise_for_status()
        requests.delete(url, data='<urn:a> <urn:p> "4" .', headers=head, timeout=60)
        yield running


def read(url: str) -> rdflib.Graph:
    answer = requests.get(url, headers={"Accept": "text/turtle"}, timeout=60)
    answer.raise_for_status()
    return rdflib.Graph().parse(data=answer.text, format="turtle", publicID=url)


def shapes(name: str) -> rdflib.Graph:
    return rdflib.Graph().parse(HERE / f"shapes/{name}.ttl")


def complaints(data: rdflib.Graph, rules: rdflib.Graph) -> list[str]:
    conforms, _, text = pyshacl.validate(data, shacl_graph=rules, meta_shacl=False)
    return [] if conforms else [text]


def missed(data: rdflib.Graph, rules: rdflib.Graph, *predicates: str) -> list[str]:
    """The predicates without which the data still conform."""
    found = []
    for predicate in predicates:
        lacking = rdflib.Graph() + data
        assert (None, rdflib.URIRef(predicate), None) in lacking, predicate
        lacking.remove((None, rdflib.URIRef(predicate), None))
        if not complaints(lacking, rules):
            found.append(predicate)
    return found


def test_the_catalogue_is_open_data(server: RunningServer) -> None:
    data, rules = read(f"{server.url}.well-known/void"), shapes("open-data")
    assert complaints(data, rules) == []
    kinds = {str(kind) for kind in data.objects(None, rdflib.RDF.type)}
    assert {f"{DCAT}Catalog", f"{VOID}Dataset", f"{FOAF}Agent"} <= kinds
    mandatory = [
        *(DCTERMS + name for name in ("title", "description", "publisher")),
        *(DCAT + name for name in ("dataset", "distribution", "accessURL", "endpointURL")),
        VOID + "triples",
        FOAF + "name",
    ]
    assert missed(data, rules, *mandatory) == []
    # Each publisher has one name, though several have no IRI of their own.
    names = sorted(str(name) for name in data.objects(None, rdflib.URIRef(FOAF + "name")))
    assert names == ["The agency", "The harbour"]


def test_endpoints_describe_themselves() -> None:
    environ: dict[str, Any] = {"wsgi.url_scheme": "http", "HTTP_HOST": "localhost:8890"}
    with Client("http://fragments.test/d") as client:
        _, _, body = call(
            SparqlEndpoint(client),
            HTTP_ACCEPT="text/turtle",
            **environ,
        )
    described = rdflib.Graph().parse(data=body.decode(), format="turtle")
    rules, service = shapes("open-data"), rdflib.URIRef(f"{SD}Service")
    assert len(list(described.subjects(rdflib.RDF.type, service))) == 1
    assert complaints(described, rules) == []
    assert missed(described, rules, SD + "endpoint", SD + "defaultDataset") == []


def test_pages_have_the_controls_of_fragments(server: RunningServer) -> None:
    rules = shapes("fragment")
    for path in ("trains", "trains?page=2", "trains/reification?subject=urn:a", "ships"):
        data = read(server.url + path)
        assert complaints(data, rules) == []
        needed = [HYDRA + name for name in ("template", "mapping", "variable", "property")]
        assert missed(data, rules, *needed, VOID + "subset") == []


def test_nodes_and_members_are_as_ldes_and_tree_say(server: RunningServer) -> None:
    rules = shapes("event-stream")
    root = read(f"{server.url}trains/ldes")
    assert complaints(root, rules) == []
    needed = ["timestampPath", "versionOfPath", "fullLogDuration"]
    assert missed(root, rules, *(LDES + name for name in needed), TREE + "view") == []
    nodes = [str(node) for node in root.objects(None, rdflib.URIRef(TREE + "node"))]
    assert nodes
    # The shape that the stream itself names, of all its members.
    (shape,) = root.objects(None, rdflib.URIRef(TREE + "shape"))
    root.add((shape, SHACL.targetObjectsOf, rdflib.URIRef(TREE + "member")))
    for url in set(nodes):
        leaf = read(url)
        assert (None, rdflib.URIRef(TREE + "member"), None) in leaf
        for each in (rules, root):
            assert complaints(leaf, each) == []
            assert missed(leaf, each, DCTERMS + "created", DCTERMS + "isVersionOf") == []
