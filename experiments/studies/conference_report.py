"""What the report says of ``conference``."""

from collections.abc import Iterator
from functools import partial

from experiments.harness.claims import checks
from experiments.harness.items import Figure, Finding, Item, Point, Table, Target
from experiments.harness.report import duration, rounded
from experiments.harness.results import Results
from experiments.studies.boards import CQELS_MODE, CSPARQL_MODE, PLACES

# Microseconds of the original engines, on other machines, with 10^5 static triples: CQELS for each
# event, published in 2011, measured again (paced at 100 events per second); C-SPARQL for each
# evaluation.
_PUBLISHED = {"Q1": 470.0, "Q2": 3900.0, "Q3": 510.0, "Q4": 530.0, "Q5": 21_830.0}
_ORIGINAL = {"Q1": 243.0, "Q2": 553.0, "Q3": 371.0, "Q4": 417.0, "Q5": 1058.0}
_PUBLISHED_PERIODIC = {
    "Q1": 332_460.0, "Q2": 99_840.0, "Q3": 331_680.0, "Q4": 395_180.0, "Q5": 322_640.0,
}  # fmt: skip
# The original CQELS, with 10, 100 and 1,000 queries at the same time.
_ORIGINAL_TOGETHER = {
    "Q1": (2_300.0, 10_500.0, 53_000.0),
    "Q3": (3_200.0, 16_200.0, 80_000.0),
    "Q4": (3_500.0, 13_100.0, 118_000.0),
}
_STATIC = 100_000.0
_BY_PAPER = "published 2011, another machine"
_ORIGINALLY = "original, another machine"
_LABEL = "CPU per execution (µs)"


def conference_items(results: Results) -> Iterator[Item]:
    """Figures 4 and 5, findings, tables, targets, claims."""
    single = results.where(instances=1)
    sizes = sorted(single.distinct("static"), key=int)
    for query in single.distinct("query"):
        yield Figure(
            f"static-{query}", f"{query} by the size of the static data", "static triples", _LABEL,
            _series(single, "static", query),
            log_x=True, log_y=True, places=PLACES,
            marks={
                (_BY_PAPER, CQELS_MODE.name): [Point(_STATIC, _PUBLISHED[query])],
                (_ORIGINALLY, CQELS_MODE.name): [Point(_STATIC, _ORIGINAL[query])],
                (_BY_PAPER, CSPARQL_MODE.name): [Point(_STATIC, _PUBLISHED_PERIODIC[query])],
            },
        )  # fmt: skip
    together = _together(results)
    for query, measured in _ORIGINAL_TOGETHER.items():
        series = _series(together, "instances", query)
        if any(len(points) > 1 for points in series.values()):
            points = [Point(n, us) for n, us in zip((10, 100, 1000), measured, strict=True)]
            yield Figure(
                f"instances-{query}", f"{query} by the number of queries at the same time",
                "queries", _LABEL, series, log_x=True, log_y=True, places=PLACES,
                marks={(_ORIGINALLY, CQELS_MODE.name): points},
            )  # fmt: skip
    yield from _findings(single, together)
    yield _table(results)
    ours = single.where(engine=CQELS_MODE.name)
    for name, original in _ORIGINAL.items():
        column = "us_per_row" if name == "Q2" else "us_mean"
        yield Target(
            f"{name}: µs per {'row' if name == 'Q2' else 'event'}, least of all static sizes",
            _least(ours, name, column), 3.0 if name == "Q2" else 10.0,
            compared=f"original engine, on another machine: {original:.0f} µs per event",
        )  # fmt: skip
    for name, (_, _, last) in _ORIGINAL_TOGETHER.items():
        many = [
            median
            for count in ("1000", "1024")
            if (
                median := together.median(
                    "us_mean", engine=CQELS_MODE.name, query=name, instances=count
                )
            )
        ]
        yield Target(
            f"{name}, 1,000 queries: µs per event", min(many, default=None), 100.0,
            compared=f"original engine, on another machine: {last:,.0f}",
        )  # fmt: skip
    yield from checks(
        "conference",
        {
            **{name: partial(_at_the_papers_size, ours, name) for name in _PUBLISHED},
            "C-SPARQL": partial(_periodic_ratio, single),
            "flat": partial(_growth, ours, sizes),
            "instances": partial(_with_most, together),
        },
    )


