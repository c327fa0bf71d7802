"""What an experiment is: a question, its measurements, and what a report says of their results."""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, Self

from experiments.harness.items import Item, MeasurementGroup, Run
from experiments.harness.results import ResultColumns, Results


class ExperimentSettings(Protocol):
    """The sizes of an experiment: a frozen dataclass whose defaults are those of a full run."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def quick(cls) -> Self:
        """The sizes for a check in a minute."""


class Experiment(ResultColumns, Protocol):
    """An experiment. One instance per kind in `experiments.cli.EXPERIMENTS`."""

    @property
    def question(self) -> str:
        """What it answers, for a reader of the report."""

    @property
    def settings(self) -> type[ExperimentSettings]:
        """Its sizes; a table of the same name in the configuration file changes them."""

    def groups(self, settings: Any, run: Run) -> Iterable[MeasurementGroup]:
        """What is measured."""

    def report(self, results: Results) -> Iterable[Item]:
        """What the report says, in this order, from whatever was measured."""
