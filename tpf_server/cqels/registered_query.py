"""A query that runs."""

from collections.abc import Callable, Iterator
from typing import Any

from tpf_server.cqels.delivery import Callback, Emission, Results
from tpf_server.cqels.errors import ContinuousError
from tpf_server.cqels.parser import ContinuousQuery
from tpf_server.cqels.plan import Plan
from tpf_server.cqels.row_maker import RowMaker


class RegisteredQuery:
    """A query that runs.

    Attributes:
        name: what it was registered as.
        query: what was parsed.
        results: what it emitted and nobody took (where it has no callback).
        emitted: how many rows it emitted.
        state: ``running``, ``stopped`` (by a limit, or because its callback raised) or ``closed``.
        error: why it was stopped.
    """

    def __init__(
        self,
        name: str,
        query: ContinuousQuery,
        callback: Callback | None,
        results: Results,
        close: Callable[["RegisteredQuery"], None],
    ) -> None:
        self.name = name
        self.query = query
        self.results = results
        self.emitted = 0
        self.state = "running"
        self.error: ContinuousError | None = None
        self.plan: Plan | None = None
        self.number = 0
        self.maker: RowMaker | None = None
        self.take = results.deliver if callback is None else callback
        self._close = close

    def __iter__(self) -> Iterator[Emission]:
        """The emissions that wait; each is given once."""
        return iter(self.results)

    def close(self) -> None:
        """Stop the query and let go of what it holds."""
        self._close(self)

    def explain(self) -> dict[str, Any]:
        """Its state, its plan with present cardinalities and routes."""
        found: dict[str, Any] = {"name": self.name, "state": self.state, "emitted": self.emitted}
        if self.error is not None:
            found["error"] = str(self.error)
        return found if self.plan is None else {**found, **self.plan.explain()}
