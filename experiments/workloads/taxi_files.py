"""The trips of the DEBS 2015 challenge as files, and its answers in the required format.

Output: a line whenever the ten best change: pick-up and drop-off, the ten (``NULL`` where fewer),
and the delay in milliseconds. Source: http://www.debs2015.org/call-grand-challenge
"""

import csv
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Context, Decimal
from functools import lru_cache
from heapq import nsmallest
from pathlib import Path
from statistics import median
from typing import Final, TextIO, TypeVar

import pyarrow as pa
import pyarrow.csv as pa_csv

from annotations.terms import literal_parts
from experiments.errors import MeasurementError, UnavailableError
from experiments.workloads.taxi import INSTANT, STREAM_COLUMNS, Trip, TripColumns
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.elements.elements import milliseconds

# The two queries of the challenge, computed anew of the whole window for each trip.
#
# In plain Python and with exact decimals; only the cells of a trip are kept. It is the system that
# paper 001 compares with, and what the engine's answers are checked against.

_Row = tuple[Decimal | int, ...]
_T = TypeVar("_T")
_EXACT = Context(prec=100)
_START = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = 60_000
_ROUTE_CELLS, _AREA_CELLS = 301, 601


def frequent_routes_anew(trips: Sequence[Trip], minutes: int) -> Iterator[list[_Row]]:
    """Q1: the ten most frequent routes after each trip."""
    for _, window in _windows(trips, _routes(trips), minutes * _MINUTE):
        counts = Counter(route for route in window if route is not None)
        best = nsmallest(10, counts.items(), key=lambda each: (-each[1], each[0]))
        yield [(*route, count) for route, count in best]


def _routes(trips: Iterable[Trip]) -> list[tuple[int, int, int, int] | None]:
    """Return the cells of each pick-up and drop-off; none where one is outside."""
    result = []
    for trip in trips:
        route = (
            *_cell(trip.pick_latitude, trip.pick_longitude, 1),
            *_cell(trip.drop_latitude, trip.drop_longitude, 1),
        )
        result.append(route if all(0 < part < _ROUTE_CELLS for part in route) else None)
    return result


