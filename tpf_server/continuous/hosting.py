"""Puts queries of all languages into their engines, and their emissions into logs."""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from annotations.terms import Term
from annotations.urls import origin_of
from tpf_client.sparql.algebra import Row
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.cqels.parser import parse as parse_cqels
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery, PeriodicAnswer
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.executor import Executor
from tpf_server.continuous.csparql.parser import parse as parse_csparql
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.emissions import json_of
from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.errors import (
    ContinuousError,
    ContinuousQueryError,
    EngineLimitError,
    UnknownQueryError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.engine.plans.registered_query import RegisteredQuery
from tpf_server.continuous.engine.semantics import SEMANTICS, Semantics
from tpf_server.continuous.engine.windows.continuous_query import ContinuousQuery
from tpf_server.continuous.hosted import (
    CSPARQL,
    RSPQL,
    Hosted,
    HostedQuery,
    Policies,
    Relation,
    called,
    name_in,
    refused_query,
    relation_of,
    semantics_of,
)
from tpf_server.continuous.kept_results import KeptResults, Positions, Receipts, Registration
from tpf_server.continuous.result_log import ResultLog
from tpf_server.continuous.rspql.parser import parse as parse_rspql
from tpf_server.continuous.rspql.reporting_query import ReportingQuery
from tpf_server.continuous.rspql.rspql_query import RspqlQuery, StreamOperator
from tpf_server.continuous.streams import SharedStreams, TripleTexts

NATIVE: Final = "native"
"""What the engine of the service is called where executions are."""
_RELATIONS: Final[dict[StreamOperator, Relation]] = {
    "RSTREAM": "result",
    "ISTREAM": "added",
    "DSTREAM": "removed",
}
_NAME: Final = re.compile(r"[^/\s?#%\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, slots=True)
class WantedQuery:
    """A query that was read, and may be registered.

    Args:
        language: its semantics where it is not CQELS-QL, see `semantics_of`; otherwise the policy
            that was asked for.
        said: what the text calls it; ``None``: nothing.
    """

    registration: Registration
    language: str | None
    query: ContinuousQuery | CsparqlQuery
    said: str | None

    @property
    def reads(self) -> list[Term]:
        """The streams that it names."""
        if isinstance(self.query, ContinuousQuery):
            return [Term(each.stream) for each in self.query.windows if not each.varies]
        return [each.stream for each in self.query.streams]


class Hosting:
    """Registers queries, and ends them.

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

    def read(self, wanted: Registration) -> WantedQuery:
        """Read a query that is to be registered; nothing happens yet.

        Raises:
            ContinuousQueryError: it is no query, or its language has not what is wanted of it.
            UnsupportedContinuousQueryError: it asks a server that may not be asked.
        """
        semantics, engine = wanted.semantics, wanted.engine
        if engine is not None and engine != NATIVE and engine not in self._executors:
            known = ", ".join((NATIVE, *self._executors))
            raise ContinuousQueryError(f"unknown engine {engine!r}: {known}")
        if semantics is not None and semantics not in (*SEMANTICS, CSPARQL, RSPQL):
            known = ", ".join((*SEMANTICS, CSPARQL, RSPQL))
            raise ContinuousQueryError(f"unknown semantics {semantics!r}: {known}")
        name = wanted.name
        if name is not None and (not _NAME.fullmatch(name) or name in (".", "..")):
            raise ContinuousQueryError(f"{name!r} cannot name a query: no URL could say it")
        language = semantics or semantics_of(wanted.text)
        if language in (CSPARQL, RSPQL) and wanted.into is not None:
            raise ContinuousQueryError("REGISTER says in the text which stream is made")
        if language != CSPARQL and engine not in (None, NATIVE):
            raise ContinuousQueryError(f"{called(language)} does not run on {engine}")
        query: ContinuousQuery | CsparqlQuery
        said = None
        if language in (CSPARQL, RSPQL):
            query = self._read_periodic(wanted.text, language)
            said = None if query.registration is None else query.registration.name
        else:
            query = parse_cqels(wanted.text, self._engine.base)
            if not query.windows:
                raise UnsupportedContinuousQueryError(
                    "neither STREAM nor REGISTER: nothing would make this query emit; "
                    "the datasets answer such queries once"
                )
        if language == CSPARQL and said is not None and name not in (None, said):
            raise ContinuousQueryError(f"the text calls the query {said!r}, and not {name!r}")
        allowed = {origin_of(url) for url in self._policies.services}
        for clause in query.services:
            origin = origin_of(clause.endpoint[1:-1])
            if origin is None or origin not in allowed:
                raise UnsupportedContinuousQueryError(
                    f"SERVICE {clause.endpoint}: its server is none that the setting "
                    "allow_service names"
                )
        return WantedQuery(wanted, language, query, said)

    def _read_periodic(self, text: str, language: str) -> CsparqlQuery:
        base, policies = self._periodic.base, self._policies
        if language == CSPARQL:
            return parse_csparql(text, base)
        return parse_rspql(text, base, policies.report, policies.tick)

    def register(self, wanted: WantedQuery) -> HostedQuery:
        """Start a query that was read; see `ContinuousService.register`."""
        kept, said = wanted.registration, wanted.said
        name = kept.name
        if name is None:
            name = None if said is None else _last_segment(said)
            name = name or next(n for n in map(str, self._numbers) if n not in self.queries)
        if name in self.queries:
            raise EngineLimitError(f"there is a query {name!r} already")
        if said is None:
            kept = replace(kept, name=name)
        log, numbers = self._log(), itertools.count(1)
        made: list[Callable[[TripleTexts, int], None]] = []

        def deliver(result: Emission | PeriodicAnswer) -> None:
            if isinstance(result, PeriodicAnswer):
                log.append(Emission(next(numbers), result.at, result.rows))
                elements: Iterable[Sequence[Row]] = result.elements if result.makes_triples else ()
            else:
                log.append(result)
                elements = (result.rows,) if result.rows else ()
            for give in made:
                for element in elements:
                    give([tuple(str(term) for term in row) for row in element], result.at)

        running = self._started(wanted, name, deliver)
        if running.stream is not None:
            made.append(partial(self._made_by(name, running), running.stream))
            self._engine.create_stream(running.stream)
        semantics, relation = self._policy(wanted)
        hosted = HostedQuery(name, kept, called(wanted.language), semantics, relation, running, log)
        self.queries[name] = hosted
        return hosted

    def keep_refused(
        self, wanted: Registration, error: ContinuousError, reserved: Collection[str | None]
    ) -> HostedQuery:
        """Have a query that cannot be begun again, so that it can be looked at and deleted."""
        said = wanted.name or _last_segment(name_in(wanted.text) or "")
        if said is None or said in self.queries:
            taken = {*self.queries, *reserved}
            said = next(n for n in map(str, itertools.count(1)) if n not in taken)
        hosted = refused_query(said, wanted, error, self._log())
        self.queries[said] = hosted
        return hosted

    def keep(self, results: KeptResults, receipts: Receipts, pushed: Positions) -> None:
        """Keep what was emitted and taken last, for the server that is started next."""
        logs = {
            name: hosted.log.kept(partial(json_of, hosted))
            for name, hosted in self.queries.items()
            if hosted.running.error is None
        }
        results.save(logs, receipts.listed(), pushed)

    def take_up(self, results: KeptResults, receipts: Receipts) -> Positions:
        """Go on where an earlier server stopped; gives how far it pushed to other servers."""
        logs, batches, pushed = results.take()
        receipts.take_up(batches)
        for name in logs.keys() & self.queries.keys():
            self.queries[name].log.take_up(logs[name])
        return {name: position for name, position in pushed.items() if name in logs}

    def _policy(self, wanted: WantedQuery) -> tuple[str, Relation]:
        """What the semantics of a query are called, and what its emissions are."""
        query = wanted.query
        if isinstance(query, RspqlQuery):
            return RSPQL, _RELATIONS[query.operator]
        if isinstance(query, CsparqlQuery):
            return CSPARQL, "result"
        policy = self._semantics(wanted)
        return policy.name, relation_of(policy)

    def _semantics(self, wanted: WantedQuery) -> Semantics:
        said = wanted.registration.semantics
        return self._engine.semantics if said is None else SEMANTICS[said]

    def _started(
        self, wanted: WantedQuery, name: str, deliver: Callable[[Emission | PeriodicAnswer], None]
    ) -> Hosted:
        """A query in its engine."""
        query, kept = wanted.query, wanted.registration
        if isinstance(query, ContinuousQuery):
            return self._engine.start(
                query, deliver, name=name, semantics=self._semantics(wanted), into=kept.into
            )
        for clause in query.streams:
            self._engine.stream(clause.stream)
        if isinstance(query, RspqlQuery):
            return self._periodic.start(query, deliver, name=name, kind=ReportingQuery)
        executor = self._executors.get(kept.engine or self._default)
        return (executor or self._periodic).start(query, deliver, name=name)

    def _made_by(self, name: str, running: Hosted) -> Callable[[Term, TripleTexts, int], None]:
        """Who takes the elements of the stream that a query makes."""
        if isinstance(running, PeriodicQuery):
            return self._streams.made_by_periodic
        own = isinstance(running, RegisteredQuery)
        assert running.stream is not None
        try:
            self._periodic.link(name, running.stream, running.reads, may_feed_itself=own)
        except UnsupportedContinuousQueryError:
            running.close()
            raise
        return self._streams.made_by_engine if own else self._streams.made_elsewhere

    def remove(self, hosted: HostedQuery) -> None:
        """End a query; who follows its results is told so."""
        hosted.running.close()
        self._periodic.unlink(hosted.id)
        del self.queries[hosted.id]
        hosted.log.close(UnknownQueryError(f"query {hosted.id!r} was deleted"))
        hosted.log.discard()


def _last_segment(name: str) -> str | None:
    """What a query with an IRI as its name is called in URLs; ``None``: nothing fits."""
    last = re.split(r"[/#]", name.rstrip("/#"))[-1]
    return last if _NAME.fullmatch(last) else None
