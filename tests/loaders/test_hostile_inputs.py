"""Hostile inputs: one line each, in bounded time and memory.

`TPF_FUZZ_FILES=2000 ./run test tests/loaders/test_hostile_inputs.py` tries more damaged files.
"""

import gzip
import json
import os
import random
import resource
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest

from annotations.terms import Quad, Term
from loaders.errors import LoaderError
from loaders.rdf.build import load_rdf_local
from loaders.rdf.pieces import input_files
from loaders.rdf.summary import RdfLoad
from loaders.sources.citybench import CityBench
from loaders.sources.csvw_mapping import Tabular
from loaders.sources.flights import Flights
from loaders.sources.gtfs import Gtfs
from loaders.sources.gtfs_rt import Realtime
from loaders.sources.gtfs_schedule import StopTime
from loaders.sources.irail import Irail, read_liveboard
from loaders.sources.ldes import read_node, version_changes
from loaders.sources.ngsi_ld import NgsiLd
from loaders.sources.polling import RecordedMessages
from loaders.sources.siri import Siri
from loaders.sources.taxi import Taxi
from tests.loaders.recordings import entry, write_flights, write_zip
from tests.loaders.sources.test_citybench import FILES, REPOSITORY
from tests.loaders.sources.test_gtfs import FEED, write
from tests.loaders.sources.test_gtfs_rt import add_alert, add_trip, new_message
from tests.loaders.sources.test_ngsi_ld import NORMALISED, notification
from tests.loaders.sources.test_siri import AT as SIRI_AT
from tests.loaders.sources.test_siri import ET, VM
from tests.loaders.sources.test_taxi import EXAMPLE
from tests.tpf_server.web.test_nesting import Compared, grows_no_faster

COUNT = int(os.environ.get("TPF_FUZZ_FILES", "80"))
_SECONDS = 10
_DAYS = timedelta(days=300)
_GROWTH = 800 << 10  # KiB


def facts(source: object) -> int:
    """Count the facts of a source, at most a hundred thousand."""
    pieces = source.pieces(1)  # type: ignore[attr-defined]
    quads = (quad for piece in pieces for quad in source.quads(piece))  # type: ignore[attr-defined]
    return sum(1 for _ in islice(quads, 100_000))


def outcome(load: Callable[[], object]) -> str | None:
    """Return the error message, if any."""
    try:
        load()
    except LoaderError as error:
        return str(error)
    return None


