"""What happens when an element arrives, and when time passes: answers at instants.

An evaluation at instant t sees every element with a timestamp up to t, so it happens when the first
later element of its streams arrives, or when `advance` says that t has passed (see `StreamTimes`).
Queries are evaluated in the order of time, and at the same instant a registered stream before those
that read it.

The engine has one thread and no clock: time is what elements say, and what `advance` says.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from annotations.terms import Term
from tpf_server.continuous.csparql.learning import Learning
from tpf_server.continuous.csparql.native.evaluation_registry import EvaluationRegistry
from tpf_server.continuous.csparql.native.leaves import has_static
from tpf_server.continuous.csparql.native.shared_windows import SharedWindows
from tpf_server.continuous.csparql.native.static_tables import StaticTables
from tpf_server.continuous.csparql.pace import Pace
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.csparql.planner import EvaluationPlanner
from tpf_server.continuous.csparql.readers import StreamReaders
from tpf_server.continuous.csparql.rules import RULES, Rule
from tpf_server.continuous.csparql.stream_times import StreamTimes
from tpf_server.continuous.csparql.timetable import Timetable
from tpf_server.continuous.engine.base_iri import BASE
from tpf_server.continuous.engine.elements.named_graphs import graph_of
from tpf_server.continuous.engine.elements.timestamps import milliseconds
from tpf_server.continuous.engine.errors import (
    ElementError,
)
from tpf_server.continuous.engine.limits import EngineLimits
from tpf_server.continuous.engine.query_engine import QueryEngine
from tpf_server.continuous.engine.static.static_data import GraphChange
from tpf_server.continuous.engine.windows.matchers import EncodedQuad, EncodedTriple
from tpf_server.continuous.engine.windows.stream_time import NEVER


class InstantEngine(QueryEngine[PeriodicQuery]):
    """Streams, their windows and the evaluations over these, moved on by instants.

    Args:
        base: what relative IRIs and names of registered streams are relative to.
        limits: what is allowed.
        lateness: how long evaluations wait for late elements, in milliseconds of stream time.
        patience: how long a query over several streams waits for those of them that are behind
            others, in milliseconds of stream time; where nobody says what time it is.
        skip_idle: whether instants are left out at which nothing is in the windows of a query.
        eager: whether queries over streams are evaluated from the first `advance` on, which says
            what time it is, and not only from their first element on.
        require_graphs: whether a query may only name static graphs that are there.
        strict: whether a malformed element is an error; otherwise it is counted in `refused`.
        rules: that rewrite the operators of a query.
        pace: widens steps of queries under load; ``None``: nothing does.
        learn: whether streams that declare no predicates are taken to have only those that came.
        beside: another engine of this process, whose terms and static graphs it uses.

    Attributes:
        learning: what is known about the predicates of streams.
        refused: how many elements were malformed.
    """

    def __init__(
        self,
        *,
        base: str = BASE,
        limits: EngineLimits | None = None,
        lateness: int = 0,
        patience: int = 0,
        skip_idle: bool = False,
        eager: bool = False,
        require_graphs: bool = False,
        strict: bool = True,
        rules: tuple[Rule, ...] = RULES,
        pace: Pace | None = None,
        learn: bool = True,
        beside: QueryEngine[Any] | None = None,
    ) -> None:
        super().__init__(base, limits, require_graphs=require_graphs, beside=beside)
        self.refused = 0
        self._lateness = lateness
        self._skip_idle = skip_idle
        self._eager = eager
        self._pace = pace
        self._strict = strict
        self._windows = SharedWindows()
        self._evaluations = EvaluationRegistry()
        self.learning = Learning(self.dictionary, partial(has_static, self.static), enabled=learn)
        self._tables = StaticTables(self.static, self.dictionary)
        self._planner = EvaluationPlanner(
            self._tables,
            self.dictionary,
            self._environment,
            self._evaluations,
            self.learning,
            rules,
        )
        self._readers = StreamReaders(
            self._windows, self._evaluations, self.learning, self._planner, self.limits.window_rows
        )
        self._times = StreamTimes(lateness, patience)
        self._timetable = Timetable(self._times, self.queries)
        self._registrations = itertools.count(1)
        self._graph_names = self.static.names
        self.static.on_change(self._changing)

    @property
    def time(self) -> int | None:
        """The newest instant that elements or `advance` told; ``None`` before the first element."""
        return None if self._times.newest == NEVER else self._times.newest

    @property
    def late(self) -> int:
        """How many elements came after an answer that should have seen them."""
        return self._readers.late

    @property
    def present(self) -> int | None:
        """What time it is, where somebody knows: later elements do not hurry queries on.

        But for those that read no other stream. ``None``: nobody does.
        """
        return self._times.present

    @present.setter
    def present(self, present: int | None) -> None:
        self._times.present = present

    def _changing(self, change: GraphChange) -> Callable[[], None]:
        self._tables.ask(change)

        def finish() -> None:
            with self.dictionary.keeping():
                self._tables.change(change)
            for each in self.queries.values():
                each.evaluation.refreshed()
            if self.static.names != self._graph_names:
                self._graph_names = self.static.names
                ranging = {q.evaluation: q.query for q in self.queries.values() if q.ranges}
                for evaluation, query in ranging.items():
                    self._planner.plan_anew(evaluation, query)
            self.forgetting.sweep_where_due()

        return finish

    def _let_go(self, registered: PeriodicQuery) -> None:
        self._timetable.remove(registered)
        self._readers.remove(registered)
        if self._pace is not None:
            self._pace.remove(registered)

    # ------------------------------------------------------------------------ what arrives

    def looks_at(self, stream: Term) -> bool:
        """Whether the elements of a stream, or their times, are anything to a query."""
        return self._readers.read(stream) or self._timetable.follows(stream)

    def pass_by(self, stream: Term, at: int) -> None:
        """Elements came in a stream that no query looks at, up to this instant."""
        self._times.came(stream, at)

    def arrive(
        self,
        stream: Term,
        triples: Sequence[EncodedTriple],
        at: int,
        graph: Term | None = None,
    ) -> None:
        """An encoded element arrives, maybe with the name of its graph."""
        self._times.came(stream, at)
        # Evaluations may let go of terms, and of queries.
        self.arriving.append(triples)
        try:
            self._announce(stream, at)
            if self._timetable.pass_on(stream):
                self._evaluate(self._timetable.due(at))
            self.forgetting.sweep_where_due()
        finally:
            self.arriving.pop()
        self._enter(stream, triples, at, graph)

    def _announce(self, stream: Term, at: int) -> None:
        """An element is about to come."""
        for registered in tuple(self._readers.following.get(stream, ())):
            instant = registered.passed(at)
            if instant is not None and registered.state == "running":
                self._answer(registered, instant)
            if registered.coming(stream, at):
                self._timetable.look(registered)

    def _enter(
        self, stream: Term, triples: Sequence[EncodedTriple], at: int, graph: Term | None
    ) -> None:
        """An element comes into the windows of its stream."""
        if not self._readers.read(stream):
            return
        for evaluation in self.learning.contradicted(stream, triples):
            users = self._readers.of(stream)
            query = next(each.query for each in users if each.evaluation is evaluation)
            self._planner.plan_anew(evaluation, query)
        self.arriving.append(triples)
        try:
            for registered in self._timetable.idle(stream):
                self._timetable.begin(registered, at)
            quads = self._with_graph(triples, graph) if self._readers.needs_graphs(stream) else ()
            occurrences = self._readers.arrive(stream, triples, at, quads)
            for registered in tuple(self._readers.following.get(stream, ())):
                if registered.came(stream, at):
                    self._timetable.look(registered)
            for registered in self._readers.count(stream, occurrences, quads):
                self._answer(registered, at)
        finally:
            self.arriving.pop()

    def _with_graph(
        self, triples: Sequence[EncodedTriple], graph: Term | None
    ) -> list[EncodedQuad]:
        name = 0 if graph is None else self.dictionary.encode(graph)
        quads = [(*triple, name) for triple in triples]
        # So it is held as the terms of the triples are.
        self.arriving[-1] = [*triples, (name, name, name)]
        return quads

    def advance(self, timestamp: int | datetime) -> None:
        """Everything with a timestamp up to this has come: evaluate what is due until then."""
        self._check_open()
        at = milliseconds(timestamp)
        self._times.tell(at)
        for registered in self._timetable.idle():
            if self._eager or not registered.query.streams:
                self._timetable.begin(registered, at - self._lateness)
        if self._timetable.pass_on():
            self._evaluate(self._timetable.due())
        self.forgetting.sweep_where_due()

    def finish(self) -> None:
        """No more elements will come: evaluate until every query has seen the last one."""
        if self.time is not None:
            self._evaluate(self._timetable.due_until_end(self.time))

    # -------------------------------------------------------------------------- evaluation

    def _evaluate(self, due: Iterable[tuple[int, PeriodicQuery]]) -> None:
        for at, registered in due:
            self._evaluate_at(at, registered)

    def _evaluate_at(self, at: int, registered: PeriodicQuery) -> None:
        following = registered.due_after(at)
        if following is None:
            self._timetable.rest(registered)
        else:
            self._timetable.plan(registered, following)
        pace = self._pace
        if pace is None:
            self._answer(registered, at)
        else:
            begun = pace.seconds()
            self._answer(registered, at)
            pace.evaluated(registered, pace.seconds() - begun)
        idle = self._skip_idle and registered.query.streams and not registered.evaluation.held
        if idle and not registered.told and registered.state == "running":
            self._timetable.rest(registered)
            if pace is not None:
                pace.rest(registered)

    def _answer(self, registered: PeriodicQuery, at: int) -> None:
        answer = registered.answer(at)
        if answer is None:
            return
        self._readers.answered(registered, at)
        registered.emitted += 1
        try:
            registered.take(answer)
        except Exception as error:  # noqa: BLE001 (see `RunningQuery.fail`)
            registered.fail(error)
            return
        if registered.stream is not None and answer.makes_triples:
            encode = self.dictionary.encode
            for element in answer.elements:
                triples = [(encode(s), encode(p), encode(o)) for s, p, o in element]
                try:
                    self.learning.check_triples(registered.stream, triples)
                except ElementError as error:
                    registered.stop(error)
                    return
                self.arriving.append(triples)
                try:
                    self._announce(registered.stream, answer.at)
                finally:
                    self.arriving.pop()
                self._enter(registered.stream, triples, answer.at, graph_of(element))

    def holders(self) -> Iterable[object]:
        """Queries, windows, and what comes into them."""
        evaluations = [each.evaluation for each in self.queries.values()]
        return evaluations, self._windows, self._tables, self.arriving

    def static_holders(self) -> Iterable[object]:
        """The tables of static triples."""
        for table in self._tables:
            yield from table.holders
