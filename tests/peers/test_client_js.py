"""N3.js reads our pages as pyoxigraph does; so does Client.js, whose N3.js is of 2016."""

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyoxigraph as ox
import pytest
import requests

from annotations.labels import Expiration, Fact
from annotations.methods import METHODS
from annotations.terms import iri
from tests.peers.test_comunica import EX, GRAPHS, ODD, RAIL, TRAINS, XSD, T, integer
from tests.support.peers import HERE, LDF_CLIENT, N3, NODE, NODE_MODULES
from tests.support.running_server import RunningServer, n_quads

CONFIG = "".join(
    f'[datasets.{name}]\nsource = "{name}.nq"\nlive = {"true" if name == "trains" else "false"}\n'
    for name in ("rail", "graphs", "odd", "trains")
)
FORMATS = {
    "application/trig": ox.RdfFormat.TRIG,
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/n-quads": ox.RdfFormat.N_QUADS,
    "application/n-triples": ox.RdfFormat.N_TRIPLES,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    for name, quads in {"rail": RAIL, "graphs": GRAPHS, "odd": ODD, "trains": TRAINS}.items():
        (folder / f"{name}.nq").write_text(n_quads(quads), encoding="utf-8")
    end = datetime.now(UTC) + timedelta(hours=1)
    with RunningServer(folder, CONFIG) as running:
        rows = [(quad._replace(predicate=iri(T + "delay"), object=integer(5))) for quad in TRAINS]
        facts = {row.subject: Fact(row, Expiration(end)) for row in rows}
        running.publish_facts("trains", list(facts.values()))
        yield running


def canonical(text: str, kind: ox.RdfFormat, base: str) -> set[str]:
    """Its quads, with blank nodes named by what is said of them."""
    found = ox.Dataset(ox.parse(text, format=kind, base_iri=base))
    found.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return set(map(str, found))


@N3.needed
def test_n3_reads_what_we_write(server: RunningServer) -> None:
    views = [f"trains/{method.name}" for method in METHODS]
    documents = []
    for path in ("rail", "rail?page=2", "graphs", "odd", "trains", *views, ""):
        for media_type, format_ in FORMATS.items():
            answer = requests.get(server.url + path, headers={"Accept": media_type}, timeout=60)
            assert answer.headers["Content-Type"].startswith(media_type)
            documents.append((answer.url, media_type, format_, answer.text))
    lines = [
        json.dumps({"base": url, "format": media_type, "text": text})
        for url, media_type, _, text in documents
    ]
    found = subprocess.run(
        [NODE.command, str(HERE / "n3.mjs"), str(NODE_MODULES)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.splitlines()
    assert len(found) == len(documents) == 4 * (5 + len(views) + 1)
    for (url, media_type, format_, text), line in zip(documents, found, strict=True):
        said = json.loads(line)
        assert "error" not in said, (url, media_type, said["error"])
        theirs = canonical(said["quads"], ox.RdfFormat.N_QUADS, url)
        assert theirs == canonical(text, format_, url), (url, media_type)


@LDF_CLIENT.needed
@pytest.mark.parametrize(
    ("dataset", "pattern", "names"),
    [
        ("rail", f"?stop <{T}name> ?name", {'"stop 1"@en', '"Halt 1"@de'}),
        ("trains", f"<{EX}departure-1> <{T}delay> ?name", {f'"5"^^{XSD}integer'}),
    ],
)
def test_client_js_answers(
    server: RunningServer, dataset: str, pattern: str, names: set[str]
) -> None:
    query = f"SELECT ?name {{ <{EX}departure-1> <{T}stop> ?stop . {pattern} }}"
    program = str(NODE_MODULES / "ldf-client/bin/ldf-client")
    found = subprocess.run(
        [NODE.command, program, f"{server.url}{dataset}", "-q", query],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert {row["?name"] for row in json.loads(found.stdout)} == names
