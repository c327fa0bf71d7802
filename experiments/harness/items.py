"""What a report is made of: figures, tables, sentences, targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from experiments.harness.measurement import CellValue


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
