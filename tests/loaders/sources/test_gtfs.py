import re
import zipfile
from collections import Counter
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.instants import parse_instant
from loaders.errors import InputError
from loaders.sources.gtfs import Gtfs
from loaders.sources.gtfs_schedule import Frequency, clock, schedule_instant, seconds
from tests.loaders.test_cli import run

T = "<http://example.org/train#"
BRUSSELS = ZoneInfo("Europe/Brussels")

# Clocks in Brussels are put forward on 2026-03-29 and back on 2026-10-25, both Sundays.
FEED = {
    "agency.txt": "\ufeffagency_id,agency_name,agency_url,agency_timezone\n"
    "a,Agency,http://e/,Europe/Brussels\n",
    "stops.txt": "stop_id,stop_name,stop_lat,stop_lon,parent_station,platform_code\n"
    'A,"Gent, Dampoort",51.05,3.74,,\nA 1,Gent-Dampoort,51.05,3.74,A,1\nB,Brugge,,,,\nC,,,,,\n',
    "routes.txt": "route_id,agency_id,route_short_name,route_long_name,route_type\n"
    "r1,a,IC 1,The first,2\nr2,a,,The second,2\n",
    "trips.txt": "route_id,service_id,trip_id,trip_headsign\n"
    "r1,week,day,To Brugge\nr1,week,night,\nr2,extra,shuttle,Round\nr2,sunday,sun,S\n",
    "stop_times.txt": "trip_id,arrival_time,departure_time,stop_id,stop_sequence,stop_headsign,"
    "pickup_type\n"
    "day,08:10:00,8:11:00,B,20,Elsewhere,0\n"
    "day,08:00:00,08:00:00,A 1,10,,\n"
    "day,08:20:00,08:20:00,C,30,,\n"
    "night,25:10:00,25:10:00,A,1,,\n"
    "night,,,B,2,,\n"
    "night,25:30:00,25:31:00,B,3,,1\n"
    "night,25:40:00,25:40:00,C,4,,\n"
    "shuttle,05:00:00,05:00:00,A,1,,\n"
    "shuttle,05:05:00,05:06:00,B,2,,\n"
    "shuttle,05:10:00,05:10:00,C,3,,\n"
    "sun,01:30:00,01:30:00,A,1,,\n"
    "sun,12:00:00,12:00:00,B,2,,\n"
    "sun,13:00:00,13:00:00,C,3\n",
    "calendar.txt": "service_id,monday,tuesday,wednesday,thursday,friday,saturday,sunday,"
    "start_date,end_date\n"
    "week,1,1,1,1,1,0,0,20260105,20260116\nsunday,0,0,0,0,0,0,1,20260322,20261101\n",
    "calendar_dates.txt": "service_id,date,exception_type\n"
    "week,20260107,2\nweek,20260110,1\nextra,20260201,1\n",
    "frequencies.txt": "trip_id,start_time,end_time,headway_secs\n"
    "shuttle,06:00:00,07:00:00,1200\nshuttle,23:50:00,24:30:00,1200\n",
}


def write(path: Path, **changes: str | None) -> Path:
    """Write the feed with some tables changed or left out."""
    path.mkdir()
    tables = FEED | {f"{name}.txt": text for name, text in changes.items()}
    for name, text in tables.items():
        if text is not None:
            (path / name).write_text(text, encoding="utf-8")
    return path


def departures(source: Gtfs) -> dict[str, dict[str, str]]:
    """Return departures with their properties, by the end of their names."""
    found: dict[str, dict[str, str]] = {}
    for piece in source.pieces(2):
        for s, p, o, _ in source.quads(piece):
            marker = "/departures/"
            if marker in s:
                name = s.partition(marker)[2][:-1]
                found.setdefault(name, {})[p.removeprefix(T)[:-1]] = o
    return found


