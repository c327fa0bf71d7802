"""The DEBS 2015 queries on real trips, against recomputation."""

import os
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest

from annotations.terms import literal_parts
from experiments.errors import UnavailableError
from experiments.workloads.taxi import (
    FIELDS,
    PREDICATES,
    STREAM_COLUMNS,
    SUBJECTS,
    TAXI_STREAM,
    frequent_routes,
    profitable_areas,
)
from experiments.workloads.taxi_files import (
    as_trips,
    frequent_routes_anew,
    profitable_areas_anew,
    read_trips,
    recorded_file,
)
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.semantics import PAPER, PAPER_ANSWER

# Whether each case plays all trips; else some of them, so that they last longer than the window
# and that the recomputation, of whole windows, is not slow.
ALL = bool(os.environ.get("TAXI_ALL_TRIPS"))


def values(row):
    return tuple(Decimal(literal_parts(term).lexical) for term in row)


def play(text, trips, semantics):
    """Return the emissions after each trip."""
    engine = Engine(EngineSettings(semantics=semantics))
    emissions = []
    engine.register(text, emissions.append)
    feed = engine.record_feed(TAXI_STREAM, PREDICATES, SUBJECTS)
    for number, trip in enumerate(trips):
        feed.push(number, trip[1:], trip.at)
        yield emissions


@pytest.fixture(scope="module")
def trips():
    try:
        return [trip for block in read_trips(recorded_file()) for trip in as_trips(block)]
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("query", [frequent_routes, profitable_areas])
def test_trips_in_batches_are_the_same_trips(trips, query):
    some = trips if ALL else trips[:1500]
    engine = Engine(EngineSettings(semantics=PAPER))
    batched = []
    engine.register(query(10), batched.append)
    feed = engine.record_feed(TAXI_STREAM, PREDICATES, SUBJECTS)
    for first in range(0, len(some), 400):
        part = some[first : first + 400]
        rows = [dict(zip(FIELDS, trip[1:], strict=True)) for trip in part]
        numbers = pa.array(range(first, first + len(part)))
        values = pa.RecordBatch.from_pylist(rows, STREAM_COLUMNS)
        feed.push_batch(numbers, values, pa.array([trip.at for trip in part]))
    *_, single = play(query(10), some, PAPER)
    assert batched == single
    assert len(batched) > 20


@pytest.mark.parametrize(
    ("query", "anew", "minutes", "count", "step"),
    [
        (frequent_routes, frequent_routes_anew, 5, 10_000, 4),
        (frequent_routes, frequent_routes_anew, 30, 10_000, 8),
        (profitable_areas, profitable_areas_anew, 6, 5_000, 4),
        (profitable_areas, profitable_areas_anew, 30, 6_000, 10),
    ],
)
def test_the_answer_is_what_is_computed_anew(trips, query, anew, minutes, count, step):
    some = trips if ALL else trips[:count:step]
    emissions = []
    answers = anew(some, minutes)
    for number, emissions in enumerate(play(query(minutes), some, PAPER_ANSWER)):
        rows = emissions[-1].rows if emissions else ()
        assert Counter(map(values, rows)) == Counter(next(answers)), f"trip {number}"
    assert len(emissions) > 20
