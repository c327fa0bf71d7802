"""What is measured: groups of measurements, and the rows that they give."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from experiments.harness.static_loading import StaticLoading

CellValue: TypeAlias = str | int | float | None
"""What a cell of the raw data holds; ``None``: nothing is known."""

ResultRow: TypeAlias = Mapping[str, CellValue]
"""One row of the raw data, by column."""


@dataclass(frozen=True, slots=True)
class Run:
    """What an experiment is told about the run that it is part of.

    Args:
        seed: where chance comes from: the same seed gives the same workload.
        folder: for files that are made on the way; removed afterwards.
        say: shows a line of progress.
        output: where the results of all experiments are; ``None``: nowhere.
        static: makes stores of static data.
    """

    seed: int
    folder: Path
    say: Callable[[str], None]
    output: Path | None = None
    static: StaticLoading = field(default_factory=lambda: StaticLoading(spark=False))


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement, which may give several rows (a row per tick, say).

    Args:
        key: what is varied; no two measurements of an experiment have the same.
        measure: does it. Its argument is what the group opened; the key's columns are added to
            the rows that it returns. `MeasurementError` and `OSError` make it a failed one.
        repetitions: how often; ``None``: as often as the run says. Counts need no repetition.
    """

    key: Mapping[str, str | int | float]
    measure: Callable[[Any], Iterable[ResultRow]]
    repetitions: int | None = None


@dataclass(frozen=True, slots=True)
class MeasurementGroup:
    """Measurements that share what has to be set up: servers, data, client processes.

    One round of all of them is made after the other, so that what else the machine does meets
    all of them alike.

    Args:
        name: for progress and failures.
        open: makes what they need. `UnavailableError` leaves the group out, and the report says so.
        measurements: in the order in which they are made.
        warm_up: called once with what was opened; what it does is not measured.
    """

    name: str
    open: Callable[[], AbstractContextManager[Any]]
    measurements: Sequence[Measurement]
    warm_up: Callable[[Any], None] = lambda _opened: None