def _series(results: Results, x: str, query: str) -> dict[str, list[Point]]:
    """Medians over repetitions and constants: one collection of garbage makes a mean useless."""
    return {
        engine: points
        for engine in results.distinct("engine")
        if (points := results.medians(x, "execution_us", engine=engine, query=query))
    }


def _together(results: Results) -> Results:
    """By the number of queries: all with the same static data."""
    many = {row["static"] for row in results.rows if row["instances"] != "1"}
    rows = [row for row in results.rows if row["static"] in many]
    return Results(rows, results.left_out, results.failures, results.missing)


def _findings(single: Results, together: Results) -> Iterator[Finding]:
    for name in single.distinct("query"):
        ours = _at_the_papers_size(single.where(engine=CQELS_MODE.name), name)
        theirs = _execution(single, CSPARQL_MODE.name, name)
        if not ours:
            continue
        text = (
            f"{name}: {rounded(ours)} µs per event in CQELS; on another machine the original "
            f"engine took {rounded(_ORIGINAL[name])} µs"
        )
        if theirs is not None:
            text += f"; {duration(theirs / 1000)} per evaluation in C-SPARQL"
        yield Finding(f"{text}.")
    for name in together.distinct("query"):
        points = together.medians("instances", "us_mean", engine=CQELS_MODE.name, query=name)
        if len(points) > 1 and points[0].y:
            yield Finding(
                f"{name}: {points[-1].x:,.0f} queries at the same time take "
                f"{rounded(points[-1].y / points[0].y)} times as long for an event as "
                f"{points[0].x:,.0f} in CQELS.",
                headline=True,
            )


def _least(ours: Results, name: str, column: str) -> float | None:
    found = [ours.median(column, query=name, static=size) for size in ours.distinct("static")]
    return min((middle for middle in found if middle is not None), default=None)


def _at_the_papers_size(ours: Results, name: str) -> float | None:
    return ours.median("us_mean", query=name, static=int(_STATIC))


def _execution(single: Results, engine: str, name: str) -> float | None:
    return single.median("execution_us", engine=engine, query=name, static=int(_STATIC))


def _periodic_ratio(single: Results) -> float | None:
    ratios = []
    for name in single.distinct("query"):
        ours, theirs = (_execution(single, mode.name, name) for mode in (CQELS_MODE, CSPARQL_MODE))
        if ours and theirs:
            ratios.append(theirs / ours)
    return max(ratios, default=None)


def _growth(ours: Results, sizes: list[str]) -> float | None:
    ratios = []
    for name in ours.distinct("query"):
        ends = [ours.median("us_mean", query=name, static=size) for size in (sizes[0], sizes[-1])]
        if name != "Q2" and ends[0] and ends[1] and len(sizes) > 1:
            ratios.append(ends[1] / ends[0])
    return max(ratios, default=None)


def _with_most(together: Results) -> float | None:
    """Milliseconds with as many queries as the paper has, if there were."""
    ours = together.where(engine=CQELS_MODE.name)
    points = [
        points[-1]
        for name in ours.distinct("query")
        if (points := ours.medians("instances", "us_mean", query=name))
    ]
    return max((point.y / 1000 for point in points if float(point.x) >= 1000), default=None)


def _table(results: Results) -> Table:
    columns = {
        "execution_us": "CPU per execution, µs",
        "us_mean": "CPU per event, µs",
        "us_p50": "event, median µs",
        "us_p99": "99 %",
        "rows": "rows",
        "us_per_row": "CPU per row, µs",
        "registration_seconds": "registration, s",
    }
    rows = []
    for engine in results.distinct("engine"):
        for size in results.distinct("static"):
            for name in results.distinct("query"):
                chosen = results.where(engine=engine, static=size, query=name)
                for count in chosen.distinct("instances"):
                    middles = [chosen.median(column, instances=count) for column in columns]
                    rows.append((engine, name, int(size), int(count), *middles))
    header = ("engine", "query", "static triples", "queries", *columns.values())
    return Table("Executions (medians)", header, rows)
