"""``/metrics`` for Prometheus: requests with their durations, and the state of each dataset.

Workers are summed through the files in ``PROMETHEUS_MULTIPROC_DIR``. Requests are noted, and notes
are counted together every second (`Metrics.add_up`), else by a later request: counting one alone
takes a tenth of a page's time.
"""

import atexit
import collections
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final
from weakref import WeakSet

from flask import Blueprint, Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from annotations.methods.base import FactPattern
from tpf_server.fragments.dataset import EVERYTHING, OpenDataset
from tpf_server.web.responses import ALL_METHODS, answer
from tpf_server.workers import MULTIPROCESS_VARIABLE

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

_MOST_NOTED: Final = 256
_MINUTE: Final = 60.0
_LONGEST: Final = 2.0
"""After so many seconds nobody else seems to add up: twice as many as there are between two times
of who does."""
_log: Final = logging.getLogger(__name__)


class _DatasetCollector(Collector):
    """The state of each dataset, as this worker reads it from the stores now."""

    def __init__(self, datasets: Iterable[OpenDataset], now: datetime) -> None:
        self._datasets = datasets
        self._now = now

    def collect(self) -> Iterator[Metric]:
        facts = GaugeMetricFamily("tpf_facts", "Facts now.", labels=["dataset", "kind"])
        batches = GaugeMetricFamily("tpf_batches", "Number of the last batch.", labels=["dataset"])
        silence = GaugeMetricFamily(
            "tpf_silent_seconds", "Seconds since facts last changed.", labels=["dataset"]
        )
        for dataset in self._datasets:
            name = dataset.settings.name
            if dataset.static is not None:
                facts.add_metric([name, "static"], dataset.static.count(EVERYTHING))
            if dataset.live is not None:
                snapshot = dataset.live.current(self._now)
                facts.add_metric([name, "live"], dataset.live.count(FactPattern(), snapshot))
                batches.add_metric([name], snapshot.sequence)
                modified = dataset.live.modified(snapshot)
                if modified is not None:
                    silence.add_metric([name], (self._now - modified).total_seconds())
        yield from (facts, batches, silence)


class Metrics:
    """Count the requests of one application. Thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tpf_requests", "Requests.", ["method", "status"], registry=self._registry
        )
        self._pages = Counter(
            "tpf_pages",
            "Requests of a dataset's pages.",
            ["dataset"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "tpf_request_seconds", "Seconds per request.", buckets=_BUCKETS, registry=self._registry
        )
        self._readers = Gauge(
            "tpf_readers",
            "Addresses that read pages of a dataset in the last minute, summed over workers: one "
            "that reads from two workers counts twice; all behind a proxy are one unless "
            "trust_forwarded is set.",
            ["dataset"],
            multiprocess_mode="livesum",
            registry=self._registry,
        )
        self._seen: dict[str, dict[str, float]] = {}
        """When each address read a page of a dataset last, oldest first."""
        self._noted: list[tuple[str, str, float, str, str]] = []
        self._added_up = time.monotonic()
        self._failed = False
        self._lock = threading.Lock()
        _counting.add(self)

    def watch(self, target: Flask | Blueprint) -> None:
        """Count every request to an application or blueprint."""
        target.before_request(self._start)
        target.after_request(self._count)

    def count(
        self, method: str, status: str, seconds: float, dataset: str = "", reader: str = ""
    ) -> None:
        """Note one request, perhaps of a page of a dataset by an address; some are added up."""
        self._noted.append((method, status, seconds, dataset, reader))
        if len(self._noted) >= _MOST_NOTED or time.monotonic() - self._added_up > _LONGEST:
            self.add_up()

    def add_up(self) -> None:
        """Count the noted requests, so that every worker shows them.

        A failure is logged and the notes are lost: no request fails.
        """
        self._added_up = time.monotonic()
        with self._lock:
            if not self._noted and not self._seen:
                return
            # Others may note at the end meanwhile; nobody else takes away.
            noted = self._noted[:]
            del self._noted[: len(noted)]
            try:
                self._count_all(noted)
                self._count_readers(noted)
                self._failed = False
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    _log.warning("requests are not counted: %s", error)

    def show(self, datasets: Iterable[OpenDataset], now: datetime) -> Response:
        self.add_up()
        registry = self._registry
        if MULTIPROCESS_VARIABLE in os.environ:
            registry = CollectorRegistry()
            _forget_dead(Path(os.environ[MULTIPROCESS_VARIABLE]))
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        state = CollectorRegistry()
        state.register(_DatasetCollector(datasets, now))
        text = generate_latest(registry) + generate_latest(state)
        response = answer(text, "text/plain; version=0.0.4; charset=utf-8")
        response.headers["Cache-Control"] = "no-store"
        return response

    def _count_readers(self, noted: Sequence[tuple[str, str, float, str, str]]) -> None:
        now = time.monotonic()
        for *_, dataset, reader in noted:
            if dataset and reader:
                seen = self._seen.setdefault(dataset, {})
                seen.pop(reader, None)
                seen[reader] = now
        for dataset, seen in list(self._seen.items()):
            while seen and next(iter(seen.values())) < now - _MINUTE:
                del seen[next(iter(seen))]
            self._readers.labels(dataset).set(len(seen))
            if not seen:
                del self._seen[dataset]

    def _count_all(self, noted: Sequence[tuple[str, str, float, str, str]]) -> None:
        for _, _, seconds, *_ in noted:
            self._seconds.observe(seconds)
        for dataset, count in collections.Counter([each[3] for each in noted]).items():
            if dataset:
                self._pages.labels(dataset).inc(count)
        answers = collections.Counter([(method, status) for method, status, *_ in noted])
        for (method, status), count in answers.items():
            self._requests.labels(method if method in ALL_METHODS else "OTHER", status).inc(count)

    def _start(self) -> None:
        g.started = time.perf_counter()

    def _count(self, response: Response) -> Response:
        # A hook of the application around a blueprint may answer before it is asked.
        now = time.perf_counter()
        seconds = now - g.get("started", now)
        dataset, reader = g.get("dataset", ""), g.get("reader", "")
        self.count(request.method, str(response.status_code), seconds, dataset, reader)
        return response


def _forget_dead(folder: Path) -> None:
    for file in folder.glob("gauge_livesum_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]


_counting: Final[WeakSet[Metrics]] = WeakSet()


@atexit.register
def _add_up_at_the_end() -> None:
    for metrics in list(_counting):
        metrics.add_up()
