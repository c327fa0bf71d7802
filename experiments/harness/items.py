"""What a report is made of: figures, tables, sentences, targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from experiments.harness.measurement import Value


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line or a bar, with its 95 % confidence interval where there is one."""

    x: float | str
    y: float
    low: float | None = None
    high: float | None = None


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
        answer: whether it stands at the top of the report, below the answer.
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


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report; cells are texts or numbers (shown with three digits)."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Value]]


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


Item: TypeAlias = Figure | Table | Finding | Target
"""What a report is made of."""
