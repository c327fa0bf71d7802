"""From a query to what evaluates it, by what is known of its streams."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from annotations.terms import QuadPattern, Term
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_server.continuous.runtime.errors import ConflictError, ElementError, as_continuous_errors
from tpf_server.continuous.runtime.instants.builder import TooManyStaticError, encode_stamp
from tpf_server.continuous.runtime.instants.csparql_query import CsparqlQuery, StreamClause
from tpf_server.continuous.runtime.instants.evaluation import (
    Equals,
    EvaluationContext,
    PartedQuery,
    PeriodicEvaluation,
    Question,
    parted,
    parted_by_stamps,
)
from tpf_server.continuous.runtime.instants.operator_graph import (
    Knowledge,
    OperatorGraph,
    operator_graph,
)
from tpf_server.continuous.runtime.instants.rules import Rule, optimised
from tpf_server.continuous.runtime.semantics import says_now
from tpf_server.continuous.runtime.windows.matchers import EncodedTriple, Watermark

# What streams may carry, so that plans may rest on what they do not.
#
# A stream that declares its predicates has no others. So a pattern with another predicate is
# static, and its join with other static patterns is evaluated once (paper 003, section 4). Static
# triples that a stream may have, too, are looked up for what streams (see `StaticJoin`).


class Declarations:
    """The predicates that streams declare."""

    def __init__(
        self,
        dictionary: TermDictionary,
        has_static: Callable[[QuadPattern, tuple[Term, ...]], bool],
    ) -> None:
        self.declared: dict[Term, frozenset[Term]] = {}
        self._dictionary = dictionary
        self._has_static = has_static

    def declare(self, stream: Term, predicates: frozenset[Term], *, read: bool) -> None:
        before = self.declared.get(stream, predicates)
        if read and before != predicates:
            # Plans rest on what it lacks.
            raise ConflictError(f"{stream} is read already, with {', '.join(sorted(before))}")
        self.declared[stream] = predicates

    def check(self, stream: Term, predicates: Iterable[str]) -> None:
        declared = self.declared.get(stream)
        if declared is not None:
            for each in predicates:
                if each not in declared:
                    raise ElementError(f"{stream} does not declare the predicate {each}")

    def check_triples(self, stream: Term, triples: Iterable[EncodedTriple]) -> None:
        if stream in self.declared:
            decode = self._dictionary.decode
            self.check(stream, (decode(predicate) for _, predicate, _ in triples))

    def knowledge(self, clauses: Iterable[StreamClause], *, separated: bool) -> Knowledge:
        """Predicates of the windows of a query; a plan that is not `separated` assumes nothing."""
        predicates = {
            clause.graph: self.declared[clause.stream]
            for clause in (clauses if separated else ())
            if clause.stream in self.declared
        }
        return Knowledge(predicates, self._has_static)


T = TypeVar("T")


FEW_ALONE: Final = 3
"""Up to so many queries that see other elements cost less alone than together."""


class EvaluationPlanner:
    """Make the evaluations of an engine.

    Attributes:
        watermark: counts questions.
    """

    def __init__(
        self,
        context: EvaluationContext,
        evaluations: Equals[PeriodicEvaluation],
        declarations: Declarations,
        rules: tuple[Rule, ...],
    ) -> None:
        self.watermark = Watermark()
        self._context = context
        self._static = context.static
        self._evaluations = evaluations
        self._declarations = declarations
        self._rules = rules

    def explain(self, query: CsparqlQuery) -> tuple[OperatorGraph, OperatorGraph]:
        """The operators of a query, as written and after the rules."""
        initial = self._initial(query, separated=True)
        return initial, optimised(initial, self._rules)

    def evaluation(self, query: CsparqlQuery, arrivals: int) -> tuple[PeriodicEvaluation, Question]:
        """Make an evaluation and its question, or share one.

        One is shared with queries that differ in constants at most: where an element came since,
        a stamped one.
        """
        with as_continuous_errors():
            initial = self._initial(query, separated=True)
            key, question = self._question(query, initial)
            result = self._evaluations.fresh(key, arrivals)
            if result is not None:
                return result, self.shared(result, query, question)
            stamped = None
            if self._evaluations.count(key) >= FEW_ALONE:
                stamped = self._stamped(query, initial, arrivals)
            if stamped is None:
                result = self._made(query, key, arrivals)
            else:
                key, question = stamped
                result = self._evaluations.latest(key)
                if result is None:
                    result = self._made(query, key, arrivals, question.parts)
            return result, result.ask(question)

    def _question(self, query: CsparqlQuery, graph: OperatorGraph) -> tuple[Hashable, Question]:
        """The key that queries share if they differ in constants only, and the question of one."""
        names = _names(query, graph)
        parts = parted(graph.query) if _shares_parts(query, graph) else None
        common = graph.query if parts is None else (parts.below, parts.comparisons)
        key = (common, names) if query.shares else None
        return key, Question((graph.query, names), graph.query, parts, self._next())

    def _stamped(
        self, query: CsparqlQuery, graph: OperatorGraph, since: int
    ) -> tuple[Hashable, Question] | None:
        """The same of a query that may share with those that see other elements."""
        parts = parted_by_stamps(graph.query)
        if graph.stamps or parts is None or not _shares_parts(query, graph):
            return None
        names = _names(query, graph)
        key = "stamped", parts.below, parts.comparisons, names
        return key, Question((graph.query, names, since), graph.query, parts, self._next(), since)

    def _next(self) -> int:
        return encode_stamp(self.watermark.next())

    def whole(self, query: CsparqlQuery) -> tuple[PeriodicEvaluation, Question]:
        """Share the evaluation from which nothing is hidden, or make it."""
        with as_continuous_errors():
            key, question = self._question(query, self._initial(query, separated=True))
            result = self._evaluations.whole(key)
            if result is not None:
                return result, self.shared(result, query, question)
            result = self._made(query, key, 0)
            return result, result.ask(question)

    def _made(
        self, query: CsparqlQuery, key: Hashable, since: int, parts: PartedQuery | None = None
    ) -> PeriodicEvaluation:
        return self._planned(
            query,
            lambda graph: PeriodicEvaluation(graph, self._context, since, key, parts),
            parts,
        )

    def shared(
        self, evaluation: PeriodicEvaluation, query: CsparqlQuery, question: Question
    ) -> Question:
        """Ask an evaluation of a query that differs in constants at most."""
        result = evaluation.ask(question)
        if result is question and not evaluation.widened and question.parts is not None:
            self._plan_anew(evaluation, query, question.parts)
        return result

    def plan_anew(self, evaluation: PeriodicEvaluation, query: CsparqlQuery) -> None:
        """Plan an evaluation again, by what is known now."""
        parts: PartedQuery | None = None
        with as_continuous_errors():
            if evaluation.widened:
                initial = self._initial(query, separated=True).query
                parts = (parted_by_stamps if evaluation.stamped else parted)(initial)
            self._plan_anew(evaluation, query, parts)

    def _plan_anew(
        self, evaluation: PeriodicEvaluation, query: CsparqlQuery, parts: PartedQuery | None
    ) -> None:
        self._planned(query, lambda graph: evaluation.plan_anew(graph, parts), parts)

    def _initial(self, query: CsparqlQuery, *, separated: bool) -> OperatorGraph:
        knowledge = self._declarations.knowledge(query.streams, separated=separated)
        return operator_graph(query, self._static.names, knowledge)

    def _planned(
        self,
        query: CsparqlQuery,
        make: Callable[[OperatorGraph], T],
        parts: PartedQuery | None = None,
    ) -> T:
        """Make a plan; not a separated one where a static part is too large alone."""

        def made(*, separated: bool) -> T:
            graph = self._initial(query, separated=separated)
            if parts is not None:
                graph = replace(graph, query=parts.below)
            return make(optimised(graph, self._rules))

        with self._context.dictionary.permanently():
            try:
                return made(separated=True)
            except TooManyStaticError:
                return made(separated=False)


def _names(query: CsparqlQuery, graph: OperatorGraph) -> Hashable:
    clauses = tuple((each.stream, each.window, each.named, each.name) for each in graph.clauses)
    return clauses, graph.sources.names, query.counts


def _shares_parts(query: CsparqlQuery, graph: OperatorGraph) -> bool:
    # What is shared by queries with other constants is not evaluated anew for NOW().
    return bool(graph.clauses) and query.shares and not says_now(graph.query)
