"""Continuous queries for many callers at once: two engines, one lock, a log for each query."""

import itertools
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from annotations.clock import Clock
from annotations.terms import Term
from tpf_server.continuous.hosted import HostedQuery, relation_of
from tpf_server.continuous.languages import CSPARQL, is_csparql
from tpf_server.continuous.places import Places
from tpf_server.continuous.policies import Policies
from tpf_server.continuous.result_log import ResultLog
from tpf_server.continuous.streams import SharedStreams
from tpf_server.cqels.delivery import Emission
from tpf_server.cqels.elements import Element
from tpf_server.cqels.engine import Engine
from tpf_server.cqels.errors import (
    ContinuousQueryError,
    ElementError,
    EngineClosedError,
    LimitError,
    UnknownQueryError,
    UnsupportedContinuousQueryError,
)
from tpf_server.cqels.parser import parse as parse_cqels
from tpf_server.cqels.semantics import SEMANTICS
from tpf_server.cqels.timestamps import iso, milliseconds
from tpf_server.csparql.answers import Answer
from tpf_server.csparql.engine import CsparqlEngine
from tpf_server.csparql.parser import parse as parse_csparql

_BATCHES: Final = 10_000
"""How many batches are remembered by their identifiers."""
_NAME = re.compile(r"[^/\s?#%]{1,200}")
_AHEAD: Final = 60_000
"""Milliseconds that an element may be ahead of the clock: one that is years ahead would make every
later one late."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a batch of elements.

    Args:
        accepted: how many were taken.
        refused: those that are malformed.
        dropped: how many came too late for CQELS-QL.
        late: how many came after an evaluation in C-SPARQL that should have seen them.
        repeated: whether the batch had come before; then nothing was done, and this is what became
            of it.
    """

    accepted: int
    refused: tuple[ElementError, ...]
    dropped: int
    late: int
    repeated: bool = False


