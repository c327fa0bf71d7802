"""What an experiment reports of made-up raw data."""

from collections.abc import Sequence
from typing import Any

from experiments.harness.items import Check, Figure, Finding, Table, Target
from experiments.harness.results import Experiment, Results


def raw_row(experiment: Any, **values: Any) -> dict[str, str]:
    """Return a row of raw data; columns that are not given are empty."""
    empty = dict.fromkeys((*experiment.keys, *experiment.values), "")
    return {name: str(value) for name, value in (empty | values).items()}


class Reported:
    """The items of a report, by kind."""

    def __init__(self, experiment: Experiment, data: Results | Sequence[dict[str, str]]) -> None:
        results = data if isinstance(data, Results) else Results(data, {}, {})
        self.items = list(experiment.report(results))
        findings = [each for each in self.items if isinstance(each, Finding)]
        self.texts = [each.text for each in findings]
        self.answers = [each.text for each in findings if each.answer]
        self.checks = [each for each in self.items if isinstance(each, Check)]
        self.verdicts = {each.claim.name: each.verdict for each in self.checks}
        self.figures = {each.name: each for each in self.items if isinstance(each, Figure)}
        self.targets = [each for each in self.items if isinstance(each, Target)]
        self.tables = [each for each in self.items if isinstance(each, Table)]
