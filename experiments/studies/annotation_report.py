"""What the report says of ``annotation-methods``."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from annotations.labels import Labelling
from annotations.methods import METHODS
from experiments.harness.claims import checks
from experiments.harness.items import Figure, Finding, Item, Point, Table, Target
from experiments.harness.report import duration, rounded
from experiments.harness.results import Results

POLLING = "polling"
ON_PAGE = "on the page"
REWRITTEN = "by rewritten patterns"
NO_LABELLING = "-"
LABELLINGS: tuple[Labelling, ...] = ("expiration", "interval")
_LATER = ("requests", "bytes", "seconds", "client_cpu_ms", "server_cpu_ms", "late_seconds")
_KEYS = ("method", "labelling", "labels", "cache", "latency_ms")


def annotation_items(results: Results) -> Iterator[Item]:
    """Findings, figures, a table, targets, claims."""
    near = results.where(latency_ms="0")
    yield from _headlines(near)
    yield _table(results)
    for labels in (ON_PAGE, REWRITTEN):
        for column, label in (
            ("requests", "requests per evaluation"),
            ("seconds", "seconds per evaluation"),
        ):
            yield Figure(
                f"{column}-{'labels' if labels == ON_PAGE else 'rewritten'}",
                f"Labels {labels}, with the cache", "evaluation", label,
                dict(_over_time(near, column, labels=labels, cache="on")), markers=False,
            )  # fmt: skip
    yield Figure(
        "late", "How late an answer is", "client", "seconds after the publication",
        {"mean": near.where(cache="off").points("method", "late_seconds", numeric=False)},
        kind="bars",
    )  # fmt: skip
    yield from _targets(near)
    yield from _by_latency(results)
    yield from _claims(near)


def _after_the_first(results: Results) -> Results:
    rows = [row for row in results.rows if row["tick"] != "0"]
    return Results(rows, results.left_out, results.failures, results.missing)


def _combinations(results: Results) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(tuple(row[name] for name in _KEYS) for row in results.rows))


def _table(results: Results) -> Table:
    rows: list[Sequence[Any]] = []
    for combination in _combinations(results):
        chosen = results.where(**dict(zip(_KEYS, combination, strict=True)))
        later = _after_the_first(chosen)
        right = chosen.numbers("right")
        later_means = [later.mean(column) for column in _LATER]
        first = chosen.mean("requests", tick=0)
        answers = f"{sum(right):,.0f} of {len(right):,}"
        rows.append((*combination, first, *later_means, answers))
    header = (
        *_KEYS[:-1], "latency, ms", "requests, first", "requests, later",
        "bytes, later", "seconds, later", "CPU of client, ms", "CPU of server, ms", "seconds late",
        "right answers",
    )  # fmt: skip
    return Table("Evaluations: the first one, and the later ones in the mean", header, rows)


def _over_time(results: Results, column: str, **wanted: str) -> Iterator[tuple[str, Any]]:
    chosen = results.where(**wanted)
    for method in chosen.distinct("method"):
        for labelling in chosen.distinct("labelling"):
            each = chosen.where(method=method, labelling=labelling)
            if points := each.points("tick", column):
                yield f"{method}, {labelling}", points


def _headlines(results: Results) -> Iterator[Item]:
    later = _after_the_first(results)
    source = results.distinct("source")[0]
    streamed = {
        method: later.mean("requests", method=method, labels=ON_PAGE, cache="on")
        for method in (each.name for each in METHODS)
    }
    known = {name: value for name, value in streamed.items() if value is not None}
    if known:
        low, high = min(known.values()), max(known.values())
        ends = dict.fromkeys((rounded(low), rounded(high)))
        yield Finding(
            f"With labels on the page, an evaluation of the train query on the {source} recording "
            f"after the first one takes {' to '.join(ends)} requests in the mean, over "
            f"{len(known)} annotation methods and both labellings.",
            headline=True,
        )
    yield from _growth(later)
    for name in later.distinct("method"):
        if name.startswith(POLLING):
            requests = results.numbers("requests", method=name)
            late = results.mean("late_seconds", method=name)
            if requests and late is not None:
                yield Finding(
                    f"A client that polls ({name.removeprefix(f'{POLLING} ')}) sends "
                    f"{rounded(sum(requests) / len(requests))} requests per evaluation, and shows "
                    f"a change {duration(1000 * late)} after its publication in the mean."
                )
    wrong = sum(1 for row in results.rows if row["right"] == "0")
    yield Finding(
        f"{len(results.rows) - wrong:,} of {len(results.rows):,} evaluations gave exactly the "
        "answer of pyoxigraph over the facts that were valid at that instant."
    )


def _growth(later: Results) -> Iterator[Item]:
    """Whether intervals make evaluations slower with history, in requests."""
    for labels in (ON_PAGE, REWRITTEN):
        chosen = later.where(labels=labels, labelling="interval", cache="on")
        quarters = _quarters(chosen)
        if quarters is None:
            continue
        before, after = quarters
        yield Finding(
            f"Intervals, labels {labels}: {rounded(before)} requests per evaluation in the "
            f"first quarter of the time, {rounded(after)} in the last one."
        )


def _quarters(chosen: Results) -> tuple[float, float] | None:
    """Requests per evaluation in the first and in the last quarter of the time."""
    ticks = sorted({int(row["tick"]) for row in chosen.rows})
    if len(ticks) < 4:
        return None
    quarter = len(ticks) // 4
    ends = set(ticks[:quarter]), set(ticks[-quarter:])
    first, last = (
        [float(row["requests"]) for row in chosen.rows if int(row["tick"]) in each] for each in ends
    )
    return sum(first) / len(first), sum(last) / len(last)


def _targets(results: Results) -> Iterator[Target]:
    later = _after_the_first(results)
    means = [
        later.mean("requests", method=method, labelling=labelling, labels=ON_PAGE, cache="on")
        for method in results.distinct("method")
        for labelling in LABELLINGS
    ]
    known = [mean for mean in means if mean is not None]
    yield Target(
        "requests per evaluation of the train query after the first one, largest mean",
        max(known, default=None), 3.0,
        compared="original query streamer: 6–25 for two departures, growing with history",
    )  # fmt: skip


def _by_latency(results: Results) -> Iterator[Item]:
    """What the network adds."""
    later = _after_the_first(results)
    latencies = [each for each in results.distinct("latency_ms") if each]
    if len(latencies) < 2:
        return
    for labels in (ON_PAGE, REWRITTEN):
        series = {}
        for latency in latencies:
            for cache in ("on", "off"):
                chosen = later.where(labels=labels, cache=cache, latency_ms=latency)
                points = [
                    Point(f"{method}, {labelling}", 1000 * mean)
                    for method in chosen.distinct("method")
                    for labelling in LABELLINGS
                    if (mean := chosen.mean("seconds", method=method, labelling=labelling))
                ]
                if points:
                    series[f"{latency} ms away, cache {cache}"] = points
        yield Figure(
            f"latency-{'labels' if labels == ON_PAGE else 'rewritten'}",
            f"An evaluation by the distance of the server, labels {labels}", "annotation method",
            "ms per evaluation after the first", series, kind="bars", log_y=True,
        )  # fmt: skip
        far = max(latencies, key=float)
        means = [later.mean("seconds", labels=labels, latency_ms=each) for each in ("0", far)]
        if means[0] and means[1]:
            yield Finding(
                f"Labels {labels}: an evaluation takes {duration(1000 * means[0])} in the mean, "
                f"and {duration(1000 * means[1])} where the server is {far} ms away."
            )


def _claims(near: Results) -> Iterator[Item]:
    later = _after_the_first(near)
    yield from checks(
        "annotation-methods",
        {
            "expiration": partial(_most_growth, later, "expiration"),
            "interval": partial(_most_growth, later, "interval"),
            "graphs": partial(_of_graphs, later),
        },
    )


def _most_growth(later: Results, labelling: str) -> float | None:
    """Of the methods of reading labels, with the cache."""
    found = [
        _quarters(later.where(labels=labels, labelling=labelling, cache="on"))
        for labels in (ON_PAGE, REWRITTEN)
    ]
    return max((after / before for before, after in filter(None, found) if before), default=None)


def _of_graphs(later: Results) -> float | None:
    chosen = later.where(labels=REWRITTEN, cache="on")
    means = {name: chosen.mean("seconds", method=name) for name in chosen.distinct("method")}
    graphs = means.pop("named-graph", None)
    others = [mean for mean in means.values() if mean]
    return graphs / min(others) if graphs and others else None
