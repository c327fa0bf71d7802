"""The DEBS 2015 queries on real trips, against grouping everything anew at each arrival."""

import csv
import gzip
import os
from collections import Counter
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Context, Decimal
from heapq import nsmallest
from pathlib import Path
from statistics import median

import pytest

from annotations.terms import literal_parts
from experiments.workloads.taxi import (
    PREDICATES,
    STREAM,
    SUBJECTS,
    Trip,
    batches,
    frequent_routes,
    profitable_areas,
)
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.engine.semantics import PAPER

# Whether each case plays all trips: most do; where windows are long the recomputation is slow.
ALL = bool(os.environ.get("TAXI_ALL_TRIPS"))
TRIPS = Path(__file__).parents[5] / "shared" / "data" / "taxi" / "trips_10k.csv.gz"
EXACT = Context(prec=100)
MINUTE = 60_000
START = datetime(1970, 1, 1, tzinfo=UTC)


def quotient(one, other):
    """As SPARQL engines divide decimals: 18 digits behind the point."""
    return EXACT.divide(one, other).quantize(Decimal("1e-18"), ROUND_DOWN, EXACT)


def rounded(value):
    return int((value + Decimal("0.5")).to_integral_value("ROUND_FLOOR"))


def cell(latitude, longitude, parts):
    return (
        rounded(quotient((Decimal("41.474937") - latitude) * parts, Decimal("0.005986"))),
        rounded(quotient((Decimal("74.913585") + longitude) * parts, Decimal("0.004491556"))),
    )


def routes(window):
    """The ten most frequent of the routes in a window."""
    inside = Counter(window)
    inside.pop(None, None)
    best = nsmallest(10, inside.items(), key=lambda each: (-each[1], each[0]))
    return Counter((*route, count) for route, count in best)


def areas(window, now, width):
    """The ten most profitable cells."""
    fares = {}
    last = {}
    recent = now - width // 2
    for trip, _, place, earned in window:
        if trip.pickup > last.get(trip.taxi, START):
            last[trip.taxi] = trip.pickup
        if trip.at >= recent and place is not None:
            fares.setdefault(place, []).append(earned)
    empty = Counter(
        place
        for trip, place, _, _ in window
        if place is not None and last[trip.taxi] <= trip.dropoff
    )
    rows = []
    for place in fares.keys() & empty.keys():
        profit = median(fares[place])
        rows.append((*place, empty[place], profit, quotient(profit, Decimal(empty[place]))))
    return Counter(nsmallest(10, rows, key=lambda row: (-row[4], row[0], row[1])))


def values(row):
    return tuple(Decimal(literal_parts(term).lexical) for term in row)


def play(text, trips):
    """What a query emits for each trip."""
    engine = Engine(semantics=PAPER)
    emissions = {}
    engine.register(text, lambda each: emissions.__setitem__(each.sequence, each.rows))
    feed = engine.record_feed(STREAM, PREDICATES, SUBJECTS)
    for number, trip in enumerate(trips):
        feed.push(number, trip[1:], trip.at)
    return [Counter(map(values, emissions.get(n, ()))) for n in range(1, len(trips) + 1)]


@pytest.mark.parametrize("query", [frequent_routes, profitable_areas])
def test_trips_in_batches_are_the_same_trips(trips, query):
    some = trips if ALL else trips[:1500]
    engine = Engine(semantics=PAPER)
    emissions = {}
    engine.register(query(10), lambda each: emissions.__setitem__(each.sequence, each.rows))
    feed = engine.record_feed(STREAM, PREDICATES, SUBJECTS)
    for batch in batches(some, 400):
        feed.push_batch(*batch)
    batched = [Counter(map(values, emissions.get(n, ()))) for n in range(1, len(some) + 1)]
    assert batched == play(query(10), some)
    assert sum(map(bool, batched)) > 20


def windows(trips, derived, width):
    """For each trip its time, and what was derived from those in the window."""
    first = 0
    for last, trip in enumerate(trips):
        while trips[first].at < trip.at - width:
            first += 1
        yield trip.at, derived[first : last + 1]


def read_trips(path):
    """The trips of a DEBS 2015 file (17 columns, in the order of their drop-off)."""
    with gzip.open(path, "rt") as lines:
        for row in csv.reader(lines):
            pickup, dropoff = (
                datetime.fromisoformat(text).replace(tzinfo=UTC) for text in row[2:4]
            )
            numbers = [Decimal(row[place]) for place in (6, 7, 8, 9, 11, 14)]
            yield Trip(int(dropoff.timestamp() * 1000), f'"{row[0]}"', pickup, dropoff, *numbers)


@pytest.fixture(scope="module")
def trips():
    if not TRIPS.exists():
        pytest.skip("the shared data are absent")
    return list(read_trips(TRIPS))


@pytest.mark.parametrize(("minutes", "count"), [(5, 10_000), (30, 10_000)])
def test_frequent_routes(trips, minutes, count):
    some = trips if ALL else trips[:count]
    cells = [
        (*cell(t.pick_latitude, t.pick_longitude, 1), *cell(t.drop_latitude, t.drop_longitude, 1))
        for t in some
    ]
    derived = [route if all(0 < part < 301 for part in route) else None for route in cells]
    emitted = play(frequent_routes(minutes), some)
    before = Counter()
    changes = 0
    for number, (_, window) in enumerate(windows(some, derived, minutes * MINUTE)):
        now = routes(window)
        assert emitted[number] == now - before, f"trip {number}"
        changes += bool(now - before)
        before = now
    assert changes > 20


@pytest.mark.parametrize(("minutes", "count"), [(6, 5_000), (30, 2000)])
def test_profitable_areas(trips, minutes, count):
    some = trips if ALL else trips[:count]
    derived = []
    for trip in some:
        place = cell(trip.pick_latitude, trip.pick_longitude, 2)
        east, south = place
        # The queries ask for different cells where they count taxis and where they take fares.
        taxis = place if 0 < east < 601 and 0 < south < 601 else None
        fares = place if 0 < east < 601 and south < 601 else None
        derived.append((trip, taxis, fares, trip.fare + trip.tip))
    emitted = play(profitable_areas(minutes), some)
    before = Counter()
    changes = 0
    for number, (at, window) in enumerate(windows(some, derived, minutes * MINUTE)):
        now = areas(window, at, minutes * MINUTE)
        assert emitted[number] == now - before, f"trip {number}"
        changes += bool(now - before)
        before = now
    assert changes > 20
