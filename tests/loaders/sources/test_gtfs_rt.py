from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.transit import gtfs_realtime_pb2 as rt

from loaders.errors import InputError, SettingError
from loaders.sources.gtfs import Gtfs
from loaders.sources.gtfs_rt import Realtime
from loaders.sources.polling import RecordedMessages
from tests.loaders.sources.test_gtfs import departures, write

T = "<http://example.org/train#"
AT = datetime(2026, 1, 5, 7, 0, tzinfo=UTC)  # eight o'clock in Brussels
UPDATE = rt.TripUpdate.StopTimeUpdate


def new_message(at: datetime = AT) -> Any:
    message = rt.FeedMessage()
    message.header.gtfs_realtime_version = "2.0"
    message.header.timestamp = int(at.timestamp())
    return message


def add_trip(message: Any, trip: str = "day", **descriptor: Any) -> Any:
    entity = message.entity.add()
    entity.id = str(len(message.entity))
    entity.trip_update.trip.trip_id = trip
    for name, value in descriptor.items():
        setattr(entity.trip_update.trip, name, value)
    return entity.trip_update


@pytest.fixture
def schedule(tmp_path: Path) -> Gtfs:
    return Gtfs(write(tmp_path / "feed"))


def said(schedule: Gtfs, message: Any) -> dict[str, str]:
    quads = Realtime(schedule).quads(message)
    return {
        f"{q.subject.partition('/departures/')[2][:-1]} {q.predicate.removeprefix(T)[:-1]}": (
            q.object.partition("^")[0]
        )
        for q in quads
    }


def test_names_are_those_of_the_schedule(schedule: Gtfs) -> None:
    message = new_message()
    add_trip(message).stop_time_update.add(stop_sequence=10).departure.delay = 60
    update = add_trip(message, "shuttle", start_date="20260201", start_time="24:10:00")
    update.stop_time_update.add(stop_sequence=1).departure.delay = 30
    known = departures(schedule)
    names = {name.partition(" ")[0] for name in said(schedule, message)}
    assert names == {
        "20260105/day/10", "20260105/day/20",
        "20260201/shuttle/24%3A10%3A00/1", "20260201/shuttle/24%3A10%3A00/2",
    }  # fmt: skip
    assert names <= known.keys()


def test_a_delay_holds_for_the_stops_behind(schedule: Gtfs) -> None:
    message = new_message()
    update = add_trip(message)
    update.stop_time_update.add(stop_id="B").departure.delay = -30
    assert said(schedule, message) == {"20260105/day/20 delay": '"-30"'}
    update.stop_time_update.insert(0, UPDATE(stop_sequence=10))
    update.stop_time_update[0].arrival.delay = 120
    del update.stop_time_update[1]
    assert said(schedule, message) == {
        "20260105/day/10 delay": '"120"', "20260105/day/20 delay": '"120"',
    }  # fmt: skip
    update.stop_time_update.add(stop_sequence=20, schedule_relationship=UPDATE.NO_DATA)
    assert said(schedule, message) == {"20260105/day/10 delay": '"120"'}


def test_absolute_times_are_compared_with_the_schedule(schedule: Gtfs) -> None:
    message = new_message()
    night = add_trip(message, "night", start_date="20260116").stop_time_update.add(stop_sequence=1)
    # Scheduled at 25:10:00 on the 16th.
    night.departure.time = int(datetime(2026, 1, 17, 0, 12, 30, tzinfo=UTC).timestamp())
    run = add_trip(message, "shuttle", start_date="20260201", start_time="06:20:00")
    at = datetime(2026, 2, 1, 5, 27, tzinfo=UTC)
    run.stop_time_update.add(stop_sequence=2).departure.time = int(at.timestamp())
    assert said(schedule, message) == {
        "20260116/night/1 delay": '"150"', "20260201/shuttle/06%3A20%3A00/2 delay": '"60"',
    }  # fmt: skip


def test_an_arrival_is_compared_with_the_planned_arrival(tmp_path: Path) -> None:
    rows = "day,10,A 1,08:00:00,08:05:00\nday,20,B,08:30:00,08:30:00\n"
    feed = write(tmp_path / "feed")
    (feed / "stop_times.txt").write_text(
        f"trip_id,stop_sequence,stop_id,arrival_time,departure_time\n{rows}"
    )
    message = new_message()
    stop = add_trip(message, start_date="20260105").stop_time_update.add(stop_sequence=10)
    stop.arrival.time = int(AT.timestamp()) + 60
    assert said(Gtfs(feed), message) == {"20260105/day/10 delay": '"60"'}


