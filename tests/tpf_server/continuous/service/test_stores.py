"""Static data from stores of the loaders, written as by Spark."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from annotations.clock import ManualClock
from annotations.terms import Term
from loaders.rdf.build import load_rdf_spark
from loaders.rdf.summary import RdfLoad
from tpf_server.app import DatasetOpener
from tpf_server.configuration import Configuration
from tpf_server.continuous.runtime.elements.elements import Element
from tpf_server.continuous.service.assembly import continuous_service, static_graphs
from tpf_server.continuous.service.cli import app
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.continuous.service.result_log import ResultLog
from tpf_server.settings import DatasetSettings, Settings

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


def write(folder: Path, name: str, text: str, suffix: str = "nt") -> None:
    file = folder / f"{name}.{suffix}"
    file.write_text(text)
    load_rdf_spark([file], folder / f"{name}.store", None, RdfLoad(NOON))


def configuration(folder: Path, *names: str) -> Configuration:
    return Configuration(
        Settings(base_url="http://server.test/", data_dir=str(folder), stream_time="elements"),
        tuple(
            DatasetSettings(name=name, source=str(folder / f"{name}.store"), live=False)
            for name in names
        ),
    )


def push(service: ContinuousService, at: int, who: str, room: str) -> None:
    triple = (Term(f"<urn:{who}>"), Term("<urn:at>"), Term(f"<urn:{room}>"))
    service.push("s", [Element(at, (triple,), 1)])


def rows(log: ResultLog) -> list[tuple[object, ...]]:
    emissions = [event.emission for event in log.read(log.oldest - 1, 0.0) or []]
    return [row for each in emissions if each for row in each.rows]


def test_queries_of_a_server_see_its_datasets(stores: Path) -> None:
    """As default graph, by URL, and after replacement."""
    wanted = configuration(stores, "rooms", "people")
    opened = DatasetOpener().open(wanted)
    service = continuous_service(wanted.server, opened, ManualClock(NOON))
    log = service.register(TEXT.format(rooms="http://server.test/rooms")).log
    everything = "SELECT ?o { STREAM <s> [NOW] { ?who <urn:at> ?room } ?room <urn:near> ?o }"
    merged = service.register(everything).log
    elsewhere = everything.replace(
        "?room <urn:near> ?o", "GRAPH <http://server.test/people> { ?room <urn:near> ?o }"
    )
    nothing = service.register(elsewhere).log
    push(service, 1, "ann", "hall")
    write(stores, "rooms", "<urn:hall> <urn:near> <urn:roof> .\n")
    anew = DatasetOpener().open(wanted)
    service.exchange_static(static_graphs(wanted.server, anew))
    for dataset in opened:
        dataset.close()
    push(service, 2, "bob", "hall")
    push(service, 3, "bob", "cafe")
    assert rows(log) == [('"Ann"', "<urn:cafe>"), ('"Bob"@en', "<urn:roof>")]
    assert rows(merged) == [("<urn:cafe>",), ("<urn:roof>",)]
    assert rows(nothing) == []
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


@pytest.mark.parametrize("name", BOTH)
def test_default_and_named_graphs_of_a_store_join_with_streams(name: str, stores: Path) -> None:
    """In a server, and by the command, which reads stores as files."""
    write(stores, "city", CITY, "nq")
    wanted = configuration(stores, "city")
    (dataset,) = DatasetOpener().open(wanted)
    service = continuous_service(wanted.server, [dataset], ManualClock(NOON))
    log = service.register(BOTH[name], name=name).log
    push(service, 500, "ann", "hall")
    push(service, 1_500, "eve", "hall")
    assert rows(log) == [('"Ann"', "<urn:cafe>")]
    service.close()
    dataset.close()
    stream = stores / "stream.tsv"
    stream.write_text("500\t<urn:ann>\t<urn:at>\t<urn:hall>\n")
    run = ["run", BOTH[name].replace("<s>", "<urn:s>"), "--stream", f"urn:s={stream}", "--static"]
    for static in (
        [f"{stores}/city.store"],
        *(
            [f"{stores}/people.{kind}", "--graph", f"urn:plan={stores}/rooms.{kind}"]
            for kind in ("store", "nt")
        ),
    ):
        result = CliRunner().invoke(app, [*run, *static])
        assert result.exit_code == 0, result.output
        (line,) = result.output.splitlines()
        assert line.split("\t", 2)[2].split() == ['"Ann"', "<urn:cafe>"]
