"""Figures as SVG and PNG."""

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from experiments.harness.items import Figure, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# In inches; letters are as large as that because a page of 360 pixels shows it whole.
_SIZE = (5.2, 4.4)
_LEGEND_CHARACTERS = 66
_TITLE_CHARACTERS = 56
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
        axes.set_ylabel(figure.y_label)
        title = "\n".join(textwrap.wrap(figure.title, _TITLE_CHARACTERS))
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
    axis.set_minor_formatter(written if few else NullFormatter())


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


def _limited(axes: "Axes", places: Sequence[tuple[float, float]]) -> None:
    """Ring the points at which the machine was the limit."""
    if places:
        axes.plot(
            [x for x, _ in places], [y for _, y in places],
            label="the machine was the limit", linestyle="none", marker="o", markersize=11,
            markerfacecolor="none", markeredgecolor="#555555",
        )  # fmt: skip


def _marks(axes: "Axes", figure: Figure) -> None:
    """Draw values of others, measured on other hardware: hollow, without lines."""
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
    places: dict[str, int] = {}
    # The order of one that has all, where there is one.
    for points in sorted(figure.series.values(), key=len, reverse=True):
        for point in points:
            places.setdefault(str(point.x), len(places))
    width = 0.8 / max(1, len(figure.series))
    colours = [_colour(place) for place in _places(figure)]
    limited = []
    for number, (name, points) in enumerate(figure.series.items()):
        offset = (number - (len(figure.series) - 1) / 2) * width
        xs = [places[str(point.x)] + offset for point in points]
        limited += [(x, p.y) for x, p in zip(xs, points, strict=True) if p.limited]
        axes.bar(
            xs, [point.y for point in points], width, yerr=_errors(points), label=name,
            capsize=1.5, error_kw={"linewidth": 0.8}, color=colours[number],
        )  # fmt: skip
    _limited(axes, limited)
    long = max((len(name) for name in places), default=0) * len(places) > 60
    axes.set_xticks(
        range(len(places)), list(places),
        rotation=35 if long else 0, ha="right" if long else "center",
    )  # fmt: skip
    axes.grid(visible=False, axis="x")


def _places(figure: Figure) -> list[int]:
    """Return the colour number of each series: its own, or an unused one."""
    free = (place for place in itertools.count() if place not in figure.places.values())
    return [figure.places[name] if name in figure.places else next(free) for name in figure.series]


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def _errors(points: Sequence[Point]) -> list[list[float]] | None:
    if all(point.low is None or point.high is None for point in points):
        return None
    below = [point.y - point.low if point.low is not None else 0.0 for point in points]
    above = [point.high - point.y if point.high is not None else 0.0 for point in points]
    return [below, above]
