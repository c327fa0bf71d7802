"""The graphs that stand for SERVICE clauses: read as long as some query asks for them."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from tpf_server.continuous.changing_graphs import ChangingGraphs
from tpf_server.continuous.engine.static.service_clauses import ServiceClause
from tpf_server.continuous.remote_graphs import RemoteGraphs
from tpf_server.continuous.remote_services import RemoteService


class ServiceGraphs:
    """What is asked of services, for all queries together.

    Args:
        remote: reads again and again.
        changing: takes in what has changed.
        updating: is entered while graphs come and go, and while what has changed is looked up.
        lock: is held while queries are evaluated, inside of that.
    """

    def __init__(
        self,
        remote: RemoteGraphs,
        changing: ChangingGraphs,
        updating: Callable[[], AbstractContextManager[Any]],
        lock: AbstractContextManager[Any],
    ) -> None:
        self._remote = remote
        self._changing = changing
        self._updating = updating
        self._lock = lock
        self._users: dict[ServiceClause, int] = {}
        self._graphs: dict[ServiceClause, RemoteService] = {}

    def take(self, clauses: Iterable[ServiceClause], *, reads: bool = True) -> None:
        """A query is to come; what nobody has asked yet is asked now, in nobody's way.

        Args:
            clauses: of the query.
            reads: false where the timer will do so.
        """
        for clause in clauses:
            with self._updating():
                self._users[clause] = self._users.get(clause, 0) + 1
                new = clause not in self._graphs
                if new:
                    make: Callable[..., RemoteService] = partial(RemoteService, clause)
                    self._graphs[clause] = self._remote.add(make)
                    self._changing.add(self._graphs[clause])
            if new and reads:
                self._remote.read_one(self._graphs[clause])

    def release(self, clauses: Iterable[ServiceClause]) -> None:
        """A query is gone; what nobody else asks is forgotten."""
        for clause in clauses:
            with self._updating(), self._lock:
                self._users[clause] -= 1
                if not self._users[clause]:
                    del self._users[clause]
                    graph = self._graphs.pop(clause)
                    self._remote.drop(graph)
                    self._changing.drop(graph)

    def explain(self, clauses: Iterable[ServiceClause]) -> dict[str, Any]:
        """When services were asked, and why a query has not what they say now."""
        graphs = [self._graphs[clause] for clause in clauses if clause in self._graphs]
        if not graphs:
            return {}
        found: dict[str, Any] = {"services": [graph.state for graph in graphs]}
        for graph in graphs:
            if graph.reason is not None:
                found |= {"state": "degraded", "reason": graph.reason}
        return found
