"""``fragments``: a small run with the real servers."""

from pathlib import Path
from typing import Any

import pytest

from experiments.errors import ConfigurationError, UnavailableError
from experiments.harness import peers
from experiments.harness.items import CellValue
from experiments.harness.report import write_report
from experiments.harness.servers import CONSTANT, OURS, REFERENCE
from experiments.studies.fragments import FORMATS, PATTERNS, RENEWED, Fragments, steady
from tests.experiments.harness.test_runner import run
from tests.support.reports import Reported, raw_row

SMALL: dict[str, Any] = {
    "seconds": 0.02, "warm_up_seconds": 0.02, "rounds": 1, "triples": 1000, "seldom_requests": 4,
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.studies.fragments._URLS", 200)


def test_every_pattern_and_format_on_the_real_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    sizes = {
        **SMALL, "servers": [OURS, CONSTANT], "data": str(data), "formats": list(FORMATS),
    }  # fmt: skip
    results = run(tmp_path, Fragments(), repetitions=1, tables={"fragments": sizes})
    assert results.failures == {}
    assert results.complete
    for pattern in PATTERNS:
        for form in FORMATS if pattern == PATTERNS[0] else ("TriG",):
            wanted: dict[str, CellValue] = {"pattern": pattern, "format": form, "server": OURS}
            assert results.numbers("requests", **wanted)[0] > 0
            assert results.numbers("body_bytes", **wanted)[0] > 500
        # The floor carries as many bytes.
        trig = results.where(pattern=pattern, format="TriG", triples=1000)
        ours, floor = (trig.numbers("body_bytes", server=name)[0] for name in (OURS, CONSTANT))
        assert floor == pytest.approx(ours, rel=0.2)
    seldom = results.where(pattern="subject, seldom", server=OURS)
    assert 1 <= seldom.numbers("requests", triples=1000)[0] <= 6
    not_modified = results.where(pattern="304", server=OURS)
    assert set(not_modified.numbers("body_bytes")) == {0.0}
    whole, delta = (
        max(results.where(pattern=each, server=OURS).numbers("body_bytes")) for each in RENEWED
    )
    assert 0 < delta < whole / 4
    assert all(seconds > 0 for seconds in results.numbers("start_seconds"))
    # Another run may use the data.
    kept = sorted(path.relative_to(data).as_posix() for path in data.glob("*/people*"))
    assert kept == ["1000-1/people", "1000-1/people.nt"]
    text = write_report(tmp_path, [Fragments()]).read_text()
    assert "could not run completely" not in text
    assert "The first page of 1,000 triples" in text


@pytest.mark.peers
def test_the_reference_server(tmp_path: Path) -> None:
    try:
        peers.package("@ldf/server")
    except UnavailableError as error:
        pytest.skip(str(error))
    sizes = {**SMALL, "servers": [REFERENCE], "formats": ["TriG"]}
    results = run(tmp_path, Fragments(), repetitions=1, tables={"fragments": sizes})
    assert results.complete
    for pattern in PATTERNS:
        assert results.numbers("requests", pattern=pattern, server=REFERENCE)[0] > 0
    (kind,) = results.distinct("kind")
    assert kind.startswith("@ldf/server (")


def test_a_server_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'theirs'; there are ours, "):
        run(tmp_path, Fragments(), tables={"fragments": {**SMALL, "servers": [OURS, "theirs"]}})


def test_a_rate_is_steady_once_three_rounds_are_equally_fast() -> None:
    rates = [500.0, 800.0, 1000.0, 1010.0, 1030.0]
    assert [steady(rates[:n]) for n in range(6)] == [False, False, False, False, False, True]
    assert not steady([1000.0, 900.0, 1000.0])


def row(**values: Any) -> dict[str, str]:
    return raw_row(Fragments, **values)


def texts(rows: list[dict[str, str]]) -> str:
    return "\n".join(map(str, Reported(Fragments(), rows).items))


def test_the_report_says_what_was_measured_and_nothing_of_what_was_not() -> None:
    page = {"triples": 1000, "pattern": "first page", "format": "TriG"}
    ours = row(**page, server=OURS, cpu_ms=0.2, kind="ours")
    other = row(**page, server=REFERENCE, cpu_ms=0.5, kind="@ldf/server (HDT)")
    assert "costs one worker 0.2 ms of CPU." in texts([ours])
    assert "2.5 times as much: @ldf/server" in texts([ours, other])
    # Rounds give a median, which an outlier does not move.
    outlier = row(**page, server=OURS, cpu_ms=9.0, kind="ours")
    assert "costs one worker 0.2 ms of CPU." in texts([ours, outlier, ours])
    slower = row(**page, server=REFERENCE, cpu_ms=0.1, kind="@ldf/server (HDT)")
    assert "0.5 times as much: @ldf/server" in texts([ours, slower])
    targets = Reported(Fragments(), [ours]).targets
    assert [target.met for target in targets].count(True) == 1
    # The ratio of medians, not of means.
    report = Reported(Fragments(), [ours, other, outlier, ours])
    ratios = [each for each in report.targets if "by that of the reference" in each.what]
    assert [each.measured for each in ratios if each.measured] == [pytest.approx(0.4)]
    (table,) = (each for each in report.tables if "by the reference" in each.title)
    assert [row[:2] for row in table.rows] == [("first page TriG", pytest.approx(0.4))]
    assert [target.met for target in targets].count(None) == len(targets) - 1
