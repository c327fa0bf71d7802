"""The runner: measurements, kept results, and the report."""

import csv
import dataclasses
import gc
import io
import json
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from annotations.clock import ManualClock
from experiments.errors import (
    ConfigurationError,
    MachineLimitError,
    MeasurementError,
    UnavailableError,
    UntriedError,
)
from experiments.harness.items import (
    Figure,
    Finding,
    Item,
    Measurement,
    MeasurementGroup,
    ResultRow,
    Run,
    Table,
    Target,
)
from experiments.harness.publishing import publish_report
from experiments.harness.report import write_report
from experiments.harness.results import Experiment, Results
from experiments.harness.runner import RunConfiguration, Runner, read_run_configuration

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Sizes:
    sizes: tuple[int, ...] = (1, 2, 3)
    factor: float = 10.0

    @classmethod
    def quick(cls) -> Self:
        return cls(sizes=(1, 2))


@dataclass
class Squares:
    """Measures nothing but how often it was asked."""

    name: str = "squares"
    question: str = "How large are <squares>?"
    settings: type[Sizes] = Sizes
    keys: tuple[str, ...] = ("kind", "size")
    values: tuple[str, ...] = ("tick", "square")
    calls: list[tuple[str, int]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    broken: set[tuple[str, int]] = field(default_factory=set)
    unavailable: set[str] = field(default_factory=set)
    stop_after: int | None = None

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        for kind in ("plain", "shifted"):
            measurements = [self._measurement(kind, size, settings) for size in settings.sizes]
            yield MeasurementGroup(
                kind,
                lambda kind=kind: self._open(kind),  # type: ignore[misc]
                measurements,
                lambda opened: self.events.append(f"warm {opened}"),
            )

    @contextmanager
    def _open(self, kind: str) -> Iterator[str]:
        if kind in self.unavailable:
            raise UnavailableError(f"no {kind} here")
        self.events.append(f"open {kind}")
        try:
            yield kind
        finally:
            self.events.append(f"close {kind}")

    def _measurement(self, kind: str, size: int, settings: Sizes) -> Measurement:
        def measure(opened: str) -> Iterator[ResultRow]:
            assert opened == kind
            if self.stop_after is not None and len(self.calls) >= self.stop_after:
                raise KeyboardInterrupt
            self.calls.append((kind, size))
            if (kind, size) in self.broken:
                raise MeasurementError("it\nbroke")
            shift = len(self.calls) if kind == "shifted" else 0
            for tick in range(2):
                yield {"tick": tick, "square": size * size * settings.factor + shift + tick}

        return Measurement({"kind": kind, "size": size}, measure)

    def report(self, results: Results) -> Iterable[Item]:
        largest = max(results.numbers("square"))
        yield Finding(f"The largest square is {largest:g}.", headline=True)
        series = dict(results.series("kind", "size", "square"))
        yield Figure("by-size", "Squares", "size", "square", series)
        yield Figure("none", "Nothing", "size", "square", {})
        yield Table("Squares", ("size", "square"), [(1, results.mean("square", size=1))])
        yield Target("largest", largest, 50.0)
        yield Target("smallest", min(results.numbers("square")), 5.0, at_most=False)
        yield Target("unknown", None, 5.0)


def run(
    folder: Path,
    experiment: Experiment,
    *,
    resume: bool = False,
    quick: bool = True,
    repetitions: int = 2,
    tables: dict[str, Any] | None = None,
) -> Results:
    configuration = RunConfiguration(quick, 1, repetitions, tables or {})
    text = TextColumn("{task.fields[what]}")
    with Progress(text, console=Console(file=io.StringIO())) as progress:
        runner = Runner(folder, configuration, ManualClock(NOW), progress, resume=resume)
        return runner.run(experiment)


def raw(folder: Path) -> list[dict[str, str]]:
    text = (folder / "squares/raw.csv").read_text()
    return list(csv.DictReader(io.StringIO(text)))


def test_rounds_of_all_measurements_of_a_group_with_one_set_up(tmp_path: Path) -> None:
    experiment = Squares()
    results = run(tmp_path, experiment)
    once = [("plain", 1), ("plain", 2)]
    other = [("shifted", 1), ("shifted", 2)]
    assert experiment.calls == [*once, *once, *other, *other]
    assert experiment.events == [
        "open plain", "warm plain", "close plain", "open shifted", "warm shifted", "close shifted",
    ]  # fmt: skip
    assert results.complete
    rows = raw(tmp_path)
    assert len(rows) == 16
    assert rows[0] == {
        "kind": "plain", "size": "1", "repetition": "0", "line": "0", "lines": "2", "error": "",
        "tick": "0", "square": "10",
    }  # fmt: skip
    assert results.numbers("square", kind="plain", size=2, tick=1) == [41.0, 41.0]


def test_a_measurement_does_not_collect_what_earlier_ones_left_behind(tmp_path: Path) -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self

    left: list[weakref.ref[Node]] = []

    class Leaving(Squares):
        def _measurement(self, kind: str, size: int, settings: Sizes) -> Measurement:
            def measure(_opened: str) -> Iterator[ResultRow]:
                assert all(each() is None for each in left)
                left.append(weakref.ref(Node()))
                yield {"tick": 0, "square": size}

            return Measurement({"kind": kind, "size": size}, measure)

    gc.disable()
    try:
        assert run(tmp_path, Leaving()).failures == {}
    finally:
        gc.enable()
    assert len(left) == 8


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    first = Squares(stop_after=5)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, first)
    assert first.events[-1] == "close shifted"
    assert "The run did not end" in write_report(tmp_path, [first]).read_text()
    second = Squares()
    results = run(tmp_path, second, resume=True)
    assert first.calls + second.calls == [
        *[("plain", 1), ("plain", 2)] * 2, *[("shifted", 1), ("shifted", 2)] * 2,
    ]  # fmt: skip
    assert results.complete
    third = Squares()
    run(tmp_path, third, resume=True)
    assert third.calls == []
    assert third.events == []
    fourth = Squares()
    run(tmp_path, fourth)
    assert len(fourth.calls) == 8