@pytest.mark.parametrize("kind", ["DUPLICATED", "ADDED", "NEW", "REPLACEMENT"])
def test_another_trip_says_nothing_of_the_trip_whose_name_it_has(schedule: Gtfs, kind: str) -> None:
    message = new_message()
    relationship = rt.TripDescriptor.ScheduleRelationship.Value(kind)
    add_trip(message, schedule_relationship=relationship).delay = 600
    assert said(schedule, message) == {}


@pytest.mark.parametrize("kind", ["CANCELED", "DELETED"])
def test_cancellations(schedule: Gtfs, kind: str) -> None:
    message = new_message()
    relationship = rt.TripDescriptor.ScheduleRelationship.Value(kind)
    add_trip(message, schedule_relationship=relationship)
    assert said(schedule, message) == {
        "20260105/day/10 status": '"cancelled"', "20260105/day/20 status": '"cancelled"',
    }  # fmt: skip
    message = new_message()
    update = add_trip(message)
    update.delay = 90
    update.stop_time_update.add(stop_sequence=10, schedule_relationship=UPDATE.SKIPPED)
    assert said(schedule, message) == {
        "20260105/day/10 status": '"cancelled"', "20260105/day/20 delay": '"90"',
    }  # fmt: skip


def test_an_assigned_platform(schedule: Gtfs) -> None:
    message = new_message()
    stop = add_trip(message).stop_time_update.add(stop_sequence=20)
    stop.stop_time_properties.assigned_stop_id = "A 1"
    assert said(schedule, message) == {"20260105/day/20 platform": '"1"'}


def test_vehicles(schedule: Gtfs) -> None:
    message = new_message()
    entity = message.entity.add(id="e")
    entity.vehicle.vehicle.id = "bus 7"
    entity.vehicle.position.latitude = 51.25
    entity.vehicle.position.longitude = 3.5
    entity.vehicle.trip.trip_id = "day"
    quads = Realtime(schedule).quads(message)
    assert {q.subject for q in quads} == {"<http://example.org/gtfs/vehicles/bus%207>"}
    decimal = "^^<http://www.w3.org/2001/XMLSchema#decimal>"
    assert {q.object for q in quads} == {
        f'"51.250000"{decimal}', f'"3.500000"{decimal}', "<http://example.org/gtfs/trips/day>",
    }  # fmt: skip


def add_alert(message: Any, **texts: str) -> Any:
    entity = message.entity.add(id="works")
    entity.alert.SetInParent()
    for language, text in texts.items():
        entity.alert.header_text.translation.add(text=text, language=language)
    return entity.alert


def alerts(schedule: Gtfs, message: Any, language: str | None = None) -> dict[str, dict[str, str]]:
    """Return alerts and their subjects, by the ends of names."""
    found: dict[str, dict[str, str]] = {}
    for quad in Realtime(schedule, language).quads(message):
        subject = quad.subject.partition("/alerts/")[2][:-1]
        name = quad.predicate[1:-1].replace("#", "/").rpartition("/")[2]
        value = quad.object.removeprefix("<http://example.org/").partition("^")[0]
        found.setdefault(subject, {})[name] = value
    return found


def test_alerts_and_what_they_are_about(schedule: Gtfs) -> None:
    message = new_message()
    alert = add_alert(message, en="Works", nl="Werken")
    alert.description_text.translation.add(text="No trains")
    alert.url.translation.add(text="http://agency.example/works")
    alert.cause = rt.Alert.CONSTRUCTION
    alert.effect = rt.Alert.NO_SERVICE
    alert.informed_entity.add(route_id="IC 1")
    about = alert.informed_entity.add(stop_id="A")
    about.trip.trip_id = "day"
    assert alerts(schedule, message) == {
        "works": {
            "type": "train#Alert>", "label": '"Works"@en', "comment": '"No trains"',
            "url": '"http://agency.example/works"', "cause": '"construction"',
            "effect": '"no_service"',
        },
        "works/0": {
            "type": "train#Affected>", "alert": "gtfs/alerts/works>",
            "route": "gtfs/routes/IC%201>",
        },
        "works/1": {
            "type": "train#Affected>", "alert": "gtfs/alerts/works>", "trip": "gtfs/trips/day>",
            "stop": "gtfs/stops/A>",
        },
    }  # fmt: skip
    labels = [alerts(schedule, message, tag)["works"]["label"] for tag in ("nl-BE", "NL", "fr")]
    assert labels == ['"Werken"@nl', '"Werken"@nl', '"Works"@en']
    spelled = new_message()
    add_alert(spelled, nl_BE="Werken", en_GB="Works")
    labels = [alerts(schedule, spelled, tag)["works"]["label"] for tag in ("en-gb", "en_US")]
    assert labels == ['"Works"@en-gb'] * 2
    odd = new_message()
    add_alert(odd).header_text.translation.add(text="?", language="no tag")
    assert alerts(schedule, odd)["works"]["label"] == '"?"'


