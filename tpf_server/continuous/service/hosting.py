"""Register queries of all languages; log and write their emissions."""

import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias, TypeVar

import pyarrow as pa

from annotations.terms import Term
from annotations.urls import origin_of
from tpf_client.errors import QuerySyntaxError
from tpf_client.sparql.algebra import Row
from tpf_client.sparql.tokens import Token, tokenize
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.languages.cqels.parser import parse as parse_cqels
from tpf_server.continuous.languages.csparql.parser import parse as parse_csparql
from tpf_server.continuous.languages.rspql.parser import parse as parse_rspql
from tpf_server.continuous.languages.rspql.rspql_query import (
    STREAM_OPERATORS,
    WINDOW_CLOSE,
    ReportPolicy,
    RspqlQuery,
    TickPolicy,
)
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.elements.elements import iso, milliseconds
from tpf_server.continuous.runtime.errors import (
    ConflictError,
    ContinuousError,
    ContinuousQueryError,
    UnknownQueryError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.runtime.instants.csparql_query import CsparqlQuery, PeriodicAnswer
from tpf_server.continuous.runtime.instants.periodic_query import Executor
from tpf_server.continuous.runtime.running_query import (
    EmissionColumns,
    RunningQuery,
    result_variables,
)
from tpf_server.continuous.runtime.semantics import SEMANTICS, Semantics
from tpf_server.continuous.runtime.windows.continuous_query import ContinuousQuery
from tpf_server.continuous.service.result_log import (
    Event,
    KeptResults,
    Positions,
    Receipts,
    Registration,
    Registrations,
    ResultLog,
)
from tpf_server.continuous.service.streams import Running, SharedStreams

# How a service of continuous queries treats time, elements and readers.
#
# See ``docs/continuous-queries.md`` for each with what it means in the languages.

StreamTimePolicy: TypeAlias = Literal["clock", "elements"]


@dataclass(frozen=True, slots=True)
class Policies:
    """Policies of a service for time, elements and readers.

    Args:
        time: ``elements`` move stream time, or the ``clock`` too, so that windows close without
            them.
        delay: milliseconds by which stream time stays behind the clock.
        ahead: milliseconds that an element may be ahead of the clock.
        whole_batches: refuse a batch with a malformed element whole.
        memory: approximate bytes of the emissions of all queries.
        followers_per_address: readers of one address; 0: all.
        report: policy of queries in RSP-QL without one.
        streams: URLs of servers with streams that queries may read and make, with tokens.
    """

    time: StreamTimePolicy = "clock"
    delay: int = 500
    ahead: int = 60_000
    whole_batches: bool = True
    backlog: int = 10_000
    rows: int = 100_000
    memory: int = 2**28
    followers: int = 256
    followers_per_address: int = 0
    report: ReportPolicy = WINDOW_CLOSE
    tick: TickPolicy = "time"
    services: tuple[str, ...] = ()
    streams: Mapping[str, str] = field(default_factory=dict)


# Which of the languages of continuous queries a text is written in.

CSPARQL: Final = "csparql"
"""What the semantics of C-SPARQL are called, where CQELS-QL has names of policies."""
RSPQL: Final = "rspql"
"""What those of RSP-QL are called."""
_NAMES: Final = {CSPARQL: "C-SPARQL", RSPQL: "RSP-QL"}


def called(semantics: str | None) -> str:
    """Name the language of these semantics."""
    return _NAMES.get(semantics or "", "CQELS-QL")


def semantics_of(text: str) -> str | None:
    """Detect the language of a text by its clauses; ``None``: CQELS-QL.

    C-SPARQL has REGISTER QUERY or STREAM, or FROM [NAMED] STREAM; RSP-QL has REGISTER with another
    word, or FROM NAMED WINDOW.
    """
    pairs = list(pairwise(_tokens(text)))
    for language, registered, read in (
        (RSPQL, STREAM_OPERATORS, "WINDOW"),
        (CSPARQL, ("QUERY", "STREAM"), "STREAM"),
    ):
        for one, other in pairs:
            if _is(other, *registered) and _is(one, "REGISTER"):
                return language
            if _is(other, read) and _is(one, "FROM", "NAMED"):
                return language
    return None


def _name_in(text: str) -> str | None:
    tokens = _tokens(text)
    for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if _is(first, "REGISTER") and second.kind == "word" and third.kind in ("word", "iri"):
            return third.text.strip("<>")
    return None


def _tokens(text: str) -> list[Token]:
    try:
        return list(tokenize(text))
    except QuerySyntaxError:
        return []  # no query in any language


def _is(token: Token, *words: str) -> bool:
    return token.kind == "word" and token.text.upper() in words


Relation = Literal["added", "removed", "result"]


class _RefusedQuery(RunningQuery[Any]):
    query: None = None
    reads: frozenset[Term] = frozenset()

    def __init__(self, name: str, error: ContinuousError) -> None:
        super().__init__(name, None, 0, lambda _: None)
        self.stop(error)


class HostedQuery:
    """A query with its results; `relation` is that of its emissions to the result.

    Attributes:
        variables: of its rows; ``None`` where these are triples.
    """

    def __init__(
        self,
        name: str,
        registration: Registration,
        language: str,
        semantics: str,
        relation: Relation,
        running: Running | _RefusedQuery,
        log: ResultLog,
    ) -> None:
        self.id = name
        self.registration = registration
        self.language = language
        self.semantics = semantics
        self.relation = relation
        self.running = running
        query = None if running.query is None else running.query.query
        self.form = None if query is None else query.form
        self.log = log
        made = set() if running.stream is None else {running.stream}
        self.streams = frozenset({*running.reads, *made})
        self.services = () if running.query is None else running.query.services
        self.variables: list[str] | None = None
        if query is not None and query.form in ("SELECT", "ASK"):
            self.variables = [name[1:] for name in query.variables]
        graphs = isinstance(running.query, RspqlQuery) and any(running.query.graphs)
        columns = () if query is None else result_variables(query, graphs=graphs)
        self.columns = EmissionColumns(columns, removes=relation == "removed", numbered=True)

    def explain(self) -> dict[str, Any]:
        result = {
            "id": self.id,
            **self.running.explain(),
            "language": self.language,
            "semantics": self.semantics,
            "form": self.form,
            "text": self.registration.text,
            "last_event": self.log.last,
        }
        if self.variables is not None:
            result["variables"] = self.variables
        return result

    def encode(self, emission: Emission) -> str:
        """Write an emission as a JSON object."""
        rows: Any
        if self.form == "ASK" and self.relation == "result":
            rows = bool(emission.rows)
        elif self.variables is None:
            rows = [list(row) for row in emission.rows]
        else:
            pairs = (zip(self.variables, row, strict=True) for row in emission.rows)
            rows = [{name: term for name, term in row if term is not None} for row in pairs]
        at = iso(emission.at)
        return json.dumps({"sequence": emission.sequence, "at": at, self.relation: rows})

    def decode(self, text: str) -> Emission:
        value = json.loads(text)
        rows: Any = value[self.relation]
        if isinstance(rows, bool):
            rows = [()] if rows else []
        elif self.variables is not None:
            rows = ([row.get(name) for name in self.variables] for row in rows)
        terms = tuple(tuple([None if t is None else Term(t) for t in row]) for row in rows)
        at = milliseconds(datetime.fromisoformat(value["at"]))
        return Emission(value["sequence"], at, terms)


_RELATIONS: Final[dict[str, Relation]] = {
    "istream": "added",
    "dstream": "removed",
}
"""By relations of policies; all others send the result."""
NATIVE: Final = "native"
"""What the engine of the service is called where executions are."""
_NAME: Final = re.compile(r"[^/\s?#%\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, slots=True)
class ParsedRegistration:
    """A parsed registration; its language ``None`` is the default policy of CQELS-QL."""

    registration: Registration
    language: str | None
    query: ContinuousQuery | CsparqlQuery
    name_in_text: str | None


class Hosting:
    """Register and remove queries."""

    def __init__(
        self,
        engine: Engine,
        streams: SharedStreams,
        log: Callable[[], ResultLog],
        executors: Mapping[str, Executor],
        default: str,
        policies: Policies,
    ) -> None:
        self._policies = policies
        self._executors = executors
        self._default = default
        self.queries: dict[str, HostedQuery] = {}
        self._engine = engine
        self._streams = streams
        self._log = log
        self._numbers = itertools.count(1)
        self._silent = False

    def read(self, registration: Registration) -> ParsedRegistration:
        semantics, engine = registration.semantics, registration.engine
        if engine is not None and engine != NATIVE and engine not in self._executors:
            names = ", ".join((NATIVE, *self._executors))
            raise ContinuousQueryError(f"unknown engine {engine!r}: {names}")
        if semantics is not None and semantics not in (*SEMANTICS, CSPARQL, RSPQL):
            names = ", ".join((*SEMANTICS, CSPARQL, RSPQL))
            raise ContinuousQueryError(f"unknown semantics {semantics!r}: {names}")
        name = registration.name
        if name is not None and (not _NAME.fullmatch(name) or name in (".", "..")):
            raise ContinuousQueryError(f"{name!r} cannot name a query: no URL can contain it")
        language = semantics or semantics_of(registration.text)
        if language in (CSPARQL, RSPQL) and registration.into is not None:
            raise ContinuousQueryError("REGISTER says in the text which stream is made")
        if language != CSPARQL and engine not in (None, NATIVE):
            raise ContinuousQueryError(f"{called(language)} does not run on {engine}")
        query: ContinuousQuery | CsparqlQuery
        text, base, policies = registration.text, self._engine.base, self._policies
        if language == CSPARQL:
            query = parse_csparql(text, base)
        elif language == RSPQL:
            query = parse_rspql(text, base, policies.report, policies.tick)
        else:
            query = parse_cqels(text, base)
            if not query.windows:
                raise UnsupportedContinuousQueryError(
                    "without STREAM or REGISTER this query would never emit: ask the datasets"
                )
        said = query.registration if isinstance(query, CsparqlQuery) else None
        name_in_text = None if said is None else said.name
        if language == CSPARQL and name_in_text is not None and name not in (None, name_in_text):
            raise ContinuousQueryError(
                f"the text calls the query {name_in_text!r}, and not {name!r}"
            )
        allowed = {origin_of(url) for url in policies.services}
        for clause in query.services:
            origin = origin_of(clause.endpoint[1:-1])
            if origin is None or origin not in allowed:
                raise UnsupportedContinuousQueryError(
                    f"SERVICE {clause.endpoint}: its server is not in the setting allow_service"
                )
        return ParsedRegistration(registration, language, query, name_in_text)

    def register(self, parsed: ParsedRegistration) -> HostedQuery:
        """Start a query; see `ContinuousService.register`."""
        kept, name_in_text = parsed.registration, parsed.name_in_text
        name = kept.name
        if name is None:
            name = None if name_in_text is None else _last_segment(name_in_text)
            name = name or next(n for n in map(str, self._numbers) if n not in self.queries)
        if name in self.queries:
            raise ConflictError(f"there is a query {name!r} already")
        if name_in_text is None:
            kept = replace(kept, name=name)
        log = self._log()
        made: list[Running] = []

        def deliver(result: Emission | PeriodicAnswer) -> None:
            if isinstance(result, PeriodicAnswer):
                emission = Emission(log.count + 1, result.at, result.rows)
                elements: Iterable[Sequence[Row]] = result.elements if result.makes_triples else ()
            else:
                emission = result
                elements = (result.rows,) if result.rows else ()
            if not self._silent:
                log.append(emission)
            for maker in made:
                for element in elements:
                    triples = [tuple(str(term) for term in row) for row in element]
                    self._streams.made(maker, triples, result.at)

        before = set(self._engine.streams)
        try:
            running = self._started(parsed, name, deliver)
        except ContinuousError:
            for stream in self._engine.streams.keys() - before:
                self._engine.delete_stream(stream)
            raise
        if running.stream is not None:
            made.append(running)
            self._engine.create_stream(running.stream)
        semantics, relation = self._policy(parsed)
        hosted = HostedQuery(name, kept, called(parsed.language), semantics, relation, running, log)
        self.queries[name] = hosted
        return hosted

    def keep_refused(
        self, registration: Registration, error: ContinuousError, reserved: Collection[str | None]
    ) -> None:
        """Host a query that cannot start again, to be inspected and deleted."""
        name = registration.name or _last_segment(_name_in(registration.text) or "")
        if name is None or name in self.queries:
            taken = {*self.queries, *reserved}
            name = next(n for n in map(str, itertools.count(1)) if n not in taken)
        log, semantics = self._log(), registration.semantics or semantics_of(registration.text)
        log.close(error)
        refused, language = _RefusedQuery(name, error), called(semantics)
        hosted = HostedQuery(name, registration, language, semantics or "", "result", refused, log)
        self.queries[name] = hosted

    def keep(self, kept: Registrations, receipts: Receipts, pushed: Positions) -> None:
        """Keep emissions and receipts for the next server."""
        logs = {
            name: hosted.log.kept(hosted.encode)
            for name, hosted in self.queries.items()
            if hosted.running.error is None
        }
        kept.save_results(logs, receipts.listed(), pushed)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Emit nothing within the block; streams are fed."""
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def take_up(self, results: KeptResults, receipts: Receipts) -> Positions:
        """Resume the logs and receipts of an earlier server; return its positions in pushing."""
        logs, batches, pushed = results
        receipts.take_up(batches)
        for name in logs.keys() & self.queries.keys():
            self.queries[name].log.take_up(logs[name])
        return {name: position for name, position in pushed.items() if name in logs}

    def _policy(self, parsed: ParsedRegistration) -> tuple[str, Relation]:
        query = parsed.query
        if isinstance(query, CsparqlQuery):
            return parsed.language or CSPARQL, _RELATIONS.get(query.operator.lower(), "result")
        policy = self._semantics(parsed)
        return policy.name, _RELATIONS.get(policy.relation, "result")

    def _semantics(self, parsed: ParsedRegistration) -> Semantics:
        policy = parsed.registration.semantics
        return self._engine.semantics if policy is None else SEMANTICS[policy]

    def elsewhere(self, registration: Registration) -> bool:
        """True where an executor beside the engine runs a query."""
        return self._executor(registration) is not None

    def _executor(self, registration: Registration) -> Executor | None:
        if (registration.semantics or semantics_of(registration.text)) != CSPARQL:
            return None
        return self._executors.get(registration.engine or self._default)

    def _started(
        self,
        parsed: ParsedRegistration,
        name: str,
        deliver: Callable[[Emission | PeriodicAnswer], None],
    ) -> Running:
        query, kept = parsed.query, parsed.registration
        if isinstance(query, ContinuousQuery):
            return self._engine.start(
                query, deliver, name=name, semantics=self._semantics(parsed), into=kept.into
            )
        for clause in query.streams:
            self._engine.stream(clause.stream)
        executor = self._executor(kept)
        if executor is None:
            return self._engine.start_at_instants(query, deliver, name=name)
        executed = executor.start(query, deliver, name=name)
        if executed.stream is not None:
            try:
                self._engine.instants.timetable.link(name, executed.stream, executed.reads)
            except UnsupportedContinuousQueryError:
                executed.close()
                raise
        return executed

    def remove(self, hosted: HostedQuery) -> None:
        hosted.running.close()
        self._engine.instants.timetable.unlink(hosted.id)
        del self.queries[hosted.id]
        hosted.log.close(UnknownQueryError(f"query {hosted.id!r} was deleted"))
        hosted.log.discard()


def _last_segment(name: str) -> str | None:
    last = re.split(r"[/#]", name.rstrip("/#"))[-1]
    return last if _NAME.fullmatch(last) else None


NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
_HEARTBEAT: Final = 15.0
"""Seconds of silence after which a follower is told that the connection lives. Only then does the
server notice that one has gone."""
_Portion = TypeVar("_Portion")


def as_events(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """Write emissions as server-sent events."""
    return events(_texts(hosted, after, follow=follow), "data: {}\n".format)


def events(
    portions: Iterable[Sequence[tuple[int, _Portion]]], data: Callable[[_Portion], str]
) -> Iterator[str]:
    """Write server-sent events; an error is the last one."""
    try:
        for portion in portions:
            yield "".join(f"id: {n}\n{data(each)}\n" for n, each in portion) or ": still here\n\n"
    except ContinuousError as error:
        yield f"event: error\ndata: {ending(error)}\n\n"


def as_lines(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """Write emissions as NDJSON; an error is the last line."""
    try:
        for portion in _texts(hosted, after, follow=follow):
            lines = [f'{{"id": {number}, {text[1:]}\n' for number, text in portion]
            yield "".join(lines) or "\n"
    except ContinuousError as error:
        yield ending(error) + "\n"


def ending(error: ContinuousError) -> str:
    """Write why no more emissions come."""
    return json.dumps({"error": str(error), "status": error.status})


def as_arrow(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[bytes]:
    """Write emissions as a stream of Arrow.

    An empty record batch is a heartbeat; an error is ``error`` in the metadata of the last batch.
    """
    written = io.BytesIO()

    def bytes_written() -> bytes:
        result = written.getvalue()
        written.seek(0)
        written.truncate()
        return result

    with pa.ipc.new_stream(written, hosted.columns.schema) as writer:
        try:
            for portion in emissions_of(hosted, after, follow=follow):
                numbers = [number for number, _ in portion]
                writer.write_batch(hosted.columns.batch([each for _, each in portion], numbers))
                yield bytes_written()
        except ContinuousError as error:
            empty = hosted.columns.batch([], [])
            writer.write_batch(empty, custom_metadata={"error": str(error)})
    yield bytes_written()


def emissions_of(
    hosted: HostedQuery, after: int, *, follow: bool
) -> Iterator[Sequence[tuple[int, Emission]]]:
    """Return numbered emissions as they come; an empty portion after a time of silence."""
    read = partial(hosted.log.emissions, decode=hosted.decode)
    return _portions(hosted, after, read, follow=follow)


def _texts(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[Sequence[tuple[int, str]]]:
    texts = partial(hosted.log.texts, encode=hosted.encode)
    return _portions(hosted, after, texts, follow=follow)


def _portions(
    hosted: HostedQuery,
    after: int,
    read: Callable[[Iterable[Event]], Sequence[tuple[int, _Portion]]],
    *,
    follow: bool,
) -> Iterator[Sequence[tuple[int, _Portion]]]:
    last = hosted.log.last
    while (result := hosted.log.read(after, _HEARTBEAT if follow else 0.0)) is not None:
        # Who reads more slowly than results come would follow them without a slot.
        if not follow and (not result or after >= last):
            return
        portion = read(result)
        if portion:
            after = portion[-1][0]
        yield portion
