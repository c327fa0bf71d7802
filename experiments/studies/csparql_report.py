"""What the report of ``csparql`` says."""

from collections.abc import Iterator
from functools import partial

from annotations.wording import counted
from experiments.harness.claims import checks
from experiments.harness.items import Figure, Finding, Item, Point, Table, Target
from experiments.harness.report import rounded, sentence_list
from experiments.harness.results import Results

# Milliseconds per evaluation of the original engine on another machine, with 10^4 and 10^5 static
# triples, step 1 s.
_ORIGINAL = {
    ("Q1", 10_000): 39.0, ("Q1", 100_000): 231.0, ("Q3", 10_000): 44.0, ("Q3", 100_000): 257.0,
    ("Q2", 10_000): 21.0, ("stream", 10_000): 10.0,
}  # fmt: skip


def native_report(native: Results) -> Iterator[Item]:
    """Time per evaluation, beside that of the original engine."""
    columns = ("query", "static", "ms_median", "ms_mean", "ms_p99", "rows")
    yield Table(
        "Milliseconds of CPU per evaluation on the native engine, intake included",
        columns,
        [[row[name] for name in columns] for row in native.rows],
    )
    if len(native.distinct("static")) > 1:
        yield Figure(
            "native-by-size",
            "One evaluation on the native engine",
            "static triples",
            "CPU time per evaluation, median (ms)",
            dict(native.series("query", "static", "ms_median")),
            log_x=True,
        )
    ratios = []
    for (name, size), original in _ORIGINAL.items():
        measured = native.mean("ms_median", query=name, static=size)
        compared = f"original engine, on another machine: {original:g} ms"
        yield Target(
            f"{name}, {size} static triples: CPU ms per evaluation, median", measured, original,
            compared=compared,
        )  # fmt: skip
        if measured:
            ratios.append((original / measured, f"{name} with {int(size):,} static triples"))
    if ratios:
        (least, slowest), (most, fastest) = min(ratios), max(ratios)
        yield Finding(
            f"On another machine the original engine took {rounded(least)} ({slowest}) to "
            f"{rounded(most)} ({fastest}) times as long for an evaluation as the native engine.",
            headline=True,
        )


def rules_report(rules: Results) -> Iterator[Item]:
    """What the rules save, by the size of windows and of the data."""
    for query in rules.distinct("query"):
        named = query.replace(" ", "-")
        for brokers in rules.distinct("static"):
            chosen = rules.where(query=query, static=brokers)
            if len(chosen.distinct("window")) < 2:
                continue
            yield Figure(
                f"rules-{named}-{brokers}",
                f"Rewriting rules by the size of the window: {query}, {brokers} brokers",
                "range of the window (s)",
                "CPU time per evaluation, median (ms)",
                dict(chosen.series("rules", "window", "ms_median")),
            )
        widest = max(rules.distinct("window"), key=float)
        chosen = rules.where(query=query, window=widest)
        if len(chosen.distinct("static")) > 1:
            yield Figure(
                f"rules-{named}-by-size",
                f"Rewriting rules by the size of the data: {query}, window of {widest} s",
                "static triples",
                "CPU time per evaluation, median (ms)",
                dict(chosen.series("rules", "static", "ms_median")),
                log_x=True,
            )
        largest = max(chosen.distinct("static"), key=float)
        yield from _effects(
            chosen.where(static=largest),
            "ms_median",
            f"{query}, {int(largest):,} brokers, {widest} s",
        )
    yield from _useless(rules, "ms_median", "Natively")


def _effects(chosen: Results, column: str, what: str) -> Iterator[Item]:
    """What each rule by itself, and all of them, save of the time without rules."""
    without = chosen.mean(column, rules="none")
    if not without:
        return
    parts = []
    for label in chosen.distinct("rules"):
        time_with = chosen.mean(column, rules=label)
        if label != "none" and time_with is not None:
            parts.append(f"{label} {100 * (time_with / without - 1):+.0f} %")
    if parts:
        yield Finding(f"CPU with rules against none ({what}): {', '.join(parts)}.")


