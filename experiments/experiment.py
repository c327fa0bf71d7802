"""What an experiment is: groups of measurements, and what a report says of their results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from experiments.results import Results

Value: TypeAlias = str | int | float | None
"""What a cell of the raw data holds; ``None``: nothing is known."""

Row: TypeAlias = Mapping[str, Value]
"""One row of the raw data, by column."""


class Settings(Protocol):
    """The sizes of an experiment: a frozen dataclass whose defaults are those of a full run."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def quick(cls) -> Self:
        """The sizes for a check in a minute."""


@dataclass(frozen=True, slots=True)
class Run:
    """What an experiment is told about the run that it is part of.

    Args:
        seed: where chance comes from: the same seed gives the same workload.
        folder: for files that are made on the way; removed afterwards.
        say: shows a line of progress.
        output: where the results of all experiments are; ``None``: nowhere.
    """

    seed: int
    folder: Path
    say: Callable[[str], None]
    output: Path | None = None


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
    measure: Callable[[Any], Iterable[Row]]
    repetitions: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
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
        headline: whether it stands at the top of the report, too.
    """

    text: str
    headline: bool = False


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


class Experiment(Protocol):
    """An experiment. One instance per kind in `experiments.registry.EXPERIMENTS`."""

    @property
    def name(self) -> str:
        """As the command line calls it; a word without spaces."""

    @property
    def question(self) -> str:
        """What it answers, for a reader of the report."""

    @property
    def settings(self) -> type[Settings]:
        """Its sizes; a table of the same name in the configuration file changes them."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that name a measurement."""

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that it fills."""

    def groups(self, settings: Any, run: Run) -> Iterable[Group]:
        """What is measured."""

    def report(self, results: "Results") -> Iterable[Item]:
        """What the report says, in this order, from whatever was measured."""
