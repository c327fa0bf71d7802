"""What the report of ``fragments`` says."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from experiments.harness.items import Figure, Finding, Item, Table, Target
from experiments.harness.measurement import CellValue
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.studies.fragment_requests import FORMATS, NOT_MODIFIED, PATTERNS, SELDOM
from experiments.studies.fragment_servers import CONSTANT, OURS, REFERENCE

_RATE = "requests_per_second"

# DESIGN targets in CPU milliseconds per request, and the reference server with HDT as measured on
# a machine like the one that the targets were set for.
_TARGETS = {
    ("TriG", "first page"): (0.25, 0.54),
    ("TriG", "predicate"): (0.25, 0.56),
    ("TriG", "subject"): (0.15, 0.28),
    ("TriG", "existence"): (0.10, 0.20),
    ("TriG", "deep page"): (0.25, 6.7),
    ("HTML", "first page"): (1.5, 30.0),
    ("JSON-LD", "first page"): (0.5, 2.3),
    ("TriG", NOT_MODIFIED): (0.08, None),
    ("TriG", SELDOM): (0.5, None),
}

# The same as ratios of medians to the reference server in the same run.
_RATIOS = {
    ("TriG", "first page"): 0.5,
    ("TriG", "predicate"): 0.5,
    ("TriG", "subject"): 0.5,
    ("TriG", "predicate+object"): 0.5,
    ("TriG", "existence"): 0.5,
    ("TriG", "deep page"): 0.05,
    ("JSON-LD", "first page"): 0.15,
    ("HTML", "first page"): 0.03,
}


def fragments_report(results: Results) -> Iterator[Item]:
    """Cost per request by pattern and by format, start and memory, targets."""
    first = results.distinct("triples")[0]
    main = results.where(triples=first)
    yield from _headlines(main)
    yield Figure(
        "cpu-by-pattern", f"TriG, {int(first):,} triples, pages of 100", "pattern",
        "server CPU per request, ms",
        dict(main.series("server", "pattern", "cpu_ms", numeric=False, format="TriG")),
        kind="bars", log_y=True,
    )  # fmt: skip
    yield Figure(
        "cpu-by-format", f"First page, {int(first):,} triples", "format",
        "server CPU per request, ms",
        dict(main.series("server", "format", "cpu_ms", numeric=False, pattern="first page")),
        kind="bars", log_y=True,
    )  # fmt: skip
    yield Figure(
        "requests-per-second", f"TriG, {int(first):,} triples, one worker", "pattern",
        "requests per second",
        dict(main.series("server", "pattern", _RATE, numeric=False, format="TriG")),
        kind="bars",
    )  # fmt: skip
    if len(results.distinct("triples")) > 1:
        yield Figure(
            "cpu-by-size", "TriG, ours", "triples", "server CPU per request, ms",
            dict(results.series("pattern", "triples", "cpu_ms", server=OURS, format="TriG")),
            log_x=True,
        )  # fmt: skip
    yield _all_requests(main)
    yield _starts(results)
    for (form, pattern), (limit, reference) in _TARGETS.items():
        known = "" if reference is None else f"reference server with HDT on 1 M: {reference:g}"
        yield Target(
            f"CPU ms per request, {form}, {pattern}, {int(first):,} triples",
            main.mean("cpu_ms", server=OURS, pattern=pattern, format=form),
            limit,
            compared=known,
        )
    for (form, pattern), limit in _RATIOS.items():
        asked = main.where(pattern=pattern, format=form)
        ours, theirs = (asked.numbers("cpu_ms", server=name) for name in (OURS, REFERENCE))
        yield Target(
            f"CPU of a request by that of the reference server, {form}, {pattern}",
            median(ours) / median(theirs) if ours and theirs else None,
            limit,
        )
    largest = results.distinct("triples")[-1]
    yield Target(
        f"seconds until the server answers, {int(largest):,} triples",
        results.mean("start_seconds", triples=largest, server=OURS), 1.0,
        compared="reference server: 2",
    )  # fmt: skip
    yield Target(
        f"MiB of memory of the worker at its start, {int(largest):,} triples",
        results.mean("start_memory_mib", triples=largest, server=OURS), 120.0,
        compared="reference server: 130–300 on 1 M",
    )  # fmt: skip


def _headlines(main: Results) -> Iterator[Item]:
    ours = main.mean("cpu_ms", server=OURS, pattern="first page", format="TriG")
    other = main.mean("cpu_ms", server=REFERENCE, pattern="first page", format="TriG")
    floor = main.mean("cpu_ms", server=CONSTANT, pattern="first page", format="TriG")
    triples = int(main.distinct("triples")[0])
    if ours is not None:
        text = (
            f"One worker of the fragment server spends {rounded(ours)} ms of CPU on the first page "
            f"of {triples:,} triples (TriG, 100 triples)"
        )
        if floor:
            text += f", {rounded(ours / floor)} times what a constant Flask view of that size takes"
        if other:
            kind = main.where(server=REFERENCE).distinct("kind")[0]
            text += f"; {kind} spends {rounded(other)} ms, {rounded(other / ours)} times as much"
        yield Finding(text + ".", headline=True)
    ratios = {
        (row.x, form): row.y / theirs
        for form in FORMATS
        for row in main.points("pattern", "cpu_ms", numeric=False, server=REFERENCE, format=form)
        if (theirs := main.mean("cpu_ms", server=OURS, pattern=str(row.x), format=form))
    }
    if ratios:
        low, high = min(ratios, key=lambda k: ratios[k]), max(ratios, key=lambda k: ratios[k])
        yield Finding(
            f"Over {len(ratios)} pairs of pattern and format the reference server's CPU per "
            f"request is between {rounded(ratios[low])} ({low[0]}, {low[1]}) and "
            f"{rounded(ratios[high])} times ours ({high[0]}, {high[1]})."
        )


def _all_requests(main: Results) -> Table:
    rows: list[Sequence[Any]] = []
    for pattern in (*PATTERNS, SELDOM, NOT_MODIFIED):
        for form in FORMATS:
            ours = main.mean("cpu_ms", server=OURS, pattern=pattern, format=form)
            for name in main.distinct("server"):
                chosen = main.where(server=name, pattern=pattern, format=form)
                if chosen.rows:
                    figures = (
                        "cpu_ms", "requests_per_second", "p50_ms", "p99_ms", "body_bytes",
                    )  # fmt: skip
                    means = [chosen.mean(column) for column in figures]
                    times = means[0] / ours if means[0] is not None and ours else None
                    rows.append((pattern, form, chosen.distinct("kind")[0], times, *means))
    header = (
        "pattern", "format", "server", "times our CPU", "CPU ms", "requests/s", "p50 ms", "p99 ms",
        "bytes",
    )  # fmt: skip
    return Table("Every kind of request", header, rows)


def _starts(results: Results) -> Table:
    rows: list[Sequence[CellValue]] = []
    for triples in results.distinct("triples"):
        for name in results.distinct("server"):
            starts = results.where(pattern="start", triples=triples, server=name)
            if starts.rows:
                figures = [starts.mean(c) or 0.0 for c in ("start_seconds", "start_memory_mib")]
                # Memory grows as requests touch more of the store.
                figures += [max(starts.numbers(c)) for c in ("memory_mib", "mapped_mib")]
                rows.append((f"{int(triples):,}", starts.distinct("kind")[0], *figures))
    header = (
        "triples", "server", "seconds to the first answer", "MiB of the worker then",
        "MiB after the requests", "of those, pages of the store",
    )  # fmt: skip
    return Table("Start, and memory", header, rows)
