"""The raw data of an experiment: a CSV file that grows with each measurement."""

import csv
import io
import os
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeAlias

from annotations.whole_files import replaced_file
from experiments.errors import ConfigurationError
from experiments.harness import items
from experiments.harness.estimates import MeanEstimate, estimate

_Key: TypeAlias = tuple[str, ...]
MACHINE_LIMIT = "the machine is the limit: "
"""How the error of a measurement begins for which the machine is too small."""
NOT_HERE = "not here: "
"""How a reason begins where something optional is not on this machine."""
_BOOKKEEPING = ("repetition", "line", "lines", "error")


class ResultColumns(Protocol):
    """The columns of raw data."""

    @property
    def name(self) -> str:
        """Name of the experiment on the command line; one word."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a measurement."""

    @property
    def values(self) -> tuple[str, ...]:
        """The measured columns."""


class RawData:
    """The file of raw data."""

    def __init__(self, path: Path, experiment: ResultColumns) -> None:
        taken = set(_BOOKKEEPING) & {*experiment.keys, *experiment.values}
        assert not taken, f"{experiment.name} has columns of the raw data's own: {taken}"
        self.path = path
        self._keys = experiment.keys
        self._columns = (*experiment.keys, *_BOOKKEEPING, *experiment.values)
        self._measurements: dict[_Key, list[dict[str, str]]] = {}
        if path.is_file() and "\n" in path.read_text(encoding="utf-8"):
            self._read()
        else:
            path.write_text(",".join(self._columns) + "\n", encoding="utf-8")

    def _read(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        # A line that was being written when the run was killed.
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(whole))
        if tuple(reader.fieldnames or ()) != self._columns:
            raise ConfigurationError(
                f"{self.path} has other columns than this experiment: choose another --output"
            )
        lines_by_key: dict[_Key, list[dict[str, str]]] = {}
        for row in reader:
            key = self._key_of(row)
            if row["line"] == "0":
                lines_by_key[key] = []
            if key in lines_by_key:
                lines_by_key[key].append(row)
        self._measurements = {
            key: rows for key, rows in lines_by_key.items() if len(rows) == int(rows[0]["lines"])
        }
        # What does not count leaves the file.
        kept = io.StringIO()
        writer = csv.DictWriter(kept, self._columns, lineterminator="\n")
        writer.writeheader()
        for rows in self._measurements.values():
            writer.writerows(rows)
        if kept.getvalue() != text:
            with replaced_file(self.path) as file:
                file.write(kept.getvalue())

    def _key_of(self, row: Mapping[str, str]) -> _Key:
        return (*(row[column] for column in self._keys), row["repetition"])

    def __contains__(self, measurement: tuple[items.Measurement, int]) -> bool:
        """True if a repetition of a measurement need not be tried again."""
        rows = self._measurements.get(self._key(*measurement))
        return rows is not None and (
            not rows[0]["error"] or rows[0]["error"].startswith(MACHINE_LIMIT)
        )

    def tried(self, measurement: items.Measurement, repetition: int) -> bool:
        """True if a repetition of a measurement is there, even if failed."""
        return self._key(measurement, repetition) in self._measurements

    def _key(self, measurement: items.Measurement, repetition: int) -> _Key:
        if tuple(measurement.key) != self._keys:
            raise ConfigurationError(f"a measurement is named by {self._keys}: {measurement.key}")
        return (*(_text(value) for value in measurement.key.values()), str(repetition))

    def add(
        self,
        measurement: items.Measurement,
        repetition: int,
        rows: Iterable[items.ResultRow],
        error: str = "",
    ) -> None:
        """Add a measurement and flush it to disk."""
        key = self._key(measurement, repetition)
        values = list(rows) or [{}]
        named = dict(zip(self._keys, key, strict=False))
        complete = [
            {
                **dict.fromkeys(self._columns, ""),
                **named,
                **{column: _text(value) for column, value in row.items()},
                "repetition": str(repetition),
                "line": str(line),
                "lines": str(len(values)),
                "error": " ".join(error.split()),
            }
            for line, row in enumerate(values)
        ]
        for row in complete:
            if unknown := row.keys() - set(self._columns):
                raise ConfigurationError(f"not columns of this experiment: {sorted(unknown)}")
        text = io.StringIO()
        csv.DictWriter(text, self._columns, lineterminator="\n").writerows(complete)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())
        self._measurements[key] = complete

    def results(self, left_out: Mapping[str, str], missing: int | None = 0) -> "Results":
        """Return all results; `missing` counts measurements not made (``None``: unknown)."""
        good: list[dict[str, str]] = []
        failures: dict[str, str] = {}
        for rows in self._measurements.values():
            if error := rows[0]["error"]:
                name = ", ".join(f"{column} {rows[0][column]}" for column in self._keys)
                failures[f"{name} (repetition {rows[0]['repetition']})"] = error
            else:
                good += rows
        return Results(good, dict(left_out), failures, missing)


