"""The engine: streams in, an answer of each query at each of its instants out."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from annotations.terms import Term
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.instant_engine import InstantEngine
from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.csparql.parser import parse
from tpf_server.continuous.csparql.periodic_query import AnswerCallback, PeriodicQuery
from tpf_server.continuous.engine.elements.elements import canonical_term, graph_name
from tpf_server.continuous.engine.elements.timestamps import milliseconds
from tpf_server.continuous.engine.errors import (
    ElementError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.engine.spoken_time import says_now


class CsparqlEngine(InstantEngine):
    """C-SPARQL queries over streams and static data, natively; it is made as `InstantEngine` is."""

    # ----------------------------------------------------------------------------- queries

    def register(
        self, text: str, callback: AnswerCallback | None = None, *, name: str | None = None
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
        return self.start(parse(text, self.base), callback, name=name)

    def start(
        self,
        query: CsparqlQuery,
        callback: AnswerCallback | None = None,
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
        if not query.continuous:
            raise UnsupportedContinuousQueryError(
                "neither FROM STREAM nor COMPUTED EVERY: such a query has one answer; see `ask`"
            )
        said = query.registration
        name = self._begin(query, name if said is None else said.name)
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
        self._readers.add(registered)
        if self._pace is not None:
            self._pace.add(registered)
        self._begun(registered)
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

    # ----------------------------------------------------------------------------- streams

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

    def check_declared(self, stream: Term, predicates: Iterable[str]) -> None:
        """See to it that a stream may have triples with these predicates.

        Raises:
            ElementError: it declares others.
        """
        self.learning.check(stream, predicates)

    def push(
        self,
        stream: str,
        element: Sequence[Any],
        timestamp: int | datetime,
        graph: str | None = None,
    ) -> None:
        """An element arrives.

        Args:
            stream: the IRI of the stream.
            element: a triple of N-Triples texts, or several: a graph.
            timestamp: milliseconds since 1970, or an instant.
            graph: the name of the graph that it is, as an N-Triples text, if it has one.

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
            named = None if graph is None else graph_name(graph)
        except ElementError:
            if self._strict:
                raise
            self.refused += 1
            return
        self.arrive(name, triples, at, named)
