"""A C-SPARQL query that runs."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from annotations.terms import Term
from tpf_server.cqels.errors import BacklogError, CallbackError, ContinuousError
from tpf_server.csparql.answers import Answer
from tpf_server.csparql.drawing import as_text
from tpf_server.csparql.native.evaluation import Evaluation
from tpf_server.csparql.operator_graph import OperatorGraph
from tpf_server.csparql.parser import CsparqlQuery
from tpf_server.csparql.windows import PhysicalWindow

Callback = Callable[[Answer], None]


class RegisteredQuery:
    """A query that runs.

    Attributes:
        name: what it was registered as.
        query: what was parsed.
        graph: its operators.
        stream: the IRI of the stream that it makes, if it makes one.
        state: ``running``, ``stopped`` (by a limit, or because its callback raised) or ``closed``.
        error: why it was stopped.
        answers: how many it gave.
        late: how many elements came after an evaluation that should have seen them.
        number: in the order of registration.
        next: the instant at which it is to be evaluated next, if that is known.
        last: the instant at which it was evaluated last.
        rank: higher than those of all queries whose triples it reads.
    """

    def __init__(
        self,
        name: str,
        query: CsparqlQuery,
        evaluation: Evaluation,
        callback: Callback | None,
        backlog: int,
        number: int,
        close: Callable[["RegisteredQuery"], None],
    ) -> None:
        self.name = name
        self.query = query
        self.evaluation = evaluation
        self.state = "running"
        self.error: ContinuousError | None = None
        self.answers = 0
        self.late = 0
        self.number = number
        self.next: int | None = None
        self.last: int | None = None
        self.rank = 0
        self._arrived = 0
        self._waiting: deque[Answer] = deque()
        self._backlog = backlog
        self._callback = callback
        self._close = close
        registration = query.registration
        self.stream = None if registration is None else registration.stream
        self.counts = bool(query.streams) and not query.instants.periods

    @property
    def graph(self) -> OperatorGraph:
        """Its operators, as they run."""
        return self.evaluation.graph

    @property
    def reads(self) -> frozenset[Term]:
        """The streams that it reads."""
        return frozenset(self.evaluation.windows)

    def __iter__(self) -> Iterator[Answer]:
        """The answers that wait; each is given once.

        Raises:
            LimitError: it was stopped; after the answers that it gave before.
        """
        while self._waiting:
            yield self._waiting.popleft()
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Unregister the query and let go of what it holds."""
        self._close(self)

    def explain(self) -> dict[str, Any]:
        """Its state, when it is evaluated, what its windows hold, and its operators."""
        found: dict[str, Any] = {
            "name": self.name,
            "state": self.state,
            "emitted": self.answers,
            "late": self.late,
            "every_ms": list(self.query.instants.periods),
            "windows": [
                {
                    "stream": clause.stream[1:-1],
                    "window": str(clause.window),
                    "elements": self.evaluation.windows[clause.stream].held,
                }
                for clause in self.query.streams
            ],
            "operators": as_text(self.graph).splitlines(),
        }
        if self.stream is not None:
            found["stream"] = self.stream[1:-1]
        if self.error is not None:
            found["error"] = str(self.error)
        return found

    def deliver(self, answer: Answer) -> None:
        """Give an answer to whoever reads.

        Raises:
            BacklogError: nobody reads.
            CallbackError: its callback raised.
        """
        self.answers += 1
        if self._callback is not None:
            try:
                self._callback(answer)
            except Exception as error:
                raise CallbackError(self.name, error) from error
            return
        if len(self._waiting) >= self._backlog:
            raise BacklogError(f"{self.name}: {self._backlog} answers wait for a reader")
        self._waiting.append(answer)

    def arrived(self) -> bool:
        """One more triple came; whether a query over counted windows must be evaluated now."""
        self._arrived += 1
        steps = [
            clause.window.step
            for clause in self.query.streams
            if isinstance(clause.window, PhysicalWindow)
        ]
        return any(self._arrived % step == 0 for step in steps)
