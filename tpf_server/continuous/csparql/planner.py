"""From a query to what evaluates it, by what is known of its streams."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from annotations.terms import QuadPattern, Term
from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.expressions.environment import Environment
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery, StreamClause
from tpf_server.continuous.csparql.native.evaluation import (
    EvaluationRegistry,
    PeriodicEvaluation,
    over_time,
)
from tpf_server.continuous.csparql.native.leaves import TooManyStaticError
from tpf_server.continuous.csparql.native.questions import PartedQuery, Question, parted
from tpf_server.continuous.csparql.native.static_table import StaticTables
from tpf_server.continuous.csparql.operator_graph import Knowledge, OperatorGraph, operator_graph
from tpf_server.continuous.csparql.rules import Rule, optimised
from tpf_server.continuous.engine.errors import (
    ElementError,
    EngineLimitError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.engine.semantics import says_now
from tpf_server.continuous.engine.windows.matchers import EncodedTriple

# What streams have carried, so that plans may rest on what they have not.
#
# A stream that declares its predicates has no others. Of any other stream it is taken that it
# carries only what it carried so far, as far as a query asks for it. So a pattern with another
# predicate is static, and its join with other static patterns is evaluated once (paper 003,
# section 4). When such a triple comes after all, the plans that rest on its absence are made anew,
# before it is seen.


class Learning:
    """What is known about the predicates of streams.

    Args:
        dictionary: the integers of terms.
        has_static: see `Knowledge`.
        enabled: whether what was not declared is learned.

    Attributes:
        declared: the predicates of streams that declare them.
        carried: those of other streams that came, and that a query asked for.
    """

    def __init__(
        self,
        dictionary: TermDictionary,
        has_static: Callable[[QuadPattern, tuple[Term, ...]], bool],
        *,
        enabled: bool,
    ) -> None:
        self.declared: dict[Term, frozenset[Term]] = {}
        self.carried: dict[Term, set[Term]] = {}
        self._dictionary = dictionary
        self._has_static = has_static
        self._enabled = enabled
        self._assumed: dict[Term, dict[TermId, dict[PeriodicEvaluation, None]]] = {}

    def declare(self, stream: Term, predicates: frozenset[Term], *, read: bool) -> None:
        """A stream has these predicates and no others from now on.

        Args:
            stream: its IRI.
            predicates: these.
            read: whether queries read it.

        Raises:
            EngineLimitError: queries read others in it.
        """
        others = set(self.carried.get(stream, ()))
        if read:
            others |= self.declared.get(stream, frozenset())
        if not others <= predicates:
            raise EngineLimitError(
                f"{stream} is read already, with {', '.join(sorted(others - predicates))}"
            )
        self.declared[stream] = predicates

    def check(self, stream: Term, predicates: Iterable[str]) -> None:
        """See to it that a stream may have triples with these predicates.

        Raises:
            ElementError: it declares others.
        """
        declared = self.declared.get(stream)
        if declared is not None:
            for each in predicates:
                if each not in declared:
                    raise ElementError(f"{stream} does not declare the predicate {each}")

    def check_triples(self, stream: Term, triples: Iterable[EncodedTriple]) -> None:
        """See to it that a stream may have these triples; see `check`."""
        if stream in self.declared:
            decode = self._dictionary.decode
            self.check(stream, (decode(predicate) for _, predicate, _ in triples))

    def knowledge(self, clauses: Iterable[StreamClause], *, separated: bool = True) -> Knowledge:
        """What a plan of a query over these streams may rest on.

        Args:
            clauses: of the query.
            separated: whether anything is to be told; otherwise every stream may carry everything.
        """
        predicates = {}
        for clause in clauses if separated else ():
            known = self.declared.get(clause.stream)
            if known is None and self._enabled:
                known = frozenset(self.carried.get(clause.stream, ()))
            if known is not None:
                predicates[clause.graph] = known
        return Knowledge(predicates, self._has_static)

    def told(self, clauses: Iterable[StreamClause]) -> Knowledge:
        """What is known of these streams beyond doubt: was declared."""
        declared = {
            clause.graph: self.declared[clause.stream]
            for clause in clauses
            if clause.stream in self.declared
        }
        return Knowledge(declared, self._has_static)

    def rest(self, evaluation: PeriodicEvaluation) -> None:
        """A plan rests on what it assumes."""
        for stream, predicate in evaluation.assumed:
            if stream not in self.declared:
                self._assumed.setdefault(stream, {}).setdefault(predicate, {})[evaluation] = None

    def forget(self, evaluation: PeriodicEvaluation) -> None:
        """A plan is none any more."""
        for stream, predicate in evaluation.assumed:
            plans = self._assumed.get(stream, {})
            plans.get(predicate, {}).pop(evaluation, None)
            if not plans.get(predicate, True):
                del plans[predicate]
            if not plans:
                self._assumed.pop(stream, None)

    def contradicted(
        self, stream: Term, triples: Sequence[EncodedTriple]
    ) -> list[PeriodicEvaluation]:
        """The evaluations whose plans rest on that such triples do not come; now it is known."""
        assumed = self._assumed.get(stream)
        if assumed is None:
            return []
        found: dict[PeriodicEvaluation, None] = {}
        for predicate in {triple[1] for triple in triples} & assumed.keys():
            self.carried.setdefault(stream, set()).add(self._dictionary.decode(predicate))
            found.update(assumed[predicate])
        return list(found)


T = TypeVar("T")


class EvaluationPlanner:
    """Makes the evaluations of an engine.

    Args:
        tables: of the static data.
        dictionary: the integers of terms.
        environment: for expressions.
        evaluations: those that are there.
        learning: what is known of streams.
        rules: that rewrite the operators of a query.
        join_rows: see `PeriodicEvaluation`.
    """

    def __init__(
        self,
        tables: StaticTables,
        dictionary: TermDictionary,
        environment: Environment,
        evaluations: EvaluationRegistry,
        learning: Learning,
        rules: tuple[Rule, ...],
        join_rows: int,
    ) -> None:
        self._join_rows = join_rows
        self._tables = tables
        self._static = tables.static
        self._dictionary = dictionary
        self._environment = environment
        self._evaluations = evaluations
        self._learning = learning
        self._rules = rules

    def explain(self, query: CsparqlQuery) -> tuple[OperatorGraph, OperatorGraph]:
        """The operators of a query: as it is written, and after the rules."""
        initial = operator_graph(query, self._static.names, self._learning.told(query.streams))
        return initial, optimised(initial, self._rules)

    def evaluation(self, query: CsparqlQuery, arrivals: int) -> tuple[PeriodicEvaluation, Question]:
        """What evaluates a query, and what it asks of that.

        It is that of a query that differs in constants at most, where no element has come since.

        Args:
            query: any.
            arrivals: how many elements have come.

        Raises:
            UnsupportedContinuousQueryError: it cannot be run.
            JoinLimitError: its static patterns have too many rows.
        """
        try:
            initial = self._initial(query, separated=True)
            key, question = question_of(initial)
            found = self._evaluations.fresh(key, arrivals)
            if found is not None:
                return found, self.shared(found, query, question)

            def make(graph: OperatorGraph) -> PeriodicEvaluation:
                return PeriodicEvaluation(
                    graph,
                    self._tables,
                    self._dictionary,
                    self._environment,
                    self._join_rows,
                    arrivals,
                    key,
                )

            made = self._planned(query, make)
            return made, made.ask(question)
        except UnsupportedQueryError as error:
            raise UnsupportedContinuousQueryError(str(error)) from error
        except RecursionError:
            raise UnsupportedContinuousQueryError("it is nested too deeply") from None

    def shared(
        self, evaluation: PeriodicEvaluation, query: CsparqlQuery, question: Question
    ) -> Question:
        """What a query asks of an evaluation that there is already.

        Args:
            evaluation: of a query that differs in constants at most.
            query: it.
            question: what it asks.
        """
        found = evaluation.ask(question)
        if found is question and not evaluation.widened and question.parts is not None:
            self._plan_anew(evaluation, query, question.parts)
        return found

    def plan_anew(self, evaluation: PeriodicEvaluation, query: CsparqlQuery) -> None:
        """An evaluation goes on by what is known now."""
        parts: PartedQuery | None = None
        if evaluation.widened:
            _, question = question_of(self._initial(query, separated=True))
            parts = question.parts
        self._plan_anew(evaluation, query, parts)

    def _plan_anew(
        self, evaluation: PeriodicEvaluation, query: CsparqlQuery, parts: PartedQuery | None
    ) -> None:
        self._learning.forget(evaluation)

        def make(graph: OperatorGraph) -> None:
            evaluation.plan_anew(graph, parts)

        self._planned(query, make, parts)
        self._learning.rest(evaluation)

    def _initial(self, query: CsparqlQuery, *, separated: bool) -> OperatorGraph:
        knowledge = self._learning.knowledge(query.streams, separated=separated)
        return operator_graph(query, self._static.names, knowledge)

    def _planned(
        self,
        query: CsparqlQuery,
        make: Callable[[OperatorGraph], T],
        parts: PartedQuery | None = None,
    ) -> T:
        """What is made of the operators of a query; no static part that is too large alone."""

        def made(*, separated: bool) -> T:
            graph = self._initial(query, separated=separated)
            if parts is not None:
                graph = replace(graph, query=parts.below)
            return make(optimised(graph, self._rules))

        with self._dictionary.keeping():
            try:
                return made(separated=True)
            except TooManyStaticError:
                return made(separated=False)


def question_of(graph: OperatorGraph) -> tuple[Hashable, Question]:
    """What queries have in common that differ in constants only, and what one of them asks.

    Args:
        graph: as the query is written, not as it is planned.
    """
    clauses = tuple((each.stream, each.window, each.named, each.name) for each in graph.clauses)
    names = clauses, graph.sources.names
    # What is shared by queries with other constants is not evaluated anew for NOW().
    shares = clauses and over_time(graph) and not says_now(graph.query)
    parts = parted(graph.query) if shares else None
    common = graph.query if parts is None else (parts.below, parts.comparisons)
    return (common, names), Question((graph.query, names), graph.query, parts)
