"""A C-SPARQL query as its parser gives it."""

from dataclasses import dataclass
from typing import Literal

from annotations.terms import Term, Variable
from tpf_client.sparql.algebra import Query
from tpf_client.sparql.path_expressions import PathExpression
from tpf_server.continuous.csparql.windows import Instants, StreamClause
from tpf_server.continuous.engine.static.service_clauses import ServiceClause

_Kind = Literal["query", "stream"]


@dataclass(frozen=True, slots=True)
class RegisterClause:
    """``REGISTER QUERY|STREAM name [COMPUTED EVERY d] AS``.

    Args:
        kind: whether solutions or triples of a stream come out.
        name: of the query.
        stream: for a stream: its IRI, as a term.
        every: COMPUTED EVERY, in milliseconds.
    """

    kind: _Kind
    name: str
    stream: Term | None = None
    every: int | None = None


@dataclass(frozen=True, slots=True)
class CsparqlQuery:
    """A C-SPARQL query.

    Args:
        query: the algebra; `Query.dataset` holds the clauses of static graphs.
        streams: the FROM STREAM clauses, in the order of the text.
        registration: what REGISTER says, where there is one.
        text: what was parsed.
        paths: the paths of any length, with the index of the first character of each.
        services: what the static graphs hold that stand for SERVICE clauses.
        wanted: variables that are wanted of solutions beside those of the template.
    """

    query: Query
    streams: tuple[StreamClause, ...]
    registration: RegisterClause | None
    text: str
    paths: tuple[tuple[PathExpression, int], ...] = ()
    services: tuple[ServiceClause, ...] = ()
    wanted: frozenset[Variable] = frozenset()

    @property
    def instants(self) -> Instants:
        """When it is evaluated."""
        every = None if self.registration is None else self.registration.every
        return Instants.of(every, [clause.window for clause in self.streams])

    @property
    def continuous(self) -> bool:
        """Whether anything says when to evaluate it again."""
        return bool(self.streams) or bool(self.instants.periods)
