"""Count the trips of each route in a sliding window with Pathway, in its own interpreter.

Arguments: a file of trips, the window's minutes, trips per commit, and the output. Prints version,
trips and seconds as JSON.
"""

import csv
import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import reduce
from importlib import metadata
from operator import and_
from pathlib import Path
from typing import Any, Final

import pathway as pw

_DROPOFF: Final = 3
_PLACES: Final = {"pick_longitude": 6, "pick_latitude": 7, "drop_longitude": 8, "drop_latitude": 9}
_CELLS: Final = 301


def _trips(path: Path) -> Iterator[tuple[int, list[int]]]:
    with path.open(encoding="ascii", newline="") as file:
        for row in csv.reader(file):
            at = datetime.fromisoformat(row[_DROPOFF]).replace(tzinfo=UTC)
            yield (
                int(at.timestamp()),
                [round(float(row[place]) * 1e6) for place in _PLACES.values()],
            )


def _events(path: Path, seconds: int, commit: int) -> Iterator[tuple[int, ...]]:
    inside: deque[tuple[int, int, list[int]]] = deque()
    for number, (at, coordinates) in enumerate(_trips(path)):
        instant = 2 * (1 + number // commit)
        while inside and inside[0][0] < at - seconds:
            _, old, old_places = inside.popleft()
            yield old, *old_places, instant, -1
        inside.append((at, number, coordinates))
        yield number, *coordinates, instant, 1


def _nearest(numerator: Any, denominator: int) -> Any:
    return (2 * numerator + denominator) // (2 * denominator)


def _latitude(millionths: Any) -> Any:
    return _nearest(41_474_937 - millionths, 5_986)


def _longitude(millionths: Any) -> Any:
    return _nearest(1000 * (74_913_585 + millionths), 4_491_556)


def main() -> None:
    """Count."""
    path, minutes, commit, output = sys.argv[1:]
    rows = list(_events(Path(path), 60 * int(minutes), int(commit)))
    number = pw.column_definition(dtype=int, primary_key=True)
    places = {name: pw.column_definition(dtype=int) for name in _PLACES}
    trips = pw.debug.table_from_rows(
        pw.schema_builder({"number": number, **places}), rows, is_stream=True
    )
    routes = trips.select(
        east=_latitude(trips.pick_latitude), south=_longitude(trips.pick_longitude),
        to_east=_latitude(trips.drop_latitude), to_south=_longitude(trips.drop_longitude),
    )  # fmt: skip
    inside = [(cell > 0) & (cell < _CELLS) for cell in routes]
    routes = routes.filter(reduce(and_, inside))
    counts = routes.groupby(*routes).reduce(*routes, trips=pw.reducers.count())
    pw.io.csv.write(counts, output)
    cpu, begin = time.process_time(), time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, default_logging=False)
    result = {
        "cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - begin,
        "trips": sum(row[-1] > 0 for row in rows), "version": metadata.version("pathway"),
    }  # fmt: skip
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
