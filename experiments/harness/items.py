"""Measurements of an experiment, and the items of its report."""

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
    """The run that an experiment is part of."""

    seed: int
    folder: Path
    say: Callable[[str], None]
    output: Path | None = None
    static: StaticLoading = field(default_factory=lambda: StaticLoading(spark=False))


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement, which may give several rows.

    The `key` is unique. `measure` takes what the group opened; `MeasurementError` and `OSError`
    make it a failed one. Counts need no `repetitions`.
    """

    key: Mapping[str, str | int | float]
    measure: Callable[[Any], Iterable[ResultRow]]
    repetitions: int | None = None


@dataclass(frozen=True, slots=True)
class MeasurementGroup:
    """Measurements that share servers, data and client processes.

    Their rounds alternate, so that other load meets all alike. `open` may raise `UnavailableError`.
    """

    name: str
    open: Callable[[], AbstractContextManager[Any]]
    measurements: Sequence[Measurement]
    warm_up: Callable[[Any], None] = lambda _opened: None


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line or a bar, with its 95 % confidence interval."""

    x: float | str
    y: float
    low: float | None = None
    high: float | None = None
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure. A failed measurement has no point; nothing is interpolated.

    Args:
        kind: ``lines``, or ``bars`` for texts as `x`.
        markers: false for hundreds of points.
        places: colour number by series, consistent over figures.
        answer: the first one heads the report and is in the README.
        marks: points of others on other hardware, and the series with their colour.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[Point]]
    kind: str = "lines"
    log_x: bool = False
    log_y: bool = False
    markers: bool = True
    places: Mapping[str, int] = field(default_factory=dict)
    answer: bool = False
    marks: Mapping[tuple[str, str], Sequence[Point]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report; numbers are shown with three digits."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[CellValue]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence computed from the data; another result must give another one.

    A `headline` is in the published summary; an `answer` begins it.
    """

    text: str
    headline: bool = False
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A target and its measured value; `at_most` makes it an upper bound."""

    what: str
    measured: float | None
    limit: float
    at_most: bool = True
    compared: str = ""

    @property
    def met(self) -> bool | None:
        """True if the target is met; ``None``: not measured."""
        if self.measured is None:
            return None
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper, and the range of measured values that agree.

    `figure` is the paper's own number, `where` its section, figure or table, `why` the reason
    where ours is known to differ.
    """

    name: str
    experiment: str
    paper: str
    where: str
    says: str
    figure: str
    quantity: str
    why: str = ""
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A claim and the measured value; ``None``: not measured."""

    claim: Claim
    measured: float | None

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured here"
        low, high = self.claim.at_least, self.claim.at_most
        agrees = (low is None or self.measured >= low) and (high is None or self.measured <= high)
        return "agrees" if agrees else "differs"

    @property
    def why(self) -> str:
        return self.claim.why if self.verdict == "differs" else ""


Item: TypeAlias = Figure | Table | Finding | Target | Check
"""What a report is made of."""
