"""The answer of ``server-vs-client``: three sentences, each computed from the data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from experiments.harness.items import Finding, Point
from experiments.harness.report import duration, rounded, sentence_list
from experiments.harness.results import Results
from experiments.studies.board_modes import CACHED, CQELS_MODE, CSPARQL_MODE, STREAMER
from experiments.studies.board_watch import BUSY, SIDES

_ENGINES = (CQELS_MODE.name, CSPARQL_MODE.name)


def answers(
    totals: Results, size: str | None, engines: Sequence[str] = _ENGINES
) -> Iterator[Finding]:
    """What fragments cost the server, what they cost the clients, and when to choose which.

    Args:
        totals: a row for each mode and number of queries.
        size: the number of queries that is told of; ``None``: no modes have one in common.
        engines: that fragments are compared with.
    """
    there = [mode for mode in engines if totals.where(mode=mode, queries=size or "").rows]
    if size is None or not there:
        return
    for text in (
        _of_the_server(totals, size, there),
        _of_a_client(totals, size, there),
        _choice(totals, (STREAMER.name, *there)),
    ):
        if text:
            yield Finding(text, answer=True)


def _of_the_server(totals: Results, size: str, engines: Sequence[str]) -> str:
    ours = totals.mean("server_percent", mode=STREAMER.name, queries=size)
    if not ours:
        return ""
    others = {mode: totals.mean("server_percent", mode=mode, queries=size) for mode in engines}
    parts = [
        f"{rounded(other / ours)} times that in {mode} ({rounded(other)} %)"
        for mode, other in others.items()
        if other is not None
    ]
    text = (
        f"Keeping the answers of {size} clients up to date costs a server of fragments "
        f"{rounded(ours)} % of a core, against {sentence_list(parts)}"
    )
    server = totals.mean("server_percent", mode=CACHED.name, queries=size)
    cache = totals.mean("cache_percent", mode=CACHED.name, queries=size)
    if server is None or cache is None:
        return f"{text}."
    return (
        f"{text}; behind a cache it is {rounded(server)} %, and {rounded(cache)} % for the cache."
    )


def _of_a_client(totals: Results, size: str, engines: Sequence[str]) -> str:
    parts = []
    for mode in (STREAMER.name, *engines):
        cpu = totals.mean("clients_percent", mode=mode, queries=size)
        delay = totals.mean("latency_p50_ms", mode=mode, queries=size)
        if cpu is None or delay is None:
            return ""
        whose = "" if mode == STREAMER.name else f" in {mode}"
        parts.append(
            f"{rounded(10 * cpu / int(size))} ms of CPU per second and an answer "
            f"{duration(delay)} after its publication{whose}"
        )
    return f"It costs each client {parts[0]}, against {sentence_list(parts[1:])}."


def _choice(totals: Results, modes: Sequence[str]) -> str:
    names = {mode: "fragments" if mode == STREAMER.name else mode for mode in modes}
    parts = []
    for what, columns in (
        ("the server's CPU", ("server_percent",)),
        ("the CPU of server and clients together", ("server_percent", "clients_percent")),
        ("the delay", ("latency_p50_ms",)),
    ):
        sums = {mode: sums_by_size(totals, mode, columns) for mode in modes}
        sizes = sorted(set.intersection(*(set(each) for each in sums.values())))
        best = _in_turn(
            sizes, {n: min((sums[mode][n], names[mode]) for mode in modes)[1] for n in sizes}
        )
        if len(best) > 1:
            choice = sentence_list([f"{name} for {sentence_list(n)}" for name, n in best.items()])
            parts.append(f"where {what} counts, {choice} clients")
        parts += [f"where {what} counts, {name}" for name in best if len(best) == 1]
    return f"Which to choose: {'; '.join(parts)}." if parts else ""


def _in_turn(sizes: Sequence[float], winners: Mapping[float, str]) -> dict[str, list[str]]:
    """For which of the sizes each wins, those that follow each other as one."""
    best: dict[str, list[str]] = {}
    for name, group in groupby(sizes, winners.__getitem__):
        run = [f"{n:,.0f}" for n in group]
        best.setdefault(name, []).append(" to ".join(dict.fromkeys((run[0], run[-1]))))
    return best


def sums_by_size(totals: Results, mode: str, columns: Sequence[str]) -> Mapping[float, float]:
    """The sum of some columns of a mode, by the number of queries."""
    found: dict[float, float] = {}
    for column in columns:
        for point in totals.points("queries", column, mode=mode):
            found[float(point.x)] = found.get(float(point.x), 0.0) + point.y
    return found


def used(row: Mapping[str, str]) -> float:
    """What all processes used of the machine, in percent of a core."""
    return sum(float(row.get(column) or 0) for column in SIDES)


def is_busy(row: Mapping[str, str]) -> bool:
    """Whether all processes together kept the cores nearly busy: the machine was the limit."""
    cores = float(row["cores"] or 0)
    return bool(cores) and used(row) > BUSY * cores


def marked(
    results: Results, x: str, series: Mapping[str, Sequence[Point]]
) -> dict[str, list[Point]]:
    """The points of modes, those marked at which the machine was the limit."""
    busy = {(row["mode"], row[x]) for row in results.rows if is_busy(row)}
    return {
        mode: [replace(point, limited=(mode, _cell(point.x)) in busy) for point in points]
        for mode, points in series.items()
    }


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"