def profitable_areas_anew(trips: Sequence[Trip], minutes: int) -> Iterator[list[_Row]]:
    """Q2: the ten most profitable cells after each trip."""
    derived: list[_Derived] = []
    for trip in trips:
        cell = _cell(trip.pick_latitude, trip.pick_longitude, 2)
        east, south = cell
        # The queries ask for different cells where they count taxis and where they take fares.
        taxis = cell if 0 < east < _AREA_CELLS and 0 < south < _AREA_CELLS else None
        fares = cell if 0 < east < _AREA_CELLS and south < _AREA_CELLS else None
        derived.append((trip, taxis, fares, trip.fare + trip.tip))
    for at, window in _windows(trips, derived, minutes * _MINUTE):
        yield _areas(window, at - minutes * _MINUTE // 2)


_Cell = tuple[int, int]
_Derived = tuple[Trip, _Cell | None, _Cell | None, Decimal]


def _areas(window: Sequence[_Derived], recent: int) -> list[_Row]:
    fares: dict[_Cell, list[Decimal]] = {}
    last: dict[str, datetime] = {}
    for trip, _, cell, earned in window:
        if trip.pickup > last.get(trip.taxi, _START):
            last[trip.taxi] = trip.pickup
        if trip.at >= recent and cell is not None:
            fares.setdefault(cell, []).append(earned)
    empty = Counter(
        cell for trip, cell, _, _ in window if cell is not None and last[trip.taxi] <= trip.dropoff
    )
    rows: list[_Row] = []
    for cell in fares.keys() & empty.keys():
        profit = median(fares[cell])
        rows.append((*cell, empty[cell], profit, _quotient(profit, Decimal(empty[cell]))))
    return nsmallest(10, rows, key=lambda row: (-row[4], row[0], row[1]))


def _windows(
    trips: Sequence[Trip], derived: Sequence[_T], width: int
) -> Iterator[tuple[int, Sequence[_T]]]:
    first = 0
    for last, trip in enumerate(trips):
        while trips[first].at < trip.at - width:
            first += 1
        yield trip.at, derived[first : last + 1]


def _quotient(one: Decimal, other: Decimal) -> Decimal:
    return _EXACT.divide(one, other).quantize(Decimal("1e-18"), ROUND_DOWN, _EXACT)


def _rounded(value: Decimal) -> int:
    return int((value + Decimal("0.5")).to_integral_value("ROUND_FLOOR"))


def _cell(latitude: Decimal, longitude: Decimal, parts: int) -> _Cell:
    return (
        _rounded(_quotient((Decimal("41.474937") - latitude) * parts, Decimal("0.005986"))),
        _rounded(_quotient((Decimal("74.913585") + longitude) * parts, Decimal("0.004491556"))),
    )


TAXI_VARIABLE: Final = "TPF_TAXI"
_RECORDED: Final = Path(__file__).parents[3] / "shared/data/taxi/trips_10k.csv.gz"
_COLUMNS: Final = 17
# In the order of `taxi.FIELDS`.
_PLACES: Final = {
    "taxi": 0, "pickupTime": 2, "dropoffTime": 3, "pickLon": 6, "pickLat": 7, "dropLon": 8,
    "dropLat": 9, "fare": 11, "tip": 14,
}  # fmt: skip
_BLOCK: Final = 1 << 18
"""Bytes that are parsed at a time: some 1,400 trips."""
_LISTED: Final = 10
_NAMES: Final = [f"column{place}" for place in range(_COLUMNS)]


def recorded_file() -> Path:
    """Return the recorded trips, or raise `UnavailableError`."""
    path = Path(os.environ.get(TAXI_VARIABLE) or _RECORDED)
    if not path.is_file():
        raise UnavailableError(
            f"the recorded trips are not here: {path} ({TAXI_VARIABLE} names a file)"
        )
    return path


def write_trips(trips: Iterable[Trip], path: Path) -> None:
    """Write trips in the challenge's format; unused columns are empty."""
    with path.open("w", encoding="ascii", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for trip in trips:
            row: list[object] = [""] * _COLUMNS
            values = (trip.taxi.strip('"'), _local(trip.pickup), _local(trip.dropoff), *trip[4:])
            for column, value in zip(_PLACES.values(), values, strict=True):
                row[column] = value
            writer.writerow(row)


def _local(instant: datetime) -> str:
    return str(instant)[:19]


def read_trips(path: Path, most: int = 0) -> Iterator[TripColumns]:
    """Parse a file of trips with Arrow, block by block; at most so many, 0: all."""
    chosen = {_NAMES[place]: field.type for place, field in zip(
        _PLACES.values(), STREAM_COLUMNS, strict=True
    )}  # fmt: skip
    kinds = {name: _naive(kind) for name, kind in chosen.items()}
    done = 0
    try:
        with pa_csv.open_csv(
            path,
            pa_csv.ReadOptions(column_names=_NAMES, block_size=_BLOCK, use_threads=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=kinds, include_columns=list(kinds), timestamp_parsers=[pa_csv.ISO8601]
            ),
        ) as reader:
            for block in reader:
                part = block.slice(0, most - done) if most else block
                if part.num_rows:
                    yield _as_columns(part, done)
                done += part.num_rows
                if most and done >= most:
                    return
    except (OSError, pa.ArrowException) as error:
        raise MeasurementError(f"{path}: {error}") from error


def _naive(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind


def _as_columns(block: pa.RecordBatch, first: int) -> TripColumns:
    taxi, pickup, dropoff, *numbers = block.columns
    if block.num_rows and sum(column.null_count for column in block.columns):
        raise MeasurementError(f"a value is missing in trips {first + 1} to {first + len(taxi)}")
    quote = pa.scalar('"')
    columns = [
        pa.compute.binary_join_element_wise(quote, taxi, quote, ""),
        pickup.cast(INSTANT), dropoff.cast(INSTANT), *numbers,
    ]  # fmt: skip
    times = pa.compute.divide(dropoff.cast(pa.int64()), 1000)
    values = pa.RecordBatch.from_arrays(columns, schema=STREAM_COLUMNS)
    return TripColumns(pa.array(range(first, first + block.num_rows)), values, times)


def as_trips(columns: TripColumns) -> list[Trip]:
    """Return single trips with Python values."""
    lists = [column.to_pylist() for column in columns.values.columns]
    return [Trip(*trip) for trip in zip(columns.timestamps.to_pylist(), *lists, strict=True)]


_Answer = Sequence[Sequence[Decimal | int]]
"""The ten best: cells first, then what is known of them."""


class ChallengeAnswers:
    """Write the lines of a query, and keep their delays; `cells` per row come by twos."""

    def __init__(self, file: TextIO, cells: int) -> None:
        self._write = file.write
        self._cells = cells
        self.delays: list[float] = []
        self._read_at = 0.0
        self._first = 0
        self._times: Callable[[int], tuple[datetime, datetime]] = _unknown
        self._last: _Answer = []
        self._waiting: tuple[int, _Answer, str, float] | None = None

    def read(
        self, times: Callable[[int], tuple[datetime, datetime]] | None = None, first: int = 0
    ) -> None:
        """Note that trips were read just now, from a number on, with their times."""
        if times is not None:
            self._times, self._first = times, first
        self._read_at = time.perf_counter()

    def take(self, emission: Emission) -> None:
        """Take an emission of the answer; between trips it counts for the next."""
        number = emission.sequence - 1
        between = number < self._first or emission.at != milliseconds(self._times(number)[1])
        number += between
        answer = [[_number(term or "") for term in row] for row in emission.rows]
        if self._waiting is not None and self._waiting[0] < number:
            self.finish()
        if between:
            self._waiting = number, answer, *self._line(number, answer)
            return
        self._waiting = None
        if answer != self._last:
            self.write(number, answer)

    def write(self, number: int, answer: _Answer) -> None:
        self._put(answer, *self._line(number, answer))

    def finish(self) -> None:
        if self._waiting is not None:
            _, answer, line, delay = self._waiting
            self._waiting = None
            if answer != self._last:
                self._put(answer, line, delay)

    def _put(self, answer: _Answer, line: str, delay: float) -> None:
        self._last = answer
        self._write(line)
        self.delays.append(delay)

    def _line(self, number: int, answer: _Answer) -> tuple[str, float]:
        width = self._cells * 2
        parts = []
        for row in answer:
            cells = [_plain(value) for value in row[:width]]
            parts += [f"{cells[at]}.{cells[at + 1]}" for at in range(0, width, 2)]
            if self._cells == 1:
                parts += [_plain(value) for value in row[width:]]
        each = self._cells + (0 if self._cells == 2 else 3)
        parts += ["NULL"] * (each * _LISTED - len(parts))
        pickup, dropoff = self._times(number)
        delay = time.perf_counter() - self._read_at
        times = f"{_local(pickup)},{_local(dropoff)}"
        return f"{times},{','.join(parts)},{1000 * delay:.3f}\n", delay


def _unknown(number: int) -> tuple[datetime, datetime]:
    raise LookupError(f"nobody has said when trip {number} was")


@lru_cache(maxsize=1 << 16)
def _number(term: str) -> Decimal:
    return Decimal(literal_parts(term).lexical)


def _plain(value: Decimal | int) -> str:
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
