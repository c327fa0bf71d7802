"""``ticks``: the client's cost of one continuous query, by the number of labelled facts."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from statistics import median
from typing import Final, Self

from annotations.clock import SystemClock
from annotations.instants import parse_instant
from annotations.terms import Quad, Term
from experiments.harness.items import (
    Finding,
    Item,
    Measurement,
    MeasurementGroup,
    ResultRow,
    Run,
    Table,
    Target,
)
from experiments.harness.processes import Process, child, python, started
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.harness.servers import TOKEN, fragment_server
from experiments.studies.boards import BOARD_DATASET
from experiments.workloads.board import Board, board
from experiments.workloads.trains import train_query

_FOLLOWER: Final = "experiments.studies.tick_process"
_IMPORT_SECONDS: Final = 120.0
_SHARE: Final = 0.68
"""Of the departures that the query asks for."""
_MARGIN: Final = timedelta(milliseconds=1)
_LIMITS: Final = {"ms_tick": 4.0, "ms_unchanged": 1.0, "ms_start": 30.0, "ms_import": 150.0}
_TITLES: Final = {
    "ms_tick": "an update",
    "ms_unchanged": "an evaluation without one",
    "ms_start": "the first answer",
    "ms_import": "the import of the client",
}
_AIMED_AT: Final = 200
"""Facts for which the limits hold."""
_BYTECODE: Final = {"PYTHONDONTWRITEBYTECODE": ""}
"""Modules are compiled once, as where one works with the client."""
_numbers = count()


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment; labelled `facts` are all renewed in each `period` of seconds."""

    facts: tuple[int, ...] = (10, 100, 200, 1000)
    ticks: int = 20
    period: float = 2.0
    wait: float = 600.0

    @classmethod
    def quick(cls) -> Self:
        return cls(facts=(10, 200), ticks=4, period=1.0)


class ClientTicks:
    """The experiment."""

    name = "ticks"
    question = "How much CPU does one continuous query take of its client, at the start and later?"
    settings = Sizes
    keys = ("facts",)
    values = (
        "rows", "ms_import", "ms_start", "ms_tick", "ms_tick_median", "ms_unchanged",
        "requests_start", "requests_tick",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """Return measurements with a new client process each."""
        yield MeasurementGroup(
            "boards",
            _open,
            [
                Measurement({"facts": facts}, partial(_measure, settings, run, facts))
                for facts in settings.facts
            ],
        )

    def report(self, results: Results) -> Iterable[Item]:
        sizes = sorted(map(int, results.distinct("facts")))
        columns = (*self.keys, *self.values)
        rows = [[row[column] for column in columns] for row in results.rows]
        yield Table("CPU of a client", columns, rows)

        def least(column: str, facts: int) -> float:
            return min(results.numbers(column, facts=facts))

        for size in sizes:
            yield Finding(
                f"{size:,} labelled facts: {rounded(least('ms_tick', size))} ms of CPU for an "
                f"update, {rounded(least('ms_unchanged', size))} ms for an evaluation without "
                f"one, {rounded(least('ms_start', size))} ms until the first answer.",
                headline=True,
            )
        for column, limit in _LIMITS.items():
            measured = least(column, _AIMED_AT) if _AIMED_AT in sizes else None
            yield Target(f"ms of CPU for {_TITLES[column]}, {_AIMED_AT} facts", measured, limit)


@contextmanager
def _open() -> Iterator[Process]:
    with started("import", python(_FOLLOWER), environment=_BYTECODE) as first:
        first.read_line(_IMPORT_SECONDS)
    with started("feed", child("experiments.studies.processes:BoardRenewals")) as feed:
        yield feed


def _departures(count: int) -> Board:
    recorded = board(count)
    subjects, times, static = list(recorded.departures), list(recorded.times), list(recorded.static)
    for copy in range(1, -(-count // len(recorded.departures))):
        names = {each: Term(f"{each[:-1]}-{copy}>") for each in recorded.departures}
        subjects += names.values()
        times += recorded.times
        static += [Quad(names[quad.subject], *quad[1:]) for quad in recorded.static]
    kept = set(subjects[:count])
    return Board(
        recorded.source,
        [quad for quad in static if quad.subject in kept],
        subjects[:count],
        sorted(times[:count]),
    )


def _measure(settings: Sizes, run: Run, facts: int, feed: Process) -> Iterable[ResultRow]:
    departures = _departures(-(-facts // 2))
    number = next(_numbers)
    store = run.static.store(run.folder / f"board{number}", departures.static, SystemClock().now())
    last = departures.times[round(_SHARE * (len(departures.times) - 1))]
    query = train_query(parse_instant(departures.times[0]) - _MARGIN, parse_instant(last) + _MARGIN)
    config = f'[datasets.{BOARD_DATASET}]\nsource = "{store}"\nlive = true\n'
    with fragment_server(run.folder, config) as server:
        url = f"{server.url}{BOARD_DATASET}"
        order = {
            "do": "start", "mode": "facts", "url": url, "token": TOKEN,
            "departures": departures.departures, "period": settings.period,
            "lead": settings.period / 4, "seconds": settings.wait,
        }  # fmt: skip
        feed.ask(order, settings.wait)
        follower = python(
            _FOLLOWER, url, query, str(settings.ticks), str(settings.period / 5),
        )  # fmt: skip
        try:
            with started("client", follower, environment=_BYTECODE) as client:
                measured = json.loads(client.read_line(settings.wait))
        finally:
            feed.ask({"do": "stop"}, settings.wait)
    yield {
        "rows": measured["rows"],
        "ms_import": measured["import"],
        "ms_start": measured["start"],
        "ms_tick": min(measured["ticks"]),
        "ms_tick_median": median(measured["ticks"]),
        "ms_unchanged": min(measured["unchanged"]),
        "requests_start": measured["requests_start"],
        "requests_tick": measured["requests_ticks"] / settings.ticks,
    }
