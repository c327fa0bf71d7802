"""One query on the native engine: its windows, its dataflow, and its answer at an instant."""

from annotations.terms import Term
from tpf_client.dataflow.node import Dataflow
from tpf_client.sparql.expressions.compiler import Environment
from tpf_server.cqels.dictionary import InliningDictionary
from tpf_server.cqels.static_data import StaticData
from tpf_server.csparql.answers import Answer, Row, answer_of
from tpf_server.csparql.native.builder import build
from tpf_server.csparql.native.contents import WindowView
from tpf_server.csparql.native.leaves import CsparqlLeaves
from tpf_server.csparql.operator_graph import OperatorGraph


class Evaluation:
    """A query that is kept up to date from instant to instant.

    Args:
        name: of the query.
        graph: its operators.
        static: the static data.
        dictionary: the integers of terms.
        environment: for expressions.
        since: the number of the last element that it does not see.

    Attributes:
        windows: what it sees of windows, by the IRI of the stream.
        predicates: of the triples of streams that it needs; ``None``: of any.
        evaluations: how often it was asked.
        recomputed: how often something had changed.
    """

    def __init__(
        self,
        name: str,
        graph: OperatorGraph,
        static: StaticData,
        dictionary: InliningDictionary,
        environment: Environment,
        since: int = 0,
    ) -> None:
        self.name = name
        self.graph = graph
        self.evaluations = 0
        self.recomputed = 0
        self._dictionary = dictionary
        self._flow = Dataflow(dictionary)
        self.windows = {clause.stream: WindowView(clause.window, since) for clause in graph.clauses}
        self._leaves = CsparqlLeaves(graph, self.windows, static, self._flow, dictionary)
        self._output = build(graph.query, self._leaves, self._flow, environment)
        found = self._leaves.predicates
        self.predicates = None if found is None else frozenset(found)
        self._stale = True
        self._rows: tuple[Row, ...] = ()
        self.refresh()

    @property
    def held(self) -> int:
        """How many elements its windows hold."""
        return sum(window.held for window in self.windows.values())

    def refresh(self, name: Term | None = None) -> None:
        """The static data have changed: all graphs, or this one."""
        self._leaves.refresh(name)
        self._stale = True

    def at(self, instant: int) -> Answer:
        """The answer at an instant; instants never go back."""
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
        return answer_of(self.name, instant, query, self._output.variables, self._rows)
