"""The engine for CQELS-QL."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from annotations.terms import Term
from tpf_client.dataflow.operators.multiway_join import Routing
from tpf_client.errors import UnsupportedQueryError
from tpf_server.continuous.cqels.parser import parse
from tpf_server.continuous.engine.delivery import Callback
from tpf_server.continuous.engine.elements.elements import EARLIEST, LATEST, milliseconds
from tpf_server.continuous.engine.errors import ContinuousError, UnsupportedContinuousQueryError
from tpf_server.continuous.engine.plans.registered_query import RegisteredQuery
from tpf_server.continuous.engine.records.records import RecordFeed
from tpf_server.continuous.engine.semantics import (
    BASE,
    CQELS,
    EngineLimits,
    EngineSettings,
    Kernel,
    Semantics,
)
from tpf_server.continuous.engine.tick_engine import TickEngine
from tpf_server.continuous.engine.windows.continuous_query import ContinuousQuery

# Queries whose results are elements of another stream.


def feed(registered: RegisteredQuery, target: Term, others: Collection[RegisteredQuery]) -> None:
    """Let a query feed a stream, but not itself (`UnsupportedContinuousQueryError`)."""
    if registered.query.query.form not in ("CONSTRUCT", "DESCRIBE"):
        raise UnsupportedContinuousQueryError("only CONSTRUCT or DESCRIBE can feed a stream")
    if registered.reads & _reached(target, others):
        raise UnsupportedContinuousQueryError(f"the query would feed itself through {target}")
    registered.stream = target


def _reached(target: Term, others: Collection[RegisteredQuery]) -> set[Term]:
    reached = {target}
    grown = True
    while grown:
        grown = False
        for other in others:
            sink = other.stream
            if sink is not None and sink not in reached and other.reads & reached:
                reached.add(sink)
                grown = True
    return reached


__all__ = ["Engine", "EngineLimits", "RegisteredQuery"]


class Engine(TickEngine):
    """Continuous queries over streams and static data.

    Args:
        lateness: milliseconds that elements wait to be put in order; later ones are dropped.
        create_streams: a stream is made when it is first named.
        share: queries that differ in constants only share a plan.
        routing: when the way of rows through joins is decided: ``reviewed`` while the engine runs,
            ``fixed`` at registration, ``per-tuple`` for each row.
        kernel: for batches of records, where a query counts them by groups and orders these:
            ``compiled`` where it was built, or ``off``; by default the environment variable
            LIVE_LINKED_DATA_KERNEL.
        skip_idle: queries that emit everything (`paper-rstream`) leave out multiples of their
            slides
            at which their windows are empty, which may be years between two elements.
    """

    def __init__(
        self,
        *,
        semantics: Semantics = CQELS,
        lateness: int = 0,
        base: str = BASE,
        limits: EngineLimits | None = None,
        create_streams: bool = True,
        require_graphs: bool = False,
        share: bool = True,
        routing: Routing = "reviewed",
        kernel: Kernel | None = None,
        skip_idle: bool = False,
    ) -> None:
        settings = EngineSettings(
            lateness, create_streams, require_graphs, share, routing, kernel, skip_idle
        )
        super().__init__(base, limits, settings)
        self.semantics = semantics

    # ----------------------------------------------------------------------------- queries

    def register(
        self,
        text: str,
        callback: Callback | None = None,
        *,
        name: str | None = None,
        semantics: Semantics | None = None,
        into: str | None = None,
    ) -> RegisteredQuery:
        """Start a query; it sees elements from now on.

        Args:
            text: CQELS-QL.
            callback: is called with each `Emission`; without one they wait in the result.
            name: of the query; ``None``: a new one.
            semantics: of its emissions.
            into: for CONSTRUCT: the stream that gets its triples, one element for each emission.

        Raises:
            ContinuousSyntaxError: the text is no query.
            UnsupportedContinuousQueryError: it cannot be run.
            UnknownStreamError, UnknownGraphError: by setting, it names one that does not exist.
            EngineLimitError: there are too many queries, or its joins make too many rows.
        """
        query = parse(text, self.base)
        return self.start(query, callback, name=name, semantics=semantics, into=into)

    def start(
        self,
        query: ContinuousQuery,
        callback: Callback | None = None,
        *,
        name: str | None = None,
        semantics: Semantics | None = None,
        into: str | None = None,
    ) -> RegisteredQuery:
        """Start a parsed query; see `register`."""
        self.settle()
        name = self._begin(query, name)
        registered = RegisteredQuery(name, query, callback, self.limits.backlog, self._drop)
        for stream in registered.reads:
            self.stream(stream)
        policy = semantics or self.semantics
        if into is not None:
            if query.varies:
                raise UnsupportedContinuousQueryError(
                    "a query over every stream would read the one that it makes"
                )
            if policy.relation == "rstream":
                # Each element that it makes would be an arrival at which it emits everything.
                raise UnsupportedContinuousQueryError(f"{policy.name} cannot feed a stream")
            feed(registered, self.stream(into).name, self.queries.values())
        try:
            with self.dictionary.permanently():
                self._plans.add(registered, policy)
        except (UnsupportedQueryError, RecursionError) as error:
            self._plans.drop_idle()
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise UnsupportedContinuousQueryError(reason) from error
        except ContinuousError:
            self._plans.drop_idle()
            raise
        self._until_housekeeping = 1
        if registered.plan is not None:
            self._housekeeping.added(registered.plan)
        self._begun(registered)
        self._stop_exceeded()
        if registered.error is not None:
            raise registered.error
        return registered

    # ----------------------------------------------------------------------------- elements

    def push(self, stream: str, element: Sequence[Any], timestamp: int | datetime) -> None:
        """Push an element.

        Args:
            stream: the IRI of the stream.
            element: a triple of N-Triples texts, or several: a graph.
            timestamp: milliseconds since 1970, or an instant of the years 1 to 9999.
        """
        if self._closed:
            self._check_open()
        at = timestamp
        if type(at) is not int or not EARLIEST <= at <= LATEST:
            at = milliseconds(timestamp)
        # What most elements come to, without the steps in between.
        known_triple = (
            self._known_triple(*element) if type(element) is tuple and len(element) == 3 else None
        )
        triples = self.encoded(element) if known_triple is None else [known_triple]
        target = self.streams.get(stream) or self.stream(stream)  # type: ignore[call-overload]
        if self.reorders:
            self.arrive(target, triples, at)
        else:
            self._tick(target, triples, at)

    def record_feed(
        self,
        stream: str,
        predicates: Sequence[str],
        subjects: str | None = None,
        *,
        asked: bool = False,
    ) -> RecordFeed:
        """Return a feed for elements with one subject and one value for each of these predicates.

        `subjects` is the beginning of the IRIs of subjects that end in a number; `asked` drops the
        rest of a batch once there is no query.
        """
        terms = [self.name(each) for each in predicates]
        feed = RecordFeed(self, self.encode, self.stream(stream), terms, subjects, asked=asked)
        self._records.add(feed)
        return feed
