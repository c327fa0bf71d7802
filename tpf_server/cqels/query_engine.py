"""What the engines of both languages have in common: their queries, and when they are closed."""

import itertools
from collections.abc import Iterable
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from tpf_client.sparql.algebra import Dataset
from tpf_client.sparql.expressions.compiler import Environment
from tpf_server.cqels.dictionary import InliningDictionary
from tpf_server.cqels.errors import (
    EngineClosedError,
    LimitError,
    UnknownGraphError,
    UnknownQueryError,
)
from tpf_server.cqels.forgetting import Forgetting
from tpf_server.cqels.limits import Limits
from tpf_server.cqels.static_graphs import StaticGraphs
from tpf_server.cqels.timestamps import date_time
from tpf_server.cqels.typed_terms import InliningTypedTerms


class Closeable(Protocol):
    """A query that runs."""

    def close(self) -> None:
        """Stop it."""


QueryT = TypeVar("QueryT", bound=Closeable)


class QueryEngine(StaticGraphs, Generic[QueryT]):
    """Registered queries over static graphs.

    Args:
        base: what relative IRIs are relative to.
        limits: what is allowed.
        require_graphs: whether a query may only name static graphs that are there.
        now: what NOW() gives in queries.

    Attributes:
        limits: see above.
        dictionary: the integers of terms.
        queries: those that are registered, by their names.
    """

    def __init__(
        self, base: str, limits: Limits | None, *, require_graphs: bool, now: datetime
    ) -> None:
        super().__init__(base)
        self.limits = limits or Limits()
        self.dictionary = InliningDictionary()
        self.queries: dict[str, QueryT] = {}
        self._environment = Environment(InliningTypedTerms(self.dictionary), date_time(now))
        self.dictionary.on_forget(self._environment.forget)
        self.forgetting = Forgetting(
            self.dictionary, self._holders, self._static_holders, self._apart
        )
        self._require_graphs = require_graphs
        self._names = itertools.count(1)
        self._closed = False

    def query(self, name: str) -> QueryT:
        """The query of this name.

        Raises:
            UnknownQueryError: there is none.
        """
        if name not in self.queries:
            raise UnknownQueryError(f"there is no query {name!r}")
        return self.queries[name]

    def _holders(self) -> Iterable[object]:
        """What leads to all that holds terms."""
        raise NotImplementedError

    def _static_holders(self) -> Iterable[object]:
        """What holds terms of static data alone."""
        return ()

    def _apart(self) -> Iterable[object]:
        """What holds no terms, and leads to the rest of the program."""
        return self, self.static, self._environment

    def sweep(self) -> int:
        """Forget terms that nothing holds any more; returns how many."""
        return self.forgetting.sweep()

    def close(self) -> None:
        """Stop all queries."""
        for registered in tuple(self.queries.values()):
            registered.close()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine is closed")

    def _free_name(self, wanted: str | None) -> str:
        """The name of a new query, if there may be one more."""
        if len(self.queries) >= self.limits.queries:
            raise LimitError(f"there are {len(self.queries)} queries already")
        if wanted is None:
            return next(name for name in map(str, self._names) if name not in self.queries)
        if wanted in self.queries:
            raise LimitError(f"there is a query {wanted!r} already")
        return wanted

    def _check_graphs(self, dataset: Dataset) -> None:
        if not self._require_graphs:
            return
        for graph in (*dataset.named, *dataset.default):
            if graph not in self.static.names:
                raise UnknownGraphError(f"no static graph {graph} is loaded")
