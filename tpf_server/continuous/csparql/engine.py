"""The engine: streams in, an answer of each query at each of its instants out.

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
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.learning import Learning
from tpf_server.continuous.csparql.native.evaluation_registry import EvaluationRegistry
from tpf_server.continuous.csparql.native.leaves import has_static
from tpf_server.continuous.csparql.native.shared_windows import SharedWindows
from tpf_server.continuous.csparql.native.static_tables import StaticTables
from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.csparql.pace import Pace
from tpf_server.continuous.csparql.parser import BASE, parse
from tpf_server.continuous.csparql.periodic_query import Callback, PeriodicQuery
from tpf_server.continuous.csparql.planner import EvaluationPlanner
from tpf_server.continuous.csparql.readers import StreamReaders
from tpf_server.continuous.csparql.rules import RULES, Rule
from tpf_server.continuous.csparql.stream_times import StreamTimes
from tpf_server.continuous.csparql.timetable import Timetable
from tpf_server.continuous.engine.elements.elements import canonical_term
from tpf_server.continuous.engine.elements.timestamps import milliseconds
from tpf_server.continuous.engine.errors import (
    ElementError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.engine.limits import EngineLimits
from tpf_server.continuous.engine.query_engine import QueryEngine
from tpf_server.continuous.engine.spoken_time import says_now
from tpf_server.continuous.engine.static.static_data import Change
from tpf_server.continuous.engine.windows.matchers import EncodedTriple
from tpf_server.continuous.engine.windows.stream_time import NEVER


class CsparqlEngine(QueryEngine[PeriodicQuery]):
    """C-SPARQL queries over streams and static data, on the native engine.

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

    def _changing(self, change: Change) -> Callable[[], None]:
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

    # ----------------------------------------------------------------------------- queries

    def declare(self, stream: str, predicates: Iterable[str]) -> None:
        """Say which predicates a stream has; elements with others are refused from now on.

        Patterns with other predicates are then known to be static.

        Raises:
            ElementError: a predicate is no IRI.
            EngineLimitError: queries read others in it.
        """
        name = self.name(stream)
        declared = frozenset(canonical_term(self.name(each)) for each in predicates)
        self.learning.declare(name, declared, read=self._readers.read(name))

    def register(
        self, text: str, callback: Callback | None = None, *, name: str | None = None
    ) -> PeriodicQuery:
        """Start a query; it sees what arrives from now on.

        Args:
            text: C-SPARQL.
            callback: is called with each `PeriodicAnswer`; without one they wait in the result.
            name: what to call it where the text does not say.

        Raises:
            ContinuousSyntaxError: the text is no query.
            UnsupportedContinuousQueryError: it cannot be run: nothing says when to evaluate it, or
                it would feed itself.
            UnknownGraphError: by setting, it names a static graph that is not there.
            LimitError: there are as many queries as allowed, or there is one of this name.
        """
        query = parse(text, self.base)
        if not query.continuous:
            raise UnsupportedContinuousQueryError(
                "neither FROM STREAM nor COMPUTED EVERY: such a query has one answer; see `ask`"
            )
        return self.start(query, callback, name=name)

    def start(
        self,
        query: CsparqlQuery,
        callback: Callback | None = None,
        *,
        name: str | None = None,
        kind: type[PeriodicQuery] = PeriodicQuery,
    ) -> PeriodicQuery:
        """Start a query that was parsed.

        Args:
            query: of this language, or of one that is evaluated as it is.
            callback: see `register`.
            name: see `register`.
            kind: what it is when it runs.

        Raises:
            UnsupportedContinuousQueryError, UnknownGraphError, LimitError: see `register`.
        """
        self._check_open()
        name = self._free_name(name if query.registration is None else query.registration.name)
        self._check_graphs(query.query.dataset)
        self._check_services(query.services)
        evaluation, question = self._planner.evaluation(query, self._readers.arrivals)
        registered = kind(
            name,
            query,
            evaluation,
            question,
            callback,
            self.limits.backlog,
            next(self._registrations),
            self._drop,
        )
        try:
            self._timetable.add(registered)
        except UnsupportedContinuousQueryError:
            if not question.owners:
                evaluation.leave(question)
            if not evaluation.owners:
                evaluation.close()
            raise
        self.queries[name] = registered
        self._readers.add(registered)
        if self._pace is not None:
            self._pace.add(registered)
        self.forgetting.opened()
        return registered

    def ask(self, text: str) -> PeriodicAnswer:
        """The answer of a query without streams, once."""
        self._check_open()
        query = parse(text, self.base)
        self._check_graphs(query.query.dataset)
        self._check_services(query.services)
        evaluation, question = self._planner.evaluation(query, self._readers.arrivals)
        at = 0 if self.time is None else self.time
        if says_now(query.query):
            evaluation.plan_at(at)
        answer = evaluation.at(at, "", question)
        if not evaluation.owners:
            evaluation.close()
        return answer

    def explain(self, query: str | CsparqlQuery) -> tuple[OperatorGraph, OperatorGraph]:
        """The operators of a query: as it is written, and after the rules."""
        parsed = parse(query, self.base) if isinstance(query, str) else query
        return self._planner.explain(parsed)

    def link(
        self, name: str, made: Term, reads: Iterable[Term], *, may_feed_itself: bool = True
    ) -> None:
        """Say that somebody else makes a stream from others, so that order and cycles are known.

        Args:
            name: of who makes it, for `unlink`.
            made: the IRI of the stream.
            reads: the IRIs of the streams that it is made from.
            may_feed_itself: whether that may be made from itself.

        Raises:
            UnsupportedContinuousQueryError: a query would feed itself.
        """
        self._timetable.link(name, made, reads, may_feed_itself=may_feed_itself)

    def unlink(self, name: str) -> None:
        """Forget what `link` said; nothing happens where it said nothing."""
        self._timetable.unlink(name)

    def unregister(self, name: str) -> None:
        """Stop the query of this name; those that read its stream go on and get nothing more.

        Raises:
            UnknownQueryError: there is none.
        """
        self.query(name).close()

    def _let_go(self, registered: PeriodicQuery) -> None:
        self._timetable.remove(registered)
        self._readers.remove(registered)
        if self._pace is not None:
            self._pace.remove(registered)

    # ----------------------------------------------------------------------------- streams

    def push(self, stream: str, element: Sequence[Any], timestamp: int | datetime) -> None:
        """An element arrives.

        Args:
            stream: the IRI of the stream.
            element: a triple of N-Triples texts, or several: a graph.
            timestamp: milliseconds since 1970, or an instant.

        Raises:
            ElementError: a term that is none, or a predicate that the stream does not declare
                (where the engine is not strict it is counted).
            TimestampError: no instant.
        """
        self._check_open()
        name = self.name(stream)
        at = milliseconds(timestamp)
        try:
            triples = self.encoded(element)
            self.learning.check_triples(name, triples)
        except ElementError:
            if self._strict:
                raise
            self.refused += 1
            return
        self.arrive(name, triples, at)

    def check_declared(self, stream: Term, predicates: Iterable[str]) -> None:
        """See to it that a stream may have triples with these predicates.

        Raises:
            ElementError: it declares others.
        """
        self.learning.check(stream, predicates)

    def arrive(self, stream: Term, triples: Sequence[EncodedTriple], at: int) -> None:
        """An encoded element arrives."""
        self._times.came(stream, at)
        self._announce(stream, at)
        # Evaluations may let go of terms, and of queries.
        self.arriving.append(triples)
        try:
            if self._timetable.pass_on(stream):
                self._evaluate(self._timetable.due(at))
            self.forgetting.sweep_where_due()
        finally:
            self.arriving.pop()
        self._enter(stream, triples, at)

    def _announce(self, stream: Term, at: int) -> None:
        """An element is about to come."""
        for registered in tuple(self._readers.following.get(stream, ())):
            if registered.coming(stream, at):
                self._timetable.look(registered)

    def _enter(self, stream: Term, triples: Sequence[EncodedTriple], at: int) -> None:
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
            occurrences = self._readers.arrive(stream, triples, at)
            for registered in tuple(self._readers.following.get(stream, ())):
                if registered.came(stream, at):
                    self._timetable.look(registered)
            for registered in self._readers.count(stream, occurrences):
                self._answer(registered, at)
        finally:
            self.arriving.pop()

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

    # ------------------------------------------------------------------------- evaluation

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
                self._announce(registered.stream, answer.at)
                self._enter(registered.stream, triples, answer.at)

    def holders(self) -> Iterable[object]:
        """Queries, windows, and what comes into them."""
        evaluations = [each.evaluation for each in self.queries.values()]
        return evaluations, self._windows, self._tables, self.arriving

    def static_holders(self) -> Iterable[object]:
        """The tables of static triples."""
        for table in self._tables:
            yield from table.holders