def test_departures_of_days_nights_and_runs_when_clocks_change_too(tmp_path: Path) -> None:
    found = departures(Gtfs(write(tmp_path / "feed")))
    first = found["20260105/day/10"]
    gtfs = "<http://vocab.gtfs.org/terms#trip"
    assert first == {
        "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type": f"{T}Departure>",
        "routeLabel": '"IC 1"',
        "headSign": '"To Brugge"',
        "departureTime": '"2026-01-05T08:00:00+01:00"^^<http://www.w3.org/2001/XMLSchema#dateTime>',
        "stop": "<http://example.org/gtfs/stops/A%201>",
        "platform": '"1"',
        gtfs: "<http://example.org/gtfs/trips/day>",
    }
    second = found["20260105/day/20"]
    assert (second["headSign"], "platform" in second) == ('"Elsewhere"', False)
    # The last stop is no departure.
    assert "20260105/day/30" not in found

    def times(trip: str) -> dict[str, str]:
        return {
            name: facts["departureTime"][1:].partition('"')[0]
            for name, facts in found.items()
            if name.split("/")[1] == trip
        }

    # Without the exception of the 7th, with that of Saturday the 10th.
    january = [5, 6, 8, 9, 10, 12, 13, 14, 15, 16]
    assert {name[:8] for name in times("day")} == {f"202601{day:02}" for day in january}
    # After midnight belongs to the day before.
    assert times("night")["20260116/night/1"] == "2026-01-17T01:10:00+01:00"
    # A stop without a time and one without pick-up are no departures.
    assert {name.rpartition("/")[2] for name in times("night")} == {"1"}
    # Noon minus twelve hours: in spring that is 23:00 of the day before, in autumn 01:00.
    sunday = times("sun")
    assert sunday["20260329/sun/1"] == "2026-03-29T00:30:00+01:00"
    assert sunday["20260329/sun/2"] == "2026-03-29T12:00:00+02:00"
    assert sunday["20261025/sun/1"] == "2026-10-25T02:30:00+02:00"
    assert sunday["20261025/sun/2"] == "2026-10-25T12:00:00+01:00"
    assert sunday["20260405/sun/1"] == "2026-04-05T01:30:00+02:00"
    # Frequencies are runs, each named by its start.
    assert times("shuttle") == {
        f"20260201/shuttle/{start.replace(':', '%3A')}/{stop}": f"2026-02-0{at}:00+01:00"
        for start, *leaves in (
            ("06:00:00", "1T06:00", "1T06:06"),
            ("06:20:00", "1T06:20", "1T06:26"),
            ("06:40:00", "1T06:40", "1T06:46"),
            ("23:50:00", "1T23:50", "1T23:56"),
            ("24:10:00", "2T00:10", "2T00:16"),
        )
        for stop, at in enumerate(leaves, 1)
    }


def test_a_span_counts_the_departures_not_the_days(tmp_path: Path) -> None:
    start = datetime(2026, 1, 17, 0, tzinfo=BRUSSELS)
    source = Gtfs(write(tmp_path / "feed"), start, start + timedelta(hours=2))
    assert set(departures(source)) == {"20260116/night/1"}
    leaves = datetime(2026, 1, 17, 1, 10, tzinfo=BRUSSELS)
    assert set(departures(Gtfs(tmp_path / "feed", start, leaves))) == set()
    assert set(departures(Gtfs(tmp_path / "feed", leaves, start + timedelta(hours=2)))) == {
        "20260116/night/1"
    }


def test_a_span_has_the_departures_of_trips_of_ten_days(tmp_path: Path) -> None:
    times = FEED["stop_times.txt"].replace("night,,,B,2", "night,230:00:00,230:00:00,B,2")
    start = datetime(2026, 1, 25, 14, tzinfo=BRUSSELS)
    source = Gtfs(write(tmp_path / "feed", stop_times=times), start)
    assert "20260116/night/2" in departures(source)


