"""A query that the server runs, in whatever language it was written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from annotations.terms import Term
from tpf_client.errors import QuerySyntaxError
from tpf_client.sparql.tokens import Token, tokenize
from tpf_server.continuous.csparql.executor import ExecutedQuery
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.engine.errors import ContinuousError
from tpf_server.continuous.engine.plans.registered_query import RegisteredQuery
from tpf_server.continuous.engine.running_query import (
    EmissionColumns,
    RunningQuery,
    result_variables,
)
from tpf_server.continuous.engine.semantics import Semantics
from tpf_server.continuous.kept_results import Registration
from tpf_server.continuous.result_log import ResultLog
from tpf_server.continuous.rspql.rspql_query import (
    WINDOW_CLOSE,
    ReportPolicy,
    RspqlQuery,
    TickPolicy,
)

# How a service of continuous queries treats time, elements and readers.
#
# See ``docs/continuous-queries.md`` for each with what it means in the languages.

StreamTimePolicy: TypeAlias = Literal["clock", "elements"]


@dataclass(frozen=True, slots=True)
class Policies:
    """How the service treats time, elements and readers.

    Args:
        time: what moves the time of streams: ``elements`` only, or the ``clock`` too, so that
            windows close and queries are evaluated although nothing comes.
        delay: milliseconds by which stream time stays behind the clock: how long elements may be
            under way.
        lateness: milliseconds that elements wait, to be put in the order of their timestamps.
        ahead: milliseconds that an element may be ahead of the clock, where that counts: one that
            is years ahead would make every later one late.
        whole_batches: refuse a batch with a malformed element whole, instead of that element alone.
        backlog: emissions that are kept of each query.
        rows: rows that these may have together.
        memory: bytes that the emissions of all queries may take, about.
        followers: how many readers may follow results at the same time.
        followers_per_address: how many of them one address may have; 0: all.
        report: when queries in RSP-QL answer that do not say it.
        tick: where it is looked for these instants, likewise.
        services: URLs at whose servers SERVICE may ask.
        streams: URLs whose servers have streams that queries may read and make, with their tokens.
    """

    time: StreamTimePolicy = "clock"
    delay: int = 500
    lateness: int = 0
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
    """The name of the language that has these semantics."""
    return _NAMES.get(semantics or "", "CQELS-QL")


def semantics_of(text: str) -> str | None:
    """The semantics of a text with a clause that only one language has; ``None``: CQELS-QL.

    In C-SPARQL that is REGISTER QUERY or STREAM, or FROM [NAMED] STREAM; in RSP-QL REGISTER with
    another word, or FROM NAMED WINDOW.
    """
    try:
        tokens = tokenize(text)
    except QuerySyntaxError:
        return None  # it is no query in any language
    pairs = list(pairwise(tokens))
    if any(
        (_is(one, "REGISTER") and _is(other, "ISTREAM", "DSTREAM", "RSTREAM"))
        or (_is(one, "FROM", "NAMED") and _is(other, "WINDOW"))
        for one, other in pairs
    ):
        return RSPQL
    if any(
        (_is(one, "REGISTER") and _is(other, "QUERY", "STREAM"))
        or (_is(one, "FROM", "NAMED") and _is(other, "STREAM"))
        for one, other in pairs
    ):
        return CSPARQL
    return None


def name_in(text: str) -> str | None:
    """What a text with REGISTER calls its query, whether or not it can be parsed."""
    try:
        tokens = tokenize(text)
    except QuerySyntaxError:
        return None
    for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if _is(first, "REGISTER") and second.kind == "word" and third.kind in ("word", "iri"):
            return third.text.strip("<>")
    return None


def _is(token: Token, *words: str) -> bool:
    return token.kind == "word" and token.text.upper() in words


Relation = Literal["added", "removed", "result"]


class RefusedQuery(RunningQuery[Any]):
    """A query that was kept, and that the server of now refuses."""

    query: None = None
    stream: None = None
    reads: frozenset[Term] = frozenset()

    def __init__(self, name: str, error: ContinuousError) -> None:
        super().__init__(name, None, 0, lambda _: None)
        self.stop(error)


Hosted: TypeAlias = RegisteredQuery | PeriodicQuery | ExecutedQuery | RefusedQuery
"""A query in whatever runs it."""


class HostedQuery:
    """A query with its results.

    Args:
        relation: what its emissions are: what was added to the result, what was removed from it,
            or the whole of it.

    Attributes:
        form: of its query; ``None`` where that was refused.
        variables: of its rows; ``None`` where these are triples.
        columns: how its results are written as record batches of Arrow.
    """

    def __init__(
        self,
        name: str,
        registration: Registration,
        language: str,
        semantics: str,
        relation: Relation,
        running: Hosted,
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
        """All that is known about it."""
        found = {
            "id": self.id,
            **self.running.explain(),
            "language": self.language,
            "semantics": self.semantics,
            "form": self.form,
            "text": self.registration.text,
            "last_event": self.log.last,
        }
        if self.variables is not None:
            found["variables"] = self.variables
        return found


def refused_query(
    name: str, registration: Registration, error: ContinuousError, log: ResultLog
) -> HostedQuery:
    """A query that was kept, and that the server of now refuses."""
    log.close(error)
    semantics = registration.semantics or semantics_of(registration.text)
    running = RefusedQuery(name, error)
    return HostedQuery(
        name, registration, called(semantics), semantics or "", "result", running, log
    )


def relation_of(semantics: Semantics) -> Relation:
    """What the emissions of a policy of CQELS are."""
    relations: dict[str, Relation] = {"istream": "added", "dstream": "removed"}
    return relations.get(semantics.relation, "result")
