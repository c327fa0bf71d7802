"""The two queries of the challenge, computed anew of the whole window for each trip.

In plain Python and with exact decimals; only the cells of a trip are kept. It is the system that
paper 001 compares with, and what the engine's answers are checked against.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Context, Decimal
from heapq import nsmallest
from statistics import median
from typing import TypeVar

from experiments.workloads.taxi import Trip

_Row = tuple[Decimal | int, ...]
_T = TypeVar("_T")
_EXACT = Context(prec=100)
_START = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = 60_000
_ROUTE_CELLS, _AREA_CELLS = 301, 601


Route = tuple[int, int, int, int]
"""The cells of a pick-up and of a drop-off."""


def frequent_routes_anew(trips: Sequence[Trip], minutes: int) -> Iterator[list[_Row]]:
    """Q1: the ten most frequent routes after each trip."""
    for _, window in _windows(trips, _routes(trips), minutes * _MINUTE):
        yield best_routes(_counted(window))


def route_counts(trips: Sequence[Trip], minutes: int) -> Counter[Route]:
    """How many trips each route has in the window that ends with the last trip."""
    earliest = trips[-1].at - minutes * _MINUTE
    return _counted(_routes([trip for trip in trips if trip.at >= earliest]))


def best_routes(counts: Mapping[Route, int]) -> list[_Row]:
    """Q1: the ten most frequent of routes that were counted."""
    best = nsmallest(10, counts.items(), key=lambda each: (-each[1], each[0]))
    return [(*route, count) for route, count in best]


def _routes(trips: Iterable[Trip]) -> list[Route | None]:
    """Of each trip; ``None`` where a cell is outside."""
    found = []
    for trip in trips:
        route = (
            *_cell(trip.pick_latitude, trip.pick_longitude, 1),
            *_cell(trip.drop_latitude, trip.drop_longitude, 1),
        )
        found.append(route if all(0 < part < _ROUTE_CELLS for part in route) else None)
    return found


def _counted(window: Iterable[Route | None]) -> Counter[Route]:
    return Counter(route for route in window if route is not None)


def profitable_areas_anew(trips: Sequence[Trip], minutes: int) -> Iterator[list[_Row]]:
    """Q2: the ten most profitable cells after each trip."""
    derived: list[_Derived] = []
    for trip in trips:
        place = _cell(trip.pick_latitude, trip.pick_longitude, 2)
        east, south = place
        # The queries ask for different cells where they count taxis and where they take fares.
        taxis = place if 0 < east < _AREA_CELLS and 0 < south < _AREA_CELLS else None
        fares = place if 0 < east < _AREA_CELLS and south < _AREA_CELLS else None
        derived.append((trip, taxis, fares, trip.fare + trip.tip))
    for at, window in _windows(trips, derived, minutes * _MINUTE):
        yield _areas(window, at - minutes * _MINUTE // 2)


_Cell = tuple[int, int]
_Derived = tuple[Trip, _Cell | None, _Cell | None, Decimal]


def _areas(window: Sequence[_Derived], recent: int) -> list[_Row]:
    fares: dict[_Cell, list[Decimal]] = {}
    last: dict[str, datetime] = {}
    for trip, _, place, earned in window:
        if trip.pickup > last.get(trip.taxi, _START):
            last[trip.taxi] = trip.pickup
        if trip.at >= recent and place is not None:
            fares.setdefault(place, []).append(earned)
    empty = Counter(
        place
        for trip, place, _, _ in window
        if place is not None and last[trip.taxi] <= trip.dropoff
    )
    rows: list[_Row] = []
    for place in fares.keys() & empty.keys():
        profit = median(fares[place])
        rows.append((*place, empty[place], profit, _quotient(profit, Decimal(empty[place]))))
    return nsmallest(10, rows, key=lambda row: (-row[4], row[0], row[1]))


def _windows(
    trips: Sequence[Trip], derived: Sequence[_T], width: int
) -> Iterator[tuple[int, Sequence[_T]]]:
    """For each trip its time, and what was derived from those in the window."""
    first = 0
    for last, trip in enumerate(trips):
        while trips[first].at < trip.at - width:
            first += 1
        yield trip.at, derived[first : last + 1]


def _quotient(one: Decimal, other: Decimal) -> Decimal:
    """As SPARQL engines divide decimals: 18 digits behind the point."""
    return _EXACT.divide(one, other).quantize(Decimal("1e-18"), ROUND_DOWN, _EXACT)


def _rounded(value: Decimal) -> int:
    return int((value + Decimal("0.5")).to_integral_value("ROUND_FLOOR"))


def _cell(latitude: Decimal, longitude: Decimal, parts: int) -> _Cell:
    return (
        _rounded(_quotient((Decimal("41.474937") - latitude) * parts, Decimal("0.005986"))),
        _rounded(_quotient((Decimal("74.913585") + longitude) * parts, Decimal("0.004491556"))),
    )
