"""The challenge's files: trips in, answers out."""

import gzip
import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from experiments.errors import MeasurementError, UnavailableError
from experiments.workloads.taxi import Trip, trips
from experiments.workloads.taxi_files import (
    TAXI_VARIABLE,
    ChallengeAnswers,
    as_trips,
    read_trips,
    recorded_file,
    write_trips,
)
from tpf_server.continuous.runtime.delivery import Emission

LINE = (
    "07290D,E7750A,2013-01-01 00:00:00,2013-01-01 00:02:00,120,0.44,-73.956528,40.716976,"
    "-73.962440,40.715008,CSH,3.50,0.50,0.50,0.25,0.00,4.50\n"
)


def test_synthetic_trips_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = list(trips(1700, 3))
    write_trips(made, tmp_path / "trips.csv")
    blocks = list(read_trips(tmp_path / "trips.csv"))
    assert [trip for block in blocks for trip in as_trips(block)] == made
    assert [n for block in blocks for n in block.subjects.to_pylist()] == list(range(1700))
    some = [trip for block in read_trips(tmp_path / "trips.csv", 1500) for trip in as_trips(block)]
    assert some == made[:1500]


def test_a_line_of_the_challenge(tmp_path: Path) -> None:
    path = tmp_path / "trips.csv.gz"
    path.write_bytes(gzip.compress(LINE.encode()))
    (block,) = read_trips(path)
    at = datetime(2013, 1, 1, 0, 2, tzinfo=UTC)
    numbers = map(Decimal, ["-73.956528", "40.716976", "-73.962440", "40.715008", "3.50", "0.25"])
    assert as_trips(block) == [
        Trip(int(at.timestamp() * 1000), '"07290D"', at.replace(minute=0), at, *numbers)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINE.replace("3.50", "much"), "much"),
        (LINE + "one,two\n", "17 columns, got 2"),
        (LINE.replace("2013-01-01 00:02:00", "yesterday"), "yesterday"),
        (LINE.replace("40.716976", ""), "a value is missing in trips 1 to 1"),
        ("", "Empty CSV file"),
    ],
)
def test_what_is_no_file_of_the_challenge_says_why(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trips.csv"
    path.write_text(text)
    with pytest.raises(MeasurementError, match=message):
        list(read_trips(path))
    with pytest.raises(MeasurementError, match=r"nowhere\.csv"):
        list(read_trips(tmp_path / "nowhere.csv"))


def test_where_the_recorded_trips_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TAXI_VARIABLE, str(tmp_path / "none.csv"))
    with pytest.raises(UnavailableError, match="TPF_TAXI"):
        recorded_file()


def test_answers_are_written_as_the_challenge_wants_them() -> None:
    at = datetime(2013, 1, 1, 0, 2, tzinfo=UTC)
    routes, areas = io.StringIO(), io.StringIO()
    first, second = ChallengeAnswers(routes, 2), ChallengeAnswers(areas, 1)
    for each in (first, second):
        each.read(lambda number: (at.replace(minute=number), at))
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    decimal = "^^<http://www.w3.org/2001/XMLSchema#decimal>"
    row: tuple[Any, ...] = (
        f'"152"{decimal}',
        f'"155"{decimal}',
        f'"15"{decimal}',
        f'"9"{decimal}',
        f'"3"{integer}',
    )
    first.take(Emission(2, 1_356_998_520_000, (row,)))
    # Between two trips: not the answer of the next one any more.
    first.take(Emission(2, 1_356_998_520_001, ()))
    first.take(Emission(3, 1_356_998_520_000, (row,)))
    first.finish()
    second.write(0, [[Decimal(300), Decimal(400), Decimal(2), Decimal("8.50"), Decimal("4.25")]])
    *line, delay = routes.getvalue().rstrip("\n").split(",")
    assert line[:4] == ["2013-01-01 00:01:00", "2013-01-01 00:02:00", "152.155", "15.9"]
    assert line[4:] == ["NULL"] * 18
    assert float(delay) > 0
    *line, _ = areas.getvalue().rstrip("\n").split(",")
    assert line[2:6] == ["300.400", "2", "8.5", "4.25"]
    assert line[6:] == ["NULL"] * 36
    assert len(first.delays) == len(second.delays) == 1