def spark_report(by_cores: Results) -> Iterator[Item]:
    """Triples per second by cores."""
    columns = ("cores", "events_per_second", "cpu_us_per_event", "rows")
    yield Table(
        "Triples per second on Spark, start of the session left out",
        columns,
        [[row[name] for name in columns] for row in by_cores.rows],
    )
    rates = {c: by_cores.mean("events_per_second", cores=c) for c in by_cores.distinct("cores")}
    known = {float(cores): rate for cores, rate in rates.items() if rate}
    if len(known) > 1:
        yield Figure(
            "spark-by-cores",
            "Spark by cores",
            "cores",
            "triples per second",
            {"over markets": [Point(each, rate) for each, rate in known.items()]},
        )
        few, many = min(known), max(known)
        yield Finding(
            f"Spark processes {rounded(known[few])} triples per second on "
            f"{counted(int(few), 'core')} and {rounded(known[many])} on {int(many)}: "
            f"{rounded(known[many] / known[few])} times as many.",
            headline=True,
        )


def rules_on_spark_report(rules: Results) -> Iterator[Item]:
    """What the rules save on Spark."""
    for query in rules.distinct("query"):
        named = query.replace(" ", "-")
        chosen = rules.where(query=query)
        smallest = min(chosen.distinct("static"), key=float)
        widest = max(chosen.distinct("window"), key=float)
        for what, x, label, part, log in (
            ("window", "window", "range of the window (s)", chosen.where(static=smallest), False),
            ("size", "static", "static triples", chosen.where(window=widest), True),
        ):
            if len(part.distinct(x)) > 1:
                yield Figure(
                    f"spark-rules-{named}-by-{what}",
                    f"Rewriting rules on Spark by the size of the "
                    f"{'window' if what == 'window' else 'data'}: {query}",
                    label, "CPU time per triple (µs)",
                    dict(part.series("rules", x, "cpu_us_per_event")), log_x=log,
                )  # fmt: skip
        for window in chosen.distinct("window"):
            each = chosen.where(static=smallest, window=window)
            yield from _effects(each, "cpu_us_per_event", f"Spark, {query}, {window} s")
    yield from _useless(rules, "cpu_us_per_event", "On Spark")


def _useless(rules: Results, column: str, where: str) -> Iterator[Finding]:
    """Which rules never saved anything, and what the one that costs most took."""
    ratios = {
        label: found
        for label in rules.distinct("rules")
        if label != "none" and (found := list(_ratios(rules, label, column)))
    }
    if never := [label for label, found in ratios.items() if min(found) > 1]:
        most = max(max(ratios[label]) for label in never)
        yield Finding(
            f"{where} {sentence_list(never)} saved nothing in any case measured, and cost at most "
            f"{rounded(most)} times as much as no rule."
        )


def claims_report(results: Results) -> Iterator[Item]:
    """The claims of the paper."""
    native, spark = results.where(part="rules"), results.where(part="spark rules")
    filters = native.where(query="filters")
    windows, sizes = filters.distinct("window"), filters.distinct("static")
    yield from checks(
        "csparql",
        {
            "filters by window": partial(
                _worst, filters.where(static=max(sizes, key=float, default="")), "push both"
            ),
            "filters by data": partial(
                _worst, filters.where(window=max(windows, key=float, default="")), "push both"
            ),
            "filters on Spark": partial(
                _worst, spark.where(query="filters"), "push both", "cpu_us_per_event"
            ),
            "aggregates": partial(_worst_of_aggregates, native),
        },
    )


def _worst(chosen: Results, label: str, column: str = "ms_median") -> float | None:
    return max(_ratios(chosen, label, column), default=None)


def _worst_of_aggregates(native: Results) -> float | None:
    found = [
        _worst(native.where(query=query), label)
        for query, label in (
            ("by market", "distribute totally"), ("over markets", "distribute partially"),
        )
    ]  # fmt: skip
    return max((ratio for ratio in found if ratio is not None), default=None)


def _ratios(chosen: Results, label: str, column: str) -> Iterator[float]:
    """The cost with a rule by that without any, in each case."""
    for row in chosen.where(rules=label).rows:
        case = {name: row[name] for name in ("query", "static", "window", "cores")}
        one, other = (chosen.mean(column, rules=each, **case) for each in (label, "none"))
        if one is not None and other:
            yield one / other
