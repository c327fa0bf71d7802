"""Counts of requests are added up in batches, and none is lost."""

import json
import logging
import math
import os
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from annotations.labels import Expiration, Fact
from annotations.terms import Quad, iri, literal
from tests.support.live_server import START, LiveServer
from tests.support.peers import PROJECT
from tpf_server.web.metrics import _BUCKETS, Metrics
from tpf_server.workers import MULTIPROCESS_VARIABLE


def _shown(metrics: Metrics, method: str = "GET", status: str = "200") -> float:
    name = re.escape(f'tpf_requests_total{{method="{method}",status="{status}"}} ')
    found = re.search(f"{name}(.+)", metrics.show((), START).get_data(as_text=True))
    return 0.0 if found is None else float(found[1])


def test_requests_are_added_up_when_somebody_looks_or_many_are_noted() -> None:
    metrics = Metrics()
    added = []
    metrics.add_up, add_up = lambda: added.append(add_up()), metrics.add_up  # type: ignore[method-assign]
    for _ in range(600):
        metrics.count("GET", "200", 0.001)
    assert len(added) == 2
    metrics.count("BREW", "418", 0.001)
    assert _shown(metrics) == 600
    assert _shown(metrics, "OTHER", "418") == 1
    assert "tpf_request_seconds_count 601.0" in metrics.show((), START).get_data(as_text=True)


