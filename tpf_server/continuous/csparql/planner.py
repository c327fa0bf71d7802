"""From a query to what evaluates it, by what is known of its streams."""

from collections.abc import Callable
from typing import TypeVar

from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.expressions.environment import Environment
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.learning import Learning
from tpf_server.continuous.csparql.native.evaluation import PeriodicEvaluation
from tpf_server.continuous.csparql.native.evaluation_registry import EvaluationRegistry, key_of
from tpf_server.continuous.csparql.native.leaves import TooManyStaticError
from tpf_server.continuous.csparql.native.static_tables import StaticTables
from tpf_server.continuous.csparql.operator_graph import OperatorGraph, operator_graph
from tpf_server.continuous.csparql.rules import Rule, optimised
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError

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
        initial = operator_graph(query, self._static.names, self._learning.told())
        return initial, optimised(initial, self._rules)

    def evaluation(self, query: CsparqlQuery, arrivals: int) -> PeriodicEvaluation:
        """What evaluates a query; that of an equal one where no element has come since.

        Args:
            query: any.
            arrivals: how many elements have come.

        Raises:
            UnsupportedContinuousQueryError: it cannot be run.
        """
        try:
            key = key_of(self._initial(query, separated=True))
            found = self._evaluations.fresh(key, arrivals)
            if found is not None:
                return found

            def make(graph: OperatorGraph) -> PeriodicEvaluation:
                return PeriodicEvaluation(
                    graph, self._tables, self._dictionary, self._environment, arrivals, key
                )

            return self._planned(query, make)
        except UnsupportedQueryError as error:
            self._tables.drop_idle()
            raise UnsupportedContinuousQueryError(str(error)) from error
        except RecursionError:
            raise UnsupportedContinuousQueryError("it is nested too deeply") from None

    def plan_anew(self, evaluation: PeriodicEvaluation, query: CsparqlQuery) -> None:
        """An evaluation goes on by what is known now."""
        self._learning.forget(evaluation)
        self._planned(query, evaluation.plan_anew)
        self._learning.rest(evaluation)

    def _initial(self, query: CsparqlQuery, *, separated: bool) -> OperatorGraph:
        knowledge = self._learning.knowledge(query.streams, separated=separated)
        return operator_graph(query, self._static.names, knowledge)

    def _planned(self, query: CsparqlQuery, make: Callable[[OperatorGraph], T]) -> T:
        """What is made of the operators of a query; no static part that is too large alone."""
        with self._dictionary.keeping():
            try:
                return make(optimised(self._initial(query, separated=True), self._rules))
            except TooManyStaticError:
                return make(optimised(self._initial(query, separated=False), self._rules))
