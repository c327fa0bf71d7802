"""``signal``: what it costs to hear of changes, and what it costs to look for them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from annotations.clock import SystemClock
from annotations.instants import parse_instant
from experiments.harness.estimates import percentile
from experiments.harness.items import Item
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.processes import Process, python, started
from experiments.harness.results import Results
from experiments.harness.servers import TOKEN, Server, fragment_server
from experiments.studies.board_modes import BOARD_DATASET, Side
from experiments.studies.board_watch import Looks, timed, watch
from experiments.studies.change_signal_report import POLLING, SIGNAL, signal_items
from experiments.workloads.board import Board, board
from experiments.workloads.trains import train_query

_MARGIN: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        clients: how many follow the board, each with pages and connections of its own.
        changes: of one delay each, a minute.
        rates: other numbers of changes a minute, with `rate_clients` clients.
        rate_clients: see `rates`.
        processes: over how many client processes the clients are spread.
        departures: on the board, each with three static and two live facts.
        max_age: seconds for which a page is fresh: who polls looks as often.
        jitter: seconds over which clients spread their evaluations.
        first_seconds: how long the start of the clients takes at least.
        seconds: that are looked at after it.
        grace: seconds in which what was published at the end may still arrive; with polling,
            `max_age` comes on top.
    """

    clients: tuple[int, ...] = (1, 10, 50, 200)
    changes: int = 12
    rates: tuple[int, ...] = (6, 60)
    rate_clients: int = 10
    processes: int = 4
    departures: int = 50
    max_age: float = 10.0
    jitter: float = 0.1
    first_seconds: float = 5.0
    seconds: float = 30.0
    grace: float = 2.0

    @classmethod
    def quick(cls) -> Self:
        """Few clients, pages that are fresh for two seconds, a change a second."""
        return cls(
            clients=(10,), changes=60, rates=(), processes=1, max_age=2.0, first_seconds=1.0,
            seconds=3.0, grace=0.5,
        )  # fmt: skip

    def planned(self) -> Iterator[tuple[int, int]]:
        """Numbers of clients, and of changes a minute."""
        for clients in self.clients:
            yield clients, self.changes
        for rate in self.rates:
            yield self.rate_clients, rate


@dataclass(frozen=True, slots=True)
class ChangedBoardSetting:
    """The client processes and the feed, which stay; servers are new for every measurement."""

    board: Board
    store: Path
    folder: Path
    clients: Sequence[Process]
    feed: Process
    settings: Sizes
    seed: int


class SignalOrPolling:
    """The experiment."""

    name = "signal"
    question = (
        "How late do continuous queries see a change that no label announced, and what does it "
        "cost them and the server, if they look whenever pages stop being fresh, and if the server "
        "tells what changes?"
    )
    settings = Sizes
    keys = ("source", "mode", "clients", "changes")
    values = (
        "max_age", "late_p50_ms", "late_p95_ms", "late_max_ms", "completeness", "requests",
        "bytes", "server_cpu_ms", "client_cpu_ms", "server_percent", "clients_percent", "seconds",
        "published", "failed", "server_memory_mib", "cores",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """The same client processes, feed and settings of the server for both."""
        departures = board(settings.departures)
        measurements = [
            Measurement(
                {
                    "source": departures.source, "mode": mode, "clients": clients,
                    "changes": changes,
                },
                partial(_measure, mode, clients, changes),
                repetitions=1,  # each is a series in time
            )
            for clients, changes in settings.planned()
            for mode in (POLLING, SIGNAL)
        ]  # fmt: skip
        yield MeasurementGroup("board", partial(_open, settings, run, departures), measurements)

    def report(self, results: Results) -> Iterable[Item]:
        """Lateness and cost, side by side."""
        yield from signal_items(results)


@contextmanager
def _open(settings: Sizes, run: Run, departures: Board) -> Iterator[ChangedBoardSetting]:
    store = run.static.store(run.folder / "board", departures.static, SystemClock().now())
    with ExitStack() as stack:
        clients = [
            stack.enter_context(started(f"client {n}", python("experiments.studies.board_clients")))
            for n in range(settings.processes)
        ]
        feed = stack.enter_context(started("feed", python("experiments.studies.board_changes")))
        yield ChangedBoardSetting(departures, store, run.folder, clients, feed, settings, run.seed)


def _measure(mode: str, clients: int, changes: int, opened: ChangedBoardSetting) -> list[ResultRow]:
    settings = opened.settings
    waits = settings.grace + (settings.max_age if mode == POLLING else 0.0)
    looks = Looks(settings.first_seconds, settings.seconds, waits)
    config = (
        f"change_followers = {clients}\nfollowers_per_address = 0\n"
        f"max_connections_per_address = 0\n[datasets.{BOARD_DATASET}]\n"
        f'source = "{opened.store}"\nlive = true\nmax_age = {settings.max_age}\n'
    )
    with fragment_server(opened.folder, config) as server:
        side = _side(mode, clients, changes, opened, server)
        *_, total = watch(side, opened.clients, opened.feed, looks, partial(_arrived, clients))
    each = clients * float(str(total["seconds"])) / 60
    seconds = float(str(total["seconds"]))
    spent = {
        name: float(str(total[percent])) / 100 * seconds * 1000 / each
        for name, percent in (
            ("server_cpu_ms", "server_percent"),
            ("client_cpu_ms", "clients_percent"),
        )
    }
    sums = {name: float(str(total[name])) / each for name in ("requests", "bytes")}
    kept = {name: total[name] for name in SignalOrPolling.values if name in total}
    return [{**kept, **spent, **sums, "max_age": settings.max_age}]


def _side(
    mode: str, clients: int, changes: int, opened: ChangedBoardSetting, server: Server
) -> Side:
    """All follow the whole board."""
    times = opened.board.times
    query = train_query(parse_instant(times[0]) - _MARGIN, parse_instant(times[-1]) + _MARGIN)
    url = f"{server.url}{BOARD_DATASET}"
    order = {
        "do": "start", "mode": "facts", "url": url, "shared": False, "whole": False,
        "jitter": opened.settings.jitter, "signal": mode == SIGNAL,
    }  # fmt: skip
    feed = {
        "do": "start", "url": url, "token": TOKEN, "departures": opened.board.departures,
        "interval": 60 / changes, "seed": opened.seed,
    }  # fmt: skip
    return Side(server, None, order, [query] * clients, feed)


def _arrived(
    clients: int,
    reports: Sequence[Mapping[str, Any]],
    sent: Sequence[float],
    within: tuple[float, float],
) -> ResultRow:
    """How late the changes of a span of time were.

    Raises:
        MeasurementError: none arrived.
    """
    wanted = {number for number, at in enumerate(sent) if number and within[0] <= at <= within[1]}
    late = [
        1000 * (at - sent[number])
        for report in reports
        for _query, number, at, _rows in report["arrivals"]
        if number in wanted
    ]
    known = timed(late, reports)
    return {
        "late_p50_ms": known["latency_p50_ms"],
        "late_p95_ms": known["latency_p95_ms"],
        "late_max_ms": percentile(late, 100),
        "completeness": len(late) / (len(wanted) * clients),
        "published": len(wanted),
    }
