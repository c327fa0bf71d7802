"""``/metrics``: requests by method and status, and their durations, for Prometheus.

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
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final
from weakref import WeakSet

from flask import Blueprint, Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from tpf_server.web.responses import answer
from tpf_server.workers import MULTIPROCESS_VARIABLE

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

_MOST_NOTED: Final = 256
_LONGEST: Final = 2.0
"""After so many seconds nobody else seems to add up: twice as many as there are between two times
of who does."""
_log: Final = logging.getLogger(__name__)


class _Durations(Histogram):
    """A histogram to which many durations can be added at once."""

    def observe_all(self, seconds: Sequence[float]) -> None:
        self._sum.inc(sum(seconds))
        result = collections.Counter([bisect_left(self._upper_bounds, each) for each in seconds])
        for bucket, count in result.items():
            self._buckets[bucket].inc(count)


class Metrics:
    """Count the requests of one application. Thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tpf_requests", "Requests.", ["method", "status"], registry=self._registry
        )
        self._seconds = _Durations(
            "tpf_request_seconds", "Seconds per request.", buckets=_BUCKETS, registry=self._registry
        )
        self._noted: list[tuple[str, str, float]] = []
        self._added_up = time.monotonic()
        self._failed = False
        self._lock = threading.Lock()
        _counting.add(self)

    def watch(self, target: Flask | Blueprint) -> None:
        """Count every request to an application or blueprint."""
        target.before_request(self._start)
        target.after_request(self._count)

    def count(self, method: str, status: str, seconds: float) -> None:
        """Note one request for `add_up`.

        That is called when many are noted, or when it was not called for two seconds.
        """
        self._noted.append((method, status, seconds))
        if len(self._noted) >= _MOST_NOTED or time.monotonic() - self._added_up > _LONGEST:
            self.add_up()

    def add_up(self) -> None:
        """Count the noted requests, so that every worker shows them.

        A failure is logged and the notes are lost: no request fails.
        """
        self._added_up = time.monotonic()
        with self._lock:
            if not self._noted:
                return
            # Others may note at the end meanwhile; nobody else takes away.
            noted = self._noted[:]
            del self._noted[: len(noted)]
            try:
                self._count_all(noted)
                self._failed = False
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    _log.warning("requests are not counted: %s", error)

    def show(self) -> Response:
        """Return the text format of Prometheus."""
        self.add_up()
        registry = self._registry
        if MULTIPROCESS_VARIABLE in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        response = answer(generate_latest(registry), "text/plain; version=0.0.4; charset=utf-8")
        response.headers["Cache-Control"] = "no-store"
        return response

    def _count_all(self, noted: Sequence[tuple[str, str, float]]) -> None:
        self._seconds.observe_all([seconds for _, _, seconds in noted])
        answers = collections.Counter([(method, status) for method, status, _ in noted])
        for (method, status), count in answers.items():
            self._requests.labels(method if method in _METHODS else "OTHER", status).inc(count)

    def _start(self) -> None:
        g.started = time.perf_counter()

    def _count(self, response: Response) -> Response:
        self.count(request.method, str(response.status_code), time.perf_counter() - g.started)
        return response


_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})

_counting: Final[WeakSet[Metrics]] = WeakSet()


@atexit.register
def _add_up_at_the_end() -> None:
    for metrics in list(_counting):
        metrics.add_up()
