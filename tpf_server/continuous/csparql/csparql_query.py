"""A C-SPARQL query as its parser gives it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import gcd
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from annotations.terms import Term, Variable
from tpf_client.dataflow.construct import construct
from tpf_client.sparql.algebra import PathExpression, Query, Row
from tpf_server.continuous.engine.elements.elements import in_graph
from tpf_server.continuous.engine.static.service_clauses import ServiceClause
from tpf_server.continuous.engine.windows.matchers import EncodedTriple

# What comes out of a query at an instant.


@dataclass(frozen=True, slots=True)
class PeriodicAnswer:
    """The whole result at an instant (RStream).

    Args:
        query: the name of the query.
        at: the instant, in milliseconds since 1970.
        form: SELECT, ASK, CONSTRUCT or DESCRIBE.
        variables: of the rows; those of a triple are ``?s``, ``?p`` and ``?o``.
        rows: solutions in their order, with repetitions; the triples of a graph, each once; for
            ASK one empty row where the answer is yes.
    """

    query: str
    at: int
    form: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    @property
    def boolean(self) -> bool:
        """The answer of ASK."""
        return bool(self.rows)

    @property
    def makes_triples(self) -> bool:
        """Whether triples came out, which can be elements of a stream."""
        return bool(self.rows) and self.form in ("CONSTRUCT", "DESCRIBE")

    @property
    def elements(self) -> Sequence[Sequence[tuple[Term, Term, Term]]]:
        """What triples come into a stream as: one element; where they are in graphs, one of each.

        The triples of no graph are one, too.
        """
        return [in_graph(name, triples) for name, triples in by_graph(self.rows)]


def by_graph(rows: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, list[Any]]]:
    """Triples by the names of their graphs, which follow them; ``None`` without one."""
    graphs: dict[Any, list[Any]] = {}
    for row in rows:
        named = len(row) == 4 and (row[3] is None or isinstance(row[3], str))
        graphs.setdefault(row[3] if named else None, []).append(row[:3] if named else row)
    return graphs.items()


_TRIPLE = (Variable("?s"), Variable("?p"), Variable("?o"))


def answer_of(
    name: str, at: int, query: Query, variables: Sequence[Variable], rows: Iterable[Row]
) -> PeriodicAnswer:
    """The answer that solutions make.

    Args:
        name: of the query.
        at: the instant.
        query: what makes solutions into an answer.
        variables: of the solutions.
        rows: the solutions (for DESCRIBE: the triples).
    """
    match query.form:
        case "CONSTRUCT":
            numbers = count()
            triples = construct(query.template, variables, rows, lambda _: f"c{at}x{next(numbers)}")
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


class Occurrence(NamedTuple):
    """A triple of an element: when it is from, its number in the engine, and what it says.

    In windows of named graphs it has a fourth term: its graph, or 0 where it is in none.
    """

    at: int
    number: int
    triple: EncodedTriple


@dataclass(frozen=True, slots=True)
class LogicalWindow:
    """The last `range` milliseconds, moved on every `step` milliseconds."""

    range: int
    step: int

    @property
    def shared(self) -> bool:
        """Whether queries may have it in common."""
        return True

    def bounds(self, at: int) -> tuple[int, int]:
        """The elements that are seen at an instant have timestamps in (lower, upper]."""
        end = at // self.step * self.step
        return end - self.range, end

    def __str__(self) -> str:
        moved = "TUMBLING" if self.step == self.range else f"STEP {self.step}ms"
        return f"RANGE {self.range}ms {moved}"


@dataclass(frozen=True, slots=True)
class PhysicalWindow:
    """The last `count` triples, looked at whenever `step` more have come."""

    count: int
    step: int = 1

    @property
    def shared(self) -> bool:
        """Whether queries may have it in common."""
        return False

    def full(self, inside: Sequence[Occurrence]) -> bool:
        """Whether the oldest of these triples is to go."""
        return len(inside) > self.count

    def __str__(self) -> str:
        return f"RANGE TRIPLES {self.count}" + (f" STEP {self.step}" if self.step != 1 else "")


SteppedWindow: TypeAlias = LogicalWindow | PhysicalWindow


@dataclass(frozen=True, slots=True)
class StreamClause:
    """``FROM [NAMED] STREAM <iri> [window]``.

    Args:
        stream: the IRI of the stream, as a term.
        window: what of it is seen.
        named: whether it is a named graph only, and no part of the default graph.
        position: index of the clause in the text of the query.
        name: what the window is called, where that is not the name of its stream; then there may
            be several over one stream, and GRAPH ?g ranges over none of them.
        in_graphs: whether it is of the named graphs of its elements, see `graph_variable`.
    """

    stream: Term
    window: SteppedWindow
    named: bool = False
    position: int = 0
    name: Term | None = None
    in_graphs: bool = False

    @property
    def input(self) -> Term:
        """What comes into it: the triples of its stream, or these with their graphs."""
        return with_graphs_of(self.stream) if self.in_graphs else self.stream

    @property
    def graph(self) -> Term:
        """What patterns call it."""
        return self.stream if self.name is None else self.name

    def __str__(self) -> str:
        return f"FROM {'NAMED ' if self.named else ''}STREAM {self.stream} [{self.window}]"


def with_graphs_of(stream: Term) -> Term:
    """What the triples of a stream are called, together with their graphs; no stream is."""
    return Term(f"GRAPHS {stream}")


def graph_variable(place: int, number: int) -> Variable:
    """The graph of triple patterns in a window of named graphs: it is bound to their names.

    Args:
        place: of its clause among those of the query.
        number: tells several variables apart.
    """
    return Variable(f"{_GRAPH}{place}.{number}")


def place_of(graph: str) -> int | None:
    """The place of the clause whose named graphs a variable stands for, if it does."""
    if not graph.startswith(_GRAPH):
        return None
    return int(graph[len(_GRAPH) :].partition(".")[0])


@dataclass(frozen=True, slots=True)
class Instants:
    """When a query is evaluated: at every multiple of any of these periods.

    Args:
        periods: in milliseconds; empty where only arrivals count.
    """

    periods: tuple[int, ...]

    @classmethod
    def of(cls, every: int | None, windows: Sequence[SteppedWindow]) -> "Instants":
        """COMPUTED EVERY where it is given, otherwise whenever a logical window moves."""
        if every is not None:
            return cls((every,))
        steps = {window.step for window in windows if isinstance(window, LogicalWindow)}
        # A multiple of another period adds no instant.
        return cls(tuple(sorted(s for s in steps if not any(s != o and s % o == 0 for o in steps))))

    @property
    def greatest_common_period(self) -> int:
        """All instants are multiples of this one."""
        return gcd(*self.periods)

    def wider(self, factor: int) -> "Instants":
        """Every so many steps."""
        return Instants(tuple(factor * period for period in self.periods))

    def first(self, at: int) -> int:
        """The first instant that is not before `at`."""
        return min(-(-at // period) * period for period in self.periods)

    def after(self, at: int) -> int:
        """The first instant after `at`."""
        return self.first(at + 1)

    def between(self, after: int, until: int) -> Iterator[int]:
        """The instants in (after, until]."""
        at = self.after(after)
        while at <= until:
            yield at
            at = self.after(at)


_Kind = Literal["query", "stream"]


@dataclass(frozen=True, slots=True)
class RegisterClause:
    """``REGISTER QUERY|STREAM name [COMPUTED EVERY d] AS``.

    Args:
        kind: whether solutions or triples of a stream come out.
        name: of the query.
        stream: for a stream: its IRI, as a term.
        every: COMPUTED EVERY, in milliseconds.
    """

    kind: _Kind
    name: str
    stream: Term | None = None
    every: int | None = None


@dataclass(frozen=True, slots=True)
class CsparqlQuery:
    """A C-SPARQL query.

    Args:
        query: the algebra; `Query.dataset` holds the clauses of static graphs.
        streams: the FROM STREAM clauses, in the order of the text.
        registration: what REGISTER says, where there is one.
        text: what was parsed.
        paths: the paths of any length, with the index of the first character of each.
        services: what the static graphs hold that stand for SERVICE clauses.
        wanted: variables that are wanted of solutions beside those of the template.
    """

    query: Query
    streams: tuple[StreamClause, ...]
    registration: RegisterClause | None
    text: str
    paths: tuple[tuple[PathExpression, int], ...] = ()
    services: tuple[ServiceClause, ...] = ()
    wanted: frozenset[Variable] = frozenset()

    @property
    def instants(self) -> Instants:
        """When it is evaluated."""
        every = None if self.registration is None else self.registration.every
        return Instants.of(every, [clause.window for clause in self.streams])

    @property
    def continuous(self) -> bool:
        """Whether anything says when to evaluate it again."""
        return bool(self.streams) or bool(self.instants.periods)
