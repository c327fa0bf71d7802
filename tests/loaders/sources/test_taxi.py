import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loaders.errors import InputError, SettingError
from loaders.sources.taxi import TAXI, Taxi

REAL = Path(__file__).parents[3].parent / "shared" / "data" / "taxi" / "trips_10k.csv.gz"
EXAMPLE = (
    "07290D3599E7A0D62097A346EFCC1FB5,E7750A37CAB07D0DFF0AF7E3573AC141,2013-01-01 00:00:00,"
    "2013-01-01 00:02:00,120,0.44,-73.956528,40.716976,-73.962440,40.715008,CSH,3.50,0.50,0.50,"
    "0.00,0.00,4.50\n"
)
LATER = EXAMPLE.replace("00:02:00", "00:03:00")
BEGIN = datetime(2013, 1, 1, 0, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    path = tmp_path / "trips.csv"
    path.write_text(EXAMPLE + EXAMPLE + LATER)
    return path


def test_a_trip_in_the_terms_of_the_queries(trips: Path) -> None:
    reading = next(Taxi(trips).readings("trips", None, None))
    assert reading.at == BEGIN
    said = {q.predicate[len(TAXI) + 1 : -1]: q.object.split("^^")[0] for q in reading.quads[1:]}
    assert said == {
        "taxi": '"07290D3599E7A0D62097A346EFCC1FB5"',
        "license": '"E7750A37CAB07D0DFF0AF7E3573AC141"',
        "pickupTime": '"2013-01-01T00:00:00Z"',
        "dropoffTime": '"2013-01-01T00:02:00Z"',
        "distance": '"0.44"',
        "pickLon": '"-73.956528"',
        "pickLat": '"40.716976"',
        "dropLon": '"-73.962440"',
        "dropLat": '"40.715008"',
        "payment": '"CSH"',
        "fare": '"3.50"',
        "tip": '"0.00"',
        "total": '"4.50"',
    }


def test_a_mark_of_the_order_of_bytes_is_no_text(trips: Path) -> None:
    said = list(Taxi(trips).quads("0/1"))
    trips.write_bytes(b"\xef\xbb\xbf" + trips.read_bytes())
    assert list(Taxi(trips).quads("0/1")) == said


def test_trips_hold_for_a_while_after_their_end(trips: Path) -> None:
    source = Taxi(trips, holds=5 * MINUTE)
    first, second = source.batches(None, None)
    assert (first.at, first.until, first.end) == (BEGIN, BEGIN + MINUTE, BEGIN + 5 * MINUTE)
    assert len({quad.subject for quad in first.quads}) == 2
    assert (second.at, second.end) == (BEGIN + MINUTE, BEGIN + 6 * MINUTE)
    assert source.span(None, None) == (BEGIN, second.end, 2)
    assert [b.at for b in source.batches(BEGIN + MINUTE, None)] == [BEGIN + MINUTE]
    assert source.span(BEGIN + 2 * MINUTE, None) is None
    (label,) = {fact.label for fact in first.facts("interval")}
    assert label is not None
    assert (label.start, label.end) == (BEGIN, first.end)


def test_a_zone_that_is_named_counts(tmp_path: Path) -> None:
    path = tmp_path / "trips.csv"
    path.write_text(EXAMPLE.replace("00:02:00", "00:02:00+05:00"))
    reading = next(Taxi(path).readings("trips", None, None))
    assert reading.at == BEGIN - timedelta(hours=5)
    told = [quad.object for quad in reading.quads if "dropoffTime" in quad.predicate]
    assert told == ['"2012-12-31T19:02:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>']


def test_a_trip_at_the_end_of_time(tmp_path: Path) -> None:
    path = tmp_path / "trips.csv"
    path.write_text(EXAMPLE.replace("2013-01-01 00:02:00", "9999-12-31 23:59:59"))
    (batch,) = Taxi(path).batches(None, None)
    assert batch.end == datetime.max.replace(tzinfo=UTC)


def test_shares_and_compression_change_nothing(trips: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "trips.csv.gz"
    zipped.write_bytes(gzip.compress(trips.read_bytes()))
    whole = [quad for reading in Taxi(trips).readings("trips", None, None) for quad in reading[1]]
    for count in (1, 2, 5):
        source = Taxi(zipped)
        found = [quad for piece in source.pieces(count) for quad in source.quads(piece)]
        assert sorted(found) == sorted(whole)
    early = Taxi(trips, until=BEGIN + MINUTE)
    assert len([q for p in early.pieces(2) for q in early.quads(p)]) == 2 * len(whole) / 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EXAMPLE + "1,2,3\n", "line 2: no trip: 3 values instead of 17"),
        (LATER + EXAMPLE, "line 2: no trip: ends before"),
        (EXAMPLE.replace("3.50", "free"), "line 1: no trip: not a decimal"),
        (EXAMPLE.replace("2013-01-01 00:02:00", "soon"), "line 1: no trip: Invalid isoformat"),
    ],
)
def test_what_is_malformed_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trips.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        list(Taxi(path).batches(None, None))


def test_wrong_use(tmp_path: Path, trips: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Taxi(tmp_path / "absent")
    with pytest.raises(SettingError, match="positive"):
        Taxi(trips, holds=timedelta(0))
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(EXAMPLE.encode())[:-9])
    with pytest.raises(InputError, match=r"broken\.gz"):
        list(Taxi(broken).batches(None, None))


@pytest.mark.skipif(not REAL.is_file(), reason="the sample of trips is not there")
def test_the_real_sample() -> None:
    source = Taxi(REAL)
    readings = list(source.readings("trips", None, None))
    assert len(readings) == 10_004
    assert len({quad.subject for reading in readings for quad in reading.quads}) == 10_004
    assert sum(len(batch.quads) for batch in source.batches(None, None)) == 14 * 10_004