def test_no_request_of_any_thread_is_lost_or_counted_twice() -> None:
    metrics = Metrics()

    def note() -> None:
        for _ in range(3_000):
            metrics.count("GET", "200", 0.0)
            metrics.add_up()

    threads = [threading.Thread(target=note) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _shown(metrics) == 12_000


def test_durations_are_in_the_buckets_that_they_would_be_in_one_by_one() -> None:
    durations = [0.0, 0.0005, 0.0006, 0.01, 0.3, 1.0, 5.0, 7.0, math.inf]
    known = Histogram("one_by_one", "", buckets=_BUCKETS, registry=CollectorRegistry())
    metrics = Metrics()
    for seconds in durations:
        known.observe(seconds)
        metrics.count("GET", "200", seconds)
    said = re.findall(
        r"tpf_request_seconds(_\w+{.+} .+)", metrics.show((), START).get_data(as_text=True)
    )
    (expected,) = known.collect()
    buckets = [s for s in expected.samples if s.name.endswith("_bucket")]
    assert said == [f'_bucket{{le="{s.labels["le"]}"}} {s.value}' for s in buckets]


def _run(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A process of several that add up in a folder."""
    environment = {**os.environ, MULTIPROCESS_VARIABLE: str(folder), "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        [sys.executable, "-c", f"from tpf_server.web.metrics import Metrics\n{program}"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )


def test_a_request_adds_up_where_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("tpf_server.web.metrics.time", clock)
    metrics = Metrics()
    added = []
    metrics.add_up, add_up = lambda: added.append(add_up()), metrics.add_up  # type: ignore[method-assign]

    def after(seconds: float) -> int:
        now[0] += seconds
        metrics.count("GET", "200", 0.001)
        return len(added)

    assert [after(1.0), after(1.0), after(1.0), after(1.0), after(9.0)] == [0, 0, 1, 1, 2]
    # Where somebody adds up every second, whether there are requests or not, none ever does.
    for _ in range(9):
        now[0] += 1.0
        add_up()
    assert after(0.5) == 2


def test_readers_are_addresses_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("tpf_server.web.metrics.time", clock)
    metrics = Metrics()

    def readers() -> list[tuple[str, str]]:
        shown = metrics.show((), START).get_data(as_text=True)
        return re.findall(r'tpf_readers{dataset="(.)"} (\d+)', shown)

    for number in range(5):
        now[0] = 1000.0 + number
        for reader in ("10.0.0.1", f"10.0.1.{number}"):
            metrics.count("GET", "200", 0.001, "a", reader)
        metrics.add_up()
    metrics.count("GET", "200", 0.001, "b", "10.0.0.1")
    metrics.count("GET", "200", 0.001)
    assert readers() == [("a", "6"), ("b", "1")]
    now[0] = 1062.5
    assert readers() == [("a", "3"), ("b", "1")]
    now[0] = 1070.0
    assert readers() == [("a", "0"), ("b", "0")]


def test_readers_of_a_worker_that_was_killed_are_forgotten(tmp_path: Path) -> None:
    read = "import os\nmetrics = Metrics()\nmetrics.count('GET', '200', 0.001, 'a', '10.0.0.{}')\n"
    _run(f"{read.format(1)}metrics.add_up()\nos._exit(0)", tmp_path)
    show = "import tests.support.live_server as at\nprint(metrics.show((), at.START).get_data())"
    assert 'tpf_readers{dataset="a"} 1.0' in _run(read.format(2) + show, tmp_path).stdout


def test_requests_are_answered_although_they_cannot_be_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics()

    def fail(noted: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/gone")

    with monkeypatch.context() as changed, caplog.at_level(logging.WARNING):
        changed.setattr(metrics._seconds, "observe", fail)
        for _ in range(2):
            metrics.count("GET", "200", 0.001)
            metrics.add_up()
    assert [record.getMessage() for record in caplog.records] == [
        "requests are not counted: [Errno 2] No such file or directory: '/gone'"
    ]
    metrics.count("GET", "200", 0.001)
    assert _shown(metrics) == 1


def test_nothing_fails_where_the_folder_is_gone(tmp_path: Path) -> None:
    gone = (
        "import os, shutil\nmetrics = Metrics()\n"
        f"shutil.rmtree(os.environ[{MULTIPROCESS_VARIABLE!r}])\n"
        "for _ in range(300):\n    metrics.count('GET', '200', 0.001)\nmetrics.add_up()\n"
    )
    folder = tmp_path / "counts"
    folder.mkdir()
    said = _run(gone, folder).stderr
    assert said.count("requests are not counted") == 1
    assert "Traceback" not in said


def _metrics(server: LiveServer) -> dict[tuple[str, str], float]:
    text = server.session().get(server.url.replace("trains", "metrics")).text
    return {
        (sample.name, sample.labels.get("kind", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("dataset") == "trains"
    }


def test_the_state_of_datasets(tmp_path: Path) -> None:
    train, delay = iri("urn:train"), iri("urn:delay")
    server = LiveServer(tmp_path, [Quad(train, iri("urn:p"), literal("x"))])
    assert _metrics(server) == {
        ("tpf_facts", "static"): 1, ("tpf_facts", "live"): 0, ("tpf_batches", ""): 0
    }  # fmt: skip
    minute = timedelta(minutes=1)
    server.publish([Fact(Quad(train, delay, literal("5")), Expiration(START + minute))])
    server.clock.advance_to(START + minute / 2)
    now = {("tpf_facts", "static"): 1, ("tpf_facts", "live"): 1, ("tpf_batches", ""): 1,
           ("tpf_silent_seconds", ""): 30}  # fmt: skip
    assert _metrics(server) == now
    server.clock.advance_to(START + 2 * minute)
    assert _metrics(server) == now | {("tpf_facts", "live"): 0, ("tpf_silent_seconds", ""): 120}
    server.close()


def test_the_dashboard_and_the_alert_ask_for_what_is_there(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, [Quad(iri("urn:s"), iri("urn:p"), literal("x"))])
    text = server.session().get(server.url.replace("trains", "metrics")).text
    dashboard = json.loads((PROJECT / "docs" / "grafana.json").read_text("utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += re.findall(r"expr: (.+)", (PROJECT / "docs" / "operations.md").read_text("utf-8"))
    names = {name for each in asked for name in re.findall(r"\btpf_\w+", each)}
    assert len(names) >= 5
    for name in names:
        assert re.search(rf"^(# TYPE )?{name.removesuffix('_bucket')}\b", text, re.M), name
    server.close()
