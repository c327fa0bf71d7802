"""Documents of GBFS, versions 2 and 3, written after the reference."""

import json
from datetime import UTC, datetime, timedelta
from itertools import islice
from threading import Event
from typing import Any

import pytest
import requests
import responses

from annotations.clock import ManualClock
from annotations.labels import Expiration
from annotations.namespaces import integer
from annotations.terms import iri
from loaders.errors import InputError
from loaders.sources.gbfs import GBFS, Gbfs
from loaders.sources.gtfs import GEO
from loaders.sources.polling import LiveFeed, Poller, RecordedMessages

AT = datetime(2026, 1, 5, 8, tzinfo=UTC)
STATION = {
    "station_id": "7", "name": "Gate", "lat": 51.5, "lon": -3, "capacity": 20,
    "num_bikes_available": 4, "num_docks_available": 15, "is_renting": 1,
}  # fmt: skip
VEHICLE = {"vehicle_id": "a/b", "lat": 51, "lon": 3, "is_reserved": False, "station_id": "7"}
URL = "https://bikes.test/station_status.json"


def document(version: object = "2.3", ttl: object = 60, **data: object) -> bytes:
    updated: object = int(AT.timestamp()) if version == "2.3" else AT.isoformat()
    document = {"last_updated": updated, "ttl": ttl, "version": version, "data": data}
    return json.dumps(document).encode()


def status(free: int, ttl: int = 60) -> bytes:
    return document(ttl=ttl, stations=[{"station_id": "north gate", "num_bikes_available": free}])


def said(content: bytes) -> set[str]:
    return {" ".join(quad[:3]) for quad in Gbfs("urn:x/").read(content, URL)}


def test_stations_of_both_versions() -> None:
    new = {"station_id": "7", "name": [{"text": "Gate", "language": "en"}], "lat": 51.5, "lon": -3,
           "capacity": 20, "num_vehicles_available": 4, "num_docks_available": 15,
           "is_renting": True, "vehicle_types_available": []}  # fmt: skip
    xsd = "http://www.w3.org/2001/XMLSchema#"
    both = {
        f"<urn:x/stations/7> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{GBFS}Station>",
        f'<urn:x/stations/7> <{GEO}lat> "51.5"^^<{xsd}decimal>',
        f'<urn:x/stations/7> <{GEO}long> "-3"^^<{xsd}decimal>',
        f'<urn:x/stations/7> <{GBFS}capacity> "20"^^<{xsd}integer>',
        f'<urn:x/stations/7> <{GBFS}bikes_available> "4"^^<{xsd}integer>',
        f'<urn:x/stations/7> <{GBFS}docks_available> "15"^^<{xsd}integer>',
        f'<urn:x/stations/7> <{GBFS}is_renting> "true"^^<{xsd}boolean>',
    }  # fmt: skip
    label = "<urn:x/stations/7> <http://www.w3.org/2000/01/rdf-schema#label>"
    assert said(document(stations=[STATION])) == both | {f'{label} "Gate"'}
    assert said(document("3.0", stations=[new])) == both | {f'{label} "Gate"@en'}


def test_vehicles_of_both_versions() -> None:
    old = said(
        document(bikes=[{"bike_id" if k == "vehicle_id" else k: v for k, v in VEHICLE.items()}])
    )
    assert old == said(document("3.0", vehicles=[VEHICLE]))
    assert f"<urn:x/vehicles/a%2Fb> <{GBFS}station> <urn:x/stations/7>" in old
    assert len(old) == 5


def test_a_station_that_is_listed_twice_has_one_version() -> None:
    listed = [{"station_id": "7", "num_bikes_available": free} for free in (1, 2)]
    quads = Gbfs().read(document(stations=listed), URL)
    assert [q.object.partition("^")[0] for q in quads if "available" in q.predicate] == ['"2"']


