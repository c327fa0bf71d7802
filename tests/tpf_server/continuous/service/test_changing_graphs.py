"""Live facts as static graphs of continuous queries, over HTTP."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from annotations.clock import ManualClock
from tests.support.continuous_site import ROOT, ContinuousClient
from tests.support.wsgi_adapter import WsgiAdapter
from tpf_server.app import DatasetOpener, create_app
from tpf_server.configuration import Configuration
from tpf_server.continuous.service.assembly import live_stores, static_graphs
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.errors import StoreError
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.store import LiveStore

NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
QUERIES = {
    "cqels": "SELECT ?next {{ STREAM <s> [NOW] {{ ?who <urn:at> ?room }} {0} }}",
    "csparql": """REGISTER QUERY csparql AS SELECT ?next FROM STREAM <s> [RANGE 1s STEP 1s]
        WHERE {{ ?who <urn:at> ?room . {0} }}""",
}
PLACES = {
    "default": "?room <urn:near> ?next",
    "dataset": "GRAPH <http://server.test/rooms> { ?room <urn:near> ?next }",
    "graph": "GRAPH <urn:plan> { ?room <urn:near> ?next }",
}


class Server(ContinuousClient):
    """An application with a live dataset, on a manual clock."""

    def __init__(self, folder: Path) -> None:
        (folder / "rooms.nq").write_text("<urn:hall> <urn:near> <urn:yard> .\n")
        self.configuration = Configuration(
            Settings(
                base_url=f"{ROOT}/", data_dir=str(folder), publish_token="secret",
                continuous=True, stream_time="elements",
            ),
            (DatasetSettings(name="rooms", source=str(folder / "rooms.nq"), live=True),),
        )  # fmt: skip
        self.opener = DatasetOpener()
        self.datasets: list[OpenDataset] = self.opener.open(self.configuration)
        self.clock = ManualClock(NOON)
        app = create_app(self.configuration.server, self.datasets, self.clock)
        self.service: ContinuousService = app.extensions["tpf_server.continuous"]
        session = requests.Session()
        session.mount(ROOT, WsgiAdapter(app))
        super().__init__(ROOT, session)
        self.at = 0

    def publish(self, triples: str, **label: str) -> None:
        quads = {"Content-Type": "application/n-quads"}
        answer = self.post("rooms/facts", triples, quads, params=label)
        assert answer.ok, answer.text

    def ask_for(self, language: str, where: str) -> None:
        answer = self.register(QUERIES[language].format(where), name=language)
        assert answer.status_code == 201, answer.text

    def enter(self) -> None:
        """Somebody is in the hall; a second later something else comes."""
        lines = [f"{self.at + 1}\t<urn:ann>\t<urn:at>\t<urn:hall>"]
        self.at += 1000
        lines.append(f"{self.at + 1}\t<urn:x>\t<urn:y>\t<urn:z>")
        tsv = {"Content-Type": "text/tab-separated-values"}
        assert self.post("streams/s", "\n".join(lines), tsv).ok

    def next(self, language: str) -> list[str]:
        """Return the current answer."""
        before = len(self.emissions(language))
        self.enter()
        rows: list[Any] = []
        for each in self.emissions(language)[before:]:
            rows += each["added"] if "added" in each else each["result"]
        return sorted(row["next"] for row in rows)

    def reload(self) -> None:
        """As SIGHUP does."""
        before, settings = self.datasets, self.configuration.server
        self.datasets = self.opener.open(self.configuration)
        self.service.exchange_static(
            static_graphs(settings, self.datasets), live_stores(settings, self.datasets)
        )
        for dataset in before:
            dataset.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.service.close()
    for dataset in made.datasets:
        dataset.close()


def until(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


@pytest.mark.parametrize("language", QUERIES)
@pytest.mark.parametrize("place", PLACES)
def test_a_published_fact_is_seen_until_it_ends(server: Server, place: str, language: str) -> None:
    graph = " <urn:plan>" if place == "graph" else ""
    always = [] if graph else ["<urn:yard>"]
    server.ask_for(language, PLACES[place])
    assert server.next(language) == always
    server.publish(f"<urn:hall> <urn:near> <urn:attic>{graph} .", expiration=until(30))
    assert server.next(language) == sorted([*always, "<urn:attic>"])
    server.publish(f"<urn:hall> <urn:near> <urn:cafe>{graph} .", expiration=until(60))
    assert server.next(language) == sorted([*always, "<urn:cafe>"])
    # It begins later, and ends the one that is there.
    server.publish(f"<urn:hall> <urn:near> <urn:roof>{graph} .", initial=until(70), final=until(80))
    server.clock.advance_to(NOON + timedelta(seconds=60))
    assert server.next(language) == always
    server.clock.advance_to(NOON + timedelta(seconds=70))
    assert server.next(language) == sorted([*always, "<urn:roof>"])
    server.reload()
    assert server.next(language) == sorted([*always, "<urn:roof>"])
    server.clock.advance_to(NOON + timedelta(seconds=81))
    assert server.next(language) == always


def test_a_fact_that_is_static_too_is_there_once_and_stays(server: Server) -> None:
    server.ask_for("cqels", PLACES["default"])
    server.publish("<urn:hall> <urn:near> <urn:yard> .", expiration=until(30))
    assert server.next("cqels") == ["<urn:yard>"]
    server.clock.advance_to(NOON + timedelta(seconds=31))
    assert server.next("cqels") == ["<urn:yard>"]


def test_a_graph_whose_facts_have_ended_is_no_graph_any_more(server: Server) -> None:
    server.publish("<urn:hall> <urn:near> <urn:cafe> <urn:plan> .", expiration=until(30))
    server.ask_for("cqels", "GRAPH ?g { ?room <urn:near> ?next }")
    names = server.service._engine.static
    assert server.next("cqels") == ["<urn:cafe>", "<urn:yard>"]
    assert "<urn:plan>" in names.names
    server.clock.advance_to(NOON + timedelta(seconds=30))
    assert server.next("cqels") == ["<urn:yard>"]
    assert "<urn:plan>" not in names.names


def test_a_store_that_cannot_be_read_is_looked_at_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.ask_for("cqels", PLACES["default"])
    server.publish("<urn:hall> <urn:near> <urn:attic> .", expiration=until(30))

    def fail(*_: object) -> None:
        raise StoreError("the disk fails")

    with monkeypatch.context() as failing:
        failing.setattr(LiveStore, "current", fail)
        assert server.next("cqels") == ["<urn:yard>"]
    assert server.next("cqels") == ["<urn:attic>", "<urn:yard>"]
