"""Static data from stores of the loaders, written as by Spark."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from typer.testing import CliRunner

from annotations.clock import ManualClock
from annotations.terms import Term
from loaders.rdf.build import load_rdf_spark
from loaders.rdf.summary import RdfLoad
from tests.support.peers import PROJECT
from tests.support.running_server import TOKEN, RunningServer
from tpf_server.app import DatasetOpener
from tpf_server.configuration import Configuration
from tpf_server.continuous.runtime.elements.elements import Element
from tpf_server.continuous.service.assembly import continuous_service, static_graphs
from tpf_server.continuous.service.cli import app
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.spark.java import JavaNotFoundError, find_java

NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
ROOMS = "<urn:hall> <urn:near> <urn:cafe> .\n<urn:cafe> <urn:near> <urn:hall> .\n"
PEOPLE = '<urn:ann> <urn:name> "Ann" .\n<urn:bob> <urn:name> "Bob"@en .\n'
TEXT = """SELECT ?name ?next {{ STREAM <s> [NOW] {{ ?who <urn:at> ?room }}
?who <urn:name> ?name . GRAPH <{rooms}> {{ ?room <urn:near> ?next }} }}"""


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    for name, text in (("rooms", ROOMS), ("people", PEOPLE)):
        write(tmp_path, name, text)
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    file = folder / f"{name}.nt"
    file.write_text(text)
    load_rdf_spark([file], folder / f"{name}.store", None, RdfLoad(NOON))


def test_the_command_reads_stores_as_files(stores: Path) -> None:
    (stores / "stream.tsv").write_text(
        "1\t<urn:ann>\t<urn:at>\t<urn:hall>\n2\t<urn:bob>\t<urn:at>\t<urn:cafe>\n"
        "3\t<urn:eve>\t<urn:at>\t<urn:hall>\n"
    )
    outputs = []
    for kind in ("store", "nt"):
        result = CliRunner().invoke(
            app,
            [
                "run", TEXT.format(rooms="http://g/"),
                "--static", str(stores / f"people.{kind}"),
                "--graph", f"http://g/={stores / f'rooms.{kind}'}",
                "--stream", f"http://localhost/s={stores / 'stream.tsv'}",
            ],
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        outputs.append(result.output.splitlines())
    assert outputs[0] == ['1\t0\t"Ann" <urn:cafe>', '2\t0\t"Bob"@en <urn:hall>']
    assert outputs[1] == outputs[0]


def test_queries_of_a_server_see_its_datasets(stores: Path) -> None:
    """As default graph, by URL, and after replacement."""
    configuration = Configuration(
        Settings(base_url="http://server.test/", data_dir=str(stores), stream_time="elements"),
        tuple(
            DatasetSettings(name=name, source=str(stores / f"{name}.store"), live=False)
            for name in ("rooms", "people")
        ),
    )
    opened = DatasetOpener().open(configuration)
    service = continuous_service(configuration.server, opened, ManualClock(NOON))
    log = service.register(TEXT.format(rooms="http://server.test/rooms")).log
    everything = "SELECT ?o { STREAM <s> [NOW] { ?who <urn:at> ?room } ?room <urn:near> ?o }"
    merged = service.register(everything).log
    elsewhere = everything.replace(
        "?room <urn:near> ?o", "GRAPH <http://server.test/people> { ?room <urn:near> ?o }"
    )
    nothing = service.register(elsewhere).log

    def push(at: int, who: str, room: str) -> None:
        triple = (Term(f"<urn:{who}>"), Term("<urn:at>"), Term(f"<urn:{room}>"))
        service.push("s", [Element(at, (triple,), 1)])

    push(1, "ann", "hall")
    write(stores, "rooms", "<urn:hall> <urn:near> <urn:roof> .\n")
    anew = DatasetOpener().open(configuration)
    service.exchange_static(static_graphs(configuration.server, anew))
    for dataset in opened:
        dataset.close()
    push(2, "bob", "hall")
    push(3, "bob", "cafe")
    for found, expected in (
        (log, [('"Ann"', "<urn:cafe>"), ('"Bob"@en', "<urn:roof>")]),
        (merged, [("<urn:cafe>",), ("<urn:roof>",)]),
        (nothing, []),
    ):
        emissions = [event.emission for event in found.read(found.oldest - 1, 0.0) or []]
        assert [row for each in emissions if each for row in each.rows] == expected
    service.close()
    for dataset in anew:
        dataset.close()


CITY = """<urn:ann> <urn:name> "Ann" .
<urn:hall> <urn:near> <urn:cafe> <urn:plan> .
<urn:cafe> <urn:near> <urn:hall> <urn:plan> .
"""
BOTH = {
    "cqels": """SELECT ?name ?next { STREAM <s> [NOW] { ?who <urn:at> ?room }
        ?who <urn:name> ?name . GRAPH <urn:plan> { ?room <urn:near> ?next } }""",
    "periodic": """REGISTER QUERY periodic AS SELECT ?name ?next
        FROM STREAM <s> [RANGE 1s STEP 1s]
        WHERE { ?who <urn:at> ?room . ?who <urn:name> ?name .
        GRAPH <urn:plan> { ?room <urn:near> ?next } }""",
}


@pytest.fixture(scope="module")
def by_spark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store written by the command with Spark."""
    pytest.importorskip("pyspark")
    try:
        find_java(None, os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "city.nq").write_text(CITY)
    command = [
        sys.executable,
        "-m",
        "tpf_client.commands",
        "tpf-load",
        "rdf",
        str(folder / "city.nq"),
    ]
    command += ["--output", str(folder / "city"), "--engine", "spark"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "engine: spark" in done.stderr
    return folder / "city"


@pytest.mark.spark
def test_what_spark_loaded_a_server_joins_with_streams(by_spark: Path, tmp_path: Path) -> None:
    """Default and named graphs, both languages, over HTTP."""
    config = 'continuous = true\nstream_time = "elements"\n'
    config += f'[datasets.city]\nsource = "{by_spark}"\n'
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with RunningServer(tmp_path, config) as server:
        for name, text in BOTH.items():
            made = requests.post(
                f"{server.url}queries", json={"query": text, "name": name}, headers=headers,
                timeout=60,
            )  # fmt: skip
            assert made.status_code == 201, made.text
        lines = "500\t<urn:ann>\t<urn:at>\t<urn:hall>\n1500\t<urn:eve>\t<urn:at>\t<urn:hall>\n"
        tsv = headers | {"Content-Type": "text/tab-separated-values"}
        assert requests.post(f"{server.url}streams/s", lines, headers=tsv, timeout=60).ok
        for name, relation in (("cqels", "added"), ("periodic", "result")):
            found = requests.get(
                f"{server.url}queries/{name}/results",
                params={"follow": "false"},
                headers={"Accept": "application/x-ndjson"},
                timeout=60,
            )
            (line,) = found.text.splitlines()
            assert json.loads(line)[relation] == [{"name": '"Ann"', "next": "<urn:cafe>"}]


@pytest.mark.spark
@pytest.mark.parametrize("name", BOTH)
def test_what_spark_loaded_the_command_joins_with_streams(
    name: str, by_spark: Path, tmp_path: Path
) -> None:
    stream = tmp_path / "stream.tsv"
    stream.write_text("500\t<urn:ann>\t<urn:at>\t<urn:hall>\n")
    text = BOTH[name].replace("<s>", "<urn:s>")
    result = CliRunner().invoke(
        app, ["run", text, "--static", str(by_spark), "--stream", f"urn:s={stream}"]
    )
    assert result.exit_code == 0, result.output
    (line,) = result.output.splitlines()
    assert line.split("\t", 2)[2].split() == ['"Ann"', "<urn:cafe>"]
