"""``csparql``: periodic queries: time per evaluation, the effect of each rule, Spark by cores."""

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil

from annotations.terms import Quad, Term
from experiments.errors import UnavailableError
from experiments.harness import items
from experiments.harness.claims import checks
from experiments.harness.estimates import percentile
from experiments.harness.processes import cpu_time
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.studies.conference import conference_graphs
from experiments.workloads import named_queries
from experiments.workloads.conference import BADGES, Conference
from tpf_server.continuous.continuous_engine import Engine, InstantSettings
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.rules import RULES, Rule
from tpf_server.continuous.runtime.static.static_data import StoreGraph

# Two markets: brokers with their countries, and streams of their transactions.
#
# After the examples of the C-SPARQL paper (003, section 5).

MARKETS = ("http://example.org/milan", "http://example.org/zurich")
BROKERS, EXCHANGE = "http://example.org/brokers#", "http://example.org/exchange#"
_MARKET_QUERIES = named_queries("market.rq")


def brokers(count: int) -> Iterator[Quad]:
    """Return the countries of brokers: the static data."""
    for number in range(count):
        country = Term(f'"C{number % 20}"')
        yield Quad(Term(f"<{BROKERS}{number}>"), Term(f"<{BROKERS}is_from>"), country)


def transactions(seed: int, brokers: int, count: int) -> Iterator[tuple[int, int, list[list[str]]]]:
    """Yield markets, milliseconds and triples: a hundred transactions a second."""
    chance = random.Random(seed)
    for number in range(count):
        tx = f"<{EXCHANGE}tx{number}>"
        broker = f"<{BROKERS}{chance.randrange(brokers)}>"
        amount = f'"{chance.randrange(100)}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        triples = [[broker, f"<{EXCHANGE}does>", tx], [tx, f"<{EXCHANGE}with>", amount]]
        yield chance.randrange(2), 10 * number, triples


def market_query(query: str, window: int) -> str:
    """Return ``filters``, ``by market`` or ``over markets``; windows in seconds."""
    common = {
        "b": BROKERS,
        "x": EXCHANGE,
        "first": MARKETS[0],
        "second": MARKETS[1],
        "window": window,
    }
    if query == "filters":
        return _MARKET_QUERIES["filters"].format(**common)
    by_market = query == "by market"
    return _MARKET_QUERIES["markets"].format(
        market="?market" if by_market else "",
        comma_market=", ?market" if by_market else "",
        **common,
    )


