"""``sharing``: what an element costs where a thousand continuous queries differ in one constant."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple, Self

from annotations.terms import Term
from experiments.harness.items import Figure, Finding, Item, Point, Table, Target
from experiments.harness.measurement import Measurement, MeasurementGroup, ResultRow, Run
from experiments.harness.report import rounded, sentence_list
from experiments.harness.results import Results
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.engine.delivery import Emission

_INTEGER: Final = "http://www.w3.org/2001/XMLSchema#integer"
_VALUES: Final = 1009
"""Values are spread evenly over so many integers from 0 on."""
_STREAMS: Final = 100
_READERS: Final = 10
"""Unlike queries that read the stream that gets elements."""


class Case(NamedTuple):
    """Queries that differ in one constant.

    Args:
        text: with a place for the constant, and one for the stream.
        constant: the constant of the query with a number, of so many.
        target: how many times the cost of one query that of all may be; ``None``: what all must be
            told costs more than that.
        grouped: whether each has groups of its own, because it holds other rows than the others.
    """

    text: str
    constant: Callable[[int, int], int]
    target: float | None = 10.0
    grouped: bool = False


_ROWS = "{ STREAM <urn:s0> [RANGE 1s] { ?a <urn:v> ?v } }"
_COUNT = "SELECT ?a (COUNT(*) AS ?n) { STREAM <urn:s0> [RANGE %s] { ?a <urn:v> ?v } } GROUP BY ?a"
SHARING_CASES: Final = {
    "pattern": Case(
        "SELECT ?v { STREAM <urn:s0> [RANGE 1s] { <urn:a%d> <urn:v> ?v } }", lambda n, _: n
    ),
    # About one of a hundred is met.
    "FILTER": Case(f"SELECT ?a {_ROWS[:-1]} FILTER(?v = %d) }}", lambda n, _: n),
    "FILTER, half": Case(
        f"SELECT ?a {_ROWS[:-1]} FILTER(?v > %d) }}", lambda n, of: n * _VALUES // of, None
    ),
    "FILTER under LIMIT": Case(
        f"SELECT ?a {_ROWS[:-1]} FILTER(?v = %d) }} ORDER BY ?a LIMIT 5", lambda n, _: n
    ),
    "HAVING": Case(_COUNT.replace("%s", "1s") + " HAVING(COUNT(*) > %d)", lambda n, _: n),
    "LIMIT": Case(f"SELECT ?a ?v {_ROWS} ORDER BY DESC(?v) LIMIT %d", lambda n, _: n + 1, None),
    "LIMIT without order": Case(f"SELECT ?a ?v {_ROWS} LIMIT %d", lambda n, _: n + 1, None),
    "LIMIT of groups": Case(
        f"SELECT ?a (MAX(?v) AS ?m) {_ROWS} GROUP BY ?a ORDER BY DESC(?m) LIMIT %d",
        lambda n, _: n + 1,
        None,
    ),
    "OFFSET": Case(
        f"SELECT ?a ?v {_ROWS} ORDER BY DESC(?v) OFFSET %d LIMIT 5", lambda n, _: n, None
    ),
    "RANGE": Case(_ROWS.replace("1s", "%dms").join(["SELECT ?a ?v ", ""]), lambda n, _: n, None),
    "RANGE of groups": Case(_COUNT.replace("%s", "%dms"), lambda n, _: n, None, grouped=True),
}
UNLIKE: Final = {
    "plain": "SELECT ?a ?v (%d AS ?n%d) { %s }",
    "GROUP BY": "SELECT ?a (COUNT(*) + %d AS ?n%d) { %s } GROUP BY ?a",
    "ORDER BY LIMIT": "SELECT ?a ?v (%d AS ?n%d) { %s } ORDER BY DESC(?v) LIMIT 5",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment.

    Args:
        queries: how many differ.
        before: elements that come before queries that are late.
        events: elements that are measured.
    """

    queries: tuple[int, ...] = (100, 1000)
    before: int = 2000
    events: int = 500

    @classmethod
    def quick(cls) -> Self:
        """Only many queries, fewer elements."""
        return cls(queries=(100,), before=200, events=40)


