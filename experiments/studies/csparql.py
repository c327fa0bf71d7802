"""``csparql``: periodic queries: time per evaluation, what each rule brings, and Spark by cores."""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import psutil

from experiments.errors import UnavailableError
from experiments.harness.cpu_time import cpu_time
from experiments.harness.estimates import percentile
from experiments.harness.items import Item
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.results import Results
from experiments.studies.conference import conference_graphs
from experiments.studies.csparql_report import (
    claims_report,
    native_report,
    rules_on_spark_report,
    rules_report,
    spark_report,
)
from experiments.studies.spark_market import SparkMarket
from experiments.workloads.conference import BADGES, Conference
from experiments.workloads.market import EXCHANGE, MARKETS, brokers, market_query, transactions
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.rules import RULES, Rule
from tpf_server.continuous.engine.static.store_graph import StoreGraph

_FROM = f"FROM STREAM <{BADGES}> [RANGE 3s STEP 1s]"
_PREFIXES = """PREFIX lv: <http://example.org/floorplan#>
PREFIX dc: <http://purl.org/dc/elements/1.1/> PREFIX foaf: <http://xmlns.com/foaf/0.1/>
"""
_QUERIES = {
    "Q1": "SELECT ?person ?locName ?locDesc {0} WHERE {{ ?person lv:detectedAt ?loc . "
    "?loc lv:name ?locName . ?loc lv:desc ?locDesc . ?person foaf:name ?name }}",
    "Q2": "CONSTRUCT {{ ?person1 lv:reachable ?person2 }} {0} WHERE {{ "
    "?person1 lv:detectedAt ?loc1 . ?person2 lv:detectedAt ?loc2 . ?loc1 lv:connected ?loc2 }}",
    "Q3": "SELECT ?coAuth ?coAuthName {0} WHERE {{ ?auth lv:detectedAt ?loc . "
    "?coAuth lv:detectedAt ?loc . ?paper dc:creator ?auth . ?paper dc:creator ?coAuth . "
    "?coAuth foaf:name ?coAuthName FILTER(?auth != ?coAuth) }}",
    "stream": "SELECT ?person ?loc {0} WHERE {{ ?person lv:detectedAt ?loc }}",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        static: triples of the bibliography.
        seconds: of the stream that are measured.
        windows: ranges of windows in seconds, for the rules.
        brokers: static triples, for the rules.
        spark_events: triples that Spark replays.
        spark_warm_up: triples that it replays before; none: not at all.
        cores: of Spark.
        spark_windows: ranges of windows in seconds, for the rules on Spark; none: not measured.
        spark_brokers: static triples, for the rules on Spark; the first are those of all windows.
    """

    static: tuple[int, ...] = (10_000, 100_000)
    seconds: int = 20
    windows: tuple[int, ...] = (5, 20, 60)
    brokers: tuple[int, ...] = (1_000, 10_000, 100_000)
    spark_events: int = 100_000
    spark_warm_up: int = 1_000
    cores: tuple[int, ...] = (1, 2)
    spark_windows: tuple[int, ...] = (5, 20)
    spark_brokers: tuple[int, ...] = (1_000, 10_000)

    @classmethod
    def quick(cls) -> Self:
        """Fewer of everything."""
        return cls(
            static=(10_000,),
            seconds=3,
            windows=(5, 20),
            brokers=(1_000,),
            spark_events=500,
            spark_warm_up=0,
            cores=(2,),
            spark_windows=(5,),
            spark_brokers=(1_000,),
        )


class PeriodicQueries:
    """The experiment."""

    name = "csparql"
    question = (
        "How long does one evaluation of a C-SPARQL query take, what does each rewriting rule "
        "bring, and how does Spark grow with its cores?"
    )
    settings = Sizes
    keys = ("part", "query", "static", "window", "rules", "cores")
    values = (
        "ms_median", "ms_mean", "ms_p99", "rows", "events_per_second", "cpu_us_per_event",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """Native by static size, the rules, and Spark."""
        for size in settings.static:
            yield MeasurementGroup(
                f"native, {size} static triples",
                partial(_conference, settings, run, size),
                [
                    Measurement(
                        _key("native", query=name, static=size), partial(_evaluations, name)
                    )
                    for name in _QUERIES
                ],
            )
        for size in settings.brokers:
            measurements = [
                Measurement(
                    _key("rules", query=query, static=size, window=window, rules=label),
                    partial(_with_rules, settings, run, size, query, window, rules),
                )
                # Of the other sizes the widest window.
                for window in settings.windows[0 if size == settings.brokers[-1] else -1 :]
                for query in ("filters", "by market", "over markets")
                for label, rules in _RULES.items()
            ]
            opened = partial(_brokers, run, size)
            yield MeasurementGroup(f"rules, {size} brokers", opened, measurements)
        for cores in settings.cores:
            yield MeasurementGroup(
                f"Spark, {cores} core(s)",
                partial(_spark, settings, run, cores, 1000),
                [
                    Measurement(
                        _key("spark", query="over markets", window=5, cores=cores),
                        partial(_on_spark, "over markets", 5, RULES),
                        repetitions=1,
                    )
                ],
            )
        cores = max(settings.cores)
        for place, size in enumerate(settings.spark_brokers):
            # Of the other sizes the widest window.
            windows = settings.spark_windows if place == 0 else settings.spark_windows[-1:]
            if windows:
                yield MeasurementGroup(
                    f"rules on Spark, {size} brokers",
                    partial(_spark, settings, run, cores, size),
                    [
                        Measurement(
                            _key(
                                "spark rules", query=query, static=size, window=window,
                                rules=label, cores=cores,
                            ),
                            partial(_on_spark, query, window, _RULES[label]),
                            repetitions=1,
                        )
                        for window in windows
                        for query, label in _RULES_ON_SPARK
                        if settings.spark_warm_up or (query, label) in _QUICK_ON_SPARK
                    ],
                )  # fmt: skip

    def report(self, results: Results) -> Iterable[Item]:
        """Figures, tables and targets."""
        yield from native_report(results.where(part="native"))
        yield from rules_report(results.where(part="rules"))
        yield from spark_report(results.where(part="spark"))
        yield from rules_on_spark_report(results.where(part="spark rules"))
        yield from claims_report(results)


def _key(
    part: str,
    *,
    query: str,
    static: int = 0,
    window: int = 3,
    rules: str = "all",
    cores: int = 1,
) -> dict[str, str | int | float]:
    return {
        "part": part, "query": query, "static": static, "window": window, "rules": rules,
        "cores": cores,
    }  # fmt: skip


_RULES: dict[str, tuple[Rule, ...]] = {
    "none": (),
    **{rule.__name__.replace("_", " "): (rule,) for rule in RULES},
    "push both": tuple(rule for rule in RULES if rule.__name__.startswith("push_")),
    "all": RULES,
}
# Partial sums need whole groups first.
_RULES["distribute partially"] = tuple(
    rule for rule in RULES if rule.__name__ in ("collapse_groups", "distribute_partially")
)


# What changes the plan on Spark by more than its own optimiser does anyway.
_RULES_ON_SPARK = [
    (query, label)
    for query, labels in {
        "filters": ("none", "push filters", "push projections", "push both", "all"),
        "by market": ("none", "distribute totally", "all"),
        "over markets": ("none", "collapse groups", "distribute partially", "all"),
    }.items()
    for label in labels
]


_QUICK_ON_SPARK = (("filters", "none"), ("filters", "push both"))


@contextmanager
def _conference(
    settings: Sizes, run: Run, size: int
) -> Iterator[tuple[Sequence[StoreGraph], Sequence[tuple[int, tuple[str, str, str]]]]]:
    conference = Conference(run.seed)
    with conference_graphs(conference, run, size) as graphs:
        yield graphs, list(conference.badges(100 * settings.seconds))


class _Stopwatch:
    """Times what lies between evaluations, and counts rows."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.rows = 0
        self._last: float | None = None

    def __call__(self, answer: PeriodicAnswer) -> None:
        # Of the processor: what else the machine does is not counted.
        now = time.process_time()
        if self._last is not None:
            self.taken.append((now - self._last) * 1e3)
        self._last = now
        self.rows += len(answer.rows)

    def row(self) -> ResultRow:
        """What was measured."""
        ordered = sorted(self.taken)
        return {
            "ms_median": percentile(ordered, 50),
            "ms_mean": sum(ordered) / len(ordered),
            "ms_p99": percentile(ordered, 99),
            "rows": self.rows,
        }


def _evaluations(name: str, opened: Any) -> Iterable[ResultRow]:
    graphs, events = opened
    engine = CsparqlEngine()
    for graph in graphs:
        engine.attach(graph)
    # Says that people and rooms do not come from the stream.
    engine.declare(BADGES, [str(events[0][1][1])])
    watch = _Stopwatch()
    engine.register(_PREFIXES + _QUERIES[name].format(_FROM), watch)
    for at, triple in events:
        engine.push(BADGES, triple, at)
    engine.finish()
    engine.close()
    yield watch.row()


@contextmanager
def _brokers(run: Run, size: int) -> Iterator[Sequence[StoreGraph]]:
    with run.static.graphs(run.folder / f"brokers{size}", {"brokers": brokers(size)}) as it:
        yield it


def _with_rules(
    settings: Sizes,
    run: Run,
    size: int,
    query: str,
    window: int,
    rules: tuple[Rule, ...],
    opened: Any,
) -> Iterable[ResultRow]:
    engine = CsparqlEngine(rules=rules)
    for graph in opened:
        engine.attach(graph)
    for name in MARKETS:
        engine.declare(name, [f"{EXCHANGE}does", f"{EXCHANGE}with"])
    watch = _Stopwatch()
    engine.register(market_query(query, window), watch)
    seconds = window + settings.seconds // 2
    for market, at, triples in transactions(run.seed, size, 100 * seconds):
        engine.push(MARKETS[market], triples, at)
    engine.finish()
    # The window is full in the second half.
    watch.taken = watch.taken[window:] or watch.taken
    yield watch.row()


@contextmanager
def _spark(settings: Sizes, run: Run, cores: int, size: int) -> Iterator[SparkMarket]:
    try:
        from tpf_server.continuous.csparql.spark.session import continuous_session
    except ImportError as error:
        raise UnavailableError(f"Spark is not installed: {error}") from error
    work = run.folder / f"spark{cores}-{size}-{uuid.uuid4().hex}"
    # One Spark after the other: there can be one in a process.
    with (
        _brokers(run, size) as static,
        continuous_session(f"local[{cores}]", work / "spark", partitions=cores) as session,
    ):
        session.sparkContext.setLogLevel("ERROR")
        java = next(
            each
            for each in psutil.Process().children(recursive=True)
            if "java" in each.name().lower()
        )
        market = SparkMarket(session, java, work, settings.spark_events, static, size)
        # What Java compiles and Spark loads at first is not what a long run does.
        if settings.spark_warm_up:
            market.write(run.seed, settings.spark_warm_up)
            market.replay(market_query("over markets", 5), RULES)
        market.write(run.seed, settings.spark_events)
        yield market


def _on_spark(
    query: str, window: int, rules: tuple[Rule, ...], market: SparkMarket
) -> Iterable[ResultRow]:
    before, started = cpu_time(market.java), time.perf_counter()
    rows = market.replay(market_query(query, window), rules)
    seconds = time.perf_counter() - started
    events = market.events
    yield {
        "events_per_second": events / seconds,
        "cpu_us_per_event": (cpu_time(market.java) - before) / events * 1e6,
        "rows": rows,
    }
