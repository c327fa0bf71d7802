"""Our client gets the right answers from the reference server for fragments."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest
import requests
from hypothesis import given

from annotations.namespaces import DCTERMS, HYDRA, VOID
from annotations.terms import DEFAULT_GRAPH, Quad, blank_node, iri, literal
from experiments.free_port import free_port
from tests.support.eventually import eventually, listens
from tests.support.examples import examples
from tests.support.oracle import solutions_of, store_of
from tests.support.peers import LDF_SERVER, NODE, NODE_MODULES
from tests.support.random_queries import LITERALS, PREDICATES, SUBJECTS, queries
from tests.support.running_server import n_quads
from tests.support.shapes import content, right, shop
from tests.support.shop import IN_GRAPHS, SHOP_QUERIES
from tpf_client import Client, Solutions
from tpf_client.errors import HttpError, QuerySyntaxError, UnsupportedQueryError

_CONTEXT = "https://linkedsoftwaredependencies.org/bundles/npm/@ldf/server/^3.0.0/components"
pytestmark = [pytest.mark.peers, LDF_SERVER.skip]

SMALL = [
    Quad(subject, predicate, value)
    for number, subject in enumerate(SUBJECTS)
    for place, predicate in enumerate(PREDICATES)
    for value in (SUBJECTS + LITERALS)[number + place :: 4]
] + [Quad(iri("http://e/a"), iri("http://e/r"), iri("http://e/b"))]  # fmt: skip
ODD = [
    Quad(iri("http://e/ü"), iri("http://e/p"), literal('é "\\\n\t"')),
    Quad(iri("http://e/ü"), iri("http://e/p"), literal("colour", language="en-GB")),
    Quad(blank_node("x"), iri("http://e/q"), iri("http://e/ü")),
]
SHOP = [quad for quad in shop(10_000) if quad.graph == DEFAULT_GRAPH]


def _config(port: int, files: dict[str, Path], kind: str) -> dict[str, object]:
    return {
        "@context": f"{_CONTEXT}/context.jsonld",
        "@id": "urn:ldf-server:my",
        "import": "preset-qpf:config-defaults.json",
        "title": "reference",
        "baseURL": f"http://127.0.0.1:{port}/",
        "port": port,
        "workers": 1,
        "dataFactory": {
            "@id": "ldfc:DataFactory#dataFactory",
            "requireName": "n3",
            "requireElement": "DataFactory",
            "requireNoConstructor": True,
        },
        "datasources": [
            {
                "@id": f"urn:ldf-server:{name}",
                "@type": kind,
                "datasourceTitle": name,
                "description": name,
                "datasourcePath": name,
                "file": str(file),
            }
            for name, file in files.items()
        ],
    }


def _near(url: str) -> list[Quad]:
    """Data about what is near the pages of a dataset, in words of interfaces, and about these."""
    subjects = [iri(url + end) for end in ("#a", "?subject=x#a", "?subject=x", "/a")]
    predicates = [iri(f"{VOID}triples"), iri(f"{HYDRA}next"), iri("http://e/p")]
    said = [Quad(s, p, o) for s in subjects for p in predicates for o in subjects]
    said.append(Quad(iri(f"{url}#dataset"), iri(f"{DCTERMS}publisher"), blank_node("x")))
    return [*said, Quad(blank_node("x"), iri("http://e/name"), literal("x"))]


@contextmanager
def reference_server(
    folder: Path, port: int, files: dict[str, Path], kind: str = "NTriplesDatasource"
) -> Iterator[str]:
    """Run the reference server over files; return its URL."""
    (folder / "config.json").write_text(json.dumps(_config(port, files, kind)), encoding="utf-8")
    # It looks for components in all packages beside it; those of newer clients would stop it.
    (folder / "node_modules").mkdir()
    for name in ("@ldf", "n3"):
        (folder / "node_modules" / name).symlink_to(NODE_MODULES / name)
    (folder / "package.json").write_text('{"name": "reference", "version": "1.0.0"}')
    core = json.dumps(str(NODE_MODULES / "@ldf/core"))
    (folder / "launch.cjs").write_text(f"require({core}).runCli(__dirname + '/');\n")
    command = [NODE.command, "launch.cjs", "config.json", str(port), "1"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: listens(port), process)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("reference")
    port = free_port()
    files = {}
    near = _near(f"http://127.0.0.1:{port}/near")
    for name, quads in (("small", SMALL), ("odd", ODD), ("shop", SHOP), ("near", near)):
        files[name] = folder / f"{name}.nt"
        files[name].write_text(n_quads(quads), encoding="utf-8")
    with reference_server(folder, port, files) as url:
        assert requests.get(url + "small", timeout=30).status_code == 200
        yield url


def _bag(answer: Solutions) -> Counter[frozenset[tuple[str, str]]]:
    return Counter(
        frozenset(
            (name, term)
            for name, term in zip(answer.variables, row.row, strict=True)
            if term is not None
        )
        for row in answer
    )


def _expected(store: pyoxigraph.Store, query: str) -> Counter[frozenset[tuple[str, str]]]:
    result = solutions_of(store, query)
    names = [each.value for each in result.variables]
    return Counter(
        frozenset((name, str(row[name])) for name in names if row[name] is not None)
        for row in result
    )


def test_shapes_of_queries(base: str) -> None:
    oracle = store_of(SHOP)
    with Client(base + "shop") as client:
        for name in SHOP_QUERIES.keys() - set(IN_GRAPHS):
            assert right(oracle, name, content(client.query(SHOP_QUERIES[name]))), name


@examples(60, fixtures=True)
@given(query=queries.filter(lambda text: "GRAPH" not in text))
def test_random_queries(base: str, query: str) -> None:
    with Client(base + "small") as client:
        try:
            found = client.query(query)
        except (QuerySyntaxError, UnsupportedQueryError):
            return
        if isinstance(found, bool):
            assert found is bool(store_of(SMALL).query(query))
        else:
            assert isinstance(found, Solutions)
            assert _bag(found) == _expected(store_of(SMALL), query)


def test_odd_terms(base: str) -> None:
    with Client(base + "odd") as client:
        for query in (
            "SELECT ?o { <http://e/ü> <http://e/p> ?o }",
            'SELECT ?s { ?s ?p "colour"@en-GB }',
            r'SELECT ?s { ?s <http://e/p> "é \"\\\n\t\"" }',
            "SELECT ?o { ?x <http://e/q> ?y . ?y <http://e/p> ?o }",
        ):
            answer = client.query(query)
            assert isinstance(answer, Solutions)
            assert _bag(answer) == _expected(store_of(ODD), query), query
            assert _expected(store_of(ODD), query), query


def test_a_dataset_that_is_not_there(base: str) -> None:
    with Client(base + "nothing") as client, pytest.raises(HttpError) as error:
        client.query("ASK { ?s ?p ?o }")
    assert error.value.url == base + "nothing"
    assert error.value.status == 404


class _Asks(requests.adapters.HTTPAdapter):
    """Asks for one format, whatever the client prefers."""

    def __init__(self, media_type: str) -> None:
        super().__init__()
        self._media_type = media_type

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        request.headers["Accept"] = self._media_type
        return super().send(request, **options)


@pytest.mark.parametrize("media_type", ["text/turtle", "application/n-triples", "application/trig"])
@pytest.mark.parametrize("name", ["near", "small", "odd"])
def test_pages_of_all_formats_have_their_data_and_no_others(
    base: str, name: str, media_type: str
) -> None:
    data = {"near": _near(f"{base}near"), "small": SMALL, "odd": ODD}[name]
    session = requests.Session()
    session.mount(base, _Asks(media_type))
    with Client(base + name, session=session) as client:
        found = client.query("SELECT * { ?s ?p ?o }")
        assert isinstance(found, Solutions)
        rows = [tuple(re.sub("^_:.*", "_:", str(term)) for term in row.row) for row in found]
    assert Counter(rows) == Counter(
        tuple(re.sub("^_:.*", "_:", term) for term in quad.triple) for quad in data
    )
