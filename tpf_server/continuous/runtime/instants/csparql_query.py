"""A parsed C-SPARQL query, its windows, triggers and answers."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import gcd, lcm
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from annotations.terms import Term, TermOrVariable, Variable
from tpf_client.dataflow.construct import construct
from tpf_client.sparql.algebra import PathExpression, Query, Row
from tpf_server.continuous.runtime.clock import NEVER
from tpf_server.continuous.runtime.elements.elements import in_graph
from tpf_server.continuous.runtime.static.service_clauses import ServiceClause
from tpf_server.continuous.runtime.windows.matchers import EncodedTriple

# What comes out of a query at an instant.


@dataclass(frozen=True, slots=True)
class PeriodicAnswer:
    """The whole result at an instant (RStream).

    Args:
        at: in milliseconds since 1970.
        form: SELECT, ASK, CONSTRUCT or DESCRIBE.
        variables: of the rows; ``?s``, ``?p`` and ``?o`` of triples.
        rows: ordered solutions, as a bag; distinct triples; one empty row for a true ASK.
    """

    query: str
    at: int
    form: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    @property
    def boolean(self) -> bool:
        return bool(self.rows)

    @property
    def makes_triples(self) -> bool:
        """True where there are triples for a stream."""
        return bool(self.rows) and self.form in ("CONSTRUCT", "DESCRIBE")

    @property
    def elements(self) -> Sequence[Sequence[tuple[Term, Term, Term]]]:
        """Group the triples by graph: one element each."""
        return [in_graph(name, triples) for name, triples in by_graph(self.rows)]


def by_graph(rows: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, list[Any]]]:
    """Group triples by graph, or ``None``."""
    graphs: dict[Any, list[Any]] = {}
    for row in rows:
        named = len(row) == 4 and (row[3] is None or isinstance(row[3], str))
        graphs.setdefault(row[3] if named else None, []).append(row[:3] if named else row)
    return graphs.items()


_QUAD = (Variable("?s"), Variable("?p"), Variable("?o"), Variable("?g"))
_TRIPLE = _QUAD[:3]
_LABELS: Final = count(1)


def answer_of(
    name: str,
    at: int,
    query: Query,
    variables: Sequence[Variable],
    rows: Iterable[Row],
    graphs: Sequence[TermOrVariable | None] = (),
) -> PeriodicAnswer:
    """Make an answer of solutions; `graphs` are those of the triples of the template, if any."""

    def fresh(_: Row) -> str:
        """The beginning of labels of blank nodes that no other answer has."""
        return f"c{at}x{next(_LABELS)}"

    match query.form:
        case "CONSTRUCT" if graphs:
            pairs = zip(query.template, graphs, strict=True)
            template = [each if graph is None else (*each, graph) for each, graph in pairs]
            made = construct(template, variables, rows, fresh)
            quads = dict.fromkeys(each if len(each) == 4 else (*each, None) for each in made)
            return PeriodicAnswer(name, at, "CONSTRUCT", _QUAD, tuple(quads))
        case "CONSTRUCT":
            triples = construct(query.template, variables, rows, fresh)
            return PeriodicAnswer(name, at, "CONSTRUCT", _TRIPLE, tuple(dict.fromkeys(triples)))
        case "DESCRIBE":
            return PeriodicAnswer(name, at, "DESCRIBE", _TRIPLE, tuple(dict.fromkeys(rows)))
        case "ASK":
            return PeriodicAnswer(name, at, "ASK", (), ((),) if any(True for _ in rows) else ())
        case _:
            return PeriodicAnswer(name, at, "SELECT", tuple(variables), tuple(rows))


# What a FROM STREAM clause says about a window, and which elements that means at an instant.
#
# Instants are whole milliseconds. A logical window with range r and step s holds, at instant t,
# the elements with a timestamp in (b - r, b], where b is the last multiple of s that is not after
# t. So windows with the same step move together, whenever they were registered. A physical window
# holds the n triples that came last. Source: paper 003, section 3.2.

_GRAPH: Final = "?.w"
TIMESTAMP: Final = "TIMESTAMP"
"""The name of the timestamp function in `Call`."""


class Occurrence(NamedTuple):
    """A triple of an element: timestamp, number of the element, integers.

    In windows of named graphs it has a fourth term: its graph, or 0 without one. `stamp` is the
    number of the last query that began before it (see `Watermark`).
    """

    at: int
    number: int
    triple: EncodedTriple
    stamp: int


@dataclass(frozen=True, slots=True)
class LogicalWindow:
    """The last `range` milliseconds, moved every `step` milliseconds."""

    range: int
    step: int

    @property
    def shared(self) -> bool:
        return True

    def bounds(self, at: int) -> tuple[int, int]:
        """Return the timestamps at an instant: (lower, upper]."""
        end = at // self.step * self.step
        return end - self.range, end

    def __str__(self) -> str:
        moved = "TUMBLING" if self.step == self.range else f"STEP {self.step}ms"
        return f"RANGE {self.range}ms {moved}"


@dataclass(frozen=True, slots=True)
class PhysicalWindow:
    """The last `count` triples, read whenever `step` more have come."""

    count: int
    step: int = 1

    @property
    def shared(self) -> bool:
        return False

    def full(self, inside: Sequence[Occurrence]) -> bool:
        """True where the oldest of these triples expires."""
        return len(inside) > self.count

    def __str__(self) -> str:
        return f"RANGE TRIPLES {self.count}" + (f" STEP {self.step}" if self.step != 1 else "")


SteppedWindow: TypeAlias = LogicalWindow | PhysicalWindow


@dataclass(frozen=True, slots=True)
class StreamClause:
    """``FROM [NAMED] STREAM <iri> [window]``.

    Args:
        named: it is a named graph only, and no part of the default graph.
        position: index of the clause in the text.
        name: of the window, if not its stream's; GRAPH ?g ranges over none of these.
        in_graphs: it has the named graphs of elements, see `graph_variable`.
    """

    stream: Term
    window: SteppedWindow
    named: bool = False
    position: int = field(default=0, compare=False)
    name: Term | None = None
    in_graphs: bool = False

    @property
    def input(self) -> Term:
        """The key of its occurrences: of triples, or of triples with their graphs."""
        return with_graphs_of(self.stream) if self.in_graphs else self.stream

    @property
    def graph(self) -> Term:
        return self.stream if self.name is None else self.name

    def __str__(self) -> str:
        return f"FROM {'NAMED ' if self.named else ''}STREAM {self.stream} [{self.window}]"


def with_graphs_of(stream: Term) -> Term:
    """Name the triples of a stream together with their graphs."""
    return Term(f"GRAPHS {stream}")


def graph_variable(position: int, number: int) -> Variable:
    """Make a variable of the named graphs in the window of a clause."""
    return Variable(f"{_GRAPH}{position}.{number}")


def place_of(graph: str) -> int | None:
    """Return the clause of a graph variable."""
    if not graph.startswith(_GRAPH):
        return None
    return int(graph[len(_GRAPH) :].partition(".")[0])


@dataclass(frozen=True, slots=True)
class Progression:
    """The instants first, first + step, first + 2 step and so on."""

    first: int
    step: int

    def at_or_after(self, at: int) -> int:
        return max(self.first, self.first - (self.first - at) // self.step * self.step)

    def at_or_before(self, at: int) -> int | None:
        if at < self.first:
            return None
        return self.first + (at - self.first) // self.step * self.step

    def multiples(self, period: int) -> "Progression | None":
        """Those that are multiples of a period, if any."""
        common = gcd(self.step, period)
        if self.first % common:
            return None
        modulus = period // common
        steps = -(self.first // common) * pow(self.step // common, -1, modulus) % modulus
        return Progression(self.first + steps * self.step, lcm(self.step, period))


@dataclass(frozen=True, slots=True)
class Instants:
    """The instants of any of these progressions; none where only arrivals count."""

    progressions: tuple[Progression, ...] = ()

    @classmethod
    def of(cls, every: int | None, windows: Sequence[SteppedWindow]) -> "Instants":
        """Take the multiples of COMPUTED EVERY, or of the steps of logical windows."""
        steps = {window.step for window in windows if isinstance(window, LogicalWindow)}
        if every is not None:
            steps = {every}
        # A multiple of another period adds no instant.
        return cls.multiples(
            sorted(s for s in steps if not any(s != o and s % o == 0 for o in steps))
        )

    @classmethod
    def multiples(cls, periods: Iterable[int]) -> "Instants":
        return cls(tuple(Progression(NEVER // each * each, each) for each in periods))

    @property
    def periods(self) -> tuple[int, ...]:
        return tuple(each.step for each in self.progressions)

    @property
    def greatest_common_period(self) -> int:
        return gcd(*self.periods)

    def wider(self, factor: int) -> "Instants":
        return self.multiples(factor * each for each in self.periods)

    def first(self, at: int) -> int:
        return min([each.at_or_after(at) for each in self.progressions])

    def last(self, at: int) -> int | None:
        result = [each.at_or_before(at) for each in self.progressions]
        return max((each for each in result if each is not None), default=None)

    def after(self, at: int) -> int:
        return self.first(at + 1)

    def between(self, after: int, until: int) -> Iterator[int]:
        """The instants in (after, until]."""
        at = self.after(after)
        while at <= until:
            yield at
            at = self.after(at)


StreamOperator: TypeAlias = Literal["ISTREAM", "DSTREAM", "RSTREAM"]
"""What is streamed: what an answer has more than the one before, what it has less, or all of it."""


@dataclass(frozen=True, slots=True)
class RegisterClause:
    """``REGISTER QUERY|STREAM name [COMPUTED EVERY d] AS``, in milliseconds."""

    name: str
    stream: Term | None = None
    every: int | None = None


# When a query answers. Queries with the same windows and report share a trigger.


class Audience:
    """What has changed for the queries of a trigger that are looked at together.

    Attributes:
        windows: with how many queries have each.
        stale: evaluations of windows that changed.
        touched: queries whose answers may have changed.
        always: queries that answer each time.
        apart: queries that may share more later, as they were registered.
    """

    def __init__(self) -> None:
        self.windows: Counter[Any] = Counter()
        self.stale: dict[Any, None] = {}
        self.touched: dict[Any, None] = {}
        self.always: dict[Any, None] = {}
        self.apart: dict[Any, None] = {}

    def take_stale(self) -> dict[Any, None]:
        stale, self.stale = self.stale, {}
        return stale


class Trigger:
    """The decision to answer: at the multiples of periods, or whenever so many triples have come.

    Attributes:
        number: that of its first query.
        rank: higher than that of each trigger of a query that makes what it reads.
        last: the last instant of an answer.
        since: it sees elements after this number.
        key: equal where queries may share it.
        timed: instants lie ahead; otherwise it is checked after arrivals.
        by_elements: it counts elements, not triples.
        follows: `coming` and `came` are called.
        decides: these determine when it is due.
    """

    by_elements = follows = decides = False
    widens = True

    def __init__(self, instants: Instants, clauses: Sequence[StreamClause], since: int) -> None:
        self.instants = instants
        self.since = since
        self.key: Hashable = tuple(clauses)
        self.reads = frozenset(clause.stream for clause in clauses)
        self.timed = bool(instants.periods)
        self.number = self.rank = 0
        self.last: int | None = None
        self.queries: dict[Any, None] = {}
        self.audience = Audience()
        windows = [clause.window for clause in clauses]
        self._steps = [each.step for each in windows if isinstance(each, PhysicalWindow)]
        self._arrived = 0

    @property
    def counts(self) -> bool:
        """True where arrivals move the windows of its queries."""
        return bool(self.reads) and not self.timed

    def came_before(self, newest: int) -> None:
        """Note the newest instant of elements that came before."""

    def due_first(self, at: int) -> int | None:
        return self.instants.first(at)

    def due_after(self, at: int) -> int | None:
        """The next instant; ``None``: elements decide."""
        return self.instants.after(at)

    def due_at_end(self, at: int) -> int:
        """The instant that has seen everything up to `at`."""
        return self.instants.first(at)

    def coming(self, at: int) -> int | None:  # noqa: ARG002
        """The instant that is due before an element about to come.

        Where elements move the windows it is answered at once.
        """
        return None

    def came(self, stream: Term, at: int, number: int) -> bool:  # noqa: ARG002
        """Note an element in the windows; true if an instant is due."""
        return False

    def wanted(self, done: int) -> int | None:
        """Return the next instant after `done` that elements decided."""
        raise NotImplementedError

    def arrived(self) -> bool:
        """Count an arrival; true where an answer is due."""
        self._arrived += 1
        return any(self._arrived % step == 0 for step in self._steps)

    def instant(self, at: int) -> int:
        """The instant of an answer that is due at `at`."""
        return at

    def holds(self, instant: int) -> bool:  # noqa: ARG002
        """True where there is something to answer; called once for an instant."""
        return True

    def concerns(self, since: int) -> bool:  # noqa: ARG002
        """True where what `holds` does so for a query that sees elements after a number, too."""
        return True

    def equals(self, other: "Trigger") -> bool:  # noqa: ARG002
        """True where the other can decide for its queries from now on."""
        return False


@dataclass(frozen=True, slots=True)
class CsparqlQuery:
    """A C-SPARQL query.

    Args:
        query: the algebra; `Query.dataset` has FROM and FROM NAMED.
        paths: of any length, with their indexes in the text.
        services: SERVICE clauses, which became static graphs.
        wanted: variables needed beside those of the template.
        operator: selects the streamed part of an answer.
        graphs: of the triples of the template, in order.
    """

    query: Query
    streams: tuple[StreamClause, ...]
    registration: RegisterClause | None
    text: str
    paths: tuple[tuple[PathExpression, int], ...] = ()
    services: tuple[ServiceClause, ...] = ()
    wanted: frozenset[Variable] = frozenset()
    operator: StreamOperator = "RSTREAM"
    graphs: tuple[TermOrVariable | None, ...] = ()

    @property
    def instants(self) -> Instants:
        every = None if self.registration is None else self.registration.every
        return Instants.of(every, [clause.window for clause in self.streams])

    @property
    def continuous(self) -> bool:
        """True where it is evaluated more than once."""
        return bool(self.streams) or bool(self.instants.periods)

    @property
    def reads(self) -> frozenset[Term]:
        return frozenset(clause.stream for clause in self.streams)

    @property
    def shares(self) -> bool:
        return self.counts or all(clause.window.shared for clause in self.streams)

    @property
    def counts(self) -> bool:
        return bool(self.streams) and not self.instants.periods

    def trigger(self, since: int) -> Trigger:
        """Make the trigger of a query that sees elements after a number."""
        return Trigger(self.instants, self.streams, since)

    def answer(
        self, name: str, at: int, query: Query, variables: Sequence[Variable], rows: Sequence[Row]
    ) -> PeriodicAnswer:
        """Make an answer of solutions; `query` is its algebra, or an equal one."""
        return answer_of(name, at, query, variables, rows, self.graphs)

    def explain(self) -> dict[str, Any]:
        return {}
