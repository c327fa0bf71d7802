"""The runner: makes the measurements that are missing."""

import dataclasses
import gc
import json
import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from annotations.clock import Clock
from annotations.errors import AnnotationError
from annotations.instants import format_instant
from annotations.whole_files import replaced_file
from experiments.errors import (
    ConfigurationError,
    ExperimentError,
    MachineLimitError,
    UnavailableError,
    UntriedError,
)
from experiments.harness.items import Measurement, MeasurementGroup, Run
from experiments.harness.machine import describe_machine, describe_versions, load_average
from experiments.harness.report import FACTS, RAW
from experiments.harness.results import (
    MACHINE_LIMIT,
    NOT_HERE,
    Experiment,
    ExperimentSettings,
    RawData,
    Results,
)
from experiments.harness.static_loading import StaticLoading
from loaders.errors import LoaderError
from tpf_client.errors import ClientError
from tpf_server.errors import ServerError
from tpf_server.spark.java import SparkError

_REPETITIONS = 3
_QUICK_REPETITIONS = 1


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    """The configuration of a run; `tables` are non-default settings of experiments."""

    quick: bool = False
    seed: int = 1
    repetitions: int = _REPETITIONS
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings(self, experiment: Experiment) -> ExperimentSettings:
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
    """Read the configuration from a TOML file and the command line."""
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


_LONGEST = 600
"""Characters that are kept of what an error says."""


