"""What the report says of ``citybench``."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean

from annotations.wording import counted
from experiments.harness.items import Figure, Finding, Item, Table
from experiments.harness.report import rounded, sentence_list, shown_value
from experiments.harness.results import Results
from experiments.studies.board_answer import marked
from experiments.studies.board_modes import CQELS_MODE, CSPARQL_MODE, PLACES, STREAMER
from experiments.workloads.citybench import UNNAMED

_COMPLETE = 0.999
_NAMED = 3
"""How many measurements that are not complete a sentence names."""


def citybench_items(results: Results, columns: Sequence[str]) -> Iterator[Item]:
    """Completeness and latency of all queries, at each rate and with each number of them."""
    yield from _findings(results)
    one, slow = _first(results, "instances"), _first(results, "rate")
    for rate, instances in [
        *((rate, one) for rate in sorted(results.distinct("rate"), key=float)),
        *((slow, n) for n in sorted(results.distinct("instances"), key=float) if n != one),
    ]:
        chosen = results.where(rate=rate, instances=instances)
        queries = counted(int(instances), "query", "queries")
        what = f"{queries}, {_readings(rate)} per second and sensor"
        for name, column, title, label in (
            ("completeness", "completeness", "Completeness", "share of the observations"),
            ("latency", "latency_p50_ms", "Latency, median", "ms"),
            ("server", "server_percent", "CPU of the server", "% of a core"),
        ):
            series = dict(chosen.series("mode", "query", column, numeric=False))
            yield Figure(
                f"{name}-{instances}-at-{rate}", f"{title}: {what}", "query", label,
                marked(chosen, "query", series), kind="bars", log_y=name != "completeness",
                places=PLACES,
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
    yield from _server_side(results)
    for name, why in UNNAMED.items():
        cpu = results.numbers("server_percent", query=name)
        if cpu:
            yield Finding(
                f"{name} names no observation in its answers ({why}), so that completeness and "
                f"latency cannot be told; it takes the server {shown_value(min(cpu))} to "
                f"{shown_value(max(cpu))} % of a core."
            )


def _server_side(results: Results) -> Iterator[Finding]:
    """What fragments cost the server by what an engine does, where facts change all the time."""
    slow = results.where(rate=_first(results, "rate"))
    for mode in (CQELS_MODE.name, CSPARQL_MODE.name):
        said = []
        for instances in sorted(slow.distinct("instances"), key=float):
            ours, theirs = (
                {
                    row["query"]: float(row["server_percent"])
                    for row in slow.where(mode=each, instances=instances).rows
                    # Clients that lack something ask for less.
                    if float(row["server_percent"] or 0)
                    and float(row["completeness"] or 0) >= _COMPLETE
                }
                for each in (STREAMER.name, mode)
            )
            if ratios := [ours[query] / theirs[query] for query in ours if query in theirs]:
                times = rounded(geometric_mean(ratios))
                said.append(f"{times} times ({counted(int(instances), 'query', 'queries')})")
        if said:
            often = _readings(_first(results, "rate"))
            yield Finding(
                f"Where a sensor says {often} per second, a server of fragments takes "
                f"{sentence_list(said)} the CPU of one in {mode}, in the geometric mean of the "
                "queries whose answers are complete in both.",
                headline=True,
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


def _readings(rate: str) -> str:
    return "1 reading" if float(rate) == 1 else f"{shown_value(rate)} readings"


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