@pytest.mark.parametrize("lost", [1, 2, 3, 9, 20, 39])
def test_a_measurement_that_was_half_written_is_repeated(tmp_path: Path, lost: int) -> None:
    run(tmp_path, Squares())
    file = tmp_path / "squares/raw.csv"
    whole = file.read_text()
    file.write_text(whole[:-lost])
    experiment = Squares()
    results = run(tmp_path, experiment, resume=True)
    assert experiment.calls == [("shifted", 2)]
    assert results.complete
    assert len(raw(tmp_path)) == 16
    assert file.read_text().count("\n") == whole.count("\n")


def test_results_of_other_sizes_are_not_mixed(tmp_path: Path) -> None:
    run(tmp_path, Squares())
    with pytest.raises(ConfigurationError, match="another settings"):
        run(tmp_path, Squares(), resume=True, quick=False)
    with pytest.raises(ConfigurationError, match="another settings"):
        run(tmp_path, Squares(), resume=True, tables={"squares": {"factor": 2}})
    assert run(tmp_path, Squares(), tables={"squares": {"factor": 2}}).complete


def test_a_failure_is_reported_and_tried_again(tmp_path: Path) -> None:
    experiment = Squares(broken={("plain", 2)})
    results = run(tmp_path, experiment)
    assert not results.complete
    assert results.failures == {
        "kind plain, size 2 (repetition 0)": "it broke",
        "kind plain, size 2 (repetition 1)": "it broke",
    }
    assert results.numbers("square", kind="plain", size=2) == []
    text = write_report(tmp_path, [experiment]).read_text()
    assert "could not run completely" in text
    assert "kind plain, size 2 (repetition 0) and 1 more: it broke" in text
    again = Squares()
    assert run(tmp_path, again, resume=True).complete
    assert again.calls == [("plain", 2), ("plain", 2)]
    assert "could not run completely" not in write_report(tmp_path, [again]).read_text()


def test_whatever_is_raised_ends_one_measurement_and_what_it_may_have_broken_is_new(
    tmp_path: Path,
) -> None:
    class Dying(Squares):
        def _measurement(self, kind: str, size: int, settings: Sizes) -> Measurement:
            whole = super()._measurement(kind, size, settings)

            def measure(opened: str) -> Iterable[ResultRow]:
                if (kind, size) == ("plain", 1):
                    raise Unforeseen("an answer from Java is empty")
                return whole.measure(opened)

            return dataclasses.replace(whole, measure=measure)

    experiment = Dying()
    results = run(tmp_path, experiment, repetitions=1)
    assert results.failures == {
        "kind plain, size 1 (repetition 0)": "Unforeseen: an answer from Java is empty"
    }
    assert experiment.calls == [("plain", 2), ("shifted", 1), ("shifted", 2)]
    opened = ["open plain", "warm plain", "close plain"]
    assert experiment.events[:6] == opened * 2
    assert not results.complete


def test_what_is_too_much_for_the_machine_is_marked_and_not_tried_again(tmp_path: Path) -> None:
    class Limited(Squares):
        def _measurement(self, kind: str, size: int, settings: Sizes) -> Measurement:
            whole = super()._measurement(kind, size, settings)

            def measure(opened: str) -> Iterable[ResultRow]:
                self.events.append(f"try {kind} {size}")
                if kind == "shifted":
                    raise (
                        MachineLimitError("too many")
                        if size == 1
                        else UntriedError("1 was too many")
                    )
                return whole.measure(opened)

            return dataclasses.replace(whole, measure=measure)

    experiment = Limited()
    results = run(tmp_path, experiment, repetitions=1)
    assert results.complete
    assert results.failures == {
        "kind shifted, size 1 (repetition 0)": "the machine is the limit: too many",
        "kind shifted, size 2 (repetition 0)": "the machine is the limit: 1 was too many",
    }
    text = write_report(tmp_path, [experiment]).read_text()
    assert "kind shifted, size 2 (repetition 0): the machine is the limit: 1 was" in text
    assert "Failed" not in text
    again = Limited()
    assert run(tmp_path, again, resume=True, repetitions=1).complete
    assert again.events == []


