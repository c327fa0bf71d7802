"""``taxi``: a small run from file to file, and its report."""

from pathlib import Path
from typing import Any

from experiments.harness.report import write_report
from experiments.studies.taxi import (
    ANEW,
    FILE,
    RECORDED,
    TaxiQueries,
)
from experiments.workloads.taxi import trips
from experiments.workloads.taxi_files import TAXI_VARIABLE, write_trips
from tests.experiments.harness.test_runner import run
from tests.support.reports import Reported, raw_row

SMALL: dict[str, Any] = {"trips": 150, "minutes": [2], "anew": 120}


def test_from_a_file_of_trips_to_files_of_answers(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv(TAXI_VARIABLE, str(tmp_path / "absent.csv"))
    file = tmp_path / "mine.csv"
    write_trips(trips(80, 2), file)
    tables = {"taxi": {**SMALL, "file": str(file), "file_trips": 60}}
    results = run(tmp_path / "results", TaxiQueries(), repetitions=1, tables=tables)
    assert results.failures == {}
    assert "absent.csv" in results.left_out[f"{RECORDED} trips"]
    for query in ("Q1", "Q2", "Q1 and Q2"):
        mine = results.where(source=FILE, query=query)
        assert mine.numbers("trips") == [60.0] * 3
        # As many answers, however the trips come.
        assert len(mine.distinct("answers")) == 1
        (anew,) = results.where(query=query, way=ANEW).rows
        assert (anew["same"], anew["trips"]) == ("1", "120")
        assert int(anew["answers"]) > 10
    assert "computed anew" in write_report(tmp_path / "results", [TaxiQueries()]).read_text()


def test_a_file_that_is_none_is_left_out_with_the_reason(tmp_path: Path) -> None:
    class OnlyTheFile(TaxiQueries):
        def groups(self, settings: Any, run: Any) -> Any:
            return [each for each in super().groups(settings, run) if each.name.startswith(FILE)]

    file = tmp_path / "mine.csv"
    file.write_text("a,b\n")
    tables = {"taxi": {**SMALL, "file": str(file)}}
    results = run(tmp_path / "results", OnlyTheFile(), repetitions=1, tables=tables)
    assert "got 2" in results.left_out[f"{FILE} trips"]


def row(way: str, minutes: int = 30, query: str = "Q1", **values: Any) -> dict[str, str]:
    given = {
        "source": "synthetic", "query": query, "minutes": minutes, "way": way, "trips": 100,
    }  # fmt: skip
    return raw_row(TaxiQueries, **(given | values))


def report(rate: float, delay: float, factor: float, same: int, wide: float) -> Reported:
    rows = [
        row("file", trips_per_second=rate), row("file", 240, trips_per_second=rate),
        row("parsed", trips_per_second=2 * rate),
        row("one by one", delay_p50_us=delay, delay_mean_us=delay),
        row("one by one", 240, delay_p50_us=delay * wide),
        row(ANEW, factor=factor, same=same),
    ]  # fmt: skip
    return Reported(TaxiQueries(), rows)


def test_every_sentence_and_verdict_follows_the_data() -> None:
    one, other = report(200_000, 10, 90, 1, 1.1), report(2000, 1000, 0.5, 0, 9)
    assert one.texts == [
        "Q1, windows of 30 minutes: 200,000 trips per second of CPU from file to file, by blocks; "
        "one by one, the median delay of an answer is 10 µs.",
        "Computed anew: 90 times for Q1 the CPU of the engine on the same trips; the answers are "
        "the same.",
    ]
    assert all(each != opposite for each, opposite in zip(one.texts, other.texts, strict=True))
    looked = ("Q1 rate", "Q1 delay", "Q1 factor", "windows")
    assert [one.verdicts[name] for name in looked] == ["agrees"] * 4
    assert [other.verdicts[name] for name in looked] == ["differs"] * 4
    assert one.verdicts["Q2 rate"] == "not measured here"
    assert not Reported(TaxiQueries(), []).texts
