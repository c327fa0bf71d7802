"""What an experiment measures, and what its report is made of."""

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


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line or a bar.

    Args:
        x: its place.
        y: its value.
        low: lower end of its 95 % confidence interval; ``None``: there is none.
        high: the upper end.
        limited: whether the machine was the limit, so that the value tells of that.
    """

    x: float | str
    y: float
    low: float | None = None
    high: float | None = None
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure. A measurement that failed has no point; nothing is interpolated.

    Args:
        name: of its files.
        title: what it shows.
        x_label: name and unit of the horizontal axis.
        y_label: name and unit of the vertical axis.
        series: points by the name of their series.
        kind: ``lines``, or ``bars`` side by side for an `x` of texts.
        log_x: whether the horizontal axis is logarithmic.
        log_y: whether the vertical axis is logarithmic.
        markers: whether points are marked; not for the hundreds of a time line.
        places: the place of a series in the order of colours, by its name, so that it has the same
            colour in every figure; where nothing is said, the order of the series.
        answer: whether it belongs to the answer: the first of these stands at the top of the
            report, and all in the project's README.
        marks: points of others, on other hardware, by their name and that of the series whose
            colour they have (any name where they have none).
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
    """A table of the report; cells are texts or numbers (shown with three digits)."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[CellValue]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence computed from the data.

    Args:
        text: the sentence; another result must make another sentence.
        headline: whether it stands in the summary of a published report, too.
        answer: whether the report begins with it.
    """

    text: str
    headline: bool = False
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A target and what was measured.

    Args:
        what: the quantity, with its unit.
        measured: its value; ``None``: not measured in this run.
        limit: the target.
        at_most: whether the target is an upper bound; otherwise it is a lower one.
        compared: what is known of others, as text.
    """

    what: str
    measured: float | None
    limit: float
    at_most: bool = True
    compared: str = ""

    @property
    def met(self) -> bool | None:
        """Whether it is met; ``None``: not measured."""
        if self.measured is None:
            return None
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper reports.

    Args:
        name: the claim within its experiment.
        experiment: the one that looks into it.
        paper: its number.
        where: section, figure or table.
        says: what, as a sentence.
        figure: the paper's own number.
        quantity: what is measured here, with its unit.
        at_most: what is measured agrees up to here.
        at_least: it agrees from here on.
    """

    name: str
    experiment: str
    paper: str
    where: str
    says: str
    figure: str
    quantity: str
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A claim, and what was found; ``None``: it was not measured here."""

    claim: Claim
    found: float | None

    @property
    def verdict(self) -> str:
        """Whether it agrees."""
        if self.found is None:
            return "not measured here"
        low, high = self.claim.at_least, self.claim.at_most
        agrees = (low is None or self.found >= low) and (high is None or self.found <= high)
        return "agrees" if agrees else "differs"


Item: TypeAlias = Figure | Table | Finding | Target | Check
"""What a report is made of."""
