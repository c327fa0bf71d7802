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
from experiments.harness import items
from experiments.harness.claims import checks
from experiments.harness.estimates import percentile
from experiments.harness.report import duration, rounded
from experiments.harness.results import Results
from experiments.workloads import taxi, taxi_files
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.semantics import PAPER_ANSWER

SYNTHETIC, RECORDED, FILE = "synthetic", "recorded", "file"
_SINGLE: Final = "one by one"
_WAYS: Final = (FILE, "parsed", _SINGLE)
ANEW: Final = "computed anew"
_RATE: Final = "trips_per_second"
_KEYS: Final = {"source": "trips", "query": "query", "minutes": "window, minutes", "way": "way"}
_COLUMNS: Final = {
    "trips": "trips", "seconds": "execution, s", "cpu_seconds": "CPU, s",
    _RATE: "trips per second of CPU", "answers": "answers", "delay_mean_us": "delay, mean µs",
    "delay_p50_us": "median", "delay_p99_us": "99 %", "delay_max_us": "largest",
    "factor": "times the CPU", "same": "same answers",
}  # fmt: skip
_PUBLISHED: Final = {"Q1": (65.77, 22.0), "Q2": (69.02, 68.0), "Q1 and Q2": (76.64, None)}
"""CQELS: seconds for two million trips, and the mean delay in µs."""


class TaxiQuestion(NamedTuple):
    """A question: in CQELS-QL, as recomputation, and its cells per row."""

    text: Callable[[int], str]
    anew: Callable[[Sequence[taxi.Trip], int], Iterator[Sequence[Sequence[Decimal | int]]]]
    cells: int


_Q1: Final = TaxiQuestion(taxi.frequent_routes, taxi_files.frequent_routes_anew, 2)
_Q2: Final = TaxiQuestion(taxi.profitable_areas, taxi_files.profitable_areas_anew, 1)
QUESTIONS: Final = {"Q1": (_Q1,), "Q2": (_Q2,), "Q1 and Q2": (_Q1, _Q2)}
"""The queries of each name."""


class Player:
    """The engine with the queries of a name, and the files of their answers."""

    def __init__(self, name: str, minutes: int, folder: Path, stack: ExitStack) -> None:
        self.paths = [folder / f"answers{number}.csv" for number in range(len(QUESTIONS[name]))]
        self._writers = []
        self._engine = Engine(EngineSettings(semantics=PAPER_ANSWER))
        for question, path in zip(QUESTIONS[name], self.paths, strict=True):
            file = stack.enter_context(path.open("w", encoding="ascii"))
            writer = taxi_files.ChallengeAnswers(file, question.cells)
            self._writers.append(writer)
            self._engine.register(question.text(minutes), writer.take)
        stack.callback(self._engine.close)
        self._feed = self._engine.record_feed(taxi.TAXI_STREAM, taxi.PREDICATES, taxi.SUBJECTS)

    def play(self, blocks: Iterable[taxi.TripColumns]) -> None:
        number = 0
        for block in blocks:
            self._read(partial(_of_block, block, number), number)
            self._feed.push_batch(*block)
            number += block.values.num_rows
        self._finish()

    def play_single(self, single: Sequence[taxi.Trip]) -> None:
        push, writers = self._feed.push, self._writers
        records = [(number, trip[1:], trip.at) for number, trip in enumerate(single)]
        self._read(lambda number: (single[number].pickup, single[number].dropoff))
        for record in records:
            for writer in writers:
                writer.read()
            push(*record)
        self._finish()

    def _finish(self) -> None:
        for writer in self._writers:
            writer.finish()

    def _read(self, times: Callable[[int], tuple[datetime, datetime]], first: int = 0) -> None:
        for writer in self._writers:
            writer.read(times, first)

    @property
    def delays(self) -> list[float]:
        return [delay for writer in self._writers for delay in writer.delays]


