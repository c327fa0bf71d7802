"""Random queries over random elements, recomputed at every millisecond.


The recomputation lists the windows, checks the strategies at each instant, and evaluates a few
query
shapes in Python over sets of triples.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.instants import evaluation_planner
from tpf_server.continuous.runtime.instants.evaluation_planner import FEW_ALONE

END = 40
HORIZON = END + 90
STREAMS = ("http://x/s", "http://x/t")
GRAPHS = ("<http://x/g>", "_:g")
INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
Element = tuple[int, str, tuple[tuple[str, str, str], ...], str | None]


@cache
def _fixed(start: int, step: int, width: int, past: int) -> list[tuple[int, int]]:
    return [(o + past, o + past + width) for o in range(start, HORIZON, step)]


@dataclass(frozen=True)
class Window:
    stream: str
    width: int
    step: int
    start: int
    past: int

    @property
    def text(self) -> str:
        if self.past:
            begin = f"FROM NOW-{self.width + self.past}ms TO NOW-{self.past}ms STEP {self.step}ms"
        else:
            begin = f"RANGE {self.width}ms STEP {self.step}ms"
        return f"[{begin} STARTING AT {self.start}]"

    def fixed(self) -> list[tuple[int, int]]:
        return _fixed(self.start, self.step, self.width, self.past)

    def closes(self, at: int) -> bool:
        return any(at == close for _, close in self.fixed())

    def content(self, at: int, came: list[tuple[int, Element]]) -> frozenset[tuple[int, Element]]:
        present = min(
            ((o, c) for o, c in self.fixed() if o < at <= c), key=lambda w: w[1], default=None
        )
        if present is None:
            return frozenset()
        opened = present[0] - self.past
        return frozenset(
            (number, each)
            for number, each in came
            if each[1] == self.stream and opened < each[0] <= at - self.past
        )


@dataclass(frozen=True)
class ElementWindow:
    stream: str
    count: int
    step: int

    @property
    def text(self) -> str:
        return f"[ELEMENTS {self.count} STEP {self.step}]"

    def fixed(self) -> list[tuple[int, int]]:
        return []

    def closes(self, at: int) -> bool:
        return False

    def content(self, at: int, came: list[tuple[int, Element]]) -> frozenset[tuple[int, Element]]:
        own = [each for each in came if each[1][1] == self.stream and each[1][0] <= at]
        return frozenset(own[-self.count :])

    def closed_by(self, came: list[tuple[int, Element]]) -> bool:
        """True if the last element closes it."""
        own = [each for each in came if each[1][1] == self.stream]
        return came[-1] in own and len(own) % self.step == 0


@dataclass(frozen=True)
class Case:
    windows: tuple[Window | ElementWindow, Window | ElementWindow]
    shape: int
    operator: str
    close: bool
    change: bool
    non_empty: bool
    period: int | None
    tick: str

    @property
    def report(self) -> str:
        said = []
        said += ["WINDOW CLOSE"] * self.close
        said += ["CONTENT CHANGE"] * self.change
        said += ["NON-EMPTY CONTENT"] * self.non_empty
        said += [f"PERIODIC {self.period}ms"] * (self.period is not None)
        return ", ".join(said)

    @property
    def sensible(self) -> bool:
        if not self.report:
            return False
        timing = self.close or self.period is not None
        if any(isinstance(each, ElementWindow) for each in self.used):
            return self.tick == "TUPLE" and self.period is None
        if self.tick == "TIME" and not timing and not self.change:
            return False
        if self.close and self.period is not None:
            return any(c % self.period == 0 for w in self.used for o, c in w.fixed())
        return True

    @property
    def used(self) -> tuple[Window | ElementWindow, ...]:
        return self.windows if self.shape in (1, 4) else self.windows[:1]

    @property
    def text(self) -> str:
        first, *others = (
            f"FROM NAMED WINDOW :w{n} ON <{w.stream}> {w.text}" for n, w in enumerate(self.used)
        )
        select, where = [
            ("?a ?b", "WINDOW :w0 { ?a :p ?b }"),
            ("?a ?c", "WINDOW :w0 { ?a :p ?b } WINDOW :w1 { ?c :p ?b }"),
            ("?b (COUNT(?a) AS ?n)", "WINDOW :w0 { ?a :p ?b }"),
            ("?g ?a ?b", "WINDOW :w0 { GRAPH ?g { ?a :p ?b } }"),
            (
                "?a ?c ?g",
                "WINDOW :w0 { GRAPH :g { ?a :p ?b } ?c :p ?b } "
                "WINDOW :w1 { GRAPH ?g { ?c :p ?d } }",
            ),
            ("(COUNT(*) AS ?n)", "WINDOW :w0 { ?a :p ?b }"),
        ][self.shape]
        return (
            f"PREFIX : <http://x/> REGISTER {self.operator} <o> "
            f"REPORT {self.report} TICK {self.tick} AS SELECT {select} "
            f"{first} {' '.join(others)} WHERE {{ {where} }}"
            + (" GROUP BY ?b" if self.shape == 2 else "")
        )

    def rows(self, contents: list[frozenset[tuple[int, Element]]]) -> Counter[tuple[str, ...]]:
        graphs = [{t for _, (_, _, triples, _) in each for t in triples} for each in contents]
        quads = [
            {(name, *t) for _, (_, _, triples, name) in each if name for t in triples}
            for each in contents
        ]
        match self.shape:
            case 0:
                return Counter((a, b) for a, _, b in graphs[0])
            case 1:
                return Counter((a, c) for a, _, b in graphs[0] for c, _, d in graphs[1] if b == d)
            case 3:
                return Counter((g, a, b) for g, a, _, b in quads[0])
            case 4:
                return Counter(
                    (a, c, g)
                    for named, a, _, b in quads[0]
                    if named == GRAPHS[0]
                    for c, _, other in graphs[0]
                    if other == b
                    for g, subject, _, _ in quads[1]
                    if subject == c
                )
            case 5:
                return Counter([(f'"{len(graphs[0])}"^^<{INTEGER}>',)])
            case _:
                counted = Counter(b for _, _, b in graphs[0])
                return Counter((b, f'"{n}"^^<{INTEGER}>') for b, n in counted.items())


Answered = list[tuple[int, Counter[tuple[str, ...]]]]


class Recomputation:
    def __init__(self, case: Case, elements: list[Element]) -> None:
        self.case = case
        self.elements = list(enumerate(elements))
        self.streams = {w.stream for w in case.used}
        self.last_contents: list[frozenset[tuple[int, Element]]] = [frozenset()] * len(case.used)
        self.last_rows: Counter[tuple[str, ...]] = Counter()
        self.answers: Answered = []

    def timely(self, at: int) -> bool:
        period = self.case.period
        if period is not None and at % period:
            return False
        return not self.case.close or any(w.closes(at) for w in self.case.used)

    def look(
        self,
        at: int,
        came: list[tuple[int, Element]],
        closed: tuple[Window | ElementWindow, ...] = (),
    ) -> None:
        case = self.case
        contents = [w.content(at, came) for w in case.used]
        if not any(
            (not case.close or w.closes(at) or w in closed)
            and (not case.change or now != before)
            and (not case.non_empty or now)
            for w, now, before in zip(case.used, contents, self.last_contents, strict=True)
        ):
            return
        rows = case.rows(contents)
        before, self.last_contents, self.last_rows = self.last_rows, contents, rows
        shown = {"RSTREAM": rows, "ISTREAM": rows - before, "DSTREAM": before - rows}[case.operator]
        if shown or case.operator == "RSTREAM":
            self.answers.append((at, shown))

    def run(self) -> Answered:
        case = self.case
        timing = case.close or case.period is not None
        own = [(n, e) for n, e in self.elements if e[1] in self.streams]
        if not own:
            return []
        first, end = own[0][1][0], self.elements[-1][1][0]
        if case.tick == "TIME":
            # Until every query has answered once at or after the last element.
            for at in range(first, HORIZON):
                if timing and not self.timely(at):
                    continue
                if not timing and at > end:
                    break
                self.look(at, self.elements)
                if at >= end:
                    break
            return self.answers
        looked = first - 1
        if case.tick == "BATCH":
            for at in sorted({e[0] for _, e in own}):
                found = [i for i in range(looked + 1, at + 1) if self.timely(i)]
                looked = at
                if not timing:
                    self.look(at, self.elements)
                elif found:
                    self.look(found[-1], self.elements)
            return self.answers
        for place, (_, (at, stream, *_)) in enumerate(self.elements):
            if stream not in self.streams:
                continue
            if not timing:
                self.look(at, self.elements[: place + 1])
                continue
            found = [i for i in range(looked + 1, at) if self.timely(i)]
            looked = max(looked, at - 1)
            if found:
                self.look(found[-1], self.elements[:place])
            came = self.elements[: place + 1]
            closed = tuple(
                w for w in case.used if isinstance(w, ElementWindow) and w.closed_by(came)
            )
            if closed and case.close:
                self.look(at, came, closed)
        return self.answers


windows = st.builds(
    Window,
    st.sampled_from(STREAMS),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from([0, 0, 3, 7]),
    st.sampled_from([0, 0, 0, 4]),
)
counted = st.builds(ElementWindow, st.sampled_from(STREAMS), st.integers(1, 4), st.integers(1, 3))
any_window = st.one_of(windows, windows, windows, counted)
cases = st.builds(
    Case,
    st.tuples(any_window, any_window),
    st.integers(0, 5),
    st.sampled_from(["RSTREAM", "ISTREAM", "DSTREAM"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, None, 1, 4, 6]),
    st.sampled_from(["TIME", "BATCH", "TUPLE"]),
).filter(lambda case: case.sensible)
triples = st.tuples(
    st.sampled_from(["<http://x/a>", "<http://x/b>"]),
    st.just("<http://x/p>"),
    st.sampled_from(["<http://x/1>", "<http://x/2>"]),
)
elements = st.lists(
    st.tuples(
        st.integers(1, END),
        st.sampled_from(STREAMS),
        st.lists(triples, min_size=1, max_size=2),
        st.sampled_from([None, GRAPHS[0], *GRAPHS]),
    ),
    min_size=1,
    max_size=14,
).map(
    lambda found: [
        (at, s, tuple(dict.fromkeys(t)), g) for at, s, t, g in sorted(found, key=lambda e: e[:3])
    ]
)


@examples(50)
@given(st.lists(cases, min_size=1, max_size=3), elements)
def test_every_report_is_that_of_a_recomputation(found: list[Case], came: list[Element]) -> None:
    engine = Engine()
    answers: list[Answered] = [[] for _ in found]
    for number, case in enumerate(found):

        def take(answer: object, number: int = number) -> None:
            answers[number].append((answer.at, Counter(answer.rows)))  # type: ignore[attr-defined]

        text = case.text.replace("<o>", f"<o{number}>")
        engine.register_rspql(text, take)
    for at, stream, graph, name in came:
        engine.push(stream, graph, at, name)
    engine.finish()
    for case, answered in zip(found, answers, strict=True):
        assert answered == Recomputation(case, came).run(), case.text


coming = st.lists(cases, min_size=1, max_size=2).flatmap(
    lambda some: st.lists(
        st.tuples(st.sampled_from(some), st.integers(0, 14)), min_size=2, max_size=5
    )
)
"""Queries, most of them equal, and before which element they come."""


@examples(25)
@given(coming, elements, st.sampled_from([1, FEW_ALONE]))
def test_queries_that_come_later_answer_as_each_alone(
    found: list[tuple[Case, int]], came: list[Element], few: int
) -> None:
    with patch.object(evaluation_planner, "FEW_ALONE", few):
        _compare_with_each_alone(found, came)


def _compare_with_each_alone(found: list[tuple[Case, int]], came: list[Element]) -> None:
    engine = Engine()
    running: list[tuple[Engine, Answered, Answered, str]] = []

    def start(engine: Engine, text: str) -> Answered:
        answers: Answered = []

        def take(answer: object) -> None:
            answers.append((answer.at, Counter(answer.rows)))  # type: ignore[attr-defined]

        engine.register_rspql(text, take)
        return answers

    for place, (at, stream, graph, name) in enumerate(came):
        for number, (case, begin) in enumerate(found):
            if begin == place:
                text = case.text.replace("<o>", f"<o{number}>")
                alone = Engine()
                running.append((alone, start(engine, text), start(alone, text), text))
        for each in (engine, *(alone for alone, *_ in running)):
            each.push(stream, graph, at, name)
    for each in (engine, *(alone for alone, *_ in running)):
        each.finish()
    for _, shared, expected, text in running:
        assert shared == expected, text
