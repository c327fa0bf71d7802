"""Queries whose results are elements of another stream."""

from collections.abc import Iterable, Mapping

from annotations.terms import Term
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.engine.plans.registered_query import RegisteredQuery


class Feeds:
    """Which query feeds which stream."""

    def __init__(self) -> None:
        self._targets: dict[str, Term] = {}

    def __contains__(self, query: str) -> bool:
        return query in self._targets

    def target(self, query: str) -> Term | None:
        """The stream that a query feeds."""
        return self._targets.get(query)

    def add(
        self, registered: RegisteredQuery, target: Term, others: Mapping[str, RegisteredQuery]
    ) -> None:
        """Let a query feed a stream.

        Args:
            registered: the query.
            target: the stream.
            others: all other queries, by name.

        Raises:
            UnsupportedContinuousQueryError: it makes no triples, or it would feed itself.
        """
        query = registered.query
        if query.query.form not in ("CONSTRUCT", "DESCRIBE"):
            raise UnsupportedContinuousQueryError("only CONSTRUCT or DESCRIBE can feed a stream")
        if _reads(registered) & self._reached(target, others.values()):
            raise UnsupportedContinuousQueryError(f"the query would feed itself through {target}")
        self._targets[registered.name] = target

    def remove(self, query: str) -> None:
        """A query feeds nothing any more."""
        self._targets.pop(query, None)

    def _reached(self, target: Term, others: Iterable[RegisteredQuery]) -> set[Term]:
        """The streams that elements of `target` end up in, by way of other queries."""
        others = tuple(others)
        reached = {target}
        grown = True
        while grown:
            grown = False
            for other in others:
                sink = self._targets.get(other.name)
                if sink is not None and sink not in reached and _reads(other) & reached:
                    reached.add(sink)
                    grown = True
        return reached


def _reads(registered: RegisteredQuery) -> set[Term]:
    return {Term(clause.stream) for clause in registered.query.windows}
