"""The queries of the DEBS 2015 challenge in the engine, from trips to files of answers."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from experiments.workloads.taxi import (
    PREDICATES,
    SUBJECTS,
    TAXI_STREAM,
    Trip,
    TripColumns,
    frequent_routes,
    profitable_areas,
)
from experiments.workloads.taxi_files import ChallengeAnswers
from experiments.workloads.taxi_recomputation import frequent_routes_anew, profitable_areas_anew
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.engine.records.records import RecordFeed
from tpf_server.continuous.engine.semantics import PAPER_ANSWER


class TaxiQuestion(NamedTuple):
    """One of the challenge's: in CQELS-QL, computed anew, and how many cells a row names."""

    text: Callable[[int], str]
    anew: Callable[[Sequence[Trip], int], Iterator[Sequence[Sequence[Decimal | int]]]]
    cells: int


_Q1: Final = TaxiQuestion(frequent_routes, frequent_routes_anew, 2)
_Q2: Final = TaxiQuestion(profitable_areas, profitable_areas_anew, 1)
QUESTIONS: Final = {"Q1": (_Q1,), "Q2": (_Q2,), "Q1 and Q2": (_Q1, _Q2)}
"""The queries of each name."""


class Player:
    """The engine with the queries of a name, and the files of their answers.

    Args:
        name: one of `QUESTIONS`.
        minutes: the length of the windows.
        folder: where the files are written.
        stack: what closes them, and the engine.

    Attributes:
        paths: the files, one for each query.
    """

    def __init__(self, name: str, minutes: int, folder: Path, stack: ExitStack) -> None:
        self.paths = [folder / f"answers{number}.csv" for number in range(len(QUESTIONS[name]))]
        self._writers = []
        self._engine = Engine(semantics=PAPER_ANSWER)
        for question, path in zip(QUESTIONS[name], self.paths, strict=True):
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
            self._read(partial(_of_block, block, number), number)
            self._feed.push_batch(*block)
            number += block.values.num_rows
        self._finish()

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
        self._finish()

    def _finish(self) -> None:
        for writer in self._writers:
            writer.finish()

    def _read(self, times: Callable[[int], tuple[datetime, datetime]], first: int = 0) -> None:
        for writer in self._writers:
            writer.times, writer.first = times, first
            writer.read_at = time.perf_counter()

    @property
    def delays(self) -> list[float]:
        """Of all answers, in seconds."""
        return [delay for writer in self._writers for delay in writer.delays]


def _of_block(block: TripColumns, first: int, number: int) -> tuple[datetime, datetime]:
    _, pickups, dropoffs = block.values.columns[:3]
    return pickups[number - first].as_py(), dropoffs[number - first].as_py()
