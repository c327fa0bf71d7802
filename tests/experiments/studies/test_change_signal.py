"""``signal``: a small run with a real server, and what is said of results."""

import random
from pathlib import Path
from typing import Any

from experiments.harness.items import Figure, Finding
from experiments.harness.report import write_report
from experiments.harness.results import Results
from experiments.studies.change_signal import SignalOrPolling, Sizes, _arrived
from tests.experiments.harness.test_runner import run
from tests.experiments.studies.test_annotation_methods import liveboards

__all__ = ["liveboards"]
SMALL: dict[str, Any] = {
    "clients": [2], "changes": 300, "rates": [], "processes": 1, "departures": 4, "max_age": 1.0,
    "first_seconds": 0.5, "seconds": 2.0, "grace": 6.0,
}  # fmt: skip


def test_changes_reach_the_answers_in_both_ways(tmp_path: Path) -> None:
    results = run(tmp_path, SignalOrPolling(), repetitions=1, tables={"signal": SMALL})
    assert results.failures == {}
    assert results.complete
    assert results.distinct("mode") == ["polling", "signal"]
    for row in results.rows:
        assert 0 < float(row["completeness"]) <= 1  # a machine that is busy may be late
        assert 0 < float(row["late_p50_ms"]) <= float(row["late_max_ms"])
        assert float(row["requests"]) > 0
        assert float(row["bytes"]) > 0
        assert float(row["server_cpu_ms"]) > 0
        assert float(row["client_cpu_ms"]) > 0
        assert row["failed"] == "0"
    report = write_report(tmp_path, [SignalOrPolling()]).read_text()
    assert "With 2 clients and 300 changes a minute" in report


def test_lateness_is_from_sending_to_the_answer() -> None:
    sent = [0.0, 10.0, 20.0, 30.0]
    reports: list[dict[str, Any]] = [
        {"arrivals": [[0, 0, 1.0, 50], [0, 1, 10.5, 1], [0, 2, 21.0, 1]], "errors": []},
        {"arrivals": [[0, 2, 20.25, 1], [0, 3, 90.0, 1]], "errors": []},
    ]
    assert _arrived(2, reports, sent, (0.0, 25.0)) == {
        "late_p50_ms": 500.0, "late_p95_ms": 1000.0, "late_max_ms": 1000.0,
        "completeness": 0.75, "published": 2,
    }  # fmt: skip


def measured(mode: str, clients: int, changes: int, **values: Any) -> dict[str, str]:
    columns = (*SignalOrPolling.keys, *SignalOrPolling.values)
    row = {
        **dict.fromkeys(columns, 1), "source": "irail", "mode": mode, "clients": clients,
        "changes": changes, **values,
    }  # fmt: skip
    return {name: str(value) for name, value in row.items()}


def said(rows: list[dict[str, str]]) -> str:
    random.Random(0).shuffle(rows)
    items = list(SignalOrPolling().report(Results(rows, {}, {})))
    assert sum(isinstance(item, Figure) for item in items) == 4
    return "\n".join(item.text for item in items if isinstance(item, Finding))


def test_the_sentences_follow_the_data() -> None:
    rows = [
        measured("polling", 10, 12, server_cpu_ms=30), measured("signal", 10, 12, server_cpu_ms=15),
        measured("polling", 10, 60, server_cpu_ms=30), measured("signal", 10, 60, server_cpu_ms=90),
        measured("polling", 200, 12, late_p50_ms=5000, max_age=10, requests=12),
        measured("signal", 200, 12, late_p50_ms=150, requests=24, completeness=0.9),
    ]  # fmt: skip
    text = said(rows)
    assert "With 200 clients and 12 changes a minute an answer shows a change after 150 ms" in text
    assert "and after 5 s (95 %: 1 ms, at most 1 ms) where clients look every 10 s." in text
    assert "takes 24 requests and 0.001 kB a minute with the signal, and 12" in text
    assert (
        "with 10 clients, by the signal compared with polling: 2 times less with 12 changes a "
        "minute and 3 times more with 60 changes a minute." in text
    )
    assert "In the worst measurement 90 % of the changes" in text
    assert "compared with polling" not in said([measured("signal", 10, 12)])
    said([])


def test_what_is_planned() -> None:
    assert list(Sizes().planned()) == [(1, 12), (10, 12), (50, 12), (200, 12), (10, 6), (10, 60)]
    assert list(Sizes.quick().planned()) == [(10, 60)]
