"""Synthetic taxi trips, at the rate of the DEBS 2015 challenge."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from heapq import heappop, heappush

from experiments.workloads.taxi import Trip


def trips(count: int, seed: int, per_second: float = 1.16, taxis: int = 13_000) -> Iterator[Trip]:
    """Trips between busy places, in the order of their ends, at the rate of the challenge."""
    chance = random.Random(seed)
    places = [(-73.986, 40.748), (-73.977, 40.753), (-74.006, 40.713), (-73.778, 40.641)]
    start = datetime(2013, 1, 1, tzinfo=UTC)
    free = list(range(taxis))
    under_way: list[tuple[float, int, int, float]] = []
    second, made, order = 0.0, 0, 0

    def point() -> tuple[Decimal, Decimal]:
        if chance.random() < 0.015:
            return Decimal(0), Decimal(0)
        longitude, latitude = chance.choice(places)
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
