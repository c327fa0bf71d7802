"""C-SPARQL queries that run, natively or elsewhere, and how often they are evaluated."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, Protocol

from annotations.terms import Term, is_variable
from tpf_client.sparql.algebra import BGP, Path, Pattern
from tpf_client.sparql.rewrite.visitor import everything
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery, PeriodicAnswer, PhysicalWindow
from tpf_server.continuous.csparql.drawing import drawn
from tpf_server.continuous.csparql.native.builder import TooManyStaticError
from tpf_server.continuous.csparql.native.evaluation import PeriodicEvaluation, Question
from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.engine.plans.batch_report import AT_INSTANTS, batch_report
from tpf_server.continuous.engine.running_query import (
    EmissionColumns,
    RunningQuery,
    result_variables,
)
from tpf_server.continuous.engine.semantics import says_now


class ExecutedQuery(RunningQuery[PeriodicAnswer]):
    """A query that an executor runs."""

    def __init__(
        self,
        name: str,
        query: CsparqlQuery,
        callback: Callable[[PeriodicAnswer], None],
        close: Callable[["ExecutedQuery"], None],
    ) -> None:
        super().__init__(name, callback, 0, close)
        self.query = query
        registration = query.registration
        self.stream = None if registration is None else registration.stream
        self.reads = frozenset(clause.stream for clause in query.streams)


class Executor(Protocol):
    """Runs C-SPARQL queries elsewhere.

    It is called under the lock of the service and must not block; answers may come from any thread.
    """

    def start(
        self, query: CsparqlQuery, callback: Callable[[PeriodicAnswer], None], *, name: str
    ) -> ExecutedQuery:
        """Start a query; it sees later elements.

        Later failures are a state of the query (`RunningQuery.stop`).

        Raises:
            UnsupportedContinuousQueryError: it cannot be run here.
        """

    def reads(self, stream: Term) -> bool:
        """True where a running query reads a stream."""

    def arrive(self, stream: Term, triples: Sequence[Sequence[str]], at: int) -> None:
        """Take an element: triples of N-Triples texts."""

    def advance(self, until: int) -> None:
        """Process the elements up to an instant; all have come."""

    def close(self) -> None:
        """End all queries."""


AnswerCallback = Callable[[PeriodicAnswer], None]
_NUMBERS: Final = itertools.count(1)
"""Of queries, in the order of their registration."""


class PeriodicQuery(RunningQuery[PeriodicAnswer]):
    """A query that answers at instants.

    Attributes:
        late: elements that came after an answer that should have seen them.
        last: the last instant of evaluation.
        widens: its steps may grow under load.
        timed: instants lie ahead; otherwise it answers at arrivals only.
        counts: arrivals move its windows: of triples, or (`by_elements`) of elements.
        follows: `coming` and `came` are called.
        told: these say when it is due.
        timely: it has NOW().
        ranges: it has GRAPH ?g, so it depends on the names of static graphs.
        rank: higher than that of each query whose triples it reads.
    """

    def __init__(
        self,
        name: str,
        query: CsparqlQuery,
        evaluation: PeriodicEvaluation,
        question: Question,
        callback: AnswerCallback | None,
        backlog: int,
        close: Callable[["PeriodicQuery"], None],
    ) -> None:
        super().__init__(name, callback, backlog, close)
        self.query = query
        self.instants = query.instants
        self.evaluation = evaluation
        self.question = question
        self.late = 0
        self.number = next(_NUMBERS)
        self.last: int | None = None
        self.rank = 0
        self._arrived = 0
        self._widened = ("", "")
        registration = query.registration
        self.stream = None if registration is None else registration.stream
        self.timed = bool(self.instants.periods)
        self.counts = bool(query.streams) and not self.timed
        self.widens = True
        self.by_elements = False
        self.follows = self.told = False
        self.timely = says_now(query.query)
        self.ranges = any(
            is_variable(graph) for each in everything(query.query) for graph in _graphs_of(each)
        )

    @property
    def states_period(self) -> bool:
        """True where its text has COMPUTED EVERY."""
        registration = self.query.registration
        return registration is not None and registration.every is not None

    def widen(self, factor: int, because: str) -> None:
        """Multiply its steps, for this reason."""
        self.instants = self.query.instants.wider(factor)
        self._widened = ("", "") if factor == 1 else (f"{factor} times ", f": {because}")

    @property
    def every(self) -> str:
        """What decides its instants, for people."""
        if not self.instants.periods:
            return "counted windows"
        times, because = self._widened
        written = "COMPUTED EVERY" if self.states_period else "the step of its windows"
        return f"{times}{written}{because}"

    @property
    def columns(self) -> EmissionColumns:
        """See `RunningQuery`."""
        return EmissionColumns(result_variables(self.query.query))

    def emission(self, each: PeriodicAnswer, number: int) -> Emission:
        """See `RunningQuery`."""
        return Emission(number, each.at, each.rows)

    @property
    def graph(self) -> OperatorGraph:
        """Its operators as they run."""
        return self.evaluation.graph

    def _operators(self) -> list[str]:
        """Its operators as text; shared ones last."""
        shared = drawn(self.graph).as_text().splitlines()
        parts = self.question.parts
        if parts is None or not self.evaluation.widened:
            return shared
        *own, gap = drawn(replace(self.graph, query=parts.own)).as_text().splitlines()
        indent = " " * (len(gap) - len(gap.lstrip()))
        said = f"{indent}shared by queries with other constants: {self.evaluation.owners}"
        return [*own, said, *(f"{indent}  {line}" for line in shared)]

    @property
    def reads(self) -> frozenset[Term]:
        """The streams that it reads."""
        return frozenset(self.evaluation.streams.values())

    def explain(self) -> dict[str, Any]:
        """State, instants, windows and operators."""
        result = {
            **super().explain(),
            "engine": "native",
            "late": self.late,
            "every_ms": list(self.instants.periods),
            "every": self.every,
            "windows": [
                {
                    "stream": clause.stream[1:-1],
                    "window": str(clause.window),
                    "elements": self.evaluation.windows[clause.graph].held,
                    **({"graphs": True} if clause.in_graphs else {}),
                }
                for clause in self.query.streams
            ],
            "plans": self.evaluation.plans,
            "operators": self._operators(),
            "batches": batch_report("off", reason=AT_INSTANTS),
        }
        if self.stream is not None:
            result["stream"] = self.stream[1:-1]
        return result

    def due_first(self, at: int) -> int | None:
        """The first instant at or after `at`."""
        return self.instants.first(at)

    def due_after(self, at: int) -> int | None:
        """The next instant; ``None``: elements decide."""
        return self.instants.after(at)

    def due_at_end(self, at: int) -> int:
        """The instant that has seen everything up to `at`."""
        return self.instants.first(at)

    def passed(self, at: int) -> int | None:  # noqa: ARG002
        """The instant to answer at once, before an element of `at` enters."""
        return None

    def share(self, evaluation: PeriodicEvaluation, question: Question) -> None:
        """Go on with an equal evaluation."""
        self.evaluation = evaluation
        self.question = question

    def coming(self, stream: Term, at: int) -> bool:  # noqa: ARG002
        """Note that an element is about to come; true if an instant is due."""
        return False

    def came(self, stream: Term, at: int) -> bool:  # noqa: ARG002
        """Note that it has entered the windows; true if an instant is due."""
        return False

    def wanted(self, done: int) -> int | None:
        """The next instant that elements decided, after those `done`."""
        raise NotImplementedError

    def answer(self, at: int) -> PeriodicAnswer | None:
        """Answer at an instant; ``None``: there is nothing to say."""
        return self.evaluation.at(at, self.name, self.question) if self.say_now(at) else None

    def say_now(self, at: int) -> bool:
        """Set NOW(); false where that stops the query."""
        if self.timely:
            try:
                self.evaluation.plan_at(at)
            except TooManyStaticError:
                self.stop(UnsupportedContinuousQueryError("too much is static to say NOW()"))
                return False
        return True

    def arrived(self) -> bool:
        """Count a triple; true where a query over counted windows is due."""
        self._arrived += 1
        steps = [
            clause.window.step
            for clause in self.query.streams
            if isinstance(clause.window, PhysicalWindow)
        ]
        return any(self._arrived % step == 0 for step in steps)


def _graphs_of(pattern: Pattern) -> tuple[str, ...]:
    if isinstance(pattern, BGP):
        return tuple(quad.graph for quad in pattern.patterns)
    return (pattern.graph,) if isinstance(pattern, Path) else ()


# How often queries are evaluated where the system is to say it: as often as it can keep up with.
#
# Where a query does not say COMPUTED EVERY, its windows say when it is evaluated, and the load by
# how much rarer. Source: paper 003, section 2.4 with footnote 4.

MOST_FACTOR: Final = 64
"""Times the step of a query, at most."""
_TOO_MUCH: Final = 0.75
_LITTLE: Final = 0.5


class Widen(StrEnum):
    """Queries whose steps may grow."""

    NEVER = "never"
    UNSTATED = "unstated"
    """Those of queries that do not say COMPUTED EVERY."""
    ALL = "all"


class Pace:
    """Widen the steps of queries by a common factor while evaluations take too long.

    The load is the sum of cost by step. The factor doubles above three quarters, and halves where
    half of it keeps the load below a half. The cost is the shorter of the last two, so that a slow
    first evaluation does not count.
    """

    def __init__(self, seconds: Callable[[], float], whose: Widen = Widen.UNSTATED) -> None:
        self.seconds = seconds
        self.factor = 1
        self._whose = whose
        self._because = ""
        self._queries: dict[PeriodicQuery, None] = {}
        self._last: dict[PeriodicQuery, float] = {}
        self._loads: dict[PeriodicQuery, float] = {}
        self._fixed = 0.0
        self._free = 0.0

    def add(self, registered: PeriodicQuery) -> None:
        """Add a query."""
        if (registered.widens and registered.query.instants.periods) and (
            self._whose is Widen.ALL
            or (self._whose is Widen.UNSTATED and not registered.states_period)
        ):
            self._queries[registered] = None
            registered.widen(self.factor, self._because)

    def remove(self, registered: PeriodicQuery) -> None:
        """Remove a query."""
        self.rest(registered)
        self._queries.pop(registered, None)

    def rest(self, registered: PeriodicQuery) -> None:
        """Take out the load of an idle query."""
        if self._last.pop(registered, None) is not None:
            self._load(registered, 0.0)
            del self._loads[registered]
            self._adapt()

    def evaluated(self, registered: PeriodicQuery, seconds: float) -> None:
        """Note the cost of an evaluation."""
        if registered.state != "running":
            return  # what it took had an end with it
        cost = min(seconds, self._last.get(registered, 0.0))
        self._last[registered] = seconds
        self._load(
            registered, sum(1000 * cost / each for each in registered.query.instants.periods)
        )
        self._adapt()

    def _load(self, registered: PeriodicQuery, load: float) -> None:
        more = load - self._loads.get(registered, 0.0)
        self._loads[registered] = load
        if registered in self._queries:
            self._free += more
        else:
            self._fixed += more

    def _at(self, factor: float) -> float:
        return self._fixed + self._free / factor

    def _adapt(self) -> None:
        factor = self.factor
        while self._at(factor) > _TOO_MUCH and self._free > 0 and factor < MOST_FACTOR:
            factor *= 2
        while factor > 1 and self._at(factor / 2) < _LITTLE:
            factor //= 2
        if factor != self.factor:
            self.factor = factor
            self._because = (
                f"evaluations would take {self._at(1):.2f} seconds of CPU per second, "
                f"and take {self._at(factor):.2f}"
            )
            for each in self._queries:
                each.widen(factor, self._because)
