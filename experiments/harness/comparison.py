"""Compare two runs: ratios of comparable figures, with their intervals."""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from experiments.errors import ConfigurationError, MeasurementError, UnavailableError
from experiments.harness.estimates import MeanEstimate, ratio_estimate
from experiments.harness.machine import git
from experiments.harness.report import FACTS, RAW, shown_value
from experiments.harness.results import RawData

_COSTS = {"us", "ms", "s", "seconds", "percent", "mib", "bytes", "requests"}
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")
_PARTS = ("kind", "quantity")
"""Columns that tell what a row of a measurement is about."""


class FigureName(NamedTuple):
    """Identify a figure: experiment, parameter values, column."""

    experiment: str
    parameters: tuple[tuple[str, str], ...]
    column: str


RunFigures: TypeAlias = Mapping[FigureName, Sequence[float]]
"""The figures of a run, each with a value for each repetition."""


class FinishedRun(NamedTuple):
    """A run: facts by experiment, and measured figures."""

    facts: Mapping[str, Mapping[str, Any]]
    figures: RunFigures


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of both runs, with the ratio of the second to the first."""

    name: FigureName
    before: Sequence[float]
    after: Sequence[float]
    ratio: MeanEstimate

    @property
    def cost(self) -> int:
        """Return 1 if less is better, -1 if more is, 0 if neither."""
        words = self.name.column.split("_")
        if words[-2:] == ["per", "second"] or words == ["completeness"]:
            return -1
        return int(not _COSTS.isdisjoint(words))

    def exceeds(self, limit: float) -> bool | None:
        """True if it got worse by more than this factor; ``None``: unknown, or no cost."""
        if self.ratio.low is None or self.ratio.high is None or not self.cost:
            return None
        least = self.ratio.low if self.cost > 0 else 1 / self.ratio.high
        return least > limit

    def as_json(self, limit: float | None) -> dict[str, Any]:
        sides = {"before": self.before, "after": self.after}
        return {
            "experiment": self.name.experiment,
            "parameters": dict(self.name.parameters),
            "column": self.name.column,
            "ratio": self.ratio.mean,
            "low": self.ratio.low,
            "high": self.ratio.high,
            "ratio_of_minima": _of(min, self),
            "ratio_of_medians": _of(statistics.median, self),
            "values": {side: list(values) for side, values in sides.items()},
            "better": {1: "less", -1: "more", 0: None}[self.cost],
            "worse_than_allowed": None if limit is None else self.exceeds(limit),
        }


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The figures of two runs, and reasons for those not compared."""

    figures: Sequence[ComparedFigure]
    skipped: Sequence[str]

    def worse(self, limit: float) -> list[ComparedFigure]:
        """Return the figures that got worse by more than a factor."""
        return [figure for figure in self.figures if figure.exceeds(limit)]

    def judged(self, limit: float) -> int:
        return sum(figure.exceeds(limit) is not None for figure in self.figures)

    def as_json(self, limit: float | None) -> dict[str, Any]:
        return {
            "at_most": limit,
            "figures": [figure.as_json(limit) for figure in self.figures],
            "skipped": list(self.skipped),
        }

    def as_text(self, limit: float | None) -> str:
        rows = [("", "ratio", "95 %", "minima", "medians", "before", "after")]
        for figure in self.figures:
            what = " ".join(value for _, value in figure.name.parameters if value)
            low, high = figure.ratio.low, figure.ratio.high
            mark = " !" if limit is not None and figure.exceeds(limit) else ""
            rows.append(
                (
                    f"{figure.name.experiment} {what} {figure.name.column}{mark}",
                    f"{figure.ratio.mean:.3f}",
                    "once" if low is None or high is None else f"{low:.3f}…{high:.3f}",
                    f"{_of(min, figure):.3f}",
                    f"{_of(statistics.median, figure):.3f}",
                    shown_value(statistics.fmean(figure.before)),
                    shown_value(statistics.fmean(figure.after)),
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0])]
                + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            )
            for row in rows
        ]
        return "\n".join([*lines, *(f"not compared: {reason}" for reason in self.skipped)])


def read_run(folder: Path) -> FinishedRun:
    """Read the figures of all experiments in a folder of results."""
    facts: dict[str, Mapping[str, Any]] = {}
    figures: dict[FigureName, Sequence[float]] = {}
    for path in sorted(folder.glob(f"*/{FACTS}")):
        name, raw = path.parent.name, path.parent / RAW
        try:
            facts[name] = json.loads(path.read_text(encoding="utf-8"))
            columns = raw.read_text(encoding="utf-8").partition("\n")[0].split(",")
            if facts[name]["missing"] is None:
                raise ConfigurationError(f"{path.parent}: the run did not end")
            figures |= _figures(raw, columns, name)
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise ConfigurationError(f"{path.parent} cannot be read: {error!r}") from error
    if not facts:
        raise ConfigurationError(f"there are no results in {folder}")
    return FinishedRun(facts, figures)


@dataclass(frozen=True, slots=True)
class _OwnColumns:
    name: str
    keys: tuple[str, ...]
    values: tuple[str, ...]