# Milliseconds per evaluation of the original engine on another machine, with 10^4 and 10^5 static
# triples, step 1 s.
_ORIGINAL = {
    ("Q1", 10_000): 39.0, ("Q1", 100_000): 231.0, ("Q3", 10_000): 44.0, ("Q3", 100_000): 257.0,
    ("Q2", 10_000): 21.0, ("stream", 10_000): 10.0,
}  # fmt: skip
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
    """Sizes of the experiment."""

    static: tuple[int, ...] = (10_000, 100_000)
    seconds: int = 20
    windows: tuple[int, ...] = (5, 20, 60)
    brokers: tuple[int, ...] = (1_000, 100_000)
    spark_events: int = 30_000
    spark_warm_up: int = 1_000
    cores: tuple[int, ...] = (1, 2)
    spark_windows: tuple[int, ...] = (5, 20)
    spark_brokers: tuple[int, ...] = (1_000,)

    @classmethod
    def quick(cls) -> Self:
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

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return native by static size, the rules, and Spark."""
        for size in settings.static:
            yield items.MeasurementGroup(
                f"native, {size} static triples",
                partial(_conference, settings, run, size),
                [
                    items.Measurement(
                        _key("native", query=name, static=size), partial(_evaluations, name)
                    )
                    for name in _QUERIES
                ],
            )
        for size in settings.brokers:
            measurements = [
                items.Measurement(
                    _key("rules", query=query, static=size, window=window, rules=label),
                    partial(_with_rules, settings, run, size, query, window, rules),
                )
                # Of the other sizes the widest window.
                for window in settings.windows[0 if size == settings.brokers[-1] else -1 :]
                for query in ("filters", "by market", "over markets")
                for label, rules in _RULES.items()
            ]
            opened = partial(_brokers, run, size)
            yield items.MeasurementGroup(f"rules, {size} brokers", opened, measurements)
        for cores in settings.cores:
            yield items.MeasurementGroup(
                f"Spark, {cores} core(s)",
                partial(_spark, settings, run, cores, 1000),
                [
                    items.Measurement(
                        _key("spark", query="over markets", window=5, cores=cores),
                        partial(_on_spark, "over markets", 5, RULES),
                        repetitions=1,
                    )
                ],
            )
        cores = max(settings.cores)
        for number, size in enumerate(settings.spark_brokers):
            # Of the other sizes the widest window.
            windows = settings.spark_windows if number == 0 else settings.spark_windows[-1:]
            if windows:
                yield items.MeasurementGroup(
                    f"rules on Spark, {size} brokers",
                    partial(_spark, settings, run, cores, size),
                    [
                        items.Measurement(
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

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return native evaluations, savings of the rules, Spark by cores, and the claims."""
        native, rules, spark, rules_on_spark = (
            results.where(part=each) for each in ("native", "rules", "spark", "spark rules")
        )
        ms, us = "CPU per evaluation, median (ms)", "CPU per triple (µs)"
        for title, chosen, columns in (
            ("Evaluations on the native engine", native, ("ms_median", "ms_mean", "ms_p99")),
            ("Rules on the native engine", rules, ("ms_median", "ms_mean", "ms_p99")),
            ("On Spark, without its start", spark, ("events_per_second", "cpu_us_per_event")),
            ("Rules on Spark", rules_on_spark, ("events_per_second", "cpu_us_per_event")),
        ):
            keys = {name: name for name in self.keys[1:]}
            yield chosen.table(title, keys, {name: name for name in (*columns, "rows")})
        yield from _native(native)
        yield items.Figure(
            "native-by-size", "One evaluation on the native engine", "static triples", ms,
            native.series("query", "static", "ms_median"), log_x=True,
        )  # fmt: skip
        for where, name, chosen, column, unit in (
            ("Natively", "rules", rules, "ms_median", ms),
            ("On Spark", "spark-rules", rules_on_spark, "cpu_us_per_event", us),
        ):
            for query in chosen.distinct("query"):
                yield from _by_size(
                    f"{name}-{query.replace(' ', '-')}", chosen.where(query=query), column, unit
                )
                yield from _effects(chosen.where(query=query), column, f"{where}, {query}")
        yield items.Figure(
            "spark-by-cores", "Spark by cores", "cores", "triples per second",
            spark.series("query", "cores", "events_per_second"),
        )  # fmt: skip
        filters = rules.where(query="filters")
        windows, sizes = filters.distinct("window"), filters.distinct("static")
        widest = filters.where(window=max(windows, key=float, default=""))
        largest = filters.where(static=max(sizes, key=float, default=""))
        on_spark = rules_on_spark.where(query="filters")
        yield from checks(
            "csparql",
            {
                "filters by window": partial(_worst, largest, "push both", "ms_median"),
                "filters by data": partial(_worst, widest, "push both", "ms_median"),
                "filters on Spark": partial(_worst, on_spark, "push both", "cpu_us_per_event"),
                "aggregates": partial(_worst_of_aggregates, rules),
            },
        )


def _native(native: Results) -> Iterator[items.Item]:
    ratios = []
    for (name, size), original in _ORIGINAL.items():
        measured = native.mean("ms_median", query=name, static=size)
        yield items.Target(
            f"{name}, {size} static triples: CPU ms per evaluation, median", measured, original,
            compared=f"original engine, on another machine: {original:g} ms",
        )  # fmt: skip
        ratios += [original / measured] if measured else []
    if ratios:
        yield items.Finding(
            f"On another machine the original engine took {rounded(min(ratios))} to "
            f"{rounded(max(ratios))} times as "
            "long for an evaluation as the native engine.",
            headline=True,
        )


def _by_size(name: str, chosen: Results, column: str, unit: str) -> Iterator[items.Figure]:
    for x, label, other, choose in (
        ("window", "range of the window (s)", "static", min if "spark" in name else max),
        ("static", "static triples", "window", max),
    ):
        fixed = choose(chosen.distinct(other), key=float)
        part = chosen.where(**{other: fixed})
        if len(part.distinct(x)) > 1:
            title = name.replace("-", " ").capitalize()
            yield items.Figure(
                f"{name}-by-{x}", f"{title} by {label}, {other} {fixed}", label, unit,
                part.series("rules", x, column), log_x=x == "static",
            )  # fmt: skip


def _effects(chosen: Results, column: str, what: str) -> Iterator[items.Finding]:
    parts = [
        f"{label} {rounded(min(ratios))} to {rounded(max(ratios))}"
        for label in chosen.distinct("rules")
        if label != "none" and (ratios := list(_ratios(chosen, label, column)))
    ]
    if parts:
        yield items.Finding(f"{what}: CPU with rules, times that without: {', '.join(parts)}.")


def _worst(chosen: Results, label: str, column: str) -> float | None:
    return max(_ratios(chosen, label, column), default=None)