class Sharing:
    """The experiment."""

    name = "sharing"
    question = (
        "What does an element cost where continuous queries differ in one constant, whenever they "
        "are registered, and where unlike ones read other streams?"
    )
    settings = Sizes
    keys = ("differ_in", "registered", "queries")
    values = ("us_one", "us_all", "ratio", "callbacks", "us_callbacks", "us_by_hand", "plans")

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:  # noqa: ARG002
        """One for each kind of constant, and one for unlike queries."""
        for name in SHARING_CASES:
            yield MeasurementGroup(
                name,
                nullcontext,
                [
                    Measurement(
                        {"differ_in": name, "registered": when, "queries": count},
                        partial(_alike, settings, name, when, count),
                        repetitions=1,
                    )
                    for count in settings.queries
                    for when in ("first", "late", "between")
                ],
            )
        count = settings.queries[-1]
        yield MeasurementGroup(
            "unlike queries",
            nullcontext,
            [
                Measurement(
                    {"differ_in": name, "registered": "unlike", "queries": count},
                    partial(_unlike, settings, name, count),
                    repetitions=1,
                )
                for name in UNLIKE
            ],
        )

    def report(self, results: Results) -> Iterable[Item]:
        """A table, a figure, the targets, and what is told to how many."""
        rows = [row for row in results.rows if row.get("us_all") is not None]
        header = (*self.keys, *self.values)
        yield Table("Per element", header, [[row.get(key) for key in header] for row in rows])
        most = max((int(row["queries"] or 0) for row in rows), default=0)
        series: dict[str, list[Point]] = {}
        for row in rows:
            if row["registered"] != "unlike" and int(row["queries"] or 0) == most:
                point = Point(str(row["differ_in"]), float(row["ratio"] or 0))
                series.setdefault(str(row["registered"]), []).append(point)
        yield Figure(
            "sharing",
            f"An element where {most} queries differ in one constant",
            "what they differ in",
            "times the cost of one query",
            series,
            kind="bars",
            log_y=True,
        )
        aimed: dict[str, float] = {}
        told: dict[str, list[str]] = {}
        by_hand: dict[str, list[str]] = {}
        for row in rows:
            name, when, count = row["differ_in"], row["registered"], int(row["queries"] or 0)
            case = f"{name}, {count:,} queries"
            ratio, callbacks = float(row["ratio"] or 0), float(row["callbacks"] or 0)
            if when == "unlike":
                what = f"{case}, unlike: times those on the stream alone"
                yield Target(what, ratio, 2.0)
                continue
            spent = float(row["us_all"] or 0)
            target = SHARING_CASES[str(name)].target
            if target is not None and count >= 1000:
                yield Target(f"{case}, {when}: times one query", ratio, target)
                aimed[f"{name}, {when}"] = ratio
            elif count >= 1000 and callbacks >= 1:
                times = rounded(spent / float(row["us_callbacks"] or 1))
                told.setdefault(case, []).append(f"{times} ({rounded(callbacks)}, {when})")
            if alone := float(row["us_by_hand"] or 0):
                by_hand.setdefault(case, []).append(f"{rounded(spent / alone)} ({when})")
        yield from _shared(aimed, most)
        for case, each in told.items():
            yield Finding(
                f"{case}: {sentence_list(each)} times the cost of telling those who are told of "
                "an element (how many, when they are registered)."
            )
        for case, each in by_hand.items():
            yield Finding(
                f"{case}: {sentence_list(each)} times what a loop over the windows takes that is "
                "written for this query alone (when they are registered)."
            )


def _shared(ratios: Mapping[str, float], most: int) -> Iterator[Finding]:
    """What many queries cost by one, where nearly all of their work can be shared."""
    if ratios:
        least, worst = (choose(ratios, key=ratios.__getitem__) for choose in (min, max))
        yield Finding(
            f"With {most:,} queries that differ in a constant an element costs "
            f"{rounded(ratios[least])} ({least}) to {rounded(ratios[worst])} times ({worst}) as "
            "much as with one, where few of them are told of it.",
            headline=True,
        )


