"""The report: one self-contained HTML file of all results in a folder."""

import base64
import itertools
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import matplotlib as mpl

from annotations.wording import counted
from experiments.errors import ConfigurationError
from experiments.harness.claims import unmeasured
from experiments.harness.items import CellValue, Check, Figure, Finding, Item, Point, Table, Target
from experiments.harness.results import MACHINE_LIMIT, NOT_HERE, Experiment, RawData, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


# Figures as SVG and PNG.

# In inches; letters are as large as that because a page of 360 pixels shows it whole.
_SIZE = (5.2, 4.4)
_LEGEND_CHARACTERS = 66
_TITLE_CHARACTERS = 56
_LABEL_CHARACTERS = 30
_LONG_NUMBER = 1_000_000
_FEW_DECADES = 300
_MARKERS = "os^Dv<>Pp*hX"
# Told apart by people who see colours differently, after Okabe and Ito 2008.
_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a8a00",
    "#7f7f7f", "#8c564b",
)  # fmt: skip
_STYLE: Any = {
    "svg.hashsalt": "tpf-experiments",  # the same data give the same file
    "svg.fonttype": "none",  # text stays text: smaller, and it can be searched
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "figure.constrained_layout.use": True,
}


def draw(figure: Figure, folder: Path) -> Path:
    """Draw a figure as ``{name}.svg`` and ``{name}.png``; return the former's path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{figure.name}.svg"
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=_SIZE)
        FigureCanvasAgg(canvas)
        axes = canvas.add_subplot()
        if figure.kind == "bars":
            _bars(axes, figure)
        else:
            _lines(axes, figure)
        axes.set_xlabel(figure.x_label)
        axes.set_ylabel(textwrap.fill(figure.y_label, _LABEL_CHARACTERS))
        title = textwrap.fill(figure.title, _TITLE_CHARACTERS)
        axes.set_title(title, loc="left", fontsize="medium")
        if figure.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        for logarithmic, axis in ((figure.log_x, axes.xaxis), (figure.log_y, axes.yaxis)):
            if logarithmic:
                _plain_numbers(axis)
        labels = axes.get_legend_handles_labels()[1]
        if len(labels) > 1:
            # Below the axes, where it hides nothing.
            longest = max(len(name) for name in labels)
            canvas.legend(
                fontsize="small", frameon=False, loc="outside lower center",
                ncols=max(1, min(len(labels), _LEGEND_CHARACTERS // (longest + 6))),
            )  # fmt: skip
        canvas.savefig(path.with_suffix(".png"), dpi=130)
        canvas.set_layout_engine("none")  # places are found once for both files
        canvas.savefig(path, format="svg", metadata={"Date": None})
    return path


def _plain_numbers(axis: "Axis") -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    few = high / low < _FEW_DECADES
    written = FuncFormatter(lambda value, _place: f"{value:,.10g}")
    axis.set_major_formatter(written)
    axis.set_minor_locator(LogLocator(subs=(2, 3, 5) if few else "auto"))
    # Beside each other long numbers would overlap.
    crowded = axis is axis.axes.xaxis and high >= _LONG_NUMBER and high / low >= 10
    axis.set_minor_formatter(written if few and not crowded else NullFormatter())


def _lines(axes: "Axes", figure: Figure) -> None:
    for number, (name, points) in zip(_places(figure), figure.series.items(), strict=True):
        xs = [float(point.x) for point in points]
        ys = [point.y for point in points]
        if not figure.markers:
            axes.plot(xs, ys, label=name, linewidth=1.0, color=_colour(number))
            continue
        marker = _MARKERS[number % len(_MARKERS)]
        axes.errorbar(
            xs, ys, yerr=_errors(points), label=name, marker=marker, markersize=4,
            linewidth=1.2, capsize=2.5, color=_colour(number),
        )  # fmt: skip
    _limited(
        axes,
        [
            (float(point.x), point.y)
            for points in figure.series.values()
            for point in points
            if point.limited
        ],
    )
    _marks(axes, figure)
    if figure.log_x:
        axes.set_xscale("log")


def _limited(axes: "Axes", points: Sequence[tuple[float, float]]) -> None:
    if points:
        axes.plot(
            [x for x, _ in points], [y for _, y in points],
            label="the machine was the limit", linestyle="none", marker="o", markersize=11,
            markerfacecolor="none", markeredgecolor="#555555",
        )  # fmt: skip


def _marks(axes: "Axes", figure: Figure) -> None:
    numbers = dict(zip(figure.series, _places(figure), strict=True))
    whose = list(dict.fromkeys(name for name, _ in figure.marks))
    for (name, series), points in figure.marks.items():
        number = numbers.get(series)
        shape = "Xdh*P"[whose.index(name) % 5]
        axes.plot(
            [float(point.x) for point in points], [point.y for point in points],
            label=f"{name}: {series}, other hardware", linestyle="none", marker=shape,
            markersize=7, markerfacecolor="none",
            markeredgecolor="#555555" if number is None else _colour(number),
        )  # fmt: skip


def _bars(axes: "Axes", figure: Figure) -> None:
    positions: dict[str, int] = {}
    # The order of one that has all, where there is one.
    for points in sorted(figure.series.values(), key=len, reverse=True):
        for point in points:
            positions.setdefault(str(point.x), len(positions))
    width = 0.8 / max(1, len(figure.series))
    colours = [_colour(place) for place in _places(figure)]
    limited = []
    for number, (name, points) in enumerate(figure.series.items()):
        offset = (number - (len(figure.series) - 1) / 2) * width
        xs = [positions[str(point.x)] + offset for point in points]
        limited += [(x, p.y) for x, p in zip(xs, points, strict=True) if p.limited]
        axes.bar(
            xs, [point.y for point in points], width, yerr=_errors(points), label=name,
            capsize=1.5, error_kw={"linewidth": 0.8}, color=colours[number],
        )  # fmt: skip
    _limited(axes, limited)
    long = max((len(name) for name in positions), default=0) * len(positions) > 60
    axes.set_xticks(
        range(len(positions)), list(positions),
        rotation=35 if long else 0, ha="right" if long else "center",
    )  # fmt: skip
    axes.grid(visible=False, axis="x")


def _places(figure: Figure) -> list[int]:
    free = (place for place in itertools.count() if place not in figure.places.values())
    return [figure.places[name] if name in figure.places else next(free) for name in figure.series]


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _errors(points: Sequence[Point]) -> list[list[float]] | None:
    if all(point.low is None or point.high is None for point in points):
        return None
    below = [point.y - point.low if point.low is not None else 0.0 for point in points]
    above = [point.high - point.y if point.high is not None else 0.0 for point in points]
    return [below, above]


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
    unmade: list[str]
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
    if not output.is_dir():
        raise ConfigurationError(f"there are no results in {output}")
    path = output / REPORT
    experiments = list(experiments)
    measured = sections(output, experiments, _embedded)
    path.write_text(render_report(measured, checks_of(measured, experiments)), encoding="utf-8")
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
    checks = [check for section in sections for check in section.checks] + unmeasured(absent)
    return sorted(checks, key=lambda check: check.claim.paper)


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
    # One that was resumed elsewhere names all.
    processors = dict.fromkeys(
        each for one in sections for each in one.facts["machine"]["processor"].split(", ")
    )
    commits = sorted(
        {each for one in sections for each in one.facts["versions"]["commit"].split(", ")}
    )
    took = [each for one in sections if (each := one.facts.get("seconds")) is not None]
    text = (
        f"{' to '.join(dict.fromkeys((days[0], days[-1])))}: {sentence_list([*processors])}, "
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
    section = Section(
        experiment.name, experiment.question, facts, _problems(results), _unmade(results)
    )
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
    problems = [f"Not measured: {name}. {reason}" for name, reason in results.left_out.items()]
    by_reason: dict[str, list[str]] = {}
    for name, reason in results.failures.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        lead = "" if reason.startswith((MACHINE_LIMIT, NOT_HERE)) else "Failed: "
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        problems.append(f"{lead}{names[0]}{more}: {reason}")
    if results.missing is None:
        problems.append("The run did not end; what is shown is what it had measured until then.")
    elif results.missing:
        verb = "was" if results.missing == 1 else "were"
        problems.append(f"{counted(results.missing, 'measurement')} {verb} not made.")
    return problems


def _unmade(results: Results) -> list[str]:
    """Say in short what was not measured."""
    count = len(results.failures) + (results.missing or 0)
    texts = [f"{counted(count, 'measurement')} could not be made."] if count else []
    if results.left_out:
        texts.append(f"Not measured: {'; '.join(results.left_out)}.")
    return texts + ["The run did not end."] * (results.missing is None)


def _in_words(figure: Figure) -> str:
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
