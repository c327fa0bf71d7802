"""Counts of requests: noted one by one, added up together, and none is lost."""

import math
import re
import threading

from prometheus_client import CollectorRegistry, Histogram

from tpf_server.web.metrics import _BUCKETS, Metrics


def _shown(metrics: Metrics, method: str = "GET", status: str = "200") -> float:
    name = re.escape(f'tpf_requests_total{{method="{method}",status="{status}"}} ')
    found = re.search(f"{name}(.+)", metrics.show().get_data(as_text=True))
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
    assert "tpf_request_seconds_count 601.0" in metrics.show().get_data(as_text=True)


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
    said = re.findall(r"tpf_request_seconds(_\w+{.+} .+)", metrics.show().get_data(as_text=True))
    (expected,) = known.collect()
    buckets = [s for s in expected.samples if s.name.endswith("_bucket")]
    assert said == [f'_bucket{{le="{s.labels["le"]}"}} {s.value}' for s in buckets]
