"""The interface of an experiment: a question, its measurements and its report."""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, Self

from experiments.harness.items import Item, MeasurementGroup, Run
from experiments.harness.results import ResultColumns, Results


class ExperimentSettings(Protocol):
    """The sizes of an experiment; the defaults are those of a full run."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def quick(cls) -> Self:
        """Return sizes for a check in a minute."""


class Experiment(ResultColumns, Protocol):
    """An experiment, listed in `experiments.cli.EXPERIMENTS`."""

    @property
    def question(self) -> str:
        """The question it answers, for the report."""

    @property
    def settings(self) -> type[ExperimentSettings]:
        """Its sizes, configurable by a table of the same name."""

    def groups(self, settings: Any, run: Run) -> Iterable[MeasurementGroup]:
        """Return the measurements."""

    def report(self, results: Results) -> Iterable[Item]:
        """Return the report's items from whatever was measured."""
