"""Continuous queries recomputed from nothing at every arrival by pyoxigraph.

Every window element is a named graph, and every triple pattern of a STREAM clause is matched in any
of them: windows are bags, and solutions know their elements. Only paths of any length match all
elements of a window together.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyoxigraph as ox

from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.languages.cqels.parser import parse
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.semantics import (
    PAPER,
    PAPER_ANSWER,
    PAPER_DSTREAM,
    PAPER_RSTREAM,
    Semantics,
)
from tpf_server.continuous.runtime.windows.specification import (
    All,
    Now,
    Range,
    Triples,
    Window,
)

_STREAM = re.compile(r"(?i:STREAM)\s+<([^>]*)>\s*\[([^\]]*)\]\s*(?=\{)")
_APART = re.compile(r"VALUES[^{]*\{[^}]*\}|(?:BIND|FILTER)\s*(?=\()|OPTIONAL|UNION|MINUS|[{}]")
_REPEATED = re.compile(r"[>)][+*]")
_IN = ox.NamedNode("urn:reference:in")
_WINDOWS = ox.NamedNode("urn:reference:windows")

_Visible = dict[int, list[tuple[str, str, str]]]
"""The triples in a window, by the number of their arrival."""
Row = tuple[str | None, ...]
Bag = Counter[Row]
When = int | Mapping[str, int]
"""An instant, of all streams or of each."""
Tick = tuple[int, Bag, Bag, Bag]
"""An instant, what came, what went, and all of it."""


def window_of(text: str) -> Window:
    """Return the window between the brackets of a STREAM clause."""
    (clause,) = parse(f"SELECT * {{ STREAM <urn:s> [{text}] {{ ?a ?b ?c }} }}").windows
    return clause.window


@dataclass(frozen=True)
class Arrival:
    """An element: its stream, its time and its triples (N-Triples terms)."""

    stream: str
    at: int
    triples: tuple[tuple[str, str, str], ...]


class Reference:
    """Recomputes a query.

    Args:
        text: the query; STREAM clauses hold triples, separated by `` . ``, BIND, FILTER,
            VALUES, and
            groups of these under OPTIONAL, UNION and MINUS.
        static: N-Quads of the static data, or a store of them, which is left unchanged.
    """

    def __init__(self, text: str, static: str | ox.Store = "") -> None:
        self.clauses: list[tuple[str, Window]] = []
        self._present: set[ox.Quad] = set()
        self._whole: set[int] = set()
        self._gone: set[tuple[int, int]] = set()
        if isinstance(static, str):
            self._store = ox.Store()
            self._store.load(static.encode(), format=ox.RdfFormat.N_QUADS)
        else:
            self._store = static
        self._graphs = 0
        self.text = self._replaced(text)
        self._arrivals: list[Arrival] = []
        self._solved: tuple[list[_Visible], Bag] | None = None

    def _replaced(self, text: str) -> str:
        match = _STREAM.search(text)
        if match is None:
            return text
        end = closing(text, match.end())
        number = len(self.clauses)
        self.clauses.append((match[1], window_of(match[2])))
        body = self._body(text[match.end() + 1 : end], number)
        # What is more than triples is a group of its own: a FILTER in it sees nothing outside.
        flat = _APART.search(text, match.end() + 1, end) is None
        body = body if flat else f"{{ {body} }}"
        return f"{text[: match.start()]}{body}{self._replaced(text[end + 1 :])}"

    def _body(self, body: str, number: int) -> str:
        """Rewrite a STREAM clause, with its triples in the graphs of its elements."""
        parts = []
        at = 0
        while at < len(body):
            match = _APART.search(body, at)
            begin, end = (len(body), len(body)) if match is None else match.span()
            parts.append(self._triples(body[at:begin], number))
            if end < len(body) and body[end] == "(":
                end = closing(body, end) + 1
            parts.append(body[begin:end])
            at = end
        return " ".join(parts)

    def _triples(self, text: str, number: int) -> str:
        parts = []
        for pattern in filter(
            None, (each.strip(" .\n") for each in re.split(r"(?<=[\s>\w])\.\s", text + " "))
        ):
            if _REPEATED.search(pattern):
                self._whole.add(number)
                parts.append(f"GRAPH <urn:reference:whole:{number}> {{ {pattern} }}")
                continue
            graph = f"?graph{self._graphs}"
            self._graphs += 1
            parts.append(
                f"GRAPH {_WINDOWS} {{ {graph} {_IN} <urn:reference:window:{number}> }} "
                f"GRAPH {graph} {{ {pattern} }}"
            )
        return " ".join(parts)

    def boundaries(self, after: int, before: int) -> set[int]:
        """Return the multiples of its slides in between."""
        return {
            at
            for slide in {slide for _, slide in self._slides()}
            for at in range(after // slide * slide + slide, before, slide)
        }

    def _slides(self) -> list[tuple[str, int]]:
        return [
            (stream, window.slide)
            for stream, window in self.clauses
            if isinstance(window, Range) and window.slide is not None
        ]

    def let_go(self, passed: Mapping[str, int]) -> None:
        """Forget elements that no window will have again at these times of its stream."""
        for number, (stream, window) in enumerate(self.clauses):
            if not isinstance(window, Triples):
                first, _ = _bounds(window, passed[stream])
                self._gone.update(
                    (number, place)
                    for place, arrival in enumerate(self._arrivals)
                    if arrival.stream == stream and arrival.at < first
                )

    def change(self, triple: tuple[str, str, str], *, added: bool) -> None:
        """Add or remove a static triple."""
        self._solved = None
        text = f"{' '.join(triple)} .".encode()
        for quad in ox.parse(text, format=ox.RdfFormat.N_TRIPLES):
            (self._store.add if added else self._store.remove)(quad)

    def visible(self, number: int, at: When) -> _Visible:
        """Return the triples in the window of a clause, by the number of their arrival."""
        stream, window = self.clauses[number]
        at = at if isinstance(at, int) else at[stream]
        result: _Visible = {}
        triples = [
            (place, triple)
            for place, arrival in enumerate(self._arrivals)
            if arrival.stream == stream
            for triple in arrival.triples
        ]
        match window:
            case Triples(count):
                triples = [each for each in triples if self._arrivals[each[0]].at <= at][-count:]
            case _:
                first, last = _bounds(window, at)
                triples = [
                    each
                    for each in triples
                    if first <= self._arrivals[each[0]].at <= last
                    and (number, each[0]) not in self._gone
                ]
        for place, triple in triples:
            result.setdefault(place, []).append(triple)
        return result

    def _windows(self, at: When) -> list[_Visible]:
        return [self.visible(number, at) for number in range(len(self.clauses))]

    def _quads(self, windows: Iterable[_Visible]) -> Iterator[ox.Quad]:
        for number, visible in enumerate(windows):
            window = ox.NamedNode(f"urn:reference:window:{number}")
            for place, triples in visible.items():
                graph = ox.NamedNode(f"urn:reference:element:{number}:{place}")
                yield ox.Quad(graph, _IN, window, _WINDOWS)
                lines = "".join(f"{' '.join(triple)} .\n" for triple in triples)
                for quad in ox.parse(lines, format=ox.RdfFormat.N_TRIPLES):
                    yield ox.Quad(quad.subject, quad.predicate, quad.object, graph)
                    if number in self._whole:
                        whole = ox.NamedNode(f"urn:reference:whole:{number}")
                        yield ox.Quad(quad.subject, quad.predicate, quad.object, whole)

    def _query(self, text: str, windows: Iterable[_Visible]) -> ox.QuerySolutions | ox.QueryBoolean:
        for quad in self._present - (now := set(self._quads(windows))):
            self._store.remove(quad)
        self._store.extend(now - self._present)
        self._present = now
        found = self._store.query(text)
        assert isinstance(found, (ox.QuerySolutions, ox.QueryBoolean))
        return found

    def close(self) -> None:
        """Take the windows out of the store."""
        for quad in self._present:
            self._store.remove(quad)
        self._present = set()

    def arrive(self, arrival: Arrival) -> None:
        """Add an element."""
        self._arrivals.append(arrival)

    def solutions(self, at: When) -> "Counter[Row]":
        """Return the bag of solutions over the windows at this time."""
        windows = self._windows(at)
        # At most instants nothing came or went.
        if self._solved is None or self._solved[0] != windows:
            self._solved = windows, self._solutions(windows)
        return self._solved[1]

    def _solutions(self, windows: Iterable[_Visible]) -> "Counter[Row]":
        found = self._query(self.text, windows)
        if isinstance(found, ox.QueryBoolean):
            return Counter({(): 1} if found else {})
        return Counter(_row(solution, range(len(found.variables))) for solution in found)

    def derivations(self, at: int, new: set[tuple[int, int]]) -> "Counter[Row]":
        """Return the solutions of which a new element is part, once for each way."""
        graphs = " ".join(f"?graph{number}" for number in range(self._graphs))
        text = re.sub(r"SELECT (.*?)\s*WHERE", rf"SELECT \1 {graphs} WHERE", self.text, count=1)
        found = self._query(text, self._windows(at))
        assert isinstance(found, ox.QuerySolutions)
        width = len(found.variables) - self._graphs
        result: Counter[Row] = Counter()
        for solution in found:
            elements = set()
            for place in range(width, len(found.variables)):
                element = solution[place]
                assert isinstance(element, ox.NamedNode)
                _, clause, arrival = element.value.rsplit(":", 2)
                elements.add((int(clause), int(arrival)))
            if elements & new:
                result[_row(solution, range(width))] += 1
        return result


class Clocks:
    """The time of streams, millisecond by millisecond.

    Attributes:
        present: the largest time of all streams but that of an element.
    """

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams = tuple(streams)
        self.present: int | None = None
        self._front: int | None = None
        self._told = -1
        self._newest = dict.fromkeys(self.streams, -1)
        self._lag = dict.fromkeys(self.streams, 0)

    def passed(self) -> dict[str, int]:
        """Return until when each stream is complete."""
        return {each: max(newest, self._told) for each, newest in self._newest.items()}

    def late(self, stream: str, at: int) -> bool:
        """True if an element is too late."""
        return at < self.passed()[stream]

    def times(self) -> dict[str, int]:
        """Return the time of each stream."""
        front = 0 if self._front is None else self._front
        return {
            each: max(passed, front - self._lag[each]) for each, passed in self.passed().items()
        }

    def arrive(self, stream: str, at: int, look: "Look") -> None:
        """Move by an element; `look` is called before each millisecond until then."""
        front = at if self._front is None else self._front
        until = max(front, at if self.present is None else min(at, self.present))
        if self._front is not None:
            self._catch_up([stream], min(at, front + 1), look)
            if at > front:
                self._lag[stream] = 0
            for each in range(front + 1, until + (until < at)):
                self._go(each, look)
        self._front = until
        if self.times()[stream] < at:
            self._catch_up([stream], at, look)
        self._newest[stream] = at
        self._lag[stream] = max(0, until - at)

    def advance(self, at: int, look: "Look") -> bool:
        """Set the time; return True if anything moves."""
        moves = True
        if self._front is not None:
            until = min(at, self._front)
            behind = [each for each, time in self.times().items() if time < until]
            self._catch_up(behind, min(at, self._front + 1), look)
            for each in behind:
                self._lag[each] = self._front - until
            for instant in range(self._front + 1, at):
                self._go(instant, look)
            moves = bool(behind) or at > self._front
        self._told = at
        self._front = at if self._front is None else max(at, self._front)
        return moves

    def _go(self, at: int, look: "Look") -> None:
        self._front = at
        look(at, self.times())

    def _catch_up(self, streams: list[str], until: int, look: "Look") -> None:
        assert self._front is not None
        for at in range(min(map(self.times().__getitem__, streams), default=until) + 1, until):
            before = self.times()
            for each in streams:
                if before[each] < at:
                    self._lag[each] = max(0, self._front - at)
                    if at > self._front:
                        self._newest[each] = at
            look(at, self.times())


Look = Callable[[int, Mapping[str, int]], None]


class Beside:
    """A query and its expected emissions; begins at `at`, or with the first element."""

    def __init__(self, text: str, static: str | ox.Store, at: int | None = None) -> None:
        self.reference = Reference(text, static)
        self._before: Bag = Counter()
        self._at = at
        self._spoken: set[int] = set()

    def arrive(self, arrival: Arrival, clocks: Clocks) -> list[Tick]:
        """Return the changes that an element makes, where streams are ahead and behind."""
        ticks: list[Tick] = []
        clocks.arrive(arrival.stream, arrival.at, self._looking(ticks))
        self.reference.arrive(arrival)
        self._look(arrival.at, clocks.times(), ticks)
        self.reference.let_go(clocks.passed())
        return ticks

    def advance(self, at: int, clocks: Clocks) -> list[Tick]:
        """Return the changes that a new time makes."""
        ticks: list[Tick] = []
        if clocks.advance(at, self._looking(ticks)):
            self._look(at, clocks.times(), ticks)
        self.reference.let_go(clocks.passed())
        return ticks

    def _looking(self, ticks: list[Tick]) -> Look:
        def look(at: int, now: Mapping[str, int]) -> None:
            self._look(at, now, ticks)

        return look

    def _look(self, at: int, times: When, ticks: list[Tick]) -> None:
        now, before = self.reference.solutions(times), self._before
        self._before = now
        ticks.append((at, now - before, before - now, now))

    def seen(self, at: int, *, begun: bool = True) -> list[Tick]:
        """Return rows that came, rows that went and all rows, for every millisecond."""
        first = at if self._at is None else min(self._at + 1, at)
        found: list[Tick] = []
        for each in range(first, at + 1):
            self._look(each, each, found)
        self._spoken = {at} if self._at is None else {at, *self.reference.boundaries(self._at, at)}
        self._at = at if begun else None
        return found

    def emissions(self, ticks: list[Tick], policy: Semantics = PAPER) -> list[tuple[int, Bag]]:
        """Return the emissions of a policy, from ticks of `seen`.

        One that emits everything does so at an element, at each multiple of a slide, and where
        something changes.
        """
        return {
            PAPER: [(at, new) for at, new, _, _ in ticks if new],
            PAPER_DSTREAM: [(at, old) for at, _, old, _ in ticks if old],
            PAPER_ANSWER: [(at, now) for at, new, old, now in ticks if new or old],
            PAPER_RSTREAM: [
                (at, now) for at, new, old, now in ticks if new or old or at in self._spoken
            ],
        }[policy]


def emitted(query: RegisteredQuery) -> list[tuple[int, Bag]]:
    """Take the emissions of a query that are waiting."""
    return [(each.at, Counter(each.rows)) for each in query]


POLICIES = (PAPER, PAPER_DSTREAM, PAPER_RSTREAM, PAPER_ANSWER)


def compare_emissions(
    engine: Engine,
    text: str,
    beside: Beside,
    elements: Iterable[tuple[str, int, tuple[tuple[str, str, str], ...]]],
    policies: Iterable[Semantics] = POLICIES,
) -> None:
    """Play elements (stream, pause, triples) to a query under each policy, beside its reference."""
    queries = {policy: engine.register(text, semantics=policy) for policy in policies}
    at = 0
    for stream, pause, triples in elements:
        at += pause
        beside.reference.arrive(Arrival(stream, at, triples))
        engine.push(stream, triples, at)
        ticks = beside.seen(at)
        for policy, query in queries.items():
            assert emitted(query) == beside.emissions(ticks, policy), (policy.name, text, elements)


def closing(text: str, at: int) -> int:
    """Return the closing bracket of the one at an offset."""
    opening, closing = text[at], {"{": "}", "(": ")"}[text[at]]
    depth = 0
    while True:
        depth += (text[at] == opening) - (text[at] == closing)
        if not depth:
            return at
        at += 1


def _row(solution: ox.QuerySolution, places: range) -> Row:
    return tuple(None if solution[place] is None else str(solution[place]) for place in places)


def _bounds(window: Window, at: int) -> tuple[int, int]:
    match window:
        case Now():
            return at, at
        case All():
            return -1, at
        case Range(width, None):
            return at - width, at
        case Range(width, slide):
            assert slide is not None
            boundary = at // slide * slide
            return boundary - width, boundary
    raise AssertionError(window)
