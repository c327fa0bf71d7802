"""A board of departures whose live facts are all renewed in a fixed period.

Source: Taelman et al. 2016, section 6. A delay is the number of its renewal.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from annotations.instants import format_instant, parse_instant
from annotations.namespaces import integer
from annotations.terms import Quad, Term, literal, literal_parts
from experiments.workloads import named_queries
from experiments.workloads.trains import recording, train_query
from loaders import vocabulary as v

_POLLS = 400
_FEWEST = 5
_QUERIES = named_queries("board.rq")


@dataclass(frozen=True, slots=True)
class DepartureWindow:
    """A query's constants: departures strictly between two instants, and their number."""

    start: str
    until: str
    departures: int

    def query(self) -> str:
        return train_query(parse_instant(self.start), parse_instant(self.until))

    def cqels_query(self, stream: str, milliseconds: int) -> str:
        return _QUERIES["CQELS"].format(
            stream=stream, milliseconds=milliseconds, start=self.start, until=self.until
        )

    def csparql_query(self, stream: str, milliseconds: int, step: int, number: int) -> str:
        return _QUERIES["C-SPARQL"].format(
            stream=stream, milliseconds=milliseconds, step=step, number=number,
            start=self.start, until=self.until,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Board:
    """The departures of a recording, and their static facts, sorted by time."""

    source: str
    static: Sequence[Quad]
    departures: Sequence[Term]
    times: Sequence[str]

    def windows(self, count: int, seed: int) -> list[DepartureWindow]:
        chance = random.Random(seed)
        size = len(self.times)
        few = min(_FEWEST, size)
        result = []
        for _ in range(count):
            first = chance.randrange(size - few + 1)
            last = chance.randrange(first + few - 1, size)
            # Between the departures' own seconds; different by milliseconds where places repeat.
            margin = timedelta(milliseconds=chance.randrange(1, 30_000))
            start = parse_instant(self.times[first]) - margin
            until = parse_instant(self.times[last]) + margin
            inside = sum(start < parse_instant(time) < until for time in self.times)
            result.append(DepartureWindow(format_instant(start), format_instant(until), inside))
        return result


def board(departures: int) -> Board:
    """Return the first departures of a recording."""
    recorded = recording(_POLLS)
    predicates = (v.DEPARTURE_TIME, v.HEAD_SIGN, v.ROUTE_LABEL)
    by_departure: dict[Term, dict[Term, Quad]] = {}
    for quad in recorded.static:
        if quad.predicate in predicates:
            by_departure.setdefault(quad.subject, {}).setdefault(quad.predicate, quad)
    chosen = [quads for quads in by_departure.values() if len(quads) == len(predicates)][
        :departures
    ]
    times = sorted(
        (literal_parts(quads[v.DEPARTURE_TIME].object).lexical, quads[v.DEPARTURE_TIME].subject)
        for quads in chosen
    )
    return Board(
        recorded.source,
        [quad for quads in chosen for quad in quads.values()],
        [subject for _, subject in times],
        [time for time, _ in times],
    )


def renewal(departures: Sequence[str], number: int) -> Iterator[Quad]:
    """Yield the live facts of a renewal: two for each departure."""
    for index, departure in enumerate(departures):
        yield Quad(Term(departure), v.DELAY, integer(number))
        yield Quad(Term(departure), v.PLATFORM, literal(str(1 + index % 12)))


def number_of(delay: str) -> int:
    """Return the number of the renewal that announced a delay."""
    return int(delay[1 : delay.index('"', 1)])
