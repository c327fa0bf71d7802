"""``taxi``: the DEBS 2015 challenge, from its file of trips to its files of answers.

Source: paper 001, section 4, table 1.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from experiments.errors import MeasurementError
from experiments.harness.estimates import percentile
from experiments.harness.items import Item
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.results import Results
from experiments.studies.taxi_report import taxi_items
from experiments.workloads.taxi import (
    PREDICATES,
    SUBJECTS,
    TAXI_STREAM,
    Trip,
    TripColumns,
    frequent_routes,
    profitable_areas,
)
from experiments.workloads.taxi_files import (
    ChallengeAnswers,
    as_trips,
    read_trips,
    recorded_file,
    write_trips,
)
from experiments.workloads.taxi_recomputation import frequent_routes_anew, profitable_areas_anew
from experiments.workloads.taxi_trips import trips
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.engine.records.records import RecordFeed
from tpf_server.continuous.engine.semantics import PAPER_ANSWER


class _Question(NamedTuple):
    """One of the challenge's: in CQELS-QL, computed anew, and how many cells a row names."""

    text: Callable[[int], str]
    anew: Callable[[Sequence[Trip], int], Iterator[Sequence[Sequence[Decimal | int]]]]
    cells: int


_Q1: Final = _Question(frequent_routes, frequent_routes_anew, 2)
_Q2: Final = _Question(profitable_areas, profitable_areas_anew, 1)
_QUERIES: Final = {"Q1": (_Q1,), "Q2": (_Q2,), "Q1 and Q2": (_Q1, _Q2)}
SYNTHETIC, RECORDED, FILE = "synthetic", "recorded", "file"
_WAYS: Final = ("file", "parsed", "one by one")
ANEW: Final = "computed anew"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        trips: synthetic ones.
        minutes: lengths of the windows.
        recorded: recorded trips that are used at most, with windows of the first length.
        file: a file of the challenge, plain or compressed with gzip, with windows of all lengths;
            empty: none.
        file_trips: how many of it at most; 0: all.
        anew: trips for which every answer is computed anew, with windows of the first length.
    """

    trips: int = 40_000
    minutes: tuple[int, ...] = (30, 60, 120, 240)
    recorded: int = 10_004
    file: str = ""
    file_trips: int = 0
    anew: int = 4_000

    @classmethod
    def quick(cls) -> Self:
        """Fewer trips, two windows."""
        return cls(trips=2000, minutes=(30, 240), recorded=1500, anew=400)


@dataclass(slots=True)
class OpenedTrips:
    """A file of trips, also parsed, and where answers are written."""

    path: Path
    most: int
    folder: Path
    parsed: list[TripColumns]
    single: list[Trip] = field(default_factory=list)


class TaxiQueries:
    """The experiment."""

    name = "taxi"
    question = (
        "How long do the two queries of the DEBS 2015 challenge take from its file of trips to its "
        "files of answers, how late is an answer, and how much faster is that than computing every "
        "answer anew?"
    )
    settings = Sizes
    keys = ("source", "query", "minutes", "way")
    values = (
        "trips", "seconds", "cpu_seconds", "trips_per_second", "answers", "delay_mean_us",
        "delay_p50_us", "delay_p99_us", "delay_max_us", "factor", "same",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """A group for each file of trips."""
        sources = [SYNTHETIC, RECORDED, *([FILE] if settings.file else [])]
        for source in sources:
            lengths = settings.minutes[:1] if source == RECORDED else settings.minutes
            measurements = [
                Measurement(
                    {"source": source, "query": name, "minutes": minutes, "way": way},
                    partial(_measure, name, minutes, way),
                )
                for minutes in lengths
                for name in _QUERIES
                for way in _WAYS
            ]
            if source == SYNTHETIC:
                measurements += [
                    Measurement(
                        {"source": source, "query": name, "minutes": lengths[0], "way": ANEW},
                        partial(_anew, name, lengths[0], settings.anew),
                        repetitions=1,  # it takes the most by far
                    )
                    for name in _QUERIES
                ]
            yield MeasurementGroup(
                f"{source} trips", partial(_opened, source, settings, run), measurements
            )

    def report(self, results: Results) -> Iterable[Item]:
        """Table 1, figures, targets."""
        yield from taxi_items(results)


@contextmanager
def _opened(source: str, settings: Sizes, run: Run) -> Iterator[OpenedTrips]:
    most = 0
    if source == SYNTHETIC:
        path = run.folder / "trips.csv"
        write_trips(trips(settings.trips, run.seed), path)
    elif source == RECORDED:
        path, most = recorded_file(), settings.recorded
    else:
        path, most = Path(settings.file), settings.file_trips
    parsed = list(read_trips(path, most))
    if not parsed:
        raise MeasurementError(f"{path} has no trips")
    single = [trip for block in parsed for trip in as_trips(block)]
    yield OpenedTrips(path, most, run.folder, parsed, single)


@contextmanager
def _set_aside() -> Iterator[None]:
    """What is there already is not looked through for garbage: a source keeps no trips."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Player:
    """The engine with the queries of a name, and the files of their answers."""

    def __init__(self, name: str, minutes: int, folder: Path, stack: ExitStack) -> None:
        self.paths = [folder / f"answers{number}.csv" for number in range(len(_QUERIES[name]))]
        self._writers = []
        self._engine = Engine(semantics=PAPER_ANSWER)
        for question, path in zip(_QUERIES[name], self.paths, strict=True):
            file = stack.enter_context(path.open("w", encoding="ascii"))
            writer = ChallengeAnswers(file, question.cells)
            self._writers.append(writer)
            self._engine.register(question.text(minutes), writer.take)
        stack.callback(self._engine.close)
        self._feed: RecordFeed = self._engine.record_feed(TAXI_STREAM, PREDICATES, SUBJECTS)

    def play(self, blocks: Iterable[TripColumns]) -> None:
        """Trips come by blocks."""
        number = 0
        for block in blocks:
            self._read(partial(_of_block, block, number))
            self._feed.push_batch(*block)
            number += block.values.num_rows

    def play_single(self, single: Sequence[Trip]) -> None:
        """Trips come one by one."""
        push, writers, clock = self._feed.push, self._writers, time.perf_counter
        records = [(number, trip[1:], trip.at) for number, trip in enumerate(single)]
        self._read(lambda number: (single[number].pickup, single[number].dropoff))
        for record in records:
            read_at = clock()
            for writer in writers:
                writer.read_at = read_at
            push(*record)

    def _read(self, times: Callable[[int], tuple[datetime, datetime]]) -> None:
        for writer in self._writers:
            writer.times = times
            writer.read_at = time.perf_counter()

    @property
    def delays(self) -> list[float]:
        """Of all answers, in seconds."""
        return [delay for writer in self._writers for delay in writer.delays]


