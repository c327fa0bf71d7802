"""A query that runs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tpf_client.dataflow.changes import Solution
from tpf_server.cqels.delivery import Callback, Emission, Results, Row
from tpf_server.cqels.errors import ContinuousError
from tpf_server.cqels.parser import ContinuousQuery
from tpf_server.cqels.plan import Plan

MakeRows = Callable[[Sequence[tuple[Solution, int]]], tuple[Row, ...]]


class RegisteredQuery:
    """A query that runs.

    Attributes:
        name: what it was registered as.
        query: what was parsed.
        results: what it emitted and nobody took (where it has no callback).
        emitted: how many rows it emitted.
        state: ``running``, ``stopped`` (by a limit, or because its callback raised) or ``closed``.
        error: why it was stopped.
        rows: makes the rows of an emission from solutions of its plan.
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
        self.rows: MakeRows = _no_plan
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


def _no_plan(_solutions: Sequence[tuple[Solution, int]]) -> tuple[Row, ...]:
    raise AssertionError("the query has no plan")