def test_stops_routes_and_trips(tmp_path: Path) -> None:
    source = Gtfs(write(tmp_path / "feed"), base="http://agency.example/")
    triples = {quad.triple for quad in source.quads(source.pieces(1)[0])}
    base, gtfs = "<http://agency.example/", "<http://vocab.gtfs.org/terms#"
    name = "<http://xmlns.com/foaf/0.1/name>"
    assert (f"{base}stops/A>", name, '"Gent, Dampoort"') in triples
    assert (f"{base}stops/A%201>", f"{gtfs}parentStation>", f"{base}stops/A>") in triples
    assert (f"{base}routes/r2>", f"{gtfs}longName>", '"The second"') in triples
    assert (f"{base}trips/day>", f"{gtfs}route>", f"{base}routes/r1>") in triples
    latitude = "<http://www.w3.org/2003/01/geo/wgs84_pos#lat>"
    assert sum(triple.predicate == latitude for triple in triples) == 2


def test_a_row_of_empty_cells_is_no_stop(tmp_path: Path) -> None:
    source = Gtfs(write(tmp_path / "feed", stops=FEED["stops.txt"] + ",,,,,\n  \n\n"))
    subjects = {quad.subject for piece in source.pieces(1) for quad in source.quads(piece)}
    assert "<http://example.org/gtfs/stops/>" not in subjects


def test_pieces_and_forms_say_the_same(tmp_path: Path) -> None:
    directory = write(tmp_path / "feed")
    with zipfile.ZipFile(tmp_path / "feed.zip", "w") as archive:
        for file in directory.iterdir():
            archive.write(file, file.name)
    whole = Gtfs(directory)
    wanted = [triple for piece in whole.pieces(1) for triple in whole.quads(piece)]
    assert len(wanted) == len(set(wanted))
    for source, count in ((whole, 3), (Gtfs(tmp_path / "feed.zip"), 7)):
        found = [triple for piece in source.pieces(count) for triple in source.quads(piece)]
        assert sorted(found) == sorted(wanted)


@given(
    st.dates(date(2026, 1, 1), date(2026, 12, 31)),
    st.integers(12 * 3600, 24 * 3600 - 1),
    st.sampled_from(["Europe/Brussels", "America/New_York", "Asia/Kolkata", "Pacific/Apia"]),
)
def test_a_time_after_noon_is_what_the_clock_shows(day: date, total: int, zone: str) -> None:
    shown = schedule_instant(day, total, ZoneInfo(zone)).astimezone(ZoneInfo(zone))
    assert shown.date() == day
    assert clock(total) == f"{shown:%H:%M:%S}"


@given(st.integers(0, 99 * 3600))
def test_times_are_read_as_they_are_written(total: int) -> None:
    assert seconds(clock(total)) == total


@pytest.mark.parametrize("text", ["", "8", "8:00", "8:60:00", "8:00:60", "-1:00:00", "a:b:c"])
def test_texts_that_are_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        seconds(text)


TRIPS = FEED["trips.txt"]


def everything(path: Path) -> None:
    source = Gtfs(path)
    departures(source)
    list(source.quads("null"))