def _of_block(block: taxi.TripColumns, first: int, number: int) -> tuple[datetime, datetime]:
    _, pickups, dropoffs = block.values.columns[:3]
    return pickups[number - first].as_py(), dropoffs[number - first].as_py()


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes. Recorded trips have windows of the first length, a `file` those of all."""

    trips: int = 40_000
    minutes: tuple[int, ...] = (30, 60, 120, 240)
    recorded: int = 10_004
    file: str = ""
    file_trips: int = 0
    anew: int = 4_000

    @classmethod
    def quick(cls) -> Self:
        return cls(trips=2000, minutes=(30, 240), recorded=1500, anew=400)


@dataclass(slots=True)
class OpenedTrips:
    """A file of trips, also parsed, and the folder of answers."""

    path: Path
    most: int
    folder: Path
    parsed: list[taxi.TripColumns]
    single: list[taxi.Trip] = field(default_factory=list)


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
        "delay_p50_us", "delay_p99_us", "delay_max_us", "factor", "same", "version",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return a group for each file of trips."""
        sources = [SYNTHETIC, RECORDED, *([FILE] if settings.file else [])]
        for source in sources:
            lengths = settings.minutes[:1] if source == RECORDED else settings.minutes
            measurements = [
                items.Measurement(
                    {"source": source, "query": name, "minutes": minutes, "way": way},
                    partial(_measure, name, minutes, way),
                )
                for minutes in lengths
                for name in QUESTIONS
                for way in _WAYS
            ]
            if source == SYNTHETIC:
                measurements += [
                    items.Measurement(
                        {"source": source, "query": name, "minutes": lengths[0], "way": ANEW},
                        partial(_anew, name, lengths[0], settings.anew),
                        repetitions=1,  # it takes the most by far
                    )
                    for name in QUESTIONS
                ]
            yield items.MeasurementGroup(
                f"{source} trips", partial(_opened, source, settings, run), measurements
            )

    def report(self, results: Results) -> Iterable[items.Item]:
        main = results.where(source=SYNTHETIC)
        lengths = sorted(main.where(way=FILE).distinct("minutes"), key=int)
        yield items.Figure(
            "rate", "From the file of trips to the files of answers", "window (minutes)",
            "trips per second of CPU", main.series("query", "minutes", _RATE, way=FILE),
            marks={
                ("CQELS, published", query): [items.Point(30, 2e6 / seconds)]
                for query, (seconds, _) in _PUBLISHED.items()
            },
        )  # fmt: skip
        yield items.Figure(
            "delay", "From a trip to its answer, one by one", "window (minutes)",
            "median delay (µs)", main.series("query", "minutes", "delay_p50_us", way=_SINGLE),
            marks={
                ("CQELS, published (mean)", query): [items.Point(30, delay)]
                for query, (_, delay) in _PUBLISHED.items()
                if delay
            },
        )  # fmt: skip
        for query in main.distinct("query"):
            shortest = main.where(query=query, minutes=lengths[0] if lengths else "")
            rate, delay = (
                shortest.mean(_RATE, way=FILE), shortest.mean("delay_p50_us", way=_SINGLE),
            )  # fmt: skip
            if rate and delay is not None:
                yield items.Finding(
                    f"{query}, windows of {lengths[0]} minutes: {rounded(rate)} trips per second "
                    "of CPU from file to file, by blocks; one by one, the median delay of an "
                    f"answer is {duration(delay / 1000)}.",
                    headline=True,
                )
        yield from _compared(main)
        yield results.table("From trips to answers", _KEYS, _COLUMNS)
        for name, limit in (("Q1", 150_000.0), ("Q2", 60_000.0)):
            rate = main.mean(_RATE, query=name, way="parsed", minutes=30)
            yield items.Target(
                f"{name}: trips per second of CPU, parsed before", rate, limit, at_most=False,
                compared="CQELS, published: about 30,000",
            )  # fmt: skip
        measured: dict[str, Callable[[], float | None]] = {
            "windows": partial(_growth, main, lengths)
        }
        for query in _PUBLISHED:
            chosen = main.where(query=query, minutes=30)
            measured[f"{query} rate"] = partial(chosen.mean, _RATE, way=FILE)
            measured[f"{query} factor"] = partial(chosen.mean, "factor", way=ANEW)
            measured[f"{query} delay"] = partial(_mean_delay, chosen)
        yield from checks("taxi", measured)


def _mean_delay(chosen: Results) -> float | None:
    mean = chosen.mean("delay_mean_us", way=_SINGLE)
    return None if mean is None else mean / 1000


