"""``/metrics``: requests by method and status, and how long they took, for Prometheus.

With several workers the numbers are summed over all of them, through the files in
``PROMETHEUS_MULTIPROC_DIR``, which `tpf-server` sets.
"""

import os
import time

from flask import Blueprint, Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from tpf_server.web.responses import answer
from tpf_server.workers import MULTIPROCESS_VARIABLE

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """Counts the requests of one application."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tpf_requests", "Requests.", ["method", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "tpf_request_seconds", "Seconds per request.", buckets=_BUCKETS, registry=self._registry
        )
        # Looking a child up by its labels costs more than counting does.
        self._counters: dict[tuple[str, str], Counter] = {}

    def watch(self, target: Flask | Blueprint) -> None:
        """Count every request that reaches an application, or a part of one."""
        target.before_request(self._start)
        target.after_request(self._count)

    def count(self, method: str, status: str, seconds: float) -> None:
        """Count one request."""
        key = method if method in _METHODS else "OTHER", status
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._requests.labels(*key)
        counter.inc()
        self._seconds.observe(seconds)

    def show(self) -> Response:
        """The text format of Prometheus."""
        registry = self._registry
        if MULTIPROCESS_VARIABLE in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        response = answer(generate_latest(registry), "text/plain; version=0.0.4; charset=utf-8")
        response.headers["Cache-Control"] = "no-store"
        return response

    def _start(self) -> None:
        g.started = time.perf_counter()

    def _count(self, response: Response) -> Response:
        self.count(request.method, str(response.status_code), time.perf_counter() - g.started)
        return response


_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
