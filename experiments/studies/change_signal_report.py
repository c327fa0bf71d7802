"""What the report says of ``signal``."""

from collections.abc import Iterator
from typing import Final

from experiments.harness.items import Figure, Finding, Item, Point, Table
from experiments.harness.report import duration, rounded, sentence_list, times_less
from experiments.harness.results import Results

POLLING: Final = "polling"
SIGNAL: Final = "signal"
_COLUMNS: Final = {
    "late_p50_ms": "late, median (ms)",
    "late_p95_ms": "late, 95th percentile (ms)",
    "late_max_ms": "late, most (ms)",
    "completeness": "arrived",
    "requests": "requests",
    "bytes": "bytes",
    "server_cpu_ms": "CPU of the server (ms)",
    "client_cpu_ms": "CPU of the client (ms)",
}
_FIGURES: Final = (
    ("requests", "Requests of one client", "requests a minute"),
    ("server_cpu_ms", "CPU of the server for one client", "ms a minute"),
    ("client_cpu_ms", "CPU of one client", "ms a minute"),
)


def signal_items(results: Results) -> Iterator[Item]:
    """Findings, figures and a table."""
    both = [
        (clients, changes)
        for clients in sorted(results.distinct("clients"), key=int)
        for changes in sorted(results.distinct("changes"), key=int)
        if all(
            results.where(mode=mode, clients=clients, changes=changes).rows
            for mode in (POLLING, SIGNAL)
        )
    ]
    if both:
        yield from _compared(results, *max(both, key=lambda each: int(each[0])))
        yield from _by_rate(results, both)
    yield from _missed(results)
    yield from _figures(results)
    yield Table(
        "By client; requests, bytes and CPU by client and minute",
        ("mode", "clients", "changes a minute", *_COLUMNS.values()),
        [
            [
                row["mode"],
                int(row["clients"]),
                int(row["changes"]),
                *(float(row[column]) for column in _COLUMNS),
            ]
            for row in results.rows
        ],
    )


def _compared(results: Results, clients: str, changes: str) -> Iterator[Finding]:
    polled = results.where(mode=POLLING, clients=clients, changes=changes)
    told = results.where(mode=SIGNAL, clients=clients, changes=changes)

    def of(each: Results, column: str) -> float:
        return each.mean(column) or 0.0

    yield Finding(
        f"With {clients} clients and {changes} changes a minute an answer shows a change after "
        f"{duration(of(told, 'late_p50_ms'))} in the median (95 %: "
        f"{duration(of(told, 'late_p95_ms'))}, at most {duration(of(told, 'late_max_ms'))}) where "
        f"the server tells of it, and after {duration(of(polled, 'late_p50_ms'))} (95 %: "
        f"{duration(of(polled, 'late_p95_ms'))}, at most "
        f"{duration(of(polled, 'late_max_ms'))}) where clients look every "
        f"{rounded(of(polled, 'max_age'))} s.",
        headline=True,
    )
    yield Finding(
        f"A client then takes {rounded(of(told, 'requests'))} requests and "
        f"{rounded(of(told, 'bytes') / 1000)} kB a minute with the signal, and "
        f"{rounded(of(polled, 'requests'))} and {rounded(of(polled, 'bytes') / 1000)} kB by "
        f"polling; of the server {rounded(of(told, 'server_cpu_ms'))} ms of CPU a minute against "
        f"{rounded(of(polled, 'server_cpu_ms'))} ms, publishing included, of its own "
        f"{rounded(of(told, 'client_cpu_ms'))} ms against "
        f"{rounded(of(polled, 'client_cpu_ms'))} ms.",
        headline=True,
    )


def _by_rate(results: Results, both: list[tuple[str, str]]) -> Iterator[Finding]:
    """At which numbers of changes a minute who needs how much, with as many clients."""
    for clients in dict.fromkeys(clients for clients, _ in both):
        rates = [changes for each, changes in both if each == clients]
        if len(rates) < 2:
            continue
        said = []
        for changes in rates:
            polled, told = (
                results.mean("server_cpu_ms", mode=mode, clients=clients, changes=changes)
                for mode in (POLLING, SIGNAL)
            )
            if polled and told:
                said.append(f"{times_less(polled / told)} with {changes} changes a minute")
        if said:
            yield Finding(
                f"The server's CPU with {clients} clients, by the signal compared with polling: "
                f"{sentence_list(said)}."
            )


def _missed(results: Results) -> Iterator[Finding]:
    shares = results.numbers("completeness")
    if shares:
        yield Finding(
            f"In the worst measurement {rounded(100 * min(shares))} % of the changes arrived in "
            "time."
        )


def _figures(results: Results) -> Iterator[Figure]:
    usual = _usual(results)
    yield Figure(
        "lateness",
        f"From a change to the answer, {usual} changes a minute",
        "clients",
        "ms",
        {
            f"{mode}, {name}": results.points("clients", column, mode=mode, changes=usual)
            for mode in results.distinct("mode")
            for column, name in (("late_p50_ms", "median"), ("late_p95_ms", "95th percentile"))
        },
        log_x=True,
        log_y=True,
    )
    for column, title, unit in _FIGURES:
        series: dict[str, list[Point]] = dict(
            results.series("mode", "clients", column, changes=usual)
        )
        yield Figure(
            column, f"{title}, {usual} changes a minute", "clients", unit, series, log_x=True
        )


def _usual(results: Results) -> str:
    """The number of changes a minute of most measurements."""
    changes = [row["changes"] for row in results.rows]
    return max(dict.fromkeys(changes), key=changes.count, default="")