def _growth(main: Results, lengths: Sequence[str]) -> float | None:
    delays = main.where(way=_SINGLE)
    ratios = [
        long / short
        for query in delays.distinct("query")
        if len(lengths) > 1
        and (short := delays.mean("delay_p50_us", query=query, minutes=lengths[0]))
        and (long := delays.mean("delay_p50_us", query=query, minutes=lengths[-1]))
    ]
    return max(ratios, default=None)


def _compared(main: Results) -> Iterator[items.Finding]:
    chosen = main.where(way=ANEW)
    factors = {query: chosen.mean("factor", query=query) for query in chosen.distinct("query")}
    parts = [f"{rounded(factor)} times for {name}" for name, factor in factors.items() if factor]
    if parts:
        same = "differ from ours" if "0" in chosen.distinct("same") else "are the same"
        yield items.Finding(
            f"Computed anew: {', '.join(parts)} the CPU of the engine on the same trips; the "
            f"answers {same}.",
            headline=True,
        )


@contextmanager
def _opened(source: str, settings: Sizes, run: items.Run) -> Iterator[OpenedTrips]:
    most = 0
    if source == SYNTHETIC:
        path = run.folder / "trips.csv"
        taxi_files.write_trips(taxi.trips(settings.trips, run.seed), path)
    elif source == RECORDED:
        path, most = taxi_files.recorded_file(), settings.recorded
    else:
        path, most = Path(settings.file), settings.file_trips
    parsed = list(taxi_files.read_trips(path, most))
    if not parsed:
        raise MeasurementError(f"{path} has no trips")
    single = [trip for block in parsed for trip in taxi_files.as_trips(block)]
    yield OpenedTrips(path, most, run.folder, parsed, single)


def _measure(name: str, minutes: int, way: str, opened: Any) -> Iterable[items.ResultRow]:
    with ExitStack() as stack:
        player = Player(name, minutes, opened.folder, stack)
        gc.freeze()  # what is there is not looked through while this is measured
        before, begin = time.process_time(), time.perf_counter()
        if way == "one by one":
            player.play_single(opened.single)
        else:
            player.play(
                taxi_files.read_trips(opened.path, opened.most) if way == "file" else opened.parsed
            )
        cpu, seconds = time.process_time() - before, time.perf_counter() - begin
    yield _row(len(opened.single), seconds, cpu, player.delays)


def _row(count: int, seconds: float, cpu: float, delays: Sequence[float]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trips": count, "seconds": seconds, "cpu_seconds": cpu, "trips_per_second": count / cpu,
        "answers": len(delays),
    }  # fmt: skip
    if delays:
        ordered = sorted(1e6 * delay for delay in delays)
        row |= {
            "delay_mean_us": sum(ordered) / len(ordered), "delay_p50_us": percentile(ordered, 50),
            "delay_p99_us": percentile(ordered, 99), "delay_max_us": ordered[-1],
        }  # fmt: skip
    return row


def _anew(name: str, minutes: int, most: int, opened: Any) -> Iterable[items.ResultRow]:
    part: list[taxi.Trip] = opened.single[:most]
    with ExitStack() as stack:
        player = Player(name, minutes, opened.folder, stack)
        before = time.process_time()
        player.play_single(part)
        incremental = time.process_time() - before
    expected = [path.read_text() for path in player.paths]
    delays: list[float] = []
    paths = [opened.folder / f"anew{number}.csv" for number in range(len(QUESTIONS[name]))]
    before, begin = time.process_time(), time.perf_counter()
    for question, path in zip(QUESTIONS[name], paths, strict=True):
        with path.open("w", encoding="ascii") as file:
            writer = taxi_files.ChallengeAnswers(file, question.cells)
            last: object = []
            writer.read(lambda number: (part[number].pickup, part[number].dropoff))
            for number, answer in enumerate(question.anew(part, minutes)):
                if answer != last:
                    writer.write(number, answer)
                    last = answer
                writer.read()
            delays += writer.delays
    cpu, seconds = time.process_time() - before, time.perf_counter() - begin
    answers = [path.read_text() for path in paths]
    yield {
        **_row(len(part), seconds, cpu, delays),
        "factor": cpu / incremental,
        "same": int(
            [_undelayed(text) for text in answers] == [_undelayed(each) for each in expected]
        ),
    }


def _undelayed(text: str) -> list[str]:
    return [line.rpartition(",")[0] for line in text.splitlines()]
