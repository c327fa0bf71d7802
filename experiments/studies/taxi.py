"""``taxi``: the DEBS 2015 challenge, from its file of trips to its files of answers.

Source: paper 001, section 4, table 1.
"""

import gc
import io
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from experiments.errors import MeasurementError
from experiments.harness import peers
from experiments.harness.estimates import percentile
from experiments.harness.items import Item
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.results import Results
from experiments.studies.taxi_peer import COMMITS, PATHWAY, counted_by_pathway
from experiments.studies.taxi_player import QUESTIONS, Player
from experiments.studies.taxi_report import taxi_items
from experiments.workloads.taxi import Trip, TripColumns
from experiments.workloads.taxi_files import (
    ChallengeAnswers,
    as_trips,
    read_trips,
    recorded_file,
    write_trips,
)
from experiments.workloads.taxi_recomputation import best_routes, route_counts
from experiments.workloads.taxi_trips import trips

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
        "delay_p50_us", "delay_p99_us", "delay_max_us", "factor", "same", "version",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """A group for each file of trips, and one for what others do on the first."""
        sources = [SYNTHETIC, RECORDED, *([FILE] if settings.file else [])]
        for source in sources:
            lengths = settings.minutes[:1] if source == RECORDED else settings.minutes
            measurements = [
                Measurement(
                    {"source": source, "query": name, "minutes": minutes, "way": way},
                    partial(_measure, name, minutes, way),
                )
                for minutes in lengths
                for name in QUESTIONS
                for way in _WAYS
            ]
            if source == SYNTHETIC:
                measurements += [
                    Measurement(
                        {"source": source, "query": name, "minutes": lengths[0], "way": ANEW},
                        partial(_anew, name, lengths[0], settings.anew),
                        repetitions=1,  # it takes the most by far
                    )
                    for name in QUESTIONS
                ]
            yield MeasurementGroup(
                f"{source} trips", partial(_opened, source, settings, run), measurements
            )
        minutes = settings.minutes[0]
        yield MeasurementGroup(
            PATHWAY, partial(_opened_for_peer, settings, run),
            [
                Measurement(
                    {"source": SYNTHETIC, "query": "Q1", "minutes": minutes, "way": way},
                    partial(_beside_peer, minutes, commit),
                )
                for way, commit in COMMITS.items()
            ],
        )  # fmt: skip

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
def _opened_for_peer(settings: Sizes, run: Run) -> Iterator[OpenedTrips]:
    peers.python_with("pathway")
    with _opened(SYNTHETIC, settings, run) as opened:
        yield opened


@contextmanager
def _set_aside() -> Iterator[None]:
    """What is there already is not looked through for garbage: a source keeps no trips."""
    # All that is set aside is taken back at once, also what others have set aside for good.
    others = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not others:
            gc.unfreeze()


def _measure(name: str, minutes: int, way: str, opened: Any) -> Iterable[ResultRow]:
    with ExitStack() as stack:
        player = Player(name, minutes, opened.folder, stack)
        stack.enter_context(_set_aside())
        before, begin = time.process_time(), time.perf_counter()
        if way == "one by one":
            player.play_single(opened.single)
        else:
            player.play(read_trips(opened.path, opened.most) if way == "file" else opened.parsed)
        cpu, seconds = time.process_time() - before, time.perf_counter() - begin
    yield _row(len(opened.single), seconds, cpu, player.delays)


def _beside_peer(minutes: int, commit: int, opened: Any) -> Iterable[ResultRow]:
    """Pathway's counts of routes; the engine with all of Q1 on the same trips beside them."""
    with ExitStack() as stack:
        player = Player("Q1", minutes, opened.folder, stack)
        stack.enter_context(_set_aside())
        before = time.process_time()
        player.play(opened.parsed)
        own = time.process_time() - before
    peer = counted_by_pathway(opened.path, minutes, commit, opened.folder)
    listed = io.StringIO()
    writer = ChallengeAnswers(listed, 2)
    writer.times = lambda _: (opened.single[-1].pickup, opened.single[-1].dropoff)
    writer.write(0, best_routes(peer.counts))
    last = player.paths[0].read_text().splitlines()[-1]
    yield {
        **_row(len(opened.single), peer.seconds, peer.cpu_seconds, []),
        "answers": None, "factor": peer.cpu_seconds / own, "version": peer.version,
        "same": int(
            peer.counts == route_counts(opened.single, minutes)
            # What stands between the times of a trip and the delay.
            and listed.getvalue().split(",")[2:-1] == last.split(",")[2:-1]
        ),
    }  # fmt: skip


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
        player = Player(name, minutes, opened.folder, stack)
        before = time.process_time()
        player.play_single(part)
        incremental = time.process_time() - before
    wanted = [path.read_text() for path in player.paths]
    delays: list[float] = []
    paths = [opened.folder / f"anew{number}.csv" for number in range(len(QUESTIONS[name]))]
    before, begin = time.process_time(), time.perf_counter()
    for question, path in zip(QUESTIONS[name], paths, strict=True):
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
