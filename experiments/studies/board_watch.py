"""Watches answers that are kept up to date: CPU of all processes, bytes, and what arrives when."""

import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from experiments.errors import MachineLimitError, MeasurementError, UntriedError
from experiments.harness.estimates import percentile
from experiments.harness.measurement import ResultRow
from experiments.harness.processes import Process, Usage
from experiments.studies.board_modes import Side
from experiments.workloads.board import DepartureWindow

_READY_SECONDS = 60.0
START_SECONDS = 180.0
"""For which clients are waited."""
_STOP_SECONDS = 120.0
SIDES = ("server_percent", "cache_percent", "clients_percent")
"""The columns of what all processes use."""
BUSY = 75.0
"""Percent of each core from which on the machine is the limit."""


@dataclass(frozen=True, slots=True)
class Looks:
    """How long is looked at a board.

    Args:
        first: seconds that the start of the clients takes at least.
        steady: seconds that are looked at after that; whole periods.
        grace: seconds in which what was published at the end may still arrive.
    """

    first: float
    steady: float
    grace: float


class MachineLimits:
    """What the machine was too small for, by what is varied beside the number of queries."""

    def __init__(self) -> None:
        self._found: dict[Hashable, int] = {}

    @contextmanager
    def of(self, what: Hashable, queries: int) -> Iterator[None]:
        """A measurement with so many queries.

        Raises:
            UntriedError: the machine was too small for fewer.
        """
        if (least := self._found.get(what, queries)) < queries:
            raise UntriedError(f"not tried, because {least} queries were too many for it")
        try:
            yield
        except MachineLimitError:
            self._found[what] = queries
            raise


Arrivals: TypeAlias = Callable[
    [Sequence[Mapping[str, Any]], Sequence[float], tuple[float, float]], ResultRow
]
"""Makes of the reports of the clients, the instants of sending, and a span of time: how much of
what was published in the span arrived, and when.

Raises `MeasurementError` where nothing did."""


def watch(
    side: Side, clients: Sequence[Process], feed: Process, looks: Looks, arrivals: Arrivals
) -> list[ResultRow]:
    """Let feed and clients go, look at all processes once a second, and take their reports.

    Returns:
        A row for each second, and one for the whole.

    Raises:
        MeasurementError: the feed failed, clients do not start, or nothing arrives.
    """
    longest = _READY_SECONDS + START_SECONDS + looks.steady + _STOP_SECONDS
    said = feed.ask({**side.feed, "seconds": longest}, _READY_SECONDS)
    if "error" in said:
        raise MeasurementError(f"the feed did not start: {said['error']}")
    # Where the number of queries is no multiple of that of the processes, some have one more.
    share = len(clients)
    watched = _Watched(side, clients, feed)
    orders = [
        client.order(
            {**side.order, "queries": side.queries[number::share], "patience": START_SECONDS}
        )
        for number, client in enumerate(clients)
    ]
    starts: dict[int, float] = {}
    rows: list[ResultRow] = []

    def look_until(seconds: float) -> None:
        """Look once a second until so many seconds have passed since the beginning."""
        while (now := watched.elapsed()) < seconds:
            time.sleep(max(0.0, min(1 + len(rows), seconds) - now))
            if watched.elapsed() >= 1 + len(rows):
                rows.append({"kind": "second", "second": len(rows) + 1, **watched.percents()})

    while len(starts) < share:
        look_until(watched.elapsed() + 0.1)
        for number, (client, order) in enumerate(zip(clients, orders, strict=True)):
            if number not in starts and client.has_said():
                if not client.answer(order, _READY_SECONDS).get("ready"):
                    kind = _failure(watched.first, watched.usages())
                    raise kind(_why(clients, number, "the clients do not start"))
                starts[number] = watched.elapsed()
        if watched.elapsed() > START_SECONDS:
            kind = _failure(watched.first, watched.usages())
            raise kind(f"{share - len(starts)} client processes do not start")
    look_until(max(looks.first, watched.elapsed()))
    begin, before = _marks(clients), watched.usages()
    began = time.time()
    look_until(watched.elapsed() + looks.steady)
    end, after = _marks(clients), watched.usages()
    ended = time.time()
    memory = side.server.worker_memory()
    # What was published at the end has time to arrive.
    time.sleep(looks.grace)
    reports = _told(clients, {"do": "stop"}, _STOP_SECONDS)
    published = feed.ask({"do": "stop"}, _STOP_SECONDS)
    if side.order["mode"] == "stream":
        # It would wait for its readers.
        side.server.process.kill()
    failure = _failure(watched.first, before, after)
    if "error" in published:
        raise failure(f"the feed failed: {published['error']}")
    why = [reason for report in reports for reason in report["errors"]]
    if why and side.order["mode"] == "stream":
        # The server would be measured with fewer readers than are told.
        raise failure(f"clients do not get their results: {'; '.join(why[:2])}")
    try:
        arrived = arrivals(reports, published["sent"], (began, ended))
    except MeasurementError as error:
        raise failure(str(error)) from error
    first = [float(str(row["client_percent"])) for row in rows[: int(looks.first)]]
    rows.append(
        {
            "kind": "total",
            **_shares(after, before),
            "client_first_percent": sum(first) / len(first) if first else None,
            "start_seconds": max(starts.values()),
            "start_server_cpu_s": before[0].since(watched.first[0]).cpu,
            "start_client_cpu_s": sum(
                b.since(f).cpu for b, f in zip(before[2], watched.first[2], strict=True)
            ),
            "start_bytes": sum(mark["bytes"] for mark in begin),
            "seconds": after[0].since(before[0]).wall,
            "requests": _sum(end, "requests") - _sum(begin, "requests"),
            "bytes": _sum(end, "bytes") - _sum(begin, "bytes"),
            "server_memory_mib": memory / 2**20,
            "cores": len(os.sched_getaffinity(0)),
            **arrived,
            "updates": sum(report["updates"] for report in reports),
            "failed": sum(report["failed"] for report in reports),
            "why": "; ".join(why[:2]) or None,
        }
    )
    return rows