def _of_block(block: TripColumns, first: int, number: int) -> tuple[datetime, datetime]:
    _, pickups, dropoffs = block.values.columns[:3]
    return pickups[number - first].as_py(), dropoffs[number - first].as_py()


def _measure(name: str, minutes: int, way: str, opened: Any) -> Iterable[ResultRow]:
    with ExitStack() as stack:
        player = _Player(name, minutes, opened.folder, stack)
        stack.enter_context(_set_aside())
        before, begin = time.process_time(), time.perf_counter()
        if way == "one by one":
            player.play_single(opened.single)
        else:
            player.play(read_trips(opened.path, opened.most) if way == "file" else opened.parsed)
        cpu, seconds = time.process_time() - before, time.perf_counter() - begin
    yield _row(len(opened.single), seconds, cpu, player.delays)


def _row(count: int, seconds: float, cpu: float, delays: Sequence[float]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "trips": count, "seconds": seconds, "cpu_seconds": cpu, "trips_per_second": count / cpu,
        "answers": len(delays),
    }  # fmt: skip
    if delays:
        ordered = sorted(1e6 * delay for delay in delays)
        found |= {
            "delay_mean_us": sum(ordered) / len(ordered), "delay_p50_us": percentile(ordered, 50),
            "delay_p99_us": percentile(ordered, 99), "delay_max_us": ordered[-1],
        }  # fmt: skip
    return found


def _anew(name: str, minutes: int, most: int, opened: Any) -> Iterable[ResultRow]:
    """Every answer computed anew, to the end of a part; the engine on the same part beside it."""
    part: list[Trip] = opened.single[:most]
    with ExitStack() as stack:
        player = _Player(name, minutes, opened.folder, stack)
        before = time.process_time()
        player.play_single(part)
        incremental = time.process_time() - before
    wanted = [path.read_text() for path in player.paths]
    delays: list[float] = []
    paths = [opened.folder / f"anew{number}.csv" for number in range(len(_QUERIES[name]))]
    before, begin = time.process_time(), time.perf_counter()
    for question, path in zip(_QUERIES[name], paths, strict=True):
        with path.open("w", encoding="ascii") as file:
            writer = ChallengeAnswers(file, question.cells)
            writer.times = lambda number: (part[number].pickup, part[number].dropoff)
            last: object = []
            writer.read_at = time.perf_counter()
            for number, answer in enumerate(question.anew(part, minutes)):
                if answer != last:
                    writer.write(number, answer)
                    last = answer
                writer.read_at = time.perf_counter()
            delays += writer.delays
    cpu, seconds = time.process_time() - before, time.perf_counter() - begin
    found = [path.read_text() for path in paths]
    yield {
        **_row(len(part), seconds, cpu, delays),
        "factor": cpu / incremental,
        "same": int([_undelayed(text) for text in found] == [_undelayed(each) for each in wanted]),
    }


def _undelayed(text: str) -> list[str]:
    return [line.rpartition(",")[0] for line in text.splitlines()]
