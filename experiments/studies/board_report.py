"""What the report says of ``server-vs-client``."""

from collections.abc import Iterator, Sequence
from typing import Any

from annotations.wording import counted
from experiments.harness.items import Figure, Finding, Item, Table, Target
from experiments.harness.report import duration, rounded, sentence_list, times_less
from experiments.harness.results import Results
from experiments.studies.board_answer import answers, is_busy, marked, sums_by_size, used
from experiments.studies.board_claims import claims
from experiments.studies.board_modes import (
    CACHED,
    CQELS_MODE,
    CSPARQL_MODE,
    PLACES,
    REWRITING,
    SPARK_MODE,
    STREAMER,
)

_MAIN_SIZE = "200"
_MAIN = (STREAMER.name, CACHED.name, CQELS_MODE.name, CSPARQL_MODE.name)
_ENGINES = (CQELS_MODE.name, CSPARQL_MODE.name, SPARK_MODE.name)
_METHODS = tuple(mode.name for mode in REWRITING)


def board_items(results: Results) -> Iterator[Item]:
    """Findings, figures, a table and the targets."""
    totals = results.where(kind="total")
    yield from answers(totals, _calm_size(totals))
    yield from _headlines(totals)
    yield from _figures(totals)
    yield from _over_time(results, totals)
    yield _table(totals)
    yield from _incomplete(totals)
    yield from _saturated(totals)
    yield from _targets(totals)
    yield from claims(totals, _calm_size(totals))


def _size_of(totals: Results, *modes: str) -> str | None:
    """200 queries, or the most that all these modes were measured with."""
    sizes = [set(totals.where(mode=mode).distinct("queries")) for mode in modes]
    common = set.intersection(*sizes)
    if not common:
        return None
    return _MAIN_SIZE if _MAIN_SIZE in common else max(common, key=int)


def _calm_size(totals: Results) -> str | None:
    """As `_size_of`, but where the machine was no limit, if there is such a size."""
    there = [mode for mode in _ENGINES[:2] if totals.where(mode=mode).rows]
    modes = (STREAMER.name, *there)
    busy = {row["queries"] for row in totals.rows if row["mode"] in modes and is_busy(row)}
    calm = Results([row for row in totals.rows if row["queries"] not in busy], {}, {})
    return _size_of(calm, *modes) or _size_of(totals, *modes)


def _headlines(totals: Results) -> Iterator[Finding]:
    there = [mode for mode in _ENGINES if _size_of(totals, STREAMER.name, mode)]
    for mode in there:
        size = _size_of(totals, STREAMER.name, mode)
        cpu = totals.mean("server_percent", mode=STREAMER.name, queries=size)
        other = totals.mean("server_percent", mode=mode, queries=size)
        if cpu and other:
            yield Finding(
                f"Server: with {size} clients the fragment server needs "
                f"{times_less(other / cpu)} CPU than a server in {mode}: "
                f"{rounded(cpu)} % of a core against {rounded(other)} %, publishing included.",
                headline=True,
            )
    yield from _behind_cache(totals)
    # Spark runs fewer queries than the others are compared with.
    yield from _clients(totals, [mode for mode in there if mode != SPARK_MODE.name])
    if SPARK_MODE.name in there:
        yield from _clients(totals, [SPARK_MODE.name])
    for mode in there:
        yield from _break_even(totals, mode)


def _behind_cache(totals: Results) -> Iterator[Finding]:
    size = _size_of(totals, STREAMER.name, CACHED.name)
    cpu = totals.mean("server_percent", mode=CACHED.name, queries=size)
    cache = totals.mean("cache_percent", mode=CACHED.name, queries=size)
    if size and cpu is not None and cache is not None:
        yield Finding(
            f"Behind nginx as a cache the fragment server needs {rounded(cpu)} % of a core with "
            f"{size} clients, and nginx {rounded(cache)} %.",
            headline=True,
        )


def _clients(totals: Results, engines: Sequence[str]) -> Iterator[Finding]:
    size = _size_of(totals, STREAMER.name, *engines)
    if size is None:
        return
    parts = []
    for mode in (STREAMER.name, *engines):
        steady = totals.mean("clients_percent", mode=mode, queries=size)
        start = totals.mean("start_client_cpu_s", mode=mode, queries=size)
        latency = totals.mean("latency_p50_ms", mode=mode, queries=size)
        if steady is None or start is None or latency is None:
            return
        each = 10 * steady / int(size)
        parts.append(
            f"{rounded(each)} ms of CPU per second, {rounded(1000 * start / int(size))} ms once to "
            f"start, and an answer {duration(latency)} after its publication in the median ({mode})"
        )
    yield Finding(f"What a client pays, of {size}: {'; '.join(parts)}.", headline=True)


def _break_even(totals: Results, mode: str) -> Iterator[Finding]:
    """Where the server's CPU, and that of both sides together, is lower with fragments."""
    for what, columns in (
        ("the server's CPU", ("server_percent",)),
        ("the CPU of server and clients together", ("server_percent", "clients_percent")),
    ):
        ours, theirs = (sums_by_size(totals, each, columns) for each in (STREAMER.name, mode))
        both = sorted(set(ours) & set(theirs))
        if not both:
            continue
        cheaper = [f"{n:,.0f}" for n in both if ours[n] < theirs[n]]
        dearer = [f"{n:,.0f}" for n in both if ours[n] >= theirs[n]]
        text = f"Break-even with {mode}: {what} is lower with fragments "
        if cheaper and dearer:
            text += f"at {sentence_list(cheaper)} queries, and not at {sentence_list(dearer)}."
        else:
            sizes = sentence_list(cheaper or dearer)
            text += f"at {'all' if cheaper else 'none'} of the measured {sizes} queries."
        yield Finding(text, headline=True)