def _worst_of_aggregates(native: Results) -> float | None:
    ratios = [
        _worst(native.where(query=query), label, "ms_median")
        for query, label in (
            ("by market", "distribute totally"), ("over markets", "distribute partially"),
        )
    ]  # fmt: skip
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _ratios(chosen: Results, label: str, column: str) -> Iterator[float]:
    for row in chosen.where(rules=label).rows:
        case = {name: row[name] for name in ("query", "static", "window", "cores")}
        one, other = (chosen.mean(column, rules=each, **case) for each in (label, "none"))
        if one is not None and other:
            yield one / other


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
    settings: Sizes, run: items.Run, size: int
) -> Iterator[tuple[Sequence[StoreGraph], Sequence[tuple[int, tuple[str, str, str]]]]]:
    conference = Conference(run.seed)
    with conference_graphs(conference, run, size) as graphs:
        yield graphs, list(conference.badges(100 * settings.seconds))


@dataclass(slots=True)
class SparkMarket:
    """Streams in files, and a Spark that reads them."""

    session: Any
    java: psutil.Process
    work: Path
    events: int
    static: Sequence[StoreGraph]
    size: int
    number: int = 0
    directories: Mapping[str, Path] = field(default_factory=dict)

    def write(self, seed: int, events: int) -> None:
        from tpf_server.continuous.spark.execution import punctuate

        self.number += 1
        self.directories = {
            m: self.work / f"market{self.number}-{n}" for n, m in enumerate(MARKETS)
        }
        lines: tuple[list[str], list[str]] = ([], [])
        end = 0
        for market, at, triples in transactions(seed, self.size, events // 2):
            lines[market].extend(f"{at}\t" + "\t".join(each) + "\n" for each in triples)
            end = at
        for number, directory in enumerate(self.directories.values()):
            directory.mkdir(parents=True)
            (directory / "elements.tsv").write_text("".join(lines[number]))
            punctuate(directory, end // 1000 * 1000)

    def replay(self, text: str, rules: tuple[Rule, ...]) -> int:
        """Run a query over them; return the number of answer rows."""
        from tpf_server.continuous.spark.execution import SparkExecution

        self.number += 1
        engine = Engine()
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


class _Stopwatch:
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

    def row(self) -> items.ResultRow:
        ordered = sorted(self.taken)
        return {
            "ms_median": percentile(ordered, 50),
            "ms_mean": sum(ordered) / len(ordered),
            "ms_p99": percentile(ordered, 99),
            "rows": self.rows,
        }


def _evaluations(name: str, opened: Any) -> Iterable[items.ResultRow]:
    graphs, events = opened
    engine = Engine()
    for graph in graphs:
        engine.attach(graph)
    # Says that people and rooms do not come from the stream.
    engine.declare(BADGES, [str(events[0][1][1])])
    watch = _Stopwatch()
    engine.register_csparql(_PREFIXES + _QUERIES[name].format(_FROM), watch)
    for at, triple in events:
        engine.push(BADGES, triple, at)
    engine.finish()
    engine.close()
    yield watch.row()


@contextmanager
def _brokers(run: items.Run, size: int) -> Iterator[Sequence[StoreGraph]]:
    with run.static.graphs(run.folder / f"brokers{size}", {"brokers": brokers(size)}) as it:
        yield it


def _with_rules(
    settings: Sizes,
    run: items.Run,
    size: int,
    query: str,
    window: int,
    rules: tuple[Rule, ...],
    opened: Any,
) -> Iterable[items.ResultRow]:
    engine = Engine(instants=InstantSettings(rules=rules))
    for graph in opened:
        engine.attach(graph)
    for name in MARKETS:
        engine.declare(name, [f"{EXCHANGE}does", f"{EXCHANGE}with"])
    watch = _Stopwatch()
    engine.register_csparql(market_query(query, window), watch)
    seconds = window + settings.seconds // 2
    for market, at, triples in transactions(run.seed, size, 100 * seconds):
        engine.push(MARKETS[market], triples, at)
    engine.finish()
    # The window is full in the second half.
    watch.taken = watch.taken[window:] or watch.taken
    yield watch.row()


@contextmanager
def _spark(settings: Sizes, run: items.Run, cores: int, size: int) -> Iterator[SparkMarket]:
    try:
        from tpf_server.continuous.spark.execution import continuous_session
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
) -> Iterable[items.ResultRow]:
    before, started = cpu_time(market.java), time.perf_counter()
    rows = market.replay(market_query(query, window), rules)
    seconds = time.perf_counter() - started
    events = market.events
    yield {
        "events_per_second": events / seconds,
        "cpu_us_per_event": (cpu_time(market.java) - before) / events * 1e6,
        "rows": rows,
    }
