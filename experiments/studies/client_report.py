"""The report of ``client``."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from experiments.harness.items import Figure, Finding, Item, Point, Table, Target
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.studies.fragment_servers import OURS, REFERENCE
from experiments.workloads.shop import COMPARED

COMUNICA = "Comunica"
COMUNICA_BRTPF = "Comunica, source type brtpf"
OURS_PLAIN = "ours, plain TPF"
RESTRICTED = "ours, brTPF and large pages"


def client_report(results: Results) -> Iterator[Item]:
    """Totals, then query by query."""
    yield from _headlines(results)
    for latency in results.distinct("latency_ms"):
        yield _totals(results, latency)
    for server in results.distinct("server"):
        yield _shapes(results, server)
    first = results.where(latency_ms=results.distinct("latency_ms")[0])
    yield Figure(
        "requests", "Requests per query", "query", "requests",
        dict(_by_pair(first, "requests")), kind="bars", log_y=True,
    )  # fmt: skip
    for latency in results.distinct("latency_ms"):
        yield Figure(
            f"seconds-{latency}", f"Seconds per query, {latency} ms of latency added", "query",
            "seconds", dict(_by_pair(results.where(latency_ms=latency), "seconds")),
            kind="bars", log_y=True,
        )  # fmt: skip
    yield Figure(
        "client-cpu", "CPU of the client per query", "query", "ms",
        dict(_by_pair(first, "client_cpu_ms")), kind="bars", log_y=True,
    )  # fmt: skip
    yield _wrong(results)
    yield from _targets(results)


def _pairs(results: Results) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["client"], row["server"]) for row in results.rows))


def _pair_name(client: str, server: str) -> str:
    return f"{'our client' if client == OURS else client} on {server}"


def _by_pair(results: Results, column: str) -> Iterator[tuple[str, list[Point]]]:
    for client, server in _pairs(results):
        points = results.points("query", column, numeric=False, client=client, server=server)
        yield _pair_name(client, server), points


def total(
    results: Results, column: str, queries: Sequence[str], **wanted: str | int
) -> float | None:
    """The sum over queries of the mean of a column; ``None`` unless all were measured."""
    means = [results.mean(column, query=query, **wanted) for query in queries]
    known = [mean for mean in means if mean is not None]
    return sum(known) if len(known) == len(queries) and known else None


def _totals(results: Results, latency: str) -> Table:
    queries = results.distinct("query")
    rows: list[Sequence[Any]] = []
    for client, server in _pairs(results):
        wanted = {"latency_ms": latency, "client": client, "server": server}
        sums = [
            total(results, column, queries, **wanted)
            for column in ("requests", "bytes", "seconds", "client_cpu_ms", "server_cpu_ms")
        ]
        rows.append((_pair_name(client, server), *sums))
    header = ("", "requests", "bytes", "seconds", "CPU of client, ms", "CPU of server, ms")
    title = f"All {len(queries)} queries, one after the other, {latency} ms of latency added"
    return Table(title, header, rows)


def _shapes(results: Results, server: str) -> Table:
    """Every query by itself: requests, and how soon the first and the last result were there."""
    latencies = results.distinct("latency_ms")
    columns: list[tuple[str, str, float, dict[str, str]]] = []
    for client in results.distinct("client"):
        name = "we" if client == OURS else client
        at = {"client": client, "latency_ms": latencies[0]}
        columns.append((f"{name}: requests", "requests", 1, at))
        for latency in latencies:
            at = {"client": client, "latency_ms": latency}
            columns.append((f"{name}: first, ms (+{latency})", "first_seconds", 1000, at))
            columns.append((f"{name}: all, ms (+{latency})", "seconds", 1000, at))
    rows: list[Sequence[Any]] = []
    for query in results.distinct("query"):
        means = [
            (results.mean(column, query=query, server=server, **wanted), factor)
            for _, column, factor, wanted in columns
        ]
        if any(mean is not None for mean, _ in means):
            rows.append((query, *(None if m is None else m * factor for m, factor in means)))
    header = ("", *(name for name, *_ in columns))
    return Table(f"Query by query over {server} (+ latency added, ms)", header, rows)


def _headlines(results: Results) -> Iterator[Item]:
    queries = results.distinct("query")
    latency = results.distinct("latency_ms")[-1]
    triples = int(results.distinct("triples")[0])

    def sums(client: str, server: str, column: str) -> float | None:
        wanted = {"latency_ms": latency, "client": client, "server": server}
        return total(results, column, queries, **wanted)

    for server in results.distinct("server"):
        ours, other = (sums(client, server, "requests") for client in (OURS, COMUNICA))
        ours_time, other_time = (sums(client, server, "seconds") for client in (OURS, COMUNICA))
        if ours is None or ours_time is None:
            continue
        text = (
            f"Over {server}, our client answers {len(queries)} queries of different shapes on "
            f"{triples:,} triples with {rounded(ours)} requests in {rounded(ours_time)} s "
            f"({latency} ms of latency added)"
        )
        if other and other_time:
            text += (
                f"; Comunica with {rounded(other)} requests in {rounded(other_time)} s "
                f"({rounded(other / ours)} and {rounded(other_time / ours_time)} times as much)"
            )
        yield Finding(text + ".", headline=True)


def _wrong(results: Results) -> Finding:
    wrong = Counter(
        (_pair_name(row["client"], row["server"]), row["query"])
        for row in results.rows
        if row["right"] == "0"
    )
    if not wrong:
        return Finding(
            f"All {len(results.rows):,} answers equal those of pyoxigraph over the same data."
        )
    listed = "; ".join(f"{pair}, {query}" for pair, query in wrong)
    return Finding(
        f"{wrong.total():,} of {len(results.rows):,} answers differ from those of pyoxigraph over "
        f"the same data: {listed}."
    )


def _targets(results: Results) -> Iterator[Target]:
    first, last = results.distinct("latency_ms")[0], results.distinct("latency_ms")[-1]
    triples = int(results.distinct("triples")[0])
    others = total(
        results, "requests", COMPARED, latency_ms=first, client=COMUNICA, server=REFERENCE
    )
    known = "" if others is None else f"Comunica on the reference server in this run: {others:,.0f}"
    for server, limit in ((OURS_PLAIN, 900.0), (RESTRICTED, 120.0)):
        yield Target(
            f"requests of our client for 8 queries on {triples:,} triples, {server}",
            total(results, "requests", COMPARED, latency_ms=first, client=OURS, server=server),
            limit, compared=known,
        )  # fmt: skip
    yield Target(
        f"seconds of our client for 8 queries on {triples:,} triples, {last} ms of latency added, "
        f"{RESTRICTED}",
        total(results, "seconds", COMPARED, latency_ms=last, client=OURS, server=RESTRICTED),
        6.0, compared="with 20 ms on 105,773 other triples: Comunica 29.9, Client.js 23.4",
    )  # fmt: skip
