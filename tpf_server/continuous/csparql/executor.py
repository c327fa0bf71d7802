"""What runs registered C-SPARQL queries: the interface behind which executions are exchanged.

The native engine (`tpf_server.continuous.csparql.engine`) is one, Spark
(`tpf_server.continuous.csparql.spark.executor`) another. Who adds a third writes a class with these
methods and names it in `tpf_server.continuous.assembly`; the service, its logs, HTTP and what is
kept over a restart work with it as they are. Source: paper 003, section 4, figure 2.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from annotations.terms import Term
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery, PeriodicAnswer
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.engine.running_query import RunningQuery


class ExecutedQuery(RunningQuery[PeriodicAnswer]):
    """A query that an executor runs.

    Attributes:
        stream: the IRI of the stream that it makes, if it makes one.
    """

    def __init__(
        self,
        name: str,
        query: CsparqlQuery,
        callback: Callable[[PeriodicAnswer], None],
        close: Callable[["ExecutedQuery"], None],
    ) -> None:
        super().__init__(name, callback, 0, close)
        self.query = query
        registration = query.registration
        self.stream = None if registration is None else registration.stream
        self.reads = frozenset(clause.stream for clause in query.streams)


class Executor(Protocol):
    """Runs queries somewhere else than in the engine of the service.

    All methods are called under the lock of the service, and must not wait for anything; answers
    may come from any thread.
    """

    def start(
        self, query: CsparqlQuery, callback: Callable[[PeriodicAnswer], None], *, name: str
    ) -> ExecutedQuery:
        """Start a query that was parsed; it sees what arrives from now on.

        What goes wrong later is a state of the query, with its reason (`RunningQuery.stop`).

        Raises:
            UnsupportedContinuousQueryError: it cannot be run here, and why.
        """

    def reads(self, stream: Term) -> bool:
        """Whether a query that runs wants the elements of a stream."""

    def arrive(self, stream: Term, triples: Sequence[Sequence[str]], at: int) -> None:
        """An element arrives: triples of N-Triples texts."""

    def advance(self, until: int) -> None:
        """Everything with a timestamp up to this has come; nothing waits for more of a batch."""

    def close(self) -> None:
        """End all queries, and what runs them."""


class Deferred:
    """An executor that is made with the first query: its parts may be large, or missing."""

    def __init__(self, make: Callable[[], Executor]) -> None:
        self._make = make
        self._made: Executor | None = None

    def start(
        self, query: CsparqlQuery, callback: Callable[[PeriodicAnswer], None], *, name: str
    ) -> ExecutedQuery:
        """See `Executor`."""
        if self._made is None:
            try:
                self._made = self._make()
            except ImportError as error:
                raise UnsupportedContinuousQueryError(f"it is not installed: {error}") from error
        return self._made.start(query, callback, name=name)

    def reads(self, stream: Term) -> bool:
        """See `Executor`."""
        return self._made is not None and self._made.reads(stream)

    def arrive(self, stream: Term, triples: Sequence[Sequence[str]], at: int) -> None:
        """See `Executor`."""
        if self._made is not None:
            self._made.arrive(stream, triples, at)

    def advance(self, until: int) -> None:
        """See `Executor`."""
        if self._made is not None:
            self._made.advance(until)

    def close(self) -> None:
        """See `Executor`."""
        if self._made is not None:
            self._made.close()
