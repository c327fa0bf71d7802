"""The common runner: makes the measurements that are not there yet."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from annotations.clock import Clock
from annotations.errors import AnnotationError
from annotations.instants import format_instant
from experiments.errors import ConfigurationError, MeasurementError, UnavailableError
from experiments.harness.configuration import RunConfiguration
from experiments.harness.experiment import Experiment
from experiments.harness.machine import describe_machine, describe_versions, load_average
from experiments.harness.measurement import Measurement, MeasurementGroup, Run
from experiments.harness.report import FACTS, RAW
from experiments.harness.results import RawData, Results
from experiments.harness.static_loading import StaticLoading
from loaders.errors import LoaderError
from tpf_client.errors import ClientError
from tpf_server.errors import ServerError
from tpf_spark.errors import SparkError

_FAILURES = (
    MeasurementError,
    AnnotationError,
    ClientError,
    LoaderError,
    ServerError,
    SparkError,
    OSError,
)


class Runner:
    """Runs experiments into a folder.

    Args:
        output: the folder; each experiment has one of its own in it.
        configuration: sizes, seed and repetitions.
        clock: tells when a run began.
        progress: where progress is shown.
        resume: whether measurements that are there are kept.
    """

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
        """Make the measurements of an experiment, and write what they say.

        Raises:
            ConfigurationError: other results are in the folder, or the configuration is wrong.
        """
        settings = self._configuration.settings(experiment)
        folder = self._output / experiment.name
        facts = self._facts(experiment, asdict(settings))
        self._prepare(folder, facts)
        raw = RawData(folder / RAW, experiment)
        left_out: dict[str, str] = {}
        begin, cpu = time.perf_counter(), _cpu_seconds()
        with tempfile.TemporaryDirectory(prefix=f"tpf-{experiment.name}-") as scratch:
            static = StaticLoading(self._say)
            run = Run(self._configuration.seed, Path(scratch), self._say, self._output, static)
            groups = list(experiment.groups(settings, run))
            planned = {id(group): self._planned(group, raw) for group in groups}
            total = sum(len(each) for each in planned.values())
            task = self._progress.add_task(experiment.name, total=total, what="")
            for group in groups:
                self._measure(group, planned[id(group)], raw, left_out, task)
            self._progress.update(task, what="")
            missing = sum(
                not raw.tried(measurement, repetition)
                for group in groups
                if group.name not in left_out
                for repetition in range(self._most_repetitions(group))
                for measurement in group.measurements
                if repetition < self._repetitions(measurement)
            )
        if static.by is not None:
            facts["static data loaded by"] = static.by
        facts["seconds"] = round(time.perf_counter() - begin, 1)
        facts["CPU seconds"] = round(_cpu_seconds() - cpu, 1)
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

    def _prepare(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Make the folder; what is resumed must have been measured with the same sizes."""
        kept = folder / FACTS
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
        _write_json(kept, {**facts, "left_out": {}, "missing": None})

    def _repetitions(self, measurement: Measurement) -> int:
        return measurement.repetitions or self._configuration.repetitions

    def _most_repetitions(self, group: MeasurementGroup) -> int:
        return max((self._repetitions(each) for each in group.measurements), default=0)

    def _planned(self, group: MeasurementGroup, raw: RawData) -> list[tuple[Measurement, int]]:
        """The measurements that are not there yet, round after round."""
        return [
            (measurement, repetition)
            for repetition in range(self._most_repetitions(group))
            for measurement in group.measurements
            if repetition < self._repetitions(measurement) and (measurement, repetition) not in raw
        ]

    def _measure(
        self,
        group: MeasurementGroup,
        planned: Sequence[tuple[Measurement, int]],
        raw: RawData,
        left_out: dict[str, str],
        task: Any,
    ) -> None:
        if not planned:
            return
        self._progress.update(task, what=f"{group.name}: setting up")
        done = 0
        try:
            with ExitStack() as stack:
                opened = stack.enter_context(group.open())
                group.warm_up(opened)
                for measurement, repetition in planned:
                    what = " ".join(str(value) for value in measurement.key.values())
                    self._progress.update(task, what=what)
                    try:
                        raw.add(measurement, repetition, list(measurement.measure(opened)))
                    except _FAILURES as error:
                        raw.add(measurement, repetition, [], _explain(error))
                        self._say(f"{what}: {_explain(error)}")
                    done += 1
                    self._progress.advance(task)
        except (UnavailableError, *_FAILURES) as error:
            left_out[group.name] = _explain(error)
            self._say(f"{group.name} is left out: {_explain(error)}")
            self._progress.advance(task, len(planned) - done)

    def _say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, style="dim")


def progress_bar() -> Progress:
    """A progress bar on standard error."""
    return Progress(
        TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("{task.fields[what]}", style="dim"),
        console=Console(stderr=True),
    )  # fmt: skip


def _cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _explain(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")
