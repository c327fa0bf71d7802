"""Puts queries of both languages into their engines, and their emissions into logs."""

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Final

from annotations.terms import Term
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.cqels.parser import parse as parse_cqels
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.executor import ExecutedQuery, Executor
from tpf_server.continuous.csparql.parser import parse as parse_csparql
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.errors import (
    ContinuousError,
    ContinuousQueryError,
    EngineLimitError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.engine.semantics import SEMANTICS
from tpf_server.continuous.engine.static.service_clauses import ServiceClause
from tpf_server.continuous.hosted import HostedQuery, relation_of
from tpf_server.continuous.languages import CSPARQL, is_csparql
from tpf_server.continuous.registrations import Registration
from tpf_server.continuous.result_log import ResultLog
from tpf_server.continuous.streams import SharedStreams

NATIVE: Final = "native"
"""What the engine of the service is called where executions are."""
_NAME: Final = re.compile(r"[^/\s?#%\x00-\x1f\x7f]{1,200}")


class Hosting:
    """Registers queries.

    Args:
        engine: for CQELS-QL.
        periodic: for C-SPARQL.
        streams: of both.
        log: makes the log of a new query.
        executors: what else runs queries in C-SPARQL, by name.
        default: what runs them where nobody says it.

    Attributes:
        queries: those that are registered, by their names in URLs.
    """

    def __init__(
        self,
        engine: Engine,
        periodic: CsparqlEngine,
        streams: SharedStreams,
        log: Callable[[], ResultLog],
        executors: Mapping[str, Executor] | None = None,
        default: str = NATIVE,
    ) -> None:
        self._executors = executors or {}
        self._default = default
        self.queries: dict[str, HostedQuery] = {}
        self._engine = engine
        self._periodic = periodic
        self._streams = streams
        self._log = log
        self._numbers = itertools.count(1)

    def register(self, wanted: Registration) -> HostedQuery:
        """Start a query; see `ContinuousService.register`."""
        text, name, semantics, into, engine = astuple(wanted)
        if engine is not None and engine != NATIVE and engine not in self._executors:
            known = ", ".join((NATIVE, *self._executors))
            raise ContinuousQueryError(f"unknown engine {engine!r}: {known}")
        if semantics is not None and semantics not in (*SEMANTICS, CSPARQL):
            known = ", ".join((*SEMANTICS, CSPARQL))
            raise ContinuousQueryError(f"unknown semantics {semantics!r}: {known}")
        if name is not None and (not _NAME.fullmatch(name) or name in (".", "..")):
            raise ContinuousQueryError(f"{name!r} cannot name a query: no URL could say it")
        if semantics == CSPARQL or (semantics is None and is_csparql(text)):
            if into is not None:
                raise ContinuousQueryError("in C-SPARQL, REGISTER STREAM says what is made")
            hosted = self._register_csparql(text, name, semantics, engine)
        else:
            if engine not in (None, NATIVE):
                raise ContinuousQueryError(f"CQELS-QL does not run on {engine}")
            hosted = self._register_cqels(text, name, semantics, into)
        self.queries[hosted.id] = hosted
        return hosted

    def services(self, wanted: Registration) -> tuple[ServiceClause, ...]:
        """The services that a query asks; none where it is no query."""
        text, semantics = wanted.text, wanted.semantics
        try:
            if semantics == CSPARQL or (semantics is None and is_csparql(text)):
                return parse_csparql(text, self._periodic.base).services
            return parse_cqels(text, self._engine.base).services
        except ContinuousError:
            return ()

    def _free_name(self, wanted: str | None) -> str:
        if wanted is None:
            return next(n for n in map(str, self._numbers) if n not in self.queries)
        if wanted in self.queries:
            raise EngineLimitError(f"there is a query {wanted!r} already")
        return wanted

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

        windows = parse_cqels(text, engine.base).windows
        if not windows:
            raise UnsupportedContinuousQueryError(
                "neither STREAM nor REGISTER: nothing would make this query emit; "
                "the datasets answer such queries once"
            )
        registered = engine.register(
            text, deliver, name=self._free_name(name), semantics=policy, into=into
        )
        reads = {Term(clause.stream) for clause in windows if not clause.varies}
        if into is not None:
            target.append(engine.stream(into).name)
            try:
                self._periodic.link(registered.name, target[0], reads)
            except UnsupportedContinuousQueryError:
                registered.close()
                raise
        return HostedQuery(
            registered.name, Registration(text, registered.name, semantics, into),
            "CQELS-QL", policy.name, relation_of(policy),
            registered, registered.query.query, log, frozenset({*reads, *target}),
            registered.query.services,
        )  # fmt: skip

    def _register_csparql(
        self, text: str, name: str | None, semantics: str | None, engine: str | None
    ) -> HostedQuery:
        log = self._log()
        query = parse_csparql(text, self._periodic.base)
        said = None if query.registration is None else query.registration.name
        if said is not None and name not in (None, said):
            raise ContinuousQueryError(f"the text calls the query {said!r}, and not {name!r}")
        for clause in query.streams:
            self._engine.stream(clause.stream)
        called = self._free_name(name if said is None else _last_segment(said))
        numbers = itertools.count(1)

        def deliver(answer: PeriodicAnswer) -> None:
            log.append(Emission(next(numbers), answer.at, answer.rows))
            if registered.stream is not None and answer.form != "SELECT" and answer.rows:
                rows = [tuple(str(term) for term in row) for row in answer.rows]
                give(registered.stream, rows, answer.at)

        registered: PeriodicQuery | ExecutedQuery
        executor = self._executors.get(self._default if engine is None else engine)
        if executor is None:
            give = self._streams.made_by_periodic
            registered = self._periodic.register(text, deliver, name=called)
        else:
            give = self._streams.made_elsewhere
            registered = executor.register(text, deliver, name=called)
            if registered.stream is not None:
                try:
                    self._periodic.link(
                        called, registered.stream, registered.reads, may_feed_itself=False
                    )
                except UnsupportedContinuousQueryError:
                    registered.close()
                    raise
        made = set() if registered.stream is None else {registered.stream}
        for stream in made:
            self._engine.create_stream(stream)
        return HostedQuery(
            called,
            Registration(text, called if said is None else None, semantics, engine=engine),
            "C-SPARQL", CSPARQL, "result",
            registered, query.query, log, frozenset({*registered.reads, *made}), query.services,
        )  # fmt: skip


def _last_segment(name: str) -> str | None:
    """What a query with an IRI as its name is called in URLs; ``None``: nothing fits."""
    last = re.split(r"[/#]", name.rstrip("/#"))[-1]
    return last if _NAME.fullmatch(last) else None