class ContinuousService:
    """Engines that several threads use.

    Args:
        engine: for CQELS-QL; not used by anybody else, and without a lateness of its own.
        periodic: for C-SPARQL; likewise.
        clock: what the time is.
        policies: how time, elements and readers are treated.

    Attributes:
        places: for readers that follow results.
    """

    def __init__(
        self,
        engine: Engine,
        periodic: CsparqlEngine,
        clock: Clock,
        policies: Policies | None = None,
    ) -> None:
        self._engine = engine
        self._periodic = periodic
        self._clock = clock
        self._policies = policies or Policies()
        self.places = Places(self._policies.followers)
        self._streams = SharedStreams(engine, periodic, self._policies.lateness)
        self._lock = threading.RLock()
        self._queries: dict[str, HostedQuery] = {}
        self._numbers = itertools.count(1)
        self._batches: dict[tuple[Term, str], Receipt] = {}
        self._closed = False

    @property
    def now(self) -> int:
        """The time of the clock, in milliseconds since 1970."""
        return milliseconds(self._clock.now())

    # ----------------------------------------------------------------------------- streams

    def create_stream(self, name: str) -> bool:
        """Make a stream; whether it is new."""
        with self._lock:
            return self._streams.create(name)

    def streams(self) -> list[dict[str, Any]]:
        """The streams, with how much came through them."""
        with self._lock:
            return self._streams.listed()

    def push(
        self, stream: str, elements: Sequence[Element | ElementError], *, batch: str | None = None
    ) -> Receipt:
        """A batch of elements arrives.

        Args:
            stream: its IRI.
            elements: they come in this order.
            batch: an identifier; when a batch of the same stream has the same one, it came before.

        Raises:
            ElementError: by setting, one of them is malformed; then none was taken.
            UnknownStreamError: by setting, there is no such stream.
            EngineClosedError: the service was closed.
        """
        checked = [self._checked(each) for each in elements]
        refused = tuple(each for each in checked if isinstance(each, ElementError))
        if refused and self._policies.whole_batches:
            raise refused[0]
        with self._lock:
            if self._closed:
                raise EngineClosedError("the server stops")
            dropped, late = self._engine.dropped, self._periodic.late
            name = self._engine.stream(stream).name
            if batch is not None and (name, batch) in self._batches:
                return replace(self._batches[name, batch], repeated=True)
            accepted = 0
            for each in checked:
                if isinstance(each, Element):
                    self._streams.arrive(name, each.triples, each.at)
                    accepted += 1
            self._settle()
            dropped = self._engine.dropped - dropped
            late = self._periodic.late - late
            receipt = Receipt(accepted - dropped, refused, dropped, late)
            if batch is not None:
                self._batches[name, batch] = receipt
                if len(self._batches) > _BATCHES:
                    del self._batches[next(iter(self._batches))]
            return receipt

    def _checked(self, element: Element | ElementError) -> Element | ElementError:
        if (
            isinstance(element, Element)
            and self._policies.time == "clock"
            and element.at > self.now + _AHEAD
        ):
            return ElementError(f"{iso(element.at)} is in the future", element.line)
        return element

    def advance(self) -> None:
        """Let the engines know what time it is, where the clock moves the time of streams."""
        policies = self._policies
        if policies.time != "clock":
            return
        with self._lock:
            if self._closed:
                return
            until = self.now - max(policies.delay, policies.lateness)
            self._streams.advance(until)
            self._settle()

    # ----------------------------------------------------------------------------- queries

    def register(
        self,
        text: str,
        *,
        name: str | None = None,
        semantics: str | None = None,
        into: str | None = None,
    ) -> HostedQuery:
        """Start a query.

        Args:
            text: CQELS-QL or C-SPARQL.
            name: what to call it; where neither it nor the text says, it gets a number.
            semantics: a policy of CQELS-QL, or ``csparql``; where it is not given the text tells.
            into: for CONSTRUCT in CQELS-QL: the stream that its triples are pushed to.

        Raises:
            ContinuousError: see `Engine.register` and `CsparqlEngine.register`.
            ContinuousQueryError: an unknown policy, a name that no URL can hold, or options that
                the language does not have.
            LimitError: there is a query of this name.
        """
        if semantics is not None and semantics not in (*SEMANTICS, CSPARQL):
            known = ", ".join((*SEMANTICS, CSPARQL))
            raise ContinuousQueryError(f"unknown semantics {semantics!r}: {known}")
        if name is not None and (not _NAME.fullmatch(name) or name in (".", "..")):
            raise ContinuousQueryError(f"{name!r} cannot name a query: no URL could say it")
        with self._lock:
            if semantics == CSPARQL or (semantics is None and is_csparql(text)):
                if into is not None:
                    raise ContinuousQueryError("in C-SPARQL, REGISTER STREAM says what is made")
                hosted = self._register_csparql(text, name)
            else:
                hosted = self._register_cqels(text, name, semantics, into)
            self._queries[hosted.id] = hosted
            return hosted

    def _free_name(self, wanted: str | None) -> str:
        if wanted is None:
            return next(n for n in map(str, self._numbers) if n not in self._queries)
        if wanted in self._queries:
            raise LimitError(f"there is a query {wanted!r} already")
        return wanted

    def _log(self) -> ResultLog:
        return ResultLog(self._policies.backlog, self._policies.rows)

    def _register_cqels(
        self, text: str, name: str | None, semantics: str | None, into: str | None
    ) -> HostedQuery:
        engine, log = self._engine, self._log()
        policy = engine.semantics if semantics is None else SEMANTICS[semantics]
        target: list[Term] = []

        def deliver(emission: Emission) -> None:
            log.append(emission)
            for stream in target:
                if emission.rows:
                    rows = [tuple(str(term) for term in row) for row in emission.rows]
                    self._streams.made_by_engine(stream, rows, emission.at)

        if not parse_cqels(text, engine.base).windows:
            raise UnsupportedContinuousQueryError(
                "neither STREAM nor REGISTER: nothing would make this query emit; "
                "the datasets answer such queries once"
            )
        registered = engine.register(
            text, deliver, name=self._free_name(name), semantics=policy, into=into
        )
        if into is not None:
            target.append(engine.stream(into).name)
            try:
                reads = (clause.stream for clause in registered.query.windows)
                self._periodic.link(registered.name, target[0], reads)
            except UnsupportedContinuousQueryError:
                registered.close()
                raise
        return HostedQuery(
            registered.name, "CQELS-QL", policy.name, relation_of(policy),
            registered, registered.query.query, text, log,
        )  # fmt: skip

    def _register_csparql(self, text: str, name: str | None) -> HostedQuery:
        log = self._log()
        query = parse_csparql(text, self._periodic.base)
        said = None if query.registration is None else query.registration.name
        if said is not None and name not in (None, said):
            raise ContinuousQueryError(f"the text calls the query {said!r}, and not {name!r}")
        for clause in query.streams:
            self._engine.stream(clause.stream)
        called = self._free_name(name if said is None else _last_segment(said))
        numbers = itertools.count(1)

        def deliver(answer: Answer) -> None:
            log.append(Emission(next(numbers), answer.at, answer.rows))
            if registered.stream is not None and answer.form != "SELECT" and answer.rows:
                rows = [tuple(str(term) for term in row) for row in answer.rows]
                self._streams.made_by_periodic(registered.stream, rows, answer.at)

        registered = self._periodic.register(text, deliver, name=called)
        if registered.stream is not None:
            self._engine.create_stream(registered.stream)
        return HostedQuery(
            called, "C-SPARQL", CSPARQL, "result", registered, query.query, text, log
        )

    def query(self, name: str) -> HostedQuery:
        """The query of this name.

        Raises:
            UnknownQueryError: there is none.
        """
        with self._lock:
            if name not in self._queries:
                raise UnknownQueryError(f"there is no query {name!r}")
            return self._queries[name]

    def queries(self) -> list[HostedQuery]:
        """All queries."""
        with self._lock:
            return list(self._queries.values())

    def explain(self, name: str) -> dict[str, Any]:
        """State, text and plan of a query.

        Raises:
            UnknownQueryError: there is none.
        """
        with self._lock:
            return self.query(name).explain()

    def delete(self, name: str) -> None:
        """Stop a query.

        Raises:
            UnknownQueryError: there is none.
        """
        with self._lock:
            hosted = self.query(name)
            hosted.running.close()
            self._periodic.unlink(name)
            del self._queries[name]
            hosted.log.close(UnknownQueryError(f"query {name!r} was deleted"))

    def close(self) -> None:
        """Stop everything; who follows results is told so."""
        with self._lock:
            self._closed = True
            self._engine.close()
            self._periodic.close()
            for hosted in self._queries.values():
                hosted.log.close(EngineClosedError("the server stops"))

    def _settle(self) -> None:
        for hosted in self._queries.values():
            if hosted.running.state == "stopped":
                hosted.log.close(hosted.running.error)


def _last_segment(name: str) -> str | None:
    """What a query with an IRI as its name is called in URLs; ``None``: nothing fits."""
    last = re.split(r"[/#]", name.rstrip("/#"))[-1]
    return last if _NAME.fullmatch(last) else None
