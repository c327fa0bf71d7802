"""The configuration of a run: a TOML file, where there is one, and the command line.

seed = 1
repetitions = 5
[fragments]
triples = 1000000
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.errors import ConfigurationError
from experiments.harness.experiment import Experiment, ExperimentSettings

_REPETITIONS = 3
_QUICK_REPETITIONS = 1


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    """The configuration of a run.

    Args:
        quick: whether it is only a check.
        seed: where chance comes from.
        repetitions: how often each measurement is made.
        tables: settings of experiments that differ from the defaults.
    """

    quick: bool = False
    seed: int = 1
    repetitions: int = _REPETITIONS
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings(self, experiment: Experiment) -> ExperimentSettings:
        """The sizes of an experiment.

        Raises:
            ConfigurationError: the file sets something that the experiment does not have, or to a
                value of another type.
        """
        kind = experiment.settings
        settings = kind.quick() if self.quick else kind()
        table = self.tables.get(experiment.name, {})
        changes: dict[str, Any] = {}
        for name, value in table.items():
            if name not in kind.__dataclass_fields__:
                raise ConfigurationError(f"[{experiment.name}] has no setting {name!r}")
            given = tuple(value) if isinstance(value, list) else value
            present = getattr(settings, name)
            if isinstance(present, float) and type(given) is int:
                given = float(given)
            if type(given) is not type(present):
                raise ConfigurationError(
                    f"[{experiment.name}] {name} is a {type(present).__name__}, not {value!r}"
                )
            changes[name] = given
        return dataclasses.replace(settings, **changes)


def read_run_configuration(
    file: Path | None, *, quick: bool, names: tuple[str, ...]
) -> RunConfiguration:
    """The configuration of a file and the command line.

    Args:
        file: a TOML file; ``None``: defaults.
        quick: whether the run is only a check.
        names: of the experiments, which may have tables.

    Raises:
        ConfigurationError: the file cannot be read, or says something that has no meaning.
    """
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"{file}: {error}") from error
    numbers = {"seed": 1, "repetitions": _QUICK_REPETITIONS if quick else _REPETITIONS}
    for name in numbers:
        if name in values:
            value = values.pop(name)
            if type(value) is not int or value < (name == "repetitions"):
                raise ConfigurationError(f"{file}: {name} is no such number: {value!r}")
            numbers[name] = value
    for name, table in values.items():
        if name not in names or not isinstance(table, dict):
            raise ConfigurationError(f"{file}: there is no experiment and no setting {name!r}")
    return RunConfiguration(quick, numbers["seed"], numbers["repetitions"], values)
