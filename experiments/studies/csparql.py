"""``csparql``: periodic queries: time per evaluation, what each rule brings, and Spark by cores."""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil

from annotations.terms import Term
from experiments.errors import UnavailableError
from experiments.harness.cpu_time import cpu_time
from experiments.harness.estimates import percentile
from experiments.harness.items import Item
from experiments.harness.measurement import Measurement, MeasurementGroup, Row, Run
from experiments.harness.results import Results
from experiments.studies.conference import conference_graphs
from experiments.studies.csparql_report import (
    native_report,
    rules_on_spark_report,
    rules_report,
    spark_report,
)
from experiments.workloads.conference import STREAM, Conference
from experiments.workloads.market import EXCHANGE, MARKETS, brokers, market_query, transactions
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.rules import RULES, Rule
from tpf_server.continuous.engine.static.store_graph import StoreGraph

_FROM = f"FROM STREAM <{STREAM}> [RANGE 3s STEP 1s]"
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
    """

    static: tuple[int, ...] = (10_000, 100_000)
    seconds: int = 40
    windows: tuple[int, ...] = (5, 20, 60)
    brokers: tuple[int, ...] = (1_000, 10_000, 100_000)
    spark_events: int = 200_000
    spark_warm_up: int = 1_000
    cores: tuple[int, ...] = (1, 2)
    spark_windows: tuple[int, ...] = (5, 20)

    @classmethod
    def quick(cls) -> Self:
        """Fewer of everything."""
        return cls(
            seconds=10,
            windows=(5, 20),
            brokers=(1_000,),
            spark_events=1_000,
            spark_warm_up=0,
            spark_windows=(),
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
                for window in settings.windows
                for query in ("filters", "by market", "over markets")
                for label, rules in _RULES.items()
            ]
            opened = partial(_brokers, run, size)
            yield MeasurementGroup(f"rules, {size} brokers", opened, measurements)
        for cores in settings.cores:
            yield MeasurementGroup(
                f"Spark, {cores} core(s)",
                partial(_spark, settings, run, cores),
                [
                    Measurement(
                        _key("spark", query="over markets", window=5, cores=cores),
                        partial(_on_spark, "over markets", 5, RULES),
                        repetitions=1,
                    )
                ],
            )
        if settings.spark_windows:
            cores = max(settings.cores)
            yield MeasurementGroup(
                "rules on Spark",
                partial(_spark, settings, run, cores),
                [
                    Measurement(
                        _key("spark rules", query=query, window=window, rules=label, cores=cores),
                        partial(_on_spark, query, window, _RULES[label]),
                        repetitions=1,
                    )
                    for window in settings.spark_windows
                    for query, label in _RULES_ON_SPARK
                ],
            )

    def report(self, results: Results) -> Iterable[Item]:
        """Figures, tables and targets."""
        yield from native_report(results.where(part="native"))
        yield from rules_report(results.where(part="rules"))
        yield from spark_report(results.where(part="spark"))
        yield from rules_on_spark_report(results.where(part="spark rules"))


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
        "filters": ("none", "push filters", "push projections", "all"),
        "by market": ("none", "distribute totally", "all"),
        "over markets": ("none", "collapse groups", "distribute partially", "all"),
    }.items()
    for label in labels
]


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

    def row(self) -> Row:
        """What was measured."""
        ordered = sorted(self.taken)
        return {
            "ms_median": percentile(ordered, 50),
            "ms_mean": sum(ordered) / len(ordered),
            "ms_p99": percentile(ordered, 99),
            "rows": self.rows,
        }


def _evaluations(name: str, opened: Any) -> Iterable[Row]:
    graphs, events = opened
    engine = CsparqlEngine()
    for graph in graphs:
        engine.attach(graph)
    # Says that people and rooms do not come from the stream.
    engine.declare(STREAM, [str(events[0][1][1])])
    watch = _Stopwatch()
    engine.register(_PREFIXES + _QUERIES[name].format(_FROM), watch)
    for at, triple in events:
        engine.push(STREAM, triple, at)
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
) -> Iterable[Row]:
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


class _Market:
    """Streams in files, and a Spark that reads them.

    Args:
        session: Spark.
        java: its process.
        work: a directory.
        settings: sizes.
        static: the countries of brokers.
    """

    def __init__(
        self,
        session: Any,
        java: psutil.Process,
        work: Path,
        settings: Sizes,
        static: Sequence[StoreGraph],
    ) -> None:
        self.static = static
        self.session = session
        self.java = java
        self.work = work
        self.settings = settings
        self.number = 0
        self.directories: dict[str, Path] = {}

    def write(self, seed: int, events: int) -> None:
        """Make the streams anew."""
        from tpf_server.continuous.csparql.spark.execution import punctuate

        self.number += 1
        self.directories = {
            m: self.work / f"market{self.number}-{n}" for n, m in enumerate(MARKETS)
        }
        lines: tuple[list[str], list[str]] = ([], [])
        end = 0
        for market, at, triples in transactions(seed, 1000, events // 2):
            lines[market].extend(f"{at}\t" + "\t".join(each) + "\n" for each in triples)
            end = at
        for number, directory in enumerate(self.directories.values()):
            directory.mkdir(parents=True)
            (directory / "elements.tsv").write_text("".join(lines[number]))
            punctuate(directory, end // 1000 * 1000)

    def replay(self, text: str, rules: tuple[Rule, ...]) -> int:
        """Run a query over them; how many rows its answers have."""
        from tpf_server.continuous.csparql.spark.execution import SparkExecution

        self.number += 1
        engine = CsparqlEngine()
        for graph in self.static:
            engine.attach(graph)
        predicates = {
            Term(f"<{name}>"): frozenset(Term(f"<{EXCHANGE}{each}>") for each in ("does", "with"))
            for name in MARKETS
        }
        execution = SparkExecution(
            self.session, text, engine.static, self.directories, self.work / f"out{self.number}",
            rules=rules, predicates=predicates,
        )  # fmt: skip
        execution.replay()
        return sum(len(answer.rows) for answer in execution.results.read())


@contextmanager
def _spark(settings: Sizes, run: Run, cores: int) -> Iterator[_Market]:
    try:
        from tpf_server.continuous.csparql.spark.session import continuous_session
    except ImportError as error:
        raise UnavailableError(f"Spark is not installed: {error}") from error
    work = run.folder / f"spark{cores}-{uuid.uuid4().hex}"
    # One Spark after the other: there can be one in a process.
    with (
        _brokers(run, 1000) as static,
        continuous_session(f"local[{cores}]", work / "spark", partitions=cores) as session,
    ):
        session.sparkContext.setLogLevel("ERROR")
        java = next(
            each
            for each in psutil.Process().children(recursive=True)
            if "java" in each.name().lower()
        )
        market = _Market(session, java, work, settings, static)
        # What Java compiles and Spark loads at first is not what a long run does.
        if settings.spark_warm_up:
            market.write(run.seed, settings.spark_warm_up)
            market.replay(market_query("over markets", 5), RULES)
        market.write(run.seed, settings.spark_events)
        yield market


def _on_spark(query: str, window: int, rules: tuple[Rule, ...], market: _Market) -> Iterable[Row]:
    before, started = cpu_time(market.java), time.perf_counter()
    rows = market.replay(market_query(query, window), rules)
    seconds = time.perf_counter() - started
    events = market.settings.spark_events
    yield {
        "events_per_second": events / seconds,
        "cpu_us_per_event": (cpu_time(market.java) - before) / events * 1e6,
        "rows": rows,
    }