def test_what_publishers_leave_empty() -> None:
    names: list[Any] = [[], None, [{"text": "Gate", "language": "en_US"}], [{"text": "Gate"}],
                        [{"text": "Gate", "language": "English (US)"}]]  # fmt: skip
    listed = [{"station_id": str(number), "name": name} for number, name in enumerate(names)]
    labels = [line for line in sorted(said(document(stations=listed))) if "label" in line]
    assert [line.rpartition(" ")[2] for line in labels] == ['"Gate"@en-us', '"Gate"', '"Gate"']
    for nowhere in (None, ""):
        assert not any("station>" in line for line in said(
            document("3.0", vehicles=[{**VEHICLE, "station_id": nowhere}])
        ))  # fmt: skip


def test_malformed_items_are_left_out_of_a_poll() -> None:
    wrong = [{"station_id": None}, {"station_id": "b", "capacity": "20"}, 7]
    told: list[str] = []
    live = LiveFeed(ManualClock(AT), Event(), told.append, 2)
    with responses.RequestsMock() as mocked:
        mocked.get(URL, body=document(stations=[*wrong, STATION]))
        mocked.get(URL, body=document(stations=wrong))
        bikes = Gbfs("urn:x/")
        poller = Poller("gbfs", URL, bikes.read, bikes.lasting, requests.Session(), live)
        (batch,) = poller.batches(None, None)
    assert {quad.subject for quad in batch.quads} == {"<urn:x/stations/7>"}
    fault = f"{URL}: a malformed GBFS document (no identifier: None) (and 2 more)"
    assert told == [f"left out: {fault}", f"a poll failed: {fault}"]


def test_the_ttl_is_the_label_and_the_period() -> None:
    clock = ManualClock(AT)
    with responses.RequestsMock() as mocked:
        for free, ttl in ((4, 60), (3, 5), (2, 60)):
            mocked.get(URL, body=status(free, ttl))
        bikes = Gbfs()
        live = LiveFeed(clock, Event())
        poller = Poller("gbfs", URL, bikes.read, bikes.lasting, requests.Session(), live)
        batches = list(islice(poller.batches(None, None), 3))
    assert [each.at - AT for each in batches] == [timedelta(seconds=s) for s in (0, 60, 65)]
    # A poll takes a moment, so labels reach a little beyond the next one.
    labels = [next(iter(each.facts("expiration"))).label for each in batches]
    assert labels == [Expiration(AT + timedelta(seconds=s)) for s in (65, 70, 130)]
    available = iri(GBFS + "bikes_available")
    assert [each.object for each in batches[1].quads if each.predicate == available] == [integer(3)]


def test_recorded_documents(tmp_path: Any) -> None:
    (tmp_path / "a.json").write_bytes(status(4))
    (batch,) = RecordedMessages(str(tmp_path), Gbfs(), timedelta(seconds=30)).batches(None, None)
    assert (batch.at, len(batch.quads)) == (AT, 2)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", "no object"),
        (b"{", "not JSON"),
        (document(stations=[{}]), "station_id"),
        (document(stations=[{"station_id": None}]), "no identifier: None"),
        (document(stations=[{"station_id": ""}]), "no identifier: ''"),
        (document(stations=[STATION, {}]), "station_id"),
        (document(stations=[{"station_id": "a", "num_bikes_available": 1.5}]), "whole number: 1.5"),
        (document(stations=[{"station_id": "a", "is_renting": "yes"}]), "'yes'"),
        (document(stations=7), "malformed"),
        (document(stations=[{"station_id": "a", "name": "\ud800"}]), "half of a surrogate pair"),
        (document(en={"feeds": [{"url": URL}]}), f"list of feeds \\({URL}"),
        (document("3.0", feeds=[{"url": URL}]), f"list of feeds \\({URL}"),
        (document(regions=[]), "neither stations nor bikes nor vehicles"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_quoted(content: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Gbfs().read(content, URL)


@pytest.mark.parametrize("ttl", [-1, "60", None, 1.5])
def test_a_ttl_is_a_number_of_seconds(ttl: object) -> None:
    with pytest.raises(InputError, match="ttl"):
        Gbfs().lasting(document(ttl=ttl), URL)
