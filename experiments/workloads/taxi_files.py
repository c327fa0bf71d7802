"""The trips of the DEBS 2015 challenge as files, and its answers as it wants them written.

Input: 17 columns without a header, sorted by the drop-off, plain or compressed with gzip. Output: a
line whenever the ten best change, with the trip's pick-up and drop-off, the ten (``NULL`` where
there are fewer), and the delay in milliseconds. Source: http://www.debs2015.org/call-grand-challenge
"""

import csv
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa
import pyarrow.csv as pa_csv

from annotations.terms import literal_parts
from experiments.errors import MeasurementError, UnavailableError
from experiments.workloads.taxi import INSTANT, STREAM_COLUMNS, Trip, TripColumns
from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.elements.elements import milliseconds

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
    """The recorded trips.

    Raises:
        UnavailableError: they are not here.
    """
    path = Path(os.environ.get(TAXI_VARIABLE) or _RECORDED)
    if not path.is_file():
        raise UnavailableError(
            f"the recorded trips are not here: {path} ({TAXI_VARIABLE} names a file)"
        )
    return path


def write_trips(trips: Iterable[Trip], path: Path) -> None:
    """Write trips as the challenge has them; columns that no query reads are empty."""
    with path.open("w", encoding="ascii", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for trip in trips:
            row: list[object] = [""] * _COLUMNS
            values = (trip.taxi.strip('"'), _local(trip.pickup), _local(trip.dropoff), *trip[4:])
            for place, value in zip(_PLACES.values(), values, strict=True):
                row[place] = value
            writer.writerow(row)


def _local(instant: datetime) -> str:
    return str(instant)[:19]


def read_trips(path: Path, most: int = 0) -> Iterator[TripColumns]:
    """The trips of a file, parsed by Arrow, block by block; so many at most, 0: all.

    Raises:
        MeasurementError: the file cannot be read, or is none of the challenge.
    """
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
    """Trips by themselves, with Python values."""
    lists = [column.to_pylist() for column in columns.values.columns]
    return [Trip(*trip) for trip in zip(columns.timestamps.to_pylist(), *lists, strict=True)]


_Answer = Sequence[Sequence[Decimal | int]]
"""The ten best: cells first, then what is known of them."""


class ChallengeAnswers:
    """Writes the lines of a query, and keeps their delays.

    Args:
        file: where they go.
        cells: how many cells a row has: the numbers of each are its first columns, by twos.

    Attributes:
        delays: seconds, one for each line.
        read_at: when the trips that are under way were read, by `time.perf_counter`.
        first: the number of the first of these.
        times: pick-up and drop-off of a trip, by its number.
    """

    def __init__(self, file: TextIO, cells: int) -> None:
        self._write = file.write
        self._cells = cells
        self.delays: list[float] = []
        self.read_at = 0.0
        self.first = 0
        self.times: Callable[[int], tuple[datetime, datetime]] = _unknown
        self._last: _Answer = []
        self._waiting: tuple[int, _Answer, str, float] | None = None

    def take(self, emission: Emission) -> None:
        """A callback of a query that emits its whole answer.

        What changes between two trips is of the second one, if that leaves it so: lines are of
        trips.
        """
        number = emission.sequence - 1
        between = number < self.first or emission.at != milliseconds(self.times(number)[1])
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
        """Write the answer after a trip."""
        self._put(answer, *self._line(number, answer))

    def finish(self) -> None:
        """The trips that were read have come."""
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
        """The line after a trip, and its delay."""
        width = self._cells * 2
        parts = []
        for row in answer:
            cells = [_plain(value) for value in row[:width]]
            parts += [f"{cells[at]}.{cells[at + 1]}" for at in range(0, width, 2)]
            if self._cells == 1:
                parts += [_plain(value) for value in row[width:]]
        each = self._cells + (0 if self._cells == 2 else 3)
        parts += ["NULL"] * (each * _LISTED - len(parts))
        pickup, dropoff = self.times(number)
        delay = time.perf_counter() - self.read_at
        times = f"{_local(pickup)},{_local(dropoff)}"
        return f"{times},{','.join(parts)},{1000 * delay:.3f}\n", delay


def _unknown(number: int) -> tuple[datetime, datetime]:
    raise LookupError(f"nobody has said when trip {number} was")


@lru_cache(maxsize=1 << 16)
def _number(term: str) -> Decimal:
    """The value of a term; most of an answer was in the one before it."""
    return Decimal(literal_parts(term).lexical)


def _plain(value: Decimal | int) -> str:
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
