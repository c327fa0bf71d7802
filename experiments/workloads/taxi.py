"""The two queries of the DEBS 2015 Grand Challenge in CQELS-QL, and the trips as records.

As in paper 001, but ordered as the challenge asks (best first; ties by cell).
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from heapq import heappop, heappush
from typing import NamedTuple

import pyarrow as pa

TAXI_STREAM = "http://localhost/Taxi"
VOCABULARY = "http://example.org/taxi#"
SUBJECTS = "http://example.org/trip/"
FIELDS = (
    "taxi", "pickupTime", "dropoffTime", "pickLon", "pickLat", "dropLon", "dropLat", "fare", "tip",
)  # fmt: skip
PREDICATES = tuple(VOCABULARY + name for name in FIELDS)

_PREFIX = f"PREFIX : <{VOCABULARY}>\n"


def frequent_routes(minutes: int = 30) -> str:
    """Q1: the ten most frequent routes between cells of 500 m."""
    return (
        _PREFIX
        + f"""SELECT (ROUND((41.474937-?pLat)/0.005986) AS ?pE)
       (ROUND((74.913585+?pLon)/0.004491556) AS ?pS)
       (ROUND((41.474937-?dLat)/0.005986) AS ?dE)
       (ROUND((74.913585+?dLon)/0.004491556) AS ?dS)
       (COUNT(?trip) AS ?freq)
WHERE {{ STREAM <Taxi> [RANGE {minutes} minutes] {{
  ?trip :pickLon ?pLon. ?trip :pickLat ?pLat. ?trip :dropLon ?dLon. ?trip :dropLat ?dLat. }} }}
GROUP BY ?pE ?pS ?dE ?dS
HAVING (?pE>0 && ?pE<301 && ?pS>0 && ?pS<301 && ?dE>0 && ?dE<301 && ?dS>0 && ?dS<301)
ORDER BY DESC(?freq) ?pE ?pS ?dE ?dS LIMIT 10"""
    )


def profitable_areas(minutes: int = 30) -> str:
    """Q2: the ten most profitable cells of 250 m, per empty taxi."""
    return (
        _PREFIX
        + f"""SELECT ?pE ?pS ?noEmptyTaxis ?prof (?prof/?noEmptyTaxis AS ?profitability) WHERE {{
  {{ SELECT (ROUND((41.474937-?pLat1)*2/0.005986) AS ?pE)
           (ROUND((74.913585+?pLon1)*2/0.004491556) AS ?pS) (MEDIAN(?fare+?tip) AS ?prof)
    WHERE {{ STREAM <Taxi> [RANGE {minutes // 2} minutes] {{
      ?trip :fare ?fare. ?trip :tip ?tip. ?trip :pickLat ?pLat1. ?trip :pickLon ?pLon1. }} }}
    GROUP BY ?pE ?pS HAVING (?pE>0 && ?pE<601 && ?pE>0 && ?pS<601) }}
  {{ SELECT (ROUND((41.474937-?pLat2)*2/0.005986) AS ?pE)
           (ROUND((74.913585+?pLon2)*2/0.004491556) AS ?pS) (COUNT(?taxi) AS ?noEmptyTaxis)
    WHERE {{
      STREAM <Taxi> [RANGE {minutes} minutes] {{
        ?trip2 :pickLat ?pLat2. ?trip2 :pickLon ?pLon2.
        ?trip2 :taxi ?taxi. ?trip2 :dropoffTime ?dropoff. }}
      FILTER NOT EXISTS {{
        STREAM <Taxi> [RANGE {minutes} minutes] {{
          ?trip3 :taxi ?taxi. ?trip3 :pickupTime ?pickup. }}
        FILTER (?pickup>?dropoff) }} }}
    GROUP BY ?pE ?pS HAVING (?pE>0 && ?pE<601 && ?pS>0 && ?pS<601 && ?noEmptyTaxis>0) }}
}} ORDER BY DESC(?profitability) ?pE ?pS LIMIT 10"""
    )


class Trip(NamedTuple):
    """A trip: drop-off in milliseconds since 1970, and the values of `FIELDS`."""

    at: int
    taxi: str
    pickup: datetime
    dropoff: datetime
    pick_longitude: Decimal
    pick_latitude: Decimal
    drop_longitude: Decimal
    drop_latitude: Decimal
    fare: Decimal
    tip: Decimal


INSTANT = pa.timestamp("us", "UTC")
_DEGREES = pa.decimal128(12, 6)
_DOLLARS = pa.decimal128(9, 2)
STREAM_COLUMNS = pa.schema(
    zip(
        FIELDS,
        (pa.string(), INSTANT, INSTANT, *[_DEGREES] * 4, _DOLLARS, _DOLLARS),
        strict=True,
    )
)


class TripColumns(NamedTuple):
    """Trips as columns for `RecordFeed.push_batch`."""

    subjects: pa.Array
    values: pa.RecordBatch
    timestamps: pa.Array


def trips(count: int, seed: int, per_second: float = 1.16, taxis: int = 13_000) -> Iterator[Trip]:
    """Yield trips between busy places, ordered by their ends, at the challenge's rate."""
    chance = random.Random(seed)
    centres = [(-73.986, 40.748), (-73.977, 40.753), (-74.006, 40.713), (-73.778, 40.641)]
    start = datetime(2013, 1, 1, tzinfo=UTC)
    free = list(range(taxis))
    under_way: list[tuple[float, int, int, float]] = []
    second, made, order = 0.0, 0, 0

    def point() -> tuple[Decimal, Decimal]:
        if chance.random() < 0.015:
            return Decimal(0), Decimal(0)
        longitude, latitude = chance.choice(centres)
        return (
            Decimal(f"{chance.gauss(longitude, 0.01):.6f}"),
            Decimal(f"{chance.gauss(latitude, 0.01):.6f}"),
        )

    while made < count:
        second += chance.expovariate(per_second)
        while under_way and under_way[0][0] <= second and made < count:
            end, _, taxi, begin = heappop(under_way)
            free.append(taxi)
            made += 1
            dropoff = start + timedelta(minutes=end // 60)
            pickup = start + timedelta(minutes=begin // 60)
            fare = Decimal(f"{2.5 + (end - begin) / 60:.2f}")
            tip = Decimal(f"{chance.choice((0, 1.5, 2, 3)):.2f}")
            at = int(dropoff.timestamp() * 1000)
            yield Trip(at, f'"T{taxi}"', pickup, dropoff, *point(), *point(), fare, tip)
        taxi = free.pop(chance.randrange(len(free)))
        order += 1
        heappush(under_way, (second + chance.uniform(120, 1800), order, taxi, second))