def zipped(path: Path, tables: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in tables.items():
            archive.writestr(name, text)
    return path


def fails(load: Callable[[], object]) -> str:
    """The line with which it fails."""
    begun = time.monotonic()
    with pytest.raises(LoaderError) as failure:
        load()
    assert time.monotonic() - begun < _SECONDS
    line = str(failure.value)
    assert "\n" not in line
    assert "object at 0x" not in line
    assert "re.compile" not in line
    return line


# GTFS.


def test_a_zip_bomb(tmp_path: Path) -> None:
    bomb = FEED | {"stops.txt": FEED["stops.txt"] + "\n" * (64 << 20)}
    path = zipped(tmp_path / "feed.zip", bomb)
    assert path.stat().st_size < 1 << 20
    assert "times as large" in fails(lambda: facts(Gtfs(path)))
    bombed = tmp_path / "boards.zip"
    with zipfile.ZipFile(bombed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1417772214687.json", " " * (64 << 20))
    assert "times as large" in fails(lambda: facts(Irail(bombed)))


def test_an_encrypted_or_damaged_zip(tmp_path: Path) -> None:
    path = zipped(tmp_path / "feed.zip", FEED)
    whole = path.read_bytes()
    # The flags of all entries, in the directory at the end and before each.
    encrypted = bytearray(whole)
    for mark, place in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        start = -1
        while (start := encrypted.find(mark, start + 1)) >= 0:
            encrypted[start + place] |= 1
    path.write_bytes(encrypted)
    assert "encrypted" in fails(lambda: facts(Gtfs(path)))
    for cut in range(0, len(whole), len(whole) // 23):
        path.write_bytes(whole[:cut] + b"\xff" * 9 + whole[cut + 9 :])
        said = outcome(lambda: facts(Gtfs(path)))
        assert said is None or str(path) in said


@pytest.mark.parametrize(
    ("table", "before", "after", "says"),
    [
        ("stops", "Brugge", "x" * 200_000, None),
        ("stops", "Brugge", "x" * (17 << 20), "field larger than field limit"),
        ("stops", "Brugge", "x" * (33 << 20), "a line of more than"),
        ("stops", "51.05", "NaN", "not a decimal: 'NaN'"),
        ("stops", "51.05", "-inf", "not a decimal: '-inf'"),
        ("stops", "51.05", "1e999999999", "not a decimal"),
        ("agency", "Europe/Brussels", "Europe/Nowhere", "unknown time zone"),
        ("agency", "Europe/Brussels", "Europe", "unknown time zone"),
        ("agency", "Europe/Brussels", "../../etc/passwd", "unknown time zone"),
        ("agency", "Europe/Brussels", "x" * 5000, "unknown time zone"),
        ("calendar", "20260116", "99991231", "choose a part"),
        ("calendar", "20260105,20260116", "99991220,99991231", "out of range"),
        ("stop_times", "25:10:00,25", "25:10:00,9999999999", "more than 240 hours"),
        ("frequencies", "1200", "1", None),
        ("frequencies", "06:00:00,07:00:00,1200", "00:00:00,240:00:00,1", "864000 runs a day"),
        ("frequencies", "07:00:00", "99999999999:00:00", "more than 240 hours"),
        ("trips", "To Brugge", "a\0b", None),
    ],
)
def test_what_no_timetable_has(
    tmp_path: Path, table: str, before: str, after: str, says: str | None
) -> None:
    assert before in FEED[f"{table}.txt"]
    path = write(tmp_path / "feed", **{table: FEED[f"{table}.txt"].replace(before, after, 1)})
    if says is None:
        assert facts(Gtfs(path)) > 10
    else:
        assert says in fails(lambda: facts(Gtfs(path)))
    # However far away the span is that is wanted.
    for year in (1, 9999):
        wanted = datetime(year, 1, 1, tzinfo=UTC)
        said = outcome(lambda wanted=wanted: facts(Gtfs(path, wanted, wanted + _DAYS)))  # type: ignore[misc]
        assert said is None or says is not None


# GTFS Realtime.


def test_messages_of_no_instant_and_places_nowhere(tmp_path: Path) -> None:
    schedule = Gtfs(write(tmp_path / "feed"))
    realtime = Realtime(schedule)
    for timestamp in (2**64 - 1, 253_402_300_800):
        message = new_message(datetime.now(UTC))
        message.header.timestamp = timestamp
        place = tmp_path / "rt.pb"
        place.write_bytes(message.SerializeToString())
        assert "of no instant" in fails(
            lambda: RecordedMessages(tmp_path / "rt.pb", Realtime(schedule))
        )
    message = new_message(datetime(2026, 1, 5, 8, tzinfo=UTC))
    for date in ("99991231", "00010101", "20260105"):
        update = add_trip(message, start_date=date)
        for time_ in (2**63 - 1, -(2**63)):
            said = update.stop_time_update.add()
            said.stop_sequence = 10
            said.departure.time = time_
    for latitude in (float("nan"), float("inf")):
        vehicle = message.entity.add(id=f"v{latitude}").vehicle
        vehicle.position.latitude, vehicle.position.longitude = latitude, 3.0
    quads = realtime.quads(realtime.parse(message.SerializeToString(), "here"))
    assert not [quad for quad in quads if "nan" in quad.object or "inf" in quad.object]


# CSV on the Web.

TABLE = {
    "@context": ["http://www.w3.org/ns/csvw", {"@base": "http://e/"}],
    "url": "a.csv",
    "tableSchema": {"columns": [{"name": "a", "datatype": "string"}, {"name": "n"}]},
}


def tabular(folder: Path, rows: str = "a,n\nx,1\n", **changes: object) -> Path:
    (folder / "a.csv").write_text(rows)
    path = folder / "a.json"
    path.write_text(json.dumps(TABLE | changes))
    return path


def columns(datatype: object, **more: object) -> dict[str, object]:
    return {"columns": [{"name": "a"}, {"name": "n", "datatype": datatype} | more]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tableSchema": "http://127.0.0.1:9/schema.json"}, "tableSchema must be described here"),
        ({"dialect": "http://127.0.0.1:9/dialect.json"}, "dialect must be described here"),
        ({"url": "../a.csv"}, "leads elsewhere"),
        ({"url": "/etc/passwd"}, "leads elsewhere"),
        ({"url": "http://127.0.0.1:9/a.csv"}, "leads elsewhere"),
        ({"url": "file:///etc/passwd"}, "leads elsewhere"),
        ({"tableSchema": columns({"base": "string", "format": "x" * 201})}, "201 characters"),
        ({"tableSchema": columns({"base": "string", "format": "x(?=y)"})}, "no regular expression"),
        ({"tableSchema": columns({"base": "string", "format": "(x+x+)+y"})}, "has not the format"),
        ({"tableSchema": columns("decimal")}, ""),
        ({"tableSchema": columns({"base": "date", "format": "dd.MM.yyyy"})}, ""),
        ({"tableSchema": columns("integer", separator=";")}, ""),
        ({"dialect": {"encoding": "no-such"}}, "no-such"),
        ({"tableSchema": {"columns": 7}}, "no CSVW metadata"),
    ],
)
def test_metadata_that_lead_elsewhere_or_never_end(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a.csv").write_text("a,n\nx,1\n")
    path = tabular(tmp_path / "in", f"a,n\nx,{'x' * 5000}\n", **changes)
    assert says in fails(lambda: facts(Tabular(path)))


@pytest.mark.parametrize("value", ["NaN", "INF", "-INF"])
def test_nan_and_infinity_are_no_decimals(tmp_path: Path, value: str) -> None:
    path = tabular(tmp_path, f"a,n\nx,{value}\n", tableSchema=columns("decimal"))
    assert value in fails(lambda: facts(Tabular(path)))
    double = tabular(tmp_path, f"a,n\nx,{value}\n", tableSchema=columns("double"))
    assert facts(Tabular(double)) == 2


# Damaged at random.

_TOKENS = (
    b"9" * 400, b"-1", b"NaN", b"1e999", b"\0", b'"', b"\xff\xfe", b"x" * 70_000, b"99991231",
    b"00010101", b"99:99:99", b"<<( ", b"[", b"{", b"\n", b",", b"\r", b"\\u0000", b"%00",
)  # fmt: skip


def damaged(content: bytes, chance: random.Random) -> bytes:
    result = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(result) + 1)
        match chance.randrange(5):
            case 0 if result:
                result[place % len(result)] ^= 1 << chance.randrange(8)
            case 1:
                del result[place:]
            case 2:
                result[place:place] = chance.choice(_TOKENS)
            case 3:
                end = place + chance.randrange(40)
                result[place:end] = chance.choice(_TOKENS)
            case _:
                end = place + chance.randrange(80)
                result[place:place] = bytes(result[place:end]) * chance.randint(1, 50)
    return bytes(result)


def targets(folder: Path) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Files that are whole, each with what reads it."""
    for name in FEED:
        feed = write(folder / f"feed-{name}")
        yield feed / name, lambda feed=feed: facts(Gtfs(feed))  # type: ignore[misc]
    archive = zipped(folder / "feed.zip", FEED)
    yield archive, lambda: facts(Gtfs(archive))
    boards = write_zip(folder / "boards.zip", {1417772214687 + n: [entry("a")] for n in range(3)})
    yield boards, lambda: facts(Irail(boards))
    (folder / "day").mkdir()
    document = folder / "day" / "1417772214687.json"
    document.write_text(json.dumps({"@graph": [entry("a"), entry("b")]}))
    yield document, lambda: facts(Irail(folder / "day"))
    flights = write_flights(folder / "flights", ["2013-06-01,600,1,UA,1,EWR,IAH"] * 3)
    for name in ("flights.csv", "airports.csv"):
        yield flights / name, lambda: facts(Flights(flights))
    trips = folder / "trips.csv"
    trips.write_text(EXAMPLE * 3)
    yield trips, lambda: facts(Taxi(trips))
    packed = folder / "trips.csv.gz"
    packed.write_bytes(gzip.compress(EXAMPLE.encode() * 3))
    yield packed, lambda: facts(Taxi(packed))
    (folder / "csvw").mkdir()
    metadata = tabular(folder / "csvw")
    yield metadata, lambda: facts(Tabular(metadata))
    yield metadata.with_name("a.csv"), lambda: facts(Tabular(metadata))
    schedule = Gtfs(write(folder / "schedule"))
    message = new_message(datetime(2026, 1, 5, 8, tzinfo=UTC))
    add_trip(message, start_date="20260105").delay = 60
    add_alert(message, en="Works").active_period.add(start=1, end=2**33)
    recorded = folder / "rt.pb"
    recorded.write_bytes(message.SerializeToString())
    yield recorded, lambda: list(RecordedMessages(recorded, Realtime(schedule)).batches(None, None))
    for name, content in (("et", ET), ("vm", VM)):
        siri = folder / f"{name}.xml"
        siri.write_bytes(content)
        yield siri, lambda siri=siri: list(RecordedMessages(siri, Siri()).batches(None, None))  # type: ignore[misc]
    entities = folder / "notification.json"
    entities.write_text(json.dumps(notification(NORMALISED)))
    yield entities, lambda: list(RecordedMessages(entities, NgsiLd()).batches(None, None))
    city = folder / "city"
    (city / "static").mkdir(parents=True)
    (city / "streams").mkdir()
    (city / "static" / "SensorRepository.n3").write_text(REPOSITORY)
    for name, text in FILES.items():
        (city / "streams" / f"{name}.csv").write_text(text)
    yield city / "static" / "SensorRepository.n3", lambda: facts(CityBench(city))
    for name in FILES:
        path = city / "streams" / f"{name}.csv"
        yield path, lambda: list(islice(CityBench(city).batches(None, None), 1000))
    triples = '<http://e/s> <http://e/p> "x"@en .\n' * 3
    xml = (
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
        '<rdf:Description rdf:about="http://e/s"><e:p>x</e:p></rdf:Description></rdf:RDF>'
    )
    tree = '{"@id": "http://e/s", "http://e/p": [{"@value": "x"}, {"@id": "http://e/o"}]}'
    for suffix, text in (
        ("nt", triples), ("nq", triples), ("ttl", triples), ("trig", triples), ("rdf", xml),
        ("jsonld", tree), ("nt.gz", triples), ("ttl.bz2", triples), ("nt.zst", triples),
    ):  # fmt: skip
        path = folder / f"data.{suffix}"
        content = text.encode()
        path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
        store = folder / f"store-{suffix}"

        def load(path: Path = path, store: Path = store) -> None:
            load_rdf_local(input_files([path]), store, RdfLoad(datetime.now(UTC)))

        yield path, load


@pytest.mark.timeout(3600)
def test_damaged_files_crash_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261122)
    whole = [(path, path.read_bytes(), read) for path, read in targets(tmp_path)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read_well = 0
    for number in range(COUNT):
        path, content, read = whole[number % len(whole)]
        path.write_bytes(damaged(content, chance))
        begun = time.process_time()
        said = outcome(read)
        read_well += said is None
        assert said is None or "\n" not in said.strip()
        assert time.process_time() - begun < _SECONDS, path
        path.write_bytes(content)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _GROWTH
    assert read_well


# What is written once and said again and again, and what is compared with all else.

LONG = "x" * 100_000


def siri_of(repeated: int) -> bytes:
    call = f"<EstimatedCall><StopPointRef>s</StopPointRef><AimedDepartureTime>{SIRI_AT}</AimedDepartureTime></EstimatedCall>"  # noqa: E501
    return (
        "<Siri><ServiceDelivery><EstimatedTimetableDelivery><EstimatedVehicleJourney>"
        f"<DatedVehicleJourneyRef>j</DatedVehicleJourneyRef><LineRef>{LONG}</LineRef>"
        f"<EstimatedCalls>{call * repeated}</EstimatedCalls>"
        "</EstimatedVehicleJourney></EstimatedTimetableDelivery></ServiceDelivery></Siri>"
    ).encode()


def liveboard_of(repeated: int) -> bytes:
    told = {"departureConnection": "http://e/d", "time": "1417772214", "station": "s",
            "vehicle": "v", "delay": "0"}  # fmt: skip
    board = {"stationinfo": {"@id": f"http://e/{LONG}"}}
    return json.dumps({**board, "departures": {"departure": [told] * repeated}}).encode()


def node_of(repeated: int) -> bytes:
    member = "<urn:s> <https://w3id.org/tree#member> <urn:m{0}> . <urn:m{0}> <urn:p> _:b . "
    members = "".join(member.format(number) for number in range(repeated))
    return f'{members} _:b <urn:p> "{LONG}" .'.encode()


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (siri_of, lambda content: Siri().read(content, "here")),
        (liveboard_of, lambda content: read_liveboard(content, "here")),
        (node_of, lambda content: read_node(content, "text/turtle", "http://e/")),
    ],
)
def test_what_is_written_once_is_not_said_without_end(
    body: Callable[[int], bytes], read: Callable[[bytes], object]
) -> None:
    read(body(10))
    fails(lambda: read(body(3_000)))


def test_an_alert_does_not_repeat_a_long_name_without_end(tmp_path: Path) -> None:
    realtime = Realtime(Gtfs(write(tmp_path / "feed")))

    def message(informed: int) -> bytes:
        made = new_message(datetime(2026, 1, 5, 8, tzinfo=UTC))
        alert = made.entity.add(id=LONG).alert
        for number in range(informed):
            alert.informed_entity.add(stop_id=f"s{number}")
        return bytes(made.SerializeToString())

    realtime.read(message(10), "here")
    assert "grows" in fails(lambda: realtime.read(message(3_000), "here"))


def matching(update: object, stops: list[StopTime]) -> dict[int, object]:
    """Match updates by stop, each behind the one before."""
    found, position = {}, 0
    for said in update.stop_time_update:  # type: ignore[attr-defined]
        exact = said.HasField("stop_sequence")
        for place in range(position, len(stops)):
            stop = stops[place]
            if said.stop_sequence == stop.sequence if exact else said.stop_id == stop.stop:
                found[stop.sequence], position = said, place + 1
                break
    return found


@pytest.mark.parametrize("seed", range(20))
def test_updates_of_a_trip_are_matched_in_their_sequence(seed: int) -> None:
    chance = random.Random(seed)
    stops = [StopTime(2 * n, chance.choice("abcd"), 0, "", True) for n in range(12)]
    update = add_trip(new_message())
    for _ in range(chance.randrange(30)):
        if chance.random() < 0.5:
            update.stop_time_update.add(stop_sequence=chance.randrange(26))
        else:
            update.stop_time_update.add(stop_id=chance.choice("abcdex"))
    assert Realtime._by_sequence(None, update, stops) == matching(update, stops)  # type: ignore[arg-type]


def test_updates_and_versions_cost_no_more_than_they_are_long() -> None:
    def updating(size: int) -> Callable[[], object]:
        stops = [StopTime(n, f"s{n}", 0, "", True) for n in range(size)]
        update = add_trip(new_message())
        for _ in range(size):
            update.stop_time_update.add(stop_id="nowhere")
        return lambda: Realtime._by_sequence(None, update, stops)  # type: ignore[arg-type]

    def versions(size: int) -> Callable[[], object]:
        old, new = (
            [Quad(*map(Term, map(Compared, ("<urn:s>", "<urn:p>", f'"{n + shift}"', ""))))
             for n in range(size)]
            for shift in (0, size // 2)
        )  # fmt: skip
        return lambda: version_changes(old, new)

    def node(size: int) -> Callable[[], object]:
        linked = "".join(
            f"_:b <urn:p{n}> <urn:o{n}> . <urn:m> <urn:q> <urn:o{n}> . " for n in range(size)
        )
        graph = "".join(f"<urn:s{n}> <urn:p> _:b . " for n in range(size))
        content = f"<urn:s> <https://w3id.org/tree#member> <urn:m> . {linked} <urn:m> {{ {graph} }}"
        return lambda: read_node(content.encode(), "application/trig", "http://e/")

    for action in (updating, versions, node):
        grows_no_faster(action, 150)


def test_a_table_whose_rows_are_much_shorter_than_its_header_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "feed")
    header, *rows = (folder / "stops.txt").read_text().splitlines()
    columns = "".join(f",c{number}" for number in range(1_000))
    (folder / "stops.txt").write_text("\n".join([header + columns, *rows]))
    assert "more than 1000 columns" in fails(lambda: Realtime(Gtfs(folder)))
