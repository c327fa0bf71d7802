"""Puts queries of all languages into their engines, and their emissions into logs."""

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple
from typing import Final
from urllib.parse import urlsplit

from annotations.terms import Term
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.cqels.parser import parse as parse_cqels
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.executor import ExecutedQuery, Executor
from tpf_server.continuous.csparql.parser import parse as parse_csparql
from tpf_server.continuous.csparql.periodic_query import Callback, PeriodicQuery
from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.errors import (
    ContinuousError,
    ContinuousQueryError,
    EngineLimitError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.engine.semantics import SEMANTICS
from tpf_server.continuous.engine.static.service_clauses import ServiceClause
from tpf_server.continuous.hosted import HostedQuery, Relation, failed_query, relation_of
from tpf_server.continuous.languages import CSPARQL, RSPQL, name_in, semantics_of
from tpf_server.continuous.policies import Policies
from tpf_server.continuous.registrations import Registration
from tpf_server.continuous.result_log import ResultLog
from tpf_server.continuous.rspql.parser import parse as parse_rspql
from tpf_server.continuous.rspql.reporting_query import ReportingQuery
from tpf_server.continuous.rspql.reports import StreamOperator
from tpf_server.continuous.rspql.rspql_query import RspqlQuery
from tpf_server.continuous.streams import SharedStreams

NATIVE: Final = "native"
"""What the engine of the service is called where executions are."""
_RELATIONS: Final[dict[StreamOperator, Relation]] = {
    "RSTREAM": "result",
    "ISTREAM": "added",
    "DSTREAM": "removed",
}
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
        policies: say when queries in RSP-QL answer that do not.

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
        policies: Policies | None = None,
    ) -> None:
        self._policies = policies or Policies()
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
        if semantics is not None and semantics not in (*SEMANTICS, CSPARQL, RSPQL):
            known = ", ".join((*SEMANTICS, CSPARQL, RSPQL))
            raise ContinuousQueryError(f"unknown semantics {semantics!r}: {known}")
        if name is not None and (not _NAME.fullmatch(name) or name in (".", "..")):
            raise ContinuousQueryError(f"{name!r} cannot name a query: no URL could say it")
        language = semantics or semantics_of(text)
        if language in (CSPARQL, RSPQL) and into is not None:
            raise ContinuousQueryError("REGISTER says in the text which stream is made")
        if language != CSPARQL and engine not in (None, NATIVE):
            called = "RSP-QL" if language == RSPQL else "CQELS-QL"
            raise ContinuousQueryError(f"{called} does not run on {engine}")
        if language == CSPARQL:
            hosted = self._register_csparql(text, name, semantics, engine)
        elif language == RSPQL:
            hosted = self._register_rspql(text, name, semantics)
        else:
            hosted = self._register_cqels(text, name, semantics, into)
        self.queries[hosted.id] = hosted
        return hosted

    def keep_failed(
        self, wanted: Registration, error: ContinuousError, reserved: Collection[str | None]
    ) -> HostedQuery:
        """Have a query that cannot be begun again, so that it can be looked at and deleted.

        Args:
            wanted: as it was registered.
            error: why it cannot.
            reserved: names that other queries will have.
        """
        said = wanted.name or _last_segment(name_in(wanted.text) or "")
        if said is None or said in self.queries:
            taken = {*self.queries, *reserved}
            said = next(n for n in map(str, itertools.count(1)) if n not in taken)
        hosted = failed_query(said, wanted, error, self._log())
        self.queries[said] = hosted
        return hosted

    def services(self, wanted: Registration) -> tuple[ServiceClause, ...]:
        """The services that a query asks; none where it is no query.

        Raises:
            UnsupportedContinuousQueryError: one of them is at a server that may not be asked.
        """
        text, semantics = wanted.text, wanted.semantics
        try:
            language = semantics or semantics_of(text)
            if language == CSPARQL:
                clauses = parse_csparql(text, self._periodic.base).services
            elif language == RSPQL:
                clauses = self._parsed_rspql(text).services
            else:
                clauses = parse_cqels(text, self._engine.base).services
        except ContinuousError:
            return ()
        allowed = {urlsplit(url)[:2] for url in self._policies.services}
        for clause in clauses:
            if urlsplit(clause.endpoint[1:-1])[:2] not in allowed:
                raise UnsupportedContinuousQueryError(
                    f"SERVICE {clause.endpoint}: its server is none that the setting "
                    "allow_service names"
                )
        return clauses

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
        query = parse_csparql(text, self._periodic.base)
        said = None if query.registration is None else query.registration.name
        if said is not None and name not in (None, said):
            raise ContinuousQueryError(f"the text calls the query {said!r}, and not {name!r}")
        called = self._free_name(name if said is None else _last_segment(said))
        executor = self._executors.get(self._default if engine is None else engine)

        def start(deliver: Callback) -> PeriodicQuery | ExecutedQuery:
            if executor is None:
                return self._periodic.register(text, deliver, name=called)
            started = executor.register(text, deliver, name=called)
            if started.stream is not None:
                try:
                    self._periodic.link(
                        called, started.stream, started.reads, may_feed_itself=False
                    )
                except UnsupportedContinuousQueryError:
                    started.close()
                    raise
            return started

        kept = Registration(text, called if said is None else None, semantics, engine=engine)
        elsewhere = executor is not None
        give = self._streams.made_elsewhere if elsewhere else self._streams.made_by_periodic
        return self._started(query, start, called, kept, ("C-SPARQL", CSPARQL, "result"), give)

    def _parsed_rspql(self, text: str) -> RspqlQuery:
        return parse_rspql(text, self._periodic.base, self._policies.report, self._policies.tick)

    def _register_rspql(self, text: str, name: str | None, semantics: str | None) -> HostedQuery:
        engine, query = self._periodic, self._parsed_rspql(text)
        output = query.registration
        called = self._free_name(
            _last_segment(output.name) if name is None and output is not None else name
        )

        def start(deliver: Callback) -> PeriodicQuery:
            return engine.start(query, deliver, name=called, kind=ReportingQuery)

        kept = Registration(text, called if output is None else name, semantics)
        kind = ("RSP-QL", RSPQL, _RELATIONS[query.operator])
        return self._started(query, start, called, kept, kind, self._streams.made_by_periodic)

    def _started(
        self,
        query: CsparqlQuery,
        start: Callable[[Callback], PeriodicQuery | ExecutedQuery],
        called: str,
        kept: Registration,
        kind: tuple[str, str, Relation],
        give: Callable[[Term, Sequence[Sequence[str]], int], None],
    ) -> HostedQuery:
        """A query that answers at instants.

        Args:
            query: what was parsed.
            start: starts it.
            called: its name in URLs.
            kept: as it was registered.
            kind: language, semantics, and what its emissions are.
            give: takes the elements of the stream that it makes.
        """
        log, numbers = self._log(), itertools.count(1)
        for clause in query.streams:
            self._engine.stream(clause.stream)

        def deliver(answer: PeriodicAnswer) -> None:
            log.append(Emission(next(numbers), answer.at, answer.rows))
            if registered.stream is not None and answer.makes_triples:
                for element in answer.elements:
                    rows = [tuple(str(term) for term in row) for row in element]
                    give(registered.stream, rows, answer.at)

        registered = start(deliver)
        made = set() if registered.stream is None else {registered.stream}
        for stream in made:
            self._engine.create_stream(stream)
        streams = frozenset({*registered.reads, *made})
        return HostedQuery(
            called, kept, *kind, registered, query.query, log, streams, query.services
        )


def _last_segment(name: str) -> str | None:
    """What a query with an IRI as its name is called in URLs; ``None``: nothing fits."""
    last = re.split(r"[/#]", name.rstrip("/#"))[-1]
    return last if _NAME.fullmatch(last) else None