class _Side:
    """An engine that is measured beside another.

    Attributes:
        blocks: what elements took, some at a time, in seconds of this thread.
        told: how many emissions there were.
    """

    def __init__(self) -> None:
        self.engine = Engine()
        self.at = 0
        self.blocks: list[float] = []
        self.told = 0

    def take(self, _emission: Emission) -> None:
        """A callback."""
        self.told += 1

    def push(self, count: int) -> None:
        """So many elements come, ten milliseconds after one another."""
        push, at = self.engine.push, self.at
        for number in range(at, at + count):
            value = f'"{number * 7919 % _VALUES}"^^<{_INTEGER}>'
            push("urn:s0", (f"<urn:a{number % 50}>", "<urn:v>", value), number * 10)
        self.at += count

    def measure(self, count: int) -> None:
        """The same, and how long that takes."""
        started = time.thread_time()
        self.push(count)
        self.blocks.append(time.thread_time() - started)


class _ByHand(_Side):
    """What no engine can do without where queries hold other rows: a window, counts and a row each.

    Args:
        widths: of the windows, in milliseconds.
    """

    def __init__(self, widths: Iterable[int]) -> None:
        super().__init__()
        self._windows = [(width, deque[tuple[int, str]](), Counter[str]()) for width in widths]

    def push(self, count: int) -> None:
        """See `_Side`."""
        for number in range(self.at, self.at + count):
            self._arrive(f"<urn:a{number % 50}>", number * 10)
        self.at += count

    def _arrive(self, who: str, at: int) -> None:
        for width, window, counts in self._windows:
            while window and window[0][0] < at - width:
                counts[window.popleft()[1]] -= 1
            window.append((at, who))
            counts[who] += 1
            self.take(Emission(1, at, ((Term(who), Term(f'"{counts[who]}"^^<{_INTEGER}>')),)))


def _compared(settings: Sizes, one: _Side, many: _Side, by_hand: _Side | None = None) -> ResultRow:
    """What an element costs on both sides, and what calling alone would cost, or code by hand."""
    sides = [one, many] if by_hand is None else [one, many, by_hand]
    # Windows are full, and plans have become one.
    for side in sides:
        side.push(200)
        side.told = 0
    block = max(1, settings.events // 20)
    for _ in range(20):
        for side in sides:
            side.measure(block)
    told = many.told / block / 20
    # What else the machine did meets some blocks only.
    us_one, us_all, *us_by_hand = (median(each.blocks) / block * 1e6 for each in sides)
    return {
        "us_one": us_one,
        "us_all": us_all,
        "ratio": us_all / us_one,
        "callbacks": told,
        "us_callbacks": _calling(many.take, max(1, round(told))) if told else None,
        "us_by_hand": us_by_hand[0] if us_by_hand else None,
        "plans": len({each.plan for each in many.engine.queries.values()}),
    }


def _calling(take: Callable[[Emission], None], count: int) -> float:
    """Microseconds of calling so many callbacks, and of nothing else."""
    emission = Emission(1, 0, ())
    readers = [take] * count
    taken = []
    for _ in range(20):
        started = time.thread_time()
        for each in readers:
            each(emission)
        taken.append(time.thread_time() - started)
    return median(taken) * 1e6


def _alike(settings: Sizes, name: str, when: str, count: int, _opened: Any) -> Iterable[ResultRow]:
    case = SHARING_CASES[name]
    one, many = _Side(), _Side()
    for side, queries in ((one, 1), (many, count)):
        if when != "first":
            side.engine.register(case.text % case.constant(0, queries), side.take)
            side.push(settings.before if when == "late" else 1)
        for number in range(queries):
            side.engine.register(case.text % case.constant(number, queries), side.take)
            if when == "between":
                side.push(1)
    widths = [case.constant(number, count) for number in range(count)]
    yield _compared(settings, one, many, _ByHand(widths) if case.grouped else None)


def _unlike(settings: Sizes, name: str, count: int, _opened: Any) -> Iterable[ResultRow]:
    alone, all_ = _Side(), _Side()
    for side, queries in ((alone, _READERS), (all_, count)):
        for number in range(queries):
            # Ten on a stream: those on the first are the same on both sides.
            stream = f"STREAM <urn:s{number // _READERS % _STREAMS}> [RANGE 1s] {{ ?a <urn:v> ?v }}"
            side.engine.register(UNLIKE[name] % (number, number, stream), side.take)
    yield _compared(settings, alone, all_)
