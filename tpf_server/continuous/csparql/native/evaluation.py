"""Equal queries on the native engine: their windows, dataflow, and answer at an instant."""

from collections.abc import Hashable, Set

from annotations.terms import Term
from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow
from tpf_client.sparql.expressions.environment import Environment
from tpf_server.continuous.csparql.answers import PeriodicAnswer, Row, answer_of
from tpf_server.continuous.csparql.native.builder import build
from tpf_server.continuous.csparql.native.contents import WindowView
from tpf_server.continuous.csparql.native.leaves import CsparqlLeaves, TooManyStaticError
from tpf_server.continuous.csparql.native.static_tables import StaticTables
from tpf_server.continuous.csparql.operator_graph import OperatorGraph


class PeriodicEvaluation:
    """A query that is kept up to date from instant to instant.

    Args:
        graph: its operators.
        tables: of the static data.
        dictionary: the integers of terms.
        environment: for expressions.
        since: the number of the last element that it does not see.

    Attributes:
        graph: see above.
        key: what queries have in common that ask the same; equal graphs otherwise.
        plans: how many it had.
        owners: how many queries it is of.
        joined: whether it was asked if an equal one is there already.
        windows: what it sees of windows, by the IRI of the stream.
        predicates: of the triples of streams that it may need; ``None``: of any.
        assumed: streams, with predicates that its plan takes them not to have.
        evaluations: how often it was asked.
        recomputed: how often something had changed.

    Raises:
        UnsupportedQueryError: something in it cannot be evaluated.
        TooManyStaticError: its static part should not be evaluated alone.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        tables: StaticTables,
        dictionary: TermDictionary,
        environment: Environment,
        since: int = 0,
        key: Hashable = None,
    ) -> None:
        self.key = key
        self.plans = 0
        self.owners = 0
        self.joined = False
        self.evaluations = 0
        self.recomputed = 0
        self._tables = tables
        self._dictionary = dictionary
        self._environment = environment
        self.windows = {clause.stream: WindowView(clause.window, since) for clause in graph.clauses}
        self._rows: tuple[Row, ...] = ()
        self._plan(graph)
        found = self._leaves.predicates
        self.predicates = None if found is None else frozenset(found)

    def _plan(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self._flow = Dataflow(self._dictionary)
        self._leaves = CsparqlLeaves(
            graph, self.windows, self._tables, self._flow, self._dictionary
        )
        self._output = build(
            graph.query,
            self._leaves,
            self._flow,
            self._environment,
            lambda quad: graph.part_of(quad) == "static",
        )
        self.plans += 1
        self._stale = True
        try:
            self._leaves.open()
        except TooManyStaticError:
            self._let_go()
            raise

    def plan_anew(self, graph: OperatorGraph) -> None:
        """Go on with other operators for the same query; what the windows hold is seen as before.

        Raises:
            TooManyStaticError: see above; then it must be given others.
        """
        self._let_go()
        self._plan(graph)

    def _let_go(self) -> None:
        self._leaves.close()
        for view in self.windows.values():
            view.silence()

    @property
    def assumed(self) -> Set[tuple[Term, TermId]]:
        """See above."""
        return self._leaves.assumed

    @property
    def held(self) -> int:
        """How many elements its windows hold."""
        return sum(window.held for window in self.windows.values())

    @property
    def whole(self) -> bool:
        """Whether it sees all that is in its windows, and not only what came after it."""
        return not any(window.since for window in self.windows.values())

    def refreshed(self) -> None:
        """The static data have changed."""
        self._stale = True

    def close(self) -> None:
        """Let go of what others hold for it."""
        self._leaves.close()

    def at(self, instant: int, name: str) -> PeriodicAnswer:
        """The answer of a query at an instant; instants never go back."""
        self.evaluations += 1
        for window in self.windows.values():
            window.contents.move(instant)
            if window.changed:
                window.changed = False
                self._stale = True
        if self._stale:
            self._stale = False
            self.recomputed += 1
            self._flow.flush()
            # What nobody asks for: the answer is read as a whole.
            self._output.take_changes()
            decode = self._dictionary.decode
            self._rows = tuple(
                tuple([decode(each) if each else None for each in row])
                for row in self._output.rows()
            )
        query = self.graph.query
        return answer_of(name, instant, query, self._output.variables, self._rows)
