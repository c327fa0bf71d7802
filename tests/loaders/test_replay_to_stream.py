"""The replay to a stream of the real service, in process and on one clock."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from flask import Flask

from annotations.clock import ManualClock
from annotations.instants import to_micros
from loaders.errors import SettingError
from loaders.publisher import Publisher
from loaders.replay import ReplaySettings, replay
from loaders.sources.flights import Flights
from tests.loaders.recordings import write_flights
from tests.loaders.test_replay_served import ROWS
from tests.support.wsgi_adapter import WsgiAdapter
from tpf_server.continuous.continuous_engine import Engine, InstantSettings
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.continuous.service.hosting import Policies
from tpf_server.continuous.service.web import continuous_blueprint
from tpf_server.settings import Settings
from tpf_server.web.bodies import BodyReader

ROOT = "http://server.test"
QUERY = (
    "SELECT ?departure ?delay { STREAM <http://localhost/flights> [RANGE 1ms] "
    "{ ?departure <http://example.org/train#delay> ?delay } }"
)


class Site(NamedTuple):
    """The service, its clock, and a session that may lose answers."""

    clock: ManualClock
    session: requests.Session
    lost: list[bool]


@pytest.fixture
def site() -> Iterator[Site]:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    engine = Engine(instants=InstantSettings(eager=True))
    service = ContinuousService(engine, clock, Policies(backlog=1000))
    app = Flask("test")
    settings = Settings(base_url=ROOT, publish_token="secret")
    app.register_blueprint(continuous_blueprint(service, BodyReader(100_000), settings))
    lost: list[bool] = []

    def faulty(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        answer = app(environ, start_response)
        if environ["PATH_INFO"].startswith("/streams/") and lost and lost.pop(0):
            raise requests.ConnectionError("connection broken")
        return answer

    with requests.Session() as session:
        session.mount(ROOT, WsgiAdapter(faulty))
        yield Site(clock, session, lost)


def test_every_poll_arrives_once_at_its_instant(tmp_path: Path, site: Site) -> None:
    clock, session, lost = site
    token = {"Authorization": "Bearer secret"}
    asked = session.post(f"{ROOT}/queries", json={"query": QUERY, "name": "q"}, headers=token)
    assert asked.status_code == 201
    lost[:] = [False, True, False, True]
    feed = Flights(write_flights(tmp_path / "flights", ROWS), period=timedelta(minutes=5))
    begin = clock.now()
    wanted = [
        # Ten times as fast.
        (to_micros(begin + (batch.at - first.at) / 10) // 1000, quad.subject, quad.object)
        for batches in [list(feed.batches(None, None))]
        for first in [next(batch for batch in batches if batch.quads)]
        for batch in batches
        for quad in batch.quads
        if quad.predicate == "<http://example.org/train#delay>"
    ]
    stream = Publisher(f"{ROOT}/streams/flights", clock, "secret", session)
    settings = ReplaySettings(speed=10, labelling="interval", lead=timedelta(0))
    summary = replay(feed, stream, clock, settings)
    assert summary.retries == 2
    answer = session.get(
        f"{ROOT}/queries/q/results",
        params={"follow": "false"},
        headers={"Accept": "application/x-ndjson"},
    )
    found = []
    for line in answer.text.splitlines():
        emission = json.loads(line)
        at = to_micros(datetime.fromisoformat(emission["at"])) // 1000
        found += [(at, row["departure"], row["delay"]) for row in emission.get("added", ())]
    # An answer that got lost and a pause before the next attempt: later polls slip.
    slipped = summary.slipped // timedelta(milliseconds=1)
    assert len(found) == len(wanted)
    assert [row[1:] for row in sorted(found)] == [row[1:] for row in sorted(wanted)]
    assert all(0 <= is_at - due <= slipped for (is_at, *_), (due, *_) in zip(
        sorted(found), sorted(wanted), strict=True
    ))  # fmt: skip


def test_elements_of_a_stream_need_a_beginning(tmp_path: Path, site: Site) -> None:
    feed = Flights(write_flights(tmp_path / "flights", ROWS))
    stream = Publisher(f"{ROOT}/streams/flights", site.clock, "secret", site.session)
    with pytest.raises(SettingError, match="label with intervals"):
        replay(feed, stream, site.clock, ReplaySettings())