def test_a_resumed_run_says_of_which_commits_and_machines_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Squares(stop_after=5))
    monkeypatch.setattr("experiments.harness.machine.commit", lambda: "another")
    monkeypatch.setattr("experiments.harness.machine._processor", lambda: "a faster one")
    run(tmp_path, Squares(), resume=True)
    facts = tmp_path / "squares/run.json"
    first = json.loads(facts.read_text())
    assert first["versions"]["commit"].endswith(", another")
    assert first["machine"]["processor"].endswith(", a faster one")
    run(tmp_path, Squares(), resume=True)
    assert json.loads(facts.read_text()) == first


class Unforeseen(Exception):  # noqa: N818
    """An exception of no package of ours."""


def test_what_is_not_on_this_machine_is_left_out_and_said(tmp_path: Path) -> None:
    experiment = Squares(unavailable={"plain"})
    results = run(tmp_path, experiment)
    assert results.left_out == {"plain": "not here: no plain here"}
    assert results.complete
    assert results.missing == 0
    assert {row["kind"] for row in raw(tmp_path)} == {"shifted"}
    text = write_report(tmp_path, [experiment]).read_text()
    assert "Not measured: plain. not here: no plain here" in text
    # It is there for the next run.
    assert {row["kind"] for row in raw(tmp_path)} == {"shifted"}
    run(tmp_path, Squares(), resume=True)
    assert {row["kind"] for row in raw(tmp_path)} == {"plain", "shifted"}


def test_the_report_needs_no_other_file_and_says_what_was_measured(tmp_path: Path) -> None:
    figures = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        run(folder, Squares())
        text = write_report(folder, [Squares()]).read_text()
        figures.append((folder / "squares/figures/by-size.svg").read_bytes())
    assert text.count("The largest square is 49.") == 1
    assert "There is no answer yet" in text
    assert "How large are &lt;squares&gt;?" in text
    assert "data:image/svg+xml;base64," in text
    assert 'src="http' not in text
    assert "There is no figure ‘Nothing’" in text
    for shown in ('class="met">met', "not measured", "2026-01-02T03:04:05Z", "≥ 5", "commit"):
        assert shown in text
    # The same data make the same figure.
    assert figures[0] == figures[1]
    for file in ("by-size.svg", "by-size.png"):
        assert (folder / "squares/figures" / file).stat().st_size > 1000


def test_the_report_begins_with_the_answer_and_has_one_order(tmp_path: Path) -> None:
    class Answering(Squares):
        def report(self, results: Results) -> Iterable[Item]:
            yield Finding("It costs <nine>.", answer=True)
            for item in super().report(results):
                yield dataclasses.replace(item, answer=True) if isinstance(item, Figure) else item

    experiment = Answering()
    run(tmp_path, experiment)
    text = write_report(tmp_path, [experiment]).read_text()
    places = [
        text.index(part)
        for part in (
            "<h1>", "It costs &lt;nine&gt;.", "<figure", '<nav aria-label="Experiments">',
            'href="#squares"', '<section id="squares">', 'class="question"', "What follows",
            "The largest square is 49.", "<table", "Targets", "How it was measured", "Run of 20",
        )
    ]  # fmt: skip
    assert places == sorted(places)
    section = text[places[5] :]
    assert section.index('class="question"') < section.index("<figure") < section.index("What foll")
    assert text.count("It costs &lt;nine&gt;.") == 1
    assert text.count("<img ") == text.count(' alt="Squares. square by size. plain: ') == 2
    assert "prefers-color-scheme: dark" in text
    summary = publish_report(tmp_path, [experiment], tmp_path / "report").with_name("README.md")
    text = summary.read_text()
    assert text.index("It costs <nine>.") < text.index("![Squares.") < text.index("## squares")


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "squares").mkdir()
    (tmp_path / "squares/thesis.txt").write_text("years of work")
    with pytest.raises(ConfigurationError, match="other files"):
        run(tmp_path, Squares())
    assert (tmp_path / "squares/thesis.txt").read_text() == "years of work"


def test_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("seed = 7\nrepetitions = 3\n[squares]\nsizes = [4]\nfactor = 1\n")
    configuration = read_run_configuration(file, quick=True, names=("squares",))
    assert configuration.seed == 7
    assert configuration.repetitions == 3
    assert configuration.settings(Squares()) == Sizes((4,), 1.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seeds = 1", "no setting 'seeds'"),
        ("[cubes]\na = 1", "'cubes'"),
        ("repetitions = 0", "repetitions is no such number: 0"),
        ("repetitions = true", "no such number: True"),
        ("[squares]\nsize = 1", "has no setting 'size'"),
        ("[squares]\nfactor = 'x'", "factor is a float, not 'x'"),
        ("[squares]\nsizes = 3", "sizes is a tuple, not 3"),
        ("seed =", "c.toml"),
    ],
)
def test_wrong_configuration(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=problem):
        read_run_configuration(file, quick=True, names=("squares",)).settings(Squares())