def _figures(raw: Path, columns: Sequence[str], name: str) -> dict[FigureName, list[float]]:
    keys = tuple(columns[: columns.index("repetition")])
    values = tuple(columns[columns.index("error") + 1 :])
    # In a fixed time more requests are better: their rate says it.
    left_out = {*_PARTS, *(("requests",) if "requests_per_second" in values else ())}
    results = RawData(raw, _OwnColumns(name, keys, values)).results({})
    figures: dict[FigureName, dict[str, list[float]]] = {}
    for row in results.rows:
        named = (*keys, *(part for part in _PARTS if part in values))
        parameters = tuple((column, row[column]) for column in named)
        for column in values:
            if _NUMBER.fullmatch(row[column]) and column not in left_out:
                repetitions = figures.setdefault(FigureName(name, parameters, column), {})
                repetitions.setdefault(row["repetition"], []).append(float(row[column]))
    return {
        figure: [statistics.fmean(each) for each in repetitions.values()]
        for figure, repetitions in figures.items()
    }


def compare_runs(
    before: FinishedRun, after: FinishedRun, columns: Iterable[str] = ()
) -> RunComparison:
    """Compare the figures of two runs with the same seed and sizes."""
    selected = set(columns)
    both = [name for name in before.facts if name in after.facts]
    skipped = [
        f"{name}: in one of the runs only" for name in sorted(before.facts.keys() ^ after.facts)
    ]
    figures: list[ComparedFigure] = []
    for name in both:
        if differs := _difference(before.facts[name], after.facts[name]):
            skipped.append(f"{name}: {differs}")
            continue
        for figure, values in before.figures.items():
            others = after.figures.get(figure)
            if figure.experiment != name or others is None:
                continue
            ratio = ratio_estimate(values, others)
            if ratio is not None and (not selected or figure.column in selected):
                figures.append(ComparedFigure(figure, values, others, ratio))
    if not figures:
        raise ConfigurationError("; ".join(["there is nothing to compare", *skipped]))
    return RunComparison(figures, skipped)


def runs_together(runs: Sequence[FinishedRun]) -> FinishedRun:
    """Merge runs into one, each a repetition."""
    figures: dict[FigureName, list[float]] = {}
    for run in runs:
        for name, values in run.figures.items():
            figures.setdefault(name, []).append(statistics.fmean(values))
    return FinishedRun(runs[0].facts, figures)


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    sides = [{"seed": facts.get("seed"), **facts.get("settings", {})} for facts in (before, after)]
    for name, value in sides[0].items():
        if name in sides[1] and sides[1][name] != value:
            return f"{name} is {value} in the one, and {sides[1][name]} in the other"
    return ""


def _of(which: Callable[[Sequence[float]], float], figure: ComparedFigure) -> float:
    return which(figure.after) / which(figure.before)


_START = "from experiments.cli import app; app(prog_name='tpf-experiments')"
_END = 60.0
"""Seconds that a run has to end the processes that it started."""


def measure_alternately(
    project: Path,
    commits: tuple[str, str],
    experiment: str,
    rounds: int,
    arguments: Sequence[str],
    config: Path | None,
    say: Callable[[str], None],
) -> tuple[FinishedRun, FinishedRun]:
    """Measure an experiment at two commits, round after round."""
    hashes = [_commit(project, name) for name in commits]
    with tempfile.TemporaryDirectory(prefix="tpf-compare-") as scratch:
        folder = Path(scratch)
        # Data of others are beside the project.
        if (shared := project.parent / "shared").is_dir():
            (folder / "shared").symlink_to(shared)
        sizes = folder / "sizes.toml"
        sizes.write_text(_sizes(config), encoding="utf-8")
        sides: tuple[list[FinishedRun], list[FinishedRun]] = ([], [])
        with (
            _worktree(project, hashes[0], folder / "before") as before,
            _worktree(project, hashes[1], folder / "after") as after,
        ):
            trees = (before, after)
            for number in range(rounds):
                # Who begins changes with each round.
                for side in (0, 1) if number % 2 == 0 else (1, 0):
                    say(f"round {number + 1} of {rounds}: {commits[side]}")
                    results = folder / f"results-{number}-{side}"
                    command = ["run", experiment, "--output", str(results), *arguments]
                    _run(trees[side], [*command, "--config", str(sizes)], commits[side])
                    sides[side].append(_measured(results, commits[side]))
        return runs_together(sides[0]), runs_together(sides[1])


def _measured(results: Path, commit: str) -> FinishedRun:
    try:
        return read_run(results)
    except ConfigurationError as error:
        raise MeasurementError(f"{commit}: {error}") from error


def _sizes(config: Path | None) -> str:
    if config is None:
        return "repetitions = 1\n"
    try:
        text = config.read_text(encoding="utf-8")
        stated = "repetitions" in tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{config}: {error}") from error
    return text if stated else f"repetitions = 1\n{text}"


def _commit(project: Path, name: str) -> str:
    if not (project / ".git").exists():
        raise UnavailableError(f"commits are compared in a clone of the repository: not {project}")
    try:
        return git(
            project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
    except MeasurementError as error:
        raise ConfigurationError(f"no commit {name!r}") from error


@contextmanager
def _worktree(project: Path, commit: str, folder: Path) -> Iterator[Path]:
    git(project, "worktree", "add", "--quiet", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        git(project, "worktree", "remove", "--force", str(folder))


def _run(tree: Path, arguments: Sequence[str], commit: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", _START, *arguments],
        cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, errors = process.communicate()
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait(_END)
        raise
    # 1: something was not measured; the rest is compared.
    if process.returncode not in (0, 1):
        last = errors.strip().rpartition("\n")[2]
        raise MeasurementError(f"{commit}: {last or f'exit status {process.returncode}'}")
