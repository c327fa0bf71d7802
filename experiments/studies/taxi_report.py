"""What the report says of ``taxi``."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from experiments.harness.claims import checks
from experiments.harness.items import Figure, Finding, Item, Point, Table, Target
from experiments.harness.report import duration, rounded, sentence_list, shown_value
from experiments.harness.results import Results
from experiments.studies.taxi_peer import COMMITS

_ANEW = "computed anew"
_FILE, _SINGLE = "file", "one by one"
_MAIN = "synthetic"
_COLUMNS = {
    "trips": "trips", "seconds": "execution, s", "cpu_seconds": "CPU, s",
    "trips_per_second": "trips per second of CPU", "answers": "answers",
    "delay_mean_us": "delay, mean µs", "delay_p50_us": "median", "delay_p99_us": "99 %",
    "delay_max_us": "largest",
}  # fmt: skip


def taxi_items(results: Results) -> Iterator[Item]:
    """Findings, figures, table 1, targets and claims."""
    main = results.where(source=_MAIN)
    anew = main.where(way=_ANEW)
    shortest, longest = _ends(main)
    yield Figure(
        "rate", "From the file of trips to the files of answers", "window (minutes)",
        "trips per second of CPU", dict(main.series("query", "minutes", _COLUMN, way=_FILE)),
        marks={
            ("CQELS, published", query): [Point(30, 2e6 / seconds)]
            for query, seconds in (("Q1", 65.77), ("Q2", 69.02), ("Q1 and Q2", 76.64))
        },
    )  # fmt: skip
    yield Figure(
        "delay", "From a trip to its answer, one by one", "window (minutes)", "median delay (µs)",
        dict(main.series("query", "minutes", "delay_p50_us", way=_SINGLE)),
        marks={
            ("CQELS, published (mean)", query): [Point(30, delay)]
            for query, delay in (("Q1", 22.0), ("Q2", 68.0))
        },
    )  # fmt: skip
    yield from _findings(main, shortest)
    yield from _anew_findings(anew)
    yield from _peer_findings(main)
    yield _table(results)
    for name, limit in (("Q1", 150_000.0), ("Q2", 60_000.0)):
        yield Target(
            f"{name}: trips per second of CPU, parsed before",
            main.mean(_COLUMN, query=name, way="parsed", minutes=30),
            limit, at_most=False, compared="CQELS, published: about 30,000",
        )  # fmt: skip

    def windows() -> float | None:
        ratios = []
        for query in main.distinct("query"):
            ends = [
                main.mean("delay_p50_us", query=query, way=_SINGLE, minutes=minutes)
                for minutes in (shortest, longest)
            ]
            if ends[0] and ends[1] and shortest != longest:
                ratios.append(ends[1] / ends[0])
        return max(ratios, default=None)

    found: dict[str, Callable[[], float | None]] = {"windows": windows}
    for query in ("Q1", "Q2", "Q1 and Q2"):
        wanted: dict[str, str | int] = {"query": query, "minutes": 30}
        found[f"{query} rate"] = partial(main.mean, _COLUMN, way=_FILE, **wanted)
        found[f"{query} factor"] = partial(anew.mean, "factor", **wanted)
        found[f"{query} delay"] = partial(_mean_delay, main, query)
    yield from checks("taxi", found)


_COLUMN = "trips_per_second"


def _mean_delay(main: Results, query: str) -> float | None:
    """In milliseconds."""
    found = main.mean("delay_mean_us", query=query, way=_SINGLE, minutes=30)
    return None if found is None else found / 1000


def _ends(main: Results) -> tuple[str, str]:
    lengths = sorted(main.where(way=_FILE).distinct("minutes"), key=int)
    return (lengths[0], lengths[-1]) if lengths else ("", "")


def _findings(main: Results, minutes: str) -> Iterator[Finding]:
    for query in main.distinct("query"):
        wanted = {"query": query, "minutes": minutes}
        file, parsed = (main.mean(_COLUMN, way=way, **wanted) for way in (_FILE, "parsed"))
        delay = main.mean("delay_p50_us", way=_SINGLE, **wanted)
        if file and parsed and delay is not None:
            yield Finding(
                f"{query}, windows of {minutes} minutes: {rounded(file)} trips per second of CPU "
                f"from the file of trips to the files of answers, {rounded(parsed)} where the "
                f"trips were parsed before; an answer is there {duration(delay / 1000)} after its "
                "trip in the median.",
                headline=True,
            )


def _anew_findings(anew: Results) -> Iterator[Finding]:
    parts = [
        f"{rounded(factor)} times as much for {query}"
        for query in anew.distinct("query")
        if (factor := anew.mean("factor", query=query))
    ]
    if not parts:
        return
    different = [row["query"] for row in anew.rows if row["same"] == "0"]
    same = (
        "the answers are the same"
        if not different
        else f"the answers to {sentence_list(different)} are not the same"
    )
    yield Finding(
        f"To compute every answer anew takes {sentence_list(parts)}, on "
        f"{shown_value(anew.rows[0]['trips'])} trips to the end; {same}.",
        headline=True,
    )


def _peer_findings(main: Results) -> Iterator[Finding]:
    rates, factors, different = [], [], []
    rows: list[Mapping[str, str]] = []
    for way, commit in COMMITS.items():
        there = main.where(way=way)
        rate, factor = there.mean(_COLUMN), there.mean("factor")
        if rate and factor:
            after = "after each trip" if commit == 1 else f"after {commit:,} trips"
            rates.append(f"{rounded(rate)} with a commit {after}")
            factors.append(rounded(factor))
            different += [after] if "0" in there.distinct("same") else []
            rows += there.rows
    if not rows:
        return
    same = (
        "The counts are the same."
        if not different
        else f"The counts {sentence_list(different)} are not the same."
    )
    trips = rounded(float(rows[0]["trips"]))
    yield Finding(
        f"Pathway {rows[0]['version']} (one worker) counts Q1's routes, windows of "
        f"{rows[0]['minutes']} minutes over {trips} trips that were parsed "
        f"before, at {sentence_list(rates)}, in trips per second of CPU. The engine, with the ten "
        f"best after each trip and their file, has {sentence_list(factors)} times as many. {same}",
        headline=True,
    )


def _table(results: Results) -> Table:
    rows = []
    for source in results.distinct("source"):
        for minutes in results.where(source=source).distinct("minutes"):
            for query in results.distinct("query"):
                for way in results.distinct("way"):
                    wanted = results.where(source=source, minutes=minutes, query=query, way=way)
                    if wanted.rows:
                        means = [wanted.mean(column) for column in _COLUMNS]
                        rows.append((source, query, int(minutes), way, *means))
    header = ("trips", "query", "window, minutes", "way", *_COLUMNS.values())
    return Table("From trips to answers", header, rows)