def _sum(marks: Sequence[Mapping[str, Any]], column: str) -> int:
    return sum(mark[column] for mark in marks)


def _marks(clients: Sequence[Process]) -> list[dict[str, Any]]:
    return _told(clients, {"do": "mark"}, _READY_SECONDS)


def _told(
    clients: Sequence[Process], order: Mapping[str, Any], patience: float
) -> list[dict[str, Any]]:
    """All get an order; then all answers are taken."""
    numbers = [client.order(order) for client in clients]
    return [
        client.answer(number, patience) for client, number in zip(clients, numbers, strict=True)
    ]


def _why(clients: Sequence[Process], number: int, what: str) -> str:
    reports = _told(clients, {"do": "stop"}, START_SECONDS + _STOP_SECONDS)
    problems = reports[number]["errors"]
    return f"{what}: {'; '.join(problems[:2]) or 'they tell of no error'}"


_Usages = tuple[Usage, Usage | None, list[Usage], Usage]


class _Watched:
    """The CPU of server, cache, clients and feed, since the beginning and since the last look."""

    def __init__(self, side: Side, clients: Sequence[Process], feed: Process) -> None:
        self._server, self._cache, self._clients = side.server.process, side.cache, clients
        self._feed = feed
        self.first = self._last = self.usages()

    def usages(self) -> _Usages:
        """What server, cache, clients and feed have used."""
        cache = None if self._cache is None else self._cache.usage()
        clients = [client.usage() for client in self._clients]
        return self._server.usage(), cache, clients, self._feed.usage()

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.first[0].wall

    def percents(self) -> ResultRow:
        """Percent of a core since the last look."""
        now, before = self.usages(), self._last
        self._last = now
        return _shares(now, before)


def _shares(now: _Usages, before: _Usages) -> dict[str, float | None]:
    """Percent of a core; of the clients in the mean over their processes."""
    each = [one.since(other).percent_of_core for one, other in zip(now[2], before[2], strict=True)]
    cache = None if now[1] is None or before[1] is None else now[1].since(before[1])
    return {
        "server_percent": now[0].since(before[0]).percent_of_core,
        "cache_percent": None if cache is None else cache.percent_of_core,
        "client_percent": sum(each) / len(each),
        "clients_percent": sum(each),
    }


def _failure(*looks: _Usages) -> type[MeasurementError]:
    """What it is where nothing comes: the machine is the limit if these processes filled it once.

    Args:
        looks: what was used at several instants, in their order.
    """
    limit = BUSY * len(os.sched_getaffinity(0))
    filled = any(_all_shares(now, before) > limit for before, now in pairwise(looks))
    return MachineLimitError if filled else MeasurementError


def _all_shares(now: _Usages, before: _Usages) -> float:
    shares = _shares(now, before)
    return sum(shares[side] or 0 for side in SIDES) + now[3].since(before[3]).percent_of_core


def renewals(
    windows: Sequence[DepartureWindow],
    reports: Sequence[Mapping[str, Any]],
    sent: Sequence[float],
    within: tuple[float, float],
) -> ResultRow:
    """When the renewals of a board that were published in a span of time reached the answers.

    Raises:
        MeasurementError: none did.
    """
    wanted = [number for number, at in enumerate(sent) if within[0] <= at <= within[1]]
    latencies: list[float] = []
    arrived = 0
    for number, report in enumerate(reports):
        for query, renewal, at, rows in report["arrivals"]:
            if renewal in wanted:
                latencies.append(1000 * (at - sent[renewal]))
                arrived += min(rows, windows[number + query * len(reports)].departures)
    expected = len(wanted) * sum(window.departures for window in windows)
    return {**timed(latencies, reports), "completeness": arrived / expected}


def timed(latencies: Sequence[float], reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Median and 95th percentile of latencies.

    Raises:
        MeasurementError: there are none.
    """
    if not latencies:
        problems = [problem for report in reports for problem in report["errors"]]
        came = sum(report.get("updates", 0) for report in reports)
        why = "; ".join(problems[:2]) or (
            f"no process tells of an error; {came} updates came in all, too late or of something "
            "that was published before"
        )
        raise MeasurementError(f"nothing arrived of what was published meanwhile: {why}")
    return {
        "latency_p50_ms": percentile(latencies, 50),
        "latency_p95_ms": percentile(latencies, 95),
    }
