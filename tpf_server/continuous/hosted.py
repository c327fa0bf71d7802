"""A query that the server runs, in whatever language it was written."""

from typing import Any, Literal

from annotations.terms import Term
from tpf_client.sparql.algebra import Query
from tpf_server.continuous.engine.errors import ContinuousError
from tpf_server.continuous.engine.running_query import RunningQuery
from tpf_server.continuous.engine.semantics import Semantics
from tpf_server.continuous.engine.static.service_clauses import ServiceClause
from tpf_server.continuous.languages import CSPARQL, RSPQL, semantics_of
from tpf_server.continuous.registrations import Registration
from tpf_server.continuous.result_log import ResultLog

Relation = Literal["added", "removed", "result"]


class HostedQuery:
    """A query with its results.

    Args:
        name: what it is called in URLs.
        registration: as it was registered.
        language: ``CQELS-QL`` or ``C-SPARQL``.
        semantics: the name of the policy that says what is emitted.
        relation: what its emissions are: what was added to the result, what was removed from it,
            or the whole of it.
        running: the query in its engine.
        query: its algebra; ``None`` where it has none.
        log: of its emissions.
        streams: that it reads or makes.
        services: that it asks.
    """

    def __init__(
        self,
        name: str,
        registration: Registration,
        language: str,
        semantics: str,
        relation: Relation,
        running: RunningQuery[Any],
        query: Query | None,
        log: ResultLog,
        streams: frozenset[Term],
        services: tuple[ServiceClause, ...] = (),
    ) -> None:
        self.services = services
        self.id = name
        self.registration = registration
        self.language = language
        self.semantics = semantics
        self.relation = relation
        self.running = running
        self.form = None if query is None else query.form
        self.log = log
        self.streams = streams
        self.variables: list[str] | None = None
        """Of its rows; ``None`` where these are triples."""
        if query is not None and query.form in ("SELECT", "ASK"):
            self.variables = [name[1:] for name in query.variables]

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


def failed_query(
    name: str, registration: Registration, error: ContinuousError, log: ResultLog
) -> HostedQuery:
    """A query that was kept, and that the server of now refuses.

    Args:
        name: what it is called in URLs.
        registration: as it was registered.
        error: why it is refused.
        log: of its emissions, of which there will be none.
    """
    running: RunningQuery[Any] = RunningQuery(name, None, 0, lambda _: None)
    running.stop(error)
    log.close(error)
    semantics = registration.semantics or semantics_of(registration.text)
    language = {CSPARQL: "C-SPARQL", RSPQL: "RSP-QL"}.get(semantics or "", "CQELS-QL")
    return HostedQuery(
        name, registration, language, semantics or "", "result", running, None, log, frozenset()
    )


def relation_of(semantics: Semantics) -> Relation:
    """What the emissions of a policy of CQELS are."""
    relations: dict[str, Relation] = {"istream": "added", "dstream": "removed"}
    return relations.get(semantics.relation, "result")
