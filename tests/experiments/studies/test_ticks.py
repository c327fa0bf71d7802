"""``ticks``: a small run with a real server."""

from pathlib import Path

from experiments.harness.items import Finding, Target
from experiments.harness.report import write_report
from experiments.studies.ticks import ClientTicks, _departures
from tests.experiments.harness.test_runner import run
from tests.experiments.studies.test_annotation_methods import liveboards

__all__ = ["liveboards"]


def test_a_client_is_followed_from_its_import_to_ticks_without_changes(tmp_path: Path) -> None:
    small = {"facts": [8], "ticks": 2, "period": 2.0}
    results = run(tmp_path, ClientTicks(), repetitions=1, tables={"ticks": small})
    assert results.failures == {}
    (row,) = results.rows
    assert int(row["rows"]) > 0
    assert float(row["requests_start"]) > 0
    for column in ("ms_import", "ms_start", "ms_tick", "ms_tick_median"):
        assert float(row[column]) > 0, column
    assert float(row["ms_tick"]) <= float(row["ms_tick_median"])
    items = list(ClientTicks().report(results))
    (said,) = (each.text for each in items if isinstance(each, Finding))
    assert said.startswith("8 labelled facts: ")
    targets = [each for each in items if isinstance(each, Target)]
    assert [each.measured for each in targets] == [None] * 4
    assert said in write_report(tmp_path, [ClientTicks()]).read_text()


def test_boards_larger_than_the_recording_have_departures_again() -> None:
    large = _departures(450)
    assert len(set(large.departures)) == len(large.departures) == len(large.times) == 450
    assert len(large.static) == 3 * 450
    assert list(large.times) == sorted(large.times)
