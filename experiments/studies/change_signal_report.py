"""What the report says of ``signal``."""

from collections.abc import Iterator
from typing import Final

from experiments.harness.items import Figure, Finding, Item, Point, Table
from experiments.harness.report import sentence_list, times_less
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
        f"{of(told, 'late_p50_ms'):.0f} ms in the median (95 %: {of(told, 'late_p95_ms'):.0f} ms, "
        f"at most {of(told, 'late_max_ms'):.0f} ms) where the server tells of it, and after "
        f"{of(polled, 'late_p50_ms'):.0f} ms (95 %: {of(polled, 'late_p95_ms'):.0f} ms, at most "
        f"{of(polled, 'late_max_ms'):.0f} ms) where clients look every "
        f"{of(polled, 'max_age'):g} s.",
        headline=True,
    )
    yield Finding(
        f"A client then takes {of(told, 'requests'):.1f} requests and "
        f"{of(told, 'bytes') / 1000:.1f} kB a minute with the signal, and "
        f"{of(polled, 'requests'):.1f} and {of(polled, 'bytes') / 1000:.1f} kB by polling; of the "
        f"server {of(told, 'server_cpu_ms'):.1f} ms of CPU a minute against "
        f"{of(polled, 'server_cpu_ms'):.1f} ms, publishing included, of its own "
        f"{of(told, 'client_cpu_ms'):.1f} ms against {of(polled, 'client_cpu_ms'):.1f} ms.",
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
            f"In the worst measurement {100 * min(shares):.1f} % of the changes arrived in time."
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
