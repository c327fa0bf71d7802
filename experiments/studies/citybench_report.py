"""What the report says of ``citybench``."""

from collections.abc import Iterator, Mapping, Sequence

from experiments.harness.items import Figure, Finding, Item, Table
from experiments.harness.report import rounded, shown_value
from experiments.harness.results import Results
from experiments.studies.board_answer import marked
from experiments.studies.board_modes import PLACES
from experiments.workloads.citybench import UNNAMED

_COMPLETE = 0.999
_NAMED = 3
"""How many measurements that are not complete a sentence names."""


def citybench_items(results: Results, columns: Sequence[str]) -> Iterator[Item]:
    """Completeness and latency by query, by rate and by instances."""
    base = results.where(rate=_first(results, "rate"), instances=_first(results, "instances"))
    yield from _findings(results)
    for name, column, title, label in (
        ("completeness", "completeness", "Completeness", "share of the observations"),
        ("latency", "latency_p50_ms", "Latency, median", "ms"),
        ("server", "server_percent", "CPU of the server", "% of a core"),
    ):
        series = dict(base.series("mode", "query", column, numeric=False))
        yield Figure(name, title, "query", label, series, kind="bars", places=PLACES)
    for query in results.distinct("query"):
        one = results.where(query=query)
        for x, label in (("rate", "readings per second and sensor"), ("instances", "queries")):
            other = "instances" if x == "rate" else "rate"
            chosen = one.where(**{other: _first(results, other)})
            if len(chosen.distinct(x)) < 2:
                continue
            for column, title in (
                ("latency_p50_ms", "latency, median, ms"),
                ("completeness", "completeness"),
                ("server_percent", "CPU of the server, % of a core"),
            ):
                series = marked(chosen, x, dict(chosen.series("mode", x, column)))
                if not series:
                    continue
                yield Figure(
                    f"{query}-{column.split('_')[0]}-by-{x}", f"{query} by {label}", label,
                    title, series, places=PLACES,
                )  # fmt: skip
    yield _table(results, columns)


def _findings(results: Results) -> Iterator[Finding]:
    for mode in results.distinct("mode"):
        chosen = results.where(mode=mode)
        complete, latency = chosen.numbers("completeness"), chosen.numbers("latency_p50_ms")
        if not complete:
            continue
        lacking = sorted(
            (
                row
                for row in chosen.rows
                if row["completeness"] and float(row["completeness"]) < _COMPLETE
            ),
            key=lambda row: float(row["completeness"]),
        )
        yield Finding(
            f"CityBench, {mode}: complete in {_complete(len(complete), lacking)}; the "
            f"median latency of a measurement is {shown_value(min(latency))} to "
            f"{shown_value(max(latency))} ms, the server's "
            f"CPU {shown_value(min(chosen.numbers('server_percent')))} to "
            f"{shown_value(max(chosen.numbers('server_percent')))} % of a core.",
            headline=True,
        )
    for name, why in UNNAMED.items():
        cpu = results.numbers("server_percent", query=name)
        if cpu:
            yield Finding(
                f"{name} names no observation in its answers ({why}), so that completeness and "
                f"latency cannot be told; it takes the server {shown_value(min(cpu))} to "
                f"{shown_value(max(cpu))} % of a core."
            )


def _complete(there: int, lacking: Sequence[Mapping[str, str]]) -> str:
    """How many are, and which of the others lack most."""
    how_many = f"{there - len(lacking)} of {there} measurements"
    if not lacking:
        return how_many
    named = []
    for row in lacking[:_NAMED]:
        times = "" if row["instances"] == "1" else f", {row['instances']} times"
        share = rounded(100 * float(row["completeness"]))
        named.append(f"{row['query']} at {shown_value(row['rate'])}/s{times}: {share} %")
    which = "the others" if len(lacking) <= _NAMED else "of the others the worst"
    return f"{how_many} ({which}: {'; '.join(named)})"


def _table(results: Results, columns: Sequence[str]) -> Table:
    texts = ("query", "mode", "why")
    rows = [
        [
            row[name] if name in texts else float(row[name]) if row[name] else None
            for name in columns
        ]
        for row in results.rows
    ]
    return Table("All measurements", columns, rows)


def _first(results: Results, column: str) -> str:
    return min(results.distinct(column), key=float, default="")