@dataclass(frozen=True, slots=True)
class Results:
    """Measured rows as texts, failures, and measurements not made (``None``: unknown)."""

    rows: Sequence[Mapping[str, str]]
    left_out: Mapping[str, str]
    failures: Mapping[str, str]
    missing: int | None = 0
    _by_value: dict[str, dict[str, list[Mapping[str, str]]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Rows by column and value, of the columns that were asked for."""

    @property
    def complete(self) -> bool:
        """True if everything planned was measured, as far as this machine can."""
        reasons = (*self.left_out.values(), *self.failures.values())
        failed = any(not reason.startswith((MACHINE_LIMIT, NOT_HERE)) for reason in reasons)
        return not failed and self.missing == 0

    def where(self, **conditions: items.CellValue) -> "Results":
        texts = {column: _text(value) for column, value in conditions.items()}
        # A report asks for each of many points: each looks at the rows of its rarest value only.
        fewest = min((self._of(*each) for each in texts.items()), key=len, default=self.rows)
        rows = [row for row in fewest if all(row[name] == text for name, text in texts.items())]
        return Results(rows, self.left_out, self.failures, self.missing)

    def _of(self, column: str, text: str) -> Sequence[Mapping[str, str]]:
        if (by_text := self._by_value.get(column)) is None:
            by_text = self._by_value[column] = {}
            for row in self.rows:
                by_text.setdefault(row[column], []).append(row)
        return by_text.get(text, ())

    def distinct(self, column: str) -> list[str]:
        """Return the values of a column, in order of first appearance."""
        return list(dict.fromkeys(row[column] for row in self.rows))

    def numbers(self, column: str, **conditions: items.CellValue) -> list[float]:
        return [float(row[column]) for row in self.where(**conditions).rows if row[column]]

    def estimate(self, column: str, **conditions: items.CellValue) -> MeanEstimate | None:
        """Return mean and confidence interval of a column, if measured."""
        return estimate(self.numbers(column, **conditions))

    def mean(self, column: str, **conditions: items.CellValue) -> float | None:
        estimated = self.estimate(column, **conditions)
        return None if estimated is None else estimated.mean

    def medians(self, by: Sequence[str], columns: Sequence[str]) -> "Results":
        """Return medians for each combination of `by`: one garbage collection spoils a mean."""
        rows = []
        for group in self._grouped(by).values():
            row = dict(group[0])
            for column in columns:
                numbers = [float(each[column]) for each in group if each[column]]
                row[column] = _text(statistics.median(numbers)) if numbers else ""
            rows.append(row)
        return Results(rows, self.left_out, self.failures, self.missing)

    def points(
        self, x: str, y: str, *, numeric: bool = True, **conditions: items.CellValue
    ) -> list[items.Point]:
        """Return a point per value of `x`: mean and confidence interval of `y`."""
        chosen = self.where(**conditions)
        result: list[items.Point] = []
        for value in chosen.distinct(x):
            each = chosen.estimate(y, **{x: value})
            if each is not None:
                x_value: float | str = float(value) if numeric else value
                result.append(items.Point(x_value, each.mean, each.low, each.high))
        return sorted(result, key=lambda point: float(point.x)) if numeric else result

    def series(
        self, by: str, x: str, y: str, *, numeric: bool = True, **conditions: items.CellValue
    ) -> dict[str, list[items.Point]]:
        """Return the points of each value of the column `by`."""
        chosen = self.where(**conditions)
        return {
            name: points
            for name in chosen.distinct(by)
            if (points := chosen.points(x, y, numeric=numeric, **{by: name}))
        }

    def table(self, title: str, by: Mapping[str, str], means: Mapping[str, str]) -> items.Table:
        """Return a table: a row for each combination of `by`, with means."""
        rows = [
            (*key, *(Results(group, {}, {}).mean(column) for column in means))
            for key, group in self._grouped(by).items()
        ]
        return items.Table(title, (*by.values(), *means.values()), rows)

    def _grouped(self, by: Collection[str]) -> dict[_Key, list[Mapping[str, str]]]:
        groups: dict[_Key, list[Mapping[str, str]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[column] for column in by), []).append(row)
        return groups


def _text(value: items.CellValue) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


# An experiment: a question, its measurements and its report.


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

    def groups(self, settings: Any, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return the measurements."""

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return the report's items from whatever was measured."""