def test_alerts_are_told_until_their_last_period_is_over(schedule: Gtfs) -> None:
    now = int(AT.timestamp())
    for periods, wanted in (
        ([], {}),
        ([(now - 20, now - 10)], None),
        ([(now - 20, now)], None),
        ([(now + 60, 0), (now - 60, now)], {"startDate": '"2026-01-05T07:01:00Z"'}),
        ([(0, now + 1)], {"endDate": '"2026-01-05T07:00:01Z"'}),
        ([(2**64 - 2, 2**64 - 1)], {}),
    ):
        message = new_message()
        alert = add_alert(message)
        for start, end in periods:
            alert.active_period.add(start=start, end=end)
        told = alerts(schedule, message)
        if wanted is None:
            assert told == {}
        else:
            said = told["works"]
            assert {k: v for k, v in said.items() if k.endswith("Date")} == wanted


def test_what_nobody_can_place_is_left_out(schedule: Gtfs) -> None:
    message = new_message()
    for trip in (
        add_trip(message, "added"),
        add_trip(message, "shuttle"),
        add_trip(message, start_date="20261399"),
        add_trip(message, start_date="2026-01-05"),
    ):
        trip.delay = 5
    deleted = message.entity.add(id="d", is_deleted=True)
    deleted.trip_update.trip.trip_id = "day"
    deleted.trip_update.delay = 5
    assert said(schedule, message) == {}


def test_without_a_day_it_is_the_nearest(schedule: Gtfs) -> None:
    # Half past midnight where the agency is; the day trip runs from eight, the other one at 25:10.
    late = new_message(datetime(2026, 1, 5, 23, 30, tzinfo=UTC))
    add_trip(late).delay = 5
    add_trip(late, "night").delay = 7
    # The run of a template that starts at ten past midnight is one of the day before.
    add_trip(late, "shuttle", start_time="24:10:00").delay = 9
    assert set(said(schedule, late)) == {
        "20260106/day/10 delay", "20260106/day/20 delay", "20260105/night/1 delay",
        "20260105/shuttle/24%3A10%3A00/1 delay", "20260105/shuttle/24%3A10%3A00/2 delay",
    }  # fmt: skip


def record(directory: Path, delays: dict[int, int]) -> Path:
    directory.mkdir()
    for minute, delay in delays.items():
        message = new_message(AT + timedelta(minutes=minute))
        add_trip(message).delay = delay
        # The order of the names is not that of the polls.
        (directory / f"{99 - minute}.pb").write_bytes(message.SerializeToString())
    return directory


def test_recorded_messages_hold_until_the_next(schedule: Gtfs, tmp_path: Path) -> None:
    feed = RecordedMessages(record(tmp_path / "rt", {0: 0, 1: 60, 5: 120}), Realtime(schedule))
    batches = list(feed.batches(None, None))
    minutes = [0, 1, 5]
    assert [batch.at for batch in batches] == [AT + timedelta(minutes=m) for m in minutes]
    assert [batch.until for batch in batches] == [
        *(batch.at for batch in batches[1:]), AT + timedelta(minutes=5, seconds=30),
    ]  # fmt: skip
    assert [batch.quads[0].object.partition("^")[0] for batch in batches] == [
        '"0"', '"60"', '"120"',
    ]  # fmt: skip
    span = feed.span(AT + timedelta(seconds=1), AT + timedelta(minutes=5))
    assert span is not None
    assert (span.polls, span.end) == (1, AT + timedelta(minutes=5))
    assert feed.span(AT + timedelta(hours=1), None) is None


def test_inputs_that_are_no_messages(schedule: Gtfs, tmp_path: Path) -> None:
    (tmp_path / "bad.pb").write_bytes(b"hello")
    with pytest.raises(InputError, match=r"bad\.pb: not a GTFS Realtime message"):
        RecordedMessages(tmp_path / "bad.pb", Realtime(schedule))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no messages"):
        RecordedMessages(tmp_path / "empty", Realtime(schedule))
    with pytest.raises(InputError, match="No such file"):
        RecordedMessages(tmp_path / "absent.pb", Realtime(schedule))
    message = new_message()
    message.header.ClearField("timestamp")
    (tmp_path / "timeless.pb").write_bytes(message.SerializeToString())
    with pytest.raises(InputError, match="without a timestamp"):
        RecordedMessages(tmp_path / "timeless.pb", Realtime(schedule))
    with pytest.raises(SettingError):
        RecordedMessages(tmp_path / "bad.pb", Realtime(schedule), timedelta(0))