def _figures(totals: Results) -> Iterator[Figure]:
    main = Results([row for row in totals.rows if row["mode"] not in _METHODS], {}, {})
    x = "concurrent queries"
    for name, column, title, label in (
        ("server-cpu", "server_percent", "CPU of the server", "% of a core"),
        ("client-cpu", "client_percent", "CPU of a client process after the start", "% of a core"),
        (
            "client-cpu-first", "client_first_percent",
            "CPU of a client process in the first seconds", "% of a core",
        ),
        ("latency", "latency_p50_ms", "From publication to the answer, median", "ms"),
        ("bytes", "bytes_per_second", "Received by all clients", "bytes per second"),
        ("memory", "server_memory_mib", "Memory of the server's largest process", "MiB"),
    ):  # fmt: skip
        rates = _with_rates(main)
        series = marked(rates, "queries", dict(rates.series("mode", "queries", column)))
        yield Figure(
            name, title, x, label, series, log_x=True, log_y=name in ("server-cpu", "bytes"),
            places=PLACES, answer=name in ("server-cpu", "client-cpu"),
        )  # fmt: skip
    methods = Results([row for row in totals.rows if row["mode"] in _METHODS], {}, {})
    for size in methods.distinct("queries"):
        chosen = methods.where(queries=size)
        series = {
            what: chosen.points("mode", column, numeric=False)
            for what, column in (
                ("server", "server_percent"), ("all clients", "clients_percent"),
            )
        }  # fmt: skip
        yield Figure(
            f"methods-{size}", f"{size} queries, patterns rewritten by annotation method",
            "annotation method", "CPU, % of a core", series, kind="bars",
        )  # fmt: skip


def _with_rates(totals: Results) -> Results:
    """The same rows, with what was received per second."""
    rows = []
    for row in totals.rows:
        rate = float(row["bytes"]) / float(row["seconds"]) if row["bytes"] else None
        rows.append({**row, "bytes_per_second": "" if rate is None else str(rate)})
    return Results(rows, {}, {})


def _over_time(results: Results, totals: Results) -> Iterator[Figure]:
    modes = [mode for mode in _MAIN if totals.where(mode=mode).rows]
    size = _size_of(totals, *modes) if modes else None
    if size is None:
        return
    chosen = results.where(kind="second", queries=size)
    rows = [row for row in chosen.rows if row["mode"] in modes]
    for side, what in (("server", "the server"), ("client", "a client process")):
        yield Figure(
            f"{side}-over-time", f"CPU of {what} over time, {size} queries", "second",
            "% of a core",
            dict(Results(rows, {}, {}).series("mode", "second", f"{side}_percent")),
            markers=False, places=PLACES,
        )  # fmt: skip


def _table(totals: Results) -> Table:
    columns = {
        "server_percent": "server, % of a core",
        "cache_percent": "cache, %",
        "client_first_percent": "a client process at first, %",
        "client_percent": "and later, %",
        "start_seconds": "until all had answers, s",
        "start_server_cpu_s": "server CPU for that, s",
        "latency_p50_ms": "latency, median ms",
        "latency_p95_ms": "95 %",
        "completeness": "completeness",
        "requests": "requests",
        "bytes": "bytes",
        "seconds": "in so many seconds",
        "failed": "failed",
        "server_memory_mib": "server MiB",
    }
    rows: list[Sequence[Any]] = []
    for mode in totals.distinct("mode"):
        for size in totals.where(mode=mode).distinct("queries"):
            chosen = totals.where(mode=mode, queries=size)
            rows.append((mode, int(size), *(chosen.mean(column) for column in columns)))
    return Table("All modes", ("mode", "queries", *columns.values()), rows)


def _incomplete(totals: Results) -> Iterator[Finding]:
    for mode in totals.distinct("mode"):
        chosen = totals.where(mode=mode)
        complete = chosen.numbers("completeness")
        failed = sum(chosen.numbers("failed"))
        why = [text for text in chosen.distinct("why") if text]
        reasons = f" ({'; '.join(why[:2])})" if failed and why else ""
        if complete and (min(complete) < 0.999 or failed):
            yield Finding(
                f"{mode}: at least {rounded(100 * min(complete))} % of the expected rows of each "
                f"renewal arrived; {failed:,.0f} evaluations failed{reasons}."
            )


def _saturated(totals: Results) -> Iterator[Finding]:
    """Where the machine itself was the limit."""
    found = [
        f"{row['mode']} with {int(row['queries']):,} ({rounded(used(row))} %)"
        for row in totals.rows
        if is_busy(row)
    ]
    if found:
        yield Finding(
            "All processes together kept the cores of the machine nearly busy in "
            f"{counted(len(found), 'case')}, in which latency tells of that: "
            f"{sentence_list(found)}."
        )


def _targets(totals: Results) -> Iterator[Target]:
    for mode, limit in ((STREAMER.name, 2.0), (CACHED.name, 0.5)):
        yield Target(
            f"CPU of the server with 200 queries, % of a core, {mode}",
            totals.mean("server_percent", mode=mode, queries=_MAIN_SIZE), limit,
            compared="paper: < 1 % of 12 cores",
        )  # fmt: skip
    for mode in _ENGINES:
        size = _size_of(totals, STREAMER.name, mode)
        cpu = totals.mean("server_percent", mode=STREAMER.name, queries=_MAIN_SIZE)
        other = totals.mean("server_percent", mode=mode, queries=_MAIN_SIZE)
        if size == _MAIN_SIZE and cpu and other:
            yield Target(
                f"CPU of {mode} by that of fragments, 200 queries", other / cpu, 10.0,
                at_most=False, compared="paper: more than ten times on average",
            )  # fmt: skip
