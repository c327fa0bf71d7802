"""The report: one self-contained HTML file of all results in a folder."""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from annotations.wording import counted
from experiments.harness.claims import unmeasured
from experiments.harness.drawing import draw
from experiments.harness.experiment import Experiment
from experiments.harness.items import CellValue, Check, Figure, Finding, Item, Table, Target
from experiments.harness.results import MACHINE_LIMIT, RawData, Results

RAW = "raw.csv"
"""The raw data, in the folder of an experiment."""
FACTS = "run.json"
"""What is known of the run, in the folder of an experiment."""
REPORT = "report.html"
_TEMPLATE = "templates/report.html"
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class ShownFigure:
    """A figure as shown in the report."""

    title: str
    image: str
    summary: str


@dataclass(slots=True)
class Section:
    """The report of one experiment."""

    name: str
    question: str
    facts: Mapping[str, Any]
    problems: list[str]
    answers: list[str] = field(default_factory=list)
    answer_figures: list[ShownFigure] = field(default_factory=list)
    headlines: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    blocks: list[tuple[str, Any]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def write_report(output: Path, experiments: Iterable[Experiment]) -> Path:
    """Write the report of a folder's results; return its path."""
    path = output / REPORT
    experiments = list(experiments)
    found = sections(output, experiments, _embedded)
    path.write_text(render_report(found, checks_of(found, experiments)), encoding="utf-8")
    return path


def sections(
    output: Path, experiments: Iterable[Experiment], image: Callable[[Path], str]
) -> list[Section]:
    """Return the sections of all experiments with results in a folder."""
    return [
        _section(experiment, output / experiment.name, output, image)
        for experiment in experiments
        if (output / experiment.name / FACTS).is_file()
    ]


def checks_of(sections: Sequence[Section], experiments: Iterable[Experiment]) -> list[Check]:
    """Return claims with measured values, also of experiments not run."""
    looked = {check.claim.experiment for section in sections for check in section.checks}
    absent = [experiment.name for experiment in experiments if experiment.name not in looked]
    found = [check for section in sections for check in section.checks] + unmeasured(absent)
    return sorted(found, key=lambda check: check.claim.paper)


def render_report(sections: Sequence[Section], checks: Sequence[Check] = ()) -> str:
    """Render the page as HTML."""
    source = resources.files("experiments.harness").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["number"] = shown_value
    run = run_in_words(sections) if sections else ""
    return environment.from_string(source).render(sections=sections, checks=checks, run=run)


def run_in_words(sections: Sequence[Section]) -> str:
    """Describe when, where, on which commits and how long it was measured."""
    days = sorted({section.facts["started"][:10] for section in sections})
    machine = sections[0].facts["machine"]
    commits = sorted(
        {each for one in sections for each in one.facts["versions"]["commit"].split(", ")}
    )
    took = [each for one in sections if (each := one.facts.get("seconds")) is not None]
    text = (
        f"{' to '.join(dict.fromkeys((days[0], days[-1])))}: {machine['processor']}, "
        f"{counted(int(machine['cores'].split()[0]), 'core')}, {machine['memory']}; "
        f"{counted(len(sections), 'experiment')} on {'commit' if len(commits) == 1 else 'commits'} "
        f"{sentence_list(commits)}"
    )
    if len(took) == len(sections):
        minutes = max(1, round(sum(took) / 60))
        text += f", in {minutes // 60} h {minutes % 60} min"
    return f"{text}."


def _embedded(figure: Path) -> str:
    encoded = base64.b64encode(figure.read_bytes()).decode()
    return f"data:image/svg+xml;base64,{encoded}"


def _section(
    experiment: Experiment, folder: Path, output: Path, image: Callable[[Path], str]
) -> Section:
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    raw = RawData(folder / RAW, experiment)
    results = raw.results(facts["left_out"], facts["missing"])
    section = Section(experiment.name, experiment.question, facts, _problems(results))
    section.files.append(str((folder / RAW).relative_to(output)))
    if results.rows:
        for item in experiment.report(results):
            _add(section, item, folder, output, image)
    return section


def _add(
    section: Section, item: Item, folder: Path, output: Path, image: Callable[[Path], str]
) -> None:
    match item:
        case Finding():
            if item.answer:
                section.answers.append(item.text)
                return
            section.findings.append(item.text)
            if item.headline:
                section.headlines.append(item.text)
        case Check():
            section.checks.append(item)
        case Target():
            section.targets.append(item)
        case Table():
            rows = [[_number(cell) for cell in row] for row in item.rows]
            section.blocks.append(("table", replace(item, rows=rows)))
        case Figure():
            if not any(item.series.values()):
                section.findings.append(
                    f"There is no figure ‘{item.title}’: nothing was measured for it."
                )
                return
            path = draw(item, folder / "figures")
            for each in (path, path.with_suffix(".png")):
                section.files.append(str(each.relative_to(output)))
            shown = ShownFigure(item.title, image(path), _in_words(item))
            if item.answer:
                section.answer_figures.append(shown)
            # A section shows a figure first, and then what follows from it.
            section.blocks.append(("figure", shown))


def _problems(results: Results) -> list[str]:
    """Explain why results are incomplete; empty where complete."""
    problems = [f"Not measured: {name}. {reason}" for name, reason in results.left_out.items()]
    problems += [
        f"{'' if reason.startswith(MACHINE_LIMIT) else 'Failed: '}{name}: {reason}"
        for name, reason in results.failures.items()
    ]
    if results.missing is None:
        problems.append("The run did not end; what is shown is what it had measured until then.")
    elif results.missing:
        verb = "was" if results.missing == 1 else "were"
        problems.append(f"{counted(results.missing, 'measurement')} {verb} not made.")
    return problems


def _in_words(figure: Figure) -> str:
    """Describe a figure by the ends of its series, for screen readers."""
    parts = []
    for name, points in figure.series.items():
        if points:
            first, last = points[0], points[-1]
            parts.append(
                f"{name}: {shown_value(first.y)} at {shown_value(first.x)}, "
                f"{shown_value(last.y)} at {shown_value(last.x)}"
            )
    return f"{figure.title}. {figure.y_label} by {figure.x_label}. " + "; ".join(parts)


def shown_value(value: CellValue) -> str:
    """Format a number with three digits and thousands separators; pass on texts."""
    number = _number(value)
    if number is None or isinstance(number, str):
        return number or "—"
    if isinstance(number, int):
        return f"{number:,}"
    if abs(number) >= 1000:
        return f"{float(f'{number:.3g}'):,.0f}"
    return f"{number:.3g}"


def _number(value: CellValue) -> CellValue:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value) if value.removeprefix("-").isdecimal() else float(value)
    return value


def rounded(value: float) -> str:
    """Round to at most three significant digits, also large numbers."""
    return shown_value(float(f"{value:.3g}"))


def duration(milliseconds: float) -> str:
    """Format a time with its unit."""
    if milliseconds >= 1000:
        return f"{rounded(milliseconds / 1000)} s"
    if 0 < milliseconds < 1:
        return f"{rounded(1000 * milliseconds)} µs"
    return f"{rounded(milliseconds)} ms"


def sentence_list(names: Sequence[str]) -> str:
    """Join names for a sentence."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