TIMES = FEED["stop_times.txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agency": None}, r"agency\.txt: No such file"),
        ({"agency": "agency_timezone\nEurope/Atlantis\n"}, "line 2: unknown time zone"),
        ({"agency": "agency_timezone\n"}, "no agency"),
        ({"stops": "stop_name\nA\n"}, r"stops\.txt, line 1: no column stop_id"),
        ({"stops": "stop_id\nX\n"}, r"trips\.txt, line 2: .*there is no stop 'A 1'"),
        ({"stops": FEED["stops.txt"] + ",Nameless,,,,\n"}, r"stops\.txt, line 6: .*no stop_id"),
        ({"routes": FEED["routes.txt"] + ",a,X,,2\n"}, r"routes\.txt, line 4: .*no route_id"),
        ({"trips": TRIPS + "r1,week,,\n"}, r"trips\.txt, line 6: .*no trip_id"),
        ({"trips": TRIPS + ",week,spare,\n"}, r"trips\.txt, line 6: .*no route_id"),
        ({"trips": TRIPS + "r9,week,day,\n"}, "line 6: .*no route 'r9'"),
        ({"trips": TRIPS + "r1,absent,day,\n"}, "line 6: .*'absent' has no calendar"),
        ({"stop_times": TIMES + "day,8:00,8:00,A,1\n"}, r"stop_times\.txt, line 15: .*not a time"),
        ({"stop_times": TIMES + "day,,,A,first\n"}, "line 15: a malformed row"),
        ({"stop_times": TIMES + "day,8:30:00,8:30:00,A,30\n"}, "sequence 30 twice, at C and A"),
        ({"calendar": None, "calendar_dates": None}, "neither calendar.txt nor"),
        ({"calendar_dates": "service_id,date,exception_type\nweek,2026,1\n"}, "not a date"),
        ({"calendar_dates": "service_id,date,exception_type\nweek,20260101,3\n"}, "exception_type"),
        ({"frequencies": "trip_id,start_time,end_time,headway_secs\nday,1:00:00,2:00:00,0\n"},
         "headway_secs is 0"),
    ],
)  # fmt: skip
def test_malformed_feeds_are_explained(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "feed", **changes)
    with pytest.raises(InputError, match=message):
        everything(path)


def test_an_archive_that_is_no_feed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(InputError, match=r"holds no agency\.txt"):
        Gtfs(tmp_path / "empty.zip")


@given(st.integers(0, 30 * 3600), st.integers(0, 30 * 3600), st.integers(1, 4000))
def test_starts_of_templates_by_the_hour(start: int, end: int, headway: int) -> None:
    starts = Counter(each // 3600 for each in range(start, end, headway))
    assert +Frequency(start, end, headway).hours() == starts


@pytest.mark.parametrize(
    ("start", "until"),
    [
        (None, None),
        (None, "2026-01-20T00:00:00+01:00"),
        ("2026-02-01T06:00:00+01:00", "2026-02-01T07:00:00+01:00"),
        ("2026-01-08T23:00:00+01:00", "2026-01-09T08:00:00+01:00"),
        ("2040-01-01T00:00:00+01:00", None),
    ],
)
def test_how_many_departures_are_planned(
    tmp_path: Path, start: str | None, until: str | None
) -> None:
    first, last = (None if each is None else parse_instant(each) for each in (start, until))
    feed = Gtfs(write(tmp_path / "feed"), first, last)
    exact = len(departures(feed))
    # The last stops of trips count, too, and whole hours at the bounds.
    assert exact <= feed.planned() <= 2 * exact + 2


def test_a_small_feed_of_many_departures_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calendar = FEED["calendar.txt"].replace("20260116", "20351231")
    trips = FEED["trips.txt"].replace("r2,extra,shuttle", "r2,week,shuttle")
    frequencies = "trip_id,start_time,end_time,headway_secs\nshuttle,00:00:00,24:00:00,10\n"
    feed = write(tmp_path / "feed", calendar=calendar, trips=trips, frequencies=frequencies)
    arguments = [str(feed), "--output", tmp_path / "store"]
    assert run("load", "gtfs", *arguments) == 1
    said = capsys.readouterr().err
    found = re.search(r"about (\d+) departures.* give --max-departures (\d+)", said)
    assert found is not None, said
    assert int(found[1]) == int(found[2]) > 3 * 8640 * 2600
    assert not (tmp_path / "store").exists()
    # A part of it is said, and loaded.
    span = ["--from", "2026-01-05T08:00:00+01:00", "--until", "2026-01-05T08:10:00+01:00"]
    assert run("load", "gtfs", *arguments, *span) == 0
    assert re.search(r"about \d{4} departures", capsys.readouterr().err)