class Runner:
    """Run experiments into a folder."""

    def __init__(
        self,
        output: Path,
        configuration: RunConfiguration,
        clock: Clock,
        progress: Progress,
        *,
        resume: bool = False,
    ) -> None:
        self._output = output
        self._configuration = configuration
        self._clock = clock
        self._progress = progress
        self._resume = resume

    def run(self, experiment: Experiment) -> Results:
        """Make the measurements of an experiment, and write its report."""
        settings = self._configuration.settings(experiment)
        folder = self._output / experiment.name
        facts = self._facts(experiment, asdict(settings))
        earlier = self._prepare(folder, facts)
        raw = RawData(folder / RAW, experiment)
        left_out: dict[str, str] = {}
        begin, cpu = time.perf_counter(), _cpu_seconds()
        with tempfile.TemporaryDirectory(prefix=f"tpf-{experiment.name}-") as scratch:
            static = StaticLoading(self._say, spark=not self._configuration.quick)
            run = Run(self._configuration.seed, Path(scratch), self._say, self._output, static)
            groups = list(experiment.groups(settings, run))
            rounds = [(group, self._rounds(group)) for group in groups]
            total = sum(pair not in raw for _, pairs in rounds for pair in pairs)
            if earlier.get("missing") == 0 and not total:
                return raw.results(earlier["left_out"])
            if earlier:
                _begun_earlier(facts, earlier)
            _write_json(folder / FACTS, {**facts, "left_out": {}, "missing": None})
            task = self._progress.add_task(experiment.name, total=total, what="")
            for group, pairs in rounds:
                todo = [pair for pair in pairs if pair not in raw]
                self._measure(group, todo, raw, left_out, task)
            self._progress.update(task, what="")
            missing = sum(
                not raw.tried(*pair)
                for group, pairs in rounds
                if group.name not in left_out
                for pair in pairs
            )
        if static.by is not None:
            facts["static data loaded by"] = static.by
        for name, used in (
            ("seconds", time.perf_counter() - begin), ("CPU seconds", _cpu_seconds() - cpu),
        ):  # fmt: skip
            facts[name] = round(earlier.get(name, 0.0) + used, 1)
        facts["load at the end"] = load_average()
        results = raw.results(left_out, missing)
        facts |= {"left_out": left_out, "missing": missing}
        _write_json(folder / FACTS, facts)
        return results

    def _facts(self, experiment: Experiment, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "experiment": experiment.name,
            "started": format_instant(self._clock.now().replace(microsecond=0)),
            "quick": self._configuration.quick,
            "seed": self._configuration.seed,
            "repetitions": self._configuration.repetitions,
            "settings": settings,
            "machine": describe_machine(),
            "versions": describe_versions(),
            "load at the start": load_average(),
        }

    def _prepare(self, folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
        kept = folder / FACTS
        earlier: dict[str, Any] = {}
        if self._resume and kept.is_file():
            earlier = json.loads(kept.read_text(encoding="utf-8"))
            for name in ("seed", "settings", "quick"):
                if earlier.get(name) != json.loads(json.dumps(facts[name])):
                    raise ConfigurationError(
                        f"{folder} was measured with another {name}: leave out --resume, "
                        "or choose another --output"
                    )
        elif folder.is_dir():
            if any(folder.iterdir()) and not kept.is_file():
                raise ConfigurationError(f"{folder} holds other files: choose another --output")
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not earlier:
            _write_json(kept, {**facts, "left_out": {}, "missing": None})
        return earlier

    def _rounds(self, group: MeasurementGroup) -> list[tuple[Measurement, int]]:
        """Return each repetition of the measurements, round after round."""
        repetitions = [
            each.repetitions or self._configuration.repetitions for each in group.measurements
        ]
        return [
            (measurement, number)
            for number in range(max(repetitions, default=0))
            for measurement, count in zip(group.measurements, repetitions, strict=True)
            if number < count
        ]

    def _measure(
        self,
        group: MeasurementGroup,
        todo: list[tuple[Measurement, int]],
        raw: RawData,
        left_out: dict[str, str],
        task: Any,
    ) -> None:
        while todo:
            self._progress.update(task, what=f"{group.name}: setting up")
            before = len(todo)
            try:
                with ExitStack() as stack:
                    opened = stack.enter_context(group.open())
                    group.warm_up(opened)
                    while todo:
                        good = self._attempt(*todo.pop(0), opened, raw)
                        self._progress.advance(task)
                        if not good:
                            break
            except ConfigurationError:
                raise
            except Exception as error:  # noqa: BLE001 - a run goes on, whatever it is
                if not todo:
                    self._say(f"{group.name} did not end well: {_explain(error)}")
                elif len(todo) == before:
                    left_out[group.name] = _explain(error)
                    self._say(f"{group.name} is left out: {_explain(error)}")
                    self._progress.advance(task, before)
                    return

    def _attempt(
        self, measurement: Measurement, repetition: int, opened: Any, raw: RawData
    ) -> bool:
        """Make a measurement; return True if its resources can be used again."""
        what = " ".join(str(value) for value in measurement.key.values())
        self._progress.update(self._progress.task_ids[-1], what=what)
        # What earlier ones left behind in cycles: else seconds of collection are this one's.
        gc.collect()
        try:
            rows = list(measurement.measure(opened))
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001 - a run goes on, whatever it is
            raw.add(measurement, repetition, [], _explain(error))
            self._say(f"{what}: {_explain(error)}")
            return isinstance(error, UntriedError | UnavailableError)
        raw.add(measurement, repetition, rows)
        return True

    def _say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, style="dim")


def progress_bar() -> Progress:
    """Make a progress bar on standard error."""
    return Progress(
        TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("{task.fields[what]}", style="dim"),
        console=Console(stderr=True),
    )  # fmt: skip


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


_KNOWN = (
    ExperimentError, AnnotationError, ClientError, LoaderError, ServerError, SparkError, OSError,
)  # fmt: skip
"""Errors that are made to be read."""


def _explain(error: Exception) -> str:
    text = " ".join(str(error).split())[:_LONGEST]
    if isinstance(error, MachineLimitError):
        return f"{MACHINE_LIMIT}{text}"
    if isinstance(error, UnavailableError):
        return f"{NOT_HERE}{text}"
    return text if text and isinstance(error, _KNOWN) else f"{type(error).__name__}: {text}"


def _begun_earlier(facts: dict[str, Any], earlier: Mapping[str, Any]) -> None:
    for name in ("started", "load at the start"):
        facts[name] = earlier[name]
    for part in ("machine", "versions"):
        for name, before in earlier[part].items():
            both = f"{before}, {facts[part].get(name, before)}"
            facts[part][name] = ", ".join(dict.fromkeys(both.split(", ")))


def _write_json(path: Path, value: Any) -> None:
    with replaced_file(path, durable=False) as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
