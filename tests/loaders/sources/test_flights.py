import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.instants import FIRST, LAST
from annotations.terms import Term
from loaders.errors import InputError, SettingError
from loaders.sources.flights import Flight, Flights, package_data
from tests.loaders.recordings import write_flights

T = "http://example.org/train#"
S = datetime(2013, 6, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(minutes=60)
MINUTE = timedelta(minutes=1)

delays = st.one_of(st.none(), st.integers(-43, 1301).map(lambda minutes: 60 * minutes))


def flight(delay: int | None, scheduled: datetime = S) -> Flight:
    return Flight(Term("<http://example.org/f>"), "UA", "1", "EWR", "IAH", scheduled, delay)


@given(delays)
def test_a_delay_becomes_known_little_by_little(delay: int | None) -> None:
    one = flight(delay)
    comes, leaves = one.on_board()
    assert comes == S - HOUR
    known = [one.announced(comes + n * MINUTE) for n in range((leaves - comes) // MINUTE)]
    if delay is None:
        assert set(known[:30]) == {0}
        assert set(known[30:]) == {None}
        assert leaves == S + timedelta(minutes=30)
        return
    assert leaves == S + timedelta(seconds=delay) + timedelta(minutes=10)
    before = known[: 60 + min(delay // 60, 0)]
    values = [value for value in before if value is not None]
    assert len(values) == len(before)
    assert values == sorted(values)
    assert all(value % 300 == 0 and 0 <= value <= max(delay, 0) for value in values)
    # At the scheduled time and after it, or once it has left, the real delay is known.
    assert set(known[60 + min(delay // 60, 0) :]) == {delay}


def test_how_a_delay_of_an_hour_is_announced() -> None:
    one = flight(3600)
    known = [one.announced(S + n * MINUTE) for n in (-60, -56, -55, -30, -1, 0, 59, 60)]
    assert known == [0, 0, 300, 1800, 3300, 3600, 3600, 3600]


def test_what_is_said_of_a_flight() -> None:
    def said(delay: int | None, minutes: int) -> dict[str, str]:
        quads = flight(delay).dynamic(S + minutes * MINUTE)
        return {q.predicate.removeprefix(f"<{T}")[:-1]: q.object.partition("^")[0] for q in quads}

    assert said(600, -60) == {"delay": '"0"', "platform": '"EWR"'}
    assert said(600, 10) == {"delay": '"600"', "platform": '"EWR"', "status": '"departed"'}
    assert said(-300, -6) == {"delay": '"0"', "platform": '"EWR"'}
    assert said(-300, -5) == {"delay": '"-300"', "platform": '"EWR"', "status": '"departed"'}
    assert said(None, -31) == {"delay": '"0"', "platform": '"EWR"'}
    assert said(None, -30) == {"status": '"cancelled"', "platform": '"EWR"'}


rows = st.lists(
    st.tuples(st.integers(0, 23 * 60 + 59), delays, st.integers(1, 2000)),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row[2],
)


@given(rows, st.sampled_from([20, 60, 600]), st.integers(0, 400), st.integers(1, 90))
def test_batches_are_the_board_at_each_instant(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[tuple[int, int | None, int]],
    period: int,
    skip: int,
    polls: int,
) -> None:
    lines = [
        f"2013-06-01,{minute // 60}{minute % 60:02},{'' if d is None else d // 60},UA,{n},EWR,IAH"
        for minute, d, n in table
    ]
    path = write_flights(tmp_path_factory.mktemp("flights"), lines)
    feed = Flights(path, period=timedelta(seconds=period))
    whole = feed.span(None, None)
    assert whole is not None
    start = whole.start + skip * feed.period
    until = start + polls * feed.period
    flights = list(feed._flights())
    batches = list(feed.batches(start, until))
    span = feed.span(start, until)
    assert len(batches) == (span.polls if span else 0)
    for number, batch in enumerate(batches):
        assert batch.at == start + number * feed.period
        assert batch.until == batch.at + feed.period
        expected = {
            quad
            for one in flights
            if one.on_board()[0] <= batch.at < one.on_board()[1]
            for quad in one.dynamic(batch.at)
        }
        assert len(batch.quads) == len(expected)
        assert set(batch.quads) == expected


def test_static_facts(tmp_path: Path) -> None:
    path = write_flights(
        tmp_path, ["2013-01-01,515,2,UA,1545,EWR,IAH", "2013-07-01,5,,AA,7,EWR,XXX"]
    )
    for file in path.iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    source = Flights(path)
    triples = [t.triple for piece in source.pieces(2) for t in source.quads(piece)]
    assert len(triples) == len(set(triples)) == 2 * 3 + 2 * 5 + 2 * 8
    base = "<http://example.org/flights/"
    about = {
        (p.rpartition("#")[2] or p)[:-1]: o
        for s, p, o in triples
        if s == f"{base}2013-01-01/EWR/UA1545>" and T in p
    }
    assert about == {
        "routeLabel": '"UA 1545"',
        "headSign": '"Houston"',
        "departureTime": '"2013-01-01T05:15:00-05:00"^^<http://www.w3.org/2001/XMLSchema#dateTime>',
        "stop": f"{base}airports/EWR>",
    }
    summer = [t.object for t in triples if t.subject.startswith(f"{base}2013-07-01")]
    # Daylight-saving time; an airport without a name shows its code.
    assert '"2013-07-01T00:05:00-04:00"^^<http://www.w3.org/2001/XMLSchema#dateTime>' in summer
    assert '"XXX"' in summer
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    assert (f"{base}carriers/UA>", label, '"United, Inc."') in triples


def test_a_day_of_the_real_package() -> None:
    start = datetime(2013, 1, 1, 5, tzinfo=UTC)
    source = Flights(start=start, until=start + timedelta(days=1), period=timedelta(hours=1))
    flights = list(source._flights())
    # 842 flights were scheduled on that local day, four of them cancelled.
    assert len(flights) == 842
    assert sum(one.delay is None for one in flights) == 4
    subjects = {t.subject for p in source.pieces(3) for t in source.quads(p) if "2013" in t[0]}
    assert subjects == {one.subject for one in flights}
    ours = {one.subject: one.scheduled.replace(minute=0) for one in flights}
    with zipfile.ZipFile(package_data() / "flights.csv.zip") as archive:
        for line in archive.read("flights.csv").decode().splitlines()[1:843]:
            row = line.split(",")
            name = f"<http://example.org/flights/2013-01-01/{row[12]}/{row[9]}{row[10]}>"
            # The package states the scheduled hour in UTC too.
            assert ours.pop(Term(name)) == datetime.fromisoformat(row[18])
    assert not ours
    shown = {q.subject for batch in source.batches(None, None) for q in batch.quads}
    assert shown == {one.subject for one in flights}


@pytest.mark.parametrize("start", [None, FIRST, datetime(999, 6, 1, tzinfo=UTC)])
@pytest.mark.parametrize("until", [None, LAST, FIRST])
def test_any_instant_may_be_a_bound(
    tmp_path: Path, start: datetime | None, until: datetime | None
) -> None:
    source = Flights(write_flights(tmp_path, ["2013-07-01,600,1,UA,1,EWR,IAH"]), start, until)
    assert len(list(source._flights())) == (until != FIRST)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2013-01-01,2560,2,UA,1,EWR,IAH", "flights.csv, line 3: a malformed row"),
        ("2013-01-01,500,late,UA,1,EWR,IAH", "flights.csv, line 3: a malformed row"),
        ("2013-01-01,500,2,U A,1,EWR,IAH", "flights.csv, line 3: a malformed row"),
    ],
)
def test_malformed_rows_are_named(tmp_path: Path, row: str, message: str) -> None:
    path = write_flights(tmp_path, ["2013-01-01,515,2,UA,1545,EWR,IAH", row])
    with pytest.raises(InputError, match=message):
        list(Flights(path).batches(None, None))


def test_inputs_that_are_no_flights(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"airlines\.csv: no such file"):
        Flights(tmp_path)
    path = write_flights(tmp_path / "a", [])
    assert Flights(path).span(None, None) is None
    assert list(Flights(path).batches(None, None)) == []
    (path / "flights.csv").write_text("year,month\n2013,1\n")
    with pytest.raises(InputError, match="line 1: no column carrier"):
        Flights(path).span(None, None)
    write_flights(path, [])
    with (path / "flights.csv").open("a") as file:
        file.write("2013,1,1\n")
    with pytest.raises(InputError, match="line 2: 3 values"):
        Flights(path).span(None, None)
    (path / "flights.csv").rename(path / "flights.csv.zip")
    with pytest.raises(InputError, match="neither a directory nor a zip file"):
        Flights(path).span(None, None)
    with pytest.raises(SettingError, match="positive"):
        Flights(path, period=timedelta(0))


def test_few_days_are_found_however_their_dates_are_written(tmp_path: Path) -> None:
    days = ["2013-7-21", "2013-7-22", "2013-7-22", "2013-7-22", "2013-7-23", "2013-9-22"]
    rows = [f"{day},600,1,UA,{number},EWR,IAH" for number, day in enumerate(days)]
    directory = write_flights(tmp_path, rows)
    header, *lines = (directory / "flights.csv").read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace("2013,7,22,", '"2013","7",22,')
    lines[3] = lines[3].replace("2013,7,22,", "2013,07,22,")
    (directory / "flights.csv").write_text(header + "".join(lines))
    few = Flights(
        directory, datetime(2013, 7, 22, 4, tzinfo=UTC), datetime(2013, 7, 23, 4, tzinfo=UTC)
    )
    for shares in (1, 3):
        quads = [quad for piece in few.pieces(shares) for quad in few.quads(piece)]
        assert len([quad for quad in quads if quad.predicate == f"<{T}departureTime>"]) == 3
