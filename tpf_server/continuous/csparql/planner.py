"""From a query to what evaluates it, by what is known of its streams."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TypeVar

from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.expressions.environment import Environment
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.learning import Learning
from tpf_server.continuous.csparql.native.evaluation import PeriodicEvaluation
from tpf_server.continuous.csparql.native.evaluation_registry import EvaluationRegistry, over_time
from tpf_server.continuous.csparql.native.leaves import TooManyStaticError
from tpf_server.continuous.csparql.native.parted_query import PartedQuery, parted
from tpf_server.continuous.csparql.native.questions import Question
from tpf_server.continuous.csparql.native.static_tables import StaticTables
from tpf_server.continuous.csparql.operator_graph import OperatorGraph, operator_graph
from tpf_server.continuous.csparql.rules import Rule, optimised
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.engine.spoken_time import says_now

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
    """

    def __init__(
        self,
        tables: StaticTables,
        dictionary: TermDictionary,
        environment: Environment,
        evaluations: EvaluationRegistry,
        learning: Learning,
        rules: tuple[Rule, ...],
    ) -> None:
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
        """
        try:
            initial = self._initial(query, separated=True)
            key, question = question_of(initial)
            found = self._evaluations.fresh(key, arrivals)
            if found is not None:
                return found, self.shared(found, query, question)

            def make(graph: OperatorGraph) -> PeriodicEvaluation:
                return PeriodicEvaluation(
                    graph, self._tables, self._dictionary, self._environment, arrivals, key
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
