"""Running C-SPARQL queries, native or elsewhere, and the pace of their evaluation."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, Protocol

from annotations.terms import Term, is_variable
from tpf_client.sparql.algebra import BGP, Path, Pattern, Row
from tpf_client.sparql.rewrite.visitor import everything
from tpf_server.continuous.runtime.clock import NEVER
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.builder import TooManyStaticError
from tpf_server.continuous.runtime.instants.csparql_query import (
    CsparqlQuery,
    Instants,
    PeriodicAnswer,
    StreamOperator,
    Trigger,
)
from tpf_server.continuous.runtime.instants.drawing import drawn
from tpf_server.continuous.runtime.instants.evaluation import (
    AnswerRows,
    PeriodicEvaluation,
    Question,
)
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph
from tpf_server.continuous.runtime.plans.batch_report import AT_INSTANTS, batch_report
from tpf_server.continuous.runtime.running_query import (
    EmissionColumns,
    RunningQuery,
    result_variables,
)
from tpf_server.continuous.runtime.semantics import says_now


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
        self.reads = query.reads


class Executor(Protocol):
    """Run C-SPARQL queries elsewhere.

    It is called under the lock of the service and must not block; answers may come from any thread.
    """

    def prepare(self) -> None:
        """Begin what takes time before the first query; failures are those of the queries.

        Raises:
            UnsupportedContinuousQueryError: it cannot run here.
        """

    def start(
        self, query: CsparqlQuery, callback: Callable[[PeriodicAnswer], None], *, name: str
    ) -> ExecutedQuery:
        """Start a query; it sees later elements.

        Later failures are its state (`RunningQuery.stop`).

        Raises:
            UnsupportedContinuousQueryError: it cannot be run here.
        """

    def reads(self, stream: Term) -> bool:
        """True where a running query reads a stream."""

    def arrive(self, stream: Term, triples: Sequence[Sequence[str]], at: int) -> None:
        """Take an element: triples of N-Triples texts."""

    def advance(self, told: int | None, present: int | None) -> None:
        """Process what came; `told`: all elements up to that instant have come."""

    def close(self) -> None:
        """End all queries."""


AnswerCallback = Callable[[PeriodicAnswer], None]
_NUMBERS: Final = itertools.count(1)
"""Of queries, in the order of their registration."""


class PeriodicQuery(RunningQuery[PeriodicAnswer]):
    """A query that answers at instants.

    Attributes:
        since: it sees elements after this number.
        late: elements that came after an answer that should have seen them.
        together: looked at with others of its trigger, when something has changed.
        begun: the first instant to answer at; infinite: it waits for an element.
        last: the last instant of evaluation.
        timely: it has NOW().
        ranges: it has GRAPH ?g, so it depends on the names of static graphs.
    """

    def __init__(
        self,
        name: str,
        query: CsparqlQuery,
        asked: tuple[PeriodicEvaluation, Question],
        callback: AnswerCallback | None,
        backlog: int,
        close: Callable[["PeriodicQuery"], None],
        since: int,
    ) -> None:
        super().__init__(name, callback, backlog, close)
        self.query = query
        self.evaluation, self.question = asked
        self.late = 0
        self.number = next(_NUMBERS)
        self.begun: float = NEVER
        self.last: int | None = None
        self._widened = ("", "")
        self._before: Counter[Row] = Counter()
        self._seen: tuple[AnswerRows, int] | None = None
        registration = query.registration
        self.stream = None if registration is None else registration.stream
        self.reads = query.reads
        self.since = since
        self.decide_by(query.trigger(since))
        self.timely = says_now(query.query)
        self._always = self.timely or query.operator == "RSTREAM"
        own = self.trigger
        self.together = own.counts or own.decides or not (self._always or own.widens)
        self.ranges = any(
            is_variable(graph) for each in everything(query.query) for graph in _graphs_of(each)
        )

    def decide_by(self, trigger: Trigger) -> None:
        self.trigger = trigger
        trigger.queries[self] = None
        trigger.number = trigger.number or self.number

    def subscribe(self) -> None:
        """Hear of what changes in the windows of the evaluation."""
        if not self.together:
            return
        audience = self.trigger.audience
        audience.windows.update(self.evaluation.contents)
        audience.touched[self] = audience.stale[self.evaluation] = None
        if self._always:
            audience.always[self] = None
        self.evaluation.audiences[audience] += 1
        self.question.askers[self] = None

    def unsubscribe(self) -> None:
        if not self.together:
            return
        audience, evaluation = self.trigger.audience, self.evaluation
        audience.windows -= Counter(evaluation.contents)
        audience.touched.pop(self, None)
        audience.always.pop(self, None)
        evaluation.audiences -= Counter([audience])
        if audience not in evaluation.audiences:
            audience.stale.pop(evaluation, None)
        del self.question.askers[self]

    def touch(self) -> None:
        self.trigger.audience.touched[self] = None

    @property
    def states_period(self) -> bool:
        """True where its text has COMPUTED EVERY."""
        registration = self.query.registration
        return registration is not None and registration.every is not None

    def widen(self, factor: int, because: str) -> None:
        self.trigger.instants = self.query.instants.wider(factor)
        self._widened = ("", "") if factor == 1 else (f"{factor} times ", f": {because}")

    @property
    def instants(self) -> Instants:
        return self.trigger.instants

    @property
    def every(self) -> str:
        if not self.instants.periods:
            return "counted windows"
        times, because = self._widened
        written = "COMPUTED EVERY" if self.states_period else "the step of its windows"
        return f"{times}{written}{because}"

    @property
    def columns(self) -> EmissionColumns:
        variables = result_variables(self.query.query, graphs=any(self.query.graphs))
        return EmissionColumns(variables, removes=self.query.operator == "DSTREAM")

    def emission(self, each: PeriodicAnswer, number: int) -> Emission:
        return Emission(number, each.at, each.rows)

    @property
    def graph(self) -> OperatorGraph:
        return self.evaluation.graph

    def _operators(self) -> list[str]:
        shared = drawn(self.graph).splitlines()
        parts = self.question.parts
        if parts is None or not self.evaluation.widened:
            return shared
        *own, gap = drawn(replace(self.graph, query=parts.own)).splitlines()
        indent = " " * (len(gap) - len(gap.lstrip()))
        others = "with other constants"
        if parts.stamped:
            others += ", or that see other elements"
        sharing = f"{indent}shared by queries {others}: {self.evaluation.owners}"
        return [*own, sharing, *(f"{indent}  {line}" for line in shared)]

    def explain(self) -> dict[str, Any]:
        held = self.evaluation.held(self.question)
        return {
            **super().explain(),
            "engine": "native",
            "late": self.late,
            "every_ms": list(self.instants.periods),
            "every": self.every,
            "windows": [
                {
                    "stream": clause.stream[1:-1],
                    "window": str(clause.window),
                    "elements": held[clause.graph],
                    **({"graphs": True} if clause.in_graphs else {}),
                }
                for clause in self.query.streams
            ],
            "plans": self.evaluation.plans,
            "operators": self._operators(),
            "batches": batch_report("off", reason=AT_INSTANTS),
            **self.query.explain(),
        }

    def share(self, evaluation: PeriodicEvaluation, question: Question) -> None:
        self.evaluation = evaluation
        self.question = question

    @property
    def changed(self) -> bool:
        """True where its answer may differ from the last one."""
        return self._always or self.evaluation.changed(self.question, self._seen)

    def answer(self, at: int) -> PeriodicAnswer | None:
        if self.timely:
            try:
                self.evaluation.plan_at(at)
            except TooManyStaticError:
                self.stop(UnsupportedContinuousQueryError("too much is static to say NOW()"))
                return None
        answers = self.evaluation.answers(at, self.question)
        operator, asks = self.query.operator, self.query.query.form == "ASK"
        query = self.question.query
        variables = answers.output.variables
        if operator == "RSTREAM":
            return self.query.answer(self.name, at, query, variables, answers.rows())
        changes = None if asks else answers.changes(self._seen)
        if changes is None:
            rows = answers.rows()
            if asks:
                rows = ((),) if rows else ()
            shown, self._before = rows_to_stream(operator, self._before, rows)
        else:
            shown = changed(operator, self._before, changes)
        self._seen = answers, answers.version
        # What came or went need not make a triple.
        made = self.query.answer(self.name, at, query, variables, shown)
        return made if made.rows else None


# From an answer to what is streamed of it: all of it, what it has more, or what it has less.


def rows_to_stream(
    operator: StreamOperator, before: Counter[Row], rows: Sequence[Row]
) -> tuple[list[Row], Counter[Row]]:
    """Return the rows that are new (ISTREAM) or gone (DSTREAM) in an answer, and its bag."""
    now = Counter(rows)
    if operator == "DSTREAM":
        return list((before - now).elements()), now
    left = +before
    result = []
    for row in rows:
        if left[row] > 0:
            left[row] -= 1
        else:
            result.append(row)
    return result, now


def changed(
    operator: StreamOperator, before: Counter[Row], changes: Iterable[tuple[Row, int]]
) -> list[Row]:
    """Return the same from a delta; `before` becomes the answer."""
    sign = 1 if operator == "ISTREAM" else -1
    result: list[Row] = []
    for row, count in changes:
        total = before[row] + count
        if total:
            before[row] = total
        else:
            del before[row]
        result += [row] * (sign * count)
    return result


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
    half of it keeps the load below a half. The cost is the shorter of the last two, so a slow first
    evaluation does not count.
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
        if (registered.trigger.widens and registered.query.instants.periods) and (
            self._whose is Widen.ALL
            or (self._whose is Widen.UNSTATED and not registered.states_period)
        ):
            self._queries[registered] = None
            registered.widen(self.factor, self._because)

    def remove(self, registered: PeriodicQuery) -> None:
        self.rest(registered)
        self._queries.pop(registered, None)

    def rest(self, registered: PeriodicQuery) -> None:
        """Take out the load of an idle query."""
        if self._last.pop(registered, None) is not None:
            self._load(registered, 0.0)
            del self._loads[registered]
            self._adapt()

    def evaluated(self, registered: PeriodicQuery, seconds: float) -> None:
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
